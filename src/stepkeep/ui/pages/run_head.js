/**
 * The top of the page of a run: what it is, what may be done with it, and why it does not move or how it failed.
 */
import {
	attempt,
	badge,
	button,
	copyButton,
	costText,
	countdown,
	counted,
	go,
	h,
	icon,
	inert,
	lasted,
	line,
	link,
	may,
	moment,
	note,
	runLink,
	said,
	select,
	sentence,
	shortId,
	SMALL,
	toneOf,
	words,
} from "../kit.js";
import { cancelDialog, migrateDialog, moves, pauseDialog, sendDialog } from "../actions.js";
import { continueDialog } from "../continuing.js";
import { kindOf } from "../health.js";
import { elementsOf, titleOf } from "./run_graph.js";

export const DIALECTS = ["run", "ioa", "linear", "action", "workstream"];
/** The causes whose end is a moment that a reader waits for. */
const TIMED = ["approval", "decision", "completion", "event", "retry", "sleep", "scheduled"];

/**
 * Actions are of the present: `isNow` is false while the reader looks back.
 * @param {Answers.RunView} view @param {{as: string, isNow: boolean, done: () => void, speak: (dialect: string) => void}} options
 */
export function headOf(view, { as, isNow, done, speak }) {
	const { run } = view,
		{ id } = run,
		isLive = isNow && !run.ended_at,
		mayOperate = isLive && may("operate");
	return [
		h(
			"nav.crumbs",
			{ "aria-label": "Path" },
			link("/runs", "Runs"),
			icon("right"),
			link(`/workflows/${encodeURI(run.workflow)}`, said(run.workflow, 60)),
			icon("right"),
			h("span.mono", { title: id }, shortId(id)),
			copyButton(id, "Copy the id"),
		),
		h(
			"div.head",
			h("h1", { tabindex: "-1" }, said(run.workflow, 80)),
			badge(run.state),
			run.rollback && run.rollback !== "none"
				? note("undo", "undo", `rollback ${words(run.rollback).toLowerCase()}`)
				: null,
			run.quarantined && note("bad", "shield", "quarantined"),
			h(
				"div.row",
				isLive && may("complete") && button("Send a message", () => sendDialog(id, "", done), { icon: "send" }),
				isNow &&
					run.ended_at &&
					may("start") &&
					button("Run again", () => continueDialog(view, done), {
						icon: "retry",
						kind: run.error ? "" : "primary",
					}),
				mayOperate &&
					(run.state === "paused"
						? button("Resume", () => pauseDialog(id, "resume", done), { icon: "play" })
						: run.state !== "idle" && button("Pause", () => pauseDialog(id, "pause", done), { icon: "pause" })),
				mayOperate && button("Cancel", () => cancelDialog(view, done), { icon: "slash", kind: "danger" }),
				select([["", "Stepkeep's words"], ...DIALECTS.map((one) => [one, `as ${one}`])], as, speak, "Words of"),
			),
		),
		h("div.meta", metaOf(run, mayOperate)),
	];
}

/** @param {string} name @param {Child} value */
const meta = (name, value) => h("span", h("span.faint", name, " "), value);

