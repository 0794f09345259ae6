/**
 * Pages that are lists: jobs, triggers, outbox, policies, keys, users, audit. Each is a table with its actions.
 */
import {
	ago,
	area,
	ask,
	attempt,
	badge,
	button,
	card,
	copyButton,
	countdown,
	counted,
	empty,
	exact,
	field,
	get,
	h,
	inert,
	input,
	jsonView,
	line,
	may,
	moment,
	named,
	note,
	openDialog,
	part,
	post,
	put,
	readJson,
	runLink,
	said,
	select,
	send,
	session,
	setQuery,
	span,
	table,
	words,
	SMALL,
} from "../kit.js";
import { jobRuns } from "../components/bulk.js";
import { listed, listPage } from "../components/list.js";

/** Asks before it acts. @param {string} title @param {string} text @param {() => Promise<any>} act @param {() => void} again */
const confirm = (title, text, act, again) =>
	openDialog({
		title,
		label: title,
		kind: "danger",
		body: h("p", text),
		act: async () => {
			await act();
			again();
		},
	});

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
											confirm(
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

export const jobsPage = listed({
	title: "Jobs",
	seconds: 2,
	load: (signal) => get("/jobs", { limit: 100 }, signal),
	draw: ({ jobs, next: older }, again) =>
		jobs.length
			? [
					h(
						"div.card",
						table(
							"Jobs",
							["Job", "State", "Progress", "About", "By", "Made", ""],
							jobs.map((one) => {
								const all = one.runs ?? one.done ?? 0,
									left = one.waiting ?? 0,
									isRun = one.action !== "backfill";
								return [
									h("b", words(one.action)),
									badge(
										one.state === "done" ? "succeeded" : one.state === "stopped" ? "cancelled" : "running",
										words(one.state),
									),
									[
										h("progress", {
											"aria-label": `Progress of the job ${one.job}`,
											max: Math.max(1, all),
											value: all - left || (left ? 0 : 1),
										}),
										h(
											"div.faint",
											[
												`${all - left} of ${counted(all, "run")}`,
												one.refused && `${one.refused} refused`,
												one.unchanged && `${one.unchanged} unchanged`,
											]
												.filter(Boolean)
												.join(", "),
										),
									],
									said(
										one.trigger ??
											(Object.entries(one.where ?? {})
												.map(
													([name, value]) =>
														`${words(name)}: ${typeof value === "object" ? JSON.stringify(value) : value}`,
												)
												.join("; ") ||
												"chosen runs"),
										120,
									),
									said(one.created_by ?? "–"),
									ago(one.created_at),
									h(
										"div.row",
										isRun &&
											button(
												"Show",
												async () =>
													openDialog({
														title: `${words(one.action)}: ${counted(all, "run")}`,
														wide: true,
														body: [
															one.reason ? h("p", said(one.reason)) : null,
															jobRuns((await get(`/jobs/${part(one.job)}/runs`, { limit: 100 })).runs),
															all > 100 && h("p.muted", "The first 100 by their ids."),
														],
													}),
												SMALL,
											),
										isRun &&
											one.state === "running" &&
											may("operate") &&
											button(
												"Stop",
												() =>
													confirm(
														"Stop the job",
														"What it has done stays. The other runs are left as they are.",
														() => post(`/jobs/${part(one.job)}/stop`),
														again,
													),
												{ kind: "small danger" },
											),
									),
								];
							}),
						),
					),
					older && h("p.muted", "Older jobs: ", h("code", "stepkeep jobs list")),
				]
			: empty("layers", "No jobs", "Select runs on their page, and cancel, pause or run them again: that is a job."),
});

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

export const policiesPage = listed({
	title: "Policies",
	load: (signal) => get("/policies", { limit: 100 }, signal),
	actions: (again) =>
		may("admin") &&
		button(
			"Publish a policy",
			() => {
				const text = area({ class: "code", rows: "14", placeholder: "JSON" });
				openDialog({
					title: "Publish a policy",
					label: "Publish",
					wide: true,
					body: field("Policy", text, "As the command line takes it, in JSON."),
					act: async () => {
						await post("/policies", { policy: readJson(text.value, "The policy") });
						again();
					},
				});
			},
			{ icon: "plus" },
		),
	draw: ({ policies }) =>
		policies.length
			? h(
					"div.card",
					table(
						"Revisions",
						["Revision", "Published", "By", ""],
						policies.map((one) => [
							h("b", String(one.revision)),
							moment(one.published_at ?? one.at),
							said(one.published_by ?? one.by ?? "–"),
							h(
								"div.row",
								button(
									"Show",
									async () =>
										openDialog({
											title: `Revision ${one.revision}`,
											wide: true,
											body: jsonView(await get(`/policies/${part(String(one.revision))}`)),
										}),
									SMALL,
								),
							),
						]),
					),
				)
			: empty(
					"shield",
					"No policy",
					"Rules decide which starts, steps and gates are allowed. ",
					h("code", "stepkeep policies publish FILE"),
				),
});

export const keysPage = listed({
	title: "API keys",
	load: (signal) => get("/api-keys", { limit: 200 }, signal),
	actions: (again) =>
		may("admin") &&
		button(
			"Make a key",
			() => {
				const owner = input({ autofocus: true }),
					boxes = ["read", "start", "decide", "complete", "operate", "work", "admin", "vouch", "metrics"].map((one) => [
						one,
						h("input", { type: "checkbox", checked: one === "read" }),
					]);
				openDialog({
					title: "Make a key",
					label: "Make",
					body: [
						field("Owner", owner, "A user or a service that is registered."),
						h(
							"fieldset.states",
							h("legend", "Scopes"),
							boxes.map(([name, box]) => h("label.row", box, name)),
						),
					],
					act: async () => {
						secret(
							await post("/api-keys", {
								owner: owner.value.trim(),
								scopes: boxes.filter(([, box]) => box.checked).map(([name]) => name),
							}),
						);
						again();
					},
				});
			},
			{ icon: "plus", kind: "primary" },
		),
	draw: ({ keys }, again) =>
		keys.length
			? h(
					"div.card",
					table(
						"Keys",
						["Key", "Owner", "State", "Scopes", "Made", "Ends", ""],
						keys.map((one) => [
							h("code", `sk_${inert(one.id)}`),
							said(one.owner),
							badge(one.state === "live" ? "active" : one.state, words(one.state)),
							h(
								"span.chips",
								one.scopes.map((scope) => h("span.chip", scope)),
							),
							[ago(one.created_at), " by ", said(one.created_by)],
							one.expires_at ? countdown(one.expires_at) : "never",
							one.state === "live"
								? h(
										"div.row",
										may("admin") && !one.of_session
											? button(
													"Replace",
													() =>
														openDialog({
															title: "Replace the key",
															label: "Replace",
															body: h("p", "A new secret is shown once."),
															act: async () => {
																secret(await post(`/api-keys/${part(one.id)}/rotate`));
																again();
															},
														}),
													SMALL,
												)
											: null,
										(may("admin") || one.owner === session()?.principal) &&
											button(
												"Revoke",
												() =>
													confirm(
														"Revoke",
														`Programs that use sk_${one.id} are refused within a second.`,
														() => send("DELETE", `/api-keys/${part(one.id)}`, {}),
														again,
													),
												{ kind: "small danger" },
											),
									)
								: null,
						]),
					),
				)
			: empty("key", "No keys"),
});

function secret(made) {
	const text = made.secret ?? made.key?.secret ?? "";
	openDialog({
		title: "The new key",
		body: [
			h("p", "It is shown once. Keep it where only its owner can read it."),
			h("p.row", h("code", inert(text)), copyButton(text, "Copy the key")),
		],
	});
}

export const usersPage = listed({
	title: "Users",
	load: (signal) => get("/users", { limit: 200 }, signal),
	actions: (again) =>
		may("admin") &&
		button(
			"Register a user",
			() => {
				const name = input({ autofocus: true }),
					display = input();
				openDialog({
					title: "Register a user",
					label: "Register",
					body: [field("Name", name), field("Shown as", display)],
					act: async () => {
						await post("/users", {
							name: name.value.trim(),
							...(display.value.trim() ? { display: display.value.trim() } : {}),
						});
						again();
					},
				});
			},
			{ icon: "plus", kind: "primary" },
		),
	draw: ({ users }, again) =>
		h(
			"div.card",
			table(
				"Users",
				["Name", "Shown as", "Kind", "State", "Registered", ""],
				users.map((one) => [
					said(one.name),
					one.display ? said(one.display) : "–",
					words(one.kind),
					badge(one.disabled_at ? "disabled" : "active"),
					[ago(one.created_at), " by ", said(one.created_by)],
					h(
						"div.row",
						button(
							"Show",
							async () =>
								openDialog({
									title: line(one.name, 60),
									wide: true,
									body: jsonView(await get(`/users/${part(one.name)}`), { label: "User" }),
								}),
							SMALL,
						),
						may("admin") &&
							button(
								"Give a role",
								() => {
									const role = input({ autofocus: true });
									openDialog({
										title: `Give ${line(one.name, 40)} a role`,
										label: "Give",
										body: field("Role", role),
										act: async () => {
											await post(`/users/${part(one.name)}/grant`, { role: role.value.trim() });
											again();
										},
									});
								},
								SMALL,
							),
						may("admin") &&
							button(
								one.disabled_at ? "Enable" : "Disable",
								() =>
									one.disabled_at
										? attempt(async () => {
												await post(`/users/${part(one.name)}/enable`);
												again();
											})
										: confirm(
												"Disable",
												`${one.name} and the keys of ${one.name} are refused.`,
												() => post(`/users/${part(one.name)}/disable`),
												again,
											),
								{ kind: `small${one.disabled_at ? "" : " danger"}` },
							),
					),
				]),
			),
		),
});

/** @param {Context} context */
export function auditPage(context) {
	const query = Object.fromEntries(
		["actor", "operation", "target", "outcome"].map((name) => [name, context.query.get(name) ?? ""]),
	);
	let rows = [],
		next = null;
	const load = async (signal, cursor = null) => {
		const page = await get("/audit", { ...query, limit: 100, cursor }, signal);
		rows = cursor ? [...rows, ...page.audit] : page.audit;
		next = page.next;
		return { rows: [...rows], next };
	};
	const more = h("div.stack");
	const set = (name, value) => {
		query[name] = value;
		setQuery(query);
		page.again();
	};
	const box = (name, label) =>
		input({
			type: "search",
			placeholder: label,
			"aria-label": label,
			value: query[name],
			on: { change: (event) => set(name, event.target.value.trim()) },
		});
	const page = listPage(context, {
		title: "Audit",
		seconds: 20,
		load: (signal) => load(signal),
		actions: () => [
			box("actor", "Who"),
			box("operation", "Operation"),
			box("target", "About"),
			select(
				[
					["", "Any outcome"],
					["done", "Done"],
					["refused", "Refused"],
					["failed", "Failed"],
				],
				query.outcome,
				(value) => set("outcome", value),
				"Outcome",
			),
		],
		draw: (told) => {
			show(told);
			return more;
		},
	});
	const show = ({ rows: list, next: cursor }) =>
		put(
			more,
			list.length
				? h(
						"div.card",
						table(
							"Entries",
							["Time", "Who", "Operation", "About", "Outcome", "Key", "From"],
							list.map((one) => [
								moment(one.at),
								said(one.actor ?? "–"),
								words(one.operation.replaceAll(".", " ")),
								one.target ? said(one.target, 60) : "–",
								badge(
									one.outcome === "done" ? "succeeded" : one.outcome === "refused" ? "cancelled" : "failed",
									words(one.outcome) + (one.code ? `: ${line(one.code, 40)}` : ""),
								),
								one.key ? h("code", line(one.key, 24)) : "–",
								line(one.address ?? one.source ?? "–", 40),
							]),
						),
					)
				: empty("book", "No entry matches"),
			cursor ? button("Show older entries", () => attempt(async () => show(await load(context.signal, cursor)))) : null,
		);
	return page;
}
