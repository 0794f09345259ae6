/**
 * What people do to a run, each as a dialog: approve, reject, decide, complete, send, start, cancel, run again, release.
 * Every page uses these, so that an action asks the same everywhere.
 */
import {
	area,
	ask,
	badge,
	facts,
	field,
	get,
	h,
	icon,
	inert,
	input,
	jsonView,
	line,
	may,
	named,
	note,
	once,
	openDialog,
	part,
	post,
	Problem,
	problemBox,
	put,
	readJson,
	refused,
	runLink,
	said,
	select,
	toast,
	toastDone,
	words,
} from "./kit.js";

const decided = () => document.dispatchEvent(new CustomEvent("stepkeep:decided"));

/** @type {Record<string, [title: string, done: string, kind: string]>} What people say at a gate. */
const VOTES = {
	approve: ["Approve", "Approved", "primary"],
	reject: ["Reject", "Rejected", "danger"],
	"request-changes": ["Request changes", "Changes requested", "primary"],
};

/**
 * Asks for a decision about open gates and sends it. What was shown on the card is shown here, too.
 * @param {"approve" | "reject" | "request-changes"} choice
 * @param {{run_id: string, step: string, prompt?: string, facts?: any, rule?: string | null, reason?: string | null}[]} gates
 * @param {() => void} done
 */
export function gateDialog(choice, gates, done) {
	const [title, past, kind] = VOTES[choice],
		isNeeded = choice === "request-changes",
		comment = area({ rows: "3", placeholder: "Kept with the decision", autofocus: true }),
		left = [...gates];
	openDialog({
		title: gates.length > 1 ? `${title}: ${gates.length} gates` : title,
		label: title,
		kind,
		body: [
			gates.map((one) => h("div.stack.tight.asked", h("p", h("bdi", inert(questionOf(one)))), gateFacts(one))),
			field("Comment", comment, isNeeded ? "What is to change. The gate stays open." : undefined),
		],
		act: async () => {
			if (isNeeded && !comment.value.trim()) throw new TypeError("Say what is to change.");
			// What is refused stays in the dialog; what was decided before it is decided.
			while (left.length) {
				const [{ run_id: run, step }] = left;
				const told = await post(`/runs/${run}/${choice}`, { step, comment: comment.value });
				left.shift();
				if (gates.length === 1) toastDone(told, past);
			}
			if (gates.length > 1) toast("ok", `${past}: ${gates.length} gates`);
			decided();
			done();
		},
	});
}

/** What a gate asks. @param {{prompt?: string, step: string}} gate */
export const questionOf = (gate) => gate.prompt || `May ${gate.step} go on?`;

/**
 * The rule that holds a step, and the facts on which people decide: in the order in which they were written.
 * @param {{rule?: string | null, reason?: string | null, facts?: any}} gate
 */
export function gateFacts({ rule, reason, facts: shown }) {
	const all = Object.entries(shown ?? {}),
		isSimple = all.length <= 12 && all.every(([, value]) => value === null || typeof value !== "object");
	return [
		rule
			? h(
					"p.row.rule",
					icon("shield"),
					h("span", reason ? [said(reason, 400), " "] : null, h("span.faint", `Held by ${inert(rule)}.`)),
				)
			: null,
		!all.length
			? null
			: isSimple
				? facts(all.map(([name, value]) => [said(words(name), 60), said(value === null ? "–" : value, 400)]))
				: jsonView(shown, { label: "Facts" }),
	];
}

/** @type {Record<string, string>} */
const CHOICES = {
	retry: "Retry: all attempts again",
	skip: "Skip: go on without it",
	complete: "Complete: it has succeeded, with this output",
	fail: "Fail: the step has failed",
};
/** What may be decided about a step that holds or is stuck: the service says it. A gate has other choices.
 * @param {Pick<Answers.StepDetail, "choices"> | undefined} step */
export const decidable = (step) => (step?.choices ?? []).filter((one) => one in CHOICES);

/**
 * A person decides about a step that holds, or that is stuck.
 * @param {string} run @param {any} step its body @param {() => void} done @param {string} [chosen]
 */
