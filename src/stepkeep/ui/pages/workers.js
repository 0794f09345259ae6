/**
 * The workers: what each holds and serves, how busy it is, what is needed and not served, what is served and unused.
 */
import {
	ago,
	ask,
	attempt,
	badge,
	button,
	card,
	counted,
	empty,
	field,
	get,
	h,
	input,
	line,
	may,
	named,
	note,
	openDialog,
	post,
	said,
	select,
	span,
	table,
	words,
} from "../kit.js";
import { resumeClaims } from "../actions.js";
import { listPage } from "../components/list.js";

/** @param {Context} context */
export function workersPage(context) {
	let all = false;
	const known = new Map();
	const page = listPage(context, {
		title: "Workers",
		seconds: 5,
		load: async (signal) => {
			const [{ workers }, { status }, needed, { slots }] = await Promise.all([
				get("/workers", { live: all ? "false" : "true", limit: 200 }, signal),
				get("/status", {}, signal),
				readNeeds(known, signal),
				get("/slots", {}, signal),
			]);
			return { workers, queues: status.queues, paused: status.paused, needed: needed.handlers, slots };
		},
		actions: (again) => {
			const toggle = button(
				"Show those that are shut down",
				() => {
					all = !all;
					toggle.setAttribute("aria-pressed", String(all));
					page.again();
				},
				{ pressed: false },
			);
			return [
				toggle,
				may("operate") &&
					button("Pause claims", async () => pauseDialog((await readNeeds(known, context.signal)).queues, again), {
						icon: "pause",
					}),
				may("operate") && button("Limit runs", () => limitDialog(again)),
			];
		},
		draw: ({ workers, queues, paused, needed, slots }, again) => {
			const unserved = queues.filter((one) => !one.workers),
				served = new Set(workers.filter((one) => one.state !== "shutdown").flatMap((one) => one.handlers));
			const unused = [...served].filter((one) => !needed.has(one)).sort(),
				missing = [...needed].filter((one) => !served.has(one)).sort();
			return [
				paused.length
					? card(
							"Paused: no worker claims from it",
							table(
								"Pauses",
								["What", "By", "Since", "Reason", ""],
								paused.map((one) => [
									h(
										"b",
										one.scope === "tenant"
											? "The whole tenant"
											: one.queue
												? ["Queue ", said(one.queue)]
												: "The default queue",
									),
									said(one.by),
									ago(one.since),
									said(one.reason || "–"),
									h(
										"div.row",
										may("operate") &&
											button(
												"Resume",
												() =>
													attempt(async () => {
														await resumeClaims(one);
														again();
													}, "Resumed"),
												{ kind: "small", icon: "play" },
											),
									),
								]),
							),
						)
					: null,
				workers.length
					? h(
							"div.card",
							table(
								"Workers",
								["Worker", "State", "Holds", "Busy, last minute", "Serves", "Queues", "Heard", "Started"],
								workers.map(row),
							),
						)
					: empty(
							"worker",
							"No worker is alive",
							"Steps wait until one is: ",
							h("code", "stepkeep worker --app FILE.py"),
						),
				slots.length
					? card(
							"Limits on running runs",
							table(
								"Limits",
								["What", "Limit", "Running", "Waiting", ""],
								slots.map((one) => [
									h("b", one.workflow === null ? "The whole tenant" : said(one.workflow)),
									String(one.most ?? "none"),
									String(one.held),
									one.waiting ? note("wait", "clock", String(one.waiting)) : "0",
									h(
										"div.row",
										may("operate") &&
											button(
												"End the limit",
												() =>
													attempt(async () => {
														await post("/slots/clear", { workflow: one.workflow });
														again();
													}),
												{ kind: "small" },
											),
									),
								]),
							),
						)
					: null,
				h(
					"div.cards",
					card(
						"Backlog",
						queues.length
							? table(
									"Backlog",
									["Needs", "Ready", "Oldest", "Workers"],
									queues.map((one) => [
										said(one.needs),
										String(one.ready),
										span(one.oldest_seconds * 1000, true),
										one.workers ? String(one.workers) : note("bad", "warn", "none"),
									]),
								)
							: h("p.muted", "Nothing waits for a worker."),
					),
					card(
						"Needed, and nobody serves it",
						unserved.length || missing.length
							? h(
									"ul.stack.tight",
									unserved.map((one) => h("li", h("b", said(one.needs)), " ", h("span.muted", said(one.why, 300)))),
									missing
										.slice(0, 50)
										.map((one) =>
											h("li", h("code", line(one, 80)), " ", h("span.muted", "is used by a published workflow")),
										),
								)
							: h("p.muted", "Everything that is needed is served."),
					),
					card(
						"Served, and no workflow needs it",
						unused.length
							? h(
									"div.chips",
									unused.slice(0, 100).map((one) => h("span.chip", line(one, 60))),
								)
							: h("p.muted", "Every handler is used by a published workflow."),
					),
				),
			];
		},
	});
	return page;
}

