/**
 * Small parts of every page: buttons, links, empty states, problems, cards, tabs, fields.
 */
import { copy, h, put, unique } from "../dom.js";
import { inert, line, shortId } from "../format.js";
import { icon } from "../icons.js";
import { href } from "../router.js";
import { toast } from "./toast.js";

/**
 * @param {string} label @param {(event: Event) => any} act
 * @param {{kind?: string, icon?: string, hidden?: boolean, title?: string, disabled?: boolean, pressed?: boolean}} [options]
 *   `hidden` shows the icon alone; the label is then its name.
 */
export function button(label, act, options = {}) {
	return h(
		"button",
		{
			type: "button",
			key: label,
			class: `button ${options.kind ?? ""}`,
			disabled: options.disabled ?? false,
			"aria-label": options.hidden ? label : null,
			title: options.title ?? (options.hidden ? label : null),
			"aria-pressed": options.pressed === undefined ? null : String(options.pressed),
			on: { click: act },
		},
		options.icon && icon(options.icon),
		options.hidden ? null : h("span", label),
	);
}

/** The options of most buttons in tables. */
export const SMALL = { kind: "small" };

/** A link to a page. @param {string} path @param {...Child} children */
export const link = (path, ...children) => h("a", { href: href(path) }, ...children);

/** A link to a run, by its short id. @param {string} id */
export const runLink = (id) => h("a.mono", { href: href(`/runs/${id}`), title: id }, shortId(id));

/** Text of a user, kept apart from the direction of its surroundings. @param {unknown} text @param {number} [most] */
export const said = (text, most = 300) =>
	h("bdi", { title: String(text).length > 60 ? line(text, 1000) : null }, line(text, most));

/** @param {string} text @param {string} [what] */
export function copyButton(text, what = "Copy") {
	const act = async () => {
		if (await copy(text)) toast("ok", "Copied");
		else toast("bad", "The browser does not allow it");
	};
	return button(what, act, { kind: "plain small", icon: "copy", hidden: true });
}

/** What a page shows where there is nothing. @param {string} name @param {string} title @param {...Child} children */
export function empty(name, title, ...children) {
	return h("div.empty", icon(name), h("h2", title), children.length ? h("p", ...children) : null);
}

/** While a page loads. @param {number} [rows] */
export const skeleton = (rows = 6) =>
	h(
		"div.skeleton",
		{ role: "status", "aria-label": "Loading" },
		Array.from({ length: rows }, () => h("i")),
	);

/** A problem, told where it happened. @param {string} text */
export const problemBox = (text) => h("div.problem", { role: "alert" }, icon("warn"), h("span", inert(text)));

/** @param {Child} title @param {Child} body @param {...Child} actions */
export function card(title, body, ...actions) {
	return h(
		"section.card",
		h("header", typeof title === "string" ? h("h2", title) : title, actions.length ? h("div.row", ...actions) : null),
		h("div.body", body),
	);
}

/** A list of names and values; pairs without a value are left out. @param {Child[][]} pairs */
export const facts = (pairs) =>
	h(
		"dl.facts",
		pairs
			.filter(([, value]) => value !== null && value !== undefined && value !== "")
			.map(([name, value]) => [h("dt", name), h("dd", value)]),
	);

/** A field of a form. @param {string} label @param {any} control @param {string} [hint] */
export function field(label, control, hint) {
	control.id ||= unique("field");
	const hintId = hint ? unique("hint") : null;
	if (hintId) control.setAttribute("aria-describedby", hintId);
	return h("div.field", h("label", { for: control.id }, label), control, hint && h("div.hint", { id: hintId }, hint));
}

/** @param {Props} [props] */
export const input = (props = {}) => h("input.input", { autocomplete: "off", spellcheck: "false", ...props });
/** @param {Props} [props] */
export const area = (props = {}) =>
	h("textarea", { spellcheck: "false", ...props, class: `input ${props.class ?? ""}` });

/** A select. @param {string[][]} options value and words @param {string} chosen @param {(value: string) => void} [changed] */
export function select(options, chosen, changed, label = "") {
	return h(
		"select.input",
		{ "aria-label": label || null, on: { change: (event) => changed?.(event.target.value) } },
		options.map(([value, text]) => {
			const one = h("option", { value }, text);
			one.selected = value === chosen;
			return one;
		}),
	);
}

/**
 * Tabs with their panels; one panel is built at a time.
 * @param {{id: string, label: Child, build: () => Node}[]} tabs @param {string} chosen @param {(id: string) => void} changed
 */
export function tabbed(tabs, chosen, changed, label = "Parts") {
	const panel = h("div", { role: "tabpanel", id: unique("panel"), tabindex: "-1" });
	const buttons = tabs.map((tab) =>
		h(
			"button.tab",
			{
				type: "button",
				role: "tab",
				id: unique("tab"),
				"aria-controls": panel.id,
				data: { tab: tab.id },
				on: { click: () => show(tab.id, true) },
			},
			tab.label,
		),
	);
	const list = h("div.tabs", { role: "tablist", "aria-label": label, on: { keydown: move } }, buttons);
	/** @param {KeyboardEvent} event */
	function move(event) {
		const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
		if (!step) return;
		event.preventDefault();
		const at =
			(buttons.findIndex((one) => one.getAttribute("aria-selected") === "true") + step + tabs.length) % tabs.length;
		show(tabs[at].id, true);
		buttons[at].focus();
	}
	/** @param {string} id @param {boolean} isNew */
	function show(id, isNew) {
		const at = Math.max(
			0,
			tabs.findIndex((tab) => tab.id === id),
		);
		buttons.forEach((one, place) => {
			one.setAttribute("aria-selected", String(place === at));
			one.tabIndex = place === at ? 0 : -1;
		});
		panel.setAttribute("aria-labelledby", buttons[at].id);
		put(panel, tabs[at].build());
		requestAnimationFrame(() => buttons[at].scrollIntoView({ block: "nearest", inline: "nearest" }));
		if (isNew) changed(tabs[at].id);
	}
	show(chosen, false);
	return {
		list,
		panel,
		/** @param {string} id */
		show: (id) => show(id, false),
		/** @param {string} id @param {Child} text */
		relabel: (id, text) => {
			const at = tabs.findIndex((tab) => tab.id === id);
			if (at >= 0) put(buttons[at], text);
		},
	};
}

/**
 * A plain table; on a phone each row is a card, whose cells have the names of their columns. Roles are written out,
 * because such a display would lose them.
 * @param {string} name @param {string[]} columns @param {Child[][]} rows
 */
export const table = (name, columns, rows) =>
	h(
		"div.table-box",
		{ tabindex: "0", role: "region", "aria-label": name },
		h(
			"table.table",
			{ role: "table" },
			h(
				"thead",
				{ role: "rowgroup" },
				h(
					"tr",
					{ role: "row" },
					columns.map((one) => h("th", { scope: "col", role: "columnheader" }, one || h("span.offscreen", "Actions"))),
				),
			),
			h(
				"tbody",
				{ role: "rowgroup" },
				rows.map((row) =>
					h(
						"tr",
						{ role: "row" },
						row.map((cell, at) => h("td", { role: "cell", data: { label: columns[at] } }, h("div", cell))),
					),
				),
			),
		),
	);
