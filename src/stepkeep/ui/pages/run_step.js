/**
 * The panel of one step: what may be done about it, what it is and did, its elements, and every attempt with what
 * differs from the one before.
 */
import {
	attempt,
	badge,
	button,
	costText,
	countdown,
	counted,
	facts,
	h,
	icon,
	inert,
	jsonView,
	lasted,
	line,
	may,
	moment,
	note,
	said,
	SMALL,
	span,
	words,
} from "../kit.js";
import { decidable, holdDialog, moves } from "../actions.js";
import { differences, differenceTable } from "../components/difference.js";
import { isUnfolded, progressText, stateOf, tally, titleOf } from "./run_graph.js";

const MOST_LISTED = 100;

/**
 * @param {Answers.RunView} view the body of the run @param {Answers.StepDetail} one the step @param {Answers.CauseView[]} causes why the run does not move
 * @param {{choose: (name: string) => void, done: () => void, fold: (name: string, isOpen: boolean) => void,
 *   folds: Map<string, boolean>, elements: Answers.StepDetail[]}} options
 */
export function stepPanel(view, one, causes, { choose, done, fold, folds, elements }) {
	const last = one.history.at(-1);
	return [
		h(
			"header",
			h("h2", said(titleOf(one), 80)),
			badge(stateOf(one)),
			h(
				"div.row",
				actions(view, one, causes, done),
				button("Close the step", () => choose(one.name), { kind: "plain small", icon: "cross", hidden: true }),
			),
		),
		h(
			"div.body.stack",
			one.error && one.error !== last?.error
				? h(
						"div.problem",
						icon("cross"),
						h("span", one.category ? h("b", `${words(one.category)}: `) : null, said(one.error, 2000)),
					)
				: null,
			factsOf(one, choose),
			elements.length ? elementList(one, elements, choose, fold, folds) : null,
			part("Record", one.record),
			part("Output", one.output),
			one.history.length
				? h(
						"section.stack.tight",
						h("h3", counted(one.history.length, "attempt")),
						h(
							"div.attempts",
							{ role: "region", "aria-label": "Attempts" },
							one.history.map((each, at) => attemptCard(each, one.history[at - 1])).reverse(),
						),
					)
				: null,
		),
	];
}

/** @param {string} title @param {unknown} value */
const part = (title, value) =>
	value === null || value === undefined
		? null
		: h("section.stack.tight", { key: title }, h("h3", title), jsonView(value, { label: title }));

/** @param {Answers.RunView} view @param {Answers.StepDetail} one @param {Answers.CauseView[]} causes @param {() => void} done */
function actions(view, one, causes, done) {
	const own = causes.filter((cause) => cause.subject === one.name);
	/** @param {Answers.CauseView} cause */
	const isDecided = (cause) => ["decision", "retry"].includes(cause.code);
	// A hold that the rules for people close to the reader has no command.
	const isBarred = own.some((cause) => cause.code === "decision" && !cause.command);
	const found = own
		.filter((cause) => !isDecided(cause))
		.flatMap((cause) => moves(cause, view, done))
		.map((move) => button(move.label, () => attempt(move.act), { kind: `${move.kind} small`, icon: move.icon }));
	if (decidable(one).length && may("decide") && !isBarred) {
		found.push(button("Decide", () => holdDialog(view.run.id, one, done), { kind: "small", icon: "hand" }));
	}
	return found;
}

/** @param {Answers.StepDetail} one @param {(name: string) => void} choose */
const factsOf = (one, choose) =>
	facts([
		["Step", one.call && said(one.name)],
		["Kind", words(one.kind)],
		["Case", one.case && said(one.case)],
		["Phase", one.phase === "main" ? null : words(one.phase)],
		["Attempts", one.attempts ? `${one.attempts}${one.losses ? `, ${counted(one.losses, "lease")} lost` : ""}` : null],
		["Worker", one.worker && said(one.worker)],
		["Started", one.started_at && moment(one.started_at)],
		["Took", one.started_at && lasted(one.started_at, one.ended_at)],
		["Ends by itself", one.until && countdown(one.until)],
		["Next attempt", one.state === "retrying" && one.due_at ? countdown(one.due_at) : null],
		[
			"After",
			one.depends_on.length
				? h(
						"span.chips",
						one.depends_on.map((name) => button(line(name, 40), () => choose(name), SMALL)),
					)
				: null,
		],
		["Cost", costText(one.cost)],
		[
			"Progress",
			one.progress && [
				one.progress.fraction === null
					? null
					: h("progress", { "aria-label": "Progress", value: one.progress.fraction }),
				" ",
				said(progressText(one.progress), 300),
			],
		],
		["Skipped", one.skipped && said(one.skipped.text, 300)],
		["In doubt", one.in_doubt ? "yes: it is not known whether it took effect" : null],
	]);

