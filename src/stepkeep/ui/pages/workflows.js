/**
 * Workflows: the list, one with its graph, versions, differences and failure paths, and an editor that checks as you type.
 */
import {
	ago,
	attempt,
	badge,
	button,
	card,
	countdown,
	counted,
	empty,
	facts,
	get,
	go,
	h,
	href,
	icon,
	jsonView,
	line,
	link,
	may,
	micros,
	moment,
	named,
	note,
	Problem,
	problemBox,
	put,
	refused,
	said,
	select,
	setQuery,
	skeleton,
	span,
	tabbed,
	table,
	toast,
	words,
} from "../kit.js";
import { spark } from "../components/chart.js";
import { createGraph } from "../components/graph.js";
import { listed } from "../components/list.js";
import { migrateDialog } from "../actions.js";
import { startDialog } from "../components/start.js";

export const workflowsPage = listed({
	title: "Workflows",
	load: async (signal) => {
		const [{ definitions, next }, { statistics }, { triggers }] = await Promise.all([
			get("/workflows", { limit: 200 }, signal),
			get("/statistics", { window: "24h" }, signal),
			get("/triggers", { limit: 200 }, signal),
		]);
		return { definitions, next, statistics, triggers };
	},
	actions: () => may("operate") && button("Write a workflow", () => go("/editor"), { icon: "plus", kind: "primary" }),
	draw: ({ definitions, next, statistics, triggers }) => {
		const newest = new Map(definitions.map((one) => [one.workflow, one])),
			numbers = new Map(statistics.workflows.map((one) => [one.workflow, one])),
			firing = Map.groupBy(
				triggers.filter((one) => one.next_at && one.state === "active"),
				(one) => one.workflow,
			);
		if (!newest.size)
			return empty(
				"flow",
				"No workflows",
				"Publish one: ",
				h("code", "stepkeep publish FILE.yaml"),
				", or write one here.",
			);
		return [
			h(
				"div.card",
				table(
					"Workflows",
					["Workflow", "Runs, 24 h", "Failed", "Half within", "95 % within", "Newest", "Over time", "Next firing", ""],
					[...newest.values()].map((one) =>
						workflowRow(one, numbers.get(one.workflow), firing.get(one.workflow), statistics.since),
					),
				),
			),
			next ? h("p.muted", "More workflows: ", h("code", "stepkeep workflows list")) : null,
		];
	},
});

/**
 * @param {Answers.DefinitionSummary} one @param {Answers.WorkflowNumbers | undefined} found
 * @param {Answers.TriggerView[] | undefined} triggers @param {string | null} since
 */
function workflowRow(one, found, triggers, since) {
	const seconds = (/** @type {number | null | undefined} */ value) =>
			typeof value === "number" ? span(value * 1000) : "–",
		runs = (/** @type {number} */ count, /** @type {Record<string, any>} */ query) =>
			h("a.num", { href: href("/runs", { workflow: one.workflow, since, ...query }) }, count.toLocaleString("en"));
	return [
		[
			link(`/workflows/${encodeURI(one.workflow)}`, h("b", said(one.workflow, 80))),
			h(
				"div.faint",
				`version ${one.version}${one.dialect === "native" ? "" : `, ${one.dialect}`}, `,
				moment(one.published_at),
			),
		],
		found ? runs(found.runs, {}) : "–",
		found?.failed
			? [
					runs(found.failed, { state: ["failed", "rolled_back"] }),
					h("span.late", ` ${((100 * found.failed) / found.runs).toFixed(found.failed * 20 < found.runs ? 1 : 0)} %`),
				]
			: found
				? "0"
				: "–",
		seconds(found?.p50_seconds),
		seconds(found?.p95_seconds),
		found ? ago(found.newest_at) : "–",
		found ? spark(`Runs of ${line(one.workflow, 60)}`, found.started, found.failed_in) : null,
		triggers ? countdown(triggers.map((each) => each.next_at).sort()[0]) : "–",
		may("start")
			? button("Start", () => startDialog({ workflow: one.workflow }), { kind: "small", icon: "play" })
			: null,
	];
}

