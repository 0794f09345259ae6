"""Seed 004, Event Schema: all state transitions emit events to `.state/transitions.jsonl`; Validation: of that file."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.damage import damage
from tests.seeds.workstream import Floor, on_floor, task, workstream
from tests.workbench import TENANT

from stepkeep.conformance.validate import main
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.logs import state_log
from stepkeep.operations.logs.state_export import StateFolder
from stepkeep.operations.pipeline import workers

TWO = workstream(task("build"), task("test", "build"))
LOG, CURSOR = "transitions.jsonl", ".transitions.json"


def folder_of(floor: Floor, path: Path) -> StateFolder:
    return StateFolder(floor.transactor, path / ".state", tenant=TENANT)


async def run_whole(floor: Floor) -> str:
    run_id = await floor.start(TWO)
    await floor.do("build")
    await floor.do("test")
    return run_id


def lines_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / ".state" / LOG).read_text().splitlines()]


def places(lines: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    """How often each line of each journal is there."""
    return Counter((str(one["metadata"].get("run_id") or one["entity_id"]), one["metadata"]["line"]) for one in lines)


def ended(lines: list[dict[str, Any]]) -> set[str]:
    return {one["entity_id"] for one in lines if one["event_type"] == "journal_head"}


def is_accepted(path: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """The seed's own command on the file."""
    capsys.readouterr()
    return main([str(path / ".state" / LOG)]) == 0


async def test_runs_that_come_and_go_between_two_looks_are_all_written(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with on_floor(database_url) as floor:
        files = folder_of(floor, tmp_path)
        await files.write()
        runs = {await run_whole(floor) for _ in range(5)}
        done = await files.write()
        lines = lines_in(tmp_path)
        assert done.lines == len(lines)
        assert ended(lines) == runs
        assert set(places(lines).values()) == {1}
        assert (await files.write()).lines == 0, "nothing has changed"
    assert is_accepted(tmp_path, capsys)


async def test_a_workstream_that_is_published_after_the_first_look_is_seen_at_the_next(tmp_path: Path) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        files = folder_of(floor, tmp_path)
        assert (await files.write()).workstreams == ()
        await run_whole(floor)
        assert (await files.write()).workstreams == ("ws-001",)


async def test_a_worker_that_comes_and_goes_between_two_looks_is_written(database_url: str, tmp_path: Path) -> None:
    async with on_floor(database_url) as floor:
        files = folder_of(floor, tmp_path)
        await files.write()
        row = await workers.register(floor.store, tenant=TENANT, app="short", capacity=1)
        await workers.shut_down(floor.store, await workers.mark_busy(floor.store, row))
        await files.write()
        told = [one for one in lines_in(tmp_path) if one["entity_id"] == row.id]
        assert [one["to_state"] for one in told] == ["initializing", "idle", "busy", "shutdown", "shutdown"]
        assert told[-1]["event_type"] == "journal_head"


async def test_the_file_is_accepted_while_a_task_runs_and_other_processes_go_on_with_it(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with on_floor(database_url) as floor:
        run_id = await floor.start(TWO)
        await floor.claim()
        await folder_of(floor, tmp_path).write()
        assert lines_in(tmp_path)[-1]["to_state"] in ("running", "executing")
        assert is_accepted(tmp_path, capsys), capsys.readouterr().out
        await floor.report("build")
        await folder_of(floor, tmp_path).write()
        assert is_accepted(tmp_path, capsys), capsys.readouterr().out
        await floor.do("test")
        await folder_of(floor, tmp_path).write()
        assert run_id in ended(lines_in(tmp_path))
        assert set(places(lines_in(tmp_path)).values()) == {1}
    assert is_accepted(tmp_path, capsys)


async def test_a_live_journal_that_has_ended_is_incomplete_without_its_closing_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        await run_whole(floor)
        await folder_of(floor, tmp_path).write()
    path = tmp_path / ".state" / LOG
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "journal_head" not in line))
    assert not is_accepted(tmp_path, capsys)
    assert "without its closing line" in capsys.readouterr().out


