/**
 * The overview: what needs attention, runs by state, throughput and duration of the newest runs, failures, backlog,
 * slowest steps. Every number comes from a bounded answer: the newest runs, never all of them.
 * @module
 */
import { get } from "../api.js";
import { columnPlot, shareBars } from "../components/chart.js";
import { listPage } from "../components/list.js";
import { card, link, said } from "../components/parts.js";
import { h } from "../dom.js";
import { counted, moment, span, words } from "../format.js";
import { badge, icon, iconOf, note, toneOf } from "../icons.js";
import { href } from "../router.js";

const NEWEST = 200, SAMPLE = 12, BUCKETS = 30;
const TONES = ["ok", "run", "bad"], WORDS = ["succeeded", "other", "failed or rolled back"];

/** @param {Context} context */
export function overviewPage(context) {
	return listPage(context, {
		title: "Overview", seconds: 10,
		load: async (signal) => {
			const [{ status }, { runs }] = await Promise.all([get("/status", { window: "24h" }, signal), get("/runs", { limit: NEWEST }, signal)]);
			const ended = runs.filter((one) => one.ended_at).slice(0, SAMPLE);
			const views = await Promise.all(ended.map((one) => get(`/runs/${one.id}`, {}, signal)));
			return { status, runs: runs.map(({ id, state, started_at, created_at, ended_at, workflow }) => ({ id, state, started_at, created_at, ended_at, workflow })), steps: slowest(views) };
		},
		draw: ({ status, runs, steps }) => {
			const live = status.runs.live, recent = status.runs.recent;
			const tile = (state, count, text) => h("a", { class: `card tile tone-${toneOf(state)}`, href: href("/runs", { state }) }, h("span.row", icon(iconOf(state)), words(state)), h("b", count.toLocaleString("en")), h("span.faint", text));
			const ended = runs.filter((one) => one.ended_at && one.started_at), lengths = ended.map((one) => Date.parse(one.ended_at) - Date.parse(one.started_at)).sort((a, b) => a - b);
			const at = (share) => lengths[Math.min(lengths.length - 1, Math.floor(lengths.length * share))];
			return [
				status.problems.length ? h("section.why.tone-bad", { "aria-label": "Problems" }, icon("warn"), h("div.grow", h("b", counted(status.problems.length, "problem")), h("ul", status.problems.slice(0, 10).map((one) => h("li", said(one, 300))))))
					: h("p.row", note("ok", "check", "Nothing needs attention")),
				h("div.tiles", ["running", "blocked"].map((state) => tile(state, live.by_state[state] ?? 0, "now")), ["succeeded", "failed", "rolled_back", "cancelled"].map((state) => tile(state, recent.by_state[state] ?? 0, recent.is_complete ? "in 24 hours" : "of the newest 10,000"))),
				h("div.cards", card("Runs over time", runs.length ? throughput(runs) : h("p.muted", "No runs yet.")),
					card("How long runs take", lengths.length ? [shareBars([["half", 0.5], ["nine of ten", 0.9], ["99 of 100", 0.99]].map(([label, share]) => ({ label: `${label} end within`, value: at(share), text: span(at(share)) }))), h("p.faint", `of the newest ${counted(lengths.length, "ended run")}`)] : h("p.muted", "No run has ended yet.")),
					card("Failures by category", Object.keys(status.failures.by_category).length ? shareBars(Object.entries(status.failures.by_category).map(([name, count]) => ({ label: words(name), value: Number(count), text: String(count), tone: "bad" }))) : h("p.muted", "No run has failed in 24 hours.")),
					card("Backlog", status.queues.length ? shareBars(status.queues.slice(0, 8).map((one) => ({ label: one.needs, value: one.oldest_seconds, text: `${one.ready} ready, oldest ${span(one.oldest_seconds * 1000, true)}`, tone: one.workers ? "run" : "bad" }))) : h("p.muted", "Nothing waits for a worker."), link("/workers", "Workers")),
					card("Slowest steps", steps.length ? [shareBars(steps.map((one) => ({ label: h("a", { href: href(`/runs/${one.run}`, { step: one.name }) }, said(`${one.workflow}: ${one.name}`, 60)), value: one.ms, text: span(one.ms) }))), h("p.faint", `in the newest ${SAMPLE} ended runs, without waits for people`)] : h("p.muted", "No run has ended yet.")),
					card("Newest ends", ended.length ? h("ul.stack.tight", [...ended].sort((a, b) => (a.ended_at < b.ended_at ? 1 : -1)).slice(0, 6).map((one) => h("li.row", badge(one.state), h("a.cut.grow", { href: href(`/runs/${one.id}`) }, said(one.workflow, 60)), moment(one.ended_at)))) : h("p.muted", "No run has ended yet.")))];
		},
	});
}

function throughput(runs) {
	const times = runs.map((one) => Date.parse(one.created_at)), last = Date.now(), first = Math.min(...times), width = Math.max(1000, (last - first) / BUCKETS);
	const points = Array.from({ length: BUCKETS }, (_, at) => ({ label: new Date(first + at * width).toLocaleTimeString("en-GB"), parts: [0, 0, 0] }));
	runs.forEach((one, at) => {
		const kind = one.state === "succeeded" ? 0 : one.state === "failed" || one.state === "rolled_back" ? 2 : 1;
		points[Math.max(0, Math.min(BUCKETS - 1, Math.floor((times[at] - first) / width)))].parts[kind] += 1;
	});
	return [columnPlot({ name: "Runs by start", points, tones: TONES, words: WORDS }), h("div.legend", TONES.map((tone, at) => h("span", { class: `tone-${tone}` }, h("i"), WORDS[at]))), h("p.faint", `the newest ${counted(runs.length, "run")}, started within ${span(last - first, true)}`)];
}

/** The slowest step of each kind in some runs, by the time in which it was executed. @param {any[]} views */
function slowest(views) {
	const found = new Map();
	for (const { run, steps } of views) {
		for (const one of steps) {
			const ms = one.history.reduce((sum, two) => sum + (two.ended_at ? Date.parse(two.ended_at) - Date.parse(two.started_at) : 0), 0);
			const key = `${run.workflow}\u0000${one.name}`;
			if (ms > 0 && ms > (found.get(key)?.ms ?? 0)) found.set(key, { name: one.name, workflow: run.workflow, run: run.id, ms });
		}
	}
	return [...found.values()].sort((a, b) => b.ms - a.ms).slice(0, 6);
}
