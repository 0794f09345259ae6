/**
 * Routing by URL: each page has an address, and every filter is in it. Going back and forward works as everywhere.
 */
import { ROOT, searchOf } from "./api.js";

const BASE = `${ROOT}/ui`;

/** The address of a page. @param {string} path @param {Record<string, any>} [query] */
export function href(path, query) {
	return `${BASE}${path}${searchOf(query ?? {})}`;
}

/** The page in sight, without the base. */
export const path = () => decodeURI(location.pathname.slice(BASE.length)) || "/";

let changed = () => {};

/** @param {string} to @param {Record<string, any>} [query] */
export function go(to, query) {
	history.pushState(null, "", href(to, query));
	changed();
}

/** Changes the search part of the address without leaving the page. @param {Record<string, any>} query @param {boolean} [isStep] a step to go back to */
export function setQuery(query, isStep = false) {
	history[isStep ? "pushState" : "replaceState"](
		null,
		"",
		location.pathname + searchOf(query, new URLSearchParams(location.search)),
	);
}

/** Calls a function when the page changes, also by a click on a link of ours. @param {() => void} callback */
export function startRouter(callback) {
	changed = callback;
	addEventListener("popstate", callback);
	document.addEventListener("click", (event) => {
		const found = event.target.closest?.("a[href]");
		if (
			!(found instanceof HTMLAnchorElement) ||
			event.defaultPrevented ||
			event.button ||
			event.ctrlKey ||
			event.metaKey ||
			event.shiftKey
		)
			return;
		if (
			found.target ||
			found.download ||
			found.origin !== location.origin ||
			!`${found.pathname}/`.startsWith(`${BASE}/`)
		)
			return;
		event.preventDefault();
		history.pushState(null, "", found.href);
		callback();
	});
}

/**
 * The parameters of a path, or null. `:name` is one part, `*name` the rest.
 * @param {string} pattern @param {string} given
 */
export function match(pattern, given) {
	const wanted = pattern.split("/"),
		parts = given.replace(/\/$/, "").split("/");
	/** @type {Record<string, string>} */
	const found = {};
	for (let at = 0; at < wanted.length; at += 1) {
		if (wanted[at].startsWith("*")) {
			found[wanted[at].slice(1)] = parts.slice(at).join("/");
			return parts.length > at ? found : null;
		}
		if (wanted[at].startsWith(":")) {
			if (!parts[at]) return null;
			found[wanted[at].slice(1)] = parts[at];
		} else if (wanted[at] !== (parts[at] ?? "")) return null;
	}
	return parts.length <= wanted.length ? found : null;
}
