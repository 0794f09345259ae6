/**
 * Two runs beside each other: what differs in what they were asked, how they ended, and step by step.
 */
import {
	button,
	empty,
	get,
	h,
	icon,
	input,
	line,
	link,
	Problem,
	problemBox,
	put,
	refused,
	runLink,
	said,
	setQuery,
	shortId,
	skeleton,
	span,
	table,
	words,
} from "../kit.js";

/** @param {unknown} value */
const shown = (value) =>
	value === null || value === undefined
		? h("span.faint", "–")
		: typeof value === "string"
			? said(value, 300)
			: h("code", line(JSON.stringify(value), 300));

/** @param {Context} context */
export function comparePage(context) {
	const { id } = context.params,
		out = h("div.stack"),
		other = input({
			"aria-label": "The other run",
			placeholder: "The id of the other run",
			value: context.query.get("other") ?? "",
			on: { keydown: (event) => event.key === "Enter" && look() },
		});
	context.title(`Compare ${shortId(id)}`);
	async function look() {
		const wanted = other.value.trim();
		setQuery({ other: wanted });
		put(out, skeleton(4));
		const told = await get(`/runs/${id}/compare`, { other: wanted || null }, context.signal).catch(refused);
		if (wanted === other.value.trim()) put(out, told instanceof Problem ? problemBox(told.message) : differences(told));
	}
	void look();
	return {
		element: h(
			"div.page",
			h(
				"nav.crumbs",
				{ "aria-label": "Path" },
				link("/runs", "Runs"),
				icon("right"),
				runLink(id),
				icon("right"),
				"Compare",
			),
			h("div.head", h("h1", "Compare two runs"), h("div.row", other, button("Compare", look, { kind: "primary" }))),
			out,
		),
	};
}

/** @param {Answers.RunDifferences} told */
function differences({ first, second, same, run, steps }) {
	if (same) return empty("check", "No difference", "The runs were asked the same, and every step did the same.");
	/** @param {number | null} [seconds] */
	const took = (seconds) => (typeof seconds === "number" ? span(seconds * 1000) : "–");
	const rows = steps.flatMap((one) => [
		...(one.only_in ? [[said(one.name, 80), `only in the ${one.only_in} run`, "–", "–"]] : []),
		...(one.differences ?? []).map((each) => [
			said(one.name, 80),
			words(each.field),
			shown(each.first),
			shown(each.second),
		]),
		...(one.seconds ? [[said(one.name, 80), "Took", took(one.seconds[0]), took(one.seconds[1])]] : []),
	]);
	const sides = [h("span", "First: ", runLink(first)), h("span", "Second: ", runLink(second))];
	return [
		h("p.row", sides),
		run.length
			? h(
					"section.card",
					h("header", h("h2", "The run")),
					table(
						"The run",
						["Field", "First", "Second"],
						run.map((one) => [words(one.field), shown(one.first), shown(one.second)]),
					),
				)
			: null,
		rows.length
			? h(
					"section.card",
					h("header", h("h2", "Its steps")),
					table("Steps", ["Step", "What", "First", "Second"], rows.slice(0, 1000)),
				)
			: h("p.muted", "Every step did the same."),
	];
}
