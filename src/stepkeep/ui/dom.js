/**
 * Makes elements. Text goes in as text nodes only: nothing here, and nothing that uses it, parses markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("span.chip.faint", { title }, ...children)`. Properties: `class`, `on` (listeners by event), `data` (data
 * attributes); everything else is an attribute, left out if null, undefined or false. They may be left out.
 * @param {string} tag its name and classes @param {...(Record<string, any> | Child)} rest @returns {any}
 */
export const h = (tag, ...rest) => fill((name) => document.createElement(name), tag, rest);

/** An SVG element. @param {string} tag @param {...(Record<string, any> | Child)} rest @returns {any} */
export const s = (tag, ...rest) => fill((name) => document.createElementNS(SVG, name), tag, rest);

function fill(create, tag, rest) {
	const [name, ...classes] = tag.split("."),
		element = create(name),
		[first] = rest;
	const hasProps = first && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node);
	if (hasProps && first.class) classes.push(first.class.trim());
	if (classes.length) element.setAttribute("class", classes.join(" "));
	for (const [key, value] of Object.entries(hasProps ? first : {})) {
		if (value === null || value === undefined || value === false || key === "class") continue;
		if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
		else if (key === "data") Object.assign(element.dataset, value);
		else if (key === "value" || key === "checked" || key === "indeterminate" || key === "disabled")
			element[key] = value;
		else element.setAttribute(key, value === true ? "" : String(value));
	}
	append(element, hasProps ? rest.slice(1) : rest);
	return element;
}

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
		const area = h("textarea.offscreen", { value: text, "aria-hidden": "true" });
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
