/**
 * Revisions of the policy: what each says, what it changed, and the next one, shown as a difference before it counts.
 */
import {
	area,
	attempt,
	button,
	confirmDialog,
	empty,
	field,
	get,
	h,
	jsonView,
	may,
	moment,
	note,
	openDialog,
	part,
	post,
	put,
	readJson,
	said,
	SMALL,
	table,
} from "../kit.js";
import { differenceTable } from "../components/difference.js";
import { listPage, paged } from "../components/list.js";

/** The rules of a revision. @param {number} revision */
const read = async (revision) => (await get(`/policies/${part(String(revision))}`)).document;

/** Fields that are stored as microseconds and written as durations. */
const TIMES = new Set(["per", "deadline", "after", "remind"]);

/**
 * Stored rules as people write them, for a text to begin with: durations with a unit, without what is empty.
 * @param {any} value @param {string} [name] @returns {any}
 */
function written(value, name = "") {
	if (typeof value === "number" && TIMES.has(name))
		return value % 3_600_000_000 ? `${value / 1000}ms` : `${value / 3_600_000_000}h`;
	if (Array.isArray(value)) return value.map((one) => written(one, name));
	if (value === null || typeof value !== "object") return value;
	const kept = Object.entries(value).filter(([, one]) => one !== null && one !== "" && one?.length !== 0);
	return Object.fromEntries(
		kept.flatMap(([key, one]) =>
			key === "limits" ? Object.entries(one) : [[key === "excluded" ? "not" : key, written(one, key)]],
		),
	);
}

/** @param {Context} context */
export function policiesPage(context) {
	const policies = paged("/policies", "policies");
	/** @type {Answers.PolicyRevision | undefined} */
	let newest;
	return listPage(context, {
		title: "Policies",
		load: async (signal) => {
			const found = /** @type {Answers.PolicyRevision[]} */ (await policies.read(signal));
			newest = found.reduce((best, one) => (best && best.revision > one.revision ? best : one), undefined);
			return found;
		},
		actions: (again) =>
			may("admin") && [
				button("Switch off", () => switchOff(again), { kind: "danger" }),
				button("Publish a policy", () => attempt(() => publishDialog(newest, again)), {
					icon: "plus",
					kind: "primary",
				}),
			],
		draw: (list, again) =>
			list.length
				? [
						h(
							"div.card",
							table(
								"Revisions",
								["Revision", "Policy", "Published", "By", ""],
								list.map((one) => [
									[h("b", String(one.revision)), one === newest ? note("ok", "check", "in force") : null],
									said(one.policy, 80),
									moment(one.published_at),
									said(one.published_by),
									h(
										"div.row",
										button("Show", () => attempt(() => showDialog(one)), SMALL),
										one.revision > 1
											? button("What changed", () => attempt(() => changeDialog(one.revision)), SMALL)
											: null,
									),
								]),
							),
						),
						policies.more(again),
					]
				: empty(
						"shield",
						"No policy",
						"Rules decide which starts, steps and gates are allowed. ",
						h("code", "stepkeep policies publish FILE"),
					),
	});
}

/** @param {Answers.PolicyRevision} one */
async function showDialog({ revision }) {
	openDialog({ title: `Revision ${revision}`, wide: true, body: jsonView(await read(revision)) });
}

/** @param {number} revision */
async function changeDialog(revision) {
	const [old, now] = await Promise.all([read(revision - 1), read(revision)]);
	openDialog({
		title: `What revision ${revision} changed`,
		wide: true,
		body: differenceTable("Differences", [`Revision ${revision - 1}`, `Revision ${revision}`], old, now),
	});
}

/** @param {() => void} again */
const switchOff = (again) =>
	confirmDialog(
		"Switch off",
		"A revision without rules is published: no start, step or gate is held or refused by a policy.",
		() => post("/policies/off"),
		again,
	);

/**
 * The first press shows what differs from the rules in force, the second one publishes.
 * @param {Answers.PolicyRevision | undefined} newest @param {() => void} again
 */
async function publishDialog(newest, again) {
	const { name, ...rules } = newest ? written(await read(newest.revision)) : { name: "house rules", rules: [] };
	const before = { policy: name, rules: [], ...rules };
	const text = area({ class: "code", rows: "14", value: JSON.stringify(before, null, 2) }),
		out = h("div.stack.tight", { role: "status" });
	let looked = "";
	const dialog = openDialog({
		title: "Publish a policy",
		label: "Look",
		wide: true,
		body: [field("Policy", text, "JSON, with the rules in force to begin with."), out],
		act: async () => {
			const policy = readJson(text.value, "The policy");
			if (looked === text.value) {
				await post("/policies", { policy });
				again();
				return true;
			}
			looked = text.value;
			put(out, h("h3", "What changes"), differenceTable("Differences", ["In force", "New"], before, policy));
			put(/** @type {Element} */ (dialog.element.querySelector("[type=submit]")), "Publish");
			return false;
		},
	});
	text.addEventListener("input", () => {
		looked = "";
		put(/** @type {Element} */ (dialog.element.querySelector("[type=submit]")), "Look");
	});
}
