/**
 * The record of a run: its journal with the chain verified in this browser, and the judge's certificate.
 */
import {
	address,
	badge,
	button,
	card,
	counted,
	exact,
	facts,
	get,
	h,
	icon,
	inert,
	jsonView,
	line,
	moment,
	note,
	openDialog,
	Problem,
	problemBox,
	put,
	refused,
	runLink,
	said,
	skeleton,
	table,
	words,
} from "../kit.js";
import { createTable } from "../components/table.js";
import { readJournal, verifyChain } from "../journal.js";

/** @param {{run: string, signal: AbortSignal, as: () => string}} options */
export function journalView({ run, signal, as }) {
	let seq = -1,
		isRead = false,
		isReading = false;
	/** @type {Answers.RunView | null} */
	let view = null;
	const verdict = h("div", { role: "status" });
	const grid = createTable({
		name: "Journal",
		signal,
		key: (entry) => String(entry.seq),
		version: (entry) => entry.hash,
		open: show,
		empty: () => skeleton(5),
		columns: [
			{ id: "seq", label: "Entry", width: "3.5rem", cell: (entry) => h("span.num", String(entry.seq)) },
			{ id: "at", label: "Time", width: "6rem", cell: (entry) => moment(entry.at) },
			{
				id: "what",
				label: "What happened",
				width: "minmax(14rem, 3fr)",
				cell: (entry) => h("span.cut", summary(entry)),
			},
			{
				id: "by",
				label: "By",
				width: "minmax(6rem, 1fr)",
				cell: (entry) => h("span.cut.muted", line(actorOf(entry), 60)),
			},
			{
				id: "hash",
				label: "Hash",
				width: "6.5rem",
				cell: (entry) => h("span.mono.faint", { title: entry.hash }, entry.hash.slice(0, 10)),
			},
		],
		card: (entry) => [
			h("div.row", h("b", `#${entry.seq}`), moment(entry.at), h("span.muted.cut.grow", line(actorOf(entry), 60))),
			h("div.cut", summary(entry)),
		],
	});
	const element = h(
		"div.stack.journal",
		h(
			"div.row",
			verdict,
			h(
				"a.button.small",
				{ href: address(`/runs/${run}/log`), download: `${run}.jsonl` },
				icon("book"),
				"Download the log",
			),
		),
		grid.element,
	);

	/** @param {Entry} entry */
	function show(entry) {
		openDialog({
			title: `Entry ${entry.seq}`,
			wide: true,
			body: [
				facts([
					["Time", exact(entry.at)],
					["Hash", h("code", entry.hash)],
				]),
				table(
					"Changes",
					["What", "From", "To", "Trigger", "Event", "Actor"],
					entry.lines
						.slice(0, 200)
						.map((one) => [
							said(subjectOf(one), 60),
							one.from_state ?? one.from ?? "–",
							one.to_state ?? one.to ?? "–",
							line(one.trigger ?? "", 60),
							line(one.metadata?.event ?? one.event_type ?? "", 60),
							line(one.metadata?.actor ?? "", 60),
						]),
				),
				h(
					"details",
					h("summary", "The bytes that the hash covers"),
					h("pre.trace", inert(entry.body).slice(0, 100_000)),
				),
				jsonView(entry.lines, { open: false, label: "Lines" }),
			],
		});
	}
	async function read() {
		if (isReading || !view) return;
		isReading = true;
		const head = view.run.journal;
		try {
			put(verdict, note("idle", "clock", "verifying the chain"));
			const entries = await readJournal(
				run,
				signal,
				(found) => grid.show([...found], `${counted(found.length, "entry", "entries")} read`),
				as() || null,
			);
			grid.show([...entries].reverse(), counted(entries.length, "entry", "entries"));
			const told = await verifyChain(entries, head);
			isRead = true;
			seq = entries.at(-1)?.seq ?? 0;
			put(
				verdict,
				told.kind === "whole"
					? note(
							"ok",
							"check",
							`Chain verified in this browser: ${counted(told.count, "entry", "entries")}, each with the hash of the one before`,
						)
					: told.kind === "unable"
						? note("wait", "warn", told.why)
						: h(
								"div.problem",
								{ role: "alert" },
								icon("warn"),
								h(
									"span",
									h("b", `Entry ${told.broken} is broken: `),
									told.why,
									". ",
									button(
										"Show it",
										() => {
											const found = entries.find((one) => one.seq === told.broken);
											if (found) show(found);
										},
										{ kind: "small" },
									),
								),
							),
			);
		} catch (error) {
			if (signal.aborted) return;
			refused(error);
			put(verdict, problemBox(error.message));
		} finally {
			isReading = false;
		}
	}
	return {
		element,
		/** @param {Answers.RunView} next */
		show(next) {
			view = next;
			if (!isRead || (view && view.run.journal.seq > seq)) void read();
		},
		/** @param {Answers.RunView} next */
		update(next) {
			view = next;
			if (element.isConnected && view.run.journal.seq > seq) void read();
		},
		reset() {
			seq = -1;
			isRead = false;
			if (element.isConnected) void read();
		},
	};
}

