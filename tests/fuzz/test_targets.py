"""Cases of each target with a fixed seed, and no promise broken. `stepkeep lab fuzz` runs any number."""

from __future__ import annotations

import pytest

from stepkeep_lab.fuzz.campaign import play_target
from stepkeep_lab.fuzz.report import finding_lines
from stepkeep_lab.fuzz.targets import TARGETS

COUNTS = {
    "definitions": 100,
    "expressions": 250,
    "handlers": 6,
    "api": 50,
    "databases": 3,
    "logs": 8,
    "terminal": 2,
    "signatures": 1000,
    "addresses": 1000,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_no_promise_is_broken(name: str, count: int) -> None:
    score = play_target(TARGETS[name], seed=1, count=count)
    assert not score.findings, "\n".join(said for found in score.findings for said in finding_lines(found))
    assert score.cases == count
    assert score.ok
    assert len(score.outcomes) > 1, "cases that all end alike try little"
