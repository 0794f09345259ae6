/**
 * The icons: strokes on a 16 × 16 grid, and the word, tone and icon of each state, so that colour is never alone.
 */
import { h, s } from "./dom.js";
import { words } from "./format.js";

/** @type {Record<string, string>} */
const PATHS = {
	check: "M3.5 8.5l3 3 6-7",
	cross: "M4.5 4.5l7 7M11.5 4.5l-7 7",
	play: "M5.5 3.5v9l7-4.5z",
	pause: "M5.5 4v8M10.5 4v8",
	clock: "M8 2.5a5.5 5.5 0 100 11 5.5 5.5 0 000-11zM8 5v3.2l2 1.3",
	person: "M8 8.2a2.6 2.6 0 100-5.2 2.6 2.6 0 000 5.2zM3.5 13.2c.6-2.3 2.3-3.4 4.5-3.4s3.9 1.1 4.5 3.4",
	people:
		"M6 8a2.3 2.3 0 100-4.6A2.3 2.3 0 006 8zM2 13c.4-2.1 1.9-3.2 4-3.2s3.6 1.1 4 3.2M10.5 3.6a2.3 2.3 0 010 4.3M12 10.2c1.2.5 1.9 1.4 2.1 2.8",
	retry: "M12.8 6.2A5 5 0 103 9.2M13 3v3.4H9.6",
	undo: "M5.5 3L2.8 5.8l2.7 2.7M3 5.8h6.2a3.6 3.6 0 010 7.2H6",
	dash: "M4 8h8",
	dot: "M8 6.5a1.5 1.5 0 100 3 1.5 1.5 0 000-3z",
	ring: "M8 3.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9z",
	slash: "M8 2.8a5.2 5.2 0 100 10.4A5.2 5.2 0 008 2.8zM4.6 11.4l6.8-6.8",
	warn: "M8 2.8l5.8 10.2H2.2zM8 6.6v3M8 11.2v.1",
	mail: "M2.5 4h11v8h-11zM2.8 4.4L8 8.6l5.2-4.2",
	hand: "M5 8V4.2a1 1 0 012 0V7m0-3.3a1 1 0 012 0V7m0-2.3a1 1 0 012 0V9.5c0 2.4-1.4 4-3.6 4-2 0-2.8-.9-4-3.2-.6-1.2.7-1.9 1.4-1L5 10",
	search: "M7 2.8a4.2 4.2 0 100 8.4 4.2 4.2 0 000-8.4zM10.2 10.2l3 3",
	runs: "M2.5 4h2M2.5 8h2M2.5 12h2M7 4h6.5M7 8h6.5M7 12h6.5",
	inbox: "M2.5 9l2-5.5h7l2 5.5v3.5h-11zM2.5 9h3.3c.2 1.2 1 1.8 2.2 1.8s2-.6 2.2-1.8h3.3",
	chart: "M2.5 13.5v-11M2.5 13.5h11M5.5 11V8.5M8.5 11V5M11.5 11V7",
	flow: "M2.5 3h4v3.5h-4zM9.5 9.5h4V13h-4zM4.5 6.5v4.8h5",
	worker: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
	send: "M13.5 2.5l-11 4.3 4.4 1.9zM13.5 2.5l-4.7 11-1.9-4.8z",
	bolt: "M9 2L3.8 9H8l-1 5 5.2-7H8z",
	shield: "M8 2.3l5 1.8v3.6c0 3-2 5-5 6-3-1-5-3-5-6V4.1z",
	key: "M5.3 7a3.2 3.2 0 100 6.4A3.2 3.2 0 005.3 7zM7.6 7.8L13 2.5M10.6 4.9l2 2",
	book: "M3 3.2c2-.7 3.6-.4 5 .8 1.4-1.2 3-1.5 5-.8v9.3c-2-.7-3.6-.4-5 .8-1.4-1.2-3-1.5-5-.8zM8 4v9.3",
	sun: "M8 5.2a2.8 2.8 0 100 5.6 2.8 2.8 0 000-5.6zM8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4M3.6 3.6l1 1M11.4 11.4l1 1M12.4 3.6l-1 1M4.6 11.4l-1 1",
	moon: "M12.8 9.6A5.4 5.4 0 016.4 3.2a5.4 5.4 0 106.4 6.4z",
	auto: "M8 2.5a5.5 5.5 0 100 11zM8 2.5a5.5 5.5 0 010 11",
	exit: "M9.5 3H3.2v10h6.3M6.5 8h7M11 5.5L13.5 8 11 10.5",
	more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
	copy: "M5.5 5.5h7.5V13H5.5zM3 10.5V3h7.5",
	right: "M6 3.5L10.5 8 6 12.5",
	layers: "M8 2.5l6 3-6 3-6-3zM2 8.5l6 3 6-3M2 11.5l6 3 6-3",
	plus: "M8 3.5v9M3.5 8h9",
	fit: "M2.8 6V2.8H6M10 2.8h3.2V6M13.2 10v3.2H10M6 13.2H2.8V10",
	star: "M8 2.4l1.7 3.6 3.9.5-2.9 2.7.8 3.9L8 11.2l-3.5 1.9.8-3.9L2.4 6.5l3.9-.5z",
	fire: "M8 2c.4 2.4 3.6 3.6 3.6 7A3.6 3.6 0 018 13.5 3.6 3.6 0 014.4 9c0-1.4.7-2.3 1.5-3.1.2 1 .6 1.5 1.2 1.8C7.6 6 7.2 4 8 2z",
};

