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
