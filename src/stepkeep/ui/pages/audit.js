/**
 * The audit log, searched by person, operation and outcome.
 */
import {
	attempt,
	badge,
	button,
	empty,
	get,
	h,
	input,
	line,
	moment,
	put,
	said,
	select,
	setQuery,
	table,
	words,
} from "../kit.js";
import { listPage } from "../components/list.js";

/** @param {Context} context */
export function auditPage(context) {
	/** @type {Record<string, string>} */
	const query = Object.fromEntries(
		["actor", "operation", "target", "outcome"].map((name) => [name, context.query.get(name) ?? ""]),
	);
	/** @type {Answers.AuditEntry[]} */
	let rows = [],
		/** @type {string | null} */
		next = null;
	/** @param {AbortSignal} signal @param {string | null} [cursor] */
	const load = async (signal, cursor = null) => {
		const page = await get("/audit", { ...query, limit: 100, cursor }, signal);
		rows = cursor ? [...rows, ...page.audit] : page.audit;
		next = page.next;
		return { rows: [...rows], next };
	};
	const more = h("div.stack");
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
		load: (signal) => load(signal),
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
		],
		draw: (told) => {
			show(told);
			return more;
		},
	});
	/** @param {{rows: Answers.AuditEntry[], next: string | null}} told */
	const show = ({ rows: list, next: cursor }) =>
		put(
			more,
			list.length
				? h(
						"div.card",
						table(
							"Entries",
							["Time", "Who", "Operation", "About", "Outcome", "Key", "From"],
							list.map((one) => [
								moment(one.at),
								said(one.actor ?? "–"),
								words(one.operation.replaceAll(".", " ")),
								one.target ? said(one.target, 60) : "–",
								badge(
									one.outcome === "done" ? "succeeded" : one.outcome === "refused" ? "cancelled" : "failed",
									words(one.outcome) + (one.code ? `: ${line(one.code, 40)}` : ""),
								),
								one.key ? h("code", line(one.key, 24)) : "–",
								line(one.address ?? one.source ?? "–", 40),
							]),
						),
					)
				: empty("book", "No entry matches"),
			cursor ? button("Show older entries", () => attempt(async () => show(await load(context.signal, cursor)))) : null,
		);
	return page;
}
