/**
 * What starts runs by itself: schedules and events, with what each has started and will start.
 */
import {
	attempt,
	badge,
	button,
	confirmDialog,
	countdown,
	empty,
	exact,
	get,
	h,
	inert,
	line,
	may,
	moment,
	named,
	openDialog,
	post,
	runLink,
	said,
	table,
	words,
	SMALL,
} from "../kit.js";
import { listed } from "../components/list.js";

export const triggersPage = listed({
	title: "Triggers",
	load: (signal) => get("/triggers", { limit: 200 }, signal),
	draw: ({ triggers }, again) =>
		triggers.length
			? h(
					"div.card",
					table(
						"Triggers",
						["Trigger", "Workflow", "Kind", "State", "Next", "Overlap", ""],
						triggers.map((one) => [
							said(one.trigger),
							said(`${one.workflow}${one.version ? ` v${one.version}` : ""}`),
							words(one.kind),
							badge(one.state),
							one.next_at ? [countdown(one.next_at), h("div.faint", moment(one.next_at))] : "–",
							words(one.overlap ?? ""),
							h(
								"div.row",
								button("Next firings", () => void next(one.trigger), SMALL),
								may("operate") &&
									one.state !== "removed" &&
									button(
										one.state === "paused" ? "Resume" : "Pause",
										() =>
											attempt(async () => {
												await post(`/triggers/${named(one.trigger)}/${one.state === "paused" ? "resume" : "pause"}`);
												again();
											}),
										SMALL,
									),
								may("start") &&
									button(
										"Fire now",
										() =>
											confirmDialog(
												"Fire",
												`${one.trigger} starts a run of ${one.workflow} now.`,
												() => post(`/triggers/${named(one.trigger)}/fire`),
												again,
											),
										SMALL,
									),
							),
						]),
					),
				)
			: empty(
					"bolt",
					"No triggers",
					"A workflow declares them below ",
					h("code", "triggers:"),
					", with a schedule or an event.",
				),
});

async function next(name) {
	const [told, recent] = await Promise.all([
		get(`/triggers/${named(name)}/next`).catch(() => null),
		get(`/triggers/${named(name)}`).catch(() => null),
	]);
	const moments = told ? (told.moments ?? told.next ?? Object.values(told).find(Array.isArray) ?? []) : [];
	const firings = recent?.firings ?? [];
	openDialog({
		title: `Firings of ${line(name, 60)}`,
		body: [
			moments.length
				? h(
						"ul.stack.tight",
						moments.slice(0, 20).map((one) => {
							const at = typeof one === "string" ? one : (one.due_at ?? one.at ?? one.moment);
							return h("li", Number.isNaN(Date.parse(at)) ? inert(at) : exact(at));
						}),
					)
				: h("p.muted", "It has no moments ahead: it fires on events, or is paused."),
			firings.length
				? table(
						"Past firings",
						["Moment", "State", "Run"],
						firings
							.slice(0, 20)
							.map((one) => [
								moment(one.due_at),
								words(one.state),
								one.run_id ? runLink(one.run_id) : line(one.reason ?? "–"),
							]),
					)
				: null,
		],
	});
}
