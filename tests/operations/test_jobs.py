"""Jobs on many runs: each run is acted on once, whatever happens to the workers; nothing is chosen by mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import ConnectionLost
from stepkeep.operations.continuation import jobs
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.runs import search
from stepkeep.store.rows import JobRun
from tests.suites import first_on

GATED = sk.Workflow("bulk-gated")
GATED.approval("sign")


async def started(engine: AsyncEngine, count: int, **options: Any) -> list[str]:
    return [(await engine.start(GATED, **options)).run_id for _ in range(count)]


async def carried_out(engine: AsyncEngine) -> int:
    """Sweep until nothing is left."""
    sweep, acted = JobSweep(engine.transactor), 0
    while found := await sweep.sweep("w-1"):
        acted += found
    return acted


@asynccontextmanager
async def on(url: str) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, actor="ann") as engine:
        yield engine


async def test_a_cancel_acts_on_what_the_filter_finds_and_on_nothing_else(database_url: str) -> None:
    async with on(database_url) as engine:
        mine = await started(engine, 60, labels={"team": "a"})
        others = await started(engine, 2, labels={"team": "b"})
        await engine.cancel(mine[0])
        where = {"labels": {"team": "a"}}
        looked = await engine.jobs.start("cancel", where=where, dry_run=True)
        assert (looked["runs"], looked["first"]) == (59, sorted(mine[1:])[:10])
        assert (await engine.jobs.list())["jobs"] == []
        job = await engine.jobs.start("cancel", where=where, reason="a mistake", idempotency_key="k")
        again = await engine.jobs.start("cancel", where=where, reason="a mistake", idempotency_key="k")
        assert (job["created"], again["created"], again["job"]) == (True, False, job["job"])
        with pytest.raises(sk.KeyReused, match="for job "):
            await engine.jobs.start("cancel", where=where, idempotency_key="k")
        later = await started(engine, 1, labels={"team": "a"})
        assert await carried_out(engine) == 59
        done = await engine.jobs.show(job["job"])
        assert (done["state"], done["done"], done["waiting"], done["refused"]) == ("done", 59, 0, 0)
        for run in (*others, *later):
            assert (await engine.show(run))["run"]["state"] == "blocked"
        shown = (await engine.show(mine[5]))["run"]
        assert (shown["state"], shown["error"]) == ("cancelled", f"cancelled by ann: a mistake (job {job['job']})")
        page = await engine.jobs.runs(job["job"], limit=50)
        rest = await engine.jobs.runs(job["job"], after=page["next"], limit=50)
        assert [one["run_id"] for one in (*page["runs"], *rest["runs"])] == sorted(mine[1:])
        assert {one["result"] for one in (*page["runs"], *rest["runs"])} == {"done"}


async def test_a_job_finds_its_runs_among_all_in_however_many_parts(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_UP", 1)

    async with on(database_url) as engine:
        [mine] = await started(engine, 1, labels={"team": "a"})
        await started(engine, 2, labels={"team": "b"})
        told = await engine.jobs.start("cancel", where={"labels": {"team": "a"}}, dry_run=True)
        assert (told["runs"], told["first"]) == (1, [mine])
        monkeypatch.setattr(jobs, "MOST_RUNS", 1)
        with pytest.raises(sk.InvalidInput, match="more than 1 runs fit"):
            await engine.jobs.start("cancel", where={"labels": {"team": "b"}}, dry_run=True)
        monkeypatch.setattr(jobs, "MOST_RUNS", 3)
        assert (await engine.jobs.start("cancel", where={"workflow": "bulk-gated"}, dry_run=True))["runs"] == 3


@first_on("sqlite")
async def test_jobs_that_ended_long_ago_go_when_they_are_pruned(database_url: str) -> None:
    async with on(database_url) as engine:
        old, running = [
            (await engine.jobs.start("cancel", runs=await started(engine, 1), idempotency_key=key))["job"]
            for key in ("old", "new")
        ]
        await engine.jobs.stop(old)
        assert (await engine.prune(archive=None, forget_jobs="1d")).jobs == 0
        engine.store.clock_offset = 2 * 86_400 * 1_000_000
        assert (await engine.prune(archive=None, forget_jobs="1d", dry_run=True)).jobs == 0
        assert (await engine.prune(archive=None, forget_jobs="1d")).jobs == 1
        assert [one["job"] for one in (await engine.jobs.list())["jobs"]] == [running]
        with pytest.raises(sk.NotFound):
            await engine.jobs.show(old)
        again = await engine.jobs.start("cancel", runs=await started(engine, 1), idempotency_key="old")
        assert again["created"], "its key went with it"


async def test_many_runs_are_paused_and_resumed(database_url: str) -> None:
    async with on(database_url) as engine:
        mine, other = await started(engine, 3), (await started(engine, 1))[0]
        await engine.pause(mine[0], reason="by hand")
        await engine.cancel(other)
        job = await engine.jobs.start("pause", runs=[*mine, other], reason="wrong prices")
        assert await carried_out(engine) == 4
        results = {one["run_id"]: one["result"] for one in (await engine.jobs.runs(job["job"]))["runs"]}
        assert results == {mine[0]: "unchanged", mine[1]: "done", mine[2]: "done", other: "refused"}
        [cause] = [one for one in (await engine.explain(mine[1]))["causes"] if one["code"] == "paused"]
        assert f"wrong prices (job {job['job']})" in cause["sentence"]
        with pytest.raises(sk.InvalidInput, match="compensate goes with cancel"):
            await engine.jobs.start("resume", where={"workflow": "bulk-gated"}, compensate=True)
        again = await engine.jobs.start("resume", where={"workflow": "bulk-gated"})
        assert await carried_out(engine) == 3
        assert (await engine.jobs.show(again["job"]))["done"] == 3
        assert {(await engine.show(run))["run"]["state"] for run in mine} == {"blocked"}


async def test_named_runs_are_each_told_what_became_of_them(database_url: str) -> None:
    async with on(database_url) as engine:
        live, cancelled, rejected = await started(engine, 3)
        await engine.cancel(cancelled)
        await engine.reject(rejected)
        gone = "01a1e12c-57d6-75bf-abba-e99e88c4e41f"
        job = await engine.jobs.start("cancel", runs=[live, cancelled, rejected, gone, live])
        await carried_out(engine)
        found = {one["run_id"]: one for one in (await engine.jobs.runs(job["job"]))["runs"]}
        results = {run: one["result"] for run, one in found.items()}
        assert results == {live: "done", cancelled: "unchanged", rejected: "refused", gone: "refused"}
        assert "already ended" in found[rejected]["detail"]
        rerun = await engine.jobs.start("rerun", runs=[live, rejected])
        await carried_out(engine)
        made = [one["new_run_id"] for one in (await engine.jobs.runs(rerun["job"]))["runs"]]
        assert [(await engine.show(one))["run"]["rerun_of"] for one in made] == sorted([live, rejected])


async def test_a_batch_that_is_cut_off_is_done_again_and_each_run_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as engine:
        runs = await started(engine, 30)
        ended = runs[:10]
        for run in ended:
            await engine.reject(run)
        cancel = await engine.jobs.start("cancel", runs=runs[10:])
        rerun = await engine.jobs.start("rerun", runs=ended)
        report = type(engine.store.jobs).report
        lost: list[int] = []

        async def lose(self: Any, job: Any, runs: list[JobRun], *args: Any, **options: Any) -> bool:
            if len(lost) < 2:
                lost.append(len(runs))
                raise ConnectionLost("the report was lost")
            return await report(self, job, runs, *args, **options)

        monkeypatch.setattr(type(engine.store.jobs), "report", lose)
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await JobSweep(engine.transactor).sweep("w-1")
        assert await JobSweep(engine.transactor).sweep("w-2") == 0, "another worker holds them"
        engine.store.clock_offset += jobs.LEASE_US + 1
        assert await carried_out(engine) == 30
        assert sum(lost) == 30
        assert (await engine.jobs.show(cancel["job"]))["done"] == 20
        made = [one["new_run_id"] for one in (await engine.jobs.runs(rerun["job"]))["runs"]]
        assert len(set(made)) == 10
        assert len((await engine.runs(limit=1000))["runs"]) == 40


@first_on("sqlite")
async def test_what_is_not_a_choice_is_refused(database_url: str) -> None:
    async with on(database_url) as engine:
        [run] = await started(engine, 1)
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("cancel", {}),
            ("cancel", {"where": {}}),
            ("cancel", {"where": {"workflow": None, "labels": {}}}),
            ("cancel", {"runs": []}),
            ("cancel", {"runs": ["no"]}),
            ("cancel", {"where": {"workflow": "w"}, "runs": [run]}),
            ("cancel", {"where": {"limit": 3}}),
            ("cancel", {"where": {"state": "sleeping"}}),
            ("drop", {"runs": [run]}),
            ("rerun", {"runs": [run], "compensate": True}),
            ("rerun", {"runs": [run], "reason": "why"}),
        ]
        for action, given in wrong:
            with pytest.raises(sk.InvalidInput):
                await engine.jobs.start(action, **given)
        assert (await engine.jobs.list())["jobs"] == []
        assert (await engine.show(run))["run"]["state"] == "blocked"
        with pytest.raises(sk.NotFound):
            await engine.jobs.show("nothing")
        job = await engine.jobs.start("cancel", runs=[run])
        assert (await engine.jobs.stop(job["job"]))["waiting"] == 1
        with pytest.raises(sk.Conflict):
            await engine.jobs.stop(job["job"])
        assert await carried_out(engine) == 0
        assert (await engine.show(run))["run"]["state"] == "blocked"


@first_on("sqlite")
async def test_a_key_needs_the_scope_of_the_action_when_it_asks_and_when_it_is_done(database_url: str) -> None:
    async with on(database_url) as engine:
        [run] = await started(engine, 1)
        await engine.users.create("ann")
        reader = await engine.keys.create("ann", scopes=["read"])
        operator = await engine.keys.create("ann", scopes=["read", "operate"])
        async with AsyncEngine(database_url, key=reader["secret"]) as keyed:
            with pytest.raises(sk.NotAllowed):
                await keyed.jobs.start("cancel", runs=[run])
        async with AsyncEngine(database_url, key=operator["secret"]) as keyed:
            with pytest.raises(sk.NotAllowed):
                await keyed.jobs.start("rerun", runs=[run])
            job = await keyed.jobs.start("cancel", runs=[run])
        await engine.keys.revoke(operator["key"]["id"])
        await carried_out(engine)
        [found] = (await engine.jobs.runs(job["job"]))["runs"]
        assert (found["result"], (await engine.show(run))["run"]["state"]) == ("refused", "blocked")


@first_on("sqlite")
async def test_backfills_are_listed_among_the_jobs(database_url: str) -> None:
    async with on(database_url) as engine:
        await engine.publish(GATED)
        await engine.triggers.add("daily", "bulk-gated", schedule="@daily")
        within = {"since": sk_time("2026-01-01T00:00:00+00:00"), "until": sk_time("2026-01-03T00:00:00+00:00")}
        backfill = await engine.triggers.backfill("daily", **within)
        job = await engine.jobs.start("rerun", where={"workflow": "none"})
        listed = await engine.jobs.list()
        assert [one["job"] for one in listed["jobs"]] == [job["job"], backfill["backfill"]]
        first = await engine.jobs.list(limit=1)
        rest = await engine.jobs.list(before=first["next"], limit=1)
        assert [one["job"] for one in rest["jobs"]] == [backfill["backfill"]]
        assert (await engine.jobs.show(backfill["backfill"]))["action"] == "backfill"


def sk_time(text: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text)


WORKER = """
import asyncio, os, sys
from stepkeep.engine import AsyncEngine
from stepkeep.operations.continuation import jobs
from stepkeep.operations.runs import search
from stepkeep.operations.continuation.jobs import JobSweep

