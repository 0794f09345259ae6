/**
 * The overview: what needs attention, runs by state and over time, errors, each workflow, slowest steps, backlog. Every
 * number comes from the service, which says which ones are estimates, and leads to the runs that it counts.
 */
import {
	ago,
	badge,
	card,
	counted,
	get,
	h,
	href,
	icon,
	iconOf,
	inert,
	link,
	moment,
	note,
	said,
	select,
	setQuery,
	span,
	table,
	toneOf,
	words,
} from "../kit.js";
import { columnPlot, shareBars, spark, WINDOWS } from "../components/chart.js";
import { listPage } from "../components/list.js";

const TONES = ["ok", "run", "bad"],
	WORDS = ["succeeded", "other", "failed or rolled back"];
const STOPPED = ["failed", "rolled_back"];
/** Events that wait longer than this for their sink are a problem. */
const LAG_SECONDS = 60;

/** @param {Context} context */
export function overviewPage(context) {
	let window = context.query.get("window") ?? "24h";
	const page = listPage(context, {
		title: "Overview",
		seconds: 10,
		load: async (signal) => {
			const [{ status }, { statistics }, { errors }, outbox] = await Promise.all([
				get("/status", { window }, signal),
				get("/statistics", { window }, signal),
				get("/errors", { window }, signal),
				get("/outbox/status", {}, signal),
			]);
			return { status, statistics, errors, sinks: outbox.sinks };
		},
		actions: () =>
			select(
				WINDOWS,
				window,
				(next) => {
					window = next;
					setQuery({ window: next });
					page.again();
				},
				"Window",
			),
		draw: (told) => drawOverview(told, WINDOWS.find(([one]) => one === window)?.[1].toLowerCase() ?? window),
	});
	return page;
}

/** The runs that an error stopped. @param {Answers.ErrorGroup} one @param {string | null} since */
const errorHref = (one, since) =>
	href("/runs", { workflow: one.workflow, error: one.term || undefined, state: STOPPED, since });

/** @param {string} text */
const none = (text) => h("p.muted", text);

/** @param {{status: Answers.Status, statistics: Answers.Statistics, errors: Answers.ErrorGroup[], sinks: Answers.SinkLag[]}} told @param {string} within */
function drawOverview({ status, statistics, errors, sinks }, within) {
	const { live, recent } = status.runs,
		{ workflows, backlog, slowest_steps: slowest, newest_ends: ends, since } = statistics;
	/** @param {string} state @param {number} count @param {string} text @param {Record<string, any>} query */
	const tile = (state, count, text, query) =>
		h(
			"a",
			{ key: state, class: `card tile tone-${toneOf(state)}`, href: href("/runs", { state, ...query }) },
			h("span.row", icon(iconOf(state)), words(state)),
			h("b", count.toLocaleString("en")),
			h("span.faint", text),
		);
	const about = `${recent.is_estimate ? ", about" : ""}${recent.is_complete ? "" : ", of the newest million"}`;
	return [
		problems(status, sinks),
		h(
			"div.tiles",
			["running", "blocked"].map((state) =>
				tile(state, live.by_state[state] ?? 0, live.is_estimate ? "now, about" : "now", {}),
			),
			["succeeded", "failed", "rolled_back", "cancelled"].map((state) =>
				tile(state, recent.by_state[state] ?? 0, `${within}${about}`, { since }),
			),
		),
		h(
			"div.cards",
			card("Runs over time", statistics.runs.total ? throughput(statistics) : none("No run has started.")),
			card(
				"Errors",
				errors.length
					? h(
							"ul.stack.tight",
							errors
								.slice(0, 6)
								.map((one) =>
									h(
										"li.row",
										h("b.num", String(one.runs)),
										h("a.cut.grow", { href: errorHref(one, since) }, said(one.message, 120)),
										h("span.muted.cut", said(one.workflow ?? "–", 40)),
									),
								),
						)
					: none("No error has stopped a run."),
				link("/errors", "All errors"),
			),
		),
		workflows.length ? card("By workflow", byWorkflow(workflows, since), link("/workflows", "Workflows")) : null,
		h(
			"div.cards",
			card(
				"Slowest steps",
				slowest.length
					? [
							shareBars(slowest.slice(0, 8).map(slowStep)),
							h("p.faint", "mean of the attempts; the link leads to the longest"),
						]
					: none("No run has ended."),
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
				"Newest ends",
				ends.length
					? h(
							"ul.stack.tight",
							ends
								.slice(0, 8)
								.map((one) =>
									h(
										"li.row",
										badge(one.state),
										h("a.cut.grow", { href: href(`/runs/${one.run_id}`) }, said(one.workflow ?? one.run_id, 60)),
										moment(one.ended_at),
									),
								),
						)
					: none("No run has ended."),
			),
		),
	];
}