/** @param {Context} context */
export function workflowPage(context) {
	const { signal } = context,
		name = context.params.name,
		wanted = Number(context.query.get("version")) || null;
	const body = h("div.stack", skeleton()),
		head = h("div.head", h("h1", said(name, 80)));
	context.title(name);
	const element = h(
		"div.page",
		h("nav.crumbs", { "aria-label": "Path" }, link("/workflows", "Workflows"), icon("right"), said(name, 80)),
		head,
		body,
	);
	void (async () => {
		try {
			const [told, list] = await Promise.all([
				get(wanted ? `/workflows/${named(name)}/versions/${wanted}` : `/workflows/${named(name)}`, {}, signal),
				get("/workflows", { name, limit: 200 }, signal),
			]);
			draw(
				told,
				list.definitions.map((one) => one.version),
			);
		} catch (error) {
			if (signal.aborted) return;
			refused(error);
			put(body, problemBox(error.message));
		}
	})();
	return { element };

	/** @param {Answers.DefinitionView} told @param {number[]} versions */
	function draw({ definition, document }, versions) {
		put(
			head,
			h("h1", said(name, 80)),
			h(
				"div.row",
				select(
					versions.map((one) => [String(one), `Version ${one}`]),
					String(definition.version),
					(next) => go(`/workflows/${encodeURI(name)}`, { version: next }),
					"Version",
				),
				h("a.button", { href: href("/runs", { workflow: name }) }, icon("runs"), "Runs"),
				may("start") &&
					button("Start", () => startDialog({ workflow: name, version: definition.version }), {
						icon: "play",
						kind: "primary",
					}),
			),
		);
		const graph = createGraph({ name: "Steps", choose: (id) => step(id), signal }),
			aside = h("div");
		/** @param {string} id */
		const step = (id) => {
			const one = document.steps.find((/** @type {any} */ two) => two.name === id.replace(/^undo:/, ""));
			put(
				aside,
				card(
					h("h2", said(one.name, 80)),
					h(
						"div.stack",
						facts([
							["Does", does(one)],
							["Timeout", one.executor ? micros(one.timeout) : null],
							[
								"Retry",
								one.executor
									? `${one.retry.max_attempts} attempts, ${one.retry.backoff}, first after ${micros(one.retry.initial)}`
									: null,
							],
							["On failure", words(one.on_failure)],
							["Effect", words(one.effect)],
							["Undo", one.undo && said(one.undo.executor.name ?? one.undo.executor.kind)],
							["If", one.condition && h("code", line(JSON.stringify(one.condition), 200))],
						]),
						jsonView(one, { open: false, label: "Step" }),
					),
				),
			);
		};
		const chosen = context.query.get("tab") ?? "graph";
		/** @type {Promise<Answers.Simulation> | null} */
		let asked = null;
		const simulated = () =>
			(asked ??= get(`/workflows/${named(name)}/simulation`, { version: definition.version }, signal));
		const tabs = tabbed(
			[
				{
					id: "graph",
					label: "Graph",
					build: () => h("div.stack", h("section.card.graph-card", graph.element), aside),
				},
				{
					id: "steps",
					label: `Steps (${document.steps.length})`,
					build: () =>
						h(
							"div.card",
							table(
								"Steps",
								["Step", "Does", "After", "Timeout", "Attempts", "On failure", "Undo"],
								document.steps
									.slice(0, 1000)
									.map((/** @type {any} */ one) => [
										said(one.name),
										does(one),
										line(one.depends_on.map((/** @type {any} */ dep) => dep.step).join(", "), 120) || "–",
										one.executor ? micros(one.timeout) : "–",
										one.executor ? String(one.retry.max_attempts) : "–",
										words(one.on_failure),
										one.undo ? said(one.undo.executor.name ?? one.undo.executor.kind) : "–",
									]),
							),
						),
				},
				{ id: "findings", label: "Findings", build: () => lazy(simulated, findingsView) },
				{ id: "paths", label: "Failure paths", build: () => lazy(simulated, pathsView) },
				{ id: "versions", label: "Differences", build: () => versionsView(versions, definition.version) },
				{
					id: "definition",
					label: "Definition",
					build: () =>
						h(
							"div.stack",
							facts([
								["Digest", h("code", definition.digest)],
								["Published", [moment(definition.published_at), " by ", said(definition.published_by)]],
								["Timeout", micros(document.timeout)],
								["On failure", words(document.on_failure)],
							]),
							jsonView(document, { label: "Definition" }),
						),
				},
			],
			chosen,
			(next) => setQuery({ tab: next === "graph" ? undefined : next }),
			"Parts of the workflow",
		);
		put(body, document.description ? h("p.muted", said(document.description, 600)) : null, tabs.list, tabs.panel);
		graph.show(...graphOf(document));
	}

	/** @param {number[]} versions @param {number} current */
	function versionsView(versions, current) {
		if (versions.length < 2)
			return empty("flow", "One version so far", "When another one is published, this shows what differs.");
		let old = String([...versions].filter((one) => one < current).at(-1) ?? versions[0]),
			now = String(current);
		const out = h("div");
		const options = versions.map((one) => [String(one), `Version ${one}`]);
		const show = () =>
			put(
				out,
				lazy(
					() => get(`/workflows/${named(name)}/compare`, { old, new: now, live: true }, signal),
					(told) => differencesView(told, migrate),
				),
			);
		const migrate = () =>
			attempt(() =>
				migrateDialog({ workflow: name, of: Number(old), to: Number(now) }, (told) => {
					toast("run", `A job migrates ${counted(told.runs, "run")}.`, link("/jobs", "Show the jobs"));
					show();
				}),
			);
		show();
		return h(
			"div.stack",
			h(
				"div.row.run",
				h(
					"div.head",
					select(
						options,
						old,
						(next) => {
							old = next;
							show();
						},
						"From version",
					),
					icon("right"),
					select(
						options,
						now,
						(next) => {
							now = next;
							show();
						},
						"To version",
					),
				),
			),
			out,
		);
	}
}