/** Nothing more is claimed of a queue or of the tenant. What workers hold goes on. @param {string[]} queues @param {() => void} again */
function pauseDialog(queues, again) {
	const what = select(
			[
				["-1", "The whole tenant"],
				...queues.map((one, at) => [String(at), one ? `Queue ${line(one, 60)}` : "The default queue"]),
			],
			"-1",
		),
		queue = () => queues[Number(what.value)];
	ask({
		title: "Pause claims",
		label: "Pause",
		done: "Paused",
		kind: "danger",
		text: "Workers claim nothing more of it. What they hold goes on; deadlines and timeouts too.",
		more: field("What", what),
		path: () => `/pauses/${queue() === undefined ? "tenant" : "queue"}`,
		given: () => ({ queue: queue() }),
		then: again,
	});
}

/** @param {() => void} again */
function limitDialog(again) {
	const workflow = input(),
		most = input({ type: "number", min: "1", value: "10" });
	openDialog({
		title: "Limit running runs",
		label: "Set",
		body: [field("Workflow", workflow, "Empty: the whole tenant."), field("Runs at once", most)],
		act: async () => {
			await post("/slots", { workflow: workflow.value.trim() || null, most: Number(most.value) });
			again();
		},
	});
}

/** @param {Answers.WorkerView} one */
function row(one) {
	const usage = one.usage[0],
		share = usage?.utilisation ?? 0;
	const bar = h("i");
	bar.style.width = `${Math.min(100, share * 100)}%`;
	return [
		[h("b", said(one.id, 60)), h("div.faint", `${line(one.host ?? "", 40)} · ${one.pid ?? ""} · ${one.version ?? ""}`)],
		[badge(one.state), one.silent ? note("bad", "warn", "silent") : null],
		one.held === null ? "–" : `${one.held} of ${one.capacity}`,
		h(
			"div.bars",
			h(
				"div",
				{ class: `one tone-${share > 0.9 ? "wait" : "run"}` },
				h("span.num", `${Math.round(share * 100)} %`),
				h("div.track", bar),
			),
		),
		[
			h("span", { title: line(one.handlers.join(", "), 2000) }, counted(one.handlers.length, "handler")),
			one.capabilities.length
				? h(
						"div.chips",
						one.capabilities.map((word) => h("span.chip", line(word, 40))),
					)
				: null,
			one.misfits.length ? note("bad", "warn", line(one.misfits.join(", "), 80)) : null,
		],
		one.queues ? one.queues.map(words).join(", ") || "default" : "all",
		ago(one.heard_at),
		ago(one.started_at),
	];
}

/**
 * The handlers and queues that the newest version of each published workflow uses. A version never changes: each is asked for once.
 * @param {Map<string, any[]>} known steps of versions @param {AbortSignal} signal
 */
async function readNeeds(known, signal) {
	const { definitions } = await get("/workflows", { limit: 200 }, signal),
		handlers = new Set(),
		queues = new Set([""]);
	const newest = new Map(
		definitions.map((one) => [one.workflow, `/workflows/${named(one.workflow)}/versions/${one.version}`]),
	);
	for (const steps of await Promise.all(
		[...newest.values()].slice(0, 40).map(async (path) => {
			if (!known.has(path)) known.set(path, (await get(path, {}, signal)).document.steps);
			return known.get(path);
		}),
	))
		for (const step of steps)
			for (const one of [step, step.undo]) {
				if (one?.executor?.kind === "python") handlers.add(one.executor.name);
				if (one?.queue) queues.add(one.queue);
			}
	return { handlers, queues: [...queues].sort() };
}
