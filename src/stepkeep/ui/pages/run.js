/**
 * One run: why it does not move and the button that moves it, graph, timeline, steps with every attempt, data, journal
 * with its chain verified here, certificate, and the same in the words of a dialect.
 */
import {
	address,
	attempt,
	badge,
	card,
	costText,
	createReloader,
	createStore,
	every,
	follow,
	get,
	h,
	icon,
	inert,
	jsonView,
	lasted,
	line,
	may,
	moment,
	named,
	patch,
	problemBox,
	put,
	refused,
	runLink,
	said,
	setQuery,
	skeleton,
	tabbed,
	table,
	words,
	button,
} from "../kit.js";
import { cancelDialog, moves, pauseDialog, quarantineDialog } from "../actions.js";
import { continueDialog } from "../continuing.js";
import { createGraph } from "../components/graph.js";
import { createTimeline, legend } from "../components/timeline.js";
import { autoTable } from "../components/auto.js";
import { asItStood, pastBar } from "./past.js";
import { certificateView, journalView } from "./record.js";
import { elementsOf, graphOf, stateOf, titleOf } from "./run_graph.js";
import { DIALECTS, headOf, whyOf } from "./run_head.js";
import { stepPanel } from "./run_step.js";

const TABS = ["flow", "steps", "data", "journal", "record"];

