/**
 * Values as text for people: moments in the reader's zone, durations, sizes, and hostile text made visible.
 */
import { h } from "./dom.js";

const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text in which characters that hide or reorder others are shown by their number. @param {unknown} text */
export function inert(text) {
	return String(text).replace(CONTROL, (one) => `⟨U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** The same on one line, cut at a length. @param {unknown} text @param {number} [most] */
export function line(text, most = 300) {
	const one = inert(String(text).slice(0, most * 2)).replace(/\s+/g, " ");
	return one.length > most ? `${one.slice(0, most)}…` : one;
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const brief = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const long = new Intl.DateTimeFormat("en-GB", {
	weekday: "short",
	day: "numeric",
	month: "short",
	year: "numeric",
	hour: "2-digit",
	minute: "2-digit",
	second: "2-digit",
	fractionalSecondDigits: 3,
	timeZoneName: "short",
});

/** How far the server's clock is ahead, in milliseconds; from the Date header of its answers. */
export const skew = { ms: 0 };
/** The server's time. */
export const now = () => Date.now() + skew.ms;

/** @param {string} iso */
export const exact = (iso) => `${long.format(new Date(iso))} (${iso})`;

/** A moment, short, with the exact one on hover. @param {string | null | undefined} iso */
export function moment(iso) {
	if (!iso) return h("span.faint", "–");
	const at = new Date(iso);
	const isToday = at.toDateString() === new Date(now()).toDateString();
	return h("time", { datetime: iso, title: exact(iso) }, (isToday ? clock : brief).format(at));
}

const MOMENTS = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** A sentence of the service, with its moments in the zone of the reader. @param {string} text @param {number} [most] */
export const sentence = (text, most = 400) =>
	h(
		"bdi",
		line(text, most)
			.split(MOMENTS)
			.map((part, at) => (at % 2 ? moment(part) : part)),
	);

/** "3 min ago", kept current. @param {string | null | undefined} iso */
export function ago(iso) {
	if (!iso) return h("span.faint", "–");
	return h("time", { datetime: iso, title: exact(iso), data: { tick: "ago" } }, agoText(iso));
}

/** "in 3 min" or "2 min late", kept current. @param {string | null | undefined} iso */
export function countdown(iso) {
	if (!iso) return h("span.faint", "no deadline");
	return h("time", { datetime: iso, title: exact(iso), data: { tick: "until" } }, untilText(iso));
}

/** How long something took, or has taken so far. @param {string | null} from @param {string | null} to */
export function lasted(from, to) {
	if (!from) return h("span.faint", "–");
	if (to) return h("span.num", { title: `${exact(from)} to ${exact(to)}` }, span(Date.parse(to) - Date.parse(from)));
	return h(
		"time.num",
		{ datetime: from, title: `since ${exact(from)}`, data: { tick: "for" } },
		span(now() - Date.parse(from)),
	);
}

/** @param {string} iso */
const agoText = (iso) => {
	const ms = now() - Date.parse(iso);
	return ms < 1500 ? "just now" : `${span(ms, true)} ago`;
};
/** @param {string} iso */
const untilText = (iso) => {
	const ms = Date.parse(iso) - now();
	return ms >= 0 ? `in ${span(ms, true)}` : `${span(-ms, true)} late`;
};

/** A length of time in at most two units. @param {number} ms @param {boolean} [coarse] whole seconds */
export function span(ms, coarse = false) {
	if (ms < 1) return coarse ? "0 s" : "0 ms";
	if (ms < 1000) return coarse ? "1 s" : `${Math.round(ms)} ms`;
	if (ms < 10_000 && !coarse) return `${(ms / 1000).toFixed(1)} s`;
	const seconds = Math.round(ms / 1000);
	if (seconds < 60) return `${seconds} s`;
	if (seconds < 3600)
		return `${Math.floor(seconds / 60)} min${seconds % 60 && seconds < 600 ? ` ${seconds % 60} s` : ""}`;
	if (seconds < 86_400)
		return `${Math.floor(seconds / 3600)} h${seconds % 3600 >= 60 ? ` ${Math.floor((seconds % 3600) / 60)} min` : ""}`;
	return `${Math.floor(seconds / 86_400)} d${seconds % 86_400 >= 3600 ? ` ${Math.floor((seconds % 86_400) / 3600)} h` : ""}`;
}

/** Microseconds, as definitions have them. @param {number | null} us */
export const micros = (us) => (us === null || us === undefined ? "–" : span(us / 1000, us >= 1_000_000));

/** @param {number} count @param {string} word @param {string} [plural] */
export const counted = (count, word, plural) =>
	`${count.toLocaleString("en")} ${count === 1 ? word : (plural ?? `${word}s`)}`;

/** @param {number} size */
export function bytes(size) {
	if (size < 1000) return `${size} B`;
	return size < 1_000_000 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}

/** "Awaiting approval" of "awaiting_approval". @param {string} word */
export const words = (word) => {
	const spaced = inert(word).replaceAll("_", " ");
	return spaced.charAt(0).toUpperCase() + spaced.slice(1);
};

/** The beginning and the end of an id, which differ between runs. @param {string} id */
export const shortId = (id) => (id.length > 20 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id);

/** @param {Record<string, number> | null} cost */
export function costText(cost) {
	const parts = Object.entries(cost ?? {}).map(([kind, value]) => {
		const said = value.toLocaleString("en", { maximumFractionDigits: 6 });
		return kind === "usd" ? `$${said}` : `${said} ${inert(kind)}`;
	});
	return parts.join(", ");
}

/** Keeps the moments of a page current: one timer for all of them, which finds them in the document. */
export function startTicking() {
	setInterval(() => {
		if (document.hidden) return;
		for (const found of document.querySelectorAll("[data-tick]")) {
			const element = found;
			const kind = element.dataset.tick;
			const said =
				kind === "ago"
					? agoText(element.dateTime)
					: kind === "until"
						? untilText(element.dateTime)
						: span(now() - Date.parse(element.dateTime));
			if (element.textContent !== said) element.textContent = said;
			if (kind === "until") element.classList.toggle("late", Date.parse(element.dateTime) < now());
		}
	}, 1000);
}
