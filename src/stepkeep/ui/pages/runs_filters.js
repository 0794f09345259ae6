/**
 * What the list of runs looks for: the filters in the address, the dialog that has all of them, and saved views.
 */
import { badge, button, field, h, inert, input, openDialog, put, select } from "../kit.js";
import { BULK } from "../components/bulk.js";

export const LIVE = BULK.cancel[5],
	STATES = [...LIVE, ...BULK.rerun[5]];
/** @type {[id: string, label: string, states: string[]][]} */
export const GROUPS = [
	["all", "All", []],
	["live", "Live", LIVE],
	["attention", "Needs attention", ["failed", "rolled_back", "paused"]],
	["blocked", "Blocked", ["blocked"]],
	["failed", "Failed", ["failed"]],
	["rolled_back", "Rolled back", ["rolled_back"]],
	["succeeded", "Succeeded", ["succeeded"]],
	["cancelled", "Cancelled", ["cancelled"]],
];
/** @typedef {Record<string, any>} Filters what is looked for, by the name in the address */
export const FILTERS = [
	"text",
	"workflow",
	"business_key",
	"correlation_id",
	"label",
	"error",
	"since",
	"until",
	"state",
	"roots",
];
/** @type {Filters} */
export const NONE = Object.fromEntries(FILTERS.map((name) => [name, /** @type {any} */ (undefined)]));

/** Every filter of the list in one dialog. @param {Filters} filters @param {(changes: Filters) => void} change */
export function filterDialog(filters, change) {
	/** @type {Record<string, any>} */
	const fields = {
		workflow: input({ value: filters.workflow ?? "" }),
		business_key: input({ value: filters.business_key ?? "" }),
		correlation_id: input({ value: filters.correlation_id ?? "" }),
		label: input({ value: (filters.label ?? []).join(", "), placeholder: "team=a, region=eu" }),
		error: input({ value: filters.error ?? "" }),
		since: input({ type: "datetime-local", value: local(filters.since) }),
		until: input({ type: "datetime-local", value: local(filters.until) }),
	};
	const boxes = STATES.map((state) => [
		state,
		h("input", { type: "checkbox", checked: (filters.state ?? []).includes(state) }),
	]);
	const named = [
		["workflow", "Workflow"],
		["business_key", "Business key"],
		["correlation_id", "Correlation id"],
		["label", "Labels", "NAME=TEXT, separated by commas"],
		["error", "Error", "A part of the error"],
		["since", "Started at or after"],
		["until", "Started at or before"],
	];
	openDialog({
		title: "Filter runs",
		label: "Apply",
		body: [
			h(
				"div.two",
				named.map(([name, label, hint]) => field(label, fields[name], hint)),
			),
			h(
				"fieldset.states",
				h("legend", "States"),
				boxes.map(([state, box]) => h("label.row", box, badge(state))),
			),
		],
		act: async () => {
			const moment = (/** @type {string} */ text) => (text ? new Date(text).toISOString() : undefined);
			const labels = fields.label.value
				.split(",")
				.map((/** @type {string} */ one) => one.trim())
				.filter(Boolean);
			const wanted = boxes.filter(([, box]) => box.checked).map(([state]) => state);
			change({
				...Object.fromEntries(
					["workflow", "business_key", "correlation_id", "error"].map((name) => [
						name,
						fields[name].value.trim() || undefined,
					]),
				),
				label: labels.length ? labels : undefined,
				since: moment(fields.since.value),
				until: moment(fields.until.value),
				state: wanted.length ? wanted : undefined,
			});
		},
	});
}

/**
 * Saved views: addresses with a name, kept in this browser.
 * @param {(changes: Filters) => void} change
 */
export function savedViews(change) {
	const element = h("div.row");
	const kept = () => JSON.parse(localStorage.getItem("stepkeep.views") ?? "{}");
	function drawViews() {
		const all = kept(),
			names = Object.keys(all).sort();
		put(
			element,
			names.length
				? select(
						[["", "Saved views"], ...names.map((one) => [one, one])],
						names.find((one) => all[one] === location.search) ?? "",
						(name) => {
							const next = readFilters(new URLSearchParams(all[name] ?? ""));
							change({ ...NONE, ...next });
						},
						"Saved views",
					)
				: null,
			button("Save view", saveView, { kind: "plain", icon: "star", hidden: true }),
		);
	}
	function saveView() {
		const name = input({ maxlength: "60", autofocus: true }),
			all = kept();
		openDialog({
			title: "Save this view",
			label: "Save",
			done: "Saved in this browser",
			body: [
				field("Name", name, "The same name replaces the view."),
				Object.keys(all).length
					? h(
							"div.chips",
							Object.keys(all)
								.sort()
								.map((one) =>
									h(
										"span.chip",
										inert(one),
										button(
											`Remove the view ${one}`,
											(event) => {
												const left = kept();
												delete left[one];
												localStorage.setItem("stepkeep.views", JSON.stringify(left));
												event.target.closest(".chip").remove();
												drawViews();
											},
											{ kind: "plain small", icon: "cross", hidden: true },
										),
									),
								),
						)
					: null,
			],
			act: async () => {
				if (!name.value.trim()) throw new TypeError("Give the view a name.");
				localStorage.setItem("stepkeep.views", JSON.stringify({ ...kept(), [name.value.trim()]: location.search }));
				drawViews();
			},
		});
	}

	drawViews();
	return { element, save: saveView };
}

/** @param {URLSearchParams} query @returns {Filters} */
export function readFilters(query) {
	/** @type {Filters} */
	const found = {};
	for (const name of FILTERS) {
		const given = query.getAll(name).filter(Boolean);
		if (given.length) found[name] = name === "state" || name === "label" ? given : given[0];
	}
	return found;
}

/** A moment as the control for local times wants it. @param {string | undefined} iso */
function local(iso) {
	if (!iso || Number.isNaN(Date.parse(iso))) return "";
	const at = new Date(iso);
	return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