/**
 * @param {Answers.StepDetail} owner @param {Answers.StepDetail[]} elements @param {(name: string) => void} choose
 * @param {(name: string, isOpen: boolean) => void} fold @param {Map<string, boolean>} folds
 */
function elementList(owner, elements, choose, fold, folds) {
	const isOpen = folds.get(owner.name) ?? isUnfolded(owner, elements);
	const urgent = [...elements].sort((a, b) => Number(b.state === "failed") - Number(a.state === "failed"));
	return h(
		"section.stack.tight",
		{ key: "elements" },
		h(
			"div.row",
			h("h3.grow", owner.kind === "flow" ? counted(elements.length, "call") : counted(elements.length, "element")),
			button(isOpen ? "Fold in the graph" : "Show in the graph", () => fold(owner.name, !isOpen), SMALL),
		),
		h("p.muted", tally(elements)),
		h(
			"ul.elements",
			{ tabindex: "0", role: "list", "aria-label": "Elements" },
			urgent.slice(0, MOST_LISTED).map((one) =>
				h(
					"li.row",
					badge(one.state),
					button(line(one.call ? `${one.call} (${one.name})` : one.name, 60), () => choose(one.name), {
						kind: "plain small link",
					}),
					h("span.faint.num", lasted(one.started_at, one.ended_at)),
				),
			),
		),
		elements.length > MOST_LISTED ? h("p.muted", `and ${elements.length - MOST_LISTED} more`) : null,
	);
}

/** An attempt, and what differs from the one before. @param {Answers.AttemptDetail} one @param {Answers.AttemptDetail} [before] */
function attemptCard(one, before) {
	const kept = one.evidence,
		was = before?.evidence;
	/** @param {Answers.AttemptDetail} [each] */
	const taken = (each) => (each?.ended_at ? Date.parse(each.ended_at) - Date.parse(each.started_at) : null);
	const change = taken(one) === null || taken(before) === null ? 0 : taken(one) - taken(before);
	const isKnown = kept && was && "inputs" in kept && "inputs" in was,
		changed = isKnown ? differences(was.inputs, kept.inputs).length : 0;
	// A flow that waits goes on in the same attempt.
	const told = before &&
		before.number !== one.number && [
			one.error && before.error ? (one.error === before.error ? "the same error" : "another error") : null,
			Math.abs(change) >= 1 ? `${span(Math.abs(change))} ${change > 0 ? "longer" : "shorter"}` : null,
			one.worker !== before.worker ? "another worker" : null,
			isKnown ? (changed ? counted(changed, "other input") : "the same inputs") : null,
		];
	return h(
		"article.attempt",
		{ key: `#${one.number}` },
		h("header", h("b", `#${one.number}`), badge(one.state), h("span.muted.num", lasted(one.started_at, one.ended_at))),
		h(
			"p.faint",
			moment(one.started_at),
			" · ",
			h("span", { title: one.worker }, line(one.worker ?? "", 40)),
			costText(one.cost) ? ` · ${costText(one.cost)}` : "",
		),
		told?.some(Boolean)
			? h("p.than", note("idle", "layers", `compared with #${before.number}: ${told.filter(Boolean).join(", ")}`))
			: null,
		one.error ? h("p.late", one.category ? `${words(one.category)}: ` : "", said(one.error, 1000)) : null,
		kept?.traceback
			? h(
					"details",
					{ open: true },
					h("summary", "Traceback"),
					h("pre.trace.bad", { tabindex: "0" }, inert(kept.traceback)),
				)
			: null,
		kept?.log?.length
			? h(
					"details",
					{ open: true },
					h("summary", counted(kept.log.length, "log line")),
					h(
						"pre.trace",
						{ tabindex: "0" },
						kept.log.map(
							(/** @type {unknown} */ row) => `${inert(typeof row === "string" ? row : JSON.stringify(row))}\n`,
						),
					),
				)
			: null,
		changed
			? h(
					"details",
					{ open: true },
					h("summary", `Inputs that differ from #${before.number}`),
					differenceTable("Inputs", [`#${before.number}`, `#${one.number}`], was.inputs, kept.inputs),
				)
			: null,
		kept && "inputs" in kept ? h("details", h("summary", "Inputs"), jsonView(kept.inputs, { label: "Inputs" })) : null,
	);
}