/** @param {any} one a line */
const subjectOf = (one) =>
	one.metadata?.step ?? (one.entity_id ? String(one.entity_id).split("/").slice(1).join("/") || "run" : "run");
/** @param {Entry} entry */
const actorOf = (entry) => entry.lines.find((one) => one.metadata?.actor)?.metadata.actor ?? "";
/** @param {Entry} entry */
function summary(entry) {
	const shown = entry.lines
		.slice(0, 3)
		.map(
			(one) =>
				`${subjectOf(one)} ${one.to_state ? `→ ${words(one.to_state).toLowerCase()}` : (one.metadata?.event ?? one.event_type ?? one.type ?? "")}`,
		);
	return line(
		shown.join(", ") + (entry.lines.length > 3 ? ` and ${entry.lines.length - 3} more` : "") ||
			"nothing in these words",
		200,
	);
}

/** @param {string} run @param {AbortSignal} signal */
export function certificateView(run, signal) {
	const element = h("div.stack");
	/** @returns {Promise<void>} */
	async function show() {
		put(element, skeleton(4));
		/** @type {any} */ const told = await get(`/runs/${run}/certificate`, {}, signal).catch(refused);
		if (told instanceof Problem) return void put(element, problemBox(told.message));
		put(
			element,
			card(
				"Certificate",
				h(
					"div.stack",
					h(
						"p.row",
						note(told.ok ? "ok" : "bad", told.ok ? "shield" : "warn", `The judge says: ${told.verdict}`),
						h("span.muted", "It read the journal, the definition and the payloads, with no code of the engine."),
					),
					facts([
						["Entries", String(told.entries ?? "–")],
						["Head", told.head && h("code", told.head)],
						["Definition", told.definition && `${told.definition.name} version ${told.definition.version}`],
						["Payloads compared", told.payloads && String(told.payloads.compared)],
						...Object.entries(told.counts ?? {}).map(([name, value]) => [words(name), String(value)]),
					]),
					told.dialects?.length
						? table(
								"Dialects",
								["Dialect", "State there", "Lines", "Invariants", "Verdict"],
								told.dialects.map((/** @type {any} */ one) => [
									one.dialect,
									badge(String(one.state).toLowerCase(), inert(one.state)),
									String(one.lines),
									String(one.invariants),
									one.ok
										? note("ok", "check", "refines it")
										: note("bad", "cross", counted(one.findings.length, "finding")),
								]),
							)
						: null,
					told.tree?.runs.length
						? [
								h(
									"h3",
									told.tree.ok
										? "The runs below it conform, and the journals agree"
										: "The runs below it do not conform",
								),
								table(
									"Runs below",
									["Run", "Step", "State", "Entries", "Findings"],
									told.tree.runs
										.slice(0, 200)
										.map((/** @type {any} */ one) => [
											runLink(one.run),
											said(one.step),
											badge(one.state),
											String(one.entries),
											one.ok ? "0" : note("bad", "cross", String(one.findings)),
										]),
								),
							]
						: null,
					h("details", h("summary", "The whole certificate"), jsonView(told, { open: false, label: "Certificate" })),
				),
				h(
					"a.button.small",
					{ href: address(`/runs/${run}/evidence`), download: `evidence-${run}.zip` },
					icon("book"),
					"Evidence pack",
				),
			),
		);
	}
	return { element, show };
}
