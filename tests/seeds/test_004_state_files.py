"""Seed 004, the state files of its companions: written and kept current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.workstream import Floor, on_floor, task, workstream
from tests.workbench import TENANT

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.state_export import Exported, StateFolder, _back_up
from stepkeep.operations.people.people import cancel

THREE = workstream(task("build"), task("test", "build"), task("ship", "test"))
COPIES = ("metrics.json", "logs/ws-001/build.log")
"""Files for people; nothing reads them back."""

FILES = {
    "current.json",
    "dag_ws-001.json",
    "execution_plan_ws-001.json",
    "checkpoints/ws-001_latest.json",
    "transitions.jsonl",
    ".transitions.json",
    ".transitions.lock",
    *COPIES,
}


async def write(floor: Floor, folder: Path) -> Exported:
    return await StateFolder(floor.transactor, folder, tenant=TENANT).write()


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


async def test_the_files_tell_of_a_workstream_on_its_way(database_url: str, tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async with on_floor(database_url) as floor:
        await floor.start(THREE)
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


async def test_two_runs_of_one_workstream_do_not_fit_into_one_folder(tmp_path: Path) -> None:
    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
        runs = [await floor.start(THREE), await floor.start(THREE)]
        with pytest.raises(InvalidInput, match="are both of workstream ws-001"):
            await StateFolder(floor.transactor, tmp_path / "s", tenant=TENANT, run_ids=runs).write()
        done = await write(floor, tmp_path / "t")
        assert done.workstreams == ("ws-001",)
        assert read(tmp_path / "t" / "current.json")["workstreams"]["ws-001"]["run_id"] == runs[1], "the newest"


async def test_logs_metrics_interventions_and_backups_are_written(tmp_path: Path) -> None:
    folder = tmp_path / ".state"

    async with on_floor(f"sqlite:///{tmp_path}/test.db") as floor:
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
        await cancel(floor.transactor, run_id, caller=Caller(TENANT, "ann"), compensate=False, reason="too late")
        await write(floor, folder)
        [told] = [json.loads(line) for line in (folder / "interventions.log").read_text().splitlines()]
        assert (told["event"], told["operator"], told["reason"], told["workstream_id"], told["run_id"]) == (
            "cancel_requested", "ann", "too late", "ws-001", run_id,
        )  # fmt: skip


def test_a_hundred_backups_are_kept(tmp_path: Path) -> None:
    place = tmp_path / "current.json"
    for number in range(103):
        place.write_text(json.dumps({"timestamp": f"2026-11-17T10:{number:03d}"}))
        _back_up(place)
    kept = sorted(path.name for path in (tmp_path / "backups").iterdir())
    assert (len(kept), kept[0]) == (100, "current_20261117T10003.json")
