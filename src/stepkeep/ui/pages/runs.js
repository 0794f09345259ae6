/**
 * The runs: a live table with search, filters in the address, saved views, health, and actions on many runs.
 */
import {
	ago,
	badge,
	button,
	counted,
	createReloader,
	createStore,
	empty,
	every,
	field,
	follow,
	get,
	go,
	h,
	href,
	icon,
	inert,
	input,
	lasted,
	line,
	may,
	moment,
	openDialog,
	patch,
	Problem,
	problemBox,
	put,
	refused,
	said,
	select,
	setQuery,
	shortId,
	skeleton,
	SMALL,
	words,
} from "../kit.js";
import { BULK, bulkDialog } from "../components/bulk.js";
import { createTable } from "../components/table.js";
import { startDialog } from "../components/start.js";
import { createHealth, healthView } from "../health.js";

const PAGE = 100,
	MOST = 20_000;
const LIVE = BULK.cancel[5],
	STATES = [...LIVE, ...BULK.rerun[5]];
/** @type {[id: string, label: string, states: string[]][]} */
const GROUPS = [
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
const FILTERS = ["text", "workflow", "business_key", "correlation_id", "label", "error", "since", "until", "state"];
/** @type {Filters} */
const NONE = Object.fromEntries(FILTERS.map((name) => [name, /** @type {any} */ (undefined)]));
/** @type {["cancel" | "retry" | "rerun" | "pause" | "resume", string][]} */
const BULK_ICONS = [
	["cancel", "slash"],
	["retry", "retry"],
	["rerun", "play"],
	["pause", "pause"],
	["resume", "play"],
];

/** @param {Context} context */
export function runsPage(context) {
	const { signal } = context;
	const filters = readFilters(context.query);
	const store = createStore({
		/** @type {Answers.RunSummary[]} */
		runs: [],
		/** @type {string | null} */
		next: null,
		/** @type {number | null} */
		total: null,
		complete: true,
		/** @type {Answers.LookedAt | null} */
		looked: null,
		problem: "",
		loaded: false,
	});
	const health = createHealth(signal, () => table.refresh());
	let isLoadingMore = false,
		generation = 0,
		asked = 0;

	/** @type {Column<Answers.RunSummary>[]} */
	const columns = [
		{ id: "state", label: "State", width: "7.25rem", cell: (run) => badge(run.state) },
		{
			id: "run",
			label: "Workflow",
			width: "minmax(6rem, 1fr)",
			cell: (run) => [
				h("a.cut", { href: href(`/runs/${run.id}`) }, said(run.workflow, 80)),
				h("span.faint", `v${run.version}`),
				run.quarantined && h("span.chip", "quarantined"),
			],
		},
		{ id: "health", label: "Health", width: "minmax(9rem, 2.6fr)", cell: (run) => healthView(run, health.of(run)) },
		{ id: "key", label: "Key", width: "minmax(6rem, 2fr)", cell: (run) => keyCell(run) },
		{
			id: "id",
			label: "Run",
			width: "7.75rem",
			cell: (run) => h("span.mono.muted", { title: run.id }, shortId(run.id)),
		},
		{ id: "started", label: "Created", width: "4.75rem", cell: (run) => moment(run.created_at) },
		{ id: "took", label: "Took", width: "5.5rem", right: true, cell: (run) => lasted(run.started_at, run.ended_at) },
	];
	const table = createTable({
		name: "Runs",
		columns,
		key: (run) => run.id,
		open: (run, event) => open(run, event),
		card: cardOf,
		selectable: may("operate") || may("start"),
		signal,
		version: (run) => `${run.journal.seq}|${run.state}|${health.stamp(run)}`,
		selected: showSelection,
		end: () => void more(),
		seen: (rows) => health.want(rows.filter((run) => LIVE.includes(run.state))),
		empty: () => (store.get().loaded ? nothing() : skeleton(8)),
	});

	const search = input({
		type: "search",
		placeholder: "Search ids, keys, labels and input",
		"aria-label": "Search runs",
		value: filters.text ?? "",
		on: { input: () => later({ text: search.value.trim() }) },
	});
	const states = h("div.switch", { role: "group", "aria-label": "State" });
	const chips = h("div.chips");
	const bar = h("div.card.selection.row", { hidden: true, role: "region", "aria-label": "Selected runs" });
	const views = h("div.row");
	const problem = h("div"),
		looked = h("div.row.muted", { role: "status", hidden: true });
	const element = h(
		"div.page.full.runs",
		h(
			"div.head",
			h("h1", "Runs"),
			h(
				"div.row",
				views,
				may("start") && button("Start a run", () => startDialog(), { kind: "primary", icon: "plus" }),
			),
		),
		h("div.filters", h("div.search", icon("search"), search), button("Filter", openFilters, { icon: "more" }), states),
		chips,
		problem,
		looked,
		bar,
		table.element,
	);

	/** @param {Answers.RunSummary} run @param {any} [event] */
	function open(run, event) {
		if (event && (event.ctrlKey || event.metaKey)) window.open(href(`/runs/${run.id}`), "_blank", "noopener");
		else go(`/runs/${run.id}`);
	}
	function nothing() {
		if (store.get().problem) return h("span");
		const isFiltered = FILTERS.some((name) => filters[name] !== undefined && String(filters[name]).length);
		if (store.get().looked) return empty("search", "No run matches so far", "Older runs were not looked at yet.");
		if (isFiltered)
			return empty(
				"search",
				"No run matches",
				"Change the filters, or ",
				button("show all runs", () => change(NONE), SMALL),
			);
		return empty(
			"runs",
			"No runs yet",
			"Start one here, or from the command line: ",
			h("code", "stepkeep run FILE.yaml"),
			". It shows up at once.",
		);
	}

	let timer = 0;
	/** @param {Filters} changes */
	function later(changes) {
		clearTimeout(timer);
		timer = setTimeout(() => change(changes), 220);
	}
	/** @param {Filters} changes */
	function change(changes) {
		Object.assign(filters, changes);
		setQuery(Object.fromEntries(FILTERS.map((name) => [name, filters[name]])));
		if (document.activeElement !== search) search.value = filters.text ?? "";
		generation += 1;
		asked = 0;
		store.set({ runs: [], next: null, looked: null, loaded: false });
		table.scroller.scrollTop = 0;
		drawFilters();
		reloader.ask();
	}
	/** How many live runs there are now, by group; ended ones are counted by the table. @type {Map<string, number>} */
	const counts = new Map();
	async function count() {
		const found = await get("/status", { window: "1h" }, signal).catch(refused);
		if (found instanceof Problem) return;
		const live = found.status.runs.live.by_state;
		for (const id of ["live", "blocked"]) {
			const group = GROUPS.find(([one]) => one === id)[2];
			counts.set(
				id,
				group.reduce((sum, state) => sum + (live[state] ?? 0), 0),
			);
		}
		drawFilters();
	}
	function drawFilters() {
		const chosen = [...(filters.state ?? [])].sort().join();
		patch(
			states,
			GROUPS.map(([id, label, group]) =>
				h(
					"button",
					{
						type: "button",
						"aria-pressed": String([...group].sort().join() === chosen),
						on: { click: () => change({ state: group.length ? group : undefined }) },
					},
					label,
					counts.has(id) ? h("span.count", counts.get(id).toLocaleString("en")) : null,
				),
			),
		);
		const isGroup = GROUPS.some(([, , group]) => [...group].sort().join() === chosen);
		const set = FILTERS.filter((name) => filters[name] && name !== "text" && !(name === "state" && isGroup));
		put(
			chips,
			set.map((name) =>
				h(
					"span.chip",
					`${words(name)}: ${line([filters[name]].flat().join(", "), 60)}`,
					button(`Remove the filter ${words(name)}`, () => change({ [name]: undefined }), {
						kind: "plain small",
						icon: "cross",
						hidden: true,
					}),
				),
			),
		);
		chips.hidden = !set.length;
	}
	function openFilters() {
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

	// Saved views are addresses with a name, kept in this browser.
	const kept = () => JSON.parse(localStorage.getItem("stepkeep.views") ?? "{}");
	function drawViews() {
		const all = kept(),
			names = Object.keys(all).sort();
		put(
			views,
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

	let isAll = false;
	/** @param {Set<string>} keys */
	function showSelection(keys) {
		const { total, complete } = store.get(),
			all = total ?? 0;
		isAll &&= keys.size > 0;
		bar.hidden = !keys.size;
		const text = isAll
			? `All ${counted(all, "run")}${complete ? "" : " or more"} that match`
			: counted(keys.size, "run selected", "runs selected");
		patch(
			bar,
			h("b", { role: "status" }, text),
			h(
				"div.row",
				BULK_ICONS.map(
					([kind, name]) =>
						may(kind === "rerun" || kind === "retry" ? "start" : "operate") &&
						button(kind === "rerun" ? "Run again" : BULK[kind][1], () => act(kind), {
							kind: `small ${kind === "cancel" ? "danger" : ""}`,
							icon: name,
						}),
				),
				!isAll &&
					all > keys.size &&
					button(
						`Select all ${complete ? all.toLocaleString("en") : ""} that match`,
						() => {
							isAll = true;
							showSelection(keys);
						},
						SMALL,
					),
				button("Clear", () => table.clear(), { kind: "plain small" }),
			),
		);
	}
	/** @param {"cancel" | "retry" | "rerun" | "pause" | "resume"} kind */
	const act = (kind) =>
		bulkDialog(
			kind,
			isAll ? store.get().runs : table.selection(),
			() => {
				table.clear();
				reloader.ask();
			},
			isAll ? where() : undefined,
		);
	/** The filter as a job takes it. */
	function where() {
		const { label, ...rest } = query();
		return {
			...rest,
			...(label
				? {
						labels: Object.fromEntries(
							label.map((/** @type {string} */ one) => [one.split("=")[0], one.split("=").slice(1).join("=")]),
						),
					}
				: {}),
		};
	}

	/** @returns {Filters} */
	const query = () => ({ ...filters });
	/** @returns {Promise<void>} */
	async function load() {
		const mine = generation;
		try {
			const found = /** @type {Answers.RunList} */ (await get("/runs", { ...query(), limit: PAGE }, signal));
			if (mine !== generation) return void reloader.ask();
			const before = store.get().runs,
				fresh = new Map(found.runs.map((run) => [run.id, run]));
			// The first page is read again; what was read behind it stays, unless it moved to the first page.
			const oldest = found.runs.at(-1)?.id;
			// Rows that new runs have pushed off the first page go: only as many stay as the reader has asked for.
			const older = found.next && oldest ? before.filter((run) => run.id < oldest && !fresh.has(run.id)) : [],
				behind = older.slice(0, asked);
			// A search that the reader took further stays there: its cursor is older than that of the first part.
			const reached = store.get().looked,
				isFurther = Boolean(reached && found.looked_at && reached.last < found.looked_at.last);
			store.set({
				runs: [...found.runs, ...behind],
				next: isFurther
					? store.get().next
					: !behind.length
						? found.next
						: behind.length < older.length
							? behind.at(-1).id
							: store.get().next,
				total: isFurther ? store.get().total : found.total,
				complete: found.is_complete,
				looked: isFurther ? reached : (found.looked_at ?? null),
				problem: "",
				loaded: true,
			});
		} catch (error) {
			if (signal.aborted) return;
			refused(error);
			store.set({ problem: error.message, loaded: true });
		}
	}
	async function more() {
		const { next, runs } = store.get();
		if (!next || isLoadingMore || runs.length >= MOST) return;
		isLoadingMore = true;
		const mine = generation;
		try {
			const found = /** @type {Answers.RunList} */ (
				await get("/runs", { ...query(), cursor: next, limit: 200 }, signal)
			);
			if (mine !== generation) return;
			asked = store.get().runs.length + found.runs.length - PAGE;
			const { looked: before, total } = store.get();
			const reached = found.looked_at && {
				...found.looked_at,
				runs: found.looked_at.runs + (before?.runs ?? 0),
				of: before?.of ?? found.looked_at.of,
			};
			store.set({
				runs: [...store.get().runs, ...found.runs],
				next: found.next,
				...(before ? { looked: reached ?? null, total: (total ?? 0) + found.total, complete: found.is_complete } : {}),
			});
		} catch (error) {
			if (!signal.aborted && !(error instanceof Problem)) throw error;
		} finally {
			isLoadingMore = false;
		}
	}
	const reloader = createReloader(load, signal, 600);
	store.watch(({ runs, next, total, complete, looked: part, problem: text, loaded }) => {
		put(problem, text ? problemBox(text) : null);
		looked.hidden = !part;
		const all = part?.of ? ` of ${part.of_at_least ? "at least " : ""}${part.of.toLocaleString("en")}` : "";
		if (part)
			put(
				looked,
				h(
					"span",
					`Looked at the newest ${part.runs.toLocaleString("en")}${all} runs, back to `,
					moment(part.back_to),
					".",
				),
				button("Look further", () => void more(), SMALL),
			);
		table.show(
			runs,
			!loaded
				? "Loading"
				: !next || total === null || total === undefined
					? counted(runs.length, "run")
					: `${counted(total, "run")}${complete ? "" : " or more"}${next ? `, ${runs.length.toLocaleString("en")} loaded` : ""}`,
		);
	}, signal);

	// A change of a run behind the first page is patched from the stream: its state is what the journal says.
	void follow("/stream", {
		signal,
		connected: (is) => context.live(is ? "on" : "off"),
		event: (name, data) => {
			if (name !== "entry") return;
			const runs = store.get().runs,
				at = runs.findIndex((run) => run.id === data.run_id);
			if (at >= PAGE) {
				const last = data.lines
					.filter((/** @type {any} */ one) => one.event_type === "run_state_transition" && one.to_state)
					.at(-1);
				const next = [...runs];
				next[at] = {
					...runs[at],
					state: last?.to_state ?? runs[at].state,
					journal: { ...runs[at].journal, seq: data.seq },
				};
				store.set({ runs: next });
			} else reloader.ask();
		},
	});
	every(
		30_000,
		() => {
			reloader.ask();
			void count().catch(() => {});
		},
		signal,
	);
	void count().catch(() => {});
	drawFilters();
	drawViews();
	reloader.ask();

	return {
		element,
		keys: {
			"/": { say: "Search", act: () => search.focus() },
			j: { say: "Next row", act: table.keys.j },
			k: { say: "Row before", act: table.keys.k },
			enter: { say: "Open the row", act: table.keys.enter },
			x: { say: "Select the row", act: table.keys.x },
			f: { say: "Filter", act: openFilters },
			...(may("start") ? { n: { say: "Start a run", act: () => startDialog() } } : {}),
		},
		commands: [
			{ label: "Filter runs", icon: "search", keys: "f", act: openFilters },
			{ label: "Save this view", icon: "star", act: saveView },
			...(may("start") ? [{ label: "Start a run", icon: "plus", keys: "n", act: () => startDialog() }] : []),
			...GROUPS.map(([, label, group]) => ({
				label: `Show runs: ${label}`,
				icon: "runs",
				act: () => change({ state: group.length ? group : undefined }),
			})),
		],
	};

	/** @param {Answers.RunSummary} run */
	function cardOf(run) {
		return [
			h(
				"div.row",
				badge(run.state),
				h("a.cut.grow", { href: href(`/runs/${run.id}`) }, said(run.workflow, 80)),
				h("span.faint.num", ago(run.created_at)),
			),
			h("div.row.muted", h("span.cut.grow", healthView(run, health.of(run))), h("span.mono.faint", run.id.slice(-6))),
		];
	}
}

/** @param {Answers.RunSummary} run */
function keyCell(run) {
	const labels = Object.entries(run.labels ?? {});
	if (!run.business_key && !labels.length) return h("span.faint", "–");
	return [
		run.business_key && h("span.cut.keep", said(run.business_key, 80)),
		labels.slice(0, 2).map(([name, text]) => h("span.chip", line(`${name}=${text}`, 40))),
		labels.length > 2 && h("span.faint", `+${labels.length - 2}`),
	];
}

/** @param {URLSearchParams} query @returns {Filters} */
function readFilters(query) {
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
