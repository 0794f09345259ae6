"""One worker, every listed misdeed, on both stores: each run ends as it must, and everything comes back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import typer
from tests.suites import in_proof
from typer.testing import CliRunner

from stepkeep.cli.settings import with_settings
from stepkeep.kernel.machine.states import Category
from stepkeep_lab.cli.lab_misdeeds import misdeeds
from stepkeep_lab.torture.misdeed_soak import SETTINGS, Held, Soak, as_json, page, run_soak, write
from stepkeep_lab.torture.misdeeds import HONEST, MISDEEDS


@pytest.fixture(params=["sqlite", in_proof("postgres")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/misdeeds.db"
    found: str = request.getfixturevalue("postgres_dsn")
    return found


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_worker_loses_nothing_by_any_misdeed(url: str, tmp_path: Path) -> None:
    soak = run_soak(url, runs=200, seed=3)
    assert soak.findings == ()
    assert soak.ok
    assert sum(soak.ended.values()) == 200
    assert set(soak.ended) == {each.name for each in (*HONEST, *MISDEEDS)}
    assert soak.after.slots_free == SETTINGS.concurrency
    write(soak, tmp_path / "report")
    assert msgspec.json.decode((tmp_path / "report" / "misdeeds.json").read_bytes())["ok"] is True
    assert "nothing was lost" in (tmp_path / "report" / "misdeeds.md").read_text(encoding="utf-8")


def test_a_run_that_ends_otherwise_is_a_finding() -> None:
    honest, spoilt = HONEST[0], MISDEEDS[0]
    assert honest.complaint("succeeded", None, None, b'{"fine":1}') is None
    assert honest.complaint("succeeded", None, None, b'{"fine":2}') is not None
    assert honest.complaint("failed", Category.UNKNOWN, "x", None) is not None
    assert spoilt.complaint("failed", Category.UNKNOWN, f"{spoilt.says}!", None) is None
    assert spoilt.complaint("failed", Category.TIMEOUT, spoilt.says, None) is not None
    assert spoilt.complaint("failed", Category.UNKNOWN, "something else", None) is not None
    assert spoilt.complaint("succeeded", None, None, b"1") is not None


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_command_answers_with_figures_from_before_and_after(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(with_settings(misdeeds))
    asked = ["--runs", "40", "--seed", "4", "--json", "--db", f"sqlite:///{tmp_path}/m.db", "--report", str(tmp_path)]
    done = CliRunner().invoke(app, asked, standalone_mode=False)
    said = msgspec.json.decode(done.stdout)["misdeeds"]
    assert (done.return_value, said["ok"], said["seed"], said["runs"]) == (0, True, 4, 40), said["findings"]
    assert said["before"]["slots_free"] == said["after"]["slots_free"] == SETTINGS.concurrency
    assert (tmp_path / "misdeeds.md").exists()


def test_the_page_names_what_was_lost() -> None:
    soak = msgspec.structs.replace(_a_soak(), findings=("3 of 200 slots did not come back",))
    assert not soak.ok
    assert as_json(soak)["ok"] is False
    assert "**FAILED**" in page(soak)
    assert "- 3 of 200 slots did not come back" in page(soak)


def _a_soak() -> Soak:
    held = Held(runs=1, slots_free=1, threads=1, own_threads=1, descriptors=1, processes=0, memory_kb=1)
    return Soak(
        seed=1,
        runs=1,
        store="sqlite",
        seconds=1,
        per_second=1,
        ended={},
        logged={},
        before=held,
        after=held,
        samples=(held,),
        findings=(),
    )
