/**
 * Talks to the HTTP API: one function for requests, one for streams that resume, and the session of the reader.
 * No other module fetches anything.
 */
import { skew } from "./format.js";

/** Where the service is: this module is at ROOT/ui/files/DIGEST/api.js. */
export const ROOT = new URL("../../..", import.meta.url).pathname.replace(/\/$/, "");

/** A refusal: an RFC 9457 problem, or a network that failed (status 0). */
export class Problem extends Error {
	/** @param {number} status @param {any} body */
	constructor(status, body) {
		super(body.detail || body.title || `The service answered ${status}.`);
		this.status = status;
		this.code = body.code ?? "unexpected";
		this.body = body;
	}
}

const state = {
	/** @type {Answers.SessionView | null} */
	session: null,
	lost: () => {},
};

export const session = () => state.session;
/** @param {Answers.Scope} scope */
export const may = (scope) => state.session?.scopes.includes(scope) ?? false;
/** Called when the service no longer accepts the session. @param {() => void} callback */
export function onSignedOut(callback) {
	state.lost = callback;
}

/** The session of this browser, or null. */
export async function resume() {
	const answer = await fetch(`${ROOT}/session`, {
		headers: { Accept: "application/json" },
		credentials: "same-origin",
	});
	state.session = answer.ok ? await answer.json() : null;
	return state.session;
}

/** Sign in with an API key, or with the one-time code of a link that `stepkeep dev` made.
 * @param {{key: string} | {code: string}} proof */
export async function signIn(proof) {
	state.session = await send("POST", "code" in proof ? "/session/link" : "/session", { body: proof, anonymous: true });
	return state.session;
}

export async function signOut() {
	await send("DELETE", "/session", {});
	state.session = null;
}

/** An address of the API. @param {string} path @param {Record<string, any>} [query] */
export function address(path, query = {}) {
	return `${ROOT}${path}${searchOf(query)}`;
}
/** The search part of an address, without names that have no value. @param {Record<string, any>} query @param {URLSearchParams} [search] to change */
export function searchOf(query, search = new URLSearchParams()) {
	for (const [name, value] of Object.entries(query)) {
		search.delete(name);
		for (const one of [value].flat())
			if (one !== null && one !== undefined && one !== "" && one !== false) search.append(name, String(one));
	}
	return search.size ? `?${search}` : "";
}
/** The refusal as a value, so that a page can show it. Everything else is thrown on. @param {unknown} error @returns {any} */
export const refused = (error) => {
	if (error instanceof Problem) return error;
	throw error;
};

/** A part of a path. @param {string} text */
export const part = (text) => encodeURIComponent(text);
/** The name of a workflow or a step, which may have slashes. @param {string} text */
export const named = (text) => text.split("/").map(encodeURIComponent).join("/");

/** @template {string} A @param {A} path @param {Answers.Query<A>} [query] @param {AbortSignal} [signal] @returns {Promise<Answers.Get<A>>} */
export const get = (path, query, signal) => send("GET", path, { query, signal });
/** @template {string} A @param {A} path @param {Answers.Body<A>} [body] @param {Record<string, string>} [headers] @returns {Promise<Answers.Post<A>>} */
export const post = (path, body, headers) => send("POST", path, { body: body ?? {}, headers });

/** Tells the frame whether the service answers. @param {boolean} isThere */
const reached = (isThere) => document.dispatchEvent(new CustomEvent("stepkeep:reached", { detail: isThere }));

/** The header that makes a repeated request do its work once. */
export const once = () => ({ "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) });

/**
 * @param {string} method @param {string} path
 * @param {{query?: Record<string, any>, body?: any, text?: string, type?: string, headers?: Record<string, string>,
 *   signal?: AbortSignal, anonymous?: boolean}} options
 * @returns {Promise<any>}
 */
export async function send(method, path, { query, body, text, type, headers, signal, anonymous }) {
	/** @type {Record<string, string>} */
	const sent = { Accept: "application/json", ...headers };
	if (body !== undefined || text !== undefined) sent["Content-Type"] = type ?? "application/json";
	if (method !== "GET" && state.session) sent["X-CSRF-Token"] = state.session.csrf;
	let answer;
	try {
		answer = await fetch(address(path, query), {
			method,
			headers: sent,
			signal,
			credentials: "same-origin",
			body: text ?? (body === undefined ? undefined : JSON.stringify(body)),
		});
	} catch (error) {
		if (signal?.aborted) throw error;
		reached(false);
		throw new Problem(0, {
			detail: "The service does not answer. The page tries again when it is back.",
			code: "unreachable",
		});
	}
	reached(true);
	const date = Date.parse(answer.headers.get("Date") ?? "");
	// The header has whole seconds: half a second is what it is off on average.
	if (date && Math.abs(date + 500 - Date.now() - skew.ms) > 1500) skew.ms = date + 500 - Date.now();
	const isJson = (answer.headers.get("Content-Type") ?? "").includes("json");
	const told = isJson ? await answer.json() : await answer.text();
	if (answer.ok) return told;
	if (answer.status === 401 && !anonymous) {
		state.session = null;
		state.lost();
	}
	throw new Problem(answer.status, isJson ? told : { detail: String(told).slice(0, 300) });
}

/**
 * Follows a stream of server-sent events until the signal is aborted or `end` comes. It comes back by itself with the
 * last id, after 1 s and then ever less often up to 30 s.
 * @param {string} path
 * @param {{event: (name: string, data: any) => void, connected?: (isConnected: boolean) => void, signal: AbortSignal, after?: string}} options
 * @returns {Promise<void>}
 */
export async function follow(path, { event, connected = () => {}, signal, after }) {
	let last = after ?? "",
		wait = 1000;
	while (!signal.aborted) {
		try {
			/** @type {Record<string, string>} */
			const headers = { Accept: "text/event-stream" };
			if (last) headers["Last-Event-ID"] = last;
			const answer = await fetch(address(path), { headers, signal, credentials: "same-origin", cache: "no-store" });
			if (answer.status === 401) return void state.lost();
			if (!answer.ok || !answer.body) {
				if (answer.status === 400 || answer.status === 410) last = "";
				throw new Error(`status ${answer.status}`);
			}
			connected(true);
			const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
			let buffer = "";
			for (;;) {
				const { value, done } = await reader.read();
				if (done) break;
				wait = 1000;
				buffer += value;
				let cut;
				while ((cut = buffer.indexOf("\n\n")) >= 0) {
					const told = readEvent(buffer.slice(0, cut));
					buffer = buffer.slice(cut + 2);
					if (told.id) last = told.id;
					if (!told.data) continue;
					event(told.name, JSON.parse(told.data));
					if (told.name === "end") return;
				}
			}
		} catch {
			if (signal.aborted) return;
		}
		connected(false);
		await pause(wait, signal);
		wait = Math.min(wait * 2, 30_000);
	}
}

/** @param {string} block */
function readEvent(block) {
	const told = { id: "", name: "message", data: "" };
	for (const row of block.split("\n")) {
		if (row.startsWith("id: ")) told.id = row.slice(4);
		else if (row.startsWith("event: ")) told.name = row.slice(7);
		else if (row.startsWith("data: ")) told.data += row.slice(6);
	}
	return told;
}

/** @param {number} ms @param {AbortSignal} signal */
export function pause(ms, signal) {
	return new Promise((done) => {
		// A page that stays open pauses for hours: its signal must not keep a listener for each time.
		const end = () => {
			clearTimeout(timer);
			signal.removeEventListener("abort", end);
			done(undefined);
		};
		const timer = setTimeout(end, ms);
		signal.addEventListener("abort", end);
	});
}
