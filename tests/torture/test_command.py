"""The command: one object with `--json`, a report where it was asked for, and names that do not exist are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from stepkeep.cli.settings import with_settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.cli.lab_torture import torture


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_settings(torture))
    return made


@pytest.mark.proof
def test_a_scenario_is_run_by_name_and_reported(app: typer.Typer, tmp_path: Path) -> None:
    asked = ["--only", "overload", "--store", "sqlite", "--seconds", "2", "--seed", "5", "--json", "--report"]
    done = CliRunner().invoke(app, [*asked, str(tmp_path)], standalone_mode=False)
    said = msgspec.json.decode(done.stdout)
    assert (done.return_value, said["ok"], said["seed"]) == (0, True, 5), done.stdout
    assert [(each["scenario"], each["store"]) for each in said["accounts"]] == [("overload", "sqlite")]
    assert msgspec.json.decode((tmp_path / "torture.json").read_bytes()) == said
    assert "overload on sqlite" in (tmp_path / "torture.md").read_text(encoding="utf-8")


def test_a_scenario_that_does_not_exist_is_a_refusal(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["--only", "nothing", "--store", "sqlite"], standalone_mode=False)
    assert isinstance(done.exception, InvalidInput)
