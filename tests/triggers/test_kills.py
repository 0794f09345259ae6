"""Three schedulers in processes of their own, killed with -9 while clocks change: each moment fires once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from itertools import takewhile
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest

from stepkeep.kernel.triggers import Schedule
from stepkeep.operations.triggers.plan import moment_text
from stepkeep.schedules.moments import checked, moments_after
from stepkeep.store.rows import FiringState
from tests.suites import in_proof
from tests.triggers.stage import Stage, hourly, micros
from tests.workbench import TENANT, benches, eventually

PROCESSES = multiprocessing.get_context("forkserver")
"""A file of SQLite that is open here must not be open in a forked process."""
PROCESSES.set_forkserver_preload(["tests.triggers.stage"])

SECOND = 1_000_000
SCHEDULES = {
    "often": Schedule(cron="*/5 * * * *", zone="Europe/Zurich"),
    "daily": Schedule(cron="30 2 * * *", zone="Europe/Zurich"),
}
CHANGES = {
    "forward": ("2027-03-28T00:00:30+00:00", "2027-03-28T02:00:00+00:00"),
    "back": ("2026-10-25T00:00:30+00:00", "2026-10-25T02:00:00+00:00"),
}


def set_clock(stage: Stage, now: int) -> None:
    stage.store.clock_offset = now - time.time_ns() // 1000


def schedule_for_ever(url: str, now: Any) -> None:
    """What a killed process does: sweep by the clock that the test moves, and sweep again."""

    async def go() -> None:
        async with benches(url) as [bench]:
            stage = Stage(bench)
            while True:
                set_clock(stage, now.value)
                await stage.sweep()
                await asyncio.sleep(0.002)

    asyncio.run(go())


@pytest.mark.parametrize(("change", "kills"), [("forward", 4), in_proof("forward", 40), in_proof("back", 40)])
async def test_three_schedulers_with_kills_fire_each_moment_once(database_url: str, change: str, kills: int) -> None:
    begin, end = map(micros, CHANGES[change])
    chance, now = random.Random(kills), PROCESSES.Value("q", begin)
    steps = list(takewhile(lambda at: at < end, moments_after(checked(SCHEDULES["often"]), begin)))

    def started() -> ForkServerProcess:
        process = PROCESSES.Process(target=schedule_for_ever, args=(database_url, now), daemon=True)
        process.start()
        return process

    async def prepare() -> None:
        async with benches(database_url) as [bench]:
            stage = Stage(bench)
            for name, schedule in SCHEDULES.items():
                set_clock(stage, begin)
                await stage.add(hourly(name=name, schedule=schedule))

    async def watch() -> dict[str, list[tuple[str, str | None]]]:
        async with benches(database_url) as [bench]:
            stage = Stage(bench)
            killed = 0
            for turn, moment in enumerate(steps):
                now.value = moment + SECOND
                while killed * len(steps) < kills * (turn + 1):
                    # At a point of its sweep that nobody chose: before, during or after its commit.
                    place = chance.randrange(3)
                    os.kill(processes[place].pid or 0, signal.SIGKILL)
                    processes[place].join()
                    processes[place] = started()
                    killed += 1
                await eventually(lambda moment=moment: has_passed(stage, moment), 60)  # type: ignore[misc]
            assert killed == kills
            return {name: await fired(stage, name) for name in SCHEDULES}

    async def has_passed(stage: Stage, moment: int) -> bool:
        rows = [await stage.row(name) for name in SCHEDULES]
        return all(row.next_at is not None and row.next_at > moment for row in rows)

    async def fired(stage: Stage, name: str) -> list[tuple[str, str | None]]:
        listed = await stage.store.triggers.list_firings(TENANT, name, limit=1000)
        assert {one.state for one in listed} <= {FiringState.STARTED}
        runs = {one.run_id for one in listed}
        assert all([await stage.store.read_run(TENANT, str(run_id)) for run_id in runs])
        return sorted((one.moment, one.run_id) for one in listed)

    await prepare()
    processes = [started() for _ in range(3)]
    try:
        found = await watch()
    finally:
        for process in processes:
            process.kill()
            process.join()
    for name, schedule in SCHEDULES.items():
        wanted = [moment_text(one) for one in takewhile(lambda at: at < end, moments_after(checked(schedule), begin))]
        assert [moment for moment, _ in found[name]] == wanted, name
    runs = {run for name in found for _, run in found[name]}
    async with benches(database_url) as [bench]:
        assert (sum((await bench.store.count_runs(TENANT)).values())) == len(runs) == sum(map(len, found.values()))
