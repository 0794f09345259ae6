/**
 * What people do to a run, each as a dialog: approve, reject, decide, complete, send, start, cancel, run again, release.
 * Every page uses these, so that an action asks the same everywhere.
 */
import { area, ask, badge, field, get, h, inert, input, line, may, named, note, once, openDialog, part, post, Problem, problemBox, put, readJson, refused, runLink, said, select, toast } from "./kit.js";

const decided = () => document.dispatchEvent(new CustomEvent("stepkeep:decided"));

/** @param {"approve" | "reject"} choice @param {string} run @param {string} step @param {() => void} done @param {string} [prompt] */
export function gateDialog(choice, run, step, done, prompt = "") {
	const comment = area({ rows: "3", placeholder: "Kept with the decision", autofocus: true });
	openDialog({
		title: choice === "approve" ? "Approve" : "Reject", label: choice === "approve" ? "Approve" : "Reject", kind: choice === "approve" ? "primary" : "danger",
		body: [h("p", prompt ? h("bdi", inert(prompt)) : `The gate ${inert(step)}.`), field("Comment", comment)],
		act: async () => {
			const told = await post(`/runs/${run}/${choice}`, { step, comment: comment.value });
			toast("ok", told.repeated ? "This had been decided so before." : choice === "approve" ? "Approved" : "Rejected");
			decided();
			done();
		},
	});
}

const CHOICES = { retry: "Retry: all attempts again", skip: "Skip: go on without it", complete: "Complete: it has succeeded, with this output", fail: "Fail: the step has failed" };
/** What a person may decide about a step in a state; one that holds takes every choice. */
export const DECIDABLE = { held: Object.keys(CHOICES), retrying: Object.keys(CHOICES), ready: ["skip", "fail"], awaiting_event: ["skip", "complete", "fail"] };

/** A person decides about a step that holds, or that is stuck. @param {string} run @param {string} step @param {() => void} done @param {string} [chosen] @param {string} [state] */
export function holdDialog(run, step, done, chosen = "retry", state = "held") {
	const output = area({ class: "code", rows: "3", placeholder: "JSON" }), box = field("Output", output), show = (value) => { box.hidden = value !== "complete"; };
	const choice = select(DECIDABLE[state].map((one) => [one, CHOICES[one]]), chosen, show);
	show(chosen);
	ask({ title: `Decide about ${line(step, 60)}`, label: "Decide", done: "Decided", more: [field("Decision", choice), box], isNeeded: state !== "held",
		text: state === "held" ? "No attempt is left. The step holds until it is decided." : "The step waits. What you decide is kept on record with its reason.",
		path: `/runs/${run}/steps/${named(step)}/decide`, given: () => ({ choice: choice.value, ...(choice.value === "complete" ? { output: readJson(output.value, "The output") ?? null } : {}) }), then: () => { decided(); done(); } });
}

/** @param {string} run @param {string} step @param {() => void} done */
export function completeDialog(run, step, done) {
	const token = input({ autofocus: true }), outcome = select([["Succeeded", "Succeeded"], ["Failed", "Failed"], ["Cancelled", "Cancelled"]], "Succeeded"), output = area({ class: "code", rows: "3", placeholder: "JSON" }), notes = area({ rows: "2" });
	const lost = h("button.button.small", { type: "button", on: { click: async () => {
		try {
			const told = await post(`/runs/${run}/steps/${named(step)}/token`, { reason: "asked for on the page of the run" });
			token.value = told.token;
			toast("ok", "A new token. The old one is useless from now on.");
		} catch (error) {
			refused(error);
			toast("bad", error.message);
		}
	} } }, "Replace a lost token");
	openDialog({ title: `Complete ${line(step, 60)}`, label: "Complete", extra: lost, body: [field("Completion token", token, "It was given to the step's handler."), field("Outcome", outcome), field("Output", output), field("Notes", notes)],
		act: async () => {
			const value = readJson(output.value, "The output");
			await post(`/runs/${run}/steps/${named(step)}/complete`, { token: token.value.trim(), outcome: outcome.value, notes: notes.value, ...(value === undefined ? {} : { output: value }) });
			toast("ok", "Completed");
			done();
		} });
}

/** @param {string} run @param {string} name @param {() => void} done */
export function sendDialog(run, name, done) {
	const which = input({ value: name, autofocus: !name }), payload = area({ class: "code", rows: "4", placeholder: "JSON" });
	openDialog({ title: "Send a message", label: "Send", body: [field("Message", which), field("Payload", payload)],
		act: async () => {
			const value = readJson(payload.value, "The payload");
			await post(`/runs/${run}/messages`, { name: which.value.trim(), ...(value === undefined ? {} : { payload: value }) }, once());
			toast("ok", "Sent");
			done();
		} });
}

/** @param {any} view the body of the run @param {() => void} done */
export function cancelDialog(view, done) {
	const undo = h("input", { type: "checkbox", on: { change: () => void preview() } }), shown = h("div", { role: "status" }), run = view.run.id;
	async function preview() {
		put(shown);
		if (!undo.checked) return;
		const told = await get(`/runs/${run}/rollback`).catch(refused);
		if (undo.checked) put(shown, told instanceof Problem ? problemBox(told.message) : rollbackView(told));
	}
	ask({ title: "Cancel the run", kind: "danger", done: "Cancelled", below: [h("label.row", undo, "Undo first what the run did"), shown], path: `/runs/${run}/cancel`, given: () => ({ compensate: undo.checked }), then: done });
}

const list = (title, rows) => rows.length ? [h("h3", title), h("ol.plain-list", rows.slice(0, 100).map((one) => h("li.row", said(one.step ?? one, 80), one.level ? runLink(one.run_id) : null, one.says && h("span.muted", line(one.says, 200)))))] : null;

