/**
 * Reads the journal of a run and checks its chain in the browser: each entry's hash covers the hash before it and every
 * byte of its own body. Nothing of the service is trusted but the bytes.
 */
import { get } from "./api.js";

const PAGE = 200;

/**
 * @param {string} run @param {AbortSignal} signal @param {(entries: Entry[]) => void} told after each page
 * @param {string | null} as a dialect whose words the lines have
 * @returns {Promise<Entry[]>}
 */
export async function readJournal(run, signal, told, as = null) {
	const found = [];
	let after = "0";
	for (;;) {
		const page = await get(`/runs/${run}/journal`, { after, limit: PAGE, raw: true, as }, signal);
		found.push(...page.entries);
		told(found);
		if (!page.next) return found;
		after = page.next;
	}
}

/**
 * @param {Entry[]} entries @param {{seq: number, head: string}} head of the run's row
 * @returns {Promise<Verdict>}
 */
export async function verifyChain(entries, head) {
	if (!globalThis.crypto?.subtle)
		return { kind: "unable", count: entries.length, why: "This browser verifies only over https or on localhost." };
	let before = new Uint8Array(0),
		seq = 0;
	const encoder = new TextEncoder();
	for (const entry of entries) {
		if (entry.seq !== seq + 1)
			return { kind: "broken", count: entries.length, broken: entry.seq, why: `entry ${seq + 1} is missing` };
		const body = encoder.encode(entry.body),
			both = new Uint8Array(before.length + body.length);
		both.set(before);
		both.set(body, before.length);
		const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", both));
		if (hex(hash) !== entry.hash)
			return {
				kind: "broken",
				count: entries.length,
				broken: entry.seq,
				why: "its hash does not cover its bytes and the entry before it",
			};
		before = hash;
		seq = entry.seq;
	}
	// The run may have moved on since its row was read: then its head is not the last entry.
	if (seq === head.seq && hex(before) !== head.head)
		return { kind: "broken", count: entries.length, broken: seq, why: "the run's row names another head" };
	if (seq < head.seq)
		return { kind: "broken", count: entries.length, broken: seq + 1, why: `the run's row names ${head.seq} entries` };
	return { kind: "whole", count: entries.length };
}

/** @param {Uint8Array} bytes */
const hex = (bytes) => Array.from(bytes, (one) => one.toString(16).padStart(2, "0")).join("");
