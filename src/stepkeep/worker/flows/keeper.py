"""Keeps suspended flows of this worker, so that the next claim of a flow goes on without a replay.

A cache, never the truth: a flow is given back only if what is recorded of it is what it was kept with, and everything
that it lacks is known here. Otherwise its calls are read and it is replayed. `inputs.py` asks it, `reporting.py` tells
it what was recorded, `ahead.py` borrows flows. It runs on the worker's loop, but for `borrow` and `pending`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.composition.flows import places_of
from stepkeep.kernel.machine.outcomes import Completed, Outcome, Suspended
from stepkeep.kernel.machine.rows import Grown, Note
from stepkeep.kernel.machine.states import Phase, StepState
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.worker.attempts.executor import Job, LoadedInputs
from stepkeep.worker.flows.calls import Recorded
from stepkeep.worker.flows.replay import Flow

MOST_KEPT = 1_000
"""How many suspended flows a worker keeps."""

SECOND = 1_000_000

Key = tuple[str, str, int]
"""(tenant, run, number of the flow's step)."""


class Kept(msgspec.Struct, eq=False):
    """A flow of this worker. `job` is the attempt that suspended it last, `count` and `seen` are how many of its calls
    and of their ends are on record with that, `ends` is what calls came to since.

    `pending` are calls that were reported without the flow: until these are answered, nothing is fed to it ahead.
    """

    job: Job
    count: int
    seen: int
    ends: dict[int, Recorded] = {}
    pending: list[int] = []
    _here: list[Flow] = []

    def borrow(self) -> Flow | None:
        """Take the flow away, if it is here. Safe from any thread: only one caller gets it."""
        try:
            return self._here.pop()
        except IndexError:
            return None

    def put(self, flow: Flow) -> None:
        self._here.append(flow)

    @property
    def is_idle(self) -> bool:
        """Whether no end of a call is recorded, or about to be, that the flow does not know."""
        return not self.ends and not self.pending

    def next_job(self, call: Job, now: float) -> Job:
        """The attempt that goes on with the flow in the transaction of this call's report. `now` is monotonic."""
        before, step = self.job, self.job.claim.step
        note = step.note or Note()
        grown = replace(note.grown or Grown(count=0), count=self.count, free=())
        claimed = replace(step, fence=step.fence + 1, note=replace(note, grown=grown))
        took = int((now - call.attempt_deadline) * SECOND) + call.claim.planned.timeout
        claim = replace(before.claim, step=claimed, claimed_at=call.claim.claimed_at + took)
        return Job(
            claim,
            before.prepared,
            now + before.claim.planned.timeout / SECOND,
            call.renewed_at,
            before.fetch,
            call.lane,
            loaded=LoadedInputs(details=before.loaded.details, opened=before.loaded.opened),
            progressed=before.progressed,
            keeper=before.keeper,
        )


class FlowKeeper:
    """The suspended flows of one worker."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Kept] = OrderedDict()

    def fill(self, job: Job) -> bool:
        """Give a claimed flow what it lacks, if all of that is known here. False: its calls must be read."""
        if job.calls.flow is not None or job.calls.known:
            return True
        note = job.claim.step.note
        grown = None if note is None else note.grown
        if grown is None or grown.count == 0:
            return True
        kept = self._kept.get(_key(job))
        flow = None if kept is None else kept.borrow()
        if kept is None or flow is None:
            return False
        ends = tuple(kept.ends.values())
        is_current = kept.count == grown.count and kept.job.claim.step.fence == job.claim.step.fence - 1
        if not is_current or kept.count - kept.seen - len(ends) != job.claim.step.unmet or not flow.fits(ends):
            flow.close()
            return False
        job.calls.flow, job.calls.recorded = flow, ends
        return True

    def of_call(self, job: Job) -> Kept | None:
        """The flow that made this call, if it is one of this worker."""
        planned = job.claim.planned
        if planned.call is None or planned.owner is None or planned.phase is not Phase.MAIN:
            return None
        return self._kept.get((job.claim.tenant, job.claim.run_id, planned.owner))

    def lane_of(self, claim: Claim) -> int | None:
        """The lane of the flow that this step is, or that made this call; None if it is not kept here."""
        owner = claim.step.no if claim.planned.owner is None else claim.planned.owner
        kept = self._kept.get((claim.tenant, claim.run_id, owner))
        return None if kept is None else kept.job.lane

    def give(self, job: Job, calls: Sequence[Recorded]) -> None:
        """Give a claimed flow what was read: it is replayed."""
        job.calls.known = tuple(calls)
        job.calls.recorded = tuple(one for one in calls if one.settled is not None)

    def reported(self, job: Job, outcome: Outcome, reply: Mapping[str, Any]) -> None:
        """A report was recorded: keep a suspended flow, or what a call of a kept one came to."""
        state, settled = reply.get("state"), reply.get("settled")
        if isinstance(outcome, Suspended):
            if job.calls.flow is not None and state in (StepState.AWAITING_CHILDREN, StepState.READY):
                self._keep(job, job.calls.flow, outcome, reply)
            return
        if job.prepared.is_flow:
            self._kept.pop(_key(job), None)
            return
        kept = self.of_call(job) if self._kept else None
        if kept is None:
            return
        self.answered(job)
        if isinstance(outcome, Completed) and state == StepState.SUCCEEDED:
            kept.ends[job.claim.step.no] = end_of(job, outcome.output, settled or 0, reply.get("at"))

    def answered(self, job: Job) -> None:
        """The report on a call was answered, or will never be."""
        if job.calls.kept is not None and job.claim.step.no in job.calls.kept.pending:
            job.calls.kept.pending.remove(job.claim.step.no)

    def _keep(self, job: Job, flow: Flow, outcome: Suspended, reply: Mapping[str, Any]) -> None:
        note, segment = job.claim.step.note, job.claim.planned.segment
        _, count = places_of((None if note is None else note.grown) or Grown(count=0), len(outcome.calls))
        cancelled = [(no, fence) for no, fence in reply.get("cancelled", ())]
        seen = outcome.seen + len(cancelled)
        kept = self._kept.get(_key(job))
        if kept is None:
            kept = self._kept[_key(job)] = Kept(job, count, seen)
        else:
            # The same object: calls that are under way refer to it.
            kept.job, kept.count, kept.seen, kept.ends = job, count, seen, {}
            self._kept.move_to_end(_key(job))
        job.calls.flow = None
        flow.was_recorded(count)
        if cancelled and segment is not None:
            flow.knows_cancelled(cancelled, segment.first, reply.get("at"))
        kept.put(flow)
        self._make_room(self._most)

    def close(self) -> None:
        """Drop all of them: this worker ends."""
        self._make_room(0)

    def _make_room(self, most: int) -> None:
        while len(self._kept) > most:
            _, dropped = self._kept.popitem(last=False)
            flow = dropped.borrow()
            if flow is not None:
                flow.close()


def end_of(job: Job, output: bytes | None, settled: int | None = None, at: int | None = None) -> Recorded:
    """The end of a call that this attempt has completed. `settled` and `at` are None before it is recorded."""
    step, call = job.claim.step, job.claim.planned.call
    assert call is not None
    return Recorded(step.no, step.fence, call, StepState.SUCCEEDED, settled, output=output, at=at)


def _key(job: Job) -> Key:
    return (job.claim.tenant, job.claim.run_id, job.claim.step.no)
