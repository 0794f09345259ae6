/**
 * Starts the pages: signs the reader in, draws the frame, and shows the page of the address.
 * A page is a function that gets a `Context` and returns its element; `context.signal` ends with it.
 */
import {
	button,
	empty,
	every,
	focusOn,
	get,
	go,
	h,
	href,
	icon,
	inert,
	match,
	may,
	onSignedOut,
	openDialog,
	path,
	Problem,
	problemBox,
	put,
	refused,
	resume,
	session,
	signIn,
	signOut,
	startRouter,
	startTicking,
	toast,
} from "./kit.js";
import { openPalette } from "./components/palette.js";
import { startKeyboard } from "./keyboard.js";
import { PAGES } from "./pages.js";
import { signInPage } from "./pages/signin.js";

const THEMES = ["system", "light", "dark"];
const main = h("main", { id: "main", tabindex: "-1" });
const live = h("div.live", { role: "status", data: { live: "none" } }, h("span", "Live"));
let controller = new AbortController();
/** @type {Page | null} */
let current = null;
/** @type {Map<string, any>} */
const links = new Map();
/** The pages that the scopes of the reader open. */
const pages = () => PAGES.filter((one) => may(one.scope ?? "read"));

const theme = () => document.documentElement.dataset.theme ?? "system";

/** @param {string} next */
function setTheme(next) {
	if (next === "system") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = next;
	localStorage.setItem("stepkeep.theme", next);
	for (const one of document.querySelectorAll("[data-theme-choice]")) {
		one.setAttribute("aria-pressed", String(one.dataset.themeChoice === next));
	}
}

function themeSwitch() {
	return h(
		"div.switch",
		{ role: "group", "aria-label": "Theme" },
		THEMES.map((one) =>
			h(
				"button",
				{
					type: "button",
					title: `Theme: ${one}`,
					"aria-label": `Theme: ${one}`,
					"aria-pressed": String(theme() === one),
					data: { themeChoice: one },
					on: { click: () => setTheme(one) },
				},
				icon(one === "system" ? "auto" : one === "light" ? "sun" : "moon"),
			),
		),
	);
}

/** @param {PageEntry} entry */
function navLink(entry) {
	const made = h(
		"a.nav",
		{ href: href(entry.path), title: entry.keys ? `${entry.label} (${entry.keys})` : null },
		icon(entry.icon),
		h("span", entry.label),
	);
	return made;
}

function frame() {
	const who = session();
	const shown = pages().filter((one) => one.label);
	/** @param {PageEntry[]} entries */
	const list = (entries, kind = "") =>
		h(
			"ul",
			{ class: kind },
			entries.map((entry) => {
				const made = navLink(entry);
				links.set(entry.path, made);
				return h("li", made);
			}),
		);
	const first = shown.filter((one) => one.group === "work"),
		rest = shown.filter((one) => one.group === "build"),
		people = shown.filter((one) => one.group === "admin");
	const side = h(
		"aside.side",
		{ "aria-label": "Menu" },
		h("a.brand", { href: href("/runs") }, mark(), "Stepkeep"),
		h(
			"nav",
			{ "aria-label": "Pages" },
			list(first),
			h("div.rest", h("h2", "System"), list(rest), h("h2", "Administration"), list(people)),
		),
		button("More", openMenu, { icon: "more", kind: "more-button" }),
		h(
			"div.foot",
			themeSwitch(),
			h(
				"div.who",
				h("span.avatar", { "aria-hidden": "true" }, (who?.principal ?? "?").slice(0, 1).toUpperCase()),
				h("span.grow", h("b.cut", inert(who?.principal ?? "")), h("span.faint.cut", inert(who?.tenant ?? ""))),
				button("Sign out", leave, { kind: "plain small", icon: "exit", hidden: true }),
			),
		),
	);
	const find = h(
		"button.find",
		{ type: "button", on: { click: palette } },
		icon("search"),
		h("span.cut", "Find a run, a page or an action"),
		h("kbd", "Ctrl K"),
	);
	put(
		document.body,
		h(
			"a.skip",
			{
				href: "#main",
				on: {
					click: (event) => {
						event.preventDefault();
						main.focus();
					},
				},
			},
			"Skip to the page",
		),
		h(
			"div.frame",
			side,
			h(
				"div.main",
				h(
					"header.top",
					find,
					live,
					button("Keys", help, { kind: "plain small", hidden: true, icon: "book", title: "Keyboard (?)" }),
				),
				main,
			),
		),
	);
}

/** The sign of the product. */
const mark = () => h("img.mark", { src: new URL("icon.svg", import.meta.url).pathname, alt: "" });

function openMenu() {
	const dialog = openDialog({
		title: "Stepkeep",
		body: [
			h(
				"div.menu-list",
				pages()
					.filter((one) => one.label && one.group !== "work")
					.map((one) => {
						const made = navLink(one);
						made.addEventListener("click", () => dialog.close());
						return made;
					}),
			),
			h(
				"div.row",
				themeSwitch(),
				h("span.muted.grow", `${session()?.principal ?? ""} · ${session()?.tenant ?? ""}`),
				button(
					"Sign out",
					() => {
						dialog.close();
						void leave();
					},
					{ icon: "exit" },
				),
			),
		],
	});
}

async function leave() {
	await signOut().catch(() => {});
	show();
}