/** An icon. It says nothing to a screen reader: a word stands beside it. @param {string} name @param {string} [extra] */
export function icon(name, extra = "") {
	return s(
		"svg",
		{ class: `icon ${extra}`.trim(), viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
		s("path", { d: PATHS[name] ?? PATHS.dot }),
	);
}

/** @type {Record<string, [tone: string, icon: string]>} Tone and icon of each state of runs, steps, attempts, workers. */
const STATES = {
	idle: ["idle", "ring"],
	queued: ["idle", "clock"],
	running: ["run", "play"],
	blocked: ["wait", "hand"],
	validating: ["run", "shield"],
	stopping: ["undo", "slash"],
	compensating: ["undo", "undo"],
	succeeded: ["ok", "check"],
	failed: ["bad", "cross"],
	cancelled: ["idle", "slash"],
	rolled_back: ["undo", "undo"],
	paused: ["wait", "pause"],
	pending: ["idle", "ring"],
	ready: ["idle", "clock"],
	retrying: ["wait", "retry"],
	awaiting_approval: ["wait", "person"],
	held: ["wait", "hand"],
	awaiting_event: ["wait", "mail"],
	awaiting_completion: ["wait", "hand"],
	awaiting_children: ["run", "flow"],
	skipped: ["idle", "dash"],
	open: ["run", "play"],
	timed_out: ["bad", "clock"],
	lost: ["bad", "warn"],
	waited: ["idle", "clock"],
	released: ["idle", "dash"],
	initializing: ["idle", "clock"],
	busy: ["run", "play"],
	unresponsive: ["bad", "warn"],
	draining: ["wait", "exit"],
	shutdown: ["idle", "slash"],
	active: ["ok", "check"],
	disabled: ["bad", "slash"],
	revoked: ["bad", "slash"],
	expired: ["idle", "clock"],
	dead: ["bad", "cross"],
	delivered: ["ok", "check"],
	approve: ["ok", "check"],
	reject: ["bad", "cross"],
};

/** @param {string} state */
export const toneOf = (state) => (STATES[state] ?? ["idle", "dot"])[0];
/** @param {string} state */
export const iconOf = (state) => (STATES[state] ?? ["idle", "dot"])[1];
/** @param {string} name */
export const pathOf = (name) => PATHS[name] ?? PATHS.dot;

/** A state as a word with its icon and colour. @param {string} state @param {string} [word] */
export function badge(state, word) {
	return h(
		"span",
		{ class: `badge tone-${toneOf(state)}`, data: { state } },
		icon(iconOf(state)),
		h("span", word ?? words(state)),
	);
}

/** A word with a tone. @param {string} tone @param {string} name @param {...Child} children */
export function note(tone, name, ...children) {
	return h("span", { class: `badge tone-${tone}` }, icon(name), h("span", ...children));
}
