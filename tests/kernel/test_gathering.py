"""Waits with a filter, and waits for several messages: which message they take, and when they have enough."""

from __future__ import annotations

import json

import pytest
from tests.kernel.driver import World, gate, wait, work

from stepkeep.kernel.decide.waits import MAX_GATHERED
from stepkeep.kernel.definition import SECOND
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.outcomes import Waiting
from stepkeep.kernel.machine.states import RunState, StepState

S = StepState
BIG = {"accepts": "message.amount > 100"}
THREE = {"count": 3}


def output(world: World, name: str) -> object:
    note = world.row(name).note
    return None if note is None or note.output is None else json.loads(note.output)


def pay(world: World, amount: object, id: str) -> object:  # noqa: A002 - the word of messages
    return world.tell("paid", id=id, payload=json.dumps({"amount": amount}).encode()).record["consumed_by"]


def last_cause(world: World) -> dict[str, object]:
    detail = json.loads(world.bodies[-1])["causes"][-1]["detail"]
    assert isinstance(detail, dict)
    return detail


# -- filters ----------------------------------------------------------------------------------------------------------
def test_a_filter_takes_the_message_that_it_accepts_and_leaves_the_others_in_the_inbox() -> None:
    world = World(wait("big", "paid", takes=BIG), work("ship", "big"))
    assert pay(world, 7, "m1") is None
    assert last_cause(world)["refused_by"] == ["big"], "the verdict is on record"
    assert (world.state("big"), world.run.state, world.run.inbox) == (S.AWAITING_EVENT, RunState.BLOCKED, 1)
    assert pay(world, 700, "m2") == 0
    assert "refused_by" not in last_cause(world)
    assert (world.state("big"), output(world, "big")) == (S.SUCCEEDED, {"amount": 700})


@pytest.mark.parametrize("payload", [b"{}", b"7", b"null", b'{"amount":"much"}', b'{"amount":[]}'])
def test_a_filter_that_cannot_be_evaluated_does_not_accept(payload: bytes) -> None:
    world = World(wait("big", "paid", takes=BIG))
    assert world.tell("paid", id="m", payload=payload).record["consumed_by"] is None
    assert world.state("big") is S.AWAITING_EVENT


def test_a_filter_is_asked_about_early_messages_oldest_first() -> None:
    world = World(work("pack"), wait("big", "paid", "pack", takes=BIG))
    for number, amount in enumerate((1, 200, 300)):
        assert pay(world, amount, f"m{number}") is None
    world.finish("pack")
    assert (world.state("big"), output(world, "big")) == (S.SUCCEEDED, {"amount": 200})
    assert [world.messages[f"m{number}"].consumed_by for number in range(3)] == [None, 1, None]


def test_a_message_goes_to_the_first_wait_that_accepts_it() -> None:
    world = World(wait("big", "paid", takes=BIG), wait("any", "paid"))
    assert pay(world, 7, "m1") == 1
    assert pay(world, 700, "m2") == 0
    assert world.run.state is RunState.SUCCEEDED


def test_a_filter_reads_the_input_of_the_run() -> None:
    world = World(
        wait("mine", "paid", takes={"accepts": "message.order == input.order"}), given=b'{"order":"o-1"}', start=False
    )
    world.start()
    assert world.tell("paid", id="m1", payload=b'{"order":"o-2"}').record["consumed_by"] is None
    assert world.tell("paid", id="m2", payload=b'{"order":"o-1"}').record["consumed_by"] == 0


# -- several messages -------------------------------------------------------------------------------------------------
def test_a_wait_for_three_takes_each_at_once_and_ends_with_the_third() -> None:
    world = World(wait("votes", "vote", takes=THREE), work("count", "votes"))
    for number in range(2):
        reply = world.tell("vote", id=f"m{number}", payload=str(number).encode())
        assert reply.record["consumed_by"] == 0
        assert (world.state("votes"), world.run.state) == (S.AWAITING_EVENT, RunState.BLOCKED)
    assert world.tell("vote", id="m1", payload=b"1").repeated, "a duplicate does not count"
    assert world.state("votes") is S.AWAITING_EVENT
    world.tell("vote", id="m2", payload=b"2")
    assert (world.state("votes"), output(world, "votes")) == (S.SUCCEEDED, [0, 1, 2])
    assert world.run.inbox == 0
    world.finish("count")
    assert world.run.state is RunState.SUCCEEDED


def test_early_messages_count_and_one_too_many_stays_in_the_inbox() -> None:
    world = World(work("pack"), wait("votes", "vote", "pack", takes=THREE), gate("sign", "votes"))
    for number in range(4):
        world.tell("vote", id=f"m{number}", payload=str(number).encode())
    world.finish("pack")
    assert (world.state("votes"), output(world, "votes")) == (S.SUCCEEDED, [0, 1, 2])
    assert [world.messages[f"m{number}"].consumed_by for number in range(4)] == [1, 1, 1, None]


