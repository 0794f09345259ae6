"""`stepkeep lab neighbour`: both halves side by side, what the attacker was answered, and a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepkeep.cli.main import main
from stepkeep_lab.bench.attack import Attacker


def test_the_neighbour_of_an_attacker_is_measured_quiet_and_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["lab", "neighbour", "--seconds", "1", "--store", "sqlite", "--only", "reads", "--only", "streams"]
    assert main([*asked, "--json", "--report", str(tmp_path)]) in (0, 1)
    told = json.loads(capsys.readouterr().out)["neighbour"]
    [one] = told["stores"]
    assert told["ok"] is (one["raised_ms"] < told["most_raised_ms"] == 100)
    assert one["quiet"]["requests"] > 0 < one["attacked"]["requests"]
    assert one["answers"]["reads 200"] > 0
    assert one["answers"]["streams 200"] > 0
    assert json.loads((tmp_path / "neighbour.json").read_text())["stores"] == told["stores"]
    assert "| sqlite |" in (tmp_path / "neighbour.md").read_text()


def test_an_unknown_kind_or_store_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "neighbour", "--only", "rain"]) == 2
    assert main(["lab", "neighbour", "--store", "paper"]) == 2


def test_only_a_service_on_loopback_is_attacked() -> None:
    with pytest.raises(ValueError, match="loopback"):
        Attacker("http://192.0.2.1:80", "key", "run", ())
