/**
 * The difference of two texts by lines: Myers' algorithm, bounded; equal stretches are folded.
 * @module
 */
import { h } from "../dom.js";
import { inert } from "../format.js";

const MOST_STEPS = 2000, CONTEXT = 3;

/** @param {string[]} a @param {string[]} b @returns {[" " | "+" | "-", string][]} */
export function compare(a, b) {
	let head = 0, tail = 0;
	while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
	while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
	const same = (one) => ([" ", one]);
	return [...a.slice(0, head).map(same), ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)), ...a.slice(a.length - tail).map(same)];
}

function middle(a, b) {
	const most = Math.min(a.length + b.length, MOST_STEPS);
	const trace = [];
	let reach = new Map([[1, 0]]);
	for (let d = 0; d <= most; d += 1) {
		trace.push(new Map(reach));
		for (let k = -d; k <= d; k += 2) {
			const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
			let x = down ? reach.get(k + 1) ?? 0 : (reach.get(k - 1) ?? 0) + 1;
			while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
			reach.set(k, x);
			if (x >= a.length && x - k >= b.length) return walk(a, b, trace, d);
		}
	}
	return [...a.map((one) => (["-", one])), ...b.map((one) => (["+", one]))];
}

function walk(a, b, trace, steps) {
	const found = [];
	let x = a.length, y = b.length;
	for (let d = steps; d >= 0; d -= 1) {
		const reach = trace[d], k = x - y;
		const down = k === -d || (k !== d && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
		const before = down ? k + 1 : k - 1, startX = reach.get(before) ?? 0, startY = startX - before;
		while (x > startX && y > startY) { x -= 1; y -= 1; found.push([" ", a[x]]); }
		if (d === 0) break;
		if (down) { y -= 1; found.push(["+", b[y]]); } else { x -= 1; found.push(["-", a[x]]); }
	}
	return found.reverse();
}

/** @param {string} before @param {string} after */
export function diffView(before, after) {
	const found = compare(before.split("\n"), after.split("\n"));
	const near = found.map((_, at) => found.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1).some(([kind]) => kind !== " "));
	const rows = [];
	for (let at = 0; at < found.length; at += 1) {
		if (!near[at]) {
			const from = at;
			while (at + 1 < found.length && !near[at + 1]) at += 1;
			rows.push(h("div.gap", h("span", "⋯"), h("span", `${at - from + 1} equal lines`)));
			continue;
		}
		const [kind, text] = found[at];
		rows.push(h("div", { class: kind === "+" ? "add" : kind === "-" ? "del" : "" },
			h("span", { "aria-label": kind === "+" ? "added" : kind === "-" ? "removed" : null }, kind), h("span", inert(text))));
	}
	const changes = found.filter(([kind]) => kind !== " ").length;
	return changes ? h("div.diff", { tabindex: "0", role: "region", "aria-label": "Differences" }, rows) : h("p.muted", "There is no difference.");
}
