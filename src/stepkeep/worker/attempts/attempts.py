"""The life of one attempt: claimed, run, reported, answered.

    Claiming.claim ──► Running.accept ──► the handler ──► Attempts.finished ──► Reporting.report_all
                             ▲                                                          │
                             └────────── chained claims ◄──────── Reporting.answered ◄──┘

`LeaseKeeper` ends an attempt early: timeout, lost lease, stopping run, drain. A later result of its handler is dropped.
This module connects these parts and holds no logic of theirs. Everything runs on the worker's loop, without user code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.outcomes import Added, Completed, Failed, Outcome, Suspended
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.pipeline.call_queues import CallQueues
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.remote.asked_calls import Proposed, read_proposed, written_calls
from stepkeep.worker.attempts.claiming import Claiming
from stepkeep.worker.attempts.executor import EndedJobs, Job, Report
from stepkeep.worker.attempts.lease_keeper import LeaseKeeper
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.attempts.prepared import PreparedSteps
from stepkeep.worker.attempts.reporting import Reporting
from stepkeep.worker.attempts.running import Running
from stepkeep.worker.chores.queues import Kind
from stepkeep.worker.flows.ahead import Resumed
from stepkeep.worker.shared import Shared

log = logging.getLogger("stepkeep.worker")


class Attempts:
    """All attempts of one worker."""

    def __init__(
        self, shared: Shared, prepared: PreparedSteps, tenant: str, queues_made: Callable[[], Awaitable[None]]
    ) -> None:
        self._shared, self._registry = shared, prepared.registry
        self._queues = CallQueues(shared.transactor.store, tenant, queues_made)
        self._queues_made, self._specs_asked = queues_made, set[QueueSpec | None]()
        self.claiming = Claiming(shared)
        self.reporting = Reporting(
            shared,
            accept=lambda claims, lane: self._running.accept(claims, lane),
            run_rules=lambda job, outcome: self._running.run_rules(job, outcome),
            succeeded=lambda job, outcome: self._running.inputs.remember(job, outcome),
            recorded=self._recorded,
            unrecorded=lambda job: self._running.inputs.flows.answered(job),
            unconfirmed=self.claiming.note_unconfirmed,
            streams=lambda: self._running.streams,
        )
        self._running = Running(
            shared,
            prepared,
            lanes=self.reporting.commits.lanes,
            report=self.reporting.report,
            answered=self.reporting.answered,
        )
        self.keeper = LeaseKeeper(shared, report=self.reporting.report, stop=self._running.stop)

    def open(self) -> None:
        """Bind to the running event loop."""
        self._running.inputs.open()
        self._running.checkpoints.open()
        self._running.streams.open()
        self._shared.progress.open()
        self._shared.runner.open(self.finished, self._shared.signals.ability_changed)

    async def claim(self, kind: Kind, limit: int, after: int | None) -> list[Claim]:
        """Claim from the queues of one kind, and start the claimed attempts."""
        claims = await self.claiming.claim(kind, limit, after)
        self._running.accept(claims)
        return claims

    @property
    def free_for_any(self) -> int:
        """How many steps may be claimed, of whatever kind each of them is."""
        slots = self._shared.slots
        return min(slots.free.of(kind) for kind in Kind if kind is Kind.ASYNC or slots.queues.blocking)

    def take(self, claims: Sequence[Claim]) -> None:
        """Start the steps that were claimed with the creation of their run."""
        self._running.accept(claims)

    async def claim_own(self) -> list[Claim]:
        """Claim the ready steps of the one run that this worker executes, of every kind."""
        limit = self.free_for_any
        claims = await self.claiming.claim(None, limit, None)
        self._running.accept(claims)
        if len(claims) == limit:
            self._shared.signals.more_work()
        return claims

    @property
    def are_over(self) -> bool:
        """Whether no attempt is held, no handler runs on, no report is under way, and no claim is uncertain."""
        shared = self._shared
        return not (
            len(shared.leases)
            or shared.slots.orphaned
            or self.claiming.has_unconfirmed
            or not self.reporting.commits.idle
        )

    def finished(self, batch: EndedJobs) -> None:
        """Handlers ended; report those whose attempts are still held."""
        held: list[Report] = []
        for job, outcome in batch:
            job.running = False
            if job.waiter is not None:
                if not job.waiter.done():
                    job.waiter.set_result(outcome)
            elif job in self._shared.slots.orphaned:
                self._shared.slots.orphaned.discard(job)
                if isinstance(outcome, Completed):
                    log.warning("%s returned after it had been given up; its result is dropped", job.title)
                self._shared.signals.changed()
            elif not job.reported:
                held.append((job, outcome))
            else:
                self._running.inputs.flows.answered(job)
        for job, _ in held:
            if job.calls.resumed is not None:
                self._resolve_ahead(job, job.calls.resumed)
        self.reporting.report_all([report for report in map(self._with_calls, held) if report is not None])

    def _resolve_ahead(self, job: Job, resumed: Resumed) -> None:
        """Complete the report of a flow that went on ahead. If its queues must be read first, it waits for a claim."""
        outcome: Outcome | None = resumed.outcome
        if isinstance(outcome, Suspended) and resumed.job.calls.asked:
            outcome = self._queues.resolved(outcome, resumed.job.calls.asked)
        if outcome is None:
            job.calls.resumed = None
            resumed.give_back()
        else:
            resumed.outcome = outcome

    def _with_calls(self, report: Report) -> Report | None:
        """The report of a flow with the calls that it makes for the first time, or of a handler with the steps that it
        adds; None if their queues are read first. A worker without the database leaves both to the service."""
        job, outcome = report
        if not self._shared.transactor.has_database:
            return job, self._for_service(job, outcome) if isinstance(outcome, Suspended) else outcome
        if isinstance(outcome, Proposed):
            outcome, job.calls.asked = read_proposed(outcome, job.claim.plan, job.claim.planned, self._registry)
        if not isinstance(outcome, Suspended | Added) or not job.calls.asked:
            return job, outcome
        found = self._queues.resolved(outcome, job.calls.asked)
        if found is not None:
            return job, found
        # Its handler has ended, and its slot stays taken until the report.
        self._shared.spawn(self._resolve(job, outcome))
        return None

    def _recorded(self, job: Job, outcome: Outcome, reply: Accepted) -> None:
        record = reply.record
        self._running.inputs.flows.reported(job, outcome, record)
        if not self._shared.transactor.has_database and isinstance(outcome, Suspended | Proposed):
            self._look_for_queues(job, outcome)

    def _look_for_queues(self, job: Job, outcome: Suspended | Proposed) -> None:
        """The service may have made queues for these steps: read them now, and not with the next refresh."""
        asked = {one for call in job.calls.asked for one in (call.template.queue, call.template.undo_queue)}
        if isinstance(outcome, Proposed) or asked - self._specs_asked:
            self._specs_asked |= asked
            self._shared.spawn(self._read_new_queues())

    async def _read_new_queues(self) -> None:
        try:
            await self._queues_made()
        except StoreError as problem:
            self._shared.outage.met(problem)
        self._shared.signals.more_work()

    def _for_service(self, job: Job, outcome: Suspended) -> Outcome:
        try:
            most_bytes = self._shared.transactor.payloads.max_bytes
            return written_calls(outcome, job.calls.asked, self._registry, most_bytes)
        except Exception as problem:  # noqa: BLE001 - calls that cannot be written fail their flow alone
            error = storable_text(exception_text(problem))
            return Failed(category=Category.VALIDATION, error=error, final=True, cost=outcome.cost)

    async def _resolve(self, job: Job, outcome: Suspended | Added) -> None:
        tries = 0
        while job in self._shared.leases and not job.reported:
            try:
                found = await self._queues.resolve(outcome, job.calls.asked)
            except StoreError as problem:
                self._shared.outage.met(problem)
                await self._shared.outage.pause(tries)
                tries += 1
                continue
            if job in self._shared.leases and not job.reported:
                self.reporting.report(job, found)
            return

    def cancel_tasks(self) -> list[asyncio.Task[None]]:
        """Cancel background tasks; await the returned tasks to know that they ended."""
        self._running.inputs.flows.close()
        tasks = [*self.reporting.commits.tasks, *self._shared.tasks]
        for task in tasks:
            task.cancel()
        return tasks
