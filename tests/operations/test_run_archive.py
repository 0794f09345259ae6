"""Archives of single runs: made when a run has ended, by declaration, once, whole, and kept by state (matrix A23)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.cli.commands.records import verified
from stepkeep.definition.native.reader import check_text
from stepkeep.definition.native.written import ArchivePolicy, policy_of
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import Conflict, StoreUnavailable
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, RunState
from stepkeep.operations.logs.archive import UNFINISHED
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.operations.logs.run_archive import ArchiveSweeper, Swept, archive_run
from tests.seeds.workstream import task as ws_task
from tests.seeds.workstream import workstream
from tests.workbench import TENANT, Bench, benches, on

ROOT = Path(__file__).parents[2]
DAY = 86_400 * 1_000_000
BROKEN = Failed(category=Category.EXTERNAL, error="exit status 1", final=True)


def declared(name: str = "ws", **policy: Any) -> Definition:
    return replace(workstream(ws_task("build", max_retries=0), archive={"to": "archive", **policy}), name=name)


async def sweep(bench: Bench, base: Path) -> Swept:
    return await ArchiveSweeper(bench.transactor, tenant=TENANT, verify=verified, base=base).sweep()


async def ended(bench: Bench, definition: Definition, *, fails: bool = False) -> str:
    run_id = await bench.start(definition)
    [claim] = await bench.claim(1)
    await bench.report(claim, BROKEN if fails else None)
    assert await bench.state(run_id) is (RunState.FAILED if fails else RunState.SUCCEEDED)
    return run_id


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()


async def test_ended_runs_are_archived_once_each_as_a_verified_bundle(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        good, bad = await ended(bench, declared()), await ended(bench, declared(), fails=True)
        live = await bench.start(declared())
        swept = await sweep(bench, tmp_path)
        assert {(one.run_id, one.state, one.made) for one in swept.bundles} == {
            (good, "succeeded", True), (bad, "failed", True),
        }  # fmt: skip
        folder = tmp_path / "archive" / "ws"
        assert names(folder) == {good, bad}
        [manifest] = (folder / bad).glob("*.manifest.json")
        assert list(verified(manifest)) == []
        checkpoint = json.loads((folder / bad / "state" / "checkpoints" / "ws_latest.json").read_text())
        assert (checkpoint["status"], checkpoint["failed_tasks"]) == ("failed", ["build"])
        assert (await sweep(bench, tmp_path)).bundles == ()
        [claim] = await bench.claim(1)
        await bench.report(claim)
        assert [one.run_id for one in (await sweep(bench, tmp_path)).bundles] == [live], "it ended after the sweep"


async def test_only_the_endings_that_are_declared_are_archived(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path}/test.db") as bench:
        only_failed = declared(on=["failed"])
        await ended(bench, only_failed)
        bad = await ended(bench, only_failed, fails=True)
        await ended(bench, replace(declared("plain"), about={}))
        assert [one.run_id for one in (await sweep(bench, tmp_path)).bundles] == [bad]


async def test_sweeps_of_several_workers_leave_one_whole_bundle_each(database_url: str, tmp_path: Path) -> None:
    async with benches(database_url, 3) as opened:
        run_ids = {await ended(opened[0], declared()) for _ in range(6)}
        swept = await asyncio.gather(*(sweep(bench, tmp_path) for bench in opened))
        made = [one.run_id for each in swept for one in each.bundles]
        assert sorted(made) == sorted(run_ids), "each was made by one of them"
        folder = tmp_path / "archive" / "ws"
        assert names(folder) == run_ids
        assert [path for path in folder.iterdir() if path.name.startswith(UNFINISHED)] == []


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from stepkeep.cli.commands.records import verified
from stepkeep.operations.logs import run_archive
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.store.connect import connect

def die(unfinished, place):
    os.kill(os.getpid(), signal.SIGKILL)

run_archive._rename = die

async def main():
    store = connect(sys.argv[1])
    await store.open()
    base = Path(sys.argv[2])
    await run_archive.ArchiveSweeper(Transactor(store), tenant="default", verify=verified, base=base).sweep()

asyncio.run(main())
"""


async def test_a_worker_that_dies_before_the_bundle_has_its_name_is_made_up_for(
    database_url: str, tmp_path: Path
) -> None:
    async with on(database_url) as bench:
        run_id = await ended(bench, declared())
        command = [sys.executable, "-c", KILLED, database_url, str(tmp_path)]
        killed = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False, timeout=60)
        assert killed.returncode == -9
        folder = tmp_path / "archive" / "ws"
        assert names(folder) == set(), "nothing half-written has a name"
        assert [one.run_id for one in (await sweep(bench, tmp_path)).bundles] == [run_id]


async def test_a_run_with_a_damaged_journal_is_told_once_and_stays(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path}/test.db") as bench:
        run_id = await ended(bench, declared())
        sweeper = ArchiveSweeper(
            bench.transactor, tenant=TENANT, verify=lambda manifest: ["a line was changed"], base=tmp_path
        )
        [(named, why)] = (await sweeper.sweep()).problems
        assert named == run_id
        assert "does not verify: a line was changed" in why
        assert (await sweeper.sweep()).problems == ()
        assert [one.run_id for one in (await sweep(bench, tmp_path)).bundles] == [run_id], (
            "the next process tries again"
        )


