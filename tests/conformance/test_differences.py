"""Where the specifications disagree about what to show, each dialect shows the same run as its own one says."""

from __future__ import annotations

import pytest
from tests.conformance.logs import rollback
from tests.conformance.tellings import told
from tests.kernel.driver import World, gate, work

from stepkeep.dialects.registry import judged


def ending(world: World, dialect: str) -> str | None:
    """What a dialect shows of the run by now."""
    state = told(world, judged(dialect))[-1]["to_state"]
    return None if state is None else str(state)


@pytest.mark.parametrize(
    ("dialect", "shown"),
    [("ioa", "completed"), ("run", "FAILED"), ("linear", "FAILED"), ("action", "Failed"), ("workstream", "failed")],
)
def test_a_full_rollback_ends_as_each_dialect_says(dialect: str, shown: str) -> None:
    world = rollback()
    assert world.run.state == "rolled_back"
    assert ending(world, dialect) == shown


@pytest.mark.parametrize(
    ("dialect", "moving", "waiting"),
    [
        ("ioa", "blocked", "blocked"),
        ("run", "RUNNING", "WAITING_APPROVAL"),
        ("linear", "RUNNING", "RUNNING"),
        ("action", "Running", "WaitingForApproval"),
        ("workstream", "executing", "executing"),
    ],
)
def test_a_run_waits_as_each_dialect_says(dialect: str, moving: str, waiting: str) -> None:
    world = World(gate("sign"), work("pack"))
    world.claim("pack")
    assert world.run.state == "running"
    assert ending(world, dialect) == moving, "a gate is open, and something else moves"
    world.finish("pack")
    assert world.run.state == "blocked"
    assert ending(world, dialect) == waiting, "only the gate is left"
