/**
 * A page that shows one body of the API and reads it again every so often.
 */
import { createReloader, createStore, every, h, problemBox, put, refused, skeleton } from "../kit.js";

/**
 * @template T
 * @param {Context} context
 * @param {{title: string, load: (signal: AbortSignal) => Promise<T>, draw: (body: T, again: () => void) => Child,
 *   actions?: (again: () => void) => Child, seconds?: number, keys?: Keys, kind?: string}} options
 * @returns {Page & {again: () => void}}
 */
export function listPage(context, { title, load, draw, actions, seconds = 15, keys = {}, kind = "" }) {
	const { signal } = context,
		store = createStore({ body: null, problem: "" }),
		body = h("div.stack");
	const reloader = createReloader(
		async () => {
			try {
				store.set({ body: await load(signal), problem: "" });
			} catch (error) {
				if (signal.aborted) return;
				refused(error);
				store.set({
					problem: error.status === 403 ? `Your key does not allow this page. ${error.message}` : error.message,
				});
			}
		},
		signal,
		500,
	);
	const again = () => reloader.ask();
	let before = "";
	store.watch(({ body: told, problem }) => {
		const stamp = JSON.stringify([told, problem]);
		if (stamp === before) return;
		before = stamp;
		// What a person has opened or types in stays: the page is drawn again when they are done.
		if (told && body.contains(document.activeElement) && document.activeElement?.matches("input, textarea, select"))
			return;
		put(body, problem ? problemBox(problem) : told ? draw(told, again) : skeleton());
	}, signal);
	every(seconds * 1000, again, signal);
	again();
	const element = h(
		"div",
		{ class: `page ${kind}` },
		h("div.head", h("h1", title), actions ? h("div.row", actions(again)) : null),
		body,
	);
	return { element, keys, again };
}

/** The function that builds such a page. @param {any} options those of `listPage` @returns {(context: Context) => Page} */
export const listed = (options) => (context) => listPage(context, options);
