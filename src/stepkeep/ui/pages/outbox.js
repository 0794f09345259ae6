/**
 * Events on their way out: the sinks with their lag, and what could not be delivered, by sink and error.
 */
import {
	ago,
	ask,
	attempt,
	badge,
	button,
	card,
	counted,
	empty,
	get,
	h,
	inert,
	jsonView,
	line,
	may,
	moment,
	note,
	openDialog,
	part,
	post,
	runLink,
	said,
	SMALL,
	span,
	table,
	toast,
	words,
} from "../kit.js";
import { listPage, paged } from "../components/list.js";

/** @param {Context} context */
export function outboxPage(context) {
	const waiting = paged("/outbox", "deliveries", 200),
		known = paged("/sinks", "sinks", 200);
	return listPage(context, {
		title: "Outbox",
		seconds: 5,
		load: async (signal) => {
			const [{ sinks: lags }, deliveries, sinks] = await Promise.all([
				get("/outbox/status", {}, signal),
				waiting.read(signal),
				known.read(signal),
			]);
			return { lags, deliveries, sinks };
		},
		draw: ({ lags, deliveries, sinks }, again) => [
			sinks.length
				? h(
						"div.card",
						table(
							"Sinks",
							["Sink", "Kind", "For", "Waiting", "Dead", "Lag", ""],
							sinks.map((one) => sinkRow(one, lags, again)),
						),
					)
				: empty("send", "No sinks", "Events of runs go to sinks: ", h("code", "stepkeep sinks add"), " makes one."),
			known.more(again),
			deliveries.length
				? card(
						"Not delivered yet, by sink and error",
						table(
							"Not delivered yet",
							["Sink", "State", "Error", "Runs", "Attempts", "Since", ""],
							grouped(deliveries).map((group) => groupRow(group, again)),
						),
					)
				: null,
			waiting.more(again),
		],
	});
}

/** @param {Answers.SinkSummary} one @param {Answers.SinkLag[]} lags @param {() => void} again */
function sinkRow(one, lags, again) {
	const lag = lags.find((two) => two.sink === one.name);
	const test = async () => {
		const told = await post(`/sinks/${part(one.name)}/test`);
		if (told.delivered) toast("ok", `${line(one.name, 60)} took a test event.`);
		else toast("bad", line(told.error ?? "It was not delivered.", 300));
	};
	return [
		h("b", said(one.name)),
		words(one.kind),
		line(one.on.join(", ") || "every workflow", 80),
		String(lag?.waiting ?? 0),
		lag?.dead ? note("bad", "cross", String(lag.dead)) : "0",
		lag?.lag_seconds ? span(lag.lag_seconds * 1000, true) : "–",
		h(
			"div.row",
			may("admin") ? button("Test", () => attempt(test), SMALL) : null,
			may("operate") && lag?.dead ? button("Deliver again", () => redrive(one.name, again), SMALL) : null,
		),
	];
}

/** @param {string} sink @param {() => void} again */
const redrive = (sink, again) =>
	ask({
		title: "Deliver again",
		label: "Deliver",
		text: `Every dead event of ${inert(sink)} is tried again.`,
		path: "/outbox/redrive",
		given: () => ({ sink }),
		then: again,
	});

/**
 * Deliveries with the same sink, state and error, which has no numbers: those with most runs first.
 * @param {Answers.DeliveryView[]} deliveries
 */
function grouped(deliveries) {
	const alike = (/** @type {string} */ text) => text.replace(/[0-9a-f]{8}-[0-9a-f-]{27}|\d+/g, "#");
	const groups = Map.groupBy(deliveries, (one) => JSON.stringify([one.sink, one.state, alike(one.error ?? "")]));
	return [...groups.values()].sort((a, b) => b.length - a.length);
}

/** @param {Answers.DeliveryView[]} group @param {() => void} again */
function groupRow(group, again) {
	const [first] = group,
		attempts = group.map((one) => one.attempts),
		since = group
			.map((one) => one.dead_at ?? one.ready_at ?? "")
			.filter(Boolean)
			.sort()[0];
	return [
		said(first.sink),
		badge(first.state),
		first.error ? said(first.error, 200) : h("span.faint", "not tried yet"),
		h("b.num", group.length.toLocaleString("en")),
		`${Math.min(...attempts)}${Math.max(...attempts) > Math.min(...attempts) ? ` to ${Math.max(...attempts)}` : ""}`,
		ago(since),
		h(
			"div.row",
			button("Show", () => groupDialog(group, again), SMALL),
		),
	];
}

/** @param {Answers.DeliveryView[]} group @param {() => void} again */
function groupDialog(group, again) {
	openDialog({
		title: `${counted(group.length, "run")} for ${line(group[0].sink, 60)}`,
		wide: true,
		body: [
			group[0].error ? h("p.late", said(group[0].error, 1000)) : null,
			table(
				"Runs",
				["Run", "Attempts", "Next", ""],
				group
					.slice(0, 100)
					.map((one) => [
						one.run ? runLink(one.run) : said(one.worker ?? "–", 60),
						String(one.attempts),
						one.dead_at ? "none: dead" : moment(one.ready_at),
						one.run ? button("Events", () => attempt(() => eventsDialog(one, again)), SMALL) : null,
					]),
			),
			group.length > 100 ? h("p.muted", `and ${group.length - 100} more`) : null,
		],
	});
}

/** What a run has for a sink, with what would be sent. @param {Answers.DeliveryView} one @param {() => void} again */
async function eventsDialog(one, again) {
	const told = await get(`/runs/${one.run}/outbox/${part(one.sink)}`);
	const drop = (/** @type {string} */ event) =>
		ask({
			title: "Give the event up",
			kind: "danger",
			text: "It is never delivered.",
			isNeeded: true,
			path: `/runs/${one.run}/outbox/${part(one.sink)}/drop`,
			given: () => ({ event }),
			then: again,
		});
	openDialog({
		title: "Events of the run",
		wide: true,
		body: [
			told.events.map((event) =>
				h(
					"section.stack.tight",
					h(
						"div.row",
						h("b", said(event.type, 80)),
						moment(event.at),
						badge(event.state),
						may("operate") && event.state === "dead"
							? button("Give up", () => drop(event.id), { kind: "small danger" })
							: null,
					),
					jsonView(event.data, { open: false, label: "Payload" }),
				),
			),
			told.actions.length
				? table(
						"What people did",
						["When", "Who", "What", "Reason"],
						told.actions.map((each) => [
							moment(each.at),
							said(each.actor),
							words(each.action),
							said(each.reason || "–"),
						]),
					)
				: null,
		],
	});
}