/** @param {Context} context */
export function runPage(context) {
	const { signal, params } = context,
		id = params.id;
	const store = createStore({
		/** @type {Answers.RunView | null} */
		view: null,
		/** @type {Answers.ExplanationView | null} */
		why: null,
		/** @type {Answers.PastView | null} */
		past: null,
		problem: "",
		step: context.query.get("step") ?? "",
		/** @type {Answers.StepDetail | null} */
		detail: null,
		as: DIALECTS.includes(context.query.get("as") ?? "") ? context.query.get("as") : "",
		/** @type {any} the body in the words of a dialect */
		told: null,
	});
	let tab = TABS.includes(context.query.get("tab") ?? "") ? context.query.get("tab") : "flow";
	const done = () => reloader.ask();

	const head = h("div.stack.tight"),
		why = h("div"),
		problem = h("div"),
		travel = pastBar({ run: id, signal, shown: (past) => store.set({ past }) });
	const graph = createGraph({ name: "Steps of the run", choose, signal }),
		timeline = createTimeline({ choose, signal });
	const family = h("section", { "aria-label": "Child runs", hidden: true }),
		aside = h("aside.card.step-panel", { "aria-label": "Step", hidden: true });
	const flow = h(
		"div.flow",
		h(
			"div.stack",
			h("section.card.graph-card", { "aria-label": "Graph" }, graph.element),
			h(
				"section.card",
				{ "aria-label": "Timeline" },
				h("header", h("h2", "Timeline"), legend(), h("div.row", timeline.tools)),
				timeline.element,
			),
			family,
		),
		aside,
	);
	const steps = h("div"),
		data = h("div.stack"),
		dialect = h("div");
	const journal = journalView({ run: id, signal, as: () => store.get().as }),
		record = certificateView(id, signal);
	const tabs = tabbed(
		[
			{ id: "flow", label: "Flow", build: () => flow },
			{ id: "steps", label: "Steps", build: () => steps },
			{ id: "data", label: "Data", build: () => data },
			{
				id: "journal",
				label: "Journal",
				build: () => {
					journal.show(store.get().view);
					return journal.element;
				},
			},
			{
				id: "record",
				label: "Certificate",
				build: () => {
					record.show();
					return record.element;
				},
			},
		],
		tab,
		chosen,
		"Parts of the run",
	);
	const element = h("div.page.run", head, problem, why, dialect, travel.element, tabs.list, tabs.panel);
	put(head, h("div.head", h("h1", "Run")), skeleton(2));

	/** @param {string} next */
	function chosen(next) {
		tab = next;
		setQuery({ tab: next === "flow" ? undefined : next });
		if (store.get().view) draw(store.get());
	}
	/** @param {string} next */
	function openTab(next) {
		tabs.show(next);
		chosen(next);
	}
	/** Opens the panel of a step, also where it is open. @param {string} step */
	function show(step) {
		if (store.get().step !== step || tab !== "flow") {
			store.set({ step: "" });
			choose(step);
		} else aside.scrollIntoView({ block: "nearest" });
	}
	/** @param {string} step */
	function choose(step) {
		const next = store.get().step === step ? "" : step;
		store.set({ step: next, detail: null });
		setQuery({ step: next });
		if (next) {
			if (tab !== "flow") openTab("flow");
			void readStep();
			requestAnimationFrame(() =>
				requestAnimationFrame(() => {
					if (innerWidth < 1100) aside.scrollIntoView({ block: "nearest" });
				}),
			);
		}
	}
	async function readStep() {
		const { step } = store.get();
		if (!step) return;
		const told = await get(`/runs/${id}/steps/${named(step)}`, {}, signal).catch(refused);
		if (store.get().step === step) store.set({ detail: told?.step ?? null });
	}

	const reloader = createReloader(
		async () => {
			try {
				const view = /** @type {Answers.RunView} */ (await get(`/runs/${id}`, {}, signal));
				store.set({ view, problem: "" });
				const { as } = store.get();
				const [told, explained] = await Promise.all([
					as ? get(`/runs/${id}`, { as }, signal) : null,
					view.run.ended_at ? null : get(`/runs/${id}/explain`, {}, signal),
					readStep(),
				]);
				store.set({ told, why: explained });
			} catch (error) {
				if (signal.aborted) return;
				refused(error);
				store.set({ problem: error.status === 404 ? `There is no run ${id} in this tenant.` : error.message });
			}
		},
		signal,
		200,
	);

	store.watch((state) => {
		patch(problem, state.problem ? problemBox(state.problem) : null);
		if (state.view) draw(state);
		else if (state.problem) {
			put(head, h("h1", "Run"));
			for (const one of [tabs.list, tabs.panel]) one.hidden = true;
			context.live("none");
		}
	}, signal);

	/** @type {Map<string, boolean>} */
	const folds = new Map();
	/** @param {string} owner @param {boolean} isOpen */
	function fold(owner, isOpen) {
		folds.set(owner, isOpen);
		draw(store.get());
	}
	/** @param {string} next */
	function speak(next) {
		store.set({ as: next, told: null });
		setQuery({ as: next });
		reloader.ask();
		journal.reset();
	}

	/** @param {ReturnType<typeof store.get>} state */
	function draw({ view: latest, why: explained, step, detail, as, told, past }) {
		const { run } = latest,
			view = past ? asItStood(latest, past) : latest;
		travel.update(run.journal.seq);
		context.title(`${run.workflow} ${words(run.state).toLowerCase()}`);
		patch(head, headOf(latest, { as, isNow: !past, done, speak }));
		patch(why, whyOf(latest, past ? null : explained, { choose: show, done }));
		const { nodes, edges } = graphOf(view.steps, folds);
		graph.show(nodes, edges, step);
		timeline.show(latest.steps, run.started_at ?? run.created_at, run.ended_at);
		const known = !past && detail?.name === step ? detail : view.steps.find((one) => one.name === step);
		aside.hidden = !known;
		flow.classList.toggle("with-panel", Boolean(known));
		const elements = elementsOf(view.steps).get(step) ?? [],
			causes = past ? [] : (explained?.causes ?? []);
		if (known) patch(aside, stepPanel(view, known, causes, { choose, done, fold, folds, elements }));
		family.hidden = !run.children?.length;
		patch(family, run.children?.length ? familyCard(run) : null);
		if (tab === "steps") patch(steps, stepsTable(view.steps, choose));
		if (tab === "data") patch(data, dataCards(run));
		patch(dialect, as && told ? dialectCard(as, told) : null);
		tabs.relabel("steps", `Steps (${view.steps.length})`);
		journal.update(latest);
	}

	void follow(`/runs/${id}/stream`, {
		signal,
		connected: (is) => context.live(is ? "on" : "off"),
		event: (name) => {
			if (name === "end") context.live("none");
			reloader.ask();
		},
	});
	every(
		2000,
		() => {
			if (!store.get().view?.run.ended_at) reloader.ask();
		},
		signal,
	);
	reloader.ask();

	/** @param {number} by */
	const move = (by) => {
		const all = store.get().view?.steps ?? [],
			at = all.findIndex((one) => one.name === store.get().step);
		const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
		if (next && next.name !== store.get().step) choose(next.name);
	};
	/** What the keys act on: nothing while the reader looks back. @returns {Partial<ReturnType<typeof store.get>>} */
	const present = () => {
		const state = store.get();
		return state.past ? {} : state;
	};
	/** @param {(view: Answers.RunView) => void} act */
	const ifLive = (act) => () => {
		const { view } = present();
		if (view && !view.run.ended_at && may("operate")) act(view);
	};
	/** @param {string} label */
	const firstMove = (label) => {
		const { view, why: explained } = present(),
			cause = explained?.causes?.[0];
		const move = view && cause && moves(cause, view, done).find((one) => !label || one.label === label);
		if (move) void attempt(move.act);
	};
	return {
		element,
		keys: {
			j: { say: "Next step", act: () => move(1) },
			k: { say: "Step before", act: () => move(-1) },
			escape: { say: "Close the step", act: () => store.get().step && choose(store.get().step) },
			m: { say: "Move it: the action that the page proposes", act: () => firstMove("") },
			a: { say: "Approve", act: () => firstMove("Approve") },
			r: { say: "Reject", act: () => firstMove("Reject") },
			p: {
				say: "Pause the run, or go on with it",
				act: ifLive((view) => pauseDialog(id, view.run.state === "paused" ? "resume" : "pause", done)),
			},
			c: { say: "Cancel the run", act: ifLive((view) => cancelDialog(view, done)) },
			R: {
				say: "Run again",
				act: () => {
					const { view } = present();
					if (view?.run.ended_at && may("start")) continueDialog(view, done);
				},
			},
			"[": { say: "One entry back in time", act: () => travel.move(-1) },
			"]": { say: "One entry on in time", act: () => travel.move(1) },
			...Object.fromEntries(
				TABS.map((one, at) => [
					String(at + 1),
					{
						say: `Show ${one === "record" ? "certificate" : one}`,
						act: () => openTab(one),
					},
				]),
			),
		},
		get commands() {
			const aside = {
				label: "Quarantine this run",
				icon: "shield",
				act: () => quarantineDialog(id, "quarantine", done),
			};
			return [
				...(may("operate") && present().view ? [aside] : []),
				{ label: "Copy the id of this run", icon: "copy", act: () => navigator.clipboard?.writeText(id) },
				{
					label: "Download the evidence pack",
					icon: "book",
					act: () => {
						location.href = address(`/runs/${id}/evidence`);
					},
				},
			];
		},
	};
}

