"""Waiting for the outside world: messages early, late and twice, deadlines, and steps that do nothing but wait."""

from __future__ import annotations

import json

import pytest
from tests.kernel.driver import World, allowing, sequence, wait, work

from stepkeep.kernel.definition import SECOND, Retry, Rule
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.events import MessageArrived
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Waiting
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState

S = StepState
MINUTE = 60 * SECOND


def woken_by(world: World, name: str) -> object:
    note = world.row(name).note
    return None if note is None or note.woken_by is None else json.loads(note.woken_by)


def parked(**settings: object) -> World:
    """A run whose one handler waits for `paid`, at most a minute."""
    world = World(work("a", **settings))  # type: ignore[arg-type]
    world.claim("a")
    world.report("a", Waiting(event="paid", timeout=MINUTE, emit=(Emitted("asked", b"{}"),)))
    return world


# -- handlers that wait -----------------------------------------------------------------------------------------------
def test_a_waiting_handler_is_parked_with_its_deadline_and_its_outbound_events() -> None:
    """002 B) Waiting."""
    world = parked()
    row = world.row("a")
    assert (row.state, row.due_at, row.worker) == (S.AWAITING_EVENT, world.now + MINUTE, None)
    assert world.run.state is RunState.BLOCKED
    assert [one.name for one in world.outbox] == ["asked"]
    assert world.attempts_of("a") == ["waited"]


def test_the_message_wakes_the_same_step_and_its_handler_is_told_which() -> None:
    """002 external event wake-up; a wake-up that tells nothing cannot be handled."""
    world = parked()
    world.tell("paid", id="m7", payload=b'{"sum":3}')
    assert (world.state("a"), world.run.state) == (S.READY, RunState.RUNNING)
    assert woken_by(world, "a") == {"message": {"id": "m7", "name": "paid", "payload": {"sum": 3}}}
    assert world.messages["m7"].consumed_by == 0
    world.finish("a")
    assert world.run.state is RunState.SUCCEEDED


def test_a_wake_up_uses_no_attempt() -> None:
    """Design §4: "a wake-up after a wait and a released claim do not"."""
    world = World(work("a", retry=Retry(max_attempts=1)))
    for number in range(3):
        world.claim("a")
        world.report("a", Waiting(event="paid"))
        world.tell("paid", id=f"m{number}")
    assert world.row("a").attempts == 0
    assert world.attempts_of("a") == ["waited"] * 3


def test_what_woke_a_handler_is_told_again_when_that_attempt_fails() -> None:
    world = parked()
    world.tell("paid", id="m7")
    told = woken_by(world, "a")
    world.claim("a")
    world.report("a", Failed(category=Category.TRANSIENT, error="x", delay=0))
    assert woken_by(world, "a") == told
    world.lose("a")
    assert woken_by(world, "a") == told


def test_a_second_wait_starts_with_a_clean_slate() -> None:
    world = parked()
    world.tell("paid")
    world.claim("a")
    world.report("a", Waiting(event="shipped"))
    assert woken_by(world, "a") is None
    world.tell("paid", id="m2")
    assert world.state("a") is S.AWAITING_EVENT
    world.tell("shipped", id="m3")
    assert world.state("a") is S.READY


@pytest.mark.parametrize("start", [True, False], ids=["running", "idle"])
def test_an_early_message_is_kept_and_wakes_the_step_as_soon_as_it_waits(start: bool) -> None:
    """Design §4 "Early messages: kept in the inbox"; seed 002 would lose it."""
    world = World(work("a"), start=start)
    assert world.tell("paid").record == {"id": "m1", "consumed_by": None}
    assert world.run.inbox == 1
    if not start:
        world.start()
    world.claim("a")
    world.report("a", Waiting(event="paid"))
    assert (world.state("a"), world.run.inbox) == (S.READY, 0)
    assert world.trail("a")[-2:] == ["waited", "message_arrived"]


def test_a_message_in_the_same_transaction_as_the_wait_is_not_lost() -> None:
    """The race between park and signal: both orders, one transaction."""
    arrives = MessageArrived(tenant="t", run_id="r", actor="outside", id="m1", name="paid", payload=b"{}")
    for first in (True, False):
        world = World(work("a"))
        world.claim("a")
        parks = world.reporting("a", Waiting(event="paid"))
        world.send(*((arrives, parks) if first else (parks, arrives)))
        assert (world.state("a"), world.run.inbox) == (S.READY, 0)
        assert world.messages["m1"].consumed_by == 0


