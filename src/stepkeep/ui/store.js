/**
 * The state of one page, derived from bodies of the API: a value, and functions that are told when it changes.
 */
import { Problem, pause } from "./api.js";

/**
 * @template T
 * @param {T} initial
 */
export function createStore(initial) {
	let value = initial,
		isScheduled = false;
	/** @type {Set<(value: T) => void>} */
	const listeners = new Set();
	return {
		get: () => value,
		/** Changes the value; listeners are told once per frame. @param {Partial<T>} changes */
		set(changes) {
			value = { ...value, ...changes };
			if (isScheduled) return;
			isScheduled = true;
			// A hidden page gets no frames, and must not fall behind.
			const tell = () => {
				isScheduled = false;
				for (const one of listeners) one(value);
			};
			if (document.hidden) setTimeout(tell, 100);
			else requestAnimationFrame(tell);
		},
		/** @param {(value: T) => void} listener @param {AbortSignal} signal */
		watch(listener, signal) {
			listeners.add(listener);
			signal.addEventListener("abort", () => listeners.delete(listener));
			listener(value);
		},
	};
}

/**
 * Runs a reload at most once at a time and no more often than its own duration allows: a request that takes long is
 * repeated rarely. `ask` while one is under way causes one more afterwards.
 * @param {() => Promise<void>} reload @param {AbortSignal} signal @param {number} [least] milliseconds
 */
export function createReloader(reload, signal, least = 250) {
	let isRunning = false,
		isAsked = false;
	const run = async () => {
		isRunning = true;
		while (isAsked && !signal.aborted) {
			isAsked = false;
			const began = performance.now();
			try {
				await reload();
			} catch (error) {
				if (!signal.aborted && !(error instanceof Problem)) throw error;
			}
			await pause(Math.max(least, (performance.now() - began) * 4), signal);
		}
		isRunning = false;
	};
	return {
		ask() {
			isAsked = true;
			if (!isRunning) void run();
		},
	};
}

/** Calls a function every so often while the page is shown. @param {() => void} act @param {number} ms @param {AbortSignal} signal */
export function every(ms, act, signal) {
	const timer = setInterval(() => {
		if (!document.hidden) act();
	}, ms);
	const shown = () => {
		if (!document.hidden) act();
	};
	document.addEventListener("visibilitychange", shown, { signal });
	signal.addEventListener("abort", () => clearInterval(timer));
}
