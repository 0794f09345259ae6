/**
 * One run: why it does not move and the button that moves it, graph, timeline, steps with every attempt, data, journal
 * with its chain verified here, certificate, and the same in the words of a dialect.
 */
import {
	address,
	attempt,
	badge,
	button,
	card,
	copyButton,
	costText,
	countdown,
	counted,
	createReloader,
	createStore,
	every,
	facts,
	follow,
	get,
	go,
	h,
	icon,
	inert,
	jsonView,
	lasted,
	line,
	link,
	may,
	moment,
	named,
	note,
	problemBox,
	put,
	refused,
	runLink,
	said,
	select,
	setQuery,
	shortId,
	skeleton,
	SMALL,
	tabbed,
	table,
	toneOf,
	words,
} from "../kit.js";
import {
	cancelDialog,
	decidable,
	holdDialog,
	migrateDialog,
	moves,
	pauseDialog,
	quarantineDialog,
	sendDialog,
} from "../actions.js";
import { continueDialog } from "../continuing.js";
import { createGraph } from "../components/graph.js";
import { createTimeline, legend } from "../components/timeline.js";
import { kindOf } from "../health.js";
import { autoTable } from "../components/auto.js";
import { asItStood, pastBar } from "./past.js";
import { certificateView, journalView } from "./record.js";

const DIALECTS = ["run", "ioa", "linear", "action", "workstream"];
const MOST_ELEMENTS = 40;
const TABS = ["flow", "steps", "data", "journal", "record"];