jobs.BATCH = 5
after = int(sys.argv[2])

class Killed(JobSweep):
    acted = 0
    async def _act(self, job, run_id):
        done = await super()._act(job, run_id)
        Killed.acted += 1
        if Killed.acted == after:
            os.kill(os.getpid(), 9)
        return done

async def main():
    async with AsyncEngine(sys.argv[1], actor="worker") as engine:
        engine.store.clock_offset = int(sys.argv[3])
        while await Killed(engine.transactor).sweep("w"):
            pass

asyncio.run(main())
"""


async def test_workers_that_are_killed_leave_a_job_that_the_next_one_finishes(database_url: str) -> None:
    def work(after: int, offset: int) -> int:
        command = [sys.executable, "-c", WORKER, database_url, str(after), str(offset)]
        return subprocess.run(command, env=dict(os.environ), timeout=120, check=False).returncode

    async def prepare(engine: AsyncEngine) -> None:
        runs = await started(engine, 30)
        for run in runs[:15]:
            await engine.reject(run)
        await engine.jobs.start("rerun", runs=runs[:15], idempotency_key="r")
        await engine.jobs.start("cancel", runs=runs[15:], idempotency_key="c")

    async with on(database_url) as engine:
        await prepare(engine)
    for turn, after in enumerate((3, 7, 12)):
        assert work(after, turn * (jobs.LEASE_US + 1)) == -signal.SIGKILL
    assert work(0, 3 * (jobs.LEASE_US + 1)) == 0

    async with on(database_url) as engine:
        listed = (await engine.jobs.list())["jobs"]
        assert [(one["state"], one["done"], one["refused"]) for one in listed] == [("done", 15, 0)] * 2
        found = (await engine.runs(limit=1000))["runs"]
        assert len(found) == 45
        assert sum(one["state"] == "cancelled" for one in found) == 15
