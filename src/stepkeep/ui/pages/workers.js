/**
 * The workers: what each holds and serves, how busy it is, what is needed and nobody serves, what is served and unused.
 * @module
 */
import { get, named } from "../api.js";
import { listPage } from "../components/list.js";
import { button, card, empty, said, table } from "../components/parts.js";
import { h } from "../dom.js";
import { ago, counted, line, span, words } from "../format.js";
import { badge, note } from "../icons.js";

/** @param {Context} context */
export function workersPage(context) {
	let all = false;
	const page = listPage(context, {
		title: "Workers", seconds: 5,
		load: async (signal) => {
			const [{ workers }, { status }, needed] = await Promise.all([get("/workers", { live: all ? "false" : "true", limit: 200 }, signal), get("/status", {}, signal), handlersNeeded(signal)]);
			return { workers, queues: status.queues, needed };
		},
		actions: () => { const toggle = button("Show those that are shut down", () => { all = !all; toggle.setAttribute("aria-pressed", String(all)); page.again(); }, { pressed: false }); return toggle; },
		draw: ({ workers, queues, needed }) => {
			const unserved = queues.filter((one) => !one.workers), served = new Set(workers.filter((one) => one.state !== "shutdown").flatMap((one) => one.handlers));
			const unused = [...served].filter((one) => !needed.has(one)).sort(), missing = [...needed].filter((one) => !served.has(one)).sort();
			return [
				workers.length ? h("div.card", table("Workers", ["Worker", "State", "Holds", "Busy, last minute", "Serves", "Queues", "Heard", "Started"], workers.map(row)))
					: empty("worker", "No worker is alive", "Steps wait until one is: ", h("code", "stepkeep worker --app FILE.py")),
				h("div.cards", card("Backlog", queues.length ? table("Backlog", ["Needs", "Ready", "Oldest", "Workers"], queues.map((one) => [said(one.needs), String(one.ready), span(one.oldest_seconds * 1000, true), one.workers ? String(one.workers) : note("bad", "warn", "none")])) : h("p.muted", "Nothing waits for a worker.")),
					card("Needed, and nobody serves it", unserved.length || missing.length ? h("ul.stack.tight", unserved.map((one) => h("li", h("b", said(one.needs)), " ", h("span.muted", said(one.why, 300)))), missing.slice(0, 50).map((one) => h("li", h("code", line(one, 80)), " ", h("span.muted", "is used by a published workflow")))) : h("p.muted", "Everything that is needed is served.")),
					card("Served, and no workflow needs it", unused.length ? h("div.chips", unused.slice(0, 100).map((one) => h("span.chip", line(one, 60)))) : h("p.muted", "Every handler is used by a published workflow.")))];
		},
	});
	return page;
}

function row(one) {
	const usage = one.usage[0], share = usage?.utilisation ?? 0;
	const bar = h("i");
	bar.style.width = `${Math.min(100, share * 100)}%`;
	return [[h("b", said(one.id, 60)), h("div.faint", `${line(one.host ?? "", 40)} · ${one.pid ?? ""} · ${one.version ?? ""}`)], [badge(one.state), one.silent ? note("bad", "warn", "silent") : null], one.held === null ? "–" : `${one.held} of ${one.capacity}`,
		h("div.bars", h("div", { class: `one tone-${share > 0.9 ? "wait" : "run"}` }, h("span.num", `${Math.round(share * 100)} %`), h("div.track", bar))),
		[h("span", { title: line(one.handlers.join(", "), 2000) }, counted(one.handlers.length, "handler")), one.capabilities.length ? h("div.chips", one.capabilities.map((word) => h("span.chip", line(word, 40)))) : null, one.misfits.length ? note("bad", "warn", line(one.misfits.join(", "), 80)) : null],
		one.queues ? one.queues.map(words).join(", ") || "default" : "all", ago(one.heard_at), ago(one.started_at)];
}

/** The handlers that the newest version of each published workflow uses. @param {AbortSignal} signal @returns {Promise<Set<string>>} */
async function handlersNeeded(signal) {
	const { definitions } = await get("/workflows", { limit: 200 }, signal);
	const names = [...new Set(definitions.map((one) => one.workflow))].slice(0, 40);
	const found = new Set();
	for (const { document } of await Promise.all(names.map((name) => get(`/workflows/${named(String(name))}`, {}, signal)))) {
		for (const step of document.steps) for (const one of [step.executor, step.undo?.executor]) if (one?.kind === "python") found.add(one.name);
	}
	return found;
}
