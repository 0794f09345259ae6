"""The short form: a few cases of each target with a fixed seed, and no promise broken.

The long form is `stepkeep lab fuzz`.
"""

from __future__ import annotations

import pytest

from stepkeep_lab.fuzz.campaign import play_target
from stepkeep_lab.fuzz.report import finding_lines
from stepkeep_lab.fuzz.targets import TARGETS

SEED = 1
SHORT = {
    "definitions": 250,
    "expressions": 600,
    "handlers": 20,
    "api": 200,
    "databases": 25,
    "logs": 60,
    "terminal": 15,
}


@pytest.mark.parametrize(("name", "count"), SHORT.items())
def test_no_promise_is_broken(name: str, count: int) -> None:
    score = play_target(TARGETS[name], seed=SEED, count=count)
    assert not score.findings, "\n".join(said for found in score.findings for said in finding_lines(found))
    assert score.cases == count
    assert score.ok
    assert len(score.outcomes) > 1, "cases that all end alike try little"