/** @param {Answers.RunDetail} run @param {boolean} mayOperate */
function metaOf(run, mayOperate) {
	const labels = Object.entries(run.labels ?? {});
	const move = () =>
		attempt(() =>
			migrateDialog({ workflow: run.workflow, of: run.version, run: run.id }, (told) => go(`/runs/${told.new_run_id}`)),
		);
	return [
		meta("Created", [moment(run.created_at), " by ", said(run.created_by, 60)]),
		meta(run.ended_at ? "Took" : "Running for", lasted(run.started_at, run.ended_at)),
		meta("Version", [
			`${run.version}${run.dialect === "native" ? "" : ` (${run.dialect})`}`,
			mayOperate && button("Migrate", move, SMALL),
		]),
		run.business_key && meta("Business key", said(run.business_key, 80)),
		run.correlation_id !== run.id && meta("Correlation", said(run.correlation_id, 80)),
		run.continues &&
			meta(`${words(run.continues.as)} of`, [
				runLink(run.continues.run),
				run.continues.from ? [" from ", said(run.continues.from, 60)] : null,
				" ",
				link(`/runs/${run.id}/compare?other=${run.continues.run}`, "Compare"),
			]),
		run.continued_by?.length
			? meta(
					"Continued by",
					run.continued_by.slice(0, 3).map((one) => [runLink(one), " "]),
				)
			: null,
		run.parent && meta("Child of", runLink(run.parent.run_id)),
		costText(run.cost) && meta("Cost", costText(run.cost)),
		labels.length
			? meta(
					"Labels",
					h(
						"span.chips",
						labels.slice(0, 8).map(([name, text]) => h("span.chip", line(`${name}=${text}`, 60))),
					),
				)
			: null,
	];
}

/**
 * How a run failed, or why it does not move, with the buttons that move it.
 * @param {Answers.RunView} view @param {Answers.ExplanationView | null} explained @param {{choose: (step: string) => void, done: () => void}} options
 */
export function whyOf(view, explained, { choose, done }) {
	if (view.run.ended_at) return view.run.error ? failure(view, choose, done) : null;
	const [first, ...rest] = explained?.causes ?? [];
	if (!first) return null;
	const [tone, name] = kindOf(first.code),
		buttons = moves(first, view, done);
	return h(
		"div",
		{ class: `why tone-${tone}`, role: "status" },
		icon(name),
		h(
			"div.grow",
			h("b", first.code === "running" || first.code === "soon" ? "It moves" : "Why it does not move"),
			h("p", sentence(first.sentence, 1000)),
			!buttons.length && first.command && tone === "bad"
				? h("p.command", h("code", inert(first.command)), copyButton(first.command, "Copy the command"))
				: null,
			rest.length
				? h(
						"details",
						h("summary", counted(rest.length, "other cause")),
						h(
							"ul",
							rest.slice(0, 20).map((one) => h("li", sentence(one.sentence))),
						),
					)
				: null,
		),
		h(
			"div.row",
			first.until && TIMED.includes(first.code) ? h("span.muted.due", icon("clock"), countdown(first.until)) : null,
			buttons.map((one) => button(one.label, () => attempt(one.act), { kind: one.kind, icon: one.icon })),
		),
	);
}

/** Which step failed first, with what, and the way on.
 * @param {Answers.RunView} view @param {(step: string) => void} choose @param {() => void} done */
function failure(view, choose, done) {
	const { run } = view,
		isCancelled = run.state === "cancelled";
	const all = view.steps.filter((one) => one.state === "failed" && one.phase !== "undo"),
		owners = elementsOf(all);
	// An owner fails because an element did.
	const failed = all
		.filter((one) => !owners.has(one.name))
		.sort((a, b) => ((a.ended_at ?? "") < (b.ended_at ?? "") ? -1 : 1))[0];
	const what = isCancelled ? "Cancelled" : failed ? [said(titleOf(failed), 80), " failed"] : "The run was stopped";
	return h(
		"div",
		{ class: `why tone-${toneOf(run.state)}` },
		icon(run.state === "rolled_back" ? "undo" : isCancelled ? "slash" : "cross"),
		h(
			"div.grow",
			h("b", what, run.category && !isCancelled ? h("span.faint", ` · ${words(run.category).toLowerCase()}`) : null),
			h("p", said(failed && !isCancelled ? failed.error : run.error, 1000)),
		),
		h(
			"div.row",
			failed && button("Show the step", () => choose(failed.name), { icon: "right" }),
			may("start") && button("Retry after a fix", () => continueDialog(view, done), { icon: "retry", kind: "primary" }),
		),
	);
}
