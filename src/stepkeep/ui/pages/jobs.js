/**
 * Jobs on many runs: how far each is, what it refused, and the button that stops it.
 */
import {
	ago,
	badge,
	button,
	confirmDialog,
	counted,
	empty,
	get,
	h,
	may,
	openDialog,
	part,
	post,
	said,
	table,
	words,
	SMALL,
} from "../kit.js";
import { jobRuns } from "../components/bulk.js";
import { listed } from "../components/list.js";

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
													confirmDialog(
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
