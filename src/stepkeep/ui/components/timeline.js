/**
 * The timeline of a run: a lane per step with every state it was in, and every attempt in the colour of its outcome.
 * Drag over the axis to zoom into a span, double-click to see all. Only lanes in sight are in the document.
 */
import { folded } from "./folding.js";
import { button, exact, h, icon, iconOf, line, now, put, span, toneOf, words } from "../kit.js";

const LANE = 30;
const SHOWN = new Set([
	"ready",
	"retrying",
	"running",
	"validating",
	"awaiting_approval",
	"awaiting_event",
	"awaiting_completion",
	"awaiting_children",
]);
const THIN = new Set(["ready", "retrying"]);

/** @param {{choose: (step: string) => void, signal: AbortSignal}} options */
export function createTimeline({ choose, signal }) {
	/** @type {Lane[]} */
	let lanes = [];
	let from = 0,
		to = 1,
		start = 0,
		stop = 1,
		isZoomed = false,
		isLive = false,
		isFolding = true,
		scale = folded([], 0, 1, false);
	const folding = button(
		"Fold waits",
		() => {
			isFolding = !isFolding;
			folding.setAttribute("aria-pressed", String(isFolding));
			draw();
		},
		{ kind: "small", pressed: true, title: "Draw long waits short" },
	);
	const ticks = h("div.ticks", { title: "Drag to zoom, double-click to see all" });
	const box = h("div.lanes", {
		tabindex: "0",
		role: "region",
		"aria-label": "Attempts by step",
		on: { scroll: () => draw() },
	});
	const element = h("div.timeline", h("div.axis", h("span"), ticks), box);
	const tools = h(
		"div.row",
		folding,
		button("Zoom in", () => zoom(0.5), { kind: "small", icon: "plus", hidden: true }),
		button("Zoom out", () => zoom(2), { kind: "small", icon: "dash", hidden: true }),
		button("Show all", reset, { kind: "small", icon: "fit", hidden: true }),
	);
	const timer = setInterval(() => {
		if (isLive && !document.hidden && element.isConnected) follow();
	}, 1000);
	signal.addEventListener("abort", () => clearInterval(timer));
	const observer = new ResizeObserver(() => draw());
	observer.observe(box);
	signal.addEventListener("abort", () => observer.disconnect());

	function follow() {
		stop = Math.max(start + 1, now());
		if (!isZoomed) {
			from = start;
			to = stop + (stop - start) * 0.02;
		}
		draw();
	}
	function reset() {
		isZoomed = false;
		from = start;
		to = stop + (stop - start) * 0.02;
		draw();
	}
	/** @param {number} factor */
	function zoom(factor) {
		const middle = (from + to) / 2,
			half = Math.max(0.5, ((to - from) / 2) * factor);
		if (factor > 1 && half * 2 >= stop - start) return reset();
		isZoomed = true;
		[from, to] = [middle - half, middle + half];
		draw();
	}
	ticks.addEventListener("dblclick", reset);
	ticks.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
		const area = ticks.getBoundingClientRect(),
			began = event.clientX;
		/** @param {number} x */
		const moment = (x) => scale.moment((x - area.left) / area.width);
		ticks.setPointerCapture(event.pointerId);
		ticks.addEventListener(
			"pointerup",
			(/** @type {PointerEvent} */ ended) => {
				if (Math.abs(ended.clientX - began) < 6) return;
				const [a, b] = [moment(Math.min(began, ended.clientX)), moment(Math.max(began, ended.clientX))];
				isZoomed = true;
				[from, to] = [a, Math.max(a + 1, b)];
				draw();
			},
			{ once: true },
		);
	});
	box.addEventListener(
		"wheel",
		(/** @type {WheelEvent} */ event) => {
			if (!event.ctrlKey && !event.metaKey) return;
			event.preventDefault();
			zoom(event.deltaY > 0 ? 1.25 : 0.8);
		},
		{ passive: false },
	);

	function draw() {
		const first = Math.max(0, Math.floor(box.scrollTop / LANE) - 3),
			last = Math.min(lanes.length, Math.ceil((box.scrollTop + (box.clientHeight || 600)) / LANE) + 3);
		const work = lanes.flatMap((lane) => segments(lane).filter((one) => one.attempt));
		scale = folded(work, from, to, isFolding);
		const filler = h("div");
		filler.style.height = `${lanes.length * LANE}px`;
		put(
			box,
			filler,
			lanes.slice(first, last).map((lane, at) => drawLane(lane, first + at)),
		);
		put(ticks, axis());
	}
	/** The beginning of each time of work, and the length of each wait between them. */
	function foldedAxis() {
		let before = -1;
		const found = scale.gaps
			.filter((gap) => gap.to < stop)
			.flatMap((gap) => {
				const mark = h("span.fold", { title: `a wait of ${span(gap.to - gap.from)}` }, `⋯ ${span(gap.to - gap.from)}`);
				return [mark, scale.place(gap.from), h("span", `+${span(gap.to - start)}`), scale.place(gap.to)];
			});
		const marks = [];
		for (let at = 0; at < found.length; at += 2) {
			if (found[at + 1] - before < 0.08) continue;
			before = found[at + 1];
			found[at].style.left = `${before * 100}%`;
			if (before < 0.95) marks.push(found[at]);
		}
		return marks;
	}
	function axis() {
		if (scale.gaps.length) return foldedAxis();
		const width = to - from,
			steps = [
				1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000,
				14_400_000, 86_400_000, 604_800_000, 2_592_000_000,
			];
		const most = Math.max(2, Math.floor((ticks.clientWidth || 500) / 90));
		const step = steps.find((one) => width / one <= most) ?? width;
		const found = [];
		for (let at = Math.ceil((from - start) / step) * step; at <= to - start && found.length < 40; at += step) {
			const mark = h("span", at === 0 ? "0" : `+${span(at)}`);
			mark.style.left = `${((at + start - from) / width) * 100}%`;
			found.push(mark);
		}
		return found;
	}
	/** @param {Lane} lane @param {number} at */
	function drawLane(lane, at) {
		const track = h(
			"div.track",
			segments(lane).map((one) => bar(lane, one)),
		);
		const made = h(
			"div.lane",
			h(
				"button",
				{ type: "button", class: `name tone-${toneOf(lane.state)}`, on: { click: () => choose(lane.name) } },
				icon(lane.phase === "undo" ? "undo" : iconOf(lane.state)),
				h("span.cut", line(lane.call ?? lane.name, 80)),
				h("span.offscreen", words(lane.state)),
			),
			track,
		);
		made.style.top = `${at * LANE}px`;
		return made;
	}
	/** @param {Lane} lane @param {ReturnType<typeof segments>[0]} one */
	function bar(lane, one) {
		if (one.to < from || one.from > to) return null;
		const outcome = one.attempt ? one.attempt.state : one.state;
		const said = one.attempt
			? `attempt ${one.attempt.number}: ${words(outcome).toLowerCase()}${one.attempt.error ? `, ${line(one.attempt.error, 200)}` : ""}`
			: words(one.state).toLowerCase();
		const tip = `${line(lane.call ?? lane.name, 80)}, ${said}, ${span(one.to - one.from)}, from ${exact(new Date(one.from).toISOString())}`;
		const soft = one.state.startsWith("awaiting_") ? " soft" : outcome === "lost" ? " lost" : "";
		const kind = THIN.has(one.state) ? " thin" : soft;
		const isUndone = lane.phase === "undo" && outcome === "succeeded";
		const look = one.state === "ready" ? "queued" : isUndone ? "rolled_back" : outcome === "open" ? "running" : outcome;
		const made = h(
			"button",
			{
				type: "button",
				tabindex: "-1",
				class: `bar tone-${toneOf(look)}${kind}`,
				title: tip,
				"aria-label": tip,
				on: { click: () => choose(lane.name) },
			},
			one.attempt && !kind ? h("span", `#${one.attempt.number}`) : null,
		);
		const left = scale.place(one.from);
		made.style.left = `${left * 100}%`;
		made.style.width = `${Math.max(0.1, (scale.place(one.to) - left) * 100)}%`;
		return made;
	}

	return {
		element,
		tools,
		/** @param {Lane[]} next @param {string | null} began @param {string | null} ended */
		show(next, began, ended) {
			lanes = next.filter((one) => one.states.some((state) => SHOWN.has(state.state)));
			start = began ? Date.parse(began) : now();
			isLive = !ended;
			stop = ended ? Math.max(Date.parse(ended), start + 1) : Math.max(now(), start + 1);
			if (!isZoomed) {
				from = start;
				to = stop + (stop - start) * 0.02;
			}
			box.style.height = `${Math.min(lanes.length * LANE + 2, 900)}px`;
			draw();
		},
	};
}

