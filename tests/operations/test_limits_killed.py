"""Workers are killed after any commit while rules change: no key gives out more than its rule, and no place is lost."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from stepkeep.kernel.decide.limits import LimitRule
from stepkeep.kernel.definition import SECOND, Definition, Handler, Limit, Retry
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.limits.limits import list_limits, set_limit
from tests.operations.judge_of_limits import judge
from tests.store.raw import expire_leases
from tests.suites import in_proof
from tests.workbench import TENANT, Bench, on, task

HERE = Path(__file__)
COMMITS = (1, 2, 3, 5, 8, 13)
"""After how many commits each process dies, two at a time; two more live on."""

LIMITS = (
    Limit(name="api", per="${{ input.customer }}", running=2),
    Limit(name="all", running=3, weight=1),
    Limit(name="mail", per="${{ input.customer }}", rate=1000, period=SECOND, burst=5),
)
STEPS = tuple(
    replace(task(name, no, after), executor=Handler(name="limited"), retry=Retry(max_losses=10), limits=LIMITS)
    for no, (name, after) in enumerate((("a", []), ("b", ["a"])))
)


async def serve(url: str, commits: int) -> int:
    program = [sys.executable, "-m", "tests.operations.limits_process", url, str(commits)]
    process = await asyncio.create_subprocess_exec(*program, cwd=HERE.parents[2])
    async with asyncio.timeout(240):
        return await process.wait()


async def change(bench: Bench, until: asyncio.Event) -> int:
    """Change rules, for all keys and for one, until the workers are done. Returns how often."""
    changes = 0
    while not until.is_set():
        running = 1 + changes % 3
        await set_limit(bench.store, "api", LimitRule(running=running), "a", "", caller=Caller(TENANT, "ann"))
        await set_limit(bench.store, "all", LimitRule(running=4 - running), None, "", caller=Caller(TENANT, "ann"))
        changes += 2
        try:
            async with asyncio.timeout(0.2):
                await until.wait()
        except TimeoutError:
            continue
    return changes


@pytest.mark.parametrize("runs", [24, in_proof(600)])
async def test_no_limit_is_exceeded_and_none_leaks_whenever_workers_are_killed(database_url: str, runs: int) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(Definition(name="limited", version=1, steps=STEPS))
        given = [json.dumps({"customer": "abcd"[no % 4]}).encode() for no in range(runs)]
        started = [(await bench.begin(plan, input=one)).run_id for one in given]
        done = asyncio.Event()
        changing = asyncio.create_task(change(bench, done))
        for first in range(0, len(COMMITS), 2):
            died = await asyncio.gather(*(serve(database_url, one) for one in COMMITS[first : first + 2]))
            assert set(died) == {-9}
            await asyncio.to_thread(expire_leases, database_url)
        assert set(await asyncio.gather(*(serve(database_url, 10**9) for _ in range(2)))) == {0}
        done.set()
        assert await changing > 2
        assert {await bench.state(run) for run in started} == {RunState.SUCCEEDED}
        assert await judge(bench.store, TENANT) >= 3 * 2 * runs
        use = {one.name: (one.held, one.waiting) for one in (await list_limits(bench.store, TENANT)).limits}
        assert use == dict.fromkeys(("api", "all", "mail"), (0, 0))
