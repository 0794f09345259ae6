"""Flows that continue as new, under faults: each run has the one successor that its output names, or none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.suites import in_proof

from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import CORNERS, draw, with_changes


@pytest.mark.parametrize("seeds", [range(2), in_proof(range(60), name="many")], ids=str)
def test_a_chain_of_runs_is_neither_broken_nor_forked(seeds: range) -> None:
    continued = left = 0
    for seed in seeds:
        scenario = replace(draw(seed), continued=0.7, runs=8, alike=False, letters=0, dialects=0.0)
        found = run_seed(scenario)
        assert found.ok, (seed, found.violations)
        continued += found.met["a flow that continued as new"]
        left += found.met["a flow that would have continued as new"]
    assert continued > 2 * len(seeds), "hardly a flow has continued as new"
    assert left or len(seeds) < 10, "no run ended before its flow could continue"


def test_the_corner_of_broken_chains_has_runs_that_continue_and_runs_that_end_before() -> None:
    found = [run_seed(with_changes(draw(seed), CORNERS["chains broken"])) for seed in range(3)]
    assert [one.violations for one in found] == [(), (), ()]
    assert sum(one.met["a flow that continued as new"] for one in found) > 5
    assert sum(one.met["a flow that would have continued as new"] for one in found)
