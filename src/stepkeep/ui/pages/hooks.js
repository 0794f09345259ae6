/**
 * Inbound webhooks: endpoints whose signed deliveries become messages or starts of runs. They are saved, tried with a
 * recorded delivery, and removed.
 */
import {
	ago,
	area,
	button,
	confirmDialog,
	copyButton,
	empty,
	field,
	h,
	inert,
	jsonView,
	line,
	link,
	may,
	note,
	openDialog,
	part,
	post,
	put,
	readJson,
	said,
	send,
	SMALL,
	table,
	words,
} from "../kit.js";
import { listPage, paged } from "../components/list.js";

const EXAMPLE = {
	hook: "payments",
	scheme: "standard",
	secrets: ["PAYMENTS_HOOK"],
	message: { name: "paid", key: "${{ body.order }}" },
};

/** @param {Context} context */
export function hooksPage(context) {
	const hooks = paged("/hooks", "hooks");
	return listPage(context, {
		title: "Hooks",
		load: (signal) => hooks.read(signal),
		actions: (again) =>
			may("admin") && button("Add a hook", () => saveDialog(EXAMPLE, again), { icon: "plus", kind: "primary" }),
		draw: (/** @type {Answers.HookView[]} */ list, again) =>
			list.length
				? [
						h(
							"div.card",
							table(
								"Hooks",
								["Hook", "Signed as", "A delivery", "Only if", "Saved", ""],
								list.map((one) => row(one, again)),
							),
						),
						hooks.more(again),
					]
				: empty(
						"mail",
						"No inbound hooks",
						"Another system calls an address of this service, and its signed delivery becomes a message or a run. ",
						h("code", "stepkeep hooks add FILE"),
					),
	});
}

/** @param {Answers.HookView} one @param {() => void} again */
function row(one, again) {
	const path = `/hooks/${part(one.hook)}`;
	return [
		[h("b", said(one.hook)), h("div.row.faint", h("code", line(path, 80)), copyButton(path, "Copy the address"))],
		[words(one.scheme), h("div.faint", `secret ${line(one.secrets.join(", "), 60)}`)],
		one.start
			? ["starts ", link(`/workflows/${encodeURI(one.start.workflow)}`, said(one.start.workflow, 60))]
			: [
					"sends ",
					h("b", said(one.message?.name ?? "a message", 60)),
					one.message?.key ? [" to the run of ", h("code", line(one.message.key, 60))] : null,
				],
		one.when ? h("code", line(one.when, 120)) : "–",
		[ago(one.saved_at), one.saved_by ? [" by ", said(one.saved_by)] : null],
		h(
			"div.row",
			may("complete") && button("Try", () => tryDialog(one), SMALL),
			may("admin") && link(`/audit?operation=hooks.receive&target=${encodeURIComponent(one.hook)}`, "Deliveries"),
			may("admin") && button("Change", () => saveDialog(written(one), again), SMALL),
			may("admin") &&
				button(
					"Remove",
					() =>
						confirmDialog(
							"Remove",
							`Deliveries to ${inert(one.hook)} are refused. Its revisions stay on record.`,
							() => send("DELETE", path, {}),
							again,
						),
					{ kind: "small danger" },
				),
		),
	];
}

/** A hook as it is saved. @param {Answers.HookView} one */
const written = ({ hook, scheme, secrets, message, start, when }) => ({ hook, scheme, secrets, message, start, when });

/** @param {object} document @param {() => void} again */
function saveDialog(document, again) {
	const text = area({ class: "code", rows: "14", value: JSON.stringify(document, null, 2) });
	openDialog({
		title: "Save a hook",
		label: "Save",
		done: "Saved",
		wide: true,
		body: field("Hook", text, "JSON. `secrets` are names, not the secrets. One of the same name is replaced."),
		act: async () => {
			const told = await post("/hooks", { hook: readJson(text.value, "The hook") });
			again();
			return told;
		},
	});
}

/** What a recorded delivery would do: nothing is sent or started. @param {Answers.HookView} one */
function tryDialog(one) {
	const headers = area({ class: "code", rows: "4", value: "{}" }),
		body = area({ class: "code", rows: "6", value: "{}" }),
		out = h("div.stack.tight", { role: "status" });
	openDialog({
		title: `Try ${line(one.hook, 60)}`,
		label: "Try",
		wide: true,
		body: [
			h("p", "Verifies and maps a recorded delivery. Nothing is sent or started."),
			field("Headers", headers, "JSON, as they came."),
			field("Body", body, "Byte for byte."),
			out,
		],
		act: async () => {
			const told = await post(`/hooks/${part(one.hook)}/test`, {
				headers: readJson(headers.value, "The headers") ?? {},
				body: body.value,
			});
			const isGood = told.result.startsWith("would");
			put(
				out,
				note(isGood ? "ok" : "bad", isGood ? "check" : "cross", words(told.result).toLowerCase()),
				told.message ? h("p", said(told.message, 400)) : null,
				jsonView(told, { open: false, label: "Answer" }),
			);
			return false;
		},
	});
}
