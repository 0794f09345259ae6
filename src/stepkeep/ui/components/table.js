/**
 * A table of any length: only the rows in sight are in the document, so that ten thousand cost as much as forty.
 * Rows have one height. On a narrow page a row is a card. Keyboard: arrows or j and k, enter, x to select, home, end.
 */
import { h, put, unique } from "../dom.js";

/**
 * @template T
 * @param {{name: string, columns: Column<T>[], key: (row: T) => string, open: (row: T, event?: Event) => void,
 *   card: (row: T) => Child, version: (row: T) => unknown, selectable?: boolean,
 *   selected?: (keys: Set<string>) => void, end?: () => void, signal: AbortSignal, seen?: (rows: T[]) => void, empty: () => Node}} options
 */
export function createTable({
	name,
	columns,
	key,
	open,
	card,
	version,
	selectable,
	selected,
	end,
	signal,
	seen,
	empty,
}) {
	/** @type {T[]} */
	let rows = [];
	/** @type {Map<string, {element: any, version: unknown, isNarrow: boolean}>} */
	const made = new Map();
	/** @type {Set<string>} */
	const chosen = new Set();
	/** @type {Set<string>} */
	let known = new Set();
	let current = -1,
		isNarrow = false,
		height = 38,
		isFirst = true;

	const template = (selectable ? "1.5rem " : "") + columns.map((one) => one.width).join(" ");
	const all = h("input", {
		type: "checkbox",
		"aria-label": "Select all rows shown",
		on: { change: () => chooseAll(all.checked) },
	});
	const head = h(
		"div.gridhead",
		{ role: "row", "aria-rowindex": "1" },
		selectable && h("span.check", { role: "columnheader" }, all),
		columns.map((one) => h("span", { role: "columnheader", class: one.right ? "right" : "" }, one.label)),
	);
	head.style.gridTemplateColumns = template;
	const spacer = h("div.spacer"),
		top = h("div", { role: "rowgroup", id: unique("head") }, head);
	// The part that scrolls has the focus, and is the grid; its head stands above it.
	const scroller = h(
		"div.scroller",
		{ tabindex: "0", "aria-label": name, on: { scroll: schedule, keydown: pressed } },
		spacer,
	);
	const foot = h("div.foot", { role: "status" });
	const element = h("div.grid", top, scroller, foot);
	/** Without rows there is no grid to tell of. */
	function setRoles() {
		const isGrid = rows.length > 0,
			set = (/** @type {string} */ key, /** @type {string} */ value) =>
				isGrid ? scroller.setAttribute(key, value) : scroller.removeAttribute(key);
		top.hidden = isNarrow || !isGrid;
		scroller.setAttribute("role", isGrid ? "grid" : "region");
		set("aria-owns", top.id);
		set("aria-rowcount", String(rows.length + 1));
		if (selectable) set("aria-multiselectable", "true");
		if (isGrid) spacer.setAttribute("role", "rowgroup");
		else spacer.removeAttribute("role");
	}
	setRoles();
	let isScheduled = false;
	function schedule() {
		if (isScheduled) return;
		isScheduled = true;
		requestAnimationFrame(() => {
			isScheduled = false;
			draw();
		});
	}
	const observer = new ResizeObserver(() => {
		const narrow = element.clientWidth < 680;
		if (narrow !== isNarrow) {
			isNarrow = narrow;
			drop();
		}
		height = Math.round(parseFloat(getComputedStyle(document.documentElement).fontSize) * (isNarrow ? 4.375 : 2.5));
		top.hidden = isNarrow || !rows.length;
		schedule();
	});
	observer.observe(element);
	signal.addEventListener("abort", () => observer.disconnect());

	function drop() {
		for (const one of made.values()) one.element.remove();
		made.clear();
	}

	function draw() {
		if (!rows.length) return;
		spacer.style.height = `${rows.length * height}px`;
		const first = Math.max(0, Math.floor(scroller.scrollTop / height) - 6);
		const last = Math.min(rows.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / height) + 6);
		const wanted = new Set();
		for (let at = first; at < last; at += 1) {
			const row = rows[at],
				id = key(row);
			wanted.add(id);
			let one = made.get(id);
			const stamp = version(row);
			if (!one || one.version !== stamp || one.isNarrow !== isNarrow) {
				const fresh = make(row, id, at);
				if (one) one.element.replaceWith(fresh);
				else {
					spacer.append(fresh);
					if (!isFirst && !known.has(id)) fresh.classList.add("fresh");
				}
				one = { element: fresh, version: stamp, isNarrow };
				made.set(id, one);
			}
			const style = one.element.style;
			style.transform = `translateY(${at * height}px)`;
			style.height = `${height}px`;
			one.element.setAttribute("aria-rowindex", String(at + 2));
			one.element.classList.toggle("current", at === current);
			one.element.setAttribute("aria-selected", String(chosen.has(id)));
		}
		for (const [id, one] of made) {
			if (!wanted.has(id)) {
				one.element.remove();
				made.delete(id);
			}
		}
		seen?.(rows.slice(first, last));
		if (end && last >= rows.length - 10) end();
	}

	/** @param {T} row @param {string} id @param {number} at */
	function make(row, id, at) {
		const box =
			selectable &&
			h(
				"span.check",
				{ role: "gridcell" },
				h("input", {
					type: "checkbox",
					tabindex: "-1",
					"aria-label": "Select this row",
					checked: chosen.has(id),
					on: { change: (event) => choose(id, event.target.checked), click: (event) => event.stopPropagation() },
				}),
			);
		const made = h(
			"div.gridrow",
			{ role: "row", id: `row-${id}`, on: { click: (event) => clicked(event, row) } },
			box,
			isNarrow
				? h("div.cardrow", { role: "gridcell" }, card(row))
				: columns.map((one) =>
						h("div", { class: `cell${one.right ? " right" : ""}`, role: "gridcell" }, one.cell(row)),
					),
		);
		made.style.gridTemplateColumns = isNarrow ? (selectable ? "1.5rem minmax(0, 1fr)" : "minmax(0, 1fr)") : template;
		return made;
	}

	/** @param {MouseEvent} event @param {T} row */
	function clicked(event, row) {
		if (event.target.closest("a, button, input")) return;
		if (getSelection()?.toString()) return;
		current = rows.indexOf(row);
		open(row, event);
	}

	/** @param {string} id @param {boolean} isChosen */
	function choose(id, isChosen) {
		if (isChosen) chosen.add(id);
		else chosen.delete(id);
		told();
	}
	/** @param {boolean} isChosen */
	function chooseAll(isChosen) {
		chosen.clear();
		if (isChosen) for (const row of rows) chosen.add(key(row));
		drop();
		told();
	}
	function told() {
		all.checked = rows.length > 0 && chosen.size === rows.length;
		all.indeterminate = chosen.size > 0 && chosen.size < rows.length;
		selected?.(chosen);
		schedule();
	}

	/** @param {number} at */
	function moveTo(at) {
		if (!rows.length) return;
		current = Math.max(0, Math.min(rows.length - 1, at));
		const top = current * height;
		if (top < scroller.scrollTop) scroller.scrollTop = top;
		else if (top + height > scroller.scrollTop + scroller.clientHeight)
			scroller.scrollTop = top + height - scroller.clientHeight;
		draw();
		scroller.setAttribute("aria-activedescendant", `row-${key(rows[current])}`);
	}

	/** @param {KeyboardEvent} event */
	function pressed(event) {
		if (event.target !== scroller) return;
		const pages = Math.max(1, Math.floor(scroller.clientHeight / height) - 1);
		/** @type {Record<string, () => void>} */
		const acts = {
			ArrowDown: () => moveTo(current + 1),
			ArrowUp: () => moveTo(current - 1),
			PageDown: () => moveTo(current + pages),
			PageUp: () => moveTo(current - pages),
			Home: () => moveTo(0),
			End: () => moveTo(rows.length - 1),
			Enter: () => openCurrent(),
			" ": () => toggleCurrent(),
		};
		const act = acts[event.key];
		if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
		event.preventDefault();
		act();
	}
	function openCurrent() {
		if (rows[current]) open(rows[current]);
	}
	function toggleCurrent() {
		if (!selectable || !rows[current]) return;
		const id = key(rows[current]);
		choose(id, !chosen.has(id));
		made.get(id)?.element.remove();
		made.delete(id);
		draw();
	}

	return {
		element,
		/** @param {T[]} next @param {Child} said what the foot tells */
		show(next, said) {
			const at = current >= 0 && rows[current] ? key(rows[current]) : null;
			rows = next;
			const there = new Set(rows.map(key));
			for (const id of [...chosen]) if (!there.has(id)) chosen.delete(id);
			if (at !== null) current = rows.findIndex((row) => key(row) === at);
			put(foot, said);
			setRoles();
			if (!rows.length) {
				drop();
				spacer.style.height = "auto";
				put(spacer, empty());
			} else {
				if (!made.size) put(spacer);
				draw();
			}
			known = there;
			isFirst = isFirst && !rows.length;
			told();
		},
		/** Draws the rows in sight again. */
		refresh: schedule,
		keys: {
			j: () => {
				scroller.focus({ preventScroll: true });
				moveTo(current + 1);
			},
			k: () => {
				scroller.focus({ preventScroll: true });
				moveTo(current - 1);
			},
			enter: openCurrent,
			x: toggleCurrent,
		},
		selection: () => rows.filter((row) => chosen.has(key(row))),
		clear: () => chooseAll(false),
		scroller,
	};
}
