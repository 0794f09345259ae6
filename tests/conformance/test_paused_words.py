"""A workstream whose last task ends during a pause, which its dialect hides: true logs pass, and forged ones do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.conformance.tellings import found_in
from tests.conformance.test_adopted_words import log_of
from tests.kernel.driver import World, work

from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome
from stepkeep.kernel.machine.states import Category, OnFailure, RunState

OUTCOMES: dict[str, Outcome] = {
    "completed": Completed(),
    "failed": Failed(category=Category.VALIDATION, error="no good"),
}
ENDS: dict[str, Callable[[World], object]] = {
    "resumed": lambda world: world.resume(),
    "cancelled": lambda world: world.cancel(),
    "cancelled with compensation": lambda world: world.cancel(compensate=True),
    "timed out": lambda world: world.later(20 * SECOND),
}
REFUSED = "the workstream is executing, but its tasks make it"


def paused(outcome: str) -> World:
    world = World(work("a", on_failure=OnFailure.CONTINUE), dialect="workstream", timeout=10 * SECOND)
    world.claim("a")
    world.pause()
    world.report("a", OUTCOMES[outcome])
    assert world.run.state is RunState.PAUSED
    return world


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_workstream_stays_executing_while_it_is_paused(outcome: str, end: str) -> None:
    world = paused(outcome)
    assert found_in("workstream", log_of("workstream", world)) == ()
    ENDS[end](world)
    assert world.over
    assert found_in("workstream", log_of("workstream", world)) == ()


@pytest.mark.parametrize("event", ["step_reported", "time_came", "cancel_requested"])
def test_a_workstream_that_settles_late_without_a_pause_is_found(event: str) -> None:
    world = paused("completed")
    world.resume()
    lines = log_of("workstream", world)
    for line in lines:
        if line["metadata"].get("event") == "unpause_requested":
            line["metadata"]["event"] = event
    assert any(f"{REFUSED} validating" in said for said in found_in("workstream", lines))


def test_a_workstream_that_is_not_paused_does_not_stay_executing() -> None:
    lines = log_of("workstream", paused("failed"))
    assert lines[-1]["metadata"]["canonical"] == "paused"
    lines[-1]["metadata"]["canonical"] = "running"
    assert any(f"{REFUSED} failed" in said for said in found_in("workstream", lines))
