/**
 * The people and services that are registered, with what they may do: roles, groups, and for whom they decide.
 */
import {
	ago,
	attempt,
	badge,
	button,
	confirmDialog,
	field,
	get,
	h,
	input,
	jsonView,
	line,
	may,
	moment,
	note,
	openDialog,
	part,
	post,
	said,
	select,
	session,
	SMALL,
	table,
	words,
} from "../kit.js";
import { listPage, paged } from "../components/list.js";

/** So many users are read with their roles at once. */
const DETAILED = 50;

/** @typedef {Answers.User & Partial<Answers.UserDetails>} Person */

/** @param {Context} context */
export function usersPage(context) {
	const users = paged("/users", "users"),
		delegations = paged("/delegations", "delegations", 200);
	return listPage(context, {
		title: "Users",
		load: async (signal) => {
			const [found, given] = await Promise.all([users.read(signal), delegations.read(signal)]);
			const details = await Promise.all(
				found.slice(0, DETAILED).map((one) => get(`/users/${part(one.name)}`, {}, signal)),
			);
			/** @type {Person[]} */
			const all = [...details.map((one) => one.user), ...found.slice(DETAILED)];
			return { all, given: /** @type {Answers.Delegation[]} */ (given).filter((one) => !one.revoked_at) };
		},
		actions: (again) => [
			may("decide") && button("Delegate", () => delegateDialog(again), { icon: "people" }),
			may("admin") && button("Register a user", () => registerDialog(again), { icon: "plus", kind: "primary" }),
		],
		draw: ({ all, given }, again) => [
			h(
				"div.card",
				table(
					"Users",
					["Name", "Kind", "State", "Roles and groups", "Decides for", "Registered", ""],
					all.map((one) => row(one, given, again)),
				),
			),
			users.more(again),
			given.length
				? h(
						"section.card",
						h("header", h("h2", "Delegations")),
						table(
							"Delegations",
							["Who decides", "For", "From", "To", "Reason", ""],
							given.map((one) => delegationRow(one, again)),
						),
					)
				: null,
		],
	});
}

/** @param {Person} one @param {Answers.Delegation[]} given @param {() => void} again */
function row(one, given, again) {
	const rights = (one.memberships ?? []).filter((right) => !right.revoked_at),
		decidesFor = given.filter((each) => each.delegate === one.name);
	return [
		[h("b", said(one.name)), one.display && one.display !== one.name ? h("div.muted", said(one.display)) : null],
		words(one.kind),
		badge(one.disabled_at ? "disabled" : "active"),
		rights.length
			? h(
					"span.chips",
					rights.map((right) => rightChip(one, right, again)),
				)
			: "–",
		decidesFor.length ? line(decidesFor.map((each) => each.delegator).join(", "), 80) : "–",
		[ago(one.created_at), " by ", said(one.created_by)],
		h(
			"div.row",
			button("Show", () => show(one.name), SMALL),
			may("admin") && button("Give a role", () => giveDialog(one.name, again), SMALL),
			may("admin") && toggle(one, again),
		),
	];
}

/** @param {Person} one @param {Answers.Membership} right @param {() => void} again */
function rightChip(one, right, again) {
	const name = right.role ?? right.group ?? "",
		kind = right.role ? "role" : "group";
	return h(
		"span.chip",
		{ title: `${kind} ${line(name, 60)}${right.valid_to ? `, until ${right.valid_to}` : ""}` },
		right.role ? null : h("span.faint", "group "),
		line(name, 40),
		may("admin")
			? button(
					`Take the ${kind} ${line(name, 40)} from ${line(one.name, 40)}`,
					() =>
						confirmDialog(
							`Take the ${kind}`,
							`${line(one.name, 60)} no longer has the ${kind} ${line(name, 60)}. Decisions made before stay.`,
							() => post(`/users/${part(one.name)}/revoke`, { [kind]: name }),
							again,
						),
					{ kind: "plain small", icon: "cross", hidden: true },
				)
			: null,
	);
}

