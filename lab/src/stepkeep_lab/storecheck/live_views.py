"""Reads views of runs while they go on, and looks for contradictions within a view and for evidence that changed.

One opening of the database works on runs, another one reads. It decides nothing; `stepkeep lab views` calls it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from stepkeep.dialects.action.evidence import verify_evidence
from stepkeep.kernel.definition import Approval, Definition, Retry
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.people.people import decide_gate
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.runs.projected import describe_run_as
from stepkeep.operations.runs.views import describe_run
from stepkeep.store.connect import connect
from stepkeep_lab.storecheck.bench import ACTOR, TENANT, Bench, gate, report_of, still_bench, task

LIVE = 6
"""How many runs are watched at a time."""

ENDED = ("Succeeded", "Failed", "Cancelled")
AGAIN = Retry(max_attempts=3, initial=1)
WATCHED = Definition(
    name="watched",
    version=1,
    steps=(
        task("a", 1, retry=AGAIN),
        task("b", 2, ["a"], retry=AGAIN),
        task("c", 3, ["a"], retry=AGAIN),
        gate("d", 4, ["b"], approval=Approval()),
        task("e", 5, ["c"], retry=AGAIN),
        task("f", 6, ["d", "e"], retry=AGAIN),
    ),
)


class Watched(msgspec.Struct):
    """What was read, and what was wrong with it."""

    views: int = 0
    runs: int = 0
    unfinished: int = 0
    findings: list[str] = []


async def watch(url: str, views: int, seed: int = 0) -> Watched:
    """Read this many views, a third of each kind, of runs that go on meanwhile."""
    watched, random = Watched(), Random(seed)  # noqa: S311 - the same seed must choose the same
    stores = [connect(url), connect(url)]
    try:
        for store in stores:
            await store.open()
        await stores[0].migrate()
        live: list[str] = []
        work = asyncio.create_task(_work(still_bench(stores[0]), live, Random(seed + 1), watched))  # noqa: S311
        try:
            await _read(still_bench(stores[1]), live, random, views, watched, work)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
    finally:
        for store in stores:
            await store.close()
    return watched


async def _work(bench: Bench, live: list[str], random: Random, watched: Watched) -> None:
    """Start runs and carry them on, with failures, retries and approvals, until it is cancelled."""
    plan = await bench.publish(WATCHED)
    while True:
        live.append((await bench.begin(plan)).run_id)
        watched.runs += 1
        del live[:-LIVE]
        for claim in await bench.claim(LIVE):
            failed = Failed(category=Category.TRANSIENT, error="again")
            outcome = failed if random.random() < 0.2 else Completed(output=b"1", cost=b'{"tokens":40}')
            await bench.transactor.report([report_of(claim, outcome)], await bench.claimer(slots=random.randint(0, 1)))
        await sweep(bench.transactor)
        for run_id in live:
            try:
                await decide_gate(bench.transactor, run_id, approve=True, caller=Caller(TENANT, ACTOR), step="d")
            except Conflict:
                continue  # it is not open, or was approved already
        await asyncio.sleep(0)


async def _read(
    bench: Bench, live: Sequence[str], random: Random, views: int, watched: Watched, work: asyncio.Task[None]
) -> None:
    seen: dict[str, list[dict[str, Any]]] = {}
    while watched.views < views:
        if work.done():
            work.result()
        if not live:
            await asyncio.sleep(0)
            continue
        run_id = random.choice(live)
        said = [
            *_torn((await describe_run(bench.transactor, run_id, tenant=TENANT)).as_json(), watched),
            *_changed(await describe_run_as(bench.transactor, run_id, "action", tenant=TENANT), seen),
            *_broken([line async for line in export_run(bench.transactor, run_id, tenant=TENANT)]),
        ]
        watched.views += 3
        watched.findings += [f"run {run_id}: {finding}" for finding in said]


def _torn(view: Mapping[str, Any], watched: Watched) -> list[str]:
    """What contradicts itself in a canonical view."""
    run, steps = view["run"], view["steps"]
    ended = run["state"] in RUN_TERMINAL
    watched.unfinished += not ended
    found = []
    if ended != all(step["state"] in STEP_TERMINAL for step in steps):
        found.append(f"it is {run['state']}, its steps are {[step['state'] for step in steps]}")
    for step in steps:
        if step["states"] and step["states"][-1]["state"] != step["state"]:
            found.append(f"{step['name']} is {step['state']}, its history ends {step['states'][-1]['state']}")
        tried = sum(entered["state"] == "running" for entered in step["states"])
        if tried != len(step["history"]) + (step["state"] == "running"):
            found.append(f"{step['name']} was claimed {tried} times and has {len(step['history'])} attempts")
    return found


def _changed(view: Mapping[str, Any], seen: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What contradicts itself in an action view, and evidence that differs from what was shown before."""
    evidence, before = view["evidence"], seen.get(view["runId"], [])
    found = verify_evidence(evidence)
    if evidence[: len(before)] != before:
        found.append("evidence that was shown has changed")
    seen[view["runId"]] = evidence
    over = view["status"] in ENDED
    if over != all(action["status"] in ENDED for action in view["actions"]):
        found.append(f"it is {view['status']}, its actions are {[action['status'] for action in view['actions']]}")
    if over != any(entry["payload"]["kind"] == "run" for entry in evidence):
        found.append(f"it is {view['status']}, and its evidence does not say so")
    return found


def _broken(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """What contradicts the closing line of an export."""
    last, head = lines[-2]["metadata"], lines[-1]["metadata"]
    return [] if (last["seq"], last["hash"]) == (head["seq"], head["hash"]) else ["its export ends at another entry"]
