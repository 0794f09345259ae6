"""Cases of each target with a fixed seed, and no promise broken.

`make test` runs the short form, `make proof` twenty times as many cases with another seed. `stepkeep lab fuzz` runs any
number.
"""

from __future__ import annotations

import pytest
from tests.suites import in_proof

from stepkeep_lab.fuzz.campaign import play_target
from stepkeep_lab.fuzz.report import finding_lines
from stepkeep_lab.fuzz.targets import TARGETS

SHORT = {
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


@pytest.mark.parametrize(
    ("name", "seed", "count"),
    [
        *((name, 1, count) for name, count in SHORT.items()),
        *(in_proof(name, 2, 40 * count) for name, count in SHORT.items()),
    ],
)
def test_no_promise_is_broken(name: str, seed: int, count: int) -> None:
    score = play_target(TARGETS[name], seed=seed, count=count)
    assert not score.findings, "\n".join(said for found in score.findings for said in finding_lines(found))
    assert score.cases == count
    assert score.ok
    assert len(score.outcomes) > 1, "cases that all end alike try little"
