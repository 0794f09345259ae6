"""Retention: what goes, what stays, and that nothing goes which is not in an archive that the judge accepts."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from uuid_utils import uuid7

import stepkeep
from stepkeep.conformance.report import Code
from stepkeep.conformance.validate import verify_archive
from stepkeep.kernel.definition import Approval, Definition
from stepkeep.kernel.errors import InvalidInput, NotFound, StoreUnavailable
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.going_on import rerun
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, export_run
from stepkeep.operations.logs.retention import Policy, Pruned, first_id_at, prune, require_kept
from stepkeep.operations.pipeline.start import StartRequest
from stepkeep.store.records import RunFilter
from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches, chain, gate, on, task

DAY = 86_400 * SECOND
EVERYTHING = Policy(keep=0)
SIGNED = Definition(
    name="signed", version=1, steps=(task("pack"), gate("sign", 1, ["pack"], approval=Approval(prompt="Send it?")))
)


async def finished(bench: Bench, count: int, workflow: str = "work", **options: Any) -> list[str]:
    plan = await bench.publish(chain(workflow, 2))
    runs = [await bench.start(plan, b'{"n":%d}' % number, **options) for number in range(count)]
    await bench.work_off()
    return runs


async def log_of(bench: Bench, run_id: str) -> list[bytes]:
    return [encode_line(line) async for line in export_run(bench.transactor, run_id, tenant=TENANT)]


async def left(bench: Bench) -> list[str]:
    return sorted(record.run.id for record in await bench.store.list_runs(RunFilter(tenant=TENANT, limit=1000)))


async def pruned(bench: Bench, policy: Policy, folder: Path | None, **options: Any) -> Pruned:
    return await prune(bench.transactor, policy, tenant=TENANT, folder=folder, **options)


def unpacked(folder: Path, kind: str) -> list[bytes]:
    """The lines of all archives in a folder that a manifest vouches for."""
    names = [json.loads(path.read_text())["files"][kind]["name"] for path in sorted(folder.glob("*.manifest.json"))]
    return [line for name in names for line in gzip.open(folder / name).read().splitlines()]


def archived_ids(folder: Path) -> set[str]:
    return {json.loads(line)["run"]["id"] for line in unpacked(folder, "rest")}


def accepted(folder: Path) -> bool:
    reports = [verify_archive(path, canonical_machines()) for path in folder.glob("*.manifest.json")]
    return bool(reports) and all(report.ok for report in reports)


# -- archive, then delete --------------------------------------------------------------------------------------------
async def test_an_archive_holds_the_log_that_was_exported_before_and_the_judge_accepts_it(
    database_url: str,
    tmp_path: Path,
) -> None:
    async with on(database_url) as bench:
        runs = await finished(bench, 3)
        before = [line for run in runs for line in await log_of(bench, run)]
        done = await pruned(bench, EVERYTHING, tmp_path / "archive")
        assert (done.found, done.archived, done.deleted, done.flawed) == (3, 3, 3, ())
        assert unpacked(tmp_path / "archive", "log") == before
        assert await left(bench) == []
    assert accepted(tmp_path / "archive")


async def test_an_archive_also_has_what_the_log_does_not(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        run = await bench.start(SIGNED, b'{"email": "a@b.c"}', business_key="order-7", labels=b'{"team":"x"}')
        await bench.work_off()
        await bench.send(run, "paid", b'{\n"amount": 12}')
        await bench.cancel(run)
        await pruned(bench, EVERYTHING, tmp_path)
    [kept] = [json.loads(line) for line in unpacked(tmp_path, "rest")]
    assert (kept["run"]["id"], kept["run"]["state"], kept["run"]["workflow"]) == (run, "cancelled", "signed")
    assert (kept["run"]["input"], kept["run"]["business_key"]) == ({"email": "a@b.c"}, "order-7")
    assert kept["run"]["labels"] == {"team": "x"}
    assert [(step["name"], step["state"]) for step in kept["steps"]] == [("pack", "succeeded"), ("sign", "cancelled")]
    assert [attempt["output"] for attempt in kept["attempts"]] == [{"ok": True}]
    assert [message["payload"] for message in kept["messages"]] == [{"amount": 12}]


async def test_a_manifest_counts_what_is_there(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        runs = await finished(bench, 4)
        await pruned(bench, EVERYTHING, tmp_path / "archive")
    [path] = (tmp_path / "archive").glob("*.manifest.json")
    said = json.loads(path.read_text())
    assert (said["runs"], said["first"], said["last"], said["tenant"]) == (4, runs[0], runs[-1], TENANT)
    assert said["files"]["log"]["lines"] == len(unpacked(tmp_path / "archive", "log"))
    assert {file.name for file in (tmp_path / "archive").iterdir()} == {
        path.name,
        said["files"]["log"]["name"],
        said["files"]["rest"]["name"],
    }, "nothing half-written is left behind"


# -- what goes -------------------------------------------------------------------------------------------------------
async def test_runs_go_by_the_age_of_their_end(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        first = await finished(bench, 2)
        waiting = await bench.start(SIGNED)
        await bench.work_off()
        bench.store.clock_offset += 20 * DAY
        second = await finished(bench, 2)
        await bench.cancel(waiting)
        bench.store.clock_offset += 15 * DAY
        done = await pruned(bench, Policy(older_than=30 * DAY), tmp_path)
        assert done.deleted == 2
        assert await left(bench) == sorted([waiting, *second]), "it began early but ended late"
        assert archived_ids(tmp_path) == set(first)


async def test_the_newest_are_spared_by_count(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        runs = await finished(bench, 5)
        live = await bench.start(SIGNED)
        assert (await pruned(bench, Policy(keep=5), tmp_path)).found == 0
        assert (await pruned(bench, Policy(keep=2), tmp_path)).deleted == 3
        assert await left(bench) == sorted([*runs[-2:], live])


async def test_a_run_goes_only_when_every_limit_lets_it_go(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        old = await finished(bench, 3)
        bench.store.clock_offset += 40 * DAY
        await pruned(bench, Policy(older_than=30 * DAY, keep=2), tmp_path)
        assert await left(bench) == sorted(old[-2:]), "old enough, but among the newest"
        new = await finished(bench, 3)
        await pruned(bench, Policy(older_than=30 * DAY, keep=1), tmp_path)
        assert await left(bench) == sorted(new), "too young, though beyond the newest"


async def test_one_workflow_is_pruned_and_counted_alone(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        others = await finished(bench, 2, "audit")
        mine = await finished(bench, 3, "noisy")
        await pruned(bench, Policy(keep=1, workflow="noisy"), tmp_path)
        assert await left(bench) == sorted([*others, mine[-1]])
        await pruned(bench, Policy(older_than=0, workflow="noisy"), tmp_path)
        assert await left(bench) == sorted(others)


async def test_what_is_not_finished_never_goes(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("work", 2))
        idle = await bench.start(plan, start_now=False)
        waiting = await bench.start(SIGNED)
        await bench.work_off()
        queued = await bench.start(plan)
        bench.store.clock_offset += 4000 * DAY
        done = await pruned(bench, Policy(older_than=DAY), tmp_path)
        assert (done.found, await left(bench)) == (0, sorted([idle, waiting, queued]))
        assert await bench.state(waiting) is RunState.BLOCKED


async def test_a_dry_run_counts_and_changes_nothing(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        runs = await finished(bench, 5)
        done = await pruned(bench, EVERYTHING, tmp_path / "never", dry_run=True, batch=2)
        assert done == Pruned(found=5)
        assert await left(bench) == sorted(runs)
        assert not (tmp_path / "never").exists()


async def test_without_an_archive_runs_just_go(database_url: str) -> None:
    async with on(database_url) as bench:
        await finished(bench, 5)
        done = await pruned(bench, EVERYTHING, None, batch=2)
        assert (done.deleted, done.archived, await left(bench)) == (5, 0, [])


@pytest.mark.parametrize("policy", [Policy(), Policy(workflow="work"), Policy(keep=-1), Policy(older_than=-1)])
async def test_a_policy_that_says_nothing_sensible_is_refused(policy: Policy, tmp_path: Path) -> None:
    async with on(f"sqlite:///{tmp_path}/a.db") as bench:
        await finished(bench, 1)
        with pytest.raises(InvalidInput):
            await pruned(bench, policy, None)
        assert len(await left(bench)) == 1


async def test_archives_end_with_the_day_on_which_their_runs_were_started(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        for _ in range(3):
            await finished(bench, 2)
            bench.store.clock_offset += DAY
        done = await pruned(bench, EVERYTHING, tmp_path, batch=3)
        assert (done.deleted, len(done.archives)) == (6, 3)
    assert accepted(tmp_path)
    assert len(archived_ids(tmp_path)) == 6


# -- killed in between -----------------------------------------------------------------------------------------------
class Killed(Exception):
    """Stands for the end of the process."""


def killed_when(reached: Callable[[Pruned], bool]) -> Callable[[Pruned], None]:
    def told(done: Pruned) -> None:
        if reached(done):
            raise Killed

    return told


MOMENTS: dict[str, Callable[[Pruned], bool]] = {
    "while it gathers": lambda done: done.found >= 4,
    "when an archive is sealed": lambda done: done.archived > 0,
    "in the middle of deleting": lambda done: done.deleted >= 3,
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_pass_that_dies_loses_nothing_and_the_next_one_ends_it(
    database_url: str,
    tmp_path: Path,
    moment: str,
) -> None:
    async with on(database_url) as bench:
        runs = await finished(bench, 7)
        with pytest.raises(Killed):
            await pruned(bench, EVERYTHING, tmp_path, batch=2, told=killed_when(MOMENTS[moment]))
        gone = set(runs) - set(await left(bench))
        if gone:
            assert gone <= archived_ids(tmp_path)
        done = await pruned(bench, EVERYTHING, tmp_path, batch=2)
        assert done.deleted == len(runs) - len(gone)
        assert archived_ids(tmp_path) == set(runs)
        assert await left(bench) == []
    assert accepted(tmp_path)


async def test_the_same_runs_archived_again_make_the_same_files(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive"

    async with on(database_url) as bench:
        await finished(bench, 3)
        for _ in range(2):
            with pytest.raises(Killed):
                await pruned(bench, EVERYTHING, folder, told=killed_when(MOMENTS["when an archive is sealed"]))
    assert len(list(folder.iterdir())) == 3


async def test_a_killed_process_leaves_every_run_in_the_database_or_in_an_archive(tmp_path: Path) -> None:
    """kill -9 at any moment, again and again, until a pass comes through."""
    url, folder = f"sqlite:///{tmp_path}/a.db", tmp_path / "archive"
    async with on(url) as bench:
        runs = await finished(bench, 60)
    command = [sys.executable, "-m", "stepkeep.cli.main", "prune", "--db", url]
    command += ["--keep", "0", "--batch", "1", "--archive", str(folder)]
    for patience in (0.25, 0.3, 0.35, 0.4, 0.5):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        async with on(url) as bench:
            kept = set(await left(bench))
        assert set(runs) <= kept | (archived_ids(folder) if folder.exists() else set())
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    async with on(url) as bench:
        assert await left(bench) == []
    assert archived_ids(folder) == set(runs)
    assert accepted(folder)


async def test_two_passes_at_once_do_no_harm(database_url: str, tmp_path: Path) -> None:
    async with benches(database_url, 2) as opened:
        runs = await finished(opened[0], 30)
        both = await asyncio.gather(*(pruned(bench, EVERYTHING, tmp_path, batch=4) for bench in opened))
        last = await pruned(opened[0], EVERYTHING, tmp_path)
        assert sum(done.deleted for done in (*both, last)) == 30
        assert archived_ids(tmp_path) == set(runs)
        assert await left(opened[0]) == []
    assert accepted(tmp_path)


# -- what must not go ------------------------------------------------------------------------------------------------
TAMPERED = {
    "changed": "update journal set body = cast(replace(body, 'bench', 'nobody') as blob) where seq = 2 and run_id = ?",
    "cut short": "delete from journal where run_id = ? and seq > 3",
    "with a gap": "delete from journal where run_id = ? and seq = 2",
}


@pytest.mark.parametrize("kind", TAMPERED)
async def test_a_run_with_a_flawed_journal_is_evidence_and_stays(tmp_path: Path, kind: str) -> None:
    async with on(f"sqlite:///{tmp_path}/a.db") as bench:
        runs = await finished(bench, 3)
        connection = apsw.Connection(f"{tmp_path}/a.db")
        connection.execute("drop trigger journal_never_changes")
        connection.execute(TAMPERED[kind], (runs[1],))
        connection.close()
        done = await pruned(bench, EVERYTHING, tmp_path / "archive")
        assert [run for run, _ in done.flawed] == [runs[1]]
        assert (done.archived, done.deleted, await left(bench)) == (2, 2, [runs[1]])


async def test_a_folder_that_cannot_be_written_keeps_everything(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    async with on(database_url) as bench:
        runs = await finished(bench, 2)
        with pytest.raises(StoreUnavailable, match="Nothing was deleted"):
            await pruned(bench, EVERYTHING, tmp_path / "file")
        assert await left(bench) == sorted(runs)


# -- what others still ask for ---------------------------------------------------------------------------------------
async def test_a_repeated_start_is_answered_for_a_run_that_is_gone_until_its_key_is_forgotten(
    database_url: str,
    tmp_path: Path,
) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("work", 1))
        request = StartRequest(plan=plan, caller=Caller(TENANT, ACTOR), input=b"{}", idempotency_key="once")
        first = await bench.starter.start(request)
        await bench.work_off()
        await pruned(bench, EVERYTHING, tmp_path)
        again = await bench.starter.start(request)
        assert (again.run_id, again.created) == (first.run_id, False), "the work was done; it is not done twice"
        with pytest.raises(NotFound, match="retention deleted it"):
            await require_kept(bench.store, again, tenant=TENANT)
        bench.store.clock_offset += 89 * DAY
        assert (await pruned(bench, Policy(keep=0, forget_keys=90 * DAY), tmp_path)).keys == 0
        bench.store.clock_offset += 2 * DAY
        assert (await pruned(bench, Policy(keep=0, forget_keys=90 * DAY), tmp_path)).keys == 1
        anew = await bench.starter.start(request)
        assert anew.created
        assert anew.run_id != first.run_id


async def test_a_rerun_outlives_the_run_it_names(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        [old] = await finished(bench, 1)
        new = await rerun(bench.transactor, bench.starter, old, caller=Caller(TENANT, ACTOR))
        await pruned(bench, EVERYTHING, tmp_path)
        found = await bench.store.read_run(TENANT, new.run_id)
        assert found is not None
        assert found.details.rerun_of == old
        with pytest.raises(NotFound):
            await rerun(bench.transactor, bench.starter, old, caller=Caller(TENANT, ACTOR))


async def test_a_tenant_prunes_its_own_runs_alone(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        runs = await finished(bench, 2)
        await prune(bench.transactor, EVERYTHING, tenant="another", folder=tmp_path)
        assert await left(bench) == sorted(runs)


# -- the judge of archives -------------------------------------------------------------------------------------------
def damaged(folder: Path, kind: str) -> None:
    [manifest] = folder.glob("*.manifest.json")
    said = json.loads(manifest.read_text())
    log, rest = (folder / said["files"][name]["name"] for name in ("log", "rest"))
    if kind == "cut short":
        log.write_bytes(log.read_bytes()[:-20])
    elif kind == "rewritten":
        lines = gzip.decompress(log.read_bytes()).splitlines(keepends=True)
        log.write_bytes(gzip.compress(b"".join(lines[:-1])))
    elif kind == "no rest":
        rest.unlink()
    elif kind == "another rest":
        rest.write_bytes(gzip.compress(b"{}\n"))
    elif kind == "counts":
        manifest.write_text(json.dumps({**said, "runs": said["runs"] + 1}))
    elif kind == "no manifest at all":
        manifest.write_bytes(b"\xff")
    else:
        manifest.write_text(json.dumps({**said, "format": "zip"}))


KINDS = ["cut short", "rewritten", "no rest", "another rest", "counts", "no manifest at all", "another format"]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_judge_finds_damage_in_an_archive(tmp_path: Path, kind: str) -> None:
    async with on(f"sqlite:///{tmp_path}/a.db") as bench:
        await finished(bench, 2)
        await pruned(bench, EVERYTHING, tmp_path / "archive")
    assert accepted(tmp_path / "archive")
    damaged(tmp_path / "archive", kind)
    [manifest] = (tmp_path / "archive").glob("*.manifest.json")
    report = verify_archive(manifest, canonical_machines())
    assert Code.ARCHIVE in {finding.code for finding in report.findings}


def test_the_first_id_of_a_moment_is_below_every_id_given_from_then_on() -> None:
    before = time.time_ns() // 1000
    given = str(uuid7())
    assert first_id_at(before) <= given < first_id_at(before + SECOND)
    assert first_id_at(-5) == first_id_at(0)


async def test_a_disk_that_fails_while_an_archive_is_written_keeps_everything(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with on(database_url) as bench:
        runs = await finished(bench, 3)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreUnavailable, match="No space left"):
                await pruned(bench, EVERYTHING, tmp_path / "archive")
        assert await left(bench) == sorted(runs)
        assert list((tmp_path / "archive").iterdir()) == [], "nothing half-written is left behind"
        assert (await pruned(bench, EVERYTHING, tmp_path / "archive")).deleted == 3


async def test_host_programs_prune_with_a_word(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as bench:
        await finished(bench, 3)
    with stepkeep.open(database_url) as engine:
        assert engine.prune(archive=None, keep=1, dry_run=True).found == 2
        done = engine.prune(archive=tmp_path / "archive", older_than="0s", keep=1)
        assert (done.archived, done.deleted) == (2, 2)
        with pytest.raises(InvalidInput, match="older_than: 30 has no unit"):
            engine.prune(archive=None, older_than="30")
        with pytest.raises(TypeError, match="archive"):
            engine.prune(older_than="30d")
    assert accepted(tmp_path / "archive")
