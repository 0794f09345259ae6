/**
 * Makes elements. Text goes in as text nodes only: nothing here, and nothing that uses it, parses markup.
 * @module
 */

/** @typedef {Node | string | number | null | undefined | false | Child[]} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. `props`: `class`, `on` (listeners by event), `data` (data attributes), properties whose values are
 * functions or objects are refused; everything else is an attribute, left out if null, undefined or false.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
	return fill(document.createElement(tag), props, children);
}

/** An SVG element.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {any}
 */
export function s(tag, props, ...children) {
	return fill(document.createElementNS(SVG, tag), props, children);
}

/** @param {any} element @param {Record<string, any> | null | undefined} props @param {Child[]} children */
function fill(element, props, children) {
	for (const [name, value] of Object.entries(props ?? {})) {
		if (value === null || value === undefined || value === false) continue;
		if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
		else if (name === "data") for (const [key, one] of Object.entries(value)) element.dataset[key] = String(one);
		else if (name === "value" || name === "checked" || name === "indeterminate" || name === "disabled") element[name] = value;
		else element.setAttribute(name, value === true ? "" : String(value));
	}
	append(element, children);
	return element;
}

/** @param {Node} parent @param {Child[]} children */
function append(parent, children) {
	for (const child of children) {
		if (child === null || child === undefined || child === false) continue;
		if (Array.isArray(child)) append(parent, child);
		else parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
	}
}

/** Replace the content of an element.
 * @param {Element} element @param {...Child} children */
export function put(element, ...children) {
	const made = document.createDocumentFragment();
	append(made, children);
	element.replaceChildren(made);
}

/** Moves focus to an element that is no control, such as the heading of a new page. @param {HTMLElement} element */
export function focusOn(element) {
	if (!element.hasAttribute("tabindex")) element.tabIndex = -1;
	element.focus({ preventScroll: true });
}

/** Copies text, and says whether it worked. @param {string} text */
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		const area = h("textarea", { class: "offscreen", value: text, "aria-hidden": "true" });
		(document.querySelector("dialog[open]") ?? document.body).append(area);
		area.select();
		const done = document.execCommand("copy");
		area.remove();
		return done;
	}
}

let count = 0;
/** A new id, for labels. @param {string} prefix */
export function unique(prefix) {
	count += 1;
	return `${prefix}-${count}`;
}
