"""Checkpoints: recorded by the holder of the lease alone, once for each name, and kept for later attempts."""

from __future__ import annotations

import pytest
from tests.kernel.driver import LEASE, World, work

from stepkeep.kernel.definition import SECOND, Retry
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import CancelRequested, StepCheckpointed
from stepkeep.kernel.machine.journal import open_entry, payload_digest
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.rows import Checkpoint
from stepkeep.kernel.machine.states import Category, RunState, StepState

AGAIN = Retry(max_attempts=3, initial=0)


def names(world: World, step: str = "pay") -> list[tuple[str, str, int]]:
    no = world.row(step).no
    return [(one.name, one.value.decode(), one.fence) for one in world.checkpoints if one.no == no]


def test_a_checkpoint_is_journaled_with_its_digest_and_moves_nothing() -> None:
    world = World(work("pay"))
    world.claim("pay")
    before = world.row("pay")
    world.checkpoint("pay", "charge", b'{"id":7}')
    entry = open_entry(world.bodies[-1])
    assert entry.hops == ()
    [cause] = entry.causes
    assert cause.event == "checkpoint_recorded"
    assert cause.detail == {
        "step": "pay", "no": 0, "checkpoint": "charge", "fence": 1, "digest": payload_digest(b'{"id":7}'),
    }  # fmt: skip
    after = world.row("pay")
    assert (after.state, after.fence, after.due_at) == (before.state, before.fence, before.due_at)
    assert names(world) == [("charge", '{"id":7}', 1)]


def test_later_attempts_keep_what_earlier_ones_recorded() -> None:
    world = World(work("pay", retry=AGAIN))
    world.claim("pay")
    world.checkpoint("pay", "charge", b"1")
    world.report("pay", Failed(category=Category.TRANSIENT, error="no"))
    world.claim("pay")
    world.checkpoint("pay", "ship", b"2")
    world.lose("pay")
    world.claim("pay")
    assert names(world) == [("charge", "1", 1), ("ship", "2", 2)]
    world.report("pay", Completed(output=b"3"))
    assert world.run.state is RunState.SUCCEEDED
    assert names(world) == [("charge", "1", 1), ("ship", "2", 2)]


def test_a_late_worker_records_nothing() -> None:
    world = World(work("pay", retry=AGAIN))
    world.claim("pay")
    world.report("pay", Failed(category=Category.TRANSIENT, error="no"))
    world.claim("pay")
    assert isinstance(world.checkpoint("pay", "charge", b"1", fence=1), Fenced)
    assert isinstance(world.checkpoint("pay", "charge", b"1", fence=3), Fenced)
    assert isinstance(world.checkpoint("pay", "charge", b"1", worker=99), Fenced)
    world.pass_time(LEASE + SECOND)
    late = world.checkpoint("pay", "charge", b"1")
    assert isinstance(late, Fenced)
    assert "the lease had run out" in str(late)
    assert names(world) == []


def test_the_same_again_changes_nothing_and_another_attempt_cannot_replace_it() -> None:
    world = World(work("pay", retry=AGAIN))
    world.claim("pay")
    world.checkpoint("pay", "charge", b"1")
    entries = len(world.bodies)
    again = world.checkpoint("pay", "charge", b"2")
    assert (getattr(again, "repeated", None), len(world.bodies)) == (True, entries)
    world.report("pay", Failed(category=Category.TRANSIENT, error="no"))
    world.claim("pay")
    assert isinstance(world.checkpoint("pay", "charge", b"3"), Conflict)
    assert names(world) == [("charge", "1", 1)]


def test_checkpoints_of_two_steps_are_apart_and_a_handler_that_returned_records_none() -> None:
    world = World(work("pay", rules=(), undo=True), work("ship"))
    for step in ("pay", "ship"):
        world.claim(step)
        world.checkpoint(step, "once", f'"{step}"'.encode())
    assert (names(world), names(world, "ship")) == ([("once", '"pay"', 1)], [("once", '"ship"', 1)])
    world.report("pay", Completed())
    assert isinstance(world.checkpoint("pay", "late", b"1", fence=1), Fenced)


def test_a_step_that_is_to_stop_may_still_record_what_it_did() -> None:
    world = World(work("pay"), work("fails"))
    world.claim("pay")
    world.claim("fails")
    world.report("fails", Failed(category=Category.AUTH, error="no"))
    assert world.run.state is RunState.STOPPING
    world.checkpoint("pay", "charge", b"1")
    assert names(world) == [("charge", "1", 1)]
    world.send(CancelRequested(tenant="t", run_id="r", actor="ann"))
    assert world.state("pay") is StepState.CANCELLED
    assert isinstance(world.checkpoint("pay", "more", b"1"), Fenced)


def test_a_checkpoint_writes_one_row_and_changes_none_however_many_there_are() -> None:
    world = World(work("pay"), watched=False)
    world.claim("pay")
    for place in range(1_000):
        world.checkpoint("pay", str(place), b"1")
        assert (world.last.changed, world.last.added, len(world.last.rows.of(Checkpoint))) == ((), (), 1)
    assert [(one.name, one.seq) for one in world.checkpoints[:2]] == [("0", 3), ("1", 4)]


def test_two_of_one_name_in_one_transaction_are_one() -> None:
    world = World(work("pay"))
    world.claim("pay")
    first, again = world.send(*[recording(world, value) for value in (b"1", b"2")])
    assert (getattr(first, "repeated", None), getattr(again, "repeated", None)) == (False, True)
    assert names(world) == [("charge", "1", 1)]


def recording(world: World, value: bytes) -> StepCheckpointed:
    return StepCheckpointed(
        tenant="t", run_id="r", actor="w1", no=0, fence=world.row("pay").fence, worker=1, name="charge", value=value
    )


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
def test_a_name_that_cannot_be_kept_is_refused_before_the_decision(name: str) -> None:
    from stepkeep.kernel.machine.fitting import misfit_of_event

    event = StepCheckpointed(tenant="t", run_id="r", actor="w", no=0, fence=1, worker=1, name=name, value=b"1")
    assert misfit_of_event(event) == "name must have 1 to 255 printable characters"
