"""The command: one object with `--json`, a report where it was asked for, and names that do not exist are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from stepkeep.cli.settings import with_settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.cli.bench import bench


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_settings(bench))
    return made


def test_a_work_is_measured_by_name_and_reported(app: typer.Typer, tmp_path: Path) -> None:
    asked = ["--only", "1-step runs", "--store", "sqlite", "--rounds", "1", "--runs", "3", "--json", "--report"]
    done = CliRunner().invoke(app, [*asked, str(tmp_path)], standalone_mode=False)
    said = msgspec.json.decode(done.stdout)
    assert done.return_value == 0, done.output
    [found] = said["measurements"]
    assert (found["subject"], found["work"], found["store"]) == ("stepkeep", "1-step runs", "sqlite")
    assert found["medians"]["runs_per_second"] > 0
    assert msgspec.json.decode((tmp_path / "bench.json").read_bytes()) == said


@pytest.mark.proof
def test_people_get_a_table(app: typer.Typer) -> None:
    asked = ["--only", "1-step runs", "--store", "sqlite", "--rounds", "1", "--runs", "3"]
    done = CliRunner().invoke(app, asked, standalone_mode=False)
    assert done.return_value == 0, done.output
    assert "1-step runs (stepkeep, sqlite)" in done.stdout
    assert "runs/s" not in done.stdout.splitlines()[-1]


def test_a_work_that_does_not_exist_is_a_refusal(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["--only", "nothing"], standalone_mode=False)
    assert isinstance(done.exception, InvalidInput)
