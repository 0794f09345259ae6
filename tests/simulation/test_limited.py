"""Limits under faults, with rules that change: no key gives out more than its rule, and no parked step is forgotten."""

from __future__ import annotations

import pytest
from tests.suites import in_proof, some

from stepkeep_lab.simulation.limit_mutants import LIMIT_MUTANTS
from stepkeep_lab.simulation.mutation import Mutant, planted
from stepkeep_lab.simulation.run_seed import Result, run_seed
from stepkeep_lab.simulation.scenario import CORNERS, draw, with_changes


def played(seed: int) -> Result:
    """Every second seed leaves the rules as they are: a change has every line looked at."""
    return run_seed(with_changes(draw(seed), CORNERS["full keys"] | ({"rules": 0.0} if seed % 2 else {})))


@pytest.mark.parametrize("seeds", [range(3), in_proof(range(60), name="many")], ids=str)
def test_no_limit_is_exceeded_and_no_parked_step_is_forgotten(seeds: range) -> None:
    for seed in seeds:
        found = played(seed)
        assert found.ok, (seed, found.violations)


@pytest.mark.parametrize("seed", [5, in_proof(10, name="paused before its first claim"), in_proof(16, name="clocks")])
def test_what_once_went_wrong_stays_right(seed: int) -> None:
    assert played(seed).violations == ()


@pytest.mark.parametrize("mutant", some(LIMIT_MUTANTS, 3), ids=lambda mutant: mutant.name)
def test_a_planted_bug_of_limits_is_caught_within_a_few_seeds(mutant: Mutant) -> None:
    with planted(mutant):
        assert any(not played(seed).ok for seed in range(8))
