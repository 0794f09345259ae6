/**
 * Bars over time of which a reader chooses a part: by dragging, by a click on one bar, or with the arrow keys. It knows no
 * filter: it says which part was chosen.
 */
import { h, put } from "../dom.js";
import { exact } from "../format.js";
import { columnPlot } from "./chart.js";

/**
 * @param {{name: string, chosen: (since: string, until: string) => void}} options
 */
export function createBrush({ name, chosen }) {
	const box = h("div.plot-box"),
		shade = h("i.chosen", { hidden: true, "aria-hidden": "true" }),
		element = h(
			"div.brush",
			{
				tabindex: "0",
				role: "slider",
				"aria-label": `${name}: choose a part`,
				"aria-valuemin": "0",
				"aria-valuenow": "0",
				title: "Drag to choose a part, or use the arrow keys and enter",
				on: { pointerdown: dragged, keydown: pressed },
			},
			box,
			shade,
		);
	/** @type {string[]} the beginning of each bar, and the end of the last one */
	let edges = [];
	let from = 0,
		to = 0;

	/** Marks the bars from one to another one, both included. @param {number} first @param {number} last */
	function mark(first, last) {
		const most = edges.length - 2;
		[from, to] = [
			Math.max(0, Math.min(most, Math.min(first, last))),
			Math.max(0, Math.min(most, Math.max(first, last))),
		];
		shade.hidden = false;
		shade.style.left = `${(from / (most + 1)) * 100}%`;
		shade.style.width = `${((to - from + 1) / (most + 1)) * 100}%`;
		element.setAttribute("aria-valuemax", String(most));
		element.setAttribute("aria-valuenow", String(from));
		element.setAttribute("aria-valuetext", `${exact(edges[from])} to ${exact(edges[to + 1])}`);
	}
	const choose = () => chosen(edges[from], edges[to + 1]);
	/** @param {PointerEvent} event */
	function dragged(event) {
		if (event.button || edges.length < 2) return;
		const area = element.getBoundingClientRect();
		const at = (/** @type {PointerEvent} */ one) =>
			Math.floor(((one.clientX - area.left) / area.width) * (edges.length - 1));
		const began = at(event);
		const move = (/** @type {PointerEvent} */ one) => mark(began, at(one));
		const end = () => {
			for (const one of ["pointermove", "pointerup", "pointercancel"]) element.removeEventListener(one, listeners[one]);
		};
		/** @type {Record<string, (one: any) => void>} */
		const listeners = {
			pointermove: move,
			pointercancel: end,
			pointerup: () => {
				end();
				choose();
			},
		};
		element.setPointerCapture(event.pointerId);
		for (const one of Object.keys(listeners)) element.addEventListener(one, listeners[one]);
		mark(began, began);
	}
	/** @param {KeyboardEvent} event */
	function pressed(event) {
		const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
		if (edges.length < 2 || !(step || event.key === "Enter")) return;
		event.preventDefault();
		event.stopPropagation();
		if (event.key === "Enter") choose();
		else if (event.shiftKey) mark(from, to + step);
		else
			mark(
				shade.hidden ? (step > 0 ? 0 : edges.length) : from + step,
				shade.hidden ? (step > 0 ? 0 : edges.length) : from + step,
			);
	}
	return {
		element,
		/**
		 * @param {Parameters<typeof columnPlot>[0]} plot @param {string[]} bounds the beginning of each bar, and the end of the last one
		 * @param {string | undefined} since what is chosen @param {string | undefined} until
		 */
		show(plot, bounds, since, until) {
			edges = bounds;
			put(box, columnPlot(plot));
			shade.hidden = true;
			if (!since && !until) return;
			const moments = edges.map((one) => Date.parse(one));
			const begins = since ? moments.findLastIndex((one) => one <= Date.parse(since)) : 0,
				ends = until ? moments.findLastIndex((one) => one < Date.parse(until)) : edges.length;
			if (ends >= 0 && begins < edges.length - 1) mark(begins, ends);
		},
	};
}
