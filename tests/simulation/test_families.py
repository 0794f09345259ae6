"""Trees of runs under faults: children start once, are told about, called back and rolled back, whatever happens."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.suites import in_proof

from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import draw


@pytest.mark.parametrize("seeds", [range(3), in_proof(range(60), name="many")], ids=str)
def test_no_tree_is_left_unfinished_or_half_undone(seeds: range) -> None:
    """Each seed is judged in every dialect; a third generation and rollback runs occur in most."""
    runs = 0
    for seed in seeds:
        scenario = replace(draw(seed), families=0.5, runs=6, steps=4, alike=False, letters=0, dialects=0.0)
        found = run_seed(scenario)
        assert found.ok, (seed, found.violations)
        runs += found.runs
    assert runs > 6 * len(seeds), "too few steps started a child"
