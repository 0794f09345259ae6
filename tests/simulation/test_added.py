"""Handlers that add steps, under faults: each is added once, waits for those before it, and is told to its owner."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.suites import in_proof

from stepkeep_lab.simulation.added_mutants import ADDED_MUTANTS
from stepkeep_lab.simulation.mutation import Mutant, planted
from stepkeep_lab.simulation.run_seed import Result, run_seed
from stepkeep_lab.simulation.scenario import draw


def played(seed: int) -> Result:
    return run_seed(replace(draw(seed), planners=0.6, runs=6, steps=4, alike=False, letters=0, dialects=0.0))


@pytest.mark.parametrize("seeds", [range(3), in_proof(range(60), name="many")], ids=str)
def test_no_added_step_is_lost_or_begins_early(seeds: range) -> None:
    for seed in seeds:
        found = played(seed)
        assert found.ok, (seed, found.violations)


@pytest.mark.parametrize(
    "seed",
    [in_proof(12, name="two denied at once"), in_proof(26, name="a rejected hold"), in_proof(61, name="hidden waits")],
)
def test_what_once_went_wrong_stays_right(seed: int) -> None:
    assert run_seed(replace(draw(seed), planners=0.6)).violations == ()


@pytest.mark.parametrize("mutant", ADDED_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_of_added_steps_is_caught_within_a_few_seeds(mutant: Mutant) -> None:
    with planted(mutant):
        assert any(not played(seed).ok for seed in range(8))