/**
 * @template T
 * @param {() => Promise<T>} load @param {(told: T) => Child} draw
 */
function lazy(load, draw) {
	const box = h("div", skeleton(4));
	load().then(
		(told) => put(box, draw(told)),
		(error) => {
			if (error instanceof Problem) put(box, problemBox(error.message));
		},
	);
	return box;
}

/** What the service says of two versions: the fields that differ, and what that means for runs of the old one.
 * @param {Answers.VersionDifferences} told @param {() => void} migrate */
function differencesView({ same, workflow, steps, consequences, live }, migrate) {
	/** @param {string} one */
	const value = (one) => h("code", line(one, 200));
	/** @param {() => Child} name @param {string} change @param {Answers.FieldDifference[]} found @returns {Child[][]} */
	const placed = (name, change, found) =>
		found.flatMap((one) => one.places.map((two) => [name(), change, words(two.place), value(two.old), value(two.new)]));
	const rows = [
		...placed(() => h("b", "Workflow"), "changed", workflow),
		...steps.flatMap((one) =>
			one.differences.length
				? placed(() => said(one.name), one.change, one.differences)
				: [
						[
							said(one.name),
							note(one.change === "added" ? "ok" : "bad", one.change === "added" ? "plus" : "dash", one.change),
							"–",
							"–",
							"–",
						],
					],
		),
	];
	return h(
		"div.stack",
		same
			? h("p.muted", "There is no difference.")
			: h("div.card", table("Differences", ["Step", "Change", "Field", "From", "To"], rows)),
		live
			? card(
					"Live runs of the old version",
					live.examined
						? [
								h(
									"p.row",
									note("ok", "check", `${live.could_continue} could continue`),
									note(live.must_stay ? "wait" : "idle", "hand", `${live.must_stay} must stay`),
								),
								h(
									"ul.stack.tight",
									live.reasons.map((one) => h("li", `${one.runs}: `, said(one.reason, 300))),
								),
							]
						: h("p.muted", "There is none."),
					live.examined > 0 && may("operate") && button("Migrate live runs", migrate, { kind: "small" }),
				)
			: null,
		card(
			"What it means",
			h(
				"ul.stack.tight",
				consequences.map((one) => h("li", said(one, 400))),
			),
		),
	);
}

