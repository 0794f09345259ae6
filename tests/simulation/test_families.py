"""Trees of runs under faults: children start once, are told about, called back and rolled back, whatever happens."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.suites import in_proof

from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import StepState
from stepkeep_lab.simulation.adopted import is_adopted
from stepkeep_lab.simulation.run_seed import run_seed
from stepkeep_lab.simulation.scenario import CORNERS, draw
from stepkeep_lab.simulation.stage import Stage


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


def test_the_rollback_of_a_child_takes_a_tolerated_failure_as_skipped() -> None:
    """A step of the child failed by its rules and was skipped; the rollback run does not repeat the failure."""
    bias = {"undo": 0.55, "rules": 0.8, "exact": 0.0, "gate": 0.0, "wait": 0.0, "tolerated": 1.0}
    changes = {"families": 0.8, "runs": 4, "workers": 1, "steps": 2, "chaos": 10.0, "fail": 0.4, "cancel": 0.3}
    scenario = replace(draw(57), **{**CORNERS["trees undone"], **changes, "flows": 0.0, "bias": bias})
    rollbacks: list[Step] = []

    def keep(stage: Stage) -> None:
        every = (row for rows in stage.database.tables.steps.values() for row in rows.values())
        rollbacks.extend(row for row in every if row.state is StepState.SKIPPED and is_adopted(row))

    assert run_seed(scenario, observe=keep).violations == ()
    assert [row.category for row in rollbacks] == [None]
