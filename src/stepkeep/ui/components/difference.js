/**
 * What differs between two JSON values, path by path, and a table of it. Attempts, runs and policies are compared so.
 */
import { h, line, table } from "../kit.js";

const MOST = 200;

/**
 * The places where two values differ. A place that one of them lacks has undefined there.
 * @param {any} old @param {any} now @returns {{path: string, old: unknown, now: unknown}[]}
 */
export function differences(old, now, path = "") {
	if (JSON.stringify(old) === JSON.stringify(now)) return [];
	/** @param {unknown} one */
	const isBranch = (one) => one !== null && typeof one === "object";
	if (!isBranch(old) || !isBranch(now) || Array.isArray(old) !== Array.isArray(now)) return [{ path, old, now }];
	const names = [...new Set([...Object.keys(old), ...Object.keys(now)])];
	/** @param {string} name */
	const below = (name) => (Array.isArray(old) ? `${path}[${name}]` : path ? `${path}.${name}` : name);
	return names.flatMap((name) => differences(old[name], now[name], below(name)));
}

/** @param {unknown} one */
const value = (one) => (one === undefined ? h("span.faint", "not there") : h("code", line(JSON.stringify(one), 200)));

/** @param {string} name @param {[string, string]} sides what the two are @param {unknown} old @param {unknown} now */
export function differenceTable(name, sides, old, now) {
	const found = differences(old, now);
	if (!found.length) return h("p.muted", "There is no difference.");
	return [
		table(
			name,
			["Where", ...sides],
			found
				.slice(0, MOST)
				.map((one) => [h("code", line(one.path || "the whole", 120)), value(one.old), value(one.now)]),
		),
		found.length > MOST ? h("p.muted", `and ${found.length - MOST} more`) : null,
	];
}
