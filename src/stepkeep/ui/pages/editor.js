/**
 * The editor of a definition: it checks as one types, draws the graph, leads from a finding to its line, and says which
 * handlers no live worker has.
 */
import {
	area,
	attempt,
	button,
	card,
	counted,
	get,
	go,
	h,
	icon,
	inert,
	line,
	link,
	may,
	note,
	Problem,
	problemBox,
	put,
	refused,
	send,
	SMALL,
	toast,
} from "../kit.js";
import { createGraph } from "../components/graph.js";
import { graphOf } from "./workflows.js";

const TEMPLATE = "workflow: hello\ntimeout: 1h\nsteps:\n  - name: greet\n    uses: greet\n    timeout: 10s\n",
	DRAFT = "stepkeep.draft",
	PAUSE_MS = 300;

/** @param {Context} context */
export function editorPage(context) {
	const { signal } = context;
	let timer = 0,
		asked = 0;
	const text = area({
		class: "code",
		rows: "24",
		wrap: "off",
		"aria-label": "Definition in YAML",
		value: sessionStorage.getItem(DRAFT) ?? TEMPLATE,
		on: {
			input: () => {
				number();
				clearTimeout(timer);
				timer = setTimeout(check, PAUSE_MS);
			},
			scroll: () => {
				numbers.scrollTop = text.scrollTop;
			},
		},
	});
	const numbers = h("pre.numbers", { "aria-hidden": "true" }),
		out = h("div.stack", { role: "status" }),
		graph = createGraph({ name: "Steps", choose: show, signal }),
		picture = h("section.card.graph-card", { "aria-label": "Graph", hidden: true }, graph.element);
	const submit = button("Publish", () => void attempt(publish), { kind: "primary", icon: "check", disabled: true });
	context.title("Write a workflow");

	async function publish() {
		const told = await send("POST", "/workflows", { text: text.value, type: "application/yaml" });
		sessionStorage.removeItem(DRAFT);
		toast("ok", `Published ${told.definition.workflow} version ${told.definition.version}`);
		go(`/workflows/${encodeURI(told.definition.workflow)}`);
	}
	function number() {
		const count = text.value.split("\n").length;
		put(numbers, Array.from({ length: count }, (_, at) => at + 1).join("\n"));
	}
	/** Selects a line and brings it into sight. @param {number} wanted from 1 */
	function goTo(wanted) {
		const lines = text.value.split("\n"),
			begin = lines
				.slice(0, wanted - 1)
				.reduce((/** @type {number} */ sum, /** @type {string} */ one) => sum + one.length + 1, 0);
		text.focus();
		text.setSelectionRange(begin, begin + (lines[wanted - 1] ?? "").length);
		const height = parseFloat(getComputedStyle(text).lineHeight);
		text.scrollTop = Math.max(0, (wanted - 1) * height - text.clientHeight / 2);
	}
	/** From a node of the graph to the line that names it. @param {string} id */
	function show(id) {
		const name = id.replace(/^undo:/, ""),
			at = text.value
				.split("\n")
				.findIndex((/** @type {string} */ one) => /name:|^\s*-?\s*\S+:/.test(one) && one.includes(name));
		if (at >= 0) goTo(at + 1);
	}
	/** @param {any[]} found @param {string} tone @param {string} word */
	const findings = (found, tone, word) =>
		found.map((one) =>
			h(
				"li",
				one.line
					? button(`line ${one.line}`, () => goTo(one.line), { ...SMALL, icon: tone === "bad" ? "cross" : "warn" })
					: note(tone, tone === "bad" ? "cross" : "warn", word),
				h("span", inert(one.message), one.hint ? h("span.muted", ` ${inert(one.hint)}`) : null),
			),
		);
	/** Handlers that no live worker has: their steps would wait. @param {Record<string, any>} document */
	async function unserved(document) {
		const { workers } = await get("/workers", { live: "true", limit: 200 }, signal),
			served = new Set(workers.flatMap((one) => one.handlers));
		/** @type {any[]} */
		const executors = document.steps.flatMap((/** @type {any} */ one) => [one.executor, one.undo?.executor]);
		const names = executors.filter((one) => one?.kind === "python").map((one) => one.name);
		return [...new Set(names)].filter((one) => !served.has(one));
	}
	/** @returns {Promise<void>} */
	async function check() {
		asked += 1;
		const mine = asked;
		sessionStorage.setItem(DRAFT, text.value);
		const told = await send("POST", "/workflows/check", { text: text.value, type: "application/yaml", signal }).catch(
			refused,
		);
		if (mine !== asked || signal.aborted) return;
		if (told instanceof Problem) return void put(out, problemBox(told.message));
		submit.disabled = !told.ok || !may("operate");
		const missing = told.document ? await unserved(told.document).catch(() => /** @type {string[]} */ ([])) : [];
		if (mine !== asked) return;
		put(
			out,
			told.ok
				? note("ok", "check", `${line(told.workflow ?? "", 60)}: ${counted(told.steps ?? 0, "step")}, no problems`)
				: note("bad", "cross", counted(told.problems.length, "problem")),
			h(
				"ul.findings",
				findings(told.problems, "bad", "problem"),
				findings(told.warnings, "wait", "warning"),
				missing.map((one) =>
					h(
						"li",
						note("wait", "worker", "no worker"),
						h("span", "No live worker has the handler ", h("code", line(one, 80)), ": its step would wait."),
					),
				),
			),
		);
		// What cannot be read any more keeps its last picture.
		if (!told.document) return;
		picture.hidden = false;
		graph.show(...graphOf(told.document));
	}
	number();
	void check();
	return {
		element: h(
			"div.page",
			h("nav.crumbs", { "aria-label": "Path" }, link("/workflows", "Workflows"), icon("right"), "Editor"),
			h("div.head", h("h1", "Write a workflow"), h("div.row", submit)),
			h("div.split", h("div.editor", numbers, text), h("div.stack", card("Findings", out), picture)),
		),
	};
}
