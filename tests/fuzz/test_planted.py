"""A defect planted behind each target is found within a few hundred cases. `make proof` runs the slow half."""

from __future__ import annotations

import pytest
from tests.fuzz.planted import HERE
from tests.suites import in_proof

from stepkeep_lab.fuzz.campaign import play_target


@pytest.mark.parametrize(
    ("planted", "promise", "where", "count"),
    [
        in_proof("DefinitionsWithoutPlace", "raises KeyError", "yaml", 120),
        ("ExpressionsThatChangeTheirInput", "leaves its input alone", "input.m", 200),
        in_proof("ExpressionsWithoutBounds", "gives a value that a store takes", "/", 200),
        in_proof("LogsJudgedClean", "finds a change of meaning", "log of stories", 20),
        in_proof("HandlersThatHoldTheirThread", "gives its slot back", "thread", 2),
        in_proof("DatabasesWithATraceback", "ends in words", "then of run", 4),
        in_proof("TerminalWithEscapes", "writes no control character", "through", 8),
        in_proof("SignaturesWithoutTheirBody", "accepts only what was signed with a key", "github", 200),
        ("AddressesByTheirNames", "lets requests through to public addresses alone", "http", 300),
        in_proof("ApiThatRaises", "raises KeyError", "engine.show(run_id=", 300),
    ],
)
def test_a_planted_defect_is_found(planted: str, promise: str, where: str, count: int) -> None:
    score = play_target(f"{HERE}:{planted}", seed=1, count=count)
    assert promise in score.broken, score.broken
    assert any(finding.promise == promise and where in finding.case for finding in score.findings), score.findings