/** @param {Context} context */
export function runPage(context) {
	const { signal, params } = context,
		id = params.id;
	const store = createStore({
		view: null,
		why: null,
		past: null,
		problem: "",
		step: context.query.get("step") ?? "",
		detail: null,
		as: DIALECTS.includes(context.query.get("as") ?? "") ? context.query.get("as") : "",
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
		(next) => {
			tab = next;
			setQuery({ tab: next === "flow" ? undefined : next });
		},
		"Parts of the run",
	);
	const element = h("div.page.run", head, problem, why, dialect, travel.element, tabs.list, tabs.panel);
	put(head, h("div.head", h("h1", "Run")), skeleton(2));

	function choose(step) {
		const next = store.get().step === step ? "" : step;
		store.set({ step: next, detail: null });
		setQuery({ step: next });
		if (next) {
			if (tab !== "flow") {
				tab = "flow";
				tabs.show("flow");
				setQuery({ tab: undefined });
			}
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
				const view = await get(`/runs/${id}`, {}, signal);
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

	let drawn = "";
	store.watch((state) => {
		put(problem, state.problem ? problemBox(state.problem) : null);
		if (!state.view) {
			if (state.problem) put(head, h("h1", "Run"));
			return;
		}
		const stamp = JSON.stringify([
			state.view.run.journal.seq,
			state.view.run.quarantined,
			state.view.run.children,
			state.view.steps.map((one) => one.progress),
			state.why?.causes?.map((one) => [one.sentence.replace(/\d+/g, ""), one.code]),
			state.step,
			state.detail?.history?.length,
			Boolean(state.detail),
			state.as,
			Boolean(state.told),
			state.past?.at.seq,
		]);
		if (stamp === drawn) return;
		drawn = stamp;
		draw(state);
	}, signal);

	function draw({ view: latest, why: explained, step, detail, as, told, past }) {
		const { run } = latest,
			view = past ? asItStood(latest, past) : latest;
		travel.update(run.journal.seq);
		context.title(`${run.workflow} ${words(run.state).toLowerCase()}`);
		drawHead(latest, as, !past);
		drawWhy(latest, past ? null : explained);
		drawGraph(view, step);
		timeline.show(latest.steps, run.started_at ?? run.created_at, run.ended_at);
		drawPanel(view, step, past ? null : detail, past ? [] : (explained?.causes ?? []));
		family.hidden = !run.children?.length;
		put(
			family,
			run.children?.length
				? card("Child runs", [
						childTree(run.children),
						run.children_left_off
							? h("p.muted", `and ${run.children_left_off} more; the page of a child has those below it`)
							: null,
						costText(run.tree_cost) && h("p.muted", `Cost with all of them: ${costText(run.tree_cost)}`),
					])
				: null,
		);
		put(steps, stepsTable(view));
		put(
			data,
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
		);
		put(dialect, as && told ? dialectCard(as, told) : null);
		tabs.relabel("steps", `Steps (${view.steps.length})`);
		journal.update(latest);
	}

	/** Actions are of the present: `isNow` is false while the reader looks back. */
	function drawHead(view, as, isNow) {
		const { run } = view,
			hasEnded = isNow && Boolean(run.ended_at),
			isLive = isNow && !run.ended_at;
		const labels = Object.entries(run.labels ?? {});
		put(
			head,
			h(
				"nav.crumbs",
				{ "aria-label": "Path" },
				link("/runs", "Runs"),
				icon("right"),
				link(`/workflows/${encodeURI(run.workflow)}`, said(run.workflow, 60)),
				icon("right"),
				h("span.mono", { title: run.id }, shortId(run.id)),
				copyButton(run.id, "Copy the id"),
			),
			h(
				"div.head",
				h("h1", said(run.workflow, 80)),
				badge(run.state),
				run.rollback && run.rollback !== "none"
					? note("undo", "undo", `rollback ${words(run.rollback).toLowerCase()}`)
					: null,
				run.quarantined && note("bad", "shield", "quarantined"),
				h(
					"div.row",
					select(
						[["", "Stepkeep's words"], ...DIALECTS.map((one) => [one, `as ${one}`])],
						as,
						(next) => {
							store.set({ as: next, told: null });
							setQuery({ as: next });
							reloader.ask();
							journal.reset();
						},
						"Words of",
					),
					isLive && may("complete") && button("Send", () => sendDialog(id, "", done), { icon: "send" }),
					hasEnded &&
						may("start") &&
						button("Run again", () => continueDialog(view, done), { icon: "retry", kind: "primary" }),
					isLive &&
						may("operate") &&
						(run.state === "paused"
							? button("Resume", () => pauseDialog(id, "resume", done), { icon: "play" })
							: run.state !== "idle" && button("Pause", () => pauseDialog(id, "pause", done), { icon: "pause" })),
					isLive &&
						may("operate") &&
						button("Cancel", () => cancelDialog(view, done), { icon: "slash", kind: "danger" }),
				),
			),
			h(
				"div.meta",
				meta("Created", [moment(run.created_at), " by ", said(run.created_by, 60)]),
				meta(run.ended_at ? "Took" : "Running for", lasted(run.started_at, run.ended_at)),
				meta("Version", [
					`${run.version}${run.dialect === "native" ? "" : ` (${run.dialect})`}`,
					isLive &&
						may("operate") &&
						button(
							"Migrate",
							() =>
								attempt(() =>
									migrateDialog({ workflow: run.workflow, of: run.version, run: id }, ({ new_run_id: next }) =>
										go(`/runs/${next}`),
									),
								),
							SMALL,
						),
				]),
				run.business_key && meta("Business key", said(run.business_key, 80)),
				run.correlation_id !== run.id && meta("Correlation", said(run.correlation_id, 80)),
				run.continues &&
					meta(`${words(run.continues.as)} of`, [
						runLink(run.continues.run),
						run.continues.from ? [" from ", said(run.continues.from, 60)] : null,
					]),
				run.continued_by?.length
					? meta(
							"Continued by",
							run.continued_by.slice(0, 3).map((one) => [runLink(one), " "]),
						)
					: null,
				run.parent && meta("Child of", runLink(run.parent.run_id)),
				costText(run.cost) && meta("Cost", costText(run.cost)),
				labels.length
					? meta(
							"Labels",
							h(
								"span.chips",
								labels.slice(0, 8).map(([name, text]) => h("span.chip", line(`${name}=${text}`, 60))),
							),
						)
					: null,
			),
		);
	}
	const meta = (name, value) => h("span", h("span.faint", name, " "), value);

	function drawWhy(view, explained) {
		const { run } = view;
		if (run.ended_at)
			return put(
				why,
				run.error
					? h(
							"div",
							{ class: `why tone-${toneOf(run.state)}` },
							icon(run.state === "rolled_back" ? "undo" : "cross"),
							h(
								"div.grow",
								h("b", run.category ? `Error, category ${words(run.category).toLowerCase()}` : "Error"),
								h("p", said(run.error, 1000)),
							),
						)
					: null,
			);
		const causes = explained?.causes ?? [];
		if (!causes.length) return put(why);
		const [first, ...rest] = causes,
			[tone, name] = kindOf(first.code);
		const buttons = moves(first, view, done);
		put(
			why,
			h(
				"div",
				{ class: `why tone-${tone}`, role: "status" },
				icon(name),
				h(
					"div.grow",
					h("b", first.code === "running" || first.code === "soon" ? "It moves" : "Why it does not move"),
					h("p", said(first.sentence, 1000)),
					!buttons.length && first.command && tone === "bad"
						? h("p.command", h("code", inert(first.command)), copyButton(first.command, "Copy the command"))
						: null,
					rest.length
						? h(
								"details",
								h("summary", counted(rest.length, "other cause")),
								h(
									"ul",
									rest.slice(0, 20).map((one) => h("li", said(one.sentence, 400))),
								),
							)
						: null,
				),
				h(
					"div.row",
					first.until &&
						["approval", "decision", "completion", "event", "retry", "sleep", "scheduled"].includes(first.code)
						? h("span.muted.due", icon("clock"), countdown(first.until))
						: null,
					buttons.map((one) => button(one.label, () => attempt(one.act), { kind: one.kind, icon: one.icon })),
				),
			),
		);
	}

	function drawGraph(view, chosen) {
		const { plan, owners } = withoutMost(view.steps.filter((one) => one.phase !== "undo"));
		const undo = new Map(
			view.steps.filter((one) => one.phase === "undo").map((one) => [one.name.replace(/^undo:/, ""), one]),
		);
		const states = new Map(plan.map((one) => [one.name, one.state]));
		const nodes = plan.map((one) => {
			const hook = undo.get(one.name);
			return {
				id: one.name,
				label: one.name,
				state: one.state,
				sub: owners.has(one.name)
					? one.case
						? `case ${line(one.case, 20)}`
						: `${one.kind} · ${counted(owners.get(one.name), "element")}`
					: subOf(one),
				tip: one.error ?? "",
				undo: hook ? { id: hook.name, state: hook.state, at: hook.started_at } : null,
			};
		});
		const edges = plan.flatMap((one) =>
			[...one.depends_on, ...(owners.has(ownerOf(one)) ? [ownerOf(one)] : [])].map((from) => ({
				from,
				to: one.name,
				taken:
					["succeeded", "skipped", "failed"].includes(states.get(from)) &&
					!["pending", "cancelled"].includes(one.state),
			})),
		);
		graph.show(nodes, edges, chosen);
	}

	function drawPanel(view, name, detail, causes) {
		const one = detail?.name === name ? detail : view.steps.find((step) => step.name === name);
		aside.hidden = !one;
		flow.classList.toggle("with-panel", Boolean(one));
		if (!one) return;
		const run = view.run.id;
		const own = causes.filter((cause) => cause.subject === name);
		const isDecided = (cause) => ["decision", "retry"].includes(cause.code);
		// A hold that the rules for people close to the reader has no command.
		const isBarred = own.some((cause) => cause.code === "decision" && !cause.command);
		const acts = own
			.filter((cause) => !isDecided(cause))
			.flatMap((cause) => moves(cause, view, done))
			.map((move) => button(move.label, () => attempt(move.act), { kind: `${move.kind} small`, icon: move.icon }));
		if (decidable(one).length && may("decide") && !isBarred) {
			acts.push(button("Decide", () => holdDialog(run, one, done), { kind: "small", icon: "hand" }));
		}
		put(
			aside,
			h(
				"header",
				h("h2", said(name, 80)),
				badge(one.state),
				h(
					"div.row",
					acts,
					button("Close the step", () => choose(name), { kind: "plain small", icon: "cross", hidden: true }),
				),
			),
			h(
				"div.body.stack",
				one.error
					? h(
							"div.problem",
							icon("cross"),
							h("span", one.category ? h("b", `${words(one.category)}: `) : null, said(one.error, 2000)),
						)
					: null,
				facts([
					["Kind", words(one.kind)],
					["Case", one.case && said(one.case)],
					["Phase", one.phase === "main" ? null : words(one.phase)],
					[
						"Attempts",
						one.attempts ? `${one.attempts}${one.losses ? `, ${counted(one.losses, "lease")} lost` : ""}` : null,
					],
					["Worker", one.worker && said(one.worker)],
					["Started", one.started_at && moment(one.started_at)],
					["Took", one.started_at && lasted(one.started_at, one.ended_at)],
					["Ends by itself", one.until && countdown(one.until)],
					["Next attempt", one.state === "retrying" && one.due_at ? countdown(one.due_at) : null],
					[
						"After",
						one.depends_on.length
							? h(
									"span.chips",
									one.depends_on.map((dep) => button(line(dep, 40), () => choose(dep), SMALL)),
								)
							: null,
					],
					["Cost", costText(one.cost)],
					[
						"Progress",
						one.progress
							? said(
									typeof one.progress === "object"
										? [
												one.progress.fraction !== undefined && one.progress.fraction !== null
													? `${Math.round(one.progress.fraction * 100)} %`
													: "",
												one.progress.message ?? one.progress.text ?? "",
											]
												.filter(Boolean)
												.join(", ") || JSON.stringify(one.progress)
										: one.progress,
									300,
								)
							: null,
					],
					[
						"Skipped",
						one.skipped && said(one.skipped.sentence ?? one.skipped.reason ?? JSON.stringify(one.skipped), 300),
					],
					["In doubt", one.in_doubt ? "yes: it is not known whether it took effect" : null],
				]),
				one.record ? h("section.stack.tight", h("h3", "Record"), jsonView(one.record, { label: "Record" })) : null,
				one.output !== null && one.output !== undefined
					? h("section.stack.tight", h("h3", "Output"), jsonView(one.output, { label: "Output" }))
					: null,
				one.history.length
					? h(
							"section.stack.tight",
							h("h3", counted(one.history.length, "attempt")),
							h(
								"div.attempts",
								{ tabindex: "0", role: "region", "aria-label": "Attempts" },
								[...one.history].reverse().map(attemptCard),
							),
						)
					: null,
			),
		);
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
		5000,
		() => {
			if (!store.get().view?.run.ended_at) reloader.ask();
		},
		signal,
	);
	reloader.ask();

	const move = (by) => {
		const all = store.get().view?.steps ?? [],
			at = all.findIndex((one) => one.name === store.get().step);
		const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
		if (next && next.name !== store.get().step) choose(next.name);
	};
	/** What the keys act on: nothing while the reader looks back. */
	const present = () => {
		const state = store.get();
		return state.past ? { view: null, why: null } : state;
	};
	const ifLive = (act) => () => {
		const { view } = present();
		if (view && !view.run.ended_at && may("operate")) act(view);
	};
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
						act: () => {
							tab = one;
							tabs.show(one);
							setQuery({ tab: one === "flow" ? undefined : one });
						},
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

	function stepsTable(view) {
		return h(
			"div.card",
			table(
				"Steps",
				["Step", "State", "Kind", "Attempts", "Worker", "Started", "Took", "Cost", "Error or output"],
				view.steps
					.slice(0, 1000)
					.map((one) => [
						button(line(one.name, 60), () => choose(one.name), { kind: "plain small link" }),
						badge(one.state),
						one.phase === "main" ? words(one.kind) : `${words(one.kind)}, ${one.phase}`,
						String(one.attempts || "–"),
						workerOf(one),
						moment(one.started_at),
						lasted(one.started_at, one.ended_at),
						costText(one.cost) || "–",
						h(
							"div.wide-cell",
							one.error
								? h("span.late", said(one.error, 200))
								: one.output === null || one.output === undefined
									? "–"
									: h("code.muted", line(JSON.stringify(one.output), 120)),
						),
					]),
			),
		);
	}
}

/** The step whose element this is: elements of a map or a loop are named NAME[PLACE]. */
const ownerOf = (one) => one.name.replace(/\[\d+\]$/, "");

/** The steps that the graph shows: of many elements of one owner, those that need attention, then the first. */
function withoutMost(steps) {
	const names = new Set(steps.map((one) => one.name)),
		elements = Map.groupBy(
			steps.filter((one) => ownerOf(one) !== one.name && names.has(ownerOf(one))),
			ownerOf,
		);
	const left = new Set(
		[...elements.values()].flatMap((some) =>
			[...some].sort((a, b) => Number(a.state === "succeeded") - Number(b.state === "succeeded")).slice(MOST_ELEMENTS),
		),
	);
	return {
		plan: steps.filter((one) => !left.has(one)),
		owners: new Map([...elements].map(([name, some]) => [name, some.length])),
	};
}

/** The runs below a run, each with those below it. @returns {HTMLElement} */
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

const workerOf = (one) => {
	const name = one.worker ?? one.history.at(-1)?.worker;
	return name ? h("span", { title: name }, line(name, 14)) : "–";
};

/** What a node says under its name. */
function subOf(one) {
	if (one.state === "retrying") return `attempt ${one.attempts} failed`;
	if (one.state.startsWith("awaiting_")) return words(one.state).toLowerCase();
	const parts = [
		one.case ? `case ${line(one.case, 20)}` : "",
		one.kind === "python" ? "" : one.kind,
		one.attempts > 1 ? `${one.attempts} attempts` : "",
	].filter(Boolean);
	if (one.started_at && one.ended_at) {
		const ms = Date.parse(one.ended_at) - Date.parse(one.started_at);
		parts.push(ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);
	}
	return parts.join(" · ") || words(one.state).toLowerCase();
}

function attemptCard(one) {
	const kept = one.evidence;
	return h(
		"article.attempt",
		h("header", h("b", `#${one.number}`), badge(one.state), h("span.muted.num", lasted(one.started_at, one.ended_at))),
		h(
			"p.faint",
			moment(one.started_at),
			" · ",
			h("span", { title: one.worker }, line(one.worker ?? "", 40)),
			costText(one.cost) ? ` · ${costText(one.cost)}` : "",
		),
		one.error ? h("p.late", one.category ? `${words(one.category)}: ` : "", said(one.error, 1000)) : null,
		kept?.traceback
			? h(
					"details",
					{ open: true },
					h("summary", "Traceback"),
					h("pre.trace.bad", { tabindex: "0" }, inert(kept.traceback)),
				)
			: null,
		kept?.log?.length
			? h(
					"details",
					{ open: true },
					h("summary", counted(kept.log.length, "log line")),
					h(
						"pre.trace",
						{ tabindex: "0" },
						kept.log.map((row) => `${inert(typeof row === "string" ? row : JSON.stringify(row))}\n`),
					),
				)
			: null,
		kept && "inputs" in kept ? h("details", h("summary", "Inputs"), jsonView(kept.inputs, { label: "Inputs" })) : null,
	);
}

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
