"""Ends attempts early: past their timeout, with a lost lease, in a stopping run, or when the worker drains.

It renews the leases of held attempts and learns from the reply which are lost and which runs are stopping. A
notification that names a run makes the renewal of its leases come at once. The worker loop calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.events import TimeCame
from stepkeep.kernel.machine.outcomes import Outcome, Released, TimedOut
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.change import RunKey
from stepkeep.worker.attempts.executor import Job
from stepkeep.worker.attempts.leases import NEVER
from stepkeep.worker.cancellation import Why
from stepkeep.worker.shared import Shared

log = logging.getLogger("stepkeep.worker")

SECOND = 1_000_000
CHECK_AGAIN_SECONDS = 0.25


class LeaseKeeper:
    """Watches the clocks of held attempts. `report` takes an outcome, `stop` ends a handler."""

    def __init__(
        self, shared: Shared, *, report: Callable[[Job, Outcome], None], stop: Callable[[Job, Why], None]
    ) -> None:
        self._shared, self._report, self._stop = shared, report, stop

    async def watch(self) -> None:
        """Wait until an attempt needs attention, then give it."""
        shared = self._shared
        shared.attention.clear()
        soonest = shared.leases.soonest
        left = None if soonest == NEVER else soonest - shared.runtime.monotonic()
        if left is None or left > 0:
            await shared.runtime.wait(shared.attention, left)
        if shared.leases.soonest <= shared.runtime.monotonic():
            self.review()

    def review(self) -> None:
        """Time out attempts that ran too long, give up lost leases, renew leases that need it."""
        overdue, expired, aging, late_runs = self._shared.leases.review(self._shared.runtime.monotonic())
        for job in expired:
            self._lose(job, "its lease ran out before it could be renewed")
        for job in overdue:
            self._time_out(job)
        if aging:
            self._shared.spawn(self._renew(aging))
        if late_runs:
            self._shared.spawn(self._time_out_runs(late_runs))

    def check(self, runs: frozenset[str] | None) -> None:
        """A notification says that attempts of these runs (None: of any) must end: ask the database at once."""
        self._renew_of(runs)
        if runs is not None:
            self._shared.spawn(self._check_again(runs))

    async def _check_again(self, runs: frozenset[str]) -> None:
        # A claim whose commit was under way when the notification came is held by now.
        await self._shared.runtime.sleep(CHECK_AGAIN_SECONDS)
        self._renew_of(runs)

    def _renew_of(self, runs: frozenset[str] | None) -> None:
        recent = self._shared.runtime.monotonic() - CHECK_AGAIN_SECONDS
        jobs = [
            job
            for job in self._shared.leases
            if not job.reported and (job.renewed_at < recent if runs is None else job.claim.run_id in runs)
        ]
        if jobs:
            self._shared.spawn(self._renew(jobs))

    async def _time_out_runs(self, runs: tuple[RunKey, ...]) -> None:
        """The timeout of these runs has passed by this worker's clock; the kernel judges by the database's."""
        actor = self._shared.membership.row.id
        events = [TimeCame(tenant=tenant, run_id=run_id, actor=actor) for tenant, run_id in runs]
        try:
            await self._shared.transactor.submit_all(events)
        except StoreError as problem:
            # A sweep will find them.
            self._shared.outage.met(problem)

    async def _renew(self, jobs: list[Job]) -> None:
        shared = self._shared
        try:
            standing = await shared.transactor.store.renew(shared.leases.renewal(jobs))
        except StoreError as problem:
            shared.outage.met(problem)
            return
        now = shared.runtime.monotonic()
        states = {(each.run_id, each.no, each.fence): each.run_state for each in standing}
        for job in jobs:
            claim = job.claim
            state = states.get((claim.run_id, claim.step.no, claim.step.fence))
            if state is None:
                # A report that was just accepted also ends the lease; its reply is on the way.
                if not job.reported:
                    self._lose(job, "another claim, an expiry or a cancel came first")
                continue
            job.renewed_at = now
            if state is RunState.STOPPING and not job.prepared.is_rules and not job.cancelled.is_set():
                self._stop(job, Why.RUN_STOPPING)

    def _time_out(self, job: Job) -> None:
        seconds = job.prepared.planned.timeout / SECOND
        log.warning("step %s of run %s ran past its timeout of %g s", job.claim.planned.name, job.claim.run_id, seconds)
        spent = None if job.context is None else job.context.spent
        self._report(job, TimedOut(error=f"the attempt ran past its timeout of {seconds:g} s", cost=spent))
        self._stop(job, Why.TIMED_OUT)

    def _lose(self, job: Job, why: str) -> None:
        shared = self._shared
        if job not in shared.leases:
            return
        log.warning("step %s of run %s is lost: %s", job.claim.planned.name, job.claim.run_id, why)
        shared.transactor.forget(job.claim)
        shared.let_go(job)
        self._stop(job, Why.LEASE_LOST)
        shared.signals.changed()

    # -- ending ------------------------------------------------------------------------------------------------------
    def lose_all(self, why: str) -> None:
        for job in self._shared.leases:
            self._lose(job, why)

    def release_unstarted(self) -> None:
        """Release claims whose handler has not begun; nothing is counted."""
        for job in self._shared.leases:
            if not job.running and not job.reported:
                self._report(job, Released())

    def release_rest(self) -> None:
        """Release everything that is still running, and stop it."""
        for job in self._shared.leases:
            if not job.reported:
                self._report(job, Released())
                self._stop(job, Why.DRAINED)