/** @returns {Command[]} */
function commands() {
	return [
		...(current?.commands ?? []),
		...pages()
			.filter((one) => one.label)
			.map((one) => ({ label: one.label, icon: one.icon, keys: one.keys, act: () => go(one.path) })),
		...THEMES.map((one) => ({
			label: `Theme: ${one}`,
			icon: one === "dark" ? "moon" : "sun",
			act: () => setTheme(one),
		})),
		{ label: "Keyboard", icon: "book", keys: "?", act: help },
		{ label: "Sign out", icon: "exit", act: leave },
	];
}

const palette = () => openPalette(commands(), go);

function help() {
	const known = keys();
	openDialog({
		title: "Keyboard",
		wide: true,
		body: h(
			"div.sheet",
			Object.entries(known).map(([name, one]) =>
				h(
					"div",
					h("span", one.say),
					h(
						"span",
						name.split(" ").map((key) => [h("kbd", key.replace("ctrl+", "Ctrl ")), " "]),
					),
				),
			),
		),
	});
}

/** @returns {Keys} */
function keys() {
	if (!session()) return {};
	return {
		...(current?.keys ?? {}),
		"ctrl+k": { say: "Find anything", act: palette },
		"?": { say: "Show these keys", act: help },
		t: { say: "Change the theme", act: () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % 3]) },
		...Object.fromEntries(
			pages()
				.filter((one) => one.keys)
				.map((one) => [one.keys, { say: one.label, act: () => go(one.path) }]),
		),
	};
}

/** @returns {void} */
function show() {
	controller.abort();
	controller = new AbortController();
	current = null;
	liveState = "none";
	drawLive();
	const { signal } = controller;
	if (!session()) {
		document.title = "Sign in · Stepkeep";
		put(
			document.body,
			signInPage(async (key) => {
				await signIn({ key });
				frame();
				show();
				watchApprovals();
			}),
		);
		document.querySelector("input")?.focus();
		return;
	}
	if (!main.isConnected) frame();
	const at = path();
	if (at === "/") {
		history.replaceState(null, "", href("/runs"));
		return void show();
	}
	for (const entry of PAGES) {
		const params = match(entry.path, at);
		if (!params) continue;
		for (const [to, made] of links) {
			if (to === entry.path || (to !== "/" && at.startsWith(`${to}/`))) made.setAttribute("aria-current", "page");
			else made.removeAttribute("aria-current");
		}
		/** @param {string} text */
		const title = (text) => {
			document.title = `${inert(text)} · Stepkeep`;
		};
		title(entry.label || "Run");
		const context = {
			params,
			query: new URLSearchParams(location.search),
			signal,
			title,
			live: (/** @type {"on" | "off" | "none"} */ state) => {
				if (signal.aborted) return;
				liveState = state;
				drawLive();
			},
		};
		current = entry.build(context);
		put(main, current.element);
		main.scrollTop = 0;
		const heading = main.querySelector("h1");
		focusOn(heading ?? main);
		return;
	}
	put(main, h("div.page", empty("search", "There is no such page", h("a", { href: href("/runs") }, "Go to the runs"))));
}

/** How many gates wait for the reader, beside the link to them. */
async function countApprovals() {
	const found = await get("/approvals", { mine: true, limit: 50 }).catch(() => {});
	const made = links.get("/approvals");
	if (!found || !made) return;
	made.querySelector(".count")?.remove();
	const count = found.approvals.length;
	if (count) made.append(h("span.count", { title: "waiting for you" }, `${count}${found.is_complete ? "" : "+"}`));
}
let isWatching = false;
function watchApprovals() {
	void countApprovals();
	if (isWatching) return;
	isWatching = true;
	every(
		20_000,
		() => {
			if (session()) void countApprovals();
		},
		new AbortController().signal,
	);
	document.addEventListener("stepkeep:decided", () => void countApprovals());
}

addEventListener("unhandledrejection", (event) => {
	if (event.reason instanceof Problem) {
		event.preventDefault();
		if (event.reason.status !== 401) toast("bad", event.reason.message);
	} else if (event.reason?.name === "AbortError") event.preventDefault();
});

/** Since when the service does not answer; what is shown is as old. */
let lostAt = 0,
	liveState = "none";
function drawLive() {
	live.dataset.live = lostAt ? "off" : liveState;
	const at = new Date(lostAt).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
	put(live, h("span", lostAt ? `Not updated since ${at}` : liveState === "off" ? "Connecting" : "Live"));
}
document.addEventListener("stepkeep:reached", (event) => {
	const isThere = /** @type {CustomEvent} */ (event).detail;
	if (isThere === !lostAt) return;
	lostAt = isThere ? 0 : Date.now();
	drawLive();
});

async function start() {
	startTicking();
	startRouter(show);
	startKeyboard(keys);
	onSignedOut(() => {
		if (main.isConnected) {
			show();
			toast("wait", "Your session has ended. Sign in again.");
		}
	});
	// The code of a link is used once, and does not stay in the address.
	const code = new URLSearchParams(location.hash.slice(1)).get("code");
	if (code) history.replaceState(null, "", location.pathname + location.search);
	try {
		if (code)
			await signIn({ code }).catch((error) => {
				refused(error);
				toast("wait", error.message);
			});
		if (!session()) await resume();
	} catch {
		put(document.body, h("div.page", problemBox("The service does not answer. Reload the page when it is back.")));
		return;
	}
	if (session()) {
		frame();
		watchApprovals();
	}
	show();
}

void start();
