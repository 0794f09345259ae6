/**
 * Shows a JSON value as a tree that opens branch by branch; a branch is built when it is opened, and long texts and
 * lists are cut until the reader asks for the rest. A megabyte costs as little as a line.
 */
import { h } from "../dom.js";
import { bytes, inert } from "../format.js";
import { copyButton } from "./parts.js";

const TEXT = 600,
	ITEMS = 100,
	OPEN_ITEMS = 12;

/** @param {unknown} value @param {{open?: boolean, label?: string}} [options] */
export function jsonView(value, options = {}) {
	return h(
		"div.json-box",
		{ stamp: JSON.stringify(value) ?? "" },
		copyButton(JSON.stringify(value, null, 2) ?? "null", "Copy as JSON"),
		h(
			"div.json",
			{ tabindex: "0", role: "region", "aria-label": options.label ?? "JSON value" },
			branch(null, value, 0, options.open ?? true),
		),
	);
}

/** @param {string | null} name @param {any} value @param {number} depth @param {boolean} isOpen @returns {any} */
function branch(name, value, depth, isOpen) {
	const label = name === null ? null : [h("span.key", h("bdi", inert(name).slice(0, 300))), ": "];
	if (value === null || typeof value !== "object") return h("div.leaf", label, leaf(value));
	const isList = Array.isArray(value),
		size = isList ? value.length : Object.keys(value).length;
	if (!size) return h("div.leaf", label, isList ? "[ ]" : "{ }");
	const list = h("ul", { role: "list" });
	const items = () => Object.entries(value);
	if (depth === 0 && isOpen) {
		fill(list, items(), 0, depth);
		list.className = "root";
		return list;
	}
	let isBuilt = false;
	const build = () => {
		if (isBuilt) return;
		isBuilt = true;
		fill(list, items(), 0, depth);
	};
	const details = h(
		"details",
		{ on: { toggle: () => details.open && build() } },
		h("summary", label, h("span.preview", preview(value, isList, size))),
		list,
	);
	if (isOpen && depth < 3 && size <= OPEN_ITEMS) {
		build();
		details.open = true;
	}
	return details;
}

/** @param {Element} list @param {[string, any][]} items @param {number} from @param {number} depth */
function fill(list, items, from, depth) {
	for (const [name, value] of items.slice(from, from + ITEMS))
		list.append(h("li", branch(name, value, depth + 1, items.length <= OPEN_ITEMS)));
	const left = items.length - from - ITEMS;
	if (left <= 0) return;
	const more = h(
		"li",
		h(
			"button.button.small",
			{
				type: "button",
				on: {
					click: () => {
						more.remove();
						fill(list, items, from + ITEMS, depth);
					},
				},
			},
			`Show ${Math.min(ITEMS, left)} of ${left.toLocaleString("en")} more`,
		),
	);
	list.append(more);
}

/** @param {any} value @param {boolean} isList @param {number} size */
function preview(value, isList, size) {
	if (isList) return `[ ${size.toLocaleString("en")} ${size === 1 ? "item" : "items"} ]`;
	const names = Object.keys(value)
		.slice(0, 4)
		.map((one) => inert(one).slice(0, 24));
	return `{ ${names.join(", ")}${size > 4 ? `, … ${size - 4} more` : ""} }`;
}

/** @param {any} value */
function leaf(value) {
	if (typeof value === "string") {
		if (!value) return h("span.string", { title: "an empty text" }, '""');
		const text = h("bdi.string", `"${inert(value.slice(0, TEXT))}${value.length > TEXT ? "…" : '"'}`);
		if (value.length <= TEXT) return text;
		const more = h(
			"button.button.small",
			{
				type: "button",
				on: {
					click: () => {
						text.textContent = `"${inert(value.slice(0, 200_000))}${value.length > 200_000 ? "… (copy for the rest)" : '"'}`;
						more.remove();
					},
				},
			},
			`Show all ${bytes(value.length)}`,
		);
		return [text, " ", more];
	}
	return h("span", { class: typeof value === "number" ? "number" : "word" }, String(value));
}
