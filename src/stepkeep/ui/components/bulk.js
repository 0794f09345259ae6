/**
 * An action on many runs, as a job that workers carry out: a dry run says first what it touches; then the dialog shows
 * how far the job is, and what it refused. The job goes on when the dialog is closed.
 */
import {
	badge,
	counted,
	field,
	get,
	h,
	input,
	link,
	note,
	once,
	openDialog,
	pause,
	post,
	Problem,
	problemBox,
	put,
	refused,
	runLink,
	said,
	shortId,
	table,
	toast,
	words,
} from "../kit.js";

const SHOWN = 50,
	LOOK_MS = 400,
	MOVING = ["queued", "running", "blocked"],
	ENDED = ["failed", "cancelled", "rolled_back"];
/** @type {Record<string, [title: string, verb: string, tone: string, past: string, why: string, states: string[]]>} What each
 * is called, what it has done, why a run is left as it is, and the states that it is about. */
export const BULK = {
	cancel: [
		"Cancel runs",
		"Cancel",
		"danger",
		"cancelled",
		"already ended, or quarantined",
		["idle", ...MOVING, "paused", "validating", "stopping", "compensating"],
	],
	rerun: ["Run again", "Start", "primary", "started", "still live, or quarantined", [...ENDED, "succeeded"]],
	retry: ["Retry after a fix", "Retry", "primary", "started again", "still live, succeeded, or quarantined", ENDED],
	pause: ["Pause runs", "Pause", "primary", "paused", "not moving, or quarantined", MOVING],
	resume: ["Resume runs", "Resume", "primary", "resumed", "not paused, or quarantined", ["paused"]],
};

const SAYS = {
	rerun: "Every step runs again, from the start: an effect may happen twice.",
	retry: "What finished is adopted; what did not runs again, and its effect may happen twice.",
};

/**
 * @param {"retry" | "cancel" | "rerun" | "pause" | "resume"} kind @param {any[]} runs those chosen, or those in sight of the ones that match
 * @param {() => void} done @param {Record<string, any>} [where] the filter, for all that match it
 */
export function bulkDialog(kind, runs, done, where) {
	const [title, verb, tone, past, why, states] = BULK[kind],
		does = kind === "rerun" ? "run again" : kind,
		isStart = kind === "rerun" || kind === "retry";
	const touched = runs.filter((run) => states.includes(run.state) && !run.quarantined),
		left = where ? 0 : runs.length - touched.length;
	const reason = input({ placeholder: "Why, for the record" }),
		undo = h("input", { type: "checkbox" }),
		out = h("div.stack.tight", { role: "status" });
	// A state that the action is not about would only be refused; without a state the service takes those that it is about.
	const fits = where?.state?.filter((/** @type {string} */ one) => states.includes(one)),
		which = where
			? { where: { ...where, state: fits ?? (isStart ? ENDED : states) } }
			: { runs: touched.map((run) => run.id) };
	const asked = () => ({
		action: kind === "retry" ? "rerun" : kind,
		...which,
		...(kind === "retry" ? { unfinished: true } : {}),
		...(kind === "cancel" ? { compensate: undo.checked } : {}),
		...(isStart ? {} : { reason: reason.value }),
	});
	let count = where ? 0 : touched.length;
	const says = h(
		"p",
		where ? "Looking for the runs that match …" : `This will ${does} ${counted(count, "run")}.`,
		left ? ` ${counted(left, "run is", "runs are")} left as ${left === 1 ? "it is" : "they are"}: ${why}.` : "",
	);
	const controller = new AbortController(),
		key = once();
	const dialog = openDialog({
		title,
		wide: true,
		kind: tone,
		label: count ? `${verb} ${counted(count, "run")}` : "Nothing to do",
		body: [
			says,
			touched.length
				? table(
						"Runs that this touches",
						["State", "Workflow", "Key", "Run"],
						touched
							.slice(0, SHOWN)
							.map((run) => [
								badge(run.state),
								said(run.workflow, 60),
								run.business_key ? said(run.business_key, 60) : "–",
								h("span.mono", { title: run.id }, shortId(run.id)),
							]),
					)
				: null,
			where
				? h("p.muted", "The newest of them are shown. The job is about those that match when it starts.")
				: touched.length > SHOWN
					? h("p.muted", `and ${counted(touched.length - SHOWN, "more", "more")}`)
					: null,
			isStart ? h("p.row", note("wait", "warn", SAYS[kind])) : field("Reason", reason),
			kind === "cancel" ? h("label.row", undo, "Undo first what the runs did") : null,
			out,
		],
		act: async () => {
			if (!count) return true;
			const { job } = await post("/runs/bulk", asked(), key);
			const told = await follow(job);
			done();
			if (!told) return true;
			if (told.done) toast("ok", `${counted(told.done, "run")} ${past}.`);
			if (!told.refused && !told.unchanged) return true;
			put(
				out,
				h(
					"p",
					`${counted(told.done, "run")} ${past}; ${counted(told.refused + told.unchanged, "run")} left as they are.`,
				),
				jobRuns((await get(`/jobs/${job}/runs`, { limit: 100 })).runs.filter((one) => one.result !== "done")),
			);
			submit.hidden = true;
			return false;
		},
	});
	const submit = /** @type {any} */ (dialog.element.querySelector("[type=submit]"));
	dialog.element.addEventListener("close", () => controller.abort());
	// The dry run says what the service would do, and refuse: a key without the scope, a run that is gone.
	if (fits?.length === 0) put(says, `None of the states in the filter fits: ${why}.`);
	else if (count || where) {
		submit.disabled = !count;
		void post("/runs/bulk", { ...asked(), dry_run: true })
			.catch(refused)
			.then((/** @type {any} */ told) => {
				const isRefused = told instanceof Problem;
				if (isRefused) put(where ? says : out, problemBox(told.message));
				else submit.disabled = false;
				if (isRefused || !where) return;
				count = told.runs;
				put(
					says,
					count
						? `This will ${does} all ${counted(count, "run")} that match.`
						: `No run that matches can be ${past}: ${why}.`,
				);
				if (count) put(submit, `${verb} ${counted(count, "run")}`);
			});
	}

	/** The job once it is done, or null if the dialog was closed before. @param {string} job */
	async function follow(job) {
		const bar = h("progress", { "aria-label": "Progress of the job", max: 1, value: 0 }),
			text = h("p.muted");
		put(out, text, bar);
		while (!controller.signal.aborted) {
			const told = await get(`/jobs/${job}`);
			bar.value = 1 - told.waiting / Math.max(1, told.runs);
			put(text, `${told.runs - told.waiting} of ${told.runs}`);
			if (told.state !== "running") return told;
			await pause(LOOK_MS, controller.signal);
		}
		toast("run", "The job goes on without the dialog.", link("/jobs", "Show the jobs"));
		return null;
	}
}

/** What became of runs of a job. @param {any[]} runs */
export const jobRuns = (runs) =>
	table(
		"Runs of the job",
		["Run", "Result", "Why"],
		runs.map((one) => [
			runLink(one.run_id),
			words(one.result),
			one.new_run_id
				? runLink(one.new_run_id)
				: said(one.detail ?? (one.result === "unchanged" ? "nothing was left to do" : "–")),
		]),
	);
