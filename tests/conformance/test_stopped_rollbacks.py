"""A failed undo stops the rollback: the undo steps that are left end together, and those that ran keep their order."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.tellings import found_in, log_in
from tests.kernel.driver import World, sequence, work
from tests.kernel.test_flow_calls import called, suspend

from stepkeep.dialects import registry
from stepkeep.kernel.definition import Flow, HookFailure
from stepkeep.kernel.machine.states import OnFailure, RunState
from stepkeep_lab.forgeries.material import CANONICAL


def stopped_among_steps() -> World:
    """The last two of five steps are undone, the undo of the third fails, and those of the first two never run."""
    steps = [work(name, undo=True, on_failure=OnFailure.COMPENSATE) for name in "abcdef"]
    world = World(*sequence(*steps), hook_failure=HookFailure.STOP)
    world.finish(*"abcde")
    world.fail("f")
    world.finish("undo:e", "undo:d")
    world.fail("undo:c")
    return world


def stopped_among_calls() -> World:
    """The same of the calls of a flow, of which two are left."""
    settings: dict[str, Any] = {"growth": Flow(max=5), "on_failure": OnFailure.COMPENSATE}
    world = World(work("flow", **settings), hook_failure=HookFailure.STOP)
    suspend(world, *[called(undo=True) for _ in range(3)])
    world.finish("flow[0]", "flow[1]", "flow[2]")
    world.fail("flow")
    world.fail("undo:flow[2]")
    return world


@pytest.mark.parametrize("words", [CANONICAL, *registry.names()])
@pytest.mark.parametrize("story", [stopped_among_steps, stopped_among_calls])
def test_undo_steps_that_never_ran_are_in_no_order(story: Any, words: str) -> None:
    world = story()
    assert world.run.state is RunState.FAILED
    assert [state for name, state in world.states().items() if name.startswith("undo:")].count("cancelled") == 2
    assert found_in(words, log_in(words, world)) == ()


@pytest.mark.parametrize("words", ["ioa", "action"])
@pytest.mark.parametrize("other", ["undo:d", "undo:b"])
def test_undo_steps_that_ran_are_in_order_and_before_those_that_did_not(other: str, words: str) -> None:
    world = stopped_among_steps()
    lines = log_in(words, world)
    swap = {"undo:e": other, other: "undo:e"}
    for line in lines:
        said = line["metadata"]
        for name in ("step", "of"):
            if name in said:
                said[name] = swap.get(said[name], said[name])
        if said.get("step") in swap:
            said["no"] = world.no(said["step"])
    assert any("in another order than" in one for one in found_in(words, lines))
