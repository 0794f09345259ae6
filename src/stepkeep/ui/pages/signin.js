/**
 * Signing in with an API key. The key is sent once; the browser keeps a session instead of it.
 */
import { field, h, icon, inert, input, put, refused } from "../kit.js";

/** @param {(key: string) => Promise<void>} enter */
export function signInPage(enter) {
	const key = input({
		type: "password",
		name: "key",
		placeholder: "sk_…",
		required: true,
		autocomplete: "current-password",
	});
	const problem = h("div.problem", { role: "alert" });
	const submit = h("button.button.primary", { type: "submit" }, "Sign in");
	/** @param {Event} event */
	async function send(event) {
		event.preventDefault();
		put(problem);
		submit.disabled = true;
		try {
			await enter(key.value.trim());
		} catch (error) {
			refused(error);
			put(
				problem,
				icon("warn"),
				h("span", error.status === 401 || error.status === 400 ? "This is no valid key." : inert(error.message)),
			);
			key.focus();
		} finally {
			submit.disabled = false;
		}
	}
	return h(
		"main.signin",
		h(
			"form.card",
			{ on: { submit: send } },
			h("img", { src: new URL("../icon.svg", import.meta.url).pathname, alt: "", width: "40", height: "40" }),
			h("h1", "Sign in to Stepkeep"),
			field("API key", key, "It is sent once and not kept in the browser."),
			problem,
			submit,
			h(
				"p.muted",
				"No key yet? ",
				h("code", "stepkeep keys create USER"),
				" makes one. ",
				h("code", "stepkeep dev"),
				" opens this page signed in.",
			),
		),
	);
}