def test_some_early_and_some_late_messages_count_together() -> None:
    world = World(work("pack"), wait("votes", "vote", "pack", takes=THREE))
    for number in range(2):
        world.tell("vote", id=f"m{number}", payload=b"1")
    world.finish("pack")
    assert world.state("votes") is S.AWAITING_EVENT
    world.tell("vote", id="m2", payload=b"2")
    assert output(world, "votes") == [1, 1, 2]


def test_a_filter_and_a_count_go_together() -> None:
    world = World(wait("big", "paid", takes={**BIG, "count": 2}))
    assert [pay(world, amount, f"m{amount}") for amount in (101, 5, 102)] == [0, None, 0]
    assert output(world, "big") == [{"amount": 101}, {"amount": 102}]


def test_a_wait_takes_messages_until_its_expression_holds() -> None:
    enough = "messages.exists(m, m.final)"
    world = World(wait("parts", "part", takes={"enough": enough}))
    for number, final in enumerate((False, False, True)):
        payload = json.dumps({"n": number, "final": final}).encode()
        assert world.tell("part", id=f"m{number}", payload=payload).record["consumed_by"] == 0
    assert world.state("parts") is S.SUCCEEDED
    assert output(world, "parts") == [
        {"n": 0, "final": False},
        {"n": 1, "final": False},
        {"n": 2, "final": True},
    ]
    with pytest.raises(Conflict):
        world.tell("part", id="late")


def test_a_wait_takes_a_bounded_number_of_messages_and_leaves_the_rest() -> None:
    world = World(wait("parts", "part", takes={"enough": "false"}), watched=False)
    for number in range(MAX_GATHERED + 1):
        taken = world.tell("part", id=f"m{number}", payload=b"1").record["consumed_by"]
        assert taken == (0 if number < MAX_GATHERED else None)
    assert world.run.inbox == 1


def test_a_wait_for_several_fails_at_its_deadline_and_what_it_took_stays_taken() -> None:
    world = World(wait("votes", "vote", deadline=60 * SECOND, takes=THREE))
    world.tell("vote", id="m1", payload=b"1")
    assert world.row("votes").due_at == world.now + 60 * SECOND, "a message does not end the deadline"
    world.later(60 * SECOND, "votes")
    assert world.state("votes") is S.FAILED
    assert world.messages["m1"].consumed_by == 0


# -- handlers ---------------------------------------------------------------------------------------------------------
def parked(world: World, **takes: object) -> World:
    world.claim("pay")
    world.report("pay", Waiting(event="paid", **takes))  # type: ignore[arg-type]
    return world


def woken(world: World) -> dict[str, object]:
    note = world.row("pay").note
    assert note is not None
    assert (note.takes, note.gathered, note.event) == (None, (), None)
    found = json.loads(note.woken_by or "{}")
    assert isinstance(found, dict)
    return found


def test_a_handler_is_woken_by_the_message_that_its_filter_accepts() -> None:
    world = World(work("pay"))
    pay(world, 7, "early")
    parked(world, accepts="message.amount > 100")
    assert world.state("pay") is S.AWAITING_EVENT
    assert pay(world, 8, "small") is None
    assert last_cause(world)["refused_by"] == ["pay"]
    assert pay(world, 700, "big") == 0
    assert world.state("pay") is S.READY
    assert woken(world) == {"message": {"id": "big", "name": "paid", "payload": {"amount": 700}}}
    assert world.run.inbox == 2, "what the filter refused stays for another wait"


def test_a_handler_takes_as_many_messages_as_it_asks_for_those_from_the_inbox_first() -> None:
    world = World(work("pay"))
    pay(world, 1, "early")
    parked(world, count=3)
    assert pay(world, 2, "m2") == 0
    assert world.state("pay") is S.AWAITING_EVENT
    assert pay(world, 3, "m3") == 0
    assert pay(world, 4, "m4") is None
    found = woken(world)
    assert found["messages"] == [{"amount": 1}, {"amount": 2}, {"amount": 3}]
    assert found["last"] == {"message": {"id": "m3", "name": "paid", "payload": {"amount": 3}}}


def test_a_handler_takes_messages_until_its_expression_holds() -> None:
    world = parked(World(work("pay")), enough="messages.exists(one, one.amount == 0)")
    for amount in (5, 6, 0):
        assert world.state("pay") is S.AWAITING_EVENT
        pay(world, amount, f"m{amount}")
    assert woken(world)["messages"] == [{"amount": 5}, {"amount": 6}, {"amount": 0}]


def test_a_handler_whose_wait_times_out_learns_what_it_took() -> None:
    world = parked(World(work("pay")), count=3, timeout=5 * SECOND)
    pay(world, 1, "m1")
    world.later(6 * SECOND, "pay")
    assert world.state("pay") is S.READY
    assert woken(world) == {"timeout": {"event": "paid", "messages": [{"amount": 1}]}}


@pytest.mark.parametrize(
    "takes",
    [{"count": 0}, {"count": MAX_GATHERED + 1}, {"count": 2, "enough": "true"}, {"accepts": "message.("}],
    ids=str,
)
def test_a_wait_that_nothing_could_end_fails_its_step(takes: dict[str, object]) -> None:
    world = parked(World(work("pay")), **takes)
    assert world.state("pay") is S.FAILED
