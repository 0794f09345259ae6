"""Refusals are answers, and answers leave nothing behind: a worker that is refused for days must not grow."""

from __future__ import annotations

import gc

from tests.kernel.driver import LEASE, World, work

from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Decision, Snapshot
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.machine.events import StepClaimed, StepReported
from stepkeep.kernel.machine.outcomes import Completed


def test_a_refusal_keeps_nothing_of_the_decision_alive() -> None:
    world = World(work("a"))
    snapshot = Snapshot(plan=world.plan, run=world.run, steps=world.rows, whole=True)
    strange = StepReported(tenant="t", run_id="r", actor="w", no=0, fence=7, worker=1, outcome=Completed())
    unknown = StepClaimed(tenant="t", run_id="r", actor="w", no=99, worker=1, lease=LEASE)
    before = _drafts()
    decision: object = None
    for _ in range(50):
        for event in (strange, unknown):
            decision = decide(snapshot, (event,), world.now)
            assert isinstance(decision, Decision)
            assert isinstance(decision.replies[0], Exception)
    del decision
    assert _drafts() == before


def _drafts() -> int:
    gc.collect()
    # By exact type: `isinstance` asks each object for its class, and objects of other tests may refuse to tell.
    return sum(type(one) is Draft for one in gc.get_objects())
