"""The record: one entry per transaction, each hop with its cause, sealed so that tampering shows."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from msgspec.structs import replace
from tests.kernel.driver import World, claimer, gate, sequence, wait, work

from stepkeep.kernel.decide.create import JOURNAL_FORMAT
from stepkeep.kernel.definition import Approval, Completion, Rule
from stepkeep.kernel.machine.journal import RUN_ENTITY, Entry, open_entry, seal
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.rows import Note


def lived() -> World:
    world = World(*sequence(work("a"), gate("g"), work("b")))
    world.finish("a")
    world.approve("g", by="bea", comment="fine")
    world.fail("b", error="broken")
    return world


def head_of(bodies: list[bytes]) -> bytes:
    """What anybody can compute from an export without this program."""
    head = b""
    for body in bodies:
        head = hashlib.sha256(head + body).digest()
    return head


def test_the_head_on_the_run_row_seals_every_byte_of_every_entry_in_order() -> None:
    """Promise 7."""
    world = lived()
    assert len(world.bodies) == world.run.seq > 4
    assert head_of(world.bodies) == world.run.head


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("how", ["changed", "dropped", "swapped", "last dropped", "repeated"])
def test_a_changed_dropped_or_reordered_entry_shows(how: str, place: int) -> None:
    world = lived()
    bodies = list(world.bodies)
    if how == "changed":
        bodies[place] = bodies[place].replace(b'"actor":"', b'"actor":"x', 1)
    elif how == "dropped":
        del bodies[place]
    elif how == "swapped":
        bodies[place], bodies[place - 1] = bodies[place - 1], bodies[place]
    elif how == "last dropped":
        del bodies[-1 - place :]
    else:
        bodies.insert(place, bodies[place])
    assert bodies != world.bodies
    assert head_of(bodies) != world.run.head


def test_an_entry_reads_back_as_it_was_written() -> None:
    world = lived()
    for body in world.bodies:
        entry = open_entry(body)
        assert seal(entry, b"").body == body


def test_one_transaction_is_one_entry_and_every_hop_in_it_names_its_own_cause() -> None:
    """Design §2: "one per run and transaction, holding every hop made in it, each hop with its own cause and actor"."""
    world = World(work("a"), work("b"), work("c", "a"))
    world.claim("a", worker=1)
    world.claim("b", worker=2)
    before = world.run.seq
    world.send(world.reporting("a", Completed()), world.reporting("b", Completed()), claimer=claimer())
    assert world.run.seq == before + 1
    entry = open_entry(world.bodies[-1])
    told = [(hop.no, hop.trigger, entry.causes[hop.by].event, entry.causes[hop.by].actor) for hop in entry.hops]
    assert told == [
        (0, "completed", "step_reported", "w1"),
        (0, "rules_passed", "step_reported", "w1"),
        (2, "dependencies_met", "step_reported", "w1"),
        (1, "completed", "step_reported", "w2"),
        (1, "rules_passed", "step_reported", "w2"),
        (2, "claimed", "step_claimed", "w1"),
    ]


def test_a_hop_names_the_step_that_led_to_it() -> None:
    world = World(*sequence(work("a"), work("b"), work("c")))
    world.finish("a")
    world.fail("b")
    opened = next(hop for hop in world.hops if (hop.no, hop.trigger) == (1, "dependencies_met"))
    stopped = next(hop for hop in world.hops if (hop.no, hop.trigger) == (RUN_ENTITY, "step_failed"))
    cancelled = next(hop for hop in world.hops if (hop.no, hop.trigger) == (2, "cancelled"))
    assert (opened.of, stopped.of, cancelled.of) == (0, 1, 1)


def test_the_last_hop_of_a_run_says_what_it_failed_of() -> None:
    """004 event schema: severity and trigger come from the record alone."""
    hop = lived().hops[-1]
    assert (hop.no, hop.target, hop.category, hop.error) == (RUN_ENTITY, "failed", "validation", "broken")


def test_what_people_said_is_in_the_record() -> None:
    causes = [cause for body in lived().bodies for cause in open_entry(body).causes]
    (decided,) = [cause for cause in causes if cause.event == "gate_decided"]
    assert decided.actor == "bea"
    assert decided.detail == {"step": "g", "decision": "approved", "comment": "fine"}


def test_two_entries_with_the_same_body_have_different_seals_at_different_places() -> None:
    entry = Entry("t", "r", 1, 5, (), ())
    first = seal(entry, b"")
    assert first.hash != seal(entry, first.hash).hash


def test_the_journal_has_the_digests_of_input_outputs_and_of_what_a_gate_shows() -> None:
    ask = Approval(prompt="Ship it?")
    world = World(
        *sequence(
            work("pack"),
            replace(gate("sign"), approval=ask),
            wait("paid", "payment"),
            work("check", rules=(Rule(expression="true"),)),
            work("ship", completion=Completion.MANUAL),
        ),
        given=b'{"order": 7}',
    )
    world.tell("payment", payload=b'{"sum": 3}')
    world.finish("pack", output=b'"packed"')
    world.approve("sign")
    world.finish("check", output=b"[1]")
    world.finish("ship", output=b"2")
    world.complete("ship", output=b"3")
    [created, *_] = open_entry(world.bodies[0]).causes
    assert created.detail == {
        "definition": world.plan.digest,
        "input": sha256(b'{"order": 7}'),
        "format": JOURNAL_FORMAT,
    }
    told = {(world.plan.at(hop.no).name, hop.trigger): hop.digest for hop in world.hops if hop.digest}
    decided = (world.row("sign").note or Note()).output
    assert decided is not None
    assert told == {
        ("pack", "rules_passed"): sha256(b'"packed"'),
        ("sign", "gate_opened"): sha256(msgspec.json.encode(ask, order="sorted")),
        ("sign", "approved"): sha256(decided.encode()),
        ("paid", "wait_satisfied"): sha256(b'{"sum": 3}'),
        ("check", "completed"): sha256(b"[1]"),
        ("ship", "completion_requested"): sha256(b"2"),
        ("ship", "rules_passed"): sha256(b"3"),
    }


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
