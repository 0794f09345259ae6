"""CPU by process and the stages of an idle run, as commands."""

from __future__ import annotations

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from stepkeep.cli.settings import with_settings
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.bench.cpu import Compared, Cpu, compared_text, text
from stepkeep_lab.bench.waterfall import stages
from stepkeep_lab.cli.bench import bench


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_settings(bench))
    return made


def test_cpu_and_stages_of_a_run_are_told(app: typer.Typer) -> None:
    asked = ["--cpu", "--waterfall", "--store", "sqlite", "--rounds", "1", "--runs", "3", "--json"]
    done = CliRunner().invoke(app, asked, standalone_mode=False)
    assert done.return_value == 0, done.output
    said = msgspec.json.decode(done.stdout)
    assert [(one["store"], one["callers"]) for one in said["cpu"]] == [("sqlite", 500), ("sqlite", 1)]
    assert all(one["worker"] >= 0 and one["server"] == 0 for one in said["cpu"])
    [drawn] = said["waterfall"]
    parts = {(stage["who"], stage["what"]) for stage in drawn["stages"]}
    assert parts >= {("client", "write_if_unchanged"), ("worker", "handler"), ("worker", "handler 3")}


def test_a_store_that_does_not_exist_is_a_refusal(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["--cpu", "--store", "nothing"], standalone_mode=False)
    assert isinstance(done.exception, InvalidInput)


def test_a_table_has_a_run_and_a_step() -> None:
    told = text([Cpu(store="postgres", callers=500, rounds=5, client=300, worker=600, server=450)]).splitlines()
    assert "postgres, 500 callers" in told[0]
    assert told[2].split() == ["run", "300", "600", "450", "1,350"]
    assert told[3].split() == ["step", "100", "200", "150", "450"]


def test_a_run_is_measured_beside_another_commit(app: typer.Typer) -> None:
    asked = ["--cpu", "--against", "HEAD", "--store", "sqlite", "--rounds", "1", "--runs", "3", "--json"]
    done = CliRunner().invoke(app, asked, standalone_mode=False)
    assert done.return_value is not None, done.output
    said = msgspec.json.decode(done.stdout)["compared"]
    assert [(one["store"], one["callers"], one["commit"]) for one in said] == [
        ("sqlite", 500, "HEAD"),
        ("sqlite", 1, "HEAD"),
    ]
    assert all(one["here"] >= 0 and one["there"] >= 0 for one in said)


def test_a_commit_that_is_not_there_is_a_refusal(app: typer.Typer) -> None:
    done = CliRunner().invoke(app, ["--cpu", "--against", "no-such-commit"], standalone_mode=False)
    assert isinstance(done.exception, InvalidInput)


@pytest.mark.parametrize(("callers", "here", "fails"), [(500, 111, True), (500, 110, False), (1, 150, False)])
def test_a_tenth_more_with_many_callers_is_a_regression(callers: int, here: float, fails: bool) -> None:
    one = Compared(store="postgres", callers=callers, here=here, there=100, commit="abc")
    assert one.is_regression is fails
    assert compared_text([one]).startswith(f"{here / 100:.2f} × {'MORE' if fails else 'postgres'}")


def test_stages_are_counted_within_each_run() -> None:
    marks = [("worker", "claim", 1.0, 1.2), ("worker", "claim", 1.5, 1.6), ("worker", "claim", 3.0, 3.4)]
    found = stages([(0.9, 2.0), (2.9, 4.0)], marks)
    assert [(one.what, one.share) for one in found] == [("claim", 1.0), ("claim 2", 0.5)]
    assert (found[0].begins_ms, found[0].takes_ms) == (100.0, 300.0)
    assert stages([(0.0, 0.5)], marks) == ()
