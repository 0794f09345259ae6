/**
 * Going on with a run that has ended: again from the start, after a fix, from a step, or on another course. What the new
 * run would adopt and what it would do again is shown before it starts.
 */
import {
	area,
	field,
	go,
	h,
	inert,
	line,
	note,
	once,
	openDialog,
	post,
	Problem,
	problemBox,
	put,
	readJson,
	refused,
	select,
} from "./kit.js";

/** Each way. @type {Record<string, [says: string, route: string, hasStart: boolean, takesInput: boolean]>} */
const WAYS = {
	again: ["From the start: nothing is adopted", "rerun", false, true],
	retry: ["After a fix: only what did not finish", "retry", false, false],
	rerun: ["From a step: it and all that depends on it", "rerun-from", true, true],
	fork: ["Another course from a step, with another input", "fork", true, true],
};

/** @param {any} view the body of the run @param {() => void} done */
export function continueDialog(view, done) {
	const { run } = view,
		before = JSON.stringify(run.input),
		steps = view.steps
			.filter((/** @type {Answers.StepDetail} */ one) => one.phase === "main")
			.map((/** @type {Answers.StepDetail} */ one) => [one.name, line(one.name, 60)]);
	let way = run.state === "succeeded" ? "again" : "retry",
		asked = 0;
	const how = select(
		Object.entries(WAYS)
			.filter(([name]) => name !== "retry" || run.state !== "succeeded")
			.map(([name, [words]]) => [name, String(words)]),
		way,
		(next) => {
			way = next;
			show();
		},
	);
	const step = select(
			steps,
			view.steps.find((/** @type {Answers.StepDetail} */ one) => one.state === "failed")?.name ?? steps[0]?.[0] ?? "",
			() => show(),
		),
		text = area({ class: "code", rows: "6", value: JSON.stringify(run.input, null, 2) });
	const stepField = field("Step", step),
		inputField = field("Input", text),
		shown = h("div.stack.tight", { role: "status" });
	const named = () => (WAYS[way][2] ? { start: step.value } : {});
	async function show() {
		stepField.hidden = !WAYS[way][2];
		inputField.hidden = !WAYS[way][3];
		asked += 1;
		const mine = asked;
		if (way === "again")
			return put(
				shown,
				h("p.muted", `A new run of ${inert(run.workflow)} version ${run.version}. The old one stays as it is.`),
			);
		const told = await post(`/runs/${run.id}/continuation-preview`, {
			how: /** @type {"fork" | "rerun" | "retry"} */ (way),
			...(WAYS[way][2] ? { start: step.value } : {}),
		}).catch(refused);
		if (mine === asked) put(shown, told instanceof Problem ? problemBox(told.message) : fates(told));
	}
	void show();
	openDialog({
		title: "Run again",
		label: "Start",
		body: [field("How", how), stepField, inputField, shown],
		act: async () => {
			const value = readJson(text.value, "The input"),
				isSame = JSON.stringify(value) === before || !WAYS[way][3];
			const told = await post(
				`/runs/${run.id}/${WAYS[way][1]}`,
				{ ...named(), ...(isSame ? {} : { input: value }) },
				once(),
			);
			done();
			go(`/runs/${told.run_id}`);
		},
	});
}

/** @param {string} tag @param {string} says @param {string[]} steps */
const some = (tag, says, steps) => (steps.length ? h(tag, `${says}: ${line(steps.join(", "), 200)}`) : null);
/** What would become of each step. @param {Answers.ContinuationPreview} told */
const fates = (told) => [
	h(
		"ul.plain-list",
		told.steps
			.slice(0, 200)
			.map((one) =>
				h(
					"li.row",
					note(
						one.adopted ? "ok" : one.may_repeat ? "wait" : "run",
						one.adopted ? "check" : "retry",
						one.adopted ? "adopted" : "runs again",
					),
					h("bdi", line(one.step, 60)),
					h("span.muted", line(one.says, 200)),
				),
			),
	),
	...told.calls.map((one) =>
		h(
			"p.muted",
			`${line(one.flow, 60)} is given ${one.adopted} of its calls as they ended. `,
			one.again.length ? `It makes again: ${line(one.again.map((call) => call.step).join(", "), 200)}` : null,
		),
	),
	some("p.late", "People are asked anew", told.reopens),
	some("p.late", "An effect may happen twice", told.may_repeat),
	some("p.muted", "A rollback of the new run also undoes", told.owns_undo),
];
