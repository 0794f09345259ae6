/**
 * What starts runs by itself: schedules in words with their zone, events, what they have started and will start. They are
 * added, paused, fired, and caught up with over a range.
 */
import {
	attempt,
	badge,
	button,
	confirmDialog,
	countdown,
	counted,
	empty,
	exact,
	field,
	get,
	h,
	icon,
	input,
	line,
	link,
	may,
	moment,
	named,
	openDialog,
	post,
	Problem,
	problemBox,
	put,
	refused,
	runLink,
	said,
	select,
	SMALL,
	table,
	words,
} from "../kit.js";
import { causeText, cronText } from "../components/schedule.js";
import { listPage, paged } from "../components/list.js";

const DOTS = 12;

/** @param {Context} context */
export const triggersPage = (context) => {
	const known = paged("/triggers", "triggers");
	return listPage(context, {
		title: "Triggers",
		seconds: 20,
		load: async (signal) => {
			const triggers = await known.read(signal);
			const details = await Promise.all(
				triggers.slice(0, 30).map((one) => get(`/triggers/${named(one.trigger)}`, {}, signal)),
			);
			/** @type {(Answers.TriggerView & Partial<Answers.TriggerDetails>)[]} */
			const all = [...details, ...triggers.slice(30)];
			return all;
		},
		actions: (again) =>
			may("operate") && button("Add a trigger", () => addDialog(again), { icon: "plus", kind: "primary" }),
		draw: (triggers, again) =>
			triggers.length
				? [
						h(
							"div.card",
							table(
								"Triggers",
								["Trigger", "Fires", "Workflow", "State", "Next", "Last firings", ""],
								triggers.map((one) => row(one, again)),
							),
						),
						known.more(again),
					]
				: empty(
						"bolt",
						"No triggers",
						"A workflow declares them below ",
						h("code", "triggers:"),
						", with a schedule or an event; or add one here.",
					),
	});
};