@pytest.mark.parametrize("cut", [0, 40], ids=["whole lines", "a line that is cut"])
async def test_a_process_that_was_killed_before_it_kept_its_position_loses_no_line_and_writes_none_twice(
    database_url: str, tmp_path: Path, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with on_floor(database_url) as floor:
        files = folder_of(floor, tmp_path)
        await floor.start(TWO)
        await floor.do("build")
        row = await workers.register(floor.store, tenant=TENANT, app="first", capacity=1)
        await files.write()
        position = (tmp_path / ".state" / CURSOR).read_bytes()
        await workers.mark_busy(floor.store, row)
        await floor.do("test")
        await run_whole(floor)
        await files.write()
        whole = (tmp_path / ".state" / LOG).read_bytes()
        (tmp_path / ".state" / CURSOR).write_bytes(position)
        (tmp_path / ".state" / LOG).write_bytes(whole[: len(whole) - cut])
        for _ in range(2):
            await folder_of(floor, tmp_path).write()
            assert (tmp_path / ".state" / LOG).read_bytes() == whole
    assert is_accepted(tmp_path, capsys)


async def test_a_kill_between_the_pages_of_a_long_history_leaves_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(state_log, "PAGE", 3)

    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        for _ in range(3):
            row = await workers.register(floor.store, tenant=TENANT, app="one", capacity=1)
            await run_whole(floor)
            await workers.shut_down(floor.store, row)
        await folder_of(floor, tmp_path / "whole").write()
        count = len(lines_in(tmp_path / "whole"))
        for pages in range(1, 40):
            log = state_log.TransitionLog(floor.transactor, tmp_path / ".state", tenant=TENANT)
            left = iter([False] * (pages % 3) + [True] * 40)
            await log.append(is_stopping=lambda left=left: next(left))  # type: ignore[misc]
        assert len(lines_in(tmp_path)) == count
        assert set(places(lines_in(tmp_path)).values()) == {1}
    assert is_accepted(tmp_path, capsys)


async def test_two_processes_may_write_to_one_folder(tmp_path: Path) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        both = [folder_of(floor, tmp_path) for _ in range(2)]
        for _ in range(3):
            await run_whole(floor)
            await asyncio.gather(*(one.write() for one in both))
        lines = lines_in(tmp_path)
        assert len(ended(lines)) == 3
        assert set(places(lines).values()) == {1}


async def test_a_file_of_another_database_is_kept_aside(tmp_path: Path) -> None:
    async def first(floor: Floor) -> None:
        await run_whole(floor)
        await folder_of(floor, tmp_path).write()

    async with on_floor(f"sqlite:///{tmp_path}/one.db") as floor:
        await first(floor)
    before = (tmp_path / ".state" / LOG).read_bytes()
    async with on_floor(f"sqlite:///{tmp_path}/two.db") as floor:
        await first(floor)
    assert (tmp_path / ".state" / f"{LOG}.1").read_bytes() == before
    assert len(ended(lines_in(tmp_path))) == 1


async def test_a_run_that_cannot_be_read_holds_up_no_other_and_follows_when_it_can(
    database_url: str, tmp_path: Path
) -> None:
    binary = "blob" if database_url.startswith("sqlite") else "bytea"

    async with on_floor(database_url) as floor:
        runs = [await run_whole(floor) for _ in range(3)]
        [entry] = await floor.store.read_journal(TENANT, runs[1], 2, 1)
        spoil = "update journal set body = cast('{body}' as {binary}) where run_id = '{run}' and seq = 3"
        await damage(database_url, spoil.format(body="{}", binary=binary, run=runs[1]))
        await folder_of(floor, tmp_path).write()
        assert ended(lines_in(tmp_path)) == {runs[0], runs[2]}
        body = entry.body.decode().replace("'", "''")
        await damage(database_url, spoil.format(body=body, binary=binary, run=runs[1]))
        await folder_of(floor, tmp_path).write()
        assert ended(lines_in(tmp_path)) == set(runs)
        assert set(places(lines_in(tmp_path)).values()) == {1}


async def test_entries_whose_transactions_overtook_each_other_are_written_in_the_order_of_their_run(
    postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A transaction that began earlier may commit later. Here each entry is a page, and each page a process."""
    monkeypatch.setattr(state_log, "PAGE", 1)
    monkeypatch.setattr(state_log, "MOST_UNSAVED", 1)

    async with on_floor(postgres_dsn) as floor:
        run_id = await run_whole(floor)
        await damage(postgres_dsn, f"update journal set xact = xact - 2 * seq where run_id = '{run_id}'")
        for _ in range(12):
            log = state_log.TransitionLog(floor.transactor, tmp_path / ".state", tenant=TENANT)
            await log.append(is_stopping=lambda: True)
        assert run_id in ended(lines_in(tmp_path))
        assert set(places(lines_in(tmp_path)).values()) == {1}
    assert is_accepted(tmp_path, capsys)


async def test_given_runs_have_a_folder_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        runs = [await run_whole(floor) for _ in range(2)]
        given = StateFolder(floor.transactor, tmp_path / ".state", tenant=TENANT, run_ids=runs[:1])
        await given.write()
        assert ended(lines_in(tmp_path)) >= {runs[0]}
        assert runs[1] not in ended(lines_in(tmp_path))
        await folder_of(floor, tmp_path / "all").write()
        with pytest.raises(InvalidInput, match="has the transitions of all runs"):
            await StateFolder(floor.transactor, tmp_path / "all/.state", tenant=TENANT, run_ids=runs[:1]).write()
    assert is_accepted(tmp_path, capsys)
