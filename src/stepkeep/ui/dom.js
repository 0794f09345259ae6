/**
 * Makes elements. Text goes in as text nodes only: nothing here, and nothing that uses it, parses markup.
 * `patch` changes what is there into what is wanted, so that focus, scrolling and open parts stay.
 */

const SVG = "http://www.w3.org/2000/svg";

const FIELDS = new Set(["input", "textarea", "select", "progress"]);

/** The listeners of each element by event, so that `patch` can replace them. */
const listening = new WeakMap();
/** The value that a part was built from: `patch` leaves a part as it is while its value is the same. */
const stamps = new WeakMap();

/**
 * An element: `h("span.chip.faint", { title }, ...children)`. Properties: `class`, `on` (listeners by event), `data` (data
 * attributes), `key` (what `patch` knows it by), `stamp` (what it is built from); everything else is an attribute, left
 * out if null, undefined or false. They may be left out.
 * @param {string} tag its name and classes @param {...(Props | Child)} rest @returns {any}
 */
export const h = (tag, ...rest) => fill((name) => document.createElement(name), tag, rest);

/** An SVG element. @param {string} tag @param {...(Props | Child)} rest @returns {any} */
export const s = (tag, ...rest) => fill((name) => document.createElementNS(SVG, name), tag, rest);

/** @param {(name: string) => any} create @param {string} tag @param {any[]} rest */
function fill(create, tag, rest) {
	const [name, ...classes] = tag.split("."),
		element = create(name),
		[first] = rest;
	const hasProps = first && typeof first === "object" && !Array.isArray(first) && !(first instanceof Node);
	if (hasProps && first.class) classes.push(first.class.trim());
	if (classes.length) element.setAttribute("class", classes.join(" "));
	for (const [key, value] of Object.entries(hasProps ? first : {})) {
		if (value === null || value === undefined || value === false || key === "class") continue;
		if (key === "on") for (const [event, listener] of Object.entries(value)) listen(element, event, listener);
		else if (key === "data") Object.assign(element.dataset, value);
		else if (key === "key") element.dataset.key = value;
		else if (key === "stamp") stamps.set(element, value);
		else if (["value", "checked", "indeterminate", "disabled"].includes(key)) element[key] = value;
		else element.setAttribute(key, value === true ? "" : String(value));
	}
	element.append(...nodes(hasProps ? rest.slice(1) : rest));
	return element;
}

/** @param {any} element @param {string} event @param {(event: any) => any} listener */
function listen(element, event, listener) {
	if (!listening.has(element)) listening.set(element, {});
	const known = listening.get(element);
	if (!(event in known)) element.addEventListener(event, (/** @type {Event} */ happened) => known[event]?.(happened));
	known[event] = listener;
}

/** Children as nodes, without those that say nothing. @param {any[]} children @returns {Node[]} */
const nodes = (children) =>
	/** @type {any[]} */ (children.flat(20))
		.filter((one) => one !== null && one !== undefined && one !== false)
		.map((one) => (one instanceof Node ? one : document.createTextNode(String(one))));

/** Replace the content of an element. @param {Element} element @param {...Child} children */
export const put = (element, ...children) => element.replaceChildren(...nodes(children));

/**
 * Change the content of an element into this. Parts with a key are known by it, others by their place and tag.
 * @param {Element} element @param {...Child} children
 */
export function patch(element, ...children) {
	const focused = /** @type {HTMLElement} */ (document.activeElement);
	reconcile(element, nodes(children));
	// An element that is moved loses the focus.
	if (focused !== document.activeElement && element.contains(focused)) focused.focus({ preventScroll: true });
}

/** @param {any} parent @param {any[]} wanted */
function reconcile(parent, wanted) {
	const keyed = new Map([...parent.children].map((one) => [one.dataset.key, one]));
	let at = parent.firstChild;
	for (const one of wanted) {
		const key = one.dataset?.key,
			there = key ? keyed.get(key) : at?.dataset?.key ? null : at;
		if (one === at) at = at.nextSibling;
		else if (there && there !== one && isAlike(there, one)) {
			keyed.delete(key);
			if (there === at) at = at.nextSibling;
			else parent.insertBefore(there, at);
			become(there, one);
		} else parent.insertBefore(one, at);
	}
	while (at) {
		const next = at.nextSibling;
		at.remove();
		at = next;
	}
}

/** A part that is built from another value is another part. @param {any} old @param {any} wanted */
const isAlike = (old, wanted) => old.nodeName === wanted.nodeName && stamps.get(old) === stamps.get(wanted);

/** One node becomes another one: its text, or its attributes, listeners, value and content. @param {any} old @param {any} wanted */
function become(old, wanted) {
	if (old.nodeType === Node.TEXT_NODE) {
		if (old.data !== wanted.data) old.data = wanted.data;
		return;
	}
	if (stamps.has(old)) return;
	// The reader opens and closes parts; the policy of the pages refuses styles as text.
	/** @param {string} name */
	const stays = (name) => name === "style" || (name === "open" && old.localName === "details");
	for (const { name } of [...old.attributes]) if (!stays(name) && !wanted.hasAttribute(name)) old.removeAttribute(name);
	for (const { name, value } of wanted.attributes)
		if (!stays(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
	if (old.style.cssText !== wanted.style.cssText) old.style.cssText = wanted.style.cssText;
	const before = listening.get(old),
		after = listening.get(wanted) ?? {};
	for (const event of Object.keys(before ?? {})) before[event] = null;
	for (const [event, listener] of Object.entries(after)) listen(old, event, listener);
	if ("checked" in old && old !== document.activeElement) old.checked = wanted.checked;
	reconcile(old, [...wanted.childNodes]);
	if (FIELDS.has(old.localName) && old !== document.activeElement) old.value = wanted.value;
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
