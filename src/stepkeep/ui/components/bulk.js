/**
 * An action on many runs: what it touches and what it leaves is shown first; then the runs go one after the other, and
 * each refusal is told.
 * @module
 */
import { post, Problem } from "../api.js";
import { h, put } from "../dom.js";
import { counted, shortId } from "../format.js";
import { badge } from "../icons.js";
import { openDialog } from "./dialog.js";
import { field, input, said, table } from "./parts.js";
import { toast } from "./toast.js";

const ENDED = new Set(["succeeded", "failed", "cancelled", "rolled_back"]);
const AT_ONCE = 4, SHOWN = 50;

/** @param {"cancel" | "rerun"} kind @param {any[]} runs @param {() => void} done */
export function bulkDialog(kind, runs, done) {
	const wants = (run) => (kind === "cancel" ? !ENDED.has(run.state) : ENDED.has(run.state)) && !run.quarantined;
	const touched = runs.filter(wants), left = runs.length - touched.length;
	const reason = input({ placeholder: "Why, for the record" }), undo = h("input", { type: "checkbox" }), progress = h("p.muted", { role: "status" });
	const word = kind === "cancel" ? "cancel" : "run again";
	openDialog({
		title: kind === "cancel" ? "Cancel runs" : "Run again", wide: true, kind: kind === "cancel" ? "danger" : "primary",
		label: touched.length ? `${kind === "cancel" ? "Cancel" : "Start"} ${counted(touched.length, "run")}` : "Nothing to do",
		body: [
			h("p", `This will ${word} ${counted(touched.length, "run")}.`, left ? ` ${counted(left, "run is", "runs are")} left as ${left === 1 ? "it is" : "they are"}: ${kind === "cancel" ? "already ended, or quarantined" : "still live, or quarantined"}.` : ""),
			table("Runs that this touches", ["State", "Workflow", "Key", "Run"], touched.slice(0, SHOWN).map((run) => [badge(run.state), said(run.workflow, 60), run.business_key ? said(run.business_key, 60) : "–", h("span.mono", { title: run.id }, shortId(run.id))])),
			touched.length > SHOWN ? h("p.muted", `and ${counted(touched.length - SHOWN, "more", "more")}`) : null,
			kind === "cancel" ? [field("Reason", reason), h("label.row", undo, "Undo first what the runs did")] : null, progress],
		act: async () => {
			if (!touched.length) return;
			let at = 0, worked = 0;
			const refused = [];
			const work = async () => {
				while (at < touched.length) {
					const run = touched[at];
					at += 1;
					try {
						if (kind === "cancel") await post(`/runs/${run.id}/cancel`, { compensate: undo.checked, reason: reason.value });
						else await post(`/runs/${run.id}/rerun`, {});
						worked += 1;
					} catch (error) {
						if (!(error instanceof Problem)) throw error;
						refused.push(`${shortId(run.id)}: ${error.message}`);
					}
					put(progress, `${worked + refused.length} of ${touched.length}`);
				}
			};
			await Promise.all(Array.from({ length: AT_ONCE }, work));
			done();
			if (worked) toast("ok", `${counted(worked, "run")} ${kind === "cancel" ? "cancelled" : "started"}.`);
			if (refused.length) toast("bad", `${counted(refused.length, "run was", "runs were")} refused. ${refused[0]}`);
		},
	});
}
