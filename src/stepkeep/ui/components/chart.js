/**
 * Small plots: bars over time and bars by share, in SVG and CSS, each with its numbers as text for screen readers.
 */
import { counted, h, line, s } from "../kit.js";

/**
 * Stacked bars over time.
 * @param {{name: string, points: {label: string, parts: number[]}[], tones: string[], words: string[]}} options
 */
export function columnPlot({ name, points, tones, words }) {
	const width = 300,
		height = 88,
		most = Math.max(1, ...points.map((one) => one.parts.reduce((sum, part) => sum + part, 0)));
	const step = width / Math.max(1, points.length),
		thick = Math.max(1, Math.min(14, step - 2));
	const bars = points.flatMap((one, at) => {
		let y = height - 1;
		return one.parts.map((part, kind) => {
			const tall = part ? Math.max(1.5, (part / most) * (height - 8)) : 0;
			y -= tall;
			return part
				? s(
						"rect",
						{
							class: `bar tone-${tones[kind]}`,
							x: at * step + (step - thick) / 2,
							y,
							width: thick,
							height: tall,
							rx: 1,
						},
						s("title", `${one.label}: ${counted(part, words[kind], words[kind])}`),
					)
				: null;
		});
	});
	const total = words
		.map((word, kind) => `${points.reduce((sum, one) => sum + one.parts[kind], 0)} ${word}`)
		.join(", ");
	return s(
		"svg.plot",
		{ viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${total}` },
		s("line.base", { x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }),
		bars,
	);
}

/**
 * A small plot for a cell: how many there were over time, and how many of them failed.
 * @param {string} name @param {number[]} all @param {number[]} [failed]
 */
export function spark(name, all, failed = all) {
	const most = Math.max(1, ...all),
		width = 4;
	/** @param {number[]} values @param {string} tone */
	const bars = (values, tone) =>
		values.map((value, at) => {
			const tall = value ? Math.max(2, (value / most) * 22) : 0;
			return value
				? s("rect", { class: `bar tone-${tone}`, x: at * width, y: 24 - tall, width: width - 1, height: tall })
				: null;
		});
	/** @param {number[]} values */
	const sum = (values) => values.reduce((total, one) => total + one, 0);
	const text = failed === all ? `${sum(all)}` : `${sum(all)}, ${sum(failed)} failed`;
	return s(
		"svg.spark",
		{ viewBox: `0 0 ${all.length * width} 24`, role: "img", "aria-label": `${name}: ${text}` },
		s("title", text),
		s("line.base", { x1: 0, x2: all.length * width, y1: 24, y2: 24 }),
		failed === all ? null : bars(all, "run"),
		bars(failed, "bad"),
	);
}

/** How far back a page may look: what the service takes, and words. */
export const WINDOWS = [
	["1h", "Last hour"],
	["24h", "Last 24 hours"],
	["7d", "Last 7 days"],
];

/** Shares as bars. @param {{label: Child, value: number, text: string, tone?: string}[]} items */
export function shareBars(items) {
	const most = Math.max(1e-9, ...items.map((one) => one.value));
	return h(
		"ul.bars",
		items.map((one) => {
			const bar = h("i");
			bar.style.width = `${Math.max(1, (one.value / most) * 100)}%`;
			return h(
				"li",
				{ class: `one tone-${one.tone ?? "run"}` },
				h("span.cut", typeof one.label === "string" ? line(one.label, 100) : one.label),
				h("span.num.muted", one.text),
				h("div.track", { "aria-hidden": "true" }, bar),
			);
		}),
	);
}