/** The spans of a step, from the states that it entered; a span of running belongs to an attempt. @param {Lane} lane */
export function segments(lane) {
	const found = [];
	let attempt = 0;
	for (let at = 0; at < lane.states.length; at += 1) {
		const { state, at: since } = lane.states[at];
		if (!SHOWN.has(state)) continue;
		// Validation belongs to the attempt whose result it looks at.
		if (state === "validating") continue;
		const next = lane.states.slice(at + 1).find((one) => one.state !== "validating");
		const begins = Date.parse(since),
			ends = next ? Date.parse(next.at) : now();
		const isAttempt = state === "running";
		/** @type {Partial<Answers.AttemptDetail> | null} */
		const one = isAttempt ? (lane.history[attempt] ?? { number: attempt + 1, state: "open" }) : null;
		if (isAttempt) attempt += 1;
		found.push({ state, from: begins, to: ends, attempt: one });
	}
	return found;
}

export function legend() {
	/** @param {string} tone @param {string} text */
	const one = (tone, text, kind = "") => h("span", { class: `tone-${tone}` }, h("i", { class: kind }), text);
	return h(
		"div.legend",
		one("ok", "succeeded"),
		one("run", "running"),
		one("bad", "failed, timed out or lost"),
		one("wait", "waiting", "soft"),
		one("run", "children", "soft"),
		one("wait", "retry wait", "thin"),
		one("idle", "queued", "thin"),
		one("undo", "undone"),
	);
}
