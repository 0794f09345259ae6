"""The preview of a rollback says what a cancel then does, from any state of any run."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.kernel.driver import World, work
from tests.kernel.walks import bring_home, noise, world_of
from tests.suites import in_proof

from stepkeep.kernel.decide.compensation import Remains
from stepkeep.kernel.decide.decision import Snapshot
from stepkeep.kernel.decide.preview import Preview, preview_rollback
from stepkeep.kernel.definition import CompensateWhen, Effect
from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.events import CancelRequested
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import Rollback, RunState, StepState

CANCEL = CancelRequested(tenant="t", run_id="r", actor="ann", compensate=True)


def preview(world: World) -> Preview:
    """What the operation reads is enough: the run and all of its steps."""
    snapshot = Snapshot(plan=world.plan, run=world.run, steps=dict(world.rows), whole=True, waiting=True)
    found = preview_rollback(snapshot, world.now)
    assert isinstance(found, Preview)
    return found


def undo_order(world: World) -> list[int]:
    """The steps whose undo the rollback has added, in the order of its chain."""
    size = world.plan.size
    hooks = {no: row for no, row in world.rows.items() if size <= no < 2 * size}
    followers = {row.note.next for row in hooks.values() if row.note is not None and row.note.next is not None}
    at: Step | None = next((row for no, row in sorted(hooks.items()) if no not in followers), None)
    order = []
    while at is not None:
        order.append(at.no - size)
        at = None if at.note is None or at.note.next is None else hooks[at.note.next]
    return order


@pytest.mark.parametrize("seeds", [400, in_proof(1_200)])
def test_it_says_what_the_cancel_does_from_any_state(seeds: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(seeds):
        random = Random(seed)
        world = world_of(random)
        world.watched = False
        for _ in range(random.randint(0, 25)):
            events, claimer = noise(world, random)
            world.send(*events, claimer=claimer)
        before = world.run.state
        said = preview(world)
        assert preview(world) == said
        replies = [world.send(CANCEL)[0], world.send(CANCEL)[0]]
        seen[str(before)] += 1
        if before is RunState.COMPENSATING:
            continue
        if said.refusal is not None:
            assert isinstance(replies[0], Refused)
            assert str(replies[0]) == said.refusal
            continue
        assert undo_order(world) == list(said.undone), seed
        seen["undone"] += len(said.undone)
        seen["running"] += len(said.running)
        seen.update(str(why) for _, why in said.remains)
        bring_home(world)
        if world.run.state is not said.ends:
            # Only an undo that fails, or the policy about it, makes a difference.
            hooks = [row for no, row in world.rows.items() if no >= world.plan.size]
            assert any(row.state is not StepState.SUCCEEDED for row in hooks), seed
        else:
            assert (world.run.rollback or Rollback.NONE) == said.rollback, seed
    for wanted in ("running", "undone", "compensating", "stopping", "blocked", *Remains):
        assert seen[wanted] > 0, (wanted, seen)


def test_each_reason_why_something_remains_is_named() -> None:
    world = World(
        work("read", effect=Effect.READ),
        work("paid", "read", effect=Effect.WRITE),
        work("sent", "paid", undo=True),
        work("asked", "sent", undo=True, compensate_when=CompensateWhen.ATTEMPTED),
    )
    assert preview(world).undone == ()
    world.finish("read", "paid")
    world.claim("sent")
    said = preview(world)
    assert (said.undone, said.running) == ((), (2,))
    assert dict(said.remains) == {1: Remains.NO_UNDO, 2: Remains.ATTEMPTED}
    world.finish("sent")
    world.claim("asked")
    said = preview(world)
    assert (said.undone, dict(said.remains)) == ((3, 2), {1: Remains.NO_UNDO})
    assert (said.ends, said.rollback) == (RunState.FAILED, Rollback.PARTIAL)
