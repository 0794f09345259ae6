/**
 * The command palette: pages, actions of the page in sight, and runs that match what is typed.
 */
import { badge, get, h, icon, line, put, unique } from "../kit.js";

/** @param {Command[]} commands @param {(path: string) => void} go */
export function openPalette(commands, go) {
	const listId = unique("palette");
	const box = h("input.input", {
		type: "text",
		placeholder: "Find a run, a page or an action",
		"aria-label": "Find a run, a page or an action",
		autocomplete: "off",
		spellcheck: "false",
		role: "combobox",
		"aria-expanded": "true",
		"aria-controls": listId,
		on: { input: changed, keydown: pressed },
	});
	const list = h("ul", { id: listId, role: "listbox", "aria-label": "Matches" });
	const element = h(
		"dialog.palette",
		{
			"aria-label": "Command palette",
			on: {
				close: () => element.remove(),
				click: (event) => event.target === element && element.close(),
			},
		},
		h("div.inner", box, list),
	);
	/** @type {Command[]} */
	let shown = [];
	/** @type {Command[]} */
	let runs = [];
	let at = 0,
		timer = 0,
		asked = 0;

	function changed() {
		clearTimeout(timer);
		const text = box.value.trim();
		runs = [];
		if (text.length >= 2) timer = setTimeout(find, 180, text);
		draw();
	}
	/** @param {string} text */
	async function find(text) {
		asked += 1;
		const mine = asked;
		const found = await get("/runs", { text, limit: 8 }).catch(() => {});
		if (mine !== asked || !element.open || !found) return;
		runs = found.runs.map((/** @type {Answers.RunSummary} */ run) => ({
			label: `${run.workflow} ${run.business_key ?? ""} ${run.id}`,
			icon: "runs",
			state: run.state,
			act: () => go(`/runs/${run.id}`),
		}));
		draw();
	}
	function draw() {
		const wanted = box.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
		shown = [
			...commands.filter((one) => wanted.every((/** @type {string} */ word) => one.label.toLowerCase().includes(word))),
			...runs,
		];
		at = Math.min(at, Math.max(0, shown.length - 1));
		put(
			list,
			shown.length
				? shown.map((one, place) =>
						h(
							"li",
							{
								role: "option",
								id: `${listId}-${place}`,
								"aria-selected": String(place === at),
								on: { click: () => choose(place), mousemove: () => mark(place) },
							},
							icon(one.icon),
							h("span.cut", line(one.label, 120)),
							one.state && badge(one.state),
							one.keys && h("kbd", one.keys),
						),
					)
				: h("li.muted", { role: "option", "aria-selected": "false" }, "Nothing matches."),
		);
		box.setAttribute("aria-activedescendant", `${listId}-${at}`);
	}
	/** @param {number} place */
	function mark(place) {
		if (place === at) return;
		list.children[at]?.setAttribute("aria-selected", "false");
		at = place;
		list.children[at]?.setAttribute("aria-selected", "true");
		list.children[at]?.scrollIntoView({ block: "nearest" });
		box.setAttribute("aria-activedescendant", `${listId}-${at}`);
	}
	/** @param {number} place */
	function choose(place) {
		element.close();
		shown[place]?.act();
	}
	/** @param {KeyboardEvent} event */
	function pressed(event) {
		if (event.key === "ArrowDown" || event.key === "ArrowUp") {
			event.preventDefault();
			if (shown.length) mark((at + (event.key === "ArrowDown" ? 1 : shown.length - 1)) % shown.length);
		} else if (event.key === "Enter") {
			event.preventDefault();
			choose(at);
		}
	}
	document.body.append(element);
	draw();
	element.showModal();
	box.focus();
}
