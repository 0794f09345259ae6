"""Workers that hold an exclusive resource are killed after any commit: it has one holder, and every run ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, Handler, Retry
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.limits.resources import list_resources
from tests.store.raw import expire_leases
from tests.workbench import TENANT, on, task

HERE = Path(__file__)
RUNS = 8
COMMITS = (1, 2, 3, 5)
"""After how many commits each process dies, two at a time; two more live on."""

STEPS = tuple(
    replace(task(name, no, after), executor=Handler(name="alone"), retry=Retry(max_losses=10), resources=needs)
    for no, (name, after, needs) in enumerate((("a", [], {"repo": "exclusive"}), ("b", ["a"], {"repo": "exclusive"})))
)


async def serve(url: str, commits: int, file: Path) -> int:
    program = [sys.executable, "-m", "tests.operations.resources_process", url, str(commits), str(file)]
    process = await asyncio.create_subprocess_exec(*program, cwd=HERE.parents[2])
    async with asyncio.timeout(120):
        return await process.wait()


async def test_a_resource_has_one_holder_whenever_workers_are_killed(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "repo.lock"

    async with on(database_url) as bench:
        plan = await bench.publish(Definition(name="alone", version=1, steps=STEPS))
        runs = [(await bench.begin(plan, input=b"{}")).run_id for _ in range(RUNS)]
        for place in range(0, len(COMMITS), 2):
            died = await asyncio.gather(*(serve(database_url, one, file) for one in COMMITS[place : place + 2]))
            assert set(died) == {-9}
            await asyncio.to_thread(expire_leases, database_url)
        assert set(await asyncio.gather(*(serve(database_url, 10**9, file) for _ in range(2)))) == {0}
        assert {await bench.state(run) for run in runs} == {RunState.SUCCEEDED}
        assert not file.with_suffix(".wrong").exists()
        assert (await list_resources(bench.store, TENANT))["resources"] == []
