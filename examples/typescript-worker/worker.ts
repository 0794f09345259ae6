// A worker for Stepkeep in TypeScript: it registers, claims, renews and reports over HTTP. No packages are needed.
//
//   STEPKEEP_SERVER=https://flows.example.org STEPKEEP_KEY_FILE=worker.key node worker.ts         (Node 22.18 or later)
//   npx --package typescript tsc worker.ts --target es2022 --module nodenext && node worker.js    (Node 20)
//
// The protocol is in docs/remote-workers.md. Types are erasable: nothing here needs more than their removal.

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Claim = {
  run_id: string; step: string; no: number; fence: number; attempt: number; handler: string;
  lease_us: number; timeout_seconds: number; inputs: Json; input: Json;
};
type Outcome = { kind: string; [field: string]: Json };
type Reply = { accepted: boolean; state?: string; code?: string; detail?: string };
type Held = { claim: Claim; stop: AbortController; renewedAt: number };
type Handler = (inputs: any, context: { claim: Claim; signal: AbortSignal }) => Promise<Json> | Json;

// -- handlers: their names are those that workflows use ---------------------------------------------------------------

class Final extends Error {} // no other attempt can help

const HANDLERS: Record<string, Handler> = {
  "text.shout": ({ text }) => {
    if (typeof text !== "string") throw new Final("text must be a string");
    return text.toUpperCase();
  },
  "text.slow": ({ seconds }, { signal }) =>
    new Promise((resolve, reject) => {
      const timer = setTimeout(() => resolve(seconds), seconds * 1000);
      signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)));
    }),
};

// -- the worker -------------------------------------------------------------------------------------------------------

const SERVER = (process.env.STEPKEEP_SERVER ?? "http://127.0.0.1:8321").replace(/\/$/, "");
const SLOTS = Number(process.env.SLOTS ?? 4);
const WAIT_SECONDS = 20;
const held = new Map<string, Held>();
let id = "";
let incarnation = 1;
let stopping = false;
const polling = new AbortController();

const key = () => (process.env.STEPKEEP_KEY ?? readFileSync(process.env.STEPKEEP_KEY_FILE ?? "worker.key", "utf8")).trim();
const random = () => randomBytes(8).toString("hex");
const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const nameOf = (claim: Claim) => `${claim.run_id} ${claim.no} ${claim.fence}`;
const log = (said: string) => console.error(`${new Date().toISOString()} ${said}`);

class Refusal extends Error {
  status: number;
  constructor(status: number, said: string) { super(said); this.status = status; }
}

