/**
 * Draws the steps of a run or a workflow as a graph: nodes with their state, edges that were taken, and undo hooks as the
 * way back. States change in place; the layout is computed again only where the steps differ. Moves and zooms. It is one
 * tab stop: arrow keys go from node to node. Large graphs are searched.
 */
import { button, h, iconOf, input, line, pathOf, put, s, toneOf, words } from "../kit.js";
import { layout } from "./layout.js";

const WIDTH = 172,
	HEIGHT = 44,
	UNDO = 24,
	LONGEST = 21,
	/** A graph with more nodes has a search. */
	LARGE = 30;
/** @type {Record<string, number[]>} */
const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
const MOVING = new Set(["running", "validating"]),
	WAITING = new Set(["awaiting_approval", "awaiting_event", "awaiting_completion", "retrying", "held"]);
const STILL = new Set(["pending", "skipped", "cancelled"]);

/** @param {{name: string, choose: (id: string) => void, signal: AbortSignal}} options */
export function createGraph({ name, choose, signal }) {
	const world = s("g"),
		canvas = s("svg.canvas", { role: "group", "aria-label": name }, markers(), world);
	const wanted = input({
			type: "search",
			placeholder: "Find a step",
			"aria-label": "Find a step",
			on: { input: find },
		}),
		failures = button("Failed only", failedOnly, { kind: "small", pressed: false }),
		finder = h("div.row.finder", { hidden: true }, wanted, failures);
	wanted.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
		if (event.key === "Enter") bring(nodes.find(isWanted)?.id);
	});
	const element = h(
		"div.graph",
		finder,
		canvas,
		h(
			"div.tools",
			button("Zoom in", () => zoom(1.25), { kind: "small", icon: "plus", hidden: true }),
			button("Zoom out", () => zoom(0.8), { kind: "small", icon: "dash", hidden: true }),
			button("Show all", () => fit(), { kind: "small", icon: "fit", hidden: true }),
		),
	);
	const view = { x: 0, y: 0, k: 1 };
	let size = { width: 1, height: 1 },
		shape = "",
		isVertical = false,
		isTouched = false;
	const drawn = new Map();
	const edgesDrawn = new Map();
	/** @type {GraphNode[]} */
	let nodes = [];
	/** @type {GraphEdge[]} */
	let edges = [];
	let chosen = "";

	const observer = new ResizeObserver(() => {
		const vertical = element.clientWidth < 560;
		if (vertical !== isVertical) {
			isVertical = vertical;
			shape = "";
			update();
		}
		if (!isTouched) fit();
	});
	observer.observe(element);
	signal.addEventListener("abort", () => observer.disconnect());

	function place() {
		world.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
	}
	function fit() {
		const { clientWidth: w, clientHeight: t } = element;
		if (!w || !t) return;
		view.k = Math.max(0.02, Math.min(1.1, (w - 48) / size.width, (t - 48) / size.height));
		// A long graph is shown from its start at a size that can be read.
		if (view.k < 0.6 && nodes.length < 60) view.k = Math.min(0.75, isVertical ? (w - 32) / size.width : 0.75);
		view.x = Math.max(24, (w - size.width * view.k) / 2);
		view.y = Math.max(20, (t - size.height * view.k) / 2);
		isTouched = false;
		place();
	}
	/** @param {number} factor */
	function zoom(factor, cx = element.clientWidth / 2, cy = element.clientHeight / 2) {
		const k = Math.max(0.02, Math.min(3, view.k * factor)),
			by = k / view.k;
		view.x = cx - (cx - view.x) * by;
		view.y = cy - (cy - view.y) * by;
		view.k = k;
		isTouched = true;
		place();
	}
	canvas.addEventListener(
		"wheel",
		(/** @type {WheelEvent} */ event) => {
			if (!event.ctrlKey && !event.metaKey) {
				if (!event.shiftKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
				event.preventDefault();
				view.x -= event.deltaX || event.deltaY;
				isTouched = true;
				return place();
			}
			event.preventDefault();
			const box = canvas.getBoundingClientRect();
			zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
		},
		{ passive: false },
	);
	canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
		if (event.button || event.target.closest(".node")) return;
		const from = { x: event.clientX - view.x, y: event.clientY - view.y };
		canvas.setPointerCapture(event.pointerId);
		const move = (/** @type {PointerEvent} */ moved) => {
			view.x = moved.clientX - from.x;
			view.y = moved.clientY - from.y;
			isTouched = true;
			place();
		};
		canvas.addEventListener("pointermove", move);
		canvas.addEventListener("pointerup", () => canvas.removeEventListener("pointermove", move), { once: true });
		canvas.addEventListener("pointercancel", () => canvas.removeEventListener("pointermove", move), { once: true });
	});

	let isFailedOnly = false,
		stop = "";
	/** @param {GraphNode} node */
	const isWanted = (node) =>
		(!isFailedOnly || node.state === "failed") && node.label.toLowerCase().includes(wanted.value.trim().toLowerCase());
	function find() {
		const isAll = !isFailedOnly && !wanted.value.trim();
		for (const node of nodes) drawn.get(node.id)?.made.classList.toggle("dim", !isAll && !isWanted(node));
	}
	function failedOnly() {
		isFailedOnly = !isFailedOnly;
		failures.setAttribute("aria-pressed", String(isFailedOnly));
		find();
		if (isFailedOnly) centre(nodes.find(isWanted)?.id);
	}
	/** Moves a node into the middle. @param {string | undefined} id */
	function centre(id) {
		const at = id && places.get(id);
		if (!at) return;
		view.k = Math.max(view.k, 0.6);
		view.x = element.clientWidth / 2 - (at.x + WIDTH / 2) * view.k;
		view.y = element.clientHeight / 2 - (at.y + HEIGHT / 2) * view.k;
		isTouched = true;
		place();
	}
	/** Moves a node into sight and gives it the focus. @param {string | undefined} id */
	function bring(id) {
		const node = id && drawn.get(id);
		if (!node) return;
		const box = node.made.getBoundingClientRect(),
			around = canvas.getBoundingClientRect();
		if (box.left < around.left || box.right > around.right || box.top < around.top || box.bottom > around.bottom)
			centre(id);
		node.made.focus({ preventScroll: true });
	}
	/** One node is the tab stop: the chosen one, that which had the focus last, or the first. @param {string} id */
	function setStop(id) {
		drawn.get(stop)?.made.setAttribute("tabindex", "-1");
		stop = drawn.has(id) ? id : (nodes[0]?.id ?? "");
		drawn.get(stop)?.made.setAttribute("tabindex", "0");
	}
	/** The nearest node on one side. @param {string} id @param {number[]} way */
	function beside(id, [dx, dy]) {
		const from = places.get(id);
		/** @param {GraphNode} one */
		const far = (one) => {
			const x = places.get(one.id).x - from.x,
				y = places.get(one.id).y - from.y,
				along = x * dx + y * dy;
			return along < 1 ? Infinity : along + 3 * Math.abs(x * dy + y * dx);
		};
		return nodes.reduce((best, one) => (far(one) < (best ? far(best) : Infinity) ? one : best), null)?.id;
	}

	function update() {
		finder.hidden = nodes.length < LARGE;
		const now = JSON.stringify([
			nodes.map((one) => [one.id, one.label, Boolean(one.undo), one.stack]),
			edges.map((one) => [one.from, one.to]),
			isVertical,
		]);
		if (now !== shape) {
			shape = now;
			rebuild();
			fit();
		}
		for (const node of nodes) restate(node);
		setStop(chosen && drawn.has(chosen) ? chosen : stop);
		find();
		for (const edge of edges) {
			const one = edgesDrawn.get(`${edge.from}\u0000${edge.to}`);
			one?.setAttribute("class", edge.taken ? "edge taken" : "edge");
			one?.setAttribute("marker-end", edge.taken ? "url(#arrow-taken)" : "url(#arrow)");
		}
		wayBack();
	}

	let places = new Map();
	const back = s("g");
	function rebuild() {
		const found = layout(
			nodes.map((one) => ({ id: one.id, width: WIDTH, height: HEIGHT + (one.undo ? UNDO + 4 : 0) })),
			edges,
			{ vertical: isVertical, layerGap: isVertical ? 34 : 56 },
		);
		const focused = [...drawn].find(([, one]) => one.made === document.activeElement)?.[0];
		places = found.places;
		size = { width: Math.max(1, found.width), height: Math.max(1, found.height) };
		drawn.clear();
		edgesDrawn.clear();
		const lines = found.lines.map((one) => {
			const made = s("path.edge", { d: curve(one.points, isVertical), "marker-end": "url(#arrow)" });
			edgesDrawn.set(`${one.from}\u0000${one.to}`, made);
			return made;
		});
		put(
			world,
			s("g", lines),
			back,
			s(
				"g",
				nodes.map((one) => build(one)),
			),
		);
		if (focused) drawn.get(focused)?.made.focus({ preventScroll: true });
	}

	/** @param {GraphNode} node */
	function build(node) {
		const at = places.get(node.id);
		const glyph = s("path.glyph", { transform: "translate(10 14)" });
		const label = s("text", { x: 33, y: 19 }, cut(node.label)),
			sub = s("text.sub", { x: 33, y: 34 }),
			part = s("rect.part", { x: 4, y: HEIGHT - 4, width: 0, height: 3, rx: 1.5 });
		const made = s(
			"g.node",
			{
				tabindex: "-1",
				role: "button",
				transform: `translate(${at.x} ${at.y})`,
				on: { click: () => choose(node.id), keydown: open(node.id), focus: () => setStop(node.id) },
			},
			s("title"),
			node.stack ? s("rect.box.behind", { x: 5, y: 5, width: WIDTH, height: HEIGHT, rx: 8 }) : null,
			s("rect.box", { width: WIDTH, height: HEIGHT, rx: 8 }),
			s("rect.stripe", { x: 0.5, y: 9, width: 3, height: HEIGHT - 18, rx: 1.5 }),
			glyph,
			label,
			sub,
			part,
		);
		let undo = null;
		if (node.undo) {
			undo = s(
				"g.node",
				{
					tabindex: "-1",
					role: "button",
					transform: `translate(${at.x + 22} ${at.y + HEIGHT + 4})`,
					on: { click: () => choose(node.undo.id), keydown: open(node.undo.id) },
				},
				s("title"),
				s("rect.box", { width: WIDTH - 22, height: UNDO, rx: 6 }),
				s("path.glyph", { transform: "translate(7 4)" }),
				s("text.sub", { x: 28, y: 16 }),
			);
		}
		drawn.set(node.id, { made, glyph, sub, part, undo, state: "" });
		return [made, undo];
	}

	const open = (/** @type {string} */ id) => (/** @type {KeyboardEvent} */ event) => {
		const way = STEPS[event.key],
			owner = drawn.has(id) ? id : nodes.find((one) => one.undo?.id === id)?.id;
		if (way && owner && !event.ctrlKey && !event.metaKey && !event.altKey) {
			event.preventDefault();
			bring(beside(owner, way));
		}
		if (event.key !== "Enter" && event.key !== " ") return;
		event.preventDefault();
		choose(id);
	};

	/** @param {GraphNode} node */
	function restate(node) {
		const one = drawn.get(node.id);
		const now = `${node.state}|${node.sub}|${node.part}|${node.undo?.state ?? ""}|${chosen === node.id}|${chosen === node.undo?.id}`;
		if (!one || one.state === now) return;
		one.state = now;
		paint(
			one.made,
			node.state,
			chosen === node.id,
			`${line(node.label, 200)}: ${words(node.state)}${node.tip ? `. ${line(node.tip, 300)}` : ""}`,
		);
		one.glyph.setAttribute("d", pathOf(iconOf(node.state)));
		one.sub.textContent = cut(node.sub, 25);
		one.part.setAttribute("width", String((node.state === "running" ? (node.part ?? 0) : 0) * (WIDTH - 8)));
		if (!one.undo || !node.undo) return;
		const isIdle = node.undo.state === "none";
		paint(
			one.undo,
			isIdle ? "pending" : node.undo.state,
			chosen === node.undo.id,
			`Undo of ${line(node.label, 200)}: ${isIdle ? "not needed so far" : words(node.undo.state)}`,
		);
		one.undo.querySelector(".glyph").setAttribute("d", pathOf(isIdle ? "undo" : iconOf(node.undo.state)));
		one.undo.querySelector("text").textContent = isIdle ? "undo" : `undo: ${words(node.undo.state).toLowerCase()}`;
	}

	/** Arrows from the undo that began first to the next one. */
	function wayBack() {
		const run = nodes.filter((one) => one.undo?.at).sort((a, b) => (a.undo.at < b.undo.at ? -1 : 1));
		const points = run.map((one) => {
			const at = places.get(one.id);
			return [at.x + 22, at.y + HEIGHT + 4 + UNDO / 2, at.x + WIDTH];
		});
		put(
			back,
			points.slice(1).map((to, at) => {
				const from = points[at];
				const d = isVertical
					? `M${from[2]} ${from[1]} C${from[2] + 40} ${from[1]} ${to[2] + 40} ${to[1]} ${to[2] + 3} ${to[1]}`
					: `M${from[0]} ${from[1]} C${from[0] - 30} ${from[1] + 26} ${to[2] + 30} ${to[1] + 26} ${to[2] + 4} ${to[1] + 2}`;
				return s("path.edge.way-back", { d, "marker-end": "url(#arrow-back)" });
			}),
		);
	}

	return {
		element,
		/** @param {GraphNode[]} nextNodes @param {GraphEdge[]} nextEdges */
		show(nextNodes, nextEdges, nextChosen = "") {
			nodes = nextNodes;
			edges = nextEdges;
			chosen = nextChosen;
			update();
		},
	};
}