/** What a cancel with undo would do. */
function rollbackView(told) {
	if (!told.possible) return problemBox(told.refusal?.message ?? told.refusal ?? "This run cannot be rolled back.");
	return h("div.stack.tight", told.undo.length ? list("Undone, in this order", told.undo) : h("p.muted", "There is nothing to undo."), list("Stays as it is", told.cannot_undo), list("Running now, and told to stop", told.running),
		h("p.row", "The run then ends as ", badge(told.ends), note("undo", "undo", `rollback ${told.rollback}`)));
}

/**
 * Go on under another version: one run, or every live run of a version, after a preview of what that means.
 * @param {{workflow: string, of: number, run?: string, to?: number}} what @param {(told: any) => void} done
 */
export async function migrateDialog({ workflow, of, run, to }, done) {
	const { definitions } = await get("/workflows", { name: workflow, limit: 200 }), others = definitions.map((one) => one.version).filter((one) => one !== of);
	if (!others.length) return toast("wait", "There is no other version of the workflow.");
	const [path, look] = run ? [`/runs/${run}/migrate`, `/runs/${run}/migration-preview`] : [`/migrations/${part(workflow)}`, `/migrations/${part(workflow)}/preview`], shown = h("div.stack.tight", { role: "status" });
	const choice = select(others.map((one) => [String(one), `Version ${one}`]), String(to ?? others.at(-1)), () => void preview()), given = () => ({ to: Number(choice.value), ...(run ? {} : { of }) });
	async function preview() {
		const told = await post(look, given()).catch(refused);
		put(shown, told instanceof Problem ? problemBox(told.message) : run ? told.allowed ? [list("Adopted as it is", told.adopted), list("Runs under the new version", told.runs), list("People are asked anew", told.reopens), list("Not there any more", told.removed)] : problemBox(`The run stays with its version: ${told.reasons.join("; ")}.`)
			: [h("p.row", note("ok", "check", `${told.could_migrate} can be migrated`), note(told.must_stay ? "wait" : "idle", "hand", `${told.must_stay} must stay`)), h("ul.stack.tight", told.reasons.map((one) => h("li", `${one.runs}: `, said(one.reason, 300))))]);
	}
	ask({ title: run ? "Migrate the run" : `Migrate the live runs of version ${of}`, label: "Migrate", more: [field("To", choice), shown], path, given, then: done,
		text: "A run ends as cancelled, and a new one adopts what has settled: both, or neither." });
	await preview();
}

/** Pause a run, or go on with it. @param {string} run @param {"pause" | "resume"} what @param {() => void} done */
export function pauseDialog(run, what, done) {
	const isPause = what === "pause";
	ask({ title: isPause ? "Pause the run" : "Go on with the run", label: isPause ? "Pause" : "Resume", done: isPause ? "Paused" : "Resumed", path: `/runs/${run}/${what}`, then: done,
		text: isPause ? "Nothing more of it is claimed. What is under way ends by itself; deadlines and the timeout go on." : "Its steps can be claimed again." });
}

/** @param {string} run @param {"quarantine" | "release"} what @param {() => void} done */
export function quarantineDialog(run, what, done) {
	const isEnd = what === "release";
	ask({ title: isEnd ? "End the quarantine" : "Quarantine the run", label: isEnd ? "Release" : "Quarantine", kind: isEnd ? "primary" : "danger", isNeeded: true, path: `/runs/${run}/${what}`, then: done,
		text: isEnd ? "Workers may claim its steps again." : "Nothing claims, changes or deletes the run until it is released." });
}

/**
 * The buttons that move a run whose explanation says this.
 * @param {() => void} done @returns {{label: string, kind: string, icon: string, act: () => any}[]}
 */
export function moves(cause, view, done) {
	const run = view.run.id, step = cause.subject;
	switch (cause.code) {
		case "approval": return may("decide") ? [
			{ label: "Approve", kind: "good", icon: "check", act: () => gateDialog("approve", run, step, done) }, { label: "Reject", kind: "danger", icon: "cross", act: () => gateDialog("reject", run, step, done) }] : [];
		case "decision": return may("decide") ? [{ label: "Retry", kind: "primary", icon: "retry", act: () => holdDialog(run, step, done) }, { label: "Skip or fail", kind: "", icon: "hand", act: () => holdDialog(run, step, done, "skip") }] : [];
		case "retry": return may("decide") ? [{ label: "Retry now or decide", kind: "", icon: "hand", act: () => holdDialog(run, step, done, "retry", "retrying") }] : [];
		case "completion": return may("complete") ? [{ label: "Complete", kind: "primary", icon: "check", act: () => completeDialog(run, step, done) }] : [];
		case "event": {
			const waits = view.run.waiting_for.find((one) => one.step === step || one.name === step);
			return may("complete") ? [{ label: "Send the message", kind: "primary", icon: "send", act: () => sendDialog(run, waits?.event ?? "", done) }] : [];
		}
		case "not_started": case "scheduled": return may("start") ? [{ label: "Start now", kind: "primary", icon: "play", act: async () => { await post(`/runs/${run}/start`, {}); toast("ok", "Started"); done(); } }] : [];
		case "paused": return may("operate") ? [{ label: "Resume", kind: "primary", icon: "play", act: () => pauseDialog(run, "resume", done) }] : [];
		case "quarantined": return may("operate") ? [{ label: "Release", kind: "primary", icon: "shield", act: () => quarantineDialog(run, "release", done) }] : [];
		case "stuck": return may("operate") ? [{ label: "Cancel the run", kind: "danger", icon: "slash", act: () => cancelDialog(view, done) }] : [];
		default: return [];
	}
}