export function holdDialog(run, step, done, chosen = decidable(step)[0]) {
	const output = area({ class: "code", rows: "3", placeholder: "JSON" }),
		box = field("Output", output);
	/** @param {string} value */
	const show = (value) => {
		box.hidden = value !== "complete";
	};
	const choice = select(
		decidable(step).map((one) => [one, CHOICES[one]]),
		chosen,
		show,
	);
	const holds = step.state === "awaiting_approval";
	const given = () =>
		choice.value !== "complete"
			? { choice: choice.value }
			: { choice: choice.value, output: readJson(output.value, "The output") ?? null };
	show(chosen);
	ask({
		title: `Decide about ${line(step.name, 60)}`,
		label: "Decide",
		done: "Decided",
		isNeeded: !holds,
		given,
		text: holds
			? "No attempt is left. The step holds until it is decided."
			: "The step waits. What you decide is kept on record with its reason.",
		more: [field("Decision", choice), box],
		path: `/runs/${run}/steps/${named(step.name)}/decide`,
		then: () => {
			decided();
			done();
		},
	});
}

/** @param {string} run @param {string} step @param {() => void} done */
export function completeDialog(run, step, done) {
	const token = input({ autofocus: true }),
		outcome = select(
			[
				["Succeeded", "Succeeded"],
				["Failed", "Failed"],
				["Cancelled", "Cancelled"],
			],
			"Succeeded",
		),
		output = area({ class: "code", rows: "3", placeholder: "JSON" }),
		notes = area({ rows: "2" });
	const lost = h(
		"button.button.small",
		{
			type: "button",
			on: {
				click: async () => {
					try {
						const told = await post(`/runs/${run}/steps/${named(step)}/token`, {
							reason: "asked for on the page of the run",
						});
						token.value = told.token;
						toast("ok", "A new token. The old one is useless from now on.");
					} catch (error) {
						refused(error);
						toast("bad", error.message);
					}
				},
			},
		},
		"Replace a lost token",
	);
	openDialog({
		title: `Complete ${line(step, 60)}`,
		label: "Complete",
		extra: lost,
		body: [
			field("Completion token", token, "It was given to the step's handler."),
			field("Outcome", outcome),
			field("Output", output),
			field("Notes", notes),
		],
		act: async () => {
			const value = readJson(output.value, "The output");
			const told = await post(`/runs/${run}/steps/${named(step)}/complete`, {
				token: token.value.trim(),
				outcome: outcome.value,
				notes: notes.value,
				...(value === undefined ? {} : { output: value }),
			});
			toastDone(told, "Completed");
			done();
		},
	});
}

/** @param {string} run @param {string} name @param {() => void} done */
export function sendDialog(run, name, done) {
	const which = input({ value: name, autofocus: !name }),
		payload = area({ class: "code", rows: "4", placeholder: "JSON" });
	openDialog({
		title: "Send a message",
		label: "Send",
		body: [field("Message", which), field("Payload", payload)],
		act: async () => {
			const value = readJson(payload.value, "The payload");
			const body = { name: which.value.trim(), ...(value === undefined ? {} : { payload: value }) };
			const told = await post(`/runs/${run}/messages`, body, once());
			toastDone(told, "Sent");
			done();
		},
	});
}

/** @param {any} view the body of the run @param {() => void} done */
export function cancelDialog(view, done) {
	const undo = h("input", { type: "checkbox", on: { change: () => void preview() } }),
		shown = h("div", { role: "status" }),
		run = view.run.id;
	async function preview() {
		put(shown);
		if (!undo.checked) return;
		const told = await get(`/runs/${run}/rollback`).catch(refused);
		if (undo.checked) put(shown, told instanceof Problem ? problemBox(told.message) : rollbackView(told));
	}
	ask({
		title: "Cancel the run",
		kind: "danger",
		done: "Cancelled",
		below: [h("label.row", undo, "Undo first what the run did"), shown],
		path: `/runs/${run}/cancel`,
		given: () => ({ compensate: undo.checked }),
		then: done,
	});
}