/** @param {any} made @param {string} state @param {boolean} isChosen @param {string} tip */
function paint(made, state, isChosen, tip) {
	const kind = MOVING.has(state)
		? "moves"
		: WAITING.has(state)
			? "waits"
			: state === "failed"
				? "fails"
				: STILL.has(state)
					? "still"
					: "";
	made.setAttribute("class", `node tone-${toneOf(state)} ${kind}${isChosen ? " chosen" : ""}`);
	made.dataset.state = state;
	made.setAttribute("aria-label", tip);
	made.querySelector("title").textContent = tip;
}

/** @param {string} text */
const cut = (text, most = LONGEST) => {
	const one = line(text, 200);
	// Two long names differ at their ends as often as at their beginnings.
	const half = Math.ceil((most - 1) / 2);
	return one.length > most ? `${one.slice(0, half)}…${one.slice(half + 1 - most)}` : one;
};

function markers() {
	return s(
		"defs",
		[
			["arrow", ""],
			["arrow-taken", " taken"],
			["arrow-back", " way-back"],
		].map(([id, kind]) =>
			s(
				"marker",
				{
					id,
					viewBox: "0 0 8 8",
					refX: 7,
					refY: 4,
					markerWidth: 7,
					markerHeight: 7,
					markerUnits: "userSpaceOnUse",
					orient: "auto-start-reverse",
				},
				s("path", { class: `arrow${kind}`, d: "M0 0.8L7.5 4 0 7.2z" }),
			),
		),
	);
}

/** @param {[number, number][]} points @param {boolean} vertical */
function curve(points, vertical) {
	const [first, ...rest] = points;
	let d = `M${first[0]} ${first[1]}`,
		[x, y] = first;
	for (const [a, b] of rest) {
		const mid = vertical ? (y + b) / 2 : (x + a) / 2;
		d += vertical ? ` C${x} ${mid} ${a} ${mid} ${a} ${b}` : ` C${mid} ${y} ${mid} ${b} ${a} ${b}`;
		[x, y] = [a, b];
	}
	return d;
}