/** @param {Answers.Simulation} report */
const findingsView = (report) =>
	h(
		"div.stack",
		report.findings.length
			? h(
					"div.card",
					table(
						"Findings",
						["Kind", "What", "What to do"],
						report.findings.map((one) => [
							note(one.serious ? "bad" : "wait", "warn", words(one.kind ?? "").toLowerCase()),
							said(one.message, 500),
							said(one.hint ?? "–", 500),
						]),
					),
				)
			: empty("check", "No findings", "Every path ends, and nothing is left behind."),
		h(
			"p.muted",
			"These come from walking every path of the published version. Its text is not kept: advice on the text is given where it is written, in the editor and by ",
			h("code", "stepkeep check FILE"),
			".",
		),
	);

/** @param {Answers.Simulation} report */
const pathsView = (report) =>
	h(
		"div.stack",
		h(
			"p.muted",
			`${counted(report.paths, "path")} walked`,
			report.unwalked ? `, ${counted(report.unwalked, "more", "more")} known` : "",
			". No handler ran: the engine's own decisions say how each ends.",
		),
		h(
			"div.card",
			table(
				"Failure paths",
				["When", "Run ends", "Rollback", "After", "Undone", "Left behind"],
				report.endings
					.slice(0, 200)
					.map((one) => [
						said(one.path || "all goes well", 200),
						badge(one.ended ? one.state : "blocked", words(one.state)),
						words(one.rollback ?? "none"),
						span(one.seconds * 1000, true),
						line(one.undone.join(", "), 100) || "–",
						one.left.length ? note("wait", "warn", line(one.left.join(", "), 80)) : "–",
					]),
			),
		),
	);

/** @param {any} one a step of the definition @returns {string} */
const does = (one) =>
	one.growth?.kind === "switch"
		? `one of: ${line(one.growth.cases.map((/** @type {any} */ two) => two.name).join(", "), 80)}`
		: `${one.growth ? `${one.growth.kind} of ` : ""}${doesOnce(one)}`;
/** @param {any} one @returns {string} */
const doesOnce = (one) =>
	one.child
		? `runs ${line(one.child.workflow, 60)} v${one.child.version}`
		: one.approval
			? `gate: ${line(one.approval.prompt || "approval", 60)}`
			: one.wait
				? `waits for ${line(one.wait.event ?? "a time", 40)}`
				: one.executor
					? `${one.executor.kind} ${line(one.executor.name ?? "", 60)}`
					: "nothing";
/** @param {any} one @returns {string} */
const sub = (one) =>
	one.approval
		? "gate"
		: one.wait
			? "waits"
			: one.child || one.growth
				? line(does(one), 30)
				: `${one.executor?.name ?? one.executor?.kind ?? ""}${one.retry.max_attempts > 1 && one.executor ? ` ×${one.retry.max_attempts}` : ""}`;

/** The graph of a definition. @param {Record<string, any>} document @returns {[GraphNode[], GraphEdge[]]} */
export const graphOf = ({ steps }) => [
	steps.map((/** @type {any} */ one) => ({
		id: one.name,
		label: one.name,
		sub: sub(one),
		state: one.approval ? "awaiting_approval" : one.wait ? "awaiting_event" : "step",
		undo: one.undo ? { id: `undo:${one.name}`, state: "none", at: /** @type {string | null} */ (null) } : null,
	})),
	steps.flatMap((/** @type {any} */ one) =>
		one.depends_on.map((/** @type {any} */ dep) => ({ from: dep.step, to: one.name })),
	),
];
