/**
 * What the graph of a run shows: which steps are nodes, under which names, and what leads to what. Elements of a map or a
 * loop stand for themselves only where the reader unfolds their owner; the calls of a flow are a trace in the order in
 * which they were made. Pure.
 */
import { counted, line, span, words } from "../format.js";

/** So many elements of one owner are drawn: those that need attention, then the first. */
export const MOST_ELEMENTS = 40;
/** An owner with more elements is folded until the reader unfolds it. */
const FOLDED_FROM = 7;
const SETTLED = ["succeeded", "skipped", "failed"];
const FLOW = "flow";

/** What a person calls a step: a call of a flow by what was called. @param {{name: string, call?: string | null}} step */
export const titleOf = (step) => step.call ?? step.name;

/** The state that a reader is told: a step that holds until a person decides is no gate. @param {Answers.StepDetail} step */
export const stateOf = (step) =>
	step.state === "awaiting_approval" && step.choices?.includes("retry") ? "held" : step.state;

/** The step whose element this is: elements of a map or a loop, and calls of a flow, are named NAME[PLACE]. @param {{name: string}} step */
export const ownerOf = (step) => step.name.replace(/\[\d+\]$/, "");

/** The elements of each owner. @param {Answers.StepDetail[]} steps @returns {Map<string, Answers.StepDetail[]>} */
export function elementsOf(steps) {
	const names = new Set(steps.map((one) => one.name));
	const below = steps.filter((one) => one.phase === "main" && ownerOf(one) !== one.name && names.has(ownerOf(one)));
	return Map.groupBy(below, (one) => ownerOf(one));
}

/** How many elements are in each state, in words. @param {Answers.StepDetail[]} elements */
export const tally = (elements) =>
	[...Map.groupBy(elements, (one) => one.state)]
		.map(([state, some]) => `${some.length} ${words(state).toLowerCase()}`)
		.join(", ");

/** Whether the elements of an owner are drawn where the reader has not said so. @param {Answers.StepDetail} owner @param {Answers.StepDetail[]} elements */
export const isUnfolded = (owner, elements) => owner.kind === FLOW || elements.length < FOLDED_FROM;

/**
 * @param {Answers.StepDetail[]} steps those of a run @param {Map<string, boolean>} chosen the owners that the reader folded or unfolded
 * @returns {{nodes: GraphNode[], edges: GraphEdge[]}}
 */
export function graphOf(steps, chosen = new Map()) {
	const elements = elementsOf(steps),
		undo = new Map(steps.filter((one) => one.phase === "undo").map((one) => [one.name.replace(/^undo:/, ""), one]));
	const drawn = new Map();
	const owners = new Map(steps.filter((one) => elements.has(one.name)).map((one) => [one.name, one]));
	for (const [owner, some] of elements) {
		const step = owners.get(owner);
		if (!(chosen.get(owner) ?? isUnfolded(step, some))) continue;
		const urgent = [...some].sort((a, b) => Number(a.state === "succeeded") - Number(b.state === "succeeded"));
		const shown = new Set(step.kind === FLOW ? some.slice(-MOST_ELEMENTS) : urgent.slice(0, MOST_ELEMENTS));
		drawn.set(
			owner,
			some.filter((one) => shown.has(one)),
		);
	}
	const isElement = new Set([...elements.values()].flat().map((one) => one.name));
	const plan = steps.filter((one) => one.phase !== "undo" && !isElement.has(one.name)),
		shown = plan.flatMap((one) => [one, ...(drawn.get(one.name) ?? [])]);
	const states = new Map(shown.map((one) => [one.name, one.state]));
	const nodes = shown.map((one) => {
		const hook = undo.get(one.name),
			own = elements.get(one.name);
		return {
			id: one.name,
			label: titleOf(one),
			state: stateOf(one),
			sub: own ? ownerText(one, own) : subOf(one),
			tip: [one.call ? one.name : "", own ? tally(own) : "", one.error ?? ""].filter(Boolean).join(". "),
			part: one.progress?.fraction ?? null,
			stack: Boolean(own) && !drawn.has(one.name),
			undo: hook ? { id: hook.name, state: hook.state, at: hook.started_at } : null,
		};
	});
	const edges = plan.flatMap((one) => [
		...one.depends_on.flatMap((from) =>
			lastOf(owners.get(from) ?? { name: from }, drawn).map((last) => [last, one.name]),
		),
		...traceOf(one, drawn.get(one.name) ?? []),
	]);
	/** @param {string} from @param {string} to */
	const isTaken = (from, to) =>
		(SETTLED.includes(states.get(from)) || elements.has(from)) && !["pending", "cancelled"].includes(states.get(to));
	return { nodes, edges: edges.map(([from, to]) => ({ from, to, taken: isTaken(from, to) })) };
}

/** What the step behind an owner follows: its elements, of a flow the calls that nothing follows.
 * @param {{name: string, kind?: string}} owner @param {Map<string, Answers.StepDetail[]>} drawn @returns {string[]} */
function lastOf(owner, drawn) {
	const some = drawn.get(owner.name);
	if (!some?.length) return [owner.name];
	const followed = new Set(traceOf(owner, some).map(([from]) => from));
	return some.filter((one) => !followed.has(one.name)).map((one) => one.name);
}

/**
 * Elements of a map follow their owner. Calls of a flow, and turns of a loop, follow those that had ended when they were
 * made; the first ones follow their owner.
 * @param {{name: string, kind?: string}} owner @param {Answers.StepDetail[]} elements @returns {string[][]}
 */
function traceOf(owner, elements) {
	if (owner.kind === "map") return elements.map((one) => [owner.name, one.name]);
	/** @param {Answers.StepDetail} one */
	const made = (one) => one.states?.[0]?.at ?? "";
	return elements.flatMap((one) => {
		const before = elements.filter((other) => other !== one && other.ended_at && other.ended_at <= made(one));
		const nearest = before.filter((other) => !before.some((later) => later !== other && other.ended_at <= made(later)));
		return (nearest.length ? nearest : [owner]).map((from) => [from.name, one.name]);
	});
}

/** @param {Answers.StepDetail} step @param {Answers.StepDetail[]} elements */
function ownerText(step, elements) {
	if (step.case) return `case ${line(step.case, 20)}`;
	const failed = elements.filter((one) => one.state === "failed").length,
		done = elements.filter((one) => SETTLED.includes(one.state)).length;
	if (step.kind === FLOW) return `${step.kind} · ${counted(elements.length, "call")}`;
	return `${step.kind} · ${done} of ${elements.length}${failed ? ` · ${failed} failed` : ""}`;
}

/** What a node says under its name. @param {Answers.StepDetail} one */
export function subOf(one) {
	if (one.state === "retrying") return `attempt ${one.attempts} failed`;
	if (one.state.startsWith("awaiting_")) return words(stateOf(one)).toLowerCase();
	if (one.progress && one.state === "running") return progressText(one.progress);
	const parts = [
		one.case ? `case ${line(one.case, 20)}` : "",
		one.kind === "python" ? "" : one.kind,
		one.attempts > 1 ? `${one.attempts} attempts` : "",
		one.started_at && one.ended_at ? span(Date.parse(one.ended_at) - Date.parse(one.started_at)) : "",
	].filter(Boolean);
	return parts.join(" · ") || words(one.state).toLowerCase();
}

/** @param {{fraction: number | null, text: string}} progress */
export const progressText = ({ fraction, text }) =>
	[fraction === null ? "" : `${Math.round(fraction * 100)} %`, text].filter(Boolean).join(" · ");