/** @param {Answers.RunDetail} run */
const familyCard = (run) =>
	card("Child runs", [
		childTree(run.children),
		run.children_left_off
			? h("p.muted", `and ${run.children_left_off} more; the page of a child has those below it`)
			: null,
		costText(run.tree_cost) && h("p.muted", `Cost with all of them: ${costText(run.tree_cost)}`),
	]);

/** @param {Answers.RunDetail} run */
const dataCards = (run) => [
	card("Input", jsonView(run.input, { label: "Input" })),
	run.ended_at
		? card(
				"Output",
				run.output === null ? h("p.muted", "The run has no output.") : jsonView(run.output, { label: "Output" }),
			)
		: null,
	run.warnings.length
		? card(
				"Warnings",
				h(
					"ul.stack.tight",
					run.warnings.map((one) => h("li.row", icon("warn"), said(one, 400))),
				),
			)
		: null,
];

/** Undo steps stand in the order in which they ran. @param {Answers.StepDetail[]} all @param {(name: string) => void} choose */
function stepsTable(all, choose) {
	/** @param {Answers.StepDetail} one */
	const began = (one) => (one.phase === "undo" ? (one.started_at ?? "~") : "");
	const steps = [...all].sort((a, b) => (began(a) < began(b) ? -1 : began(a) > began(b) ? 1 : 0));
	/** @param {Answers.StepDetail} one */
	const output = (one) => (one.output === null || one.output === undefined ? "–" : JSON.stringify(one.output));
	return h(
		"div.card",
		table(
			"Steps",
			["Step", "State", "Kind", "Attempts", "Worker", "Started", "Took", "Cost", "Error or output"],
			steps
				.slice(0, 1000)
				.map((one) => [
					button(line(titleOf(one), 60), () => choose(one.name), { kind: "plain small link", title: one.name }),
					badge(stateOf(one)),
					one.phase === "main" ? words(one.kind) : `${words(one.kind)}, ${one.phase}`,
					String(one.attempts || "–"),
					workerOf(one),
					moment(one.started_at),
					lasted(one.started_at, one.ended_at),
					costText(one.cost) || "–",
					h(
						"div.wide-cell",
						one.error ? h("span.late", said(one.error, 200)) : h("code.muted", line(output(one), 120)),
					),
				]),
		),
	);
}

/** The runs below a run, each with those below it. @param {Answers.ChildRun[]} children @returns {HTMLElement} */
const childTree = (children) =>
	h(
		"ul.tree",
		children.map((one) =>
			h(
				"li",
				h(
					"div.row",
					badge(one.state),
					runLink(one.run_id),
					said(`${one.step}: ${one.workflow} v${one.version}`, 120),
					one.detached ? h("span.chip", "detached") : null,
				),
				one.children?.length ? childTree(one.children) : null,
			),
		),
	);

/** @param {Answers.StepDetail} one */
const workerOf = (one) => {
	const name = one.worker ?? one.history.at(-1)?.worker;
	return name ? h("span", { title: name }, line(name, 14)) : "–";
};

/** @param {string} name @param {any} told */
function dialectCard(name, told) {
	const lists = Object.entries(told).flatMap(([key, value]) =>
		Array.isArray(value)
			? [[key, value]]
			: value && typeof value === "object" && Array.isArray(value.steps)
				? [[key, value.steps]]
				: [],
	);
	const list = lists.find(([key]) => /step|action|task/.test(String(key))) ?? lists[0];
	const status = told.status?.state ?? told.status ?? told.workflow_instance?.status ?? told.workstream?.status;
	return card(
		h("h2", `In the words of ${name}`),
		h(
			"div.stack",
			typeof status === "string" ? h("p", "Status: ", h("b", inert(status))) : null,
			list ? autoTable(list[1]) : null,
			h("details", h("summary", "The whole body"), jsonView(told, { label: "Body", open: false })),
		),
	);
}
