"""Paused workflows under faults: runs that start meanwhile start paused, nothing of them is claimed, and all go on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.suites import in_proof

from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import draw


@pytest.mark.parametrize("seeds", [range(3), in_proof(range(60), name="many")], ids=str)
def test_no_run_of_a_paused_workflow_begins_and_all_go_on_afterwards(seeds: range) -> None:
    started = 0
    for seed in seeds:
        found = run_seed(replace(draw(seed), workflow_pauses=0.8, runs=12, alike=False, letters=0))
        assert found.ok, (seed, found.violations)
        started += found.met["a run that started paused"]
    assert started > len(seeds), "hardly a run has started paused"
