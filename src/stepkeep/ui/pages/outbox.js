/**
 * Events on their way out: the sinks with their lag, and what could not be delivered.
 */
import {
	ask,
	badge,
	button,
	card,
	empty,
	get,
	h,
	inert,
	may,
	note,
	runLink,
	said,
	span,
	table,
	words,
	SMALL,
} from "../kit.js";
import { listed } from "../components/list.js";

export const outboxPage = listed({
	title: "Outbox",
	seconds: 5,
	load: async (signal) => {
		const [status, list, sinks] = await Promise.all([
			get("/outbox/status", {}, signal),
			get("/outbox", { limit: 100 }, signal),
			get("/sinks", { limit: 200 }, signal),
		]);
		return { status, list, sinks };
	},
	draw: ({ status, list, sinks }, again) => [
		sinks.sinks.length
			? h(
					"div.card",
					table(
						"Sinks",
						["Sink", "Kind", "Waiting", "Dead", "Lag", ""],
						sinks.sinks.map((one) => {
							const lag = status.sinks.find((two) => two.sink === one.name) ?? { waiting: 0, dead: 0, lag_seconds: 0 };
							return [
								said(one.name),
								words(one.kind ?? "–"),
								String(lag.waiting),
								lag.dead ? note("bad", "cross", String(lag.dead)) : "0",
								lag.lag_seconds ? span(lag.lag_seconds * 1000, true) : "–",
								h(
									"div.row",
									may("operate") && lag.dead
										? button(
												"Deliver again",
												() =>
													ask({
														title: "Deliver again",
														label: "Deliver",
														text: `Every dead event of ${inert(one.name)} is tried again.`,
														path: "/outbox/redrive",
														given: () => ({ sink: one.name }),
														then: again,
													}),
												SMALL,
											)
										: null,
								),
							];
						}),
					),
				)
			: empty("send", "No sinks", "Events of runs go to sinks: ", h("code", "stepkeep sinks add"), " makes one."),
		list.deliveries.length
			? card(
					"Not delivered yet",
					table(
						"Deliveries",
						["Run", "Sink", "State", "Attempts", "Error"],
						list.deliveries.map((one) => [
							runLink(one.run),
							said(one.sink),
							badge(one.state),
							String(one.attempts),
							one.error ? said(one.error) : "–",
						]),
					),
				)
			: null,
	],
});
