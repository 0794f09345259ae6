/**
 * Short notices at the edge of the page, told to screen readers too.
 */
import { h } from "../dom.js";
import { inert } from "../format.js";
import { icon } from "../icons.js";

const SECONDS = 6,
	MOST = 4;
const box = h("div.toasts", { role: "status", "aria-live": "polite" });

/**
 * Tells that an action is done, or that it had been before: `repeated` in the answer.
 * @param {any} answer @param {string} done
 */
export function toastDone(answer, done) {
	if (answer?.repeated) toast("wait", "It was so before: nothing has changed.");
	else toast("ok", done);
}

/** @param {"ok" | "bad" | "run" | "wait"} tone @param {string} text @param {Child} [action] */
export function toast(tone, text, action) {
	const host = document.querySelector("dialog[open]:last-of-type") ?? document.body;
	if (box.parentElement !== host) host.append(box);
	const close = () => one.remove();
	const one = h(
		"div",
		{ class: `toast tone-${tone}` },
		icon(tone === "ok" ? "check" : tone === "bad" ? "cross" : "dot"),
		h("div.grow", inert(text).slice(0, 600), action ? h("div", action) : null),
		h(
			"button.button.plain.small",
			{ type: "button", "aria-label": "Close notice", on: { click: close } },
			icon("cross"),
		),
	);
	box.append(one);
	while (box.children.length > MOST) box.firstElementChild?.remove();
	setTimeout(close, tone === "bad" ? SECONDS * 2000 : SECONDS * 1000);
}