/** @param {Answers.Delegation} one @param {() => void} again */
function delegationRow(one, again) {
	const isOver = one.valid_to && Date.parse(one.valid_to) < Date.now();
	return [
		h("b", said(one.delegate)),
		said(one.delegator),
		moment(one.valid_from ?? one.granted_at),
		one.valid_to ? [moment(one.valid_to), isOver ? note("idle", "clock", "over") : null] : "open",
		said(one.reason || "–", 120),
		!isOver && (may("admin") || (may("decide") && one.delegator === session()?.principal))
			? h(
					"div.row",
					button(
						"End",
						() =>
							confirmDialog(
								"End the delegation",
								`${line(one.delegate, 60)} no longer decides for ${line(one.delegator, 60)}.`,
								() => post("/delegations/end", { delegator: one.delegator, to: one.delegate }),
								again,
							),
						{ kind: "small danger" },
					),
				)
			: null,
	];
}

/** @param {Person} one @param {() => void} again */
const toggle = (one, again) =>
	button(
		one.disabled_at ? "Enable" : "Disable",
		() =>
			one.disabled_at
				? attempt(async () => {
						await post(`/users/${part(one.name)}/enable`);
						again();
					})
				: confirmDialog(
						"Disable",
						`${one.name} and the keys of ${one.name} are refused.`,
						() => post(`/users/${part(one.name)}/disable`),
						again,
					),
		{ kind: `small${one.disabled_at ? "" : " danger"}` },
	);

/** @param {string} name */
const show = (name) =>
	attempt(async () =>
		openDialog({
			title: line(name, 60),
			wide: true,
			body: jsonView(await get(`/users/${part(name)}`), { label: "User" }),
		}),
	);

/** @param {() => void} again */
function registerDialog(again) {
	const name = input({ autofocus: true }),
		display = input(),
		kind = select(
			[
				["user", "A person"],
				["service", "A service"],
			],
			"user",
		);
	openDialog({
		title: "Register a user",
		label: "Register",
		body: [field("Name", name), field("Shown as", display), field("Kind", kind)],
		act: async () => {
			const shown = display.value.trim();
			await post("/users", { name: name.value.trim(), kind: kind.value, ...(shown ? { display: shown } : {}) });
			again();
		},
	});
}

/** @param {string} name @param {() => void} again */
function giveDialog(name, again) {
	const right = input({ autofocus: true }),
		kind = select(
			[
				["role", "Role"],
				["group", "Group"],
			],
			"role",
			undefined,
			"What",
		),
		until = input({ type: "datetime-local" });
	openDialog({
		title: `Give ${line(name, 40)} a role`,
		label: "Give",
		body: [
			field("What", kind),
			field("Role", right, "The name of the role or of the group."),
			field("Until", until, "Empty: without an end."),
		],
		act: async () => {
			const end = until.value ? { valid_to: new Date(until.value).toISOString() } : {};
			await post(`/users/${part(name)}/grant`, { [kind.value]: right.value.trim(), ...end });
			again();
		},
	});
}

/** One person decides for another one, until a moment or until it is ended. @param {() => void} again */
function delegateDialog(again) {
	const delegator = input({ value: session()?.principal ?? "", readonly: !may("admin") }),
		to = input({ autofocus: true }),
		until = input({ type: "datetime-local" }),
		reason = input();
	openDialog({
		title: "Delegate",
		label: "Delegate",
		done: "Delegated",
		body: [
			h("p", "Who decides acts with the roles of the other one. Both names are on record."),
			field("For", delegator, "Whose decisions they are."),
			field("Who decides", to),
			field("Until", until, "Empty: until it is ended."),
			field("Reason", reason),
		],
		act: async () => {
			const end = until.value ? { valid_to: new Date(until.value).toISOString() } : { open_ended: true };
			await post("/delegations", {
				delegator: delegator.value.trim(),
				to: to.value.trim(),
				reason: reason.value,
				...end,
			});
			again();
		},
	});
}
