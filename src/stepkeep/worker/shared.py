"""What the parts of one worker share: its row, its settings, the attempts it holds, and signals to its loop.

It decides nothing. `claiming`, `running`, `reporting` and `lease_keeper` receive one and keep no copies of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.machine.events import FlowResumed, StepReported, StreamEnd
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.operations.pipeline.transact import Claim, Transactor
from stepkeep.store.change import RunKey
from stepkeep.worker.attempts.capacity import Slots
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.leases import Leases
from stepkeep.worker.attempts.misfits import Misfits
from stepkeep.worker.attempts.progress import ProgressBoard
from stepkeep.worker.attempts.runner import HandlerRunner
from stepkeep.worker.attempts.secrets import SecretReader
from stepkeep.worker.chores.membership import Membership
from stepkeep.worker.flows.ahead import Resumed
from stepkeep.worker.outage import Outage
from stepkeep.worker.runtime import Runtime
from stepkeep.worker.settings import Settings
from stepkeep.worker.utilisation import Meter

log = logging.getLogger("stepkeep.worker")


NO_RUN = ""
"""In place of a run's id: a worker that executes no run now."""


class Signals(NamedTuple):
    """What the parts tell the loop. Each call returns at once.

    `changed`: a report was recorded or a slot became free. `more_work`: unclaimed steps are known to be ready.
    `due_in`: a timer is due in this many seconds. `ability_changed`: a kind of handler can no longer be run, or can be
    run again.
    """

    changed: Callable[[], None]
    more_work: Callable[[], None]
    due_in: Callable[[float], None]
    ability_changed: Callable[[], None]


class Shared:
    """The state of one worker. `may_claim` is False once it drains; `attention` wakes the lease keeper.

    With `only_run`, it claims steps of that run alone. `has_sealed_runs`: payloads of some runs of its tenant are
    sealed, as its queues say.
    """

    def __init__(
        self,
        transactor: Transactor,
        runner: HandlerRunner,
        membership: Membership,
        settings: Settings,
        runtime: Runtime,
        outage: Outage,
        signals: Signals,
        only_run: RunKey | None = None,
    ) -> None:
        self.transactor, self.runner, self.membership = transactor, runner, membership
        self.settings, self.runtime, self.outage, self.signals = settings, runtime, outage, signals
        self.secrets = SecretReader(settings.secrets, runtime.monotonic)
        self.meter = Meter(runtime.monotonic)
        self.leases = Leases(settings.lease_us, self.meter)
        self.slots = Slots(settings, self.leases)
        self.attention = asyncio.Event()
        self.may_claim = True
        self.has_sealed_runs = False
        self.only_run = only_run
        self.family: tuple[RunKey, ...] = ()
        """The live descendants of that run, whose steps it claims too."""
        self.misfits = Misfits(runtime)
        self.progress = ProgressBoard(transactor.payloads.seal)
        self._tasks: set[asyncio.Task[None]] = set()

    def claimer(self, queues: frozenset[int], slots: int, blocking_slots: int = 0) -> Claimer:
        """This worker with this many slots for steps of these queues."""
        row = self.membership.row
        return Claimer(
            actor=row.id,
            worker=row.no,
            lease=self.settings.lease_us,
            slots=slots,
            queues=queues,
            blocking=self.slots.queues.blocking,
            blocking_slots=blocking_slots,
            owner=row.owner,
        )

    def event(self, claim: Claim, outcome: Outcome, streams: tuple[StreamEnd, ...] = ()) -> StepReported:
        """The report of this outcome, under the fence of the claim, with the ends of the streams that it wrote."""
        row, step = self.membership.row, claim.step
        return StepReported(
            tenant=claim.tenant,
            run_id=claim.run_id,
            actor=row.id,
            no=step.no,
            fence=step.fence,
            worker=step.worker or row.no,
            outcome=outcome,
            streams=streams,
        )

    def resumption(self, resumed: Resumed) -> FlowResumed:
        """The claim of a flow and its report, for the transaction that records the ends it went on from."""
        row, step, plan = self.membership.row, resumed.job.claim.step, resumed.job.claim.plan
        return FlowResumed(
            tenant=step.tenant,
            run_id=step.run_id,
            actor=row.id,
            no=step.no,
            fence=step.fence,
            worker=row.no,
            outcome=resumed.outcome,
            streams=ends_of(resumed.job),
            lease=self.settings.lease_us or plan.definition.lease,
            calls=resumed.settled(),
            seen=len(resumed.flow.given),
        )

    def may_resume(self, resumed: Resumed) -> bool:
        """Whether this worker may claim the flow now: it does not drain, and serves the queue."""
        return self.may_claim and resumed.job.claim.step.queue in self.slots.queues.all

    def hold(self, jobs: Sequence[Job]) -> None:
        """Hold these jobs: their leases are watched and renewed."""
        if self.leases.add(jobs):
            self.attention.set()

    def let_go(self, job: Job) -> None:
        """Hold the job no longer. A handler that still runs keeps its slot until it ends."""
        if self.leases.drop(job) and job.running:
            self.slots.orphaned.add(job)

    def end_span(self, job: Job, outcome: Outcome) -> None:
        """End the span of an attempt whose outcome is known."""
        span, job.tracing.span = job.tracing.span, None
        if span is not None and self.transactor.spans is not None:
            self.transactor.spans.end(span, outcome)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        return self._tasks

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a part of the worker broke", exc_info=task.exception())


def ends_of(job: Job) -> tuple[StreamEnd, ...]:
    """The ends of the streams of an attempt; none where they could not be recorded."""
    has_none = job.streams is None or job.streams.is_empty or job.gave_up or job.prepared.is_rules
    return () if has_none or job.streams is None else job.streams.ends()