/** @param {Answers.TriggerView & Partial<Answers.TriggerDetails>} one @param {() => void} again */
function row(one, again) {
	const isPaused = one.state === "paused",
		act = (/** @type {string} */ path) => () =>
			attempt(async () => {
				await post(`/triggers/${named(one.trigger)}/${path}`);
				again();
			});
	return [
		[h("b", said(one.trigger)), one.declared ? null : h("div.faint", `added by ${line(one.created_by, 60)}`)],
		[
			said(causeText(one), 200),
			h(
				"div.faint",
				[
					one.schedule?.cron && cronText(one.schedule.cron) !== one.schedule.cron ? one.schedule.cron : "",
					one.schedule?.zone,
					one.overlap && `overlap: ${words(one.overlap).toLowerCase()}`,
				]
					.filter(Boolean)
					.join(" · "),
			),
		],
		link(`/workflows/${encodeURI(one.workflow)}`, said(`${one.workflow}${one.version ? ` v${one.version}` : ""}`)),
		badge(one.state),
		one.next_at ? [countdown(one.next_at), h("div.faint", moment(one.next_at))] : "–",
		dots(one.firings ?? []),
		h(
			"div.row",
			button("Firings", () => firingsDialog(one), SMALL),
			may("operate") &&
				one.state !== "removed" &&
				button(isPaused ? "Resume" : "Pause", act(isPaused ? "resume" : "pause"), SMALL),
			may("operate") && one.schedule && button("Backfill", () => backfillDialog(one, again), SMALL),
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
	];
}

/** @type {Record<string, string>} */
const SETTLED = { started: "ok", skipped: "idle", refused: "bad", failed: "bad", missed: "wait" };

/** The last firings, oldest first: what became of each. @param {Answers.FiringView[]} firings */
function dots(firings) {
	if (!firings.length) return h("span.faint", "none yet");
	return h(
		"ul.dots",
		firings
			.slice(0, DOTS)
			.reverse()
			.map((one) => {
				const says = `${words(one.state)}, ${exact(one.due_at)}${one.reason ? `: ${line(one.reason, 200)}` : ""}`;
				return h(
					"li",
					{ title: says },
					h("i", { class: `tone-${SETTLED[one.state] ?? "run"}` }),
					h("span.offscreen", says),
				);
			}),
	);
}

/** @param {Answers.TriggerView} trigger */
async function firingsDialog(trigger) {
	const told = await get(`/triggers/${named(trigger.trigger)}`).catch(refused);
	const zone = trigger.schedule?.zone;
	openDialog({
		title: `Firings of ${line(trigger.trigger, 60)}`,
		wide: true,
		body:
			told instanceof Problem
				? problemBox(told.message)
				: [
						h("p", said(causeText(told), 300), zone ? h("span.muted", `, in the zone ${zone}`) : null),
						told.next.length
							? table(
									"Next firings",
									["Next", "Your time", zone ? `In ${zone}` : "There"],
									told.next
										.slice(0, 10)
										.map((/** @type {Answers.NextMoment} */ one) => [
											countdown(one.due_at),
											moment(one.due_at),
											line(one.local, 40),
										]),
								)
							: h("p.muted", "It has no moments ahead: it fires on events, or is paused."),
						told.firings.length
							? table(
									"Past firings",
									["Moment", "State", "Run"],
									told.firings
										.slice(0, 20)
										.map((/** @type {Answers.FiringView} */ one) => [
											moment(one.due_at),
											words(one.state),
											one.run_id ? runLink(one.run_id) : said(one.reason ?? "–"),
										]),
								)
							: h("p.muted", "It has not fired yet."),
					],
	});
}

/** @param {() => void} again */
async function addDialog(again) {
	const { definitions } = await get("/workflows", { limit: 200 }),
		names = [...new Set(definitions.map((one) => one.workflow))];
	const name = input({ autofocus: true }),
		workflow = select(
			names.map((one) => [one, line(one, 80)]),
			names[0] ?? "",
		),
		schedule = input({ placeholder: "30 2 * * *", on: { input: () => tell() } }),
		zone = input({ value: Intl.DateTimeFormat().resolvedOptions().timeZone }),
		says = h("p.muted", { role: "status" });
	const tell = () =>
		put(says, schedule.value.trim() ? cronText(schedule.value.trim()) : "Minute, hour, day, month, day of the week.");
	tell();
	openDialog({
		title: "Add a trigger",
		label: "Add",
		done: "Added",
		body: [
			field("Name", name),
			field("Workflow", workflow),
			field("Schedule", schedule, "As cron writes it, or @hourly, @daily."),
			says,
			field("Zone", zone),
		],
		act: async () => {
			const trigger = { schedule: schedule.value.trim(), zone: zone.value.trim() };
			await post("/triggers", { name: name.value.trim(), workflow: workflow.value, trigger });
			again();
		},
	});
}

/** Fires the moments of a range that have no run; a dry run says first how many they are.
 * @param {Answers.TriggerView} trigger @param {() => void} again */
function backfillDialog({ trigger }, again) {
	const since = input({ type: "datetime-local" }),
		until = input({ type: "datetime-local" }),
		out = h("p", { role: "status" });
	let asked = "";
	openDialog({
		title: `Backfill ${line(trigger, 60)}`,
		label: "Look",
		body: [
			h("p", "Starts a run for each moment of the range that has none, five at a time."),
			h("div.two", field("From", since), field("To", until)),
			out,
		],
		act: async () => {
			if (!since.value || !until.value) throw new TypeError("Give both ends of the range.");
			const range = { since: new Date(since.value).toISOString(), until: new Date(until.value).toISOString() },
				wanted = JSON.stringify(range),
				path = /** @type {const} */ (`/triggers/${named(trigger)}/backfills`);
			if (asked === wanted) {
				await post(path, range);
				again();
				return true;
			}
			const told = await post(path, { ...range, dry_run: true });
			asked = wanted;
			put(out, icon("bolt"), ` ${counted(told.moments, "moment")} without a run. Press Look again to start them.`);
			return false;
		},
	});
}
