/**
 * A run as it stood: the slider that goes back in time, and the view of the run with the states of then.
 */
import { button, counted, get, h, icon, inert, moment, Problem, put, refused, said, words } from "../kit.js";

const LOOK_MS = 120;
/** What the journal does not tell of the past, and what may be decided there. @type {Partial<Answers.StepDetail>} */
const UNKNOWN = { started_at: null, ended_at: null, until: null, record: null, progress: null, choices: [] };

/**
 * A run whose steps are in the states that they had then. A step that was not there yet is left out. What is past takes
 * no decision.
 * @param {Answers.RunView} view @param {Answers.PastView} past @returns {Answers.RunView}
 */
export function asItStood(view, past) {
	const then = new Map(past.steps.map((one) => [one.name, one]));
	return {
		...view,
		run: { ...view.run, waiting_for: [] },
		steps: view.steps
			.filter((one) => then.has(one.name))
			.map((one) => {
				const { state, error, category, output, attempt: number } = then.get(one.name);
				return {
					...one,
					...UNKNOWN,
					state: /** @type {Answers.StepState} */ (state),
					error,
					category,
					output,
					attempts: number ?? 0,
					history: one.history.slice(0, number ?? 0),
				};
			}),
	};
}

/** The slider that goes back in time: each place is an entry of the journal.
 * @param {{run: string, signal: AbortSignal, shown: (past: Answers.PastView | null) => void}} options */
export function pastBar({ run, signal, shown }) {
	let last = 0,
		seq = 0,
		timer = 0;
	const slider = h("input", {
			type: "range",
			min: "1",
			max: "1",
			value: "1",
			"aria-label": "Entry of the journal",
			on: { input: () => look(Number(slider.value)) },
		}),
		told_ = h("span.muted.grow", { role: "status" });
	const back = button("Now", () => look(last), { kind: "small primary", icon: "right" }),
		element = h("div.past.row", { hidden: true }, icon("clock"), h("span", "Back in time"), slider, told_, back);
	/** @param {number} next */
	function look(next) {
		seq = Math.max(1, Math.min(last, next));
		slider.value = String(seq);
		clearTimeout(timer);
		if (seq < last) timer = setTimeout(read, LOOK_MS, seq);
		else show(null);
	}
	/** @param {number} wanted */
	async function read(wanted) {
		const told = await get(`/runs/${run}/past`, { seq: wanted }, signal).catch(refused);
		if (seq !== wanted) return;
		if (told instanceof Problem) put(told_, inert(told.message));
		else show(told);
	}
	/** @param {Answers.PastView | null} past */
	function show(past) {
		back.hidden = !past;
		element.classList.toggle("then", Boolean(past));
		put(
			told_,
			past
				? [
						`after entry ${past.at.seq} of ${last}, `,
						moment(past.at.time),
						": ",
						words(past.at.event).toLowerCase(),
						" by ",
						said(past.at.actor, 60),
					]
				: `${counted(last, "entry", "entries")}, each a moment to look at`,
		);
		shown(past);
	}
	return {
		element,
		/** The journal has this many entries now. @param {number} count */
		update(count) {
			if (count === last) return;
			const isNow = seq === last;
			last = count;
			slider.max = String(last);
			element.hidden = last < 2;
			if (isNow) look(last);
		},
		/** @param {number} by */
		move: (by) => look(seq + by),
	};
}
