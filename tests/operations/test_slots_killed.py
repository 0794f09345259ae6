"""Workers of a limited workflow are killed after any commit: never more runs than the limit, and all of them end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, Handler, Retry
from stepkeep.kernel.machine.journal import RUN_ENTITY, open_entry
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from tests.store.raw import expire_leases
from tests.workbench import TENANT, Bench, on, task

HERE = Path(__file__)
RUNS, MOST = 30, 3
COMMITS = (3, 7, 2, 9)
"""After how many commits each process dies, two at a time; two more live on."""

AGAIN = Retry(max_losses=10)
STEPS = tuple(
    replace(task(name, no, after), executor=Handler(name="noop"), retry=AGAIN)
    for no, (name, after) in enumerate((("a", []), ("b", ["a"])))
)
LIMITED = Definition(name="limited", version=1, slots=MOST, steps=STEPS)


async def serve(url: str, commits: int) -> int:
    program = [sys.executable, "-m", "tests.operations.slots_process", url, str(commits)]
    process = await asyncio.create_subprocess_exec(*program, cwd=HERE.parents[2])
    async with asyncio.timeout(120):
        return await process.wait()


async def held_at_once(bench: Bench, runs: list[str]) -> tuple[int, int]:
    """The most runs between their grant and their end, and the number of grants, from the journals alone."""
    changes: list[tuple[int, int]] = []
    for run in runs:
        for sealed in await bench.store.read_journal(TENANT, run, after=0, limit=100):
            entry = open_entry(sealed.body)
            changes += [(entry.at, 1) for cause in entry.causes if cause.event == "slot_granted"]
            ends = [hop for hop in entry.hops if hop.no == RUN_ENTITY and hop.target in set(map(str, RUN_TERMINAL))]
            changes += [(entry.at, -1) for _ in ends]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most, sum(change == 1 for _, change in changes)


@pytest.mark.proof
async def test_no_more_runs_than_the_limit_run_whenever_workers_are_killed(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(LIMITED)
        runs = [(await bench.begin(plan, input=b"{}")).run_id for _ in range(RUNS)]
        for place in range(0, len(COMMITS), 2):
            died = await asyncio.gather(*(serve(database_url, commits) for commits in COMMITS[place : place + 2]))
            assert set(died) == {-9}
            await asyncio.to_thread(expire_leases, database_url)
        assert set(await asyncio.gather(*(serve(database_url, 10**9) for _ in range(2)))) == {0}
        assert {await bench.state(run) for run in runs} == {RunState.SUCCEEDED}
        assert await held_at_once(bench, runs) == (MOST, RUNS)
