/**
 * The inbox of approvals: what is asked, by whom, the facts, the deadline, who has decided. It fits a phone.
 */
import {
	ago,
	badge,
	button,
	countdown,
	counted,
	createReloader,
	createStore,
	empty,
	every,
	follow,
	get,
	h,
	href,
	icon,
	inert,
	line,
	may,
	note,
	patch,
	problemBox,
	put,
	refused,
	said,
	setQuery,
	skeleton,
	words,
} from "../kit.js";
import { gateDialog, gateFacts, questionOf } from "../actions.js";

const SHOWS = [
	["mine", "For me"],
	["late", "Late"],
	["all", "All"],
];

const PAGE = 50,
	MOST_LOOKS = 5;

/** @param {Context} context */
export function approvalsPage(context) {
	const { signal } = context;
	let wanted = PAGE,
		which = SHOWS.some(([id]) => id === context.query.get("show")) ? context.query.get("show") : "mine",
		at = -1;
	const store = createStore({ approvals: null, complete: true, problem: "" });
	const tabs = h("div.switch", { role: "group", "aria-label": "Which gates" });
	const list = h("div.inbox"),
		count = h("p.muted", { role: "status" }),
		bar = h("div.card.selection.row", { hidden: true, role: "region", "aria-label": "Selected gates" });
	const element = h("div.page.narrow", h("div.head", h("h1", "Approvals"), h("div.row", tabs)), count, bar, list);

	function drawTabs() {
		put(
			tabs,
			SHOWS.map(([id, label]) =>
				h(
					"button",
					{
						type: "button",
						"aria-pressed": String(id === which),
						on: {
							click: () => {
								which = id;
								setQuery({ show: id === "mine" ? undefined : id });
								drawTabs();
								store.set({ approvals: null });
								reloader.ask();
							},
						},
					},
					label,
				),
			),
		);
	}
	const reloader = createReloader(
		async () => {
			const mine = which;
			try {
				const ask = (/** @type {string} */ cursor = null) =>
					get("/approvals", { mine: which === "mine", late: which === "late", limit: wanted, cursor }, signal);
				let found = await ask();
				// A call looks at a thousand gates. Where none of these is for the reader, the next ones are looked at.
				for (let looks = 1; !found.approvals.length && found.next && looks < MOST_LOOKS; looks += 1)
					found = await ask(found.next);
				if (mine === which) store.set({ approvals: found.approvals, complete: found.is_complete, problem: "" });
			} catch (error) {
				refused(error);
				store.set({ problem: error.message, approvals: [] });
			}
		},
		signal,
		500,
	);

	/** @type {Set<string>} */
	const chosen = new Set();
	/** @param {Answers.OpenGate} one */
	const keyOf = (one) => `${one.run_id}/${one.step}`;
	/** @param {Answers.OpenGate} one */
	const mayDecide = (one) => one.may_decide && may("decide");
	const done = () => {
		chosen.clear();
		reloader.ask();
	};

	store.watch(draw, signal);
	/** @param {{approvals: Answers.OpenGate[] | null, complete: boolean, problem: string}} state */
	function draw({ approvals, complete, problem }) {
		if (problem) return patch(list, problemBox(problem));
		if (!approvals) return patch(list, skeleton(6));
		const open = approvals.filter((one) => mayDecide(one) && chosen.has(keyOf(one)));
		patch(count, approvals.length ? `${counted(approvals.length, "open gate")}${complete ? "" : " or more"}` : "");
		bar.hidden = !open.length;
		patch(
			bar,
			h("b", { role: "status" }, `${counted(open.length, "gate")} selected`),
			h(
				"div.row",
				button("Approve all", () => gateDialog("approve", open, done), { kind: "small primary", icon: "check" }),
				button("Reject all", () => gateDialog("reject", open, done), { kind: "small danger", icon: "cross" }),
				button("Clear", () => choose(null, false), { kind: "plain small" }),
			),
		);
		if (!approvals.length) return patch(list, nothing());
		const more = () => {
			wanted += PAGE;
			reloader.ask();
		};
		patch(list, approvals.map(gate), complete ? null : button("Show more gates", more));
	}
	/** @param {string | null} key @param {boolean} isChosen */
	function choose(key, isChosen) {
		if (key === null) chosen.clear();
		else if (isChosen) chosen.add(key);
		else chosen.delete(key);
		draw(store.get());
	}
	const nothing = () =>
		which === "mine"
			? empty(
					"inbox",
					"Nothing waits for you",
					"Gates that you may decide show up here at once. ",
					h("a", { href: href("/approvals", { show: "all" }) }, "All open gates"),
				)
			: empty(
					"inbox",
					which === "late" ? "Nothing is late" : "No gate is open",
					"A workflow opens one with a step that has ",
					h("code", "approval:"),
					".",
				);

	/** @param {Answers.OpenGate} one */
	function gate(one) {
		const key = keyOf(one);
		const act = (/** @type {"approve" | "reject" | "request-changes"} */ choice) => () =>
			gateDialog(choice, [one], done);
		return h(
			"article.card.gate",
			{ key, tabindex: "0", "aria-label": `${line(questionOf(one), 120)}, ${line(one.workflow, 60)}` },
			h(
				"div.gate-head",
				mayDecide(one)
					? h("input", {
							type: "checkbox",
							"aria-label": "Select this gate",
							checked: chosen.has(key),
							on: { change: (event) => choose(key, event.target.checked) },
						})
					: null,
				h(
					"span.muted.cut.grow",
					h("a", { href: href(`/runs/${one.run_id}`, { step: one.step }) }, said(one.workflow, 60)),
					" · ",
					said(one.step, 60),
					one.business_key ? [" · ", h("b", said(one.business_key, 60))] : null,
				),
				h("span", { class: `due${one.late ? " late" : ""}` }, icon("clock"), countdown(one.until)),
			),
			h("h2", h("bdi", inert(questionOf(one)))),
			h(
				"p.muted",
				one.asked_by.length ? ["Asked by ", h("b", line(one.asked_by.join(", "), 120))] : "Asked",
				" ",
				ago(one.opened_at),
				one.level ? [" ", note("bad", "fire", `escalated, level ${one.level}`)] : null,
			),
			gateFacts(one),
			one.changes
				? h(
						"p.row",
						note("wait", "retry", "changes requested"),
						h("b", line(one.changes.by, 60)),
						said(one.changes.comment, 400),
					)
				: null,
			standing(one),
			mayDecide(one)
				? h(
						"div.gate-actions",
						button("Reject", act("reject"), { kind: "danger", icon: "cross" }),
						button("Request changes", act("request-changes"), { icon: "retry" }),
						button("Approve", act("approve"), { kind: "primary", icon: "check" }),
					)
				: h(
						"p.refusal",
						icon("slash"),
						h("span", one.refusal ? inert(one.refusal.message) : "Your key lacks the scope decide."),
					),
		);
	}
	/** @param {Answers.OpenGate} gate */
	function standing({ votes, quorum }) {
		if (!votes.length && quorum <= 1) return null;
		return h(
			"div.stack.tight",
			quorum > 1 ? h("p.muted", `${counted(votes.length, "decision")} so far; it needs ${quorum}.`) : null,
			votes.map((vote) =>
				h(
					"div.row",
					badge(vote.decision === "approved" ? "approve" : "reject", words(vote.decision)),
					h("b", line(vote.by, 60)),
					ago(vote.at),
				),
			),
		);
	}

	/** @param {number} step */
	const focusAt = (step) => {
		const all = [...list.querySelectorAll(".gate")];
		if (!all.length) return;
		at = Math.max(
			0,
			Math.min(
				all.length - 1,
				(all.includes(document.activeElement) ? all.indexOf(document.activeElement) : at) + step,
			),
		);
		all[at].focus();
		all[at].scrollIntoView({ block: "nearest" });
	};
	/** @param {string} kind */
	const press = (kind) => document.activeElement?.closest?.(".gate")?.querySelector(`.gate-actions .${kind}`)?.click();
	void follow("/stream", {
		signal,
		connected: (is) => context.live(is ? "on" : "off"),
		event: (name) => {
			if (name === "entry") reloader.ask();
		},
	});
	every(15_000, () => reloader.ask(), signal);
	drawTabs();
	reloader.ask();
	return {
		element,
		keys: {
			j: { say: "Next gate", act: () => focusAt(1) },
			k: { say: "Gate before", act: () => focusAt(-1) },
			a: { say: "Approve the gate in focus", act: () => press("primary") },
			r: { say: "Reject the gate in focus", act: () => press("danger") },
			enter: {
				say: "Open the run of the gate in focus",
				act: () => document.activeElement?.querySelector?.("a")?.click(),
			},
		},
	};
}
