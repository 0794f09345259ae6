/**
 * The audit log in sentences: who did what to which thing, searched by person, operation, thing, outcome and time.
 */
import {
	attempt,
	badge,
	button,
	empty,
	field,
	get,
	h,
	input,
	line,
	link,
	moment,
	openDialog,
	runLink,
	said,
	select,
	setQuery,
	table,
	words,
} from "../kit.js";
import { listPage, paged } from "../components/list.js";

const MOST_EXPORTED = 20_000,
	FILTERS = ["actor", "operation", "target", "outcome", "since", "until"],
	RUN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** @typedef {(target: Child, detail: Record<string, any>) => Child} Says */
/** @type {(detail: Record<string, any>) => Child} */
const right = ({ role, group }) => [role ? "the role " : "the group ", h("b", said(role ?? group, 60))];
/** @type {Record<string, Says>} What each change of people says. */
const PEOPLE = {
	granted: (target, detail) => ["gave ", target, " ", right(detail)],
	revoked: (target, detail) => ["took ", right(detail), " from ", target],
	delegated: (target, { to, reason }) => [
		"let ",
		h("b", said(to, 60)),
		" decide for ",
		target,
		reason ? [": ", said(reason, 120)] : null,
	],
	undelegated: (target, { to }) => ["ended that ", h("b", said(to, 60)), " decides for ", target],
	user_created: (target) => ["registered ", target],
	user_disabled: (target) => ["disabled ", target],
	user_enabled: (target) => ["enabled ", target],
	tenant_created: (target) => ["made the tenant ", target],
	tenant_changed: (target) => ["changed the tenant ", target],
	key_created: (target, { scopes }) => ["made a key for ", target, scopes ? `: ${[scopes].flat().join(", ")}` : ""],
	key_rotated: (target) => ["replaced a key of ", target],
	key_revoked: (target) => ["revoked a key of ", target],
	signed_in: () => "signed in",
	signed_out: () => "signed out",
};
/** @type {[RegExp, string][]} The page that shows what an operation is about. */
const PLACES = [
	[/^(user|granted|revoked|delegated|undelegated|users)/, "/users"],
	[/^(key|keys)/, "/keys"],
	[/^triggers/, "/triggers"],
	[/^(policies|publish_policy)/, "/policies"],
	[/^(sinks|outbox)/, "/outbox"],
	[/^jobs/, "/jobs"],
	[/^hooks/, "/hooks"],
	[/^(pauses|slots|resources)/, "/workers"],
];

/** What an entry is about, with a link to where it is shown. @param {Answers.AuditEntry} one */
function targetOf({ target, operation }) {
	if (!target) return null;
	if (RUN.test(target)) return ["run ", runLink(target)];
	const place = PLACES.find(([pattern]) => pattern.test(operation))?.[1];
	if (place) return link(place, said(target, 60));
	return /publish|start|workflow/.test(operation)
		? link(`/workflows/${encodeURI(target)}`, said(target, 60))
		: said(target, 60);
}

/** An entry as a sentence without its subject. @param {Answers.AuditEntry} one */
function sentenceOf(one) {
	const target = targetOf(one),
		says = one.source === "people" ? PEOPLE[one.operation] : null;
	if (says) return says(target, one.detail ?? {});
	const [group, verb] = one.operation.includes(".") ? one.operation.split(".") : ["", one.operation];
	return [words(verb).toLowerCase(), group ? ` (${words(group).toLowerCase()})` : "", target ? [": ", target] : ""];
}

/** @param {Context} context */
export function auditPage(context) {
	/** @type {Record<string, string>} */
	const query = Object.fromEntries(FILTERS.map((name) => [name, context.query.get(name) ?? ""]));
	const entries = paged("/audit", "audit");
	/** @param {string} name @param {string} value */
	const set = (name, value) => {
		query[name] = value;
		setQuery(query);
		page.again();
	};
	/** @param {string} name @param {string} label */
	const box = (name, label) =>
		input({
			type: "search",
			placeholder: label,
			"aria-label": label,
			value: query[name],
			on: { change: (event) => set(name, event.target.value.trim()) },
		});
	const page = listPage(context, {
		title: "Audit",
		seconds: 20,
		load: (signal) => entries.read(signal, query),
		actions: () => [
			box("actor", "Who"),
			box("operation", "Operation"),
			box("target", "About"),
			select(
				[
					["", "Any outcome"],
					["done", "Done"],
					["refused", "Refused"],
					["failed", "Failed"],
				],
				query.outcome,
				(value) => set("outcome", value),
				"Outcome",
			),
			button("Time", () => timesDialog(query, set), { icon: "clock" }),
			button("Export", () => void attempt(() => save(query, context.signal)), { icon: "book" }),
		],
		draw: (/** @type {Answers.AuditEntry[]} */ list, again) =>
			list.length
				? [
						h(
							"div.card",
							table(
								"Entries",
								["Time", "What", "Outcome", "Key", "From"],
								list.map((one) => [
									moment(one.at),
									[
										h("b", said(one.actor || "–", 60)),
										one.vouched_by ? h("span.faint", " by ", said(one.vouched_by, 60)) : null,
										" ",
										sentenceOf(one),
									],
									badge(
										one.outcome === "done" ? "succeeded" : one.outcome === "refused" ? "cancelled" : "failed",
										words(one.outcome) + (one.code ? `: ${line(one.code, 40)}` : ""),
									),
									one.key ? h("code", line(one.key, 24)) : "–",
									line(one.address ?? one.source ?? "–", 40),
								]),
							),
						),
						entries.more(again),
					]
				: empty("book", "No entry matches"),
	});
	return page;
}

/** @param {Record<string, string>} query @param {(name: string, value: string) => void} set */
function timesDialog(query, set) {
	const local = (/** @type {string} */ iso) => {
		const at = new Date(iso);
		return iso ? new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : "";
	};
	const boxes = ["since", "until"].map((name) => input({ type: "datetime-local", value: local(query[name]) }));
	openDialog({
		title: "Time",
		label: "Apply",
		body: h("div.two", field("From", boxes[0]), field("To", boxes[1])),
		act: async () => {
			["since", "until"].forEach((name, at) =>
				set(name, boxes[at].value ? new Date(boxes[at].value).toISOString() : ""),
			);
		},
	});
}

/** Saves what the filters find as a file, an entry on each line. @param {Record<string, string>} query @param {AbortSignal} signal */
async function save(query, signal) {
	const rows = [];
	/** @type {string | null} */
	let cursor = null;
	do {
		const told = /** @type {Answers.AuditPage} */ (
			await get("/audit", /** @type {any} */ ({ ...query, limit: 200, cursor }), signal)
		);
		rows.push(...told.audit);
		cursor = told.next;
	} while (cursor && rows.length < MOST_EXPORTED);
	const address = URL.createObjectURL(
		new Blob(
			rows.map((one) => `${JSON.stringify(one)}\n`),
			{ type: "application/x-ndjson" },
		),
	);
	h("a", { href: address, download: "audit.jsonl" }).click();
	URL.revokeObjectURL(address);
}
