"""Seed 004, Event Schema and the state files of its companions: written, kept current, read back and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.workstream import Floor, on_floor, task, workstream
from tests.workbench import TENANT

from stepkeep.cli.commands.log import judge
from stepkeep.errors import InvalidInput
from stepkeep.operations.people import cancel
from stepkeep.operations.state_check import Checked, check_state
from stepkeep.operations.state_export import Exported, StateFolder, _back_up

THREE = workstream(task("build"), task("test", "build"), task("ship", "test"))
COPIES = ("metrics.json", "logs/ws-001/build.log")
"""Files for people; nothing reads them back."""

FILES = {
    "current.json",
    "dag_ws-001.json",
    "execution_plan_ws-001.json",
    "checkpoints/ws-001_latest.json",
    "transitions.jsonl",
    *COPIES,
}


async def write(floor: Floor, folder: Path) -> Exported:
    return await StateFolder(floor.transactor, folder, tenant=TENANT).write()


async def check(floor: Floor, folder: Path) -> Checked:
    return await check_state(floor.transactor, folder, tenant=TENANT)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def codes(checked: Checked) -> set[tuple[str, str]]:
    return {(str(one.code), one.file) for one in checked.findings}


def test_the_files_tell_of_a_workstream_on_its_way(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async def act(floor: Floor) -> None:
        run_id = await floor.start(THREE)
        await floor.do("build")
        await floor.claim()
        await write(floor, folder)
        assert names(folder) == FILES, "no temporary file is left"
        current = read(folder / "current.json")
        assert current["workstreams"]["ws-001"]["status"] == "executing"
        assert {key: one["status"] for key, one in current["tasks"].items()} == {
            "ws-001/build": "completed", "ws-001/test": "running", "ws-001/ship": "pending",
        }  # fmt: skip
        assert current["indices"]["by_status"]["running"] == ["ws-001/test"]
        assert list(current["indices"]["by_worker"].values()) == [["ws-001/test"]]
        assert read(folder / "dag_ws-001.json")["topological_order"] == ["build", "test", "ship"]
        assert len(read(folder / "execution_plan_ws-001.json")["stages"]) == 3
        kept = read(folder / "checkpoints/ws-001_latest.json")
        assert (kept["completed_tasks"], kept["running_tasks"], kept["pending_tasks"]) == (
            ["build"],
            ["test"],
            ["ship"],
        )
        checked = await check(floor, folder)
        assert (checked.ok, checked.findings) == (True, ())
        [resumed] = checked.resumptions
        assert (resumed["run_id"], resumed["done"], resumed["would_resume"]) == (run_id, 1, ["test", "ship"])

    on_floor(database_url, act)


def test_lines_are_appended_once_and_the_whole_file_is_a_legal_log(tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async def act(floor: Floor) -> None:
        await floor.start(THREE)
        for name in ("build", "test", "ship"):
            before = len((folder / "transitions.jsonl").read_text().splitlines()) if folder.exists() else 0
            await floor.do(name)
            done = await write(floor, folder)
            assert done.lines > 0
            assert len((folder / "transitions.jsonl").read_text().splitlines()) == before + done.lines
            again = await write(floor, folder)
            assert (again.files, again.lines) == (0, 0), "nothing has changed"
        assert (await check(floor, folder)).ok

    on_floor(f"sqlite:///{tmp_path}/test.db", act)
    kinds = [json.loads(line)["event_type"] for line in (folder / "transitions.jsonl").read_text().splitlines()]
    assert kinds.count("journal_head") == 1, "the run has ended, its worker has not"
    assert {"task_state_transition", "workstream_state_transition", "worker_state_transition"} <= {*kinds}
    found = judge(str(folder / "transitions.jsonl"), "workstream")
    assert [one.message for one in found.findings] == ["the journal ends here without its closing line"], "the worker's"


def test_a_line_that_was_cut_by_a_crash_is_written_again(tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async def act(floor: Floor) -> None:
        await floor.start(THREE)
        await floor.do("build")
        await write(floor, folder)
        log = folder / "transitions.jsonl"
        whole = log.read_bytes()
        log.write_bytes(whole[:-40])
        await write(floor, folder)
        assert log.read_bytes() == whole

    on_floor(f"sqlite:///{tmp_path}/test.db", act)


def test_older_files_are_stale_and_other_content_is_drift(tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async def act(floor: Floor) -> None:
        await floor.start(THREE)
        await floor.do("build")
        await write(floor, folder)
        await floor.do("test")
        stale = await check(floor, folder)
        assert stale.ok
        assert codes(stale) == {("stale", name) for name in FILES if name not in COPIES}
        await write(floor, folder)
        assert (await check(floor, folder)).findings == ()

        for name, was, now, code in (
            ("current.json", '"status": "completed"', '"status": "failed"', "drift"),
            ("dag_ws-001.json", '"build"', '"built"', "drift"),
            ("checkpoints/ws-001_latest.json", '"seq": ', '"seq": 9', "drift"),
            ("execution_plan_ws-001.json", "{", "[", "damaged"),
            ("transitions.jsonl", '"to_state":"queued"', '"to_state":"running"', None),
        ):
            text = (folder / name).read_text()
            (folder / name).write_text(text.replace(was, now, 1))
            found = await check(floor, folder)
            if code is not None:
                assert (code, name) in codes(found), name
                assert not found.ok
            (folder / name).write_text(text)
        (folder / "dag_ws-001.json").unlink()
        (folder / ".unfinished-x").touch()
        lines = (folder / "transitions.jsonl").read_text().splitlines(keepends=True)
        (folder / "transitions.jsonl").write_text("".join([*lines[:3], *lines[4:], "{\n"]))
        found = await check(floor, folder)
        assert {("missing", "dag_ws-001.json"), ("leftover", ".unfinished-x"), ("drift", "transitions.jsonl")} <= codes(
            found
        )
        assert ("damaged", "transitions.jsonl") in codes(found)

    on_floor(f"sqlite:///{tmp_path}/test.db", act)


HOSTILE = [
    "",
    "null",
    "[]",
    "{}",
    '{"workstreams": []}',
    '{"workstreams": {"a": 1}, "tasks": {}, "timestamp": ""}',
    '{"workstreams": {"a": {"run_id": "../x", "seq": 1}}, "tasks": {}, "timestamp": ""}',
    "\x00\xff",
    "[" * 100_000,
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_files_are_told_and_end_in_no_traceback(tmp_path: Path, content: str) -> None:
    folder = tmp_path / ".state"

    async def act(floor: Floor) -> None:
        await floor.start(THREE)
        await write(floor, folder)
        (folder / "current.json").write_text(content, encoding="latin-1")
        found = await check(floor, folder)
        assert not found.ok
        assert {one.file for one in found.findings} == {"current.json"}

    on_floor(f"sqlite:///{tmp_path}/test.db", act)


def test_two_runs_of_one_workstream_do_not_fit_into_one_folder(tmp_path: Path) -> None:
    async def act(floor: Floor) -> None:
        runs = [await floor.start(THREE), await floor.start(THREE)]
        with pytest.raises(InvalidInput, match="are both of workstream ws-001"):
            await StateFolder(floor.transactor, tmp_path / "s", tenant=TENANT, run_ids=runs).write()
        done = await write(floor, tmp_path / "t")
        assert done.workstreams == ("ws-001",)
        assert read(tmp_path / "t" / "current.json")["workstreams"]["ws-001"]["run_id"] == runs[1], "the newest"
        with pytest.raises(InvalidInput, match="there is no folder"):
            await check(floor, tmp_path / "nowhere")

    on_floor(f"sqlite:///{tmp_path}/test.db", act)


def test_logs_metrics_interventions_and_backups_are_written(tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async def act(floor: Floor) -> None:
        run_id = await floor.start(THREE)
        await write(floor, folder)
        first = (folder / "current.json").read_bytes()
        await floor.do("build")
        await write(floor, folder)
        [copy] = (folder / "backups").iterdir()
        assert copy.read_bytes() == first, "the state before the last one"
        assert "attempt 1 since" in (folder / "logs/ws-001/build.log").read_text()
        metrics = read(folder / "metrics.json")
        assert (metrics["workstreams"], metrics["tasks"]) == (
            {"executing": 1}, {"completed": 1, "pending": 1, "queued": 1},
        )  # fmt: skip
        assert not (folder / "interventions.log").exists(), "no person did anything"
        await cancel(floor.transactor, run_id, tenant=TENANT, actor="ann", compensate=False, reason="too late")
        await write(floor, folder)
        [told] = [json.loads(line) for line in (folder / "interventions.log").read_text().splitlines()]
        assert (told["event"], told["operator"], told["reason"], told["workstream_id"], told["run_id"]) == (
            "cancel_requested", "ann", "too late", "ws-001", run_id,
        )  # fmt: skip
        assert (await check(floor, folder)).ok

    on_floor(f"sqlite:///{tmp_path}/test.db", act)


def test_a_hundred_backups_are_kept(tmp_path: Path) -> None:
    place = tmp_path / "current.json"
    for number in range(103):
        place.write_text(json.dumps({"timestamp": f"2026-11-17T10:{number:03d}"}))
        _back_up(place)
    kept = sorted(path.name for path in (tmp_path / "backups").iterdir())
    assert (len(kept), kept[0]) == (100, "current_20261117T10003.json")
