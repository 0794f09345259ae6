"""Seed 003 section 5: a view is one moment of a run, and evidence that was shown never changes.

`stepkeep lab views` reads ten thousand views of each store.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from stepkeep.cli.main import main
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs import views
from stepkeep.store.records import WholeRun
from stepkeep_lab.storecheck.live_views import watch
from tests.suites import first_on


async def test_views_of_runs_that_go_on_contradict_nothing_and_their_evidence_only_grows(database_url: str) -> None:
    watched = await watch(database_url, 300)
    assert watched.findings == []
    assert watched.unfinished, "no run was seen while it went on: nothing was shown"


@first_on("sqlite")
@pytest.mark.proof
async def test_a_view_of_two_snapshots_is_found(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the rows of the run and of its steps are older than its journal and its attempts."""

    async def torn(transactor: Transactor, run_id: str, *, tenant: str) -> WholeRun:
        [before] = await transactor.store.read_whole(tenant, [run_id], with_messages=False)
        await asyncio.sleep(0.05)
        [after] = await transactor.store.read_whole(tenant, [run_id], with_messages=False)
        return replace(after, record=before.record, steps=before.steps)

    monkeypatch.setattr(views, "read_snapshot", torn)
    assert (await watch(database_url, 150)).findings


def test_the_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "views", "--views", "30", "--store", "sqlite", "--report", str(tmp_path)]) == 0
    assert "0 findings" in capsys.readouterr().out
    told = json.loads((tmp_path / "views.json").read_text(encoding="utf-8"))
    assert told["stores"]["sqlite"]["views"] >= 30
    assert "stepkeep lab views --views 30" in (tmp_path / "views.md").read_text(encoding="utf-8")
