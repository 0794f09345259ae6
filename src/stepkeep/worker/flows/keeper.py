"""Keeps suspended flows of this worker, so that the next claim of a flow goes on without a replay.

A cache, never the truth: a flow is given back only if what is recorded of it is what it was kept with, and everything
that it lacks is known here. Otherwise its calls are read and it is replayed. `inputs.py` asks it, `reporting.py` tells
it what was recorded. It runs on the worker's loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from stepkeep.kernel.outcomes import Completed, Outcome, Suspended
from stepkeep.kernel.states import StepState
from stepkeep.worker.executor import Job
from stepkeep.worker.flows.calls import Recorded
from stepkeep.worker.flows.replay import Flow

MOST_KEPT = 1_000
"""How many suspended flows a worker keeps."""

Key = tuple[str, str, int]
"""(tenant, run, number of the flow's step)."""


class Kept(msgspec.Struct, gc=False):
    """A suspended flow. `fence` is that of the attempt that suspended it, `ends` what calls came to since."""

    flow: Flow
    fence: int
    count: int
    ends: dict[int, Recorded]


class FlowKeeper:
    """The suspended flows of one worker."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Kept] = OrderedDict()

    def fill(self, job: Job) -> bool:
        """Give a claimed flow what it lacks, if all of that is known here. False: its calls must be read."""
        if job.flow is not None or job.known:
            return True
        note = job.claim.step.note
        grown = None if note is None else note.grown
        if grown is None or grown.count == 0:
            return True
        kept = self._kept.pop(_key(job), None)
        if kept is None:
            return False
        is_current = kept.count == grown.count and kept.fence == job.claim.step.fence - 1
        if not is_current or kept.flow.open - len(kept.ends) != job.claim.step.unmet:
            kept.flow.close()
            return False
        job.flow, job.recorded = kept.flow, tuple(kept.ends.values())
        return True

    def give(self, job: Job, calls: Sequence[Recorded]) -> None:
        """Give a claimed flow what was read: it is replayed."""
        job.known = tuple(calls)
        job.recorded = tuple(one for one in calls if one.settled is not None)

    def reported(self, job: Job, outcome: Outcome, state: object, settled: object) -> None:
        """A report was recorded: keep a suspended flow, or what a call of a kept one came to."""
        if isinstance(outcome, Suspended):
            if job.flow is not None and state in (StepState.AWAITING_CHILDREN, StepState.READY):
                note = job.claim.step.note
                before = 0 if note is None or note.grown is None else note.grown.count
                kept = Kept(job.flow, job.claim.step.fence, before + len(outcome.calls), {})
                self._kept[_key(job)] = kept
                self._make_room()
            return
        planned = job.claim.planned
        if planned.call is None or planned.owner is None or not self._kept:
            return
        known = self._kept.get((job.claim.tenant, job.claim.run_id, planned.owner))
        if known is not None and isinstance(outcome, Completed) and state == StepState.SUCCEEDED:
            place = settled if isinstance(settled, int) else 0
            known.ends[planned.no] = Recorded(
                planned.no, planned.call, StepState.SUCCEEDED, place, output=outcome.output
            )

    def _make_room(self) -> None:
        while len(self._kept) > self._most:
            _, dropped = self._kept.popitem(last=False)
            dropped.flow.close()


def _key(job: Job) -> Key:
    return (job.claim.tenant, job.claim.run_id, job.claim.step.no)
