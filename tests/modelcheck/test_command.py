"""`lab check` as people and programs see it."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from stepkeep.cli.settings import with_settings
from stepkeep.kernel.decide import decide
from stepkeep.kernel.errors import InvariantBroken
from stepkeep_lab.cli.lab_check import check

app = typer.Typer()
app.command("check")(with_settings(check))


def test_it_says_how_much_was_seen_and_that_nothing_was_found() -> None:
    result = CliRunner().invoke(app, ["--states", "300", "--case", "gates", "--json"], standalone_mode=False)
    told = json.loads(result.stdout)
    assert (told["ok"], told["findings"], told["states"] >= 300) == (True, [], True)
    assert result.return_value == 0


def test_it_shows_the_shortest_way_to_a_violation_and_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise InvariantBroken("planted")

    monkeypatch.setattr(decide, "check_decision", broken)
    result = CliRunner().invoke(app, ["--states", "300", "--case", "gates"], standalone_mode=False)
    assert "VIOLATION in gates: InvariantBroken: planted" in result.stdout
    assert result.return_value == 1


def test_a_case_that_does_not_exist_is_refused() -> None:
    result = CliRunner().invoke(app, ["--case", "nothing"], standalone_mode=False)
    assert "nothing" in str(result.exception)
