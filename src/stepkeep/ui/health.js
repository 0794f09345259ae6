/**
 * The health of live runs in words: what the service's explanation of a run says first. It is asked for the rows in
 * sight only, a few at a time, and again when the run or some time has gone on.
 */
import { get, h, line, note, said } from "./kit.js";

const AT_ONCE = 3,
	FRESH_MS = 20_000,
	MOST = 2000;

/** @type {Record<string, [tone: string, icon: string, word: string]>} What each cause means for the eye. */
const KINDS = {
	stuck: ["bad", "warn", "stuck"],
	late_timer: ["bad", "clock", "late"],
	quarantined: ["bad", "shield", "quarantined"],
	no_worker: ["bad", "worker", "no worker"],
	no_handler: ["bad", "worker", "no handler"],
	misfit: ["bad", "worker", "no handler fits"],
	forbidden: ["bad", "shield", "forbidden"],
	no_capability: ["bad", "worker", "no capability"],
	no_secret: ["bad", "key", "no secret"],
	no_queue: ["bad", "worker", "no queue"],
	only_run: ["bad", "worker", "no worker"],
	duty: ["bad", "worker", "other owner"],
	dead_worker: ["wait", "warn", "worker lost"],
	full: ["wait", "worker", "workers full"],
	database: ["bad", "warn", "database"],
	nobody: ["bad", "person", "nobody may decide"],
	not_started: ["idle", "ring", "not started"],
	approval: ["wait", "person", "approval"],
	decision: ["wait", "hand", "held"],
	completion: ["wait", "hand", "by hand"],
	event: ["wait", "mail", "message"],
	other: ["idle", "dot", "waiting"],
	scheduled: ["idle", "clock", "scheduled"],
	sleep: ["idle", "clock", "sleeping"],
	retry: ["wait", "retry", "retrying"],
	paused: ["wait", "pause", "paused"],
	slot: ["wait", "clock", "waits for a slot"],
	children: ["run", "flow", "child runs"],
	stopping: ["undo", "undo", "stopping"],
	running: ["ok", "check", "on time"],
	soon: ["ok", "check", "on time"],
	dependency: ["ok", "check", "on time"],
	finished: ["idle", "dash", "ended"],
};

/** @param {AbortSignal} signal @param {() => void} changed */
export function createHealth(signal, changed) {
	/** @type {Map<string, {seq: number, at: number, cause: Answers.CauseView | null}>} */
	const known = new Map();
	/** @type {Answers.RunSummary[]} */
	let wanted = [];
	let active = 0;
	async function work() {
		while (wanted.length && active < AT_ONCE && !signal.aborted) {
			const run = wanted.shift();
			const before = known.get(run.id);
			if (before && before.seq === run.journal.seq && performance.now() - before.at < FRESH_MS) continue;
			known.set(run.id, { seq: run.journal.seq, at: performance.now(), cause: before?.cause ?? null });
			active += 1;
			get(`/runs/${run.id}/explain`, {}, signal)
				.then(
					(told) => {
						known.set(run.id, { seq: run.journal.seq, at: performance.now(), cause: told.causes[0] ?? null });
						changed();
					},
					() => {},
				)
				.finally(() => {
					active -= 1;
					void work();
				});
		}
		while (known.size > MOST) known.delete(known.keys().next().value);
	}
	return {
		/** @param {Answers.RunSummary[]} runs those in sight */
		want(runs) {
			wanted = [...runs];
			void work();
		},
		/** @param {Answers.RunSummary} run */
		of: (run) => known.get(run.id)?.cause ?? null,
		/** @param {Answers.RunSummary} run */
		stamp: (run) => known.get(run.id)?.cause?.sentence ?? "",
	};
}

/** @param {Answers.RunSummary} run @param {Answers.CauseView | null} cause */
export function healthView(run, cause) {
	if (run.quarantined) return note("bad", "shield", "quarantined");
	if (run.ended_at)
		return run.error
			? h("span.cut.muted", { title: line(run.error, 500) }, said(run.error, 160))
			: h("span.faint", run.rollback === "partial" ? "rolled back in part" : "–");
	if (!cause) return h("span.faint", "…");
	const [tone, name, word] = kindOf(cause.code);
	return [note(tone, name, word), h("span.cut.muted", { title: line(cause.sentence, 500) }, line(cause.sentence, 160))];
}

/** @param {string} code */
export const kindOf = (code) => KINDS[code] ?? ["idle", "dot", code];