async def test_prune_keeps_a_failed_run_as_long_as_its_policy_says(database_url: str, tmp_path: Path) -> None:
    """Seed 004, Workstream invariant 4, and its retention: failed workstreams are kept."""

    async with on(database_url) as bench:
        some = declared(keep={"failed": "30d", "completed": "2d"})
        ever = declared("ever", keep={"failed": "forever"})
        good, bad = await ended(bench, some), await ended(bench, some, fails=True)
        forever = await ended(bench, ever, fails=True)
        free = await ended(bench, replace(declared("free"), about={}), fails=True)

        async def go(**options: Any) -> Any:
            return await prune(bench.transactor, Policy(older_than=0), tenant=TENANT, folder=None, **options)

        async def left() -> set[str]:
            return {one for one in (good, bad, forever, free) if await bench.store.read_run(TENANT, one) is not None}

        tried = await go(dry_run=True)
        assert (tried.found, tried.kept) == (1, 3)
        assert (await go()).deleted == 1
        assert await left() == {good, bad, forever}
        bench.store.clock_offset += 3 * DAY
        assert (await go()).kept == 2
        assert await left() == {bad, forever}
        bench.store.clock_offset += 28 * DAY
        await go()
        bench.store.clock_offset += 10_000 * DAY
        await go()
        assert await left() == {forever}


async def test_a_worker_that_may_deletes_archived_runs_when_their_time_has_passed(
    database_url: str, tmp_path: Path
) -> None:
    async with on(database_url) as bench:
        some = declared(keep={"failed": "forever", "completed": "2d"})
        unarchived = declared("unarchived", on=["failed"], keep={"completed": "2d"})
        good, bad = await ended(bench, some), await ended(bench, some, fails=True)
        silent = await ended(bench, unarchived)
        undeclared = await ended(bench, declared("undeclared"))
        runs = {good, bad, silent, undeclared}
        sweeper = ArchiveSweeper(bench.transactor, tenant=TENANT, verify=verified, base=tmp_path)

        async def left() -> set[str]:
            return {one for one in runs if await bench.store.read_run(TENANT, one) is not None}

        bench.store.clock_offset += 1 * DAY
        assert (await sweeper.delete_expired()).deleted == ()
        bench.store.clock_offset += 2 * DAY
        assert (await sweeper.delete_expired()).deleted == (silent,), "the other one is to be archived first"
        await sweeper.sweep()
        assert await left() == {good, bad, undeclared}, "a sweep alone deletes nothing"
        assert (await sweeper.delete_expired()).deleted == (good,)
        bench.store.clock_offset += 10_000 * DAY
        assert (await sweeper.delete_expired()).deleted == ()
        assert await left() == {bad, undeclared}


async def test_only_a_worker_that_was_told_to_deletes(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path}/test.db") as bench:
        run = await ended(bench, declared(keep={"completed": "2d"}))
        bench.store.clock_offset += 3 * DAY
        sweeper = ArchiveSweeper(bench.transactor, tenant=TENANT, verify=verified, base=tmp_path)
        kept = await anext(sweeper.follow())
        assert (len(kept.bundles), kept.deleted) == (1, ())
        gone = await anext(sweeper.follow(deletes=True))
        assert gone.deleted == (run,)


async def test_a_run_that_is_alive_is_not_archived(tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path}/test.db") as bench:
        done = await ended(bench, declared("other"))
        run_id = await bench.start(declared())
        with pytest.raises(Conflict, match="it is archived when it has ended"):
            await archive_run(bench.transactor, run_id, tmp_path, tenant=TENANT, verify=verified)
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            await archive_run(bench.transactor, done, tmp_path / "file", tenant=TENANT, verify=verified)


NATIVE = """
workflow: shop
timeout: 1h
archive: {{ on: {on}, keep: {keep} }}
steps:
  - {{ name: a, command: [ "true" ] }}
"""


def test_a_native_workflow_declares_the_same() -> None:
    report = check_text(NATIVE.format(on="[failed]", keep="{failed: forever, succeeded: 90d}"), "shop.yaml")
    assert report.definition is not None, report.problems
    assert policy_of(report.definition) == ArchivePolicy(
        on=("failed",), to=".state/archive", keep={"failed": "forever", "succeeded": 90 * DAY}
    )


SENSELESS = [("[blocked]", "{}"), ("[]", "{}"), ("[failed]", "{failed: never}"), ("[failed]", "{running: 1d}")]


@pytest.mark.parametrize(("on_", "keep"), SENSELESS)
def test_a_senseless_declaration_is_refused(on_: str, keep: str) -> None:
    assert check_text(NATIVE.format(on=on_, keep=keep), "shop.yaml").definition is None


def test_a_worker_in_a_host_program_archives_too(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    native = sk.Workflow("hosted", version=1, timeout="1h", archive={"to": "archive"})
    native.sleep("pause", "1ms")
    with sk.open(database_url) as engine, engine.start_worker():
        run = engine.start(native).run_id
        assert engine.wait(run, seconds=20).state is RunState.SUCCEEDED
    assert names(tmp_path / "archive" / "hosted") == {run}, "at the latest when the worker has drained"
