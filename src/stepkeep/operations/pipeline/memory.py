"""Remembers the runs that this process has just written, so that its next report need not read them.

Only runs in which a single step is leased, and by this process. Any other change of such a run advances its journal,
and a write on remembered rows is then refused as a whole. Nothing here is trusted: `Store.write_if_unchanged` checks
all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stepkeep.kernel.decide.decision import Decision
from stepkeep.kernel.machine.events import FlowResumed, StepReported
from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import STEP_TERMINAL
from stepkeep.kernel.plan import Plan
from stepkeep.operations.pipeline.batch import DecisionBatch
from stepkeep.operations.pipeline.clock import Clock
from stepkeep.store.change import Loaded, RunKey

LONGEST = 1000
"""How many ended steps are remembered per run."""

Name = tuple[RunKey, int, int]
"""A claim: (run, step, fence)."""


class Known(msgspec.Struct, gc=False):
    """A run as this process wrote it last. If `is_young`, a step that is neither in `steps` nor in `ended` is
    unchanged since its creation."""

    run: Run
    steps: dict[int, Step]
    ended: set[int]
    is_young: bool


class Held(msgspec.Struct, frozen=True, gc=False):
    """A claim of this process, and its run if no other process holds a step of it."""

    plan: Plan
    step: Step
    known: Known | None = None


class Recalled(msgspec.Struct, frozen=True):
    """The rows on which a batch of reports is decided without a read."""

    loaded: Loaded
    runs: dict[RunKey, Known]


class Memory:
    """The claims that this process holds, and what it remembers of their runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[Name, Held] = {}

    # -- claims --------------------------------------------------------------------------------------------------------
    def hold(self, batch: DecisionBatch, known: Mapping[RunKey, Known] | None = None) -> None:
        """Remember the claims of a committed transaction. `known` is what was remembered before it; it still holds for
        a run that the transaction found at the same journal sequence, whether it read that run or not."""
        for key, decision in batch.decisions.items():
            alone = decision.run.leased == 1
            for step in decision.claimed:
                plan = batch.plan_of(decision.run)
                before = None if known is None else known.get(key)
                if before is not None and before.run.seq != decision.was:
                    before = None
                now_known = _learn(plan, step, decision, before) if alone else None
                self._held[key, step.no, step.fence] = Held(plan, step, now_known)

    def forget(self, events: Sequence[StepReported]) -> None:
        for event in events:
            self.drop((event.tenant, event.run_id), event.no, event.fence)

    def drop(self, key: RunKey, no: int, fence: int) -> None:
        self._held.pop((key, no, fence), None)

    def outdate(self, key: RunKey, no: int, fence: int) -> None:
        """The run has moved on under this claim: what is known of it must be read again."""
        held = self._held.get((key, no, fence))
        if held is not None and held.known is not None:
            self._held[key, no, fence] = Held(held.plan, held.step)

    # -- reports -------------------------------------------------------------------------------------------------------
    def expect(self, events: Sequence[StepReported]) -> dict[RunKey, set[int]]:
        """The steps that these reports will change: their dependents, or the next undo step."""
        expected: dict[RunKey, set[int]] = {}
        for event in events:
            key = (event.tenant, event.run_id)
            held = self._held.get((key, event.no, event.fence))
            if held is None:
                continue
            numbers = expected.setdefault(key, set())
            planned = held.plan.at(event.no)
            numbers.update([no for no, _ in planned.dependents])
            if planned.owner is not None:
                numbers.add(planned.owner)
            if held.step.note is not None and held.step.note.next is not None:
                numbers.add(held.step.note.next)
        return expected

    def recall(self, events: Sequence[StepReported], offset: int) -> Recalled | None:
        """Everything that these reports need; None if anything may be missing."""
        now = self._clock.now()
        if now is None:
            return None
        loaded = Loaded(now=now + offset)
        recalled: dict[RunKey, Known] = {}
        for event in events:
            key = (event.tenant, event.run_id)
            if isinstance(event, FlowResumed) and key in recalled:
                # It has no claim yet. Its row is among those of its call, whose report comes before.
                continue
            held = self._held.get((key, event.no, event.fence))
            if held is None or held.known is None:
                return None
            known = recalled[key] = held.known
            run, steps = known.run, known.steps
            for no, _ in held.plan.at(event.no).dependents:
                # A flow may have been created with calls of an earlier run: its row is read.
                is_known = no in steps or no in known.ended or held.plan.steps[no].kind.is_flow
                if known.is_young and not is_known:
                    steps[no] = as_created(held.plan, run, no)
            loaded.runs[key], loaded.steps[key] = run, steps
        return Recalled(loaded, recalled)


def _learn(plan: Plan, claimed: Step, decision: Decision, known: Known | None) -> Known | None:
    """What is known of a run after a committed decision."""
    if known is None:
        # Nothing can have followed a single root that has not ended.
        known = Known(decision.run, {}, set(), is_young=plan.roots == (claimed.no,))
    known.run = decision.run
    for row in (*decision.changed, *decision.added):
        if row.state in STEP_TERMINAL:
            known.steps.pop(row.no, None)
            known.ended.add(row.no)
        else:
            known.steps[row.no] = row
    return known if len(known.ended) < LONGEST else None


def as_created(plan: Plan, run: Run, no: int) -> Step:
    """The row of a main step that is unchanged since its creation."""
    planned = plan.steps[no]
    return Step(run.tenant, run.id, no, planned.queue, run.priority, unmet=planned.unmet)
