/**
 * The errors that stopped runs: grouped by workflow, step and message, with how many, since when, and the way on.
 */
import {
	ago,
	button,
	counted,
	empty,
	get,
	h,
	href,
	line,
	link,
	may,
	note,
	runLink,
	said,
	select,
	setQuery,
	SMALL,
	table,
	words,
} from "../kit.js";
import { bulkDialog } from "../components/bulk.js";
import { spark, WINDOWS } from "../components/chart.js";
import { listPage } from "../components/list.js";

/** Runs that failed because of their error, and not because a person cancelled them. */
const STOPPED = ["failed", "rolled_back"];

/** @param {Context} context */
export function errorsPage(context) {
	let window = context.query.get("window") ?? "24h";
	const workflow = context.query.get("workflow");
	const page = listPage(context, {
		title: workflow ? `Errors of ${line(workflow, 60)}` : "Errors",
		seconds: 20,
		load: (signal) => get("/errors", { window, workflow }, signal),
		actions: () =>
			select(
				WINDOWS,
				window,
				(next) => {
					window = next;
					setQuery({ window: next });
					page.again();
				},
				"Window",
			),
		draw: ({ errors, looked_at: looked, is_complete: isComplete, since }, again) => [
			workflow ? h("p", link("/errors", "Errors of all workflows")) : null,
			errors.length
				? h(
						"div.card",
						table(
							"Errors",
							["Error", "Where", "Runs", "Over time", "Last", "First", ""],
							errors.map((one) => row(one, since, again)),
						),
					)
				: empty("check", "Nothing was stopped by an error", "Runs that fail show up here, grouped by what they say."),
			errors.length
				? h(
						"p.faint",
						`${counted(looked, "stopped run")} of the window${isComplete ? "" : ", the newest,"} looked at. Numbers and ids in messages are #.`,
					)
				: null,
		],
	});
	return page;
}

/** @param {Answers.ErrorGroup} one @param {string | null} since @param {() => void} again */
function row(one, since, again) {
	// Without a part that every message has, the runs cannot be found by their error.
	const where = one.term && one.workflow ? { workflow: one.workflow, error: one.term, since, state: STOPPED } : null,
		count = h("b.num", one.runs.toLocaleString("en"));
	return [
		[
			h("div.message", said(one.message, 240)),
			one.category ? note("bad", "cross", words(one.category).toLowerCase()) : null,
		],
		[
			one.workflow ? link(`/workflows/${encodeURI(one.workflow)}`, said(one.workflow, 60)) : "–",
			h("div.muted", one.step ? said(one.step, 60) : "the run itself"),
			one.versions.length ? h("div.faint", `version ${one.versions.join(", ")}`) : null,
		],
		where ? h("a", { href: href("/runs", where) }, count) : count,
		spark(`Runs stopped by ${line(one.message, 60)}`, one.spans),
		ago(one.last_at),
		ago(one.first_at),
		h(
			"div.row",
			h("span.muted", "Newest: ", runLink(one.newest_run)),
			where && may("start") && button("Retry all", () => bulkDialog("retry", [], again, where), SMALL),
		),
	];
}
