/**
 * Keys that work everywhere and those of the page in sight. A key pressed in a field belongs to the field.
 */

const PREFIX_SECONDS = 1.2;

/** @param {() => Keys} keys the keys of now: "j", "?", "g r", "ctrl+k" */
export function startKeyboard(keys) {
	let prefix = "",
		since = 0;
	document.addEventListener("keydown", (event) => {
		if (event.defaultPrevented) return;
		const inField = event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
		const name = `${event.ctrlKey || event.metaKey ? "ctrl+" : ""}${event.altKey ? "alt+" : ""}${event.key.length === 1 ? event.key : event.key.toLowerCase()}`;
		if (inField && !name.startsWith("ctrl+")) {
			if (event.key === "Escape" && !document.querySelector("dialog[open]")) event.target.blur();
			return;
		}
		if (document.querySelector("dialog[open]")) return;
		const known = keys(),
			isFollowing = prefix && performance.now() - since < PREFIX_SECONDS * 1000;
		const found = (isFollowing && known[`${prefix} ${name}`]) || known[name];
		prefix = "";
		if (found) {
			// Enter on a control does what the control does.
			if (name === "enter" && event.target.closest?.("a, button, summary, [role=tab], .node")) return;
			event.preventDefault();
			found.act(event);
		} else if (Object.keys(known).some((one) => one.startsWith(`${name} `))) {
			prefix = name;
			since = performance.now();
		}
	});
}
