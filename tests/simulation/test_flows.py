"""Flows under faults: every call is made once, wakes its flow, and is told to each replay as it ended."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.suites import in_proof

from stepkeep_lab.simulation.run_seed import Result, run_seed
from stepkeep_lab.simulation.scenario import draw


def played(seed: int) -> Result:
    return run_seed(replace(draw(seed), flows=0.5, runs=6, steps=4, alike=False, letters=0, dialects=0.0))


@pytest.mark.parametrize("seeds", [range(3), in_proof(range(60), name="many")], ids=str)
def test_no_call_is_made_twice_or_lost(seeds: range) -> None:
    returned = 0
    for seed in seeds:
        found = played(seed)
        assert found.ok, (seed, found.violations)
        returned += found.met["a flow that returned"]
    assert returned > len(seeds), "hardly a flow has returned"


@pytest.mark.parametrize("seed", [in_proof(34, name="calls in flight"), pytest.param(5000, id="new calls")])
def test_a_suspension_after_the_deadline_ends_the_flow_and_its_calls(seed: int) -> None:
    assert run_seed(draw(seed)).violations == ()


@pytest.mark.parametrize("seed", [5, 14, 33], ids=["held by a policy", "suspended too late", "held until a deadline"])
def test_the_judge_follows_flows_that_a_policy_or_a_deadline_ends(seed: int) -> None:
    """In each, the judge once contradicted the engine."""
    assert played(seed).violations == ()