/** @param {string} title @param {any[]} rows steps, or their names */
const list = (title, rows) =>
	rows.length
		? [
				h("h3", title),
				h(
					"ol.plain-list",
					rows
						.slice(0, 100)
						.map((one) =>
							h(
								"li.row",
								said(one.step ?? one, 80),
								one.level ? runLink(one.run_id) : null,
								one.says && h("span.muted", line(one.says, 200)),
							),
						),
				),
			]
		: null;

/** What a cancel with undo would do. @param {any} told */
function rollbackView(told) {
	if (!told.possible) return problemBox(told.refusal?.message ?? told.refusal ?? "This run cannot be rolled back.");
	return h(
		"div.stack.tight",
		told.undo.length ? list("Undone, in this order", told.undo) : h("p.muted", "There is nothing to undo."),
		list("Stays as it is", told.cannot_undo),
		list("Running now, and told to stop", told.running),
		h("p.row", "The run then ends as ", badge(told.ends), note("undo", "undo", `rollback ${told.rollback}`)),
	);
}

/**
 * Go on under another version: one run, or every live run of a version, after a preview of what that means.
 * @param {{workflow: string, of: number, run?: string, to?: number}} what @param {(told: any) => void} done
 */
export async function migrateDialog({ workflow, of, run, to }, done) {
	const { definitions } = await get("/workflows", { name: workflow, limit: 200 }),
		others = definitions.map((one) => one.version).filter((one) => one !== of);
	if (!others.length) return toast("wait", "There is no other version of the workflow.");
	const [path, look] = run
			? [`/runs/${run}/migrate`, `/runs/${run}/migration-preview`]
			: [`/migrations/${part(workflow)}`, `/migrations/${part(workflow)}/preview`],
		shown = h("div.stack.tight", { role: "status" });
	const choice = select(
			others.map((one) => [String(one), `Version ${one}`]),
			String(to ?? others.at(-1)),
			() => void preview(),
		),
		given = () => ({ to: Number(choice.value), ...(run ? {} : { of }) });
	async function preview() {
		const told = await post(look, given()).catch(refused);
		put(
			shown,
			told instanceof Problem
				? problemBox(told.message)
				: run
					? told.allowed
						? [
								list("Adopted as it is", told.adopted),
								list("Runs under the new version", told.runs),
								list("People are asked anew", told.reopens),
								list("Not there any more", told.removed),
							]
						: problemBox(`The run stays with its version: ${told.reasons.join("; ")}.`)
					: [
							h(
								"p.row",
								note("ok", "check", `${told.could_migrate} can be migrated`),
								note(told.must_stay ? "wait" : "idle", "hand", `${told.must_stay} must stay`),
							),
							h(
								"ul.stack.tight",
								told.reasons.map((/** @type {Answers.WhyNotMigrated} */ one) =>
									h("li", `${one.runs}: `, said(one.reason, 300)),
								),
							),
						],
		);
	}
	ask({
		title: run ? "Migrate the run" : `Migrate the live runs of version ${of}`,
		label: "Migrate",
		more: [field("To", choice), shown],
		path,
		given,
		then: done,
		text: "A run ends as cancelled, and a new one adopts what has settled: both, or neither.",
	});
	await preview();
}

/** Pause a run, or go on with it. @param {string} run @param {"pause" | "resume"} what @param {() => void} done */
export function pauseDialog(run, what, done) {
	const isPause = what === "pause";
	ask({
		title: isPause ? "Pause the run" : "Go on with the run",
		label: isPause ? "Pause" : "Resume",
		done: isPause ? "Paused" : "Resumed",
		path: `/runs/${run}/${what}`,
		then: done,
		text: isPause
			? "Nothing more of it is claimed. What is under way ends by itself; deadlines and the timeout go on."
			: "Its steps can be claimed again.",
	});
}

/** Ends the pause of a queue or of the tenant. @param {{scope: string, queue?: string}} pause */
export const resumeClaims = ({ scope, queue }) => post(`/pauses/${scope}/resume`, scope === "queue" ? { queue } : {});

/**
 * Ends the pause that holds a run back.
 * @param {string} run @param {{scope: string, queue?: string}} pause @param {() => void} done
 */