def test_early_messages_are_consumed_once_and_in_order() -> None:
    """Promise 5; design §4: "consumed once, in order"."""
    world = World(work("a"))
    for number in range(3):
        world.tell("paid", id=f"m{number}")
    order = []
    for _ in range(3):
        world.claim("a")
        world.report("a", Waiting(event="paid"))
        order.append(woken_by(world, "a")["message"]["id"])  # type: ignore[index]
    assert order == ["m0", "m1", "m2"]
    world.claim("a")
    world.report("a", Waiting(event="paid"))
    assert world.state("a") is S.AWAITING_EVENT


def test_the_same_message_again_changes_nothing() -> None:
    """002 "inbox idempotency"."""
    world = parked()
    world.tell("paid")
    before = world.run
    assert world.tell("paid").repeated
    assert world.run == before
    world.finish("a")
    assert world.tell("paid").repeated


def test_the_same_message_twice_in_one_transaction_is_one_message() -> None:
    world = World(work("a"))
    twice = MessageArrived(tenant="t", run_id="r", actor="outside", id="m1", name="paid", payload=b"{}")
    _, second = world.send(twice, twice)
    assert getattr(second, "repeated", False)
    assert world.run.inbox == 1


def test_a_message_of_another_name_wakes_nobody() -> None:
    """002: `waiting_event_type == incomingEventType`."""
    world = parked()
    world.tell("shipped")
    assert (world.state("a"), world.run.inbox, world.run.state) == (S.AWAITING_EVENT, 1, RunState.BLOCKED)


def test_one_message_wakes_one_step() -> None:
    world = World(work("a"), work("b"))
    for name in "ab":
        world.claim(name)
        world.report(name, Waiting(event="paid"))
    world.tell("paid")
    assert (world.state("a"), world.state("b")) == (S.READY, S.AWAITING_EVENT)


def test_a_run_that_has_ended_takes_no_more_messages() -> None:
    world = World(work("a"))
    world.finish("a")
    with pytest.raises(Conflict, match="no more messages"):
        world.tell("paid")
    assert world.messages == {}


def test_a_message_to_a_stopping_run_is_kept_and_wakes_nobody() -> None:
    world = World(work("a"), work("b"))
    world.claim("a", "b")
    world.fail("a")
    world.tell("paid")
    assert (world.run.state, world.run.inbox) == (RunState.STOPPING, 1)
    world.report("b", Waiting(event="paid"))
    assert (world.state("b"), world.run.inbox) == (S.CANCELLED, 1)


# -- deadlines --------------------------------------------------------------------------------------------------------
def test_a_deadline_is_handed_to_a_handler_that_takes_timeouts() -> None:
    """002 phase 3: "Execute handler with taskType = WAITING_TIMEOUT"."""
    world = parked()
    assert world.later(MINUTE - 1, "a").repeated
    world.later(1, "a")
    assert world.state("a") is S.READY
    assert woken_by(world, "a") == {"timeout": {"event": "paid"}}
    world.finish("a")
    assert world.run.state is RunState.SUCCEEDED


def test_a_message_after_the_deadline_was_handed_over_is_kept() -> None:
    world = parked()
    world.later(MINUTE, "a")
    world.tell("paid")
    assert world.run.inbox == 1
    assert woken_by(world, "a") == {"timeout": {"event": "paid"}}


def test_a_deadline_fails_a_handler_that_does_not_take_timeouts() -> None:
    """Design §4 "Deadline of a wait: handler if it takes timeouts, else fail"."""
    world = World(work("a"))
    world.claim("a")
    world.report("a", Waiting(event="paid", timeout=MINUTE, takes_timeouts=False))
    world.later(MINUTE, "a")
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.TIMEOUT)
    assert world.run.state is RunState.FAILED


@pytest.mark.parametrize("late", [0, 1], ids=["at the deadline", "after it"])
def test_a_message_that_comes_too_late_for_a_wait_step_finds_it_failed(late: int) -> None:
    """The deadline decides, not the sweep: an approval at the same moment is refused."""
    world = World(wait("w", "paid", deadline=10 * SECOND), work("b", "w"))
    world.pass_time(10 * SECOND + late)
    with pytest.raises(Conflict, match="it takes no more messages"):
        world.tell("paid")
    assert (world.state("w"), world.run.state, world.run.category) == (S.FAILED, RunState.FAILED, Category.TIMEOUT)


def test_a_message_just_before_the_deadline_ends_the_wait() -> None:
    world = World(wait("w", "paid", deadline=10 * SECOND))
    world.pass_time(10 * SECOND - 1)
    world.tell("paid")
    assert world.state("w") is S.SUCCEEDED


def test_a_late_message_is_kept_for_the_wait_after_a_tolerated_one() -> None:
    first = wait("w", "paid", deadline=10 * SECOND, on_failure=OnFailure.SKIP)
    world = World(first, wait("x", "paid", allowing("w", S.SKIPPED)))
    world.pass_time(11 * SECOND)
    assert world.tell("paid").record == {"id": "m1", "consumed_by": 1}
    assert (world.state("w"), world.state("x")) == (S.SKIPPED, S.SUCCEEDED)


