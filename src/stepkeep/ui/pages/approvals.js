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
	jsonView,
	line,
	may,
	note,
	problemBox,
	put,
	refused,
	said,
	setQuery,
	skeleton,
	words,
} from "../kit.js";
import { gateDialog } from "../actions.js";

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
		count = h("p.muted", { role: "status" });
	const element = h("div.page.narrow", h("div.head", h("h1", "Approvals"), h("div.row", tabs)), count, list);
	const cards = new Map();

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
				const ask = (cursor) =>
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

	store.watch(({ approvals, complete, problem }) => {
		if (problem) return put(list, problemBox(problem));
		if (!approvals) return put(list, skeleton(6));
		put(count, approvals.length ? `${counted(approvals.length, "open gate")}${complete ? "" : " or more"}` : "");
		if (!approvals.length) {
			cards.clear();
			return put(
				list,
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
						),
			);
		}
		const made = approvals.map((one) => {
			const key = `${one.run_id}/${one.step}`,
				stamp = JSON.stringify(one);
			const before = cards.get(key);
			if (before?.stamp === stamp) return before.element;
			const fresh = gate(one);
			cards.set(key, { stamp, element: fresh });
			return fresh;
		});
		put(
			list,
			made,
			complete
				? null
				: button("Show more gates", () => {
						wanted += PAGE;
						reloader.ask();
					}),
		);
		for (const [key, { element: one }] of cards) if (!made.includes(one)) cards.delete(key);
	}, signal);

	function gate(one) {
		const done = () => reloader.ask();
		const hasFacts = one.facts && Object.keys(one.facts).length;
		const simple =
			hasFacts &&
			Object.values(one.facts).every((value) => value === null || typeof value !== "object") &&
			Object.keys(one.facts).length <= 12;
		const isAllowed = one.may_decide && may("decide");
		return h(
			"article.card.gate",
			{ tabindex: "0", "aria-label": `${line(one.prompt || one.step, 120)}, ${line(one.workflow, 60)}` },
			h(
				"div.gate-head",
				h(
					"span.muted.cut",
					h("a", { href: href(`/runs/${one.run_id}`, { step: one.step }) }, said(one.workflow, 60)),
					" · ",
					said(one.step, 60),
				),
				h("span", { class: `due${one.late ? " late" : ""}` }, icon("clock"), countdown(one.until)),
			),
			h("h2", h("bdi", inert(one.prompt || `May ${one.step} go on?`))),
			h(
				"p.muted",
				one.asked_by?.length ? ["Asked by ", h("b", line(one.asked_by.join(", "), 120))] : "Asked",
				" ",
				ago(one.opened_at),
				one.level ? [" ", note("bad", "fire", `escalated, level ${one.level}`)] : null,
			),
			simple
				? h(
						"dl.facts",
						Object.entries(one.facts).map(([name, value]) => [
							h("dt", said(words(name), 60)),
							h("dd", said(value === null ? "–" : value, 400)),
						]),
					)
				: hasFacts
					? jsonView(one.facts, { label: "Facts" })
					: null,
			standing(one),
			isAllowed
				? h(
						"div.gate-actions",
						button("Reject", () => gateDialog("reject", one.run_id, one.step, done, one.prompt), {
							kind: "danger",
							icon: "cross",
						}),
						button("Approve", () => gateDialog("approve", one.run_id, one.step, done, one.prompt), {
							kind: "primary",
							icon: "check",
						}),
					)
				: h(
						"p.refusal",
						icon("slash"),
						h("span", one.refusal ? inert(one.refusal.message) : "Your key lacks the scope decide."),
					),
		);
	}
	function standing(one) {
		const votes = one.votes ?? [];
		if (!votes.length && !(one.quorum > 1)) return null;
		return h(
			"div.stack.tight",
			one.quorum > 1 ? h("p.muted", `${counted(votes.length, "decision")} so far; it needs ${one.quorum}.`) : null,
			votes.map((vote) =>
				h(
					"div.row",
					badge(vote.choice ?? vote.decision ?? (vote.approved === false ? "reject" : "approve")),
					h("b", line(vote.by ?? vote.person ?? vote.actor ?? "", 60)),
					vote.at && ago(vote.at),
					vote.comment && h("span.muted", said(vote.comment, 200)),
				),
			),
		);
	}

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
