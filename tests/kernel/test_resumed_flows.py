"""Flows that go on in the transaction that settles their calls: from exactly the ends that it records."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kernel.driver import LEASE, World, work
from tests.kernel.test_flow_calls import called, flow, suspend

from stepkeep.kernel.decide.decision import Accepted, Claimer, Reply
from stepkeep.kernel.definition import Map
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import FlowResumed, SettledCall
from stepkeep.kernel.machine.outcomes import Completed, Failed, NewCall, Outcome, Suspended
from stepkeep.kernel.machine.states import AttemptState, Category, RunState, StepState

S = StepState
CLAIMER = Claimer(actor="w1", worker=1, lease=LEASE, slots=5, queues=frozenset({1}))


def resumed(world: World, outcome: Outcome, *calls: str, seen: int, name: str = "flow", **changes: Any) -> FlowResumed:
    row = world.row(name)
    settled = tuple(SettledCall(world.row(call).no, world.row(call).fence) for call in calls)
    told = {"fence": row.fence + 1, "worker": 1, "lease": LEASE, "calls": settled, "seen": seen, **changes}
    return FlowResumed(tenant="t", run_id="r", actor="w1", no=row.no, outcome=outcome, **told)


def goes_on(world: World, *new: NewCall, seen: int = 1, **changes: Any) -> tuple[Reply, ...]:
    """The first call ends, and its flow makes these calls."""
    event = resumed(world, Suspended(calls=new, seen=seen), "flow[0]", seen=seen, **changes)
    return world.send(world.reporting("flow[0]", Completed()), event, claimer=CLAIMER)


def suspended(calls: int = 1, **growth: Any) -> World:
    world = flow(**growth)
    suspend(world, *(called() for _ in range(calls)))
    world.claim("flow[0]")
    return world


def test_the_end_of_a_call_and_the_next_call_are_one_transaction() -> None:
    world = suspended()
    seq = world.run.seq
    replies = goes_on(world, called("ship"))
    assert all(isinstance(reply, Accepted) for reply in replies)
    assert world.run.seq == seq + 1
    assert world.states()["flow"] == "awaiting_children"
    assert (world.state("flow[1]"), world.run.leased) == (S.RUNNING, 1)


def test_the_record_has_the_same_hops_as_two_transactions_would_make() -> None:
    world, usual = suspended(), suspended()
    goes_on(world, called("ship"))
    usual.finish("flow[0]")
    suspend(usual, called("ship"), seen=1)
    assert world.trail("flow") == usual.trail("flow")
    assert world.attempts_of("flow") == usual.attempts_of("flow") == [AttemptState.WAITED, AttemptState.WAITED]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Completed(output=b"1"), RunState.RUNNING),
        (Failed(category=Category.AUTH, error="no"), RunState.FAILED),
    ],
)
def test_a_flow_ends_with_its_last_call(outcome: Outcome, state: RunState) -> None:
    world = suspended()
    world.send(world.reporting("flow[0]", Completed()), resumed(world, outcome, "flow[0]", seen=1))
    assert world.run.state is state
    assert world.state("flow") is (S.SUCCEEDED if state is RunState.RUNNING else S.FAILED)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fence": 1}, "another claim or a cancel came first"),
        ({"fence": 3}, "another claim or a cancel came first"),
        ({"seen": 0}, "1 of its calls have settled, and it went on from 0"),
        ({"seen": 2}, "1 of its calls have settled, and it went on from 2"),
        ({"calls": (SettledCall(5, 2),)}, "has not succeeded under fence 2"),
    ],
)
def test_a_flow_that_went_on_from_something_else_is_refused_alone(changes: dict[str, Any], said: str) -> None:
    world = suspended()
    assert world.row("flow[0]").no == 5
    seen = changes.pop("seen", 1)
    first, second = goes_on(world, called(), seen=seen, **changes)
    assert isinstance(first, Accepted)
    assert isinstance(second, Conflict)
    assert said in str(second)
    assert world.state("flow[0]") is S.SUCCEEDED
    assert world.state("flow") in (S.READY, S.RUNNING), "it is claimed as usual"


def test_a_flow_is_not_resumed_if_the_report_on_its_call_is_refused() -> None:
    world = suspended()
    late = world.reporting("flow[0]", Completed(), fence=7)
    first, second = world.send(late, resumed(world, Suspended(calls=(called(),), seen=1), "flow[0]", seen=1))
    assert (type(first), type(second)) == (Fenced, Conflict)
    assert world.state("flow") is S.AWAITING_CHILDREN


def test_a_call_that_settled_before_in_the_record_comes_before_in_the_flow() -> None:
    """The flow was fed the end of one call; another worker has recorded the end of the other one first."""
    world = suspended(calls=2)
    world.claim("flow[1]", worker=2)
    world.report("flow[1]", Completed())
    first, second = goes_on(world, called(), seen=1)
    assert isinstance(first, Accepted)
    assert isinstance(second, Conflict)
    assert "2 of its calls have settled, and it went on from 1" in str(second)


def test_ends_that_were_fed_in_another_order_than_recorded_are_refused() -> None:
    world = suspended(calls=2)
    world.claim("flow[1]")
    event = resumed(world, Suspended(calls=(called(),), seen=2), "flow[1]", "flow[0]", seen=2)
    replies = world.send(world.reporting("flow[0]", Completed()), world.reporting("flow[1]", Completed()), event)
    assert isinstance(replies[2], Conflict)
    assert "was recorded at another time" in str(replies[2])


def test_the_end_of_a_call_in_an_earlier_transaction_is_not_taken() -> None:
    world = suspended()
    world.finish("flow[0]")
    [reply] = world.send(resumed(world, Suspended(calls=(called(),), seen=1), "flow[0]", seen=1))
    assert isinstance(reply, Conflict)


@pytest.mark.parametrize("how", ["paused", "cancelled"])
def test_a_run_that_does_not_go_on_resumes_no_flow(how: str) -> None:
    world = suspended()
    if how == "paused":
        world.pause()
    else:
        world.cancel(compensate=True)
    replies = goes_on(world, called())
    assert isinstance(replies[1], Conflict)
    assert "flow[1]" not in world.states()


def test_a_flow_with_rules_needs_a_claim_of_its_own() -> None:
    world = flow(settings={"rules": ("true",)})
    suspend(world, called())
    world.claim("flow[0]")
    first, second = world.send(world.reporting("flow[0]", Completed()), resumed(world, Completed(), "flow[0]", seen=1))
    assert isinstance(first, Accepted)
    assert isinstance(second, Conflict)
    assert "has rules" in str(second)


def test_only_a_flow_is_resumed() -> None:
    world = World(work("map", growth=Map(over="", max=2, in_flight=2)))
    [reply] = world.send(resumed(world, Completed(), seen=0, name="map"))
    assert isinstance(reply, Conflict)
    assert "it is no flow that has made calls" in str(reply)


def test_another_ready_step_may_come_first() -> None:
    """A step with a lower number is claimed first (seed 003, 1.2): only the claim query knows whether there is one."""
    world = World(work("before"), work("flow", growth=flow().plan.steps[0].kind.growth))
    suspend(world, called())
    world.claim("flow[0]")
    first, second = goes_on(world, called())
    assert isinstance(first, Accepted)
    assert isinstance(second, Conflict)
    assert "other steps of the run are ready" in str(second)