def test_a_late_message_finds_the_deadline_handed_to_the_handler() -> None:
    """Seed 002: the step is READY either way, and its handler learns which came first."""
    world = parked()
    world.pass_time(MINUTE)
    assert world.tell("paid").record == {"id": "m1", "consumed_by": None}
    assert (world.state("a"), world.run.inbox) == (S.READY, 1)
    assert "timeout" in str(woken_by(world, "a"))


def test_a_wait_without_a_deadline_waits_for_ever() -> None:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Waiting(event="paid"))
    assert world.later(10**12, "a").repeated
    assert (world.state("a"), world.run.state) == (S.AWAITING_EVENT, RunState.BLOCKED)


def test_a_wait_for_nothing_in_particular_fails() -> None:
    world = World(work("a"))
    world.claim("a")
    world.report("a", Waiting(event="", cost=b"3", emit=(Emitted("asked", b"{}"),)))
    assert (world.state("a"), world.row("a").category) == (S.FAILED, Category.VALIDATION)
    assert [one.name for one in world.outbox] == ["asked"]
    assert [one.cost for one in world.attempts.values()] == [b"3"]


# -- wait steps -------------------------------------------------------------------------------------------------------
def test_a_wait_step_opens_and_its_message_is_its_output() -> None:
    """Design §3: pending → awaiting_event → succeeded."""
    world = World(*sequence(wait("w", "paid"), work("a")))
    assert (world.state("w"), world.run.state) == (S.AWAITING_EVENT, RunState.BLOCKED)
    world.tell("paid", payload=b'{"sum":3}')
    assert (world.state("w"), world.state("a"), world.run.state) == (S.SUCCEEDED, S.READY, RunState.RUNNING)
    assert world.output_of(0) == b'{"sum":3}'


def test_a_wait_step_takes_a_message_that_came_before_it_opened() -> None:
    world = World(*sequence(work("a"), wait("w", "paid"), work("b")))
    world.tell("paid")
    world.finish("a")
    assert world.trail("w") == ["planned", "wait_opened", "wait_satisfied"]
    assert world.ready() == ["b"]


def test_a_chain_of_waits_is_satisfied_in_one_go_by_what_lies_in_the_inbox() -> None:
    world = World(*sequence(wait("one", "paid"), wait("two", "paid")), start=False)
    world.tell("paid", id="m1")
    world.tell("paid", id="m2")
    world.start()
    assert world.run.state is RunState.SUCCEEDED
    assert [world.messages[one].consumed_by for one in ("m1", "m2")] == [0, 1]


@pytest.mark.parametrize(
    ("policy", "state", "run"),
    [
        (OnFailure.ABORT, S.FAILED, RunState.FAILED),
        (OnFailure.SKIP, S.SKIPPED, RunState.RUNNING),
        (OnFailure.CONTINUE, S.FAILED, RunState.FAILED),
    ],
)
def test_a_wait_steps_deadline_fails_it_under_its_policy(policy: OnFailure, state: StepState, run: RunState) -> None:
    world = World(*sequence(wait("w", "paid", deadline=MINUTE, on_failure=policy), work("a")))
    world.later(MINUTE, "w")
    assert (world.state("w"), world.run.state) == (state, run)


# -- blocked ----------------------------------------------------------------------------------------------------------
def test_a_run_is_blocked_only_when_nothing_else_can_move() -> None:
    """Design §4 "Run shows it waits: when nothing else can move"."""
    world = World(wait("w", "paid"), work("a"))
    assert world.run.state is RunState.RUNNING
    world.finish("a")
    assert world.run.state is RunState.BLOCKED
    world.tell("paid")
    assert world.run.state is RunState.SUCCEEDED
    assert world.trail()[2:] == ["progressed", "waiting", "resumed", "steps_settled", "rules_passed"]


def test_a_step_that_will_be_retried_keeps_its_run_running() -> None:
    world = World(wait("w", "paid"), work("a"))
    world.fail("a", Category.TRANSIENT)
    assert world.run.state is RunState.RUNNING


def test_a_message_that_ends_one_of_two_waits_leaves_the_run_blocked() -> None:
    world = World(wait("v", "paid"), wait("w", "shipped"))
    world.tell("paid")
    assert world.run.state is RunState.BLOCKED
    assert world.trail()[-2:] == ["resumed", "waiting"]


def test_rules_of_a_handler_that_waited_run_after_it_completes() -> None:
    world = parked(rules=(Rule(expression="true"),))
    world.tell("paid")
    world.claim("a")
    world.report("a", Completed())
    assert world.state("a") is S.VALIDATING
