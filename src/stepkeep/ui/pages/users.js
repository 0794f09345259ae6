/**
 * The people and services that are registered.
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
	openDialog,
	part,
	post,
	said,
	table,
	words,
	SMALL,
} from "../kit.js";
import { listed } from "../components/list.js";

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
										: confirmDialog(
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
