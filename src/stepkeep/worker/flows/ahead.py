"""Goes on with flows whose calls have just ended, before these ends are recorded.

The ends and what the flow came to are then reported in one transaction: one commit for each call instead of two. If the
ends are not recorded as they were fed, the kernel refuses the flow's part, and it is claimed or replayed as usual. A
flow does nothing outside of itself between two calls, so that nothing but time is lost then. Pools and the simulator
call it on the handlers' loop; `reporting.py` reports what it found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stepkeep.kernel.decide.resources import is_set_aside
from stepkeep.kernel.machine.events import SettledCall
from stepkeep.kernel.machine.outcomes import Completed, Outcome
from stepkeep.worker.attempts.executor import EndedJobs, Job
from stepkeep.worker.flows.keeper import Kept, end_of
from stepkeep.worker.flows.replay import Flow

SLOW_SECONDS = 0.1
"""A flow that took longer once between two calls goes on after the commit from then on: until then, the result of a
call exists in this process alone."""


class Resumed(msgspec.Struct, eq=False):
    """What a flow came to when it was fed the ends of `calls`. `job` is the attempt that claims it for that."""

    kept: Kept
    flow: Flow
    job: Job
    outcome: Outcome
    calls: Sequence[Job]

    def settled(self) -> tuple[SettledCall, ...]:
        return tuple([SettledCall(job.claim.step.no, job.claim.step.fence) for job in self.calls])

    def give_back(self) -> None:
        """It is not reported: the flow waits for a claim, with the ends that it was fed."""
        self.job.calls.flow = None
        self.kept.pending.extend([job.claim.step.no for job in self.calls])
        self.kept.put(self.flow)


Calls = Sequence[tuple[Job, bytes | None]]
"""Attempts that have completed calls of one flow, with their outputs."""

Answered = Callable[[Job, Flow], Outcome]
"""Feeds a flow ahead, and returns what it came to."""


def go_ahead(ended: EndedJobs, monotonic: Callable[[], float], answer: Answered) -> None:
    """Feed these ends to the flows that made the calls, and note at the last call of each flow what it came to."""
    waiting: dict[int, tuple[Kept, list[tuple[Job, bytes | None]]]] = {}
    for job, outcome in ended:
        if job.calls.kept is None:
            continue
        if type(outcome) is Completed and _may_go_ahead(job):
            waiting.setdefault(id(job.calls.kept), (job.calls.kept, []))[1].append((job, outcome.output))
        else:
            job.calls.kept.pending.append(job.claim.step.no)
    for kept, calls in waiting.values():
        if not _feed(kept, calls, monotonic, answer):
            kept.pending.extend([job.claim.step.no for job, _ in calls])


def wait_for_claim(ended: EndedJobs) -> None:
    """Nothing is fed to the flows of these calls before their reports are answered."""
    for job, _ in ended:
        if job.calls.kept is not None:
            job.calls.kept.pending.append(job.claim.step.no)


def _may_go_ahead(job: Job) -> bool:
    """Whether a completed attempt of a call is certain to settle it, if it is accepted.

    A call that lost a worker before is recorded first: the code of the flow may have ended that worker.
    """
    prepared = job.prepared
    return not (
        job.claim.step.losses
        or job.claim.planned.has_rules
        or prepared.is_rules
        or prepared.is_manual
        or prepared.output_shape is not None
        or job.loaded.secrets
        or job.tracing.is_traced
        or job.cancelled.why is not None
        or job.reported
    )


def _feed(kept: Kept, calls: Calls, monotonic: Callable[[], float], answer: Answered) -> bool:
    """Feed the ends of these calls to their flow. False: it is not here, or does not go on without a claim."""
    flow = kept.borrow() if kept.is_idle and _may_be_resumed(kept.job) else None
    if flow is None:
        return False
    if flow.is_ahead:
        # It was fed the end of a call whose report was refused.
        flow.close()
        return False
    if flow.is_slow or flow.needs_record():
        kept.put(flow)
        return False
    began, last = monotonic(), calls[-1][0]
    job = kept.next_job(last, began)
    job.calls.recorded = tuple([end_of(call, output) for call, output in calls])
    job.renew_context(flow.context)
    outcome = answer(job, flow)
    flow.is_slow = monotonic() - began > SLOW_SECONDS
    if flow.needs_record():
        # The moment of the end is known when that is recorded: it is replayed, and not fed ahead from then on.
        job.calls.flow = None
        flow.close()
        return False
    if flow.asks_for_checkpoint:
        job.calls.flow = None
        kept.put(flow)
        return False
    last.calls.resumed = Resumed(kept, flow, job, outcome, [call for call, _ in calls])
    return True


def _may_be_resumed(job: Job) -> bool:
    """Whether the report on this flow settles it or suspends it, and its claim needs nothing but a worker."""
    planned, prepared = job.claim.planned, job.prepared
    if planned.has_rules or prepared.pre is not None or prepared.is_manual or is_set_aside(job.claim.plan, planned):
        return False
    return prepared.output_shape is None and not job.loaded.secrets
