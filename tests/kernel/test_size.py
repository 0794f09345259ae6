"""Size: ten thousand steps in a chain, side by side, and skipped in one go.

No clock is asserted on: what must not grow with the run is the number of rows that a decision touches and the number
of times it asks for more.
"""

from __future__ import annotations

import pytest
from tests.kernel import audit
from tests.kernel.driver import PATIENCE, World, claimer, sequence, when, work
from tests.suites import in_proof

from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState


@pytest.fixture(params=[2_000, in_proof(10_000)])
def many(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def run_in_chained_claims(world: World, limit: int) -> None:
    """One worker claims the first step and is handed each next one with its report."""
    world.claim(world.ready()[0])
    held, next_one = world.last.claimed, claimer(queues=range(1, 2 * limit))
    for _ in range(limit):
        if not held:
            return
        world.report(world.plan.at(held[0].no).name, Completed(), claimer=next_one)
        held = world.last.claimed
        assert world.touched <= 2, "a completion touches its own row and that of its one dependent"
        assert world.rounds <= 1, "one look at the dependent is enough"


def test_a_chain_costs_two_rows_a_step(many: int) -> None:
    """Design §6: "The cost of a completion grows with the step's dependents, not with the run's size"."""
    world = World(*sequence(*(work(f"s{place}") for place in range(many))), watched=False)
    planned = world.spent
    run_in_chained_claims(world, many + 1)
    assert world.run.state is RunState.SUCCEEDED
    assert world.spent - planned <= 2 * many
    audit.everything(world)


def test_a_fan_out_and_its_fan_in_touch_each_step_a_fixed_number_of_times(many: int) -> None:
    """F15, F19: a join of ten thousand is counted down, not counted up."""
    branches = [f"b{place}" for place in range(many)]
    world = World(work("root"), *(work(name, "root") for name in branches), work("join", *branches), watched=False)
    world.finish("root")
    assert world.touched == many + 1
    for name in branches:
        world.claim(name)
        assert world.touched == 1
        world.report(name, Completed())
        assert world.touched == 2
    world.finish("join")
    assert world.run.state is RunState.SUCCEEDED
    audit.everything(world)


@pytest.mark.parametrize("at_start", [True, False], ids=["at the start", "after a step"])
def test_a_skip_runs_down_all_steps_in_one_decision(at_start: bool, many: int) -> None:
    """B29: no recursion; one entry, each row once."""
    chain = [work("s0", *(() if at_start else ("first",)), condition="no")]
    chain += [work(f"s{place}", f"s{place - 1}") for place in range(1, many)]
    first = () if at_start else (work("first"),)
    world = World(*first, *chain, conditions={"no": when(lambda _: False)}, watched=False)
    if not at_start:
        world.claim("first")
        world.report("first", Completed())
        assert world.touched == many + 1
        assert world.rounds <= PATIENCE + 2
    assert world.run.state is RunState.SUCCEEDED
    audit.everything(world)


def test_a_cancel_touches_each_open_row_once(many: int) -> None:
    world = World(*sequence(*(work(f"s{place}") for place in range(many))), watched=False)
    world.finish("s0")
    world.cancel()
    assert world.touched == many - 1
    assert world.run.state is RunState.CANCELLED
    audit.everything(world)


def test_a_rollback_of_many_steps_adds_its_hooks_once_and_then_costs_two_rows_a_hook(many: int) -> None:
    size = 1_000
    world = World(*sequence(*(work(f"s{place}", undo=True) for place in range(size)), work("last")), watched=False)
    for place in range(size):
        world.finish(f"s{place}")
    world.cancel(compensate=True)
    assert world.touched == size + 1
    for place in reversed(range(size)):
        assert world.ready() == [f"undo:s{place}"]
        world.finish(f"undo:s{place}")
        assert world.touched <= 2
    assert world.run.state is RunState.ROLLED_BACK
    audit.everything(world)
