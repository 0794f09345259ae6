/**
 * Revisions of the policy.
 */
import {
	area,
	button,
	empty,
	field,
	get,
	h,
	jsonView,
	may,
	moment,
	openDialog,
	part,
	post,
	readJson,
	said,
	table,
	SMALL,
} from "../kit.js";
import { listed } from "../components/list.js";

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
							moment(one.published_at),
							said(one.published_by),
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
