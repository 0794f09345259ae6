/**
 * The overview: what needs attention, runs by state, throughput and duration of the newest runs, failures, backlog,
 * slowest steps. Every number comes from the service, which says which ones are estimates.
 */
import {
	badge,
	card,
	counted,
	get,
	h,
	href,
	icon,
	iconOf,
	link,
	moment,
	note,
	said,
	span,
	toneOf,
	words,
} from "../kit.js";
import { columnPlot, shareBars } from "../components/chart.js";
import { listPage } from "../components/list.js";

const TONES = ["ok", "run", "bad"],
	WORDS = ["succeeded", "other", "failed or rolled back"];
const SHARES = [
	["half", "p50_seconds"],
	["nine of ten", "p90_seconds"],
	["99 of 100", "p99_seconds"],
];

/** @param {Context} context */
export const overviewPage = (context) =>
	listPage(context, {
		title: "Overview",
		seconds: 10,
		load: async (signal) => {
			const [{ status }, { statistics }] = await Promise.all([
				get("/status", { window: "24h" }, signal),
				get("/statistics", { window: "24h" }, signal),
			]);
			return { status, statistics };
		},
		draw: ({ status, statistics }) => {
			const { live, recent } = status.runs,
				{ durations, failures, backlog, slowest_steps: slowest, newest_ends: ends } = statistics;
			const none = (text) => h("p.muted", text);
			const tile = (state, count, text) =>
				h(
					"a",
					{ class: `card tile tone-${toneOf(state)}`, href: href("/runs", { state }) },
					h("span.row", icon(iconOf(state)), words(state)),
					h("b", count.toLocaleString("en")),
					h("span.faint", text),
				);
			return [
				status.problems.length
					? h(
							"section.why.tone-bad",
							{ "aria-label": "Problems" },
							icon("warn"),
							h(
								"div.grow",
								h("b", counted(status.problems.length, "problem")),
								h(
									"ul",
									status.problems.slice(0, 10).map((one) => h("li", said(one, 300))),
								),
							),
						)
					: h(
							"p.row",
							note("ok", "check", "Nothing needs attention"),
							status.paused.length
								? [
										note("wait", "pause", "paused"),
										link("/workers", counted(status.paused.length, "pause of claims", "pauses of claims")),
									]
								: null,
						),
				h(
					"div.tiles",
					["running", "blocked"].map((state) =>
						tile(state, live.by_state[state] ?? 0, live.is_estimate ? "now, about" : "now"),
					),
					["succeeded", "failed", "rolled_back", "cancelled"].map((state) =>
						tile(
							state,
							recent.by_state[state] ?? 0,
							`in 24 hours${recent.is_estimate ? ", about" : ""}${recent.is_complete ? "" : ", of the newest million"}`,
						),
					),
				),
				h(
					"div.cards",
					card(
						"Runs over time",
						statistics.runs.total ? throughput(statistics) : none("No run has started in 24 hours."),
					),
					card(
						"How long runs take",
						durations.runs
							? [
									shareBars(
										SHARES.map(([label, name]) => ({
											label: `${label} end within`,
											value: durations[name],
											text: span(durations[name] * 1000),
										})),
									),
									h(
										"p.faint",
										`of ${counted(durations.runs, "ended run")}; the longest took ${span(durations.max_seconds * 1000)}`,
									),
								]
							: none("No run has ended in 24 hours."),
					),
					card(
						"Failures by category",
						failures.total
							? shareBars(
									Object.entries(failures.by_category).map(([name, count]) => ({
										label: name === "none" ? "Without a category" : words(name),
										value: Number(count),
										text: `${failures.is_estimate ? "about " : ""}${Number(count).toLocaleString("en")}`,
										tone: "bad",
									})),
								)
							: none("No run has failed in 24 hours."),
					),
					card(
						"Backlog",
						backlog.length
							? shareBars(
									backlog.slice(0, 8).map((one) => ({
										label: one.needs,
										value: one.oldest_seconds,
										text: `${one.ready.toLocaleString("en")}${one.is_complete ? "" : " or more"} ready, oldest ${span(one.oldest_seconds * 1000, true)}`,
									})),
								)
							: none("Nothing waits for a worker."),
						link("/workers", "Workers"),
					),
					card(
						"Slowest steps",
						slowest.length
							? [
									shareBars(
										slowest.slice(0, 6).map((one) => ({
											label: h(
												"a",
												{ href: href(`/runs/${one.run_id}`, { step: one.step }) },
												said(`${one.workflow}: ${one.step}`, 60),
											),
											value: one.mean_seconds,
											text: `${span(one.mean_seconds * 1000)}, at most ${span(one.max_seconds * 1000)}`,
										})),
									),
									h("p.faint", "mean of the attempts in the newest ended runs; the link leads to the longest"),
								]
							: none("No run has ended in 24 hours."),
					),
					card(
						"Newest ends",
						ends.length
							? h(
									"ul.stack.tight",
									ends
										.slice(0, 6)
										.map((one) =>
											h(
												"li.row",
												badge(one.state),
												h("a.cut.grow", { href: href(`/runs/${one.run_id}`) }, said(one.workflow ?? one.run_id, 60)),
												moment(one.ended_at),
											),
										),
								)
							: none("No run has ended in 24 hours."),
					),
				),
			];
		},
	});

function throughput({ throughput: spans, runs, at }) {
	const points = spans.map((one) => ({
		label: new Date(one.at).toLocaleTimeString("en-GB"),
		parts: [one.succeeded, one.other, one.failed],
	}));
	const estimated = runs.is_estimate ? `, estimated from ${runs.looked_at.toLocaleString("en")}` : "";
	const since = span(Date.parse(at) - Date.parse(spans[0].at), true);
	return [
		columnPlot({ name: "Runs by start", points, tones: TONES, words: WORDS }),
		h(
			"div.legend",
			TONES.map((tone, place) => h("span", { class: `tone-${tone}` }, h("i"), WORDS[place])),
		),
		h(
			"p.faint",
			`${runs.is_complete ? "" : "the newest "}${counted(runs.total, "run")}${estimated}, started within ${since}`,
		),
	];
}