/** One request, sent again until it is answered: its request_id makes that safe. A refusal is not repeated. */
async function send(method: string, path: string, body?: Json, signal?: AbortSignal): Promise<any> {
  for (let tries = 0; ; tries++) {
    try {
      const limit = AbortSignal.timeout((WAIT_SECONDS + 15) * 1000);
      const answer = await fetch(SERVER + path, {
        method,
        headers: { Authorization: `Bearer ${key()}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      if (answer.ok) return await answer.json();
      const problem: any = await answer.json().catch(() => ({}));
      if (answer.status < 500 && answer.status !== 429 && answer.status !== 408)
        throw new Refusal(answer.status, `${problem.code}: ${problem.detail}`);
      throw new Error(`the service answers ${answer.status}`);
    } catch (problem) {
      if (problem instanceof Refusal || signal?.aborted) throw problem;
      if (tries === 0) log(`the service does not answer, trying again: ${problem}`);
      await pause(Math.min(5000, 100 * 2 ** tries) * (0.5 + Math.random() / 2));
    }
  }
}

async function register(): Promise<void> {
  const body = { app: "typescript", instance: random(), host: hostname(), pid: process.pid, capacity: SLOTS };
  const { worker } = await send("POST", "/work/workers", body);
  [id, incarnation] = [worker.id, worker.incarnation];
  log(`worker ${id} serves ${Object.keys(HANDLERS).join(", ")}`);
}

/** Everything that this worker holds is lost: another worker has it, or will have it. */
function loseAll(why: string): void {
  for (const each of held.values()) each.stop.abort(new Error(why));
  held.clear();
}

async function beat(): Promise<void> {
  const report = { handlers: Object.keys(HANDLERS), places: SLOTS, held: held.size, free: SLOTS - held.size, host: hostname() };
  const { worker } = await send("POST", `/work/workers/${id}/heartbeat`, { busy: held.size > 0, report });
  if (worker.incarnation !== incarnation || worker.state === "shutdown") loseAll("the worker had been given up");
  incarnation = worker.incarnation;
  if (worker.state === "shutdown" && !stopping) await register();
}

async function renew(): Promise<void> {
  const aging = [...held.values()].filter(({ claim, renewedAt }) => Date.now() - renewedAt > claim.lease_us / 3000);
  if (aging.length === 0) return;
  const began = Date.now();
  const leases = aging.map(({ claim: { run_id, no, fence, lease_us } }) => ({ run_id, no, fence, lease_us }));
  const { renewed } = await send("POST", `/work/workers/${id}/renew`, { leases });
  const states = new Map<string, string>(renewed.map((one: any) => [nameOf(one), one.run_state]));
  for (const each of aging) {
    const state = states.get(nameOf(each.claim));
    if (state === undefined) {
      each.stop.abort(new Error("the lease is lost"));
      held.delete(nameOf(each.claim));
    } else {
      each.renewedAt = began;
      if (state === "stopping") each.stop.abort(new Error("the run is stopping"));
    }
  }
}

async function report(claim: Claim, outcome: Outcome): Promise<void> {
  const { run_id, no, fence } = claim;
  const body = { reports: [{ run_id, no, fence, outcome }], request_id: random() };
  const { replies } = await send("POST", `/work/workers/${id}/report`, body);
  const reply: Reply = replies[0];
  if (!reply.accepted) log(`dropped: step ${claim.step} of run ${run_id}: ${reply.code} ${reply.detail ?? ""}`);
  // The rules after this handler are for a worker that evaluates them.
  else if (reply.state === "validating") await report(claim, { kind: "released", reason: "its rules need another worker" });
}

async function run(claim: Claim): Promise<void> {
  const each: Held = { claim, stop: new AbortController(), renewedAt: Date.now() };
  held.set(nameOf(claim), each);
  const limit = AbortSignal.timeout(claim.timeout_seconds * 1000);
  const signal = AbortSignal.any([each.stop.signal, limit]);
  const ended = new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  ended.catch(() => undefined);
  let outcome: Outcome;
  try {
    const output = await Promise.race([HANDLERS[claim.handler](claim.inputs, { claim, signal }), ended]);
    outcome = { kind: "completed", output: output ?? null };
  } catch (problem) {
    const error = String(problem instanceof Error ? problem.message : problem).slice(0, 2000);
    if (limit.aborted) outcome = { kind: "timed_out", error: "the attempt ran past its timeout" };
    else if (each.stop.signal.aborted) outcome = { kind: stopping ? "released" : "stopped" };
    else outcome = { kind: "failed", error, final: problem instanceof Final };
  }
  try {
    if (held.has(nameOf(claim))) await report(claim, outcome);
  } catch (problem) {
    log(`the report on step ${claim.step} of run ${claim.run_id} is refused: ${problem}`);
  }
  held.delete(nameOf(claim));
}

async function every(seconds: number, work: () => Promise<void>): Promise<void> {
  while (!stopping || held.size > 0) {
    await pause(seconds * 1000);
    await work().catch((problem) => log(String(problem)));
  }
}

async function poll(): Promise<void> {
  while (!stopping) {
    if (held.size >= SLOTS) { await pause(20); continue; }
    const body = { slots: SLOTS - held.size, handlers: Object.keys(HANDLERS), wait_seconds: WAIT_SECONDS, request_id: random() };
    try {
      const { claims } = await send("POST", `/work/workers/${id}/claim`, body, polling.signal);
      for (const claim of claims) void run(claim);
    } catch (problem) {
      if (stopping) return;
      log(`the claim is refused: ${problem}`);
      await pause(2000);
    }
  }
}

function stop(): void {
  stopping = true;
  polling.abort();
  for (const each of held.values()) each.stop.abort(new Error("the worker stops"));
}
process.on("SIGTERM", stop).on("SIGINT", stop);

await register();
void every(10, beat);
void every(0.5, renew);
await poll();
while (held.size > 0) await pause(20);
await send("DELETE", `/work/workers/${id}`);
log(`worker ${id} has stopped`);
process.exit(0);
