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
	patch,
	Problem,
	problemBox,
	put,
	refused,
	said,
	select,
	sentence,
	setQuery,
	shortId,
	skeleton,
	SMALL,
	words,
} from "../kit.js";
import { BULK, bulkDialog } from "../components/bulk.js";
import { createTable } from "../components/table.js";
import { createBrush } from "../components/brush.js";
import { WINDOWS } from "../components/chart.js";
import { startDialog } from "../components/start.js";
import { filterDialog, FILTERS, GROUPS, LIVE, NONE, readFilters, savedViews } from "./runs_filters.js";
import { createHealth, healthView } from "../health.js";

/** @typedef {import("./runs_filters.js").Filters} Filters */

const PAGE = 100,
	MOST = 20_000;
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
	const roots = button("No child runs", () => change({ roots: filters.roots ? undefined : "true" }), {
		kind: "small",
		pressed: Boolean(filters.roots),
	});
	const brush = createBrush({ name: "Runs by start", chosen: (since, until) => change({ since, until }) }),
		over = h("section.card.over-time", { "aria-label": "Runs over time", hidden: true });
	const chips = h("div.chips");
	const bar = h("div.card.selection.row", { hidden: true, role: "region", "aria-label": "Selected runs" });
	const views = savedViews(change);
	const problem = h("div"),
		looked = h("div.row.muted", { role: "status", hidden: true });
	const element = h(
		"div.page.full.runs",
		h(
			"div.head",
			h("h1", "Runs"),
			h(
				"div.row",
				views.element,
				may("start") && button("Start a run", () => startDialog(), { kind: "primary", icon: "plus" }),
			),
		),
		h(
			"div.filters",
			h("div.search", icon("search"), search),
			button("Filter", openFilters, { icon: "more" }),
			roots,
			states,
		),
		over,
		chips,
		problem,
		looked,
		bar,
		table.element,
	);

	function openFilters() {
		filterDialog(filters, change);
	}
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
		drawTimes();
		reloader.ask();
	}
	/** How many runs there are by group: live ones now, ended ones in the window. @type {Map<string, number>} */
	const counts = new Map();
	/** @type {Answers.Statistics | null} */
	let numbers = null;
	let window_ = context.query.get("window") ?? "24h";
	async function count() {
		const [found, told] = await Promise.all([
			get("/status", { window: "1h" }, signal).catch(refused),
			get("/statistics", { window: window_ }, signal).catch(refused),
		]);
		if (found instanceof Problem || told instanceof Problem) return;
		numbers = told.statistics;
		const live = found.status.runs.live.by_state,
			by = /** @type {Record<string, number>} */ ({ ...numbers.runs.by_state, ...live });
		for (const [id, , group] of GROUPS.slice(1))
			counts.set(
				id,
				group.reduce((sum, state) => sum + (by[state] ?? 0), 0),
			);
		drawFilters();
		drawTimes();
	}
	/** The runs over time, of one workflow where the reader looks at one. */
	function drawTimes() {
		over.hidden = !numbers?.runs.total;
		if (!numbers) return;
		const spans = numbers.throughput,
			own = numbers.workflows.find((one) => one.workflow === filters.workflow),
			times = spans.map((one) => Date.parse(one.at)),
			edges = [...times, 2 * times.at(-1) - times.at(-2)].map((one) => new Date(one).toISOString());
		const points = spans.map((one, at) => ({
			label: new Date(one.at).toLocaleString("en-GB"),
			parts: own ? [own.started[at] - own.failed_in[at], 0, own.failed_in[at]] : [one.succeeded, one.other, one.failed],
		}));
		const words_ = [own ? "did not fail" : "succeeded", "other", "failed or rolled back"];
		brush.show(
			{ name: "Runs by start", points, tones: ["ok", "run", "bad"], words: words_ },
			edges,
			filters.since,
			filters.until,
		);
		patch(
			over,
			brush.element,
			h(
				"div.row",
				h("span.faint", moment(edges[0])),
				h(
					"span.faint.cut.grow",
					`${own ? inert(own.workflow) : "all workflows"}, by start${numbers.runs.is_estimate ? ", estimated" : ""}`,
				),
				select(
					WINDOWS,
					window_,
					(next) => {
						window_ = next;
						setQuery({ window: next });
						void count();
					},
					"Window",
				),
			),
		);
	}
	const isLive = (/** @type {string[]} */ group) => group.every((one) => LIVE.includes(one));
	function drawFilters() {
		roots.setAttribute("aria-pressed", String(Boolean(filters.roots)));
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
					counts.has(id)
						? h(
								"span.count",
								{ title: isLive(group) ? "now" : `started within ${window_}` },
								counts.get(id).toLocaleString("en"),
							)
						: null,
				),
			),
		);
		const isGroup = GROUPS.some(([, , group]) => [...group].sort().join() === chosen);
		const set = FILTERS.filter(
			(name) => filters[name] && !["text", "roots"].includes(name) && !(name === "state" && isGroup),
		);
		put(
			chips,
			set.map((name) =>
				h(
					"span.chip",
					sentence(`${words(name)}: ${[filters[name]].flat().join(", ")}`, 80),
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
				!isAll && keys.size === 2 && button("Compare", () => compare([...keys]), { kind: "small", icon: "layers" }),
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
	/** The older one is the first. @param {string[]} ids */
	function compare(ids) {
		const [other, id] = ids.sort();
		go(`/runs/${id}/compare`, { other });
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
		const { label, roots: isRoots, ...rest } = query();
		return {
			...rest,
			...(isRoots ? { roots: true } : {}),
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
			{ label: "Save this view", icon: "star", act: views.save },
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
