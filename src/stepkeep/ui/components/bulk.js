/**
 * An action on many runs, as a job that workers carry out: a dry run says first what it touches; then the dialog shows
 * how far the job is, and what it refused. The job goes on when the dialog is closed.
 * @module
 */
import { get, once, pause, post, refused, Problem } from "../api.js";
import { h, put } from "../dom.js";
import { counted, shortId } from "../format.js";
import { badge } from "../icons.js";
import { openDialog } from "./dialog.js";
import { field, input, problemBox, runLink, said, table } from "./parts.js";
import { toast } from "./toast.js";

const ENDED = new Set(["succeeded", "failed", "cancelled", "rolled_back"]), SHOWN = 50, LOOK_MS = 400;
const WORDS = { cancel: ["Cancel runs", "Cancel", "danger", "cancelled", "already ended, or quarantined"], rerun: ["Run again", "Start", "primary", "started", "still live, or quarantined"] };

/** @param {"cancel" | "rerun"} kind @param {any[]} runs @param {() => void} done */
export function bulkDialog(kind, runs, done) {
	const touched = runs.filter((run) => ENDED.has(run.state) === (kind === "rerun") && !run.quarantined), left = runs.length - touched.length;
	const [title, verb, tone, past, why] = WORDS[kind];
	const reason = input({ placeholder: "Why, for the record" }), undo = h("input", { type: "checkbox" }), out = h("div.stack.tight", { role: "status" });
	const asked = () => ({ action: kind, runs: touched.map((run) => run.id), ...(kind === "cancel" ? { compensate: undo.checked, reason: reason.value } : {}) });
	const controller = new AbortController(), key = once();
	const dialog = openDialog({
		title, wide: true, kind: tone, label: touched.length ? `${verb} ${counted(touched.length, "run")}` : "Nothing to do",
		body: [
			h("p", `This will ${kind === "cancel" ? "cancel" : "run again"} ${counted(touched.length, "run")}.`, left ? ` ${counted(left, "run is", "runs are")} left as ${left === 1 ? "it is" : "they are"}: ${why}.` : ""),
			table("Runs that this touches", ["State", "Workflow", "Key", "Run"], touched.slice(0, SHOWN).map((run) => [badge(run.state), said(run.workflow, 60), run.business_key ? said(run.business_key, 60) : "–", h("span.mono", { title: run.id }, shortId(run.id))])),
			touched.length > SHOWN ? h("p.muted", `and ${counted(touched.length - SHOWN, "more", "more")}`) : null,
			kind === "cancel" ? [field("Reason", reason), h("label.row", undo, "Undo first what the runs did")] : null, out],
		act: async () => {
			if (!touched.length) return true;
			const { job } = await post("/runs/bulk", asked(), key);
			const told = await follow(job);
			done();
			if (!told) return true;
			if (told.done) toast("ok", `${counted(told.done, "run")} ${past}.`);
			if (!told.refused && !told.unchanged) return true;
			const { runs: kept } = await get(`/jobs/${job}/runs`, { limit: 100 });
			put(out, h("p", `${counted(told.done, "run")} ${past}; ${counted(told.refused + told.unchanged, "run")} left as they are.`),
				table("Runs that were left", ["Run", "Why"], kept.filter((one) => one.result === "refused" || one.result === "unchanged").map((one) => [runLink(one.run_id), said(one.detail ?? "nothing was left to do")])));
			dialog.element.querySelector("[type=submit]").hidden = true;
			return false;
		},
	});
	dialog.element.addEventListener("close", () => controller.abort());
	// The dry run says what the service would refuse: a key without the scope, a run that is gone.
	if (touched.length) void post("/runs/bulk", { ...asked(), dry_run: true }).catch(refused).then((told) => { if (told instanceof Problem) put(out, problemBox(told.message)); });

	/** The job once it is done, or null if the dialog was closed before. @param {string} job */
	async function follow(job) {
		const bar = h("progress", { "aria-label": "Progress of the job", max: 1, value: 0 }), text = h("p.muted");
		put(out, text, bar);
		while (!controller.signal.aborted) {
			const told = await get(`/jobs/${job}`);
			bar.value = 1 - told.waiting / Math.max(1, told.runs);
			put(text, `${told.runs - told.waiting} of ${told.runs}`);
			if (told.state !== "running") return told;
			await pause(LOOK_MS, controller.signal);
		}
		toast("run", "The job goes on without the dialog.");
		return null;
	}
}
