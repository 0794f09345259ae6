/**
 * Dialogs: the native element, which keeps focus inside and gives it back. A form's answer goes to `act`; a refusal of
 * the service is told inside the dialog, which stays open.
 */
import { post, Problem, refused } from "../api.js";
import { h, put, unique } from "../dom.js";
import { inert } from "../format.js";
import { icon } from "../icons.js";
import { field, input } from "./parts.js";
import { toast, toastDone } from "./toast.js";

/**
 * @param {{title: string, body: Child, act?: () => Promise<any>, label?: string, kind?: string,
 *   done?: string, wide?: boolean, extra?: Child}} options
 * @returns {{element: HTMLDialogElement, close: () => void}}
 */
export function openDialog({ title, body, act, label = "OK", kind = "primary", done, wide, extra }) {
	const problem = h("div.problem", { role: "alert" });
	const heading = h("h2", { id: unique("title") }, title);
	const submit = act && h("button", { class: `button ${kind}`, type: "submit" }, label);
	const form = h(
		"form",
		{ method: "dialog", novalidate: true, on: { submit: send } },
		h(
			"header",
			heading,
			h(
				"button.button.plain.small",
				{ type: "button", "aria-label": "Close", on: { click: () => element.close() } },
				icon("cross"),
			),
		),
		h("div.content", body, problem),
		h(
			"footer",
			extra,
			h("button.button", { type: "button", on: { click: () => element.close() } }, act ? "Cancel" : "Close"),
			submit,
		),
	);
	const element = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": heading.id, on: { close: ended } }, form);
	/** Notices that the dialog showed stay. */
	function ended() {
		element.remove();
		document.body.append(...element.querySelectorAll(".toasts"));
	}
	/** @param {Event} event */
	async function send(event) {
		event.preventDefault();
		if (!act) return element.close();
		submit.disabled = true;
		put(problem);
		try {
			const answer = await act();
			if (answer === false) return;
			element.close();
			if (done) toastDone(answer, done);
		} catch (error) {
			if (!(error instanceof Problem || error instanceof TypeError)) throw error;
			put(problem, icon("warn"), h("span", inert(error.message)));
		} finally {
			submit.disabled = false;
		}
	}
	document.body.append(element);
	element.showModal();
	element.querySelector("[autofocus], .content input, .content textarea, .content select")?.focus();
	return { element, close: () => element.close() };
}

/**
 * A dialog that asks for a reason and sends it. The other options are those of a dialog.
 * @param {any} options `text`; `more`: what stands before the reason; `below`: what stands behind it; `path`; `given`: what else
 *   is sent; `isNeeded`: a reason must be given; `then`: what is done with the answer
 */
export function ask({ text, more, below, path, given = () => ({}), isNeeded, then, ...options }) {
	const reason = input({ autofocus: !more, placeholder: "Why, for the record" });
	openDialog({
		label: options.title,
		...options,
		body: [text && h("p", text), more, field("Reason", reason), below],
		act: async () => {
			if (isNeeded && !reason.value.trim()) throw new TypeError("Give a reason.");
			const answer = await post(typeof path === "string" ? path : path(), { reason: reason.value, ...given() });
			then(answer);
			return answer;
		},
	});
}

/** A value that a person types as JSON. An empty text is undefined. @param {string} text @param {string} what */
export function readJson(text, what) {
	if (!text.trim()) return undefined;
	try {
		return JSON.parse(text);
	} catch (error) {
		throw new TypeError(`${what} is not JSON: ${error.message}`);
	}
}

/** Runs an action of a button and tells a refusal as a notice. @param {() => Promise<any>} act @param {string} [done] */
export async function attempt(act, done) {
	try {
		const answer = await act();
		if (done) toastDone(answer, done);
		return answer;
	} catch (error) {
		refused(error);
		toast("bad", error.message);
		return undefined;
	}
}

/** Asks before it acts. @param {string} title @param {string} text @param {() => Promise<any>} act @param {() => void} again */
export const confirmDialog = (title, text, act, again) =>
	openDialog({
		title,
		label: title,
		kind: "danger",
		body: h("p", text),
		act: async () => {
			await act();
			again();
		},
	});