/** What the service says is wrong, and what waits too long on its way out. @param {Answers.Status} status @param {Answers.SinkLag[]} sinks */
function problems(status, sinks) {
	const late = sinks.filter((one) => one.dead || one.lag_seconds > LAG_SECONDS);
	const found = [
		...status.problems.slice(0, 10).map((one) => said(one, 300)),
		...late.map((one) => [
			link("/outbox", "sink ", said(one.sink, 60)),
			one.dead ? `: ${counted(one.dead, "dead event")}` : ": late",
			one.waiting
				? `, ${one.waiting.toLocaleString("en")} waiting, the oldest for ${span(one.lag_seconds * 1000, true)}`
				: "",
		]),
	];
	if (found.length)
		return h(
			"section.why.tone-bad",
			{ "aria-label": "Problems" },
			icon("warn"),
			h(
				"div.grow",
				h("b", counted(status.problems.length + late.length, "problem")),
				h(
					"ul",
					found.map((one) => h("li", one)),
				),
			),
			h("div.row", link("/workers", "Workers")),
		);
	return h(
		"p.row",
		note("ok", "check", "Nothing needs attention"),
		status.paused.length
			? [
					note("wait", "pause", "paused"),
					link("/workers", counted(status.paused.length, "pause of claims", "pauses of claims")),
				]
			: null,
	);
}

/** @param {Answers.WorkflowNumbers[]} workflows @param {string | null} since */
const byWorkflow = (workflows, since) =>
	table(
		"By workflow",
		["Workflow", "Runs", "Failed", "Half within", "95 % within", "Newest", "Over time"],
		workflows.slice(0, 12).map((one) => {
			const runs = (/** @type {number} */ count, /** @type {string[]} */ state = []) =>
				h("a.num", { href: href("/runs", { workflow: one.workflow, state, since }) }, count.toLocaleString("en"));
			const seconds = (/** @type {number | null} */ value) => (value === null ? "–" : span(value * 1000));
			return [
				link(`/workflows/${encodeURI(one.workflow)}`, h("b", said(one.workflow, 60))),
				runs(one.runs),
				one.failed
					? [
							runs(one.failed, STOPPED),
							h("span.late", ` ${((100 * one.failed) / one.runs).toFixed(one.failed * 20 < one.runs ? 1 : 0)} %`),
						]
					: "0",
				seconds(one.p50_seconds),
				seconds(one.p95_seconds),
				ago(one.newest_at),
				spark(`Runs of ${inert(one.workflow)}`, one.started, one.failed_in),
			];
		}),
	);

/** @param {Answers.SlowStep} one */
const slowStep = (one) => ({
	label: h("a", { href: href(`/runs/${one.run_id}`, { step: one.step }) }, said(`${one.workflow}: ${one.step}`, 60)),
	value: one.mean_seconds,
	text: [
		span(one.mean_seconds * 1000),
		`at most ${span(one.max_seconds * 1000)}`,
		one.failed && `${one.failed} of ${one.attempts} failed`,
	]
		.filter(Boolean)
		.join(", "),
	tone: one.failed ? "bad" : "run",
});

/** @param {Answers.Statistics} statistics */
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
