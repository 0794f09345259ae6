/**
 * A page that shows one body of the API and reads it again every so often.
 */
import { button, createReloader, createStore, every, get, h, patch, problemBox, refused, skeleton } from "../kit.js";

/**
 * @template T
 * @param {Context} context
 * @param {ListOptions<T>} options
 * @returns {Page & {again: () => void}}
 */
export function listPage(context, { title, load, draw, actions, seconds = 15, keys = {}, kind = "" }) {
	const { signal } = context,
		store = createStore({ body: /** @type {T | null} */ (null), problem: "" }),
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
	store.watch(({ body: told, problem }) => {
		patch(body, problem ? problemBox(problem) : null, told ? draw(told, again) : problem ? null : skeleton());
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

/**
 * The function that builds such a page.
 * @template T
 * @param {ListOptions<T>} options @returns {(context: Context) => Page}
 */
export const listed = (options) => (context) => listPage(context, options);

/**
 * A list that the service tells page by page: `read` reads as many pages as the reader has asked for, `more` is the button
 * that asks for the next one.
 * @template {string} A
 * @param {A} path @param {string} field what the answers call the list @param {number} [limit]
 */
export function paged(path, field, limit = 100) {
	let pages = 1,
		isMore = false;
	return {
		/** @param {AbortSignal} signal @param {Record<string, any>} [query] @returns {Promise<any[]>} */
		async read(signal, query = {}) {
			const rows = [];
			/** @type {string | null} */
			let cursor = null;
			for (let page = 0; page < pages && (!page || cursor); page += 1) {
				/** @type {any} */
				const told = await get(path, /** @type {any} */ ({ ...query, limit, cursor }), signal);
				rows.push(...told[field]);
				cursor = told.next ?? null;
			}
			isMore = Boolean(cursor);
			return rows;
		},
		/** @param {() => void} again */
		more(again) {
			if (!isMore) return null;
			const act = () => {
				pages += 1;
				again();
			};
			return button("Show more", act);
		},
	};
}