function resumeDialog(run, pause, done) {
	if (pause.scope === "run") return pauseDialog(run, "resume", done);
	const queue = pause.queue ? `queue ${line(pause.queue, 60)}` : "the default queue";
	openDialog({
		title: `Resume ${pause.scope === "tenant" ? "the whole tenant" : queue}`,
		label: "Resume",
		done: "Resumed",
		body: h("p", "Workers claim from it again, for every run."),
		act: async () => {
			await resumeClaims(pause);
			done();
		},
	});
}

/** @param {string} run @param {"quarantine" | "release"} what @param {() => void} done */
export function quarantineDialog(run, what, done) {
	const isEnd = what === "release";
	ask({
		title: isEnd ? "End the quarantine" : "Quarantine the run",
		label: isEnd ? "Release" : "Quarantine",
		kind: isEnd ? "primary" : "danger",
		isNeeded: true,
		path: `/runs/${run}/${what}`,
		then: done,
		text: isEnd
			? "Workers may claim its steps again."
			: "Nothing claims, changes or deletes the run until it is released.",
	});
}

const RESUME = { run: "Resume", queue: "Resume the queue", tenant: "Resume the tenant" };

/**
 * The buttons that move a run whose explanation says this. What may be decided and which pause it is comes from the
 * service; a cause without a command that waits for people is one that the reader may not end.
 * @param {Answers.CauseView} cause @param {any} view the body of the run @param {() => void} done
 * @returns {{label: string, kind: string, icon: string, act: () => any}[]}
 */
export function moves(cause, view, done) {
	const run = view.run.id,
		name = cause.subject,
		/** @type {Answers.StepDetail | undefined} */
		step = view.steps.find((/** @type {Answers.StepDetail} */ one) => one.name === name),
		/** @type {Answers.Waiting | undefined} */
		shown = view.run.waiting_for.find((/** @type {Answers.Waiting} */ one) => one.step === name);
	/** @param {Answers.Scope} scope @param {string} label @param {string} kind @param {string} icon @param {() => any} act */
	const offer = (scope, label, kind, icon, act) => (may(scope) ? [{ label, kind, icon, act }] : []);
	/** @param {"approve" | "reject"} choice @param {string} label @param {string} kind @param {string} icon */
	const gate = (choice, label, kind, icon) =>
		cause.command && step?.choices.includes(choice)
			? offer("decide", label, kind, icon, () => gateDialog(choice, [{ ...shown, run_id: run, step: name }], done))
			: [];
	const choices = decidable(step),
		decide = (/** @type {string} */ chosen) => () => holdDialog(run, step, done, chosen);
	switch (cause.code) {
		case "approval":
			return [...gate("approve", "Approve", "good", "check"), ...gate("reject", "Reject", "danger", "cross")];
		case "decision": {
			if (!cause.command) return [];
			const [other, label] = choices.includes("skip") ? ["skip", "Skip or fail"] : ["fail", "Fail"];
			return [
				...offer("decide", "Retry", "primary", "retry", decide("retry")),
				...offer("decide", label, "", "hand", decide(other)),
			];
		}
		case "retry":
			return choices.length ? offer("decide", "Retry now or decide", "", "hand", decide("retry")) : [];
		case "completion":
			if (!cause.command) return [];
			return offer("complete", "Complete", "primary", "check", () => completeDialog(run, name, done));
		case "event":
			return offer("complete", "Send the message", "primary", "send", () => sendDialog(run, shown?.event ?? "", done));
		case "not_started":
		case "scheduled":
			return offer("start", "Start now", "primary", "play", async () => {
				toastDone(await post(`/runs/${run}/start`, {}), "Started");
				done();
			});
		case "paused":
			return offer("operate", RESUME[cause.pause.scope], "primary", "play", () => resumeDialog(run, cause.pause, done));
		case "quarantined":
			return offer("operate", "Release", "primary", "shield", () => quarantineDialog(run, "release", done));
		case "stuck":
			return offer("operate", "Cancel the run", "danger", "slash", () => cancelDialog(view, done));
		default:
			return [];
	}
}
