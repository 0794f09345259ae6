/**
 * API keys: made, replaced and revoked.
 */
import {
	ago,
	badge,
	button,
	confirmDialog,
	copyButton,
	countdown,
	empty,
	field,
	h,
	inert,
	input,
	may,
	openDialog,
	part,
	post,
	said,
	send,
	session,
	table,
	words,
	SMALL,
} from "../kit.js";
import { listPage, paged } from "../components/list.js";

/** @param {Context} context */
export const keysPage = (context) => {
	const keys = paged("/api-keys", "keys");
	return listPage(context, {
		title: "API keys",
		load: (signal) => keys.read(signal),
		actions: (again) =>
			may("admin") &&
			button(
				"Make a key",
				() => {
					const owner = input({ autofocus: true }),
						boxes = ["read", "start", "decide", "complete", "operate", "work", "admin", "vouch", "metrics"].map(
							(one) => [one, h("input", { type: "checkbox", checked: one === "read" })],
						);
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
		draw: (/** @type {Answers.Key[]} */ list, again) =>
			list.length
				? [
						h(
							"div.card",
							table(
								"Keys",
								["Key", "Owner", "State", "Scopes", "Made", "Ends", ""],
								list.map((one) => [
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
															confirmDialog(
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
						),
						keys.more(again),
					]
				: empty("key", "No keys"),
	});
};

/** @param {Answers.MadeKey} made */
function secret(made) {
	const text = made.secret ?? "";
	openDialog({
		title: "The new key",
		body: [
			h("p", "It is shown once. Keep it where only its owner can read it."),
			h("p.row", h("code", inert(text)), copyButton(text, "Copy the key")),
		],
	});
}
