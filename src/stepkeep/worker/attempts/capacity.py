"""Slots: how many attempts a worker holds, how many of them are blocking, and how many are free.

Two limits hold at every moment: `concurrency` for all attempts, `threads` for blocking ones. Every used slot is counted
here, and so is every slot reserved for a claim under way. Nothing here claims, runs or reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

from stepkeep.kernel.machine.outcomes import Completed, Outcome, RulesPassed
from stepkeep.worker.attempts.executor import Job, Report
from stepkeep.worker.attempts.leases import Leases
from stepkeep.worker.chores.queues import Kind, Served
from stepkeep.worker.settings import Settings

SHARE = 4
"""One slot in this many is reserved for blocking work, if the worker serves any. Otherwise many waiting coroutines
would keep it out."""


class FreeSlots(NamedTuple):
    """Free slots: `total`, of which `kept` are reserved for blocking work. `blocking` is how many more attempts may be
    blocking, in free slots or in slots that other attempts leave."""

    total: int
    blocking: int = 0
    kept: int = 0

    def of(self, kind: Kind) -> int:
        """How many attempts of this kind may be claimed from the queues."""
        return min(self.total, self.blocking) if kind is Kind.BLOCKING else self.total - self.kept


class ChainBudget(NamedTuple):
    """The slots for chained claims of one commit: those that its reports leave, and some free ones (`spare`).

    `follow` is how many steps may become ready; of these, at most `blocking_slots` may be blocking.
    """

    follow: int = 0
    slots: int = 0
    blocking_slots: int = 0
    spare: int = 0
    blocking_spare: int = 0


class Slots:
    """Which attempts hold slots: those with a lease, handlers that outlived their lease, and claims under way."""

    def __init__(self, settings: Settings, leases: Leases) -> None:
        self._sizes = {Kind.ASYNC: settings.concurrency, Kind.BLOCKING: settings.pool}
        self._share = min(settings.pool, settings.concurrency // SHARE)
        self._leases = leases
        self.queues = Served()
        self.orphaned: set[Job] = set()
        self._promised: set[Job] = set()
        self._reserved = self._reserved_blocking = 0

    def size(self, kind: Kind) -> int:
        """How many attempts of this kind may run at once."""
        return self._sizes[kind]

    def is_blocking(self, job: Job) -> bool:
        # By its queue, as it was claimed: a coroutine's step keeps its async slot while its rules run.
        return job.claim.step.queue in self.queues.blocking

    @property
    def free(self) -> FreeSlots:
        """Slots held by no lease, by no handler that outlived its lease, and by no claim under way.

        The slot of a report under way is reserved for the step it makes ready, even if its job is given up meanwhile.
        """
        given_up = self._leases.lacks(self._promised)
        total = self._sizes[Kind.ASYNC] - len(self._leases) - len(self.orphaned) - len(given_up) - self._reserved
        if not self.queues.blocking:
            return FreeSlots(total)
        blocking = sum(self.is_blocking(job) for jobs in (self._leases, self.orphaned, given_up) for job in jobs)
        blocking += self._reserved_blocking
        return FreeSlots(total, self._sizes[Kind.BLOCKING] - blocking, max(0, self._share - blocking))

    @property
    def unused(self) -> FreeSlots:
        """The free slots with those of claims under way, which may bring nothing: for people, not for claims."""
        free = self.free
        return FreeSlots(free.total + self._reserved, free.blocking + self._reserved_blocking)

    def chain_budget(self, batch: Sequence[Report], leaving: Set[Job]) -> ChainBudget:
        """Slots for the steps that these reports may make ready. Not more than can follow, because reserved slots
        cannot be used for other claims."""
        free = self.free
        follow = sum([len(job.claim.planned.dependents) or 1 for job, _ in batch])
        spare = max(0, min(free.of(Kind.ASYNC), follow - len(leaving)))
        slots = spare + len(leaving)
        if not self.queues.blocking:
            return ChainBudget(follow, slots, 0, spare, 0)
        left = sum(self.is_blocking(job) for job in leaving)
        blocking_follow = sum(_blocking_after(job, outcome, self.queues.blocking) for job, outcome in batch)
        blocking_spare = max(0, min(free.blocking, blocking_follow - left, slots - left))
        return ChainBudget(follow, slots, left + blocking_spare, spare, blocking_spare)

    @contextmanager
    def reserve(self, total: int, blocking: int = 0, leaving: Set[Job] = frozenset()) -> Iterator[None]:
        """Reserve free slots for a claim under way, and the slots of `leaving`, whatever happens to these meanwhile."""
        self._reserved += total
        self._reserved_blocking += blocking
        self._promised |= leaving
        try:
            yield
        finally:
            self._reserved -= total
            self._reserved_blocking -= blocking
            self._promised -= leaving


def _blocking_after(job: Job, outcome: Outcome, blocking: Set[int]) -> int:
    """How many blocking steps may follow this report: dependents, or one undo step (which one is unknown), or the
    final check."""
    if not isinstance(outcome, Completed | RulesPassed):
        return 1
    plan, planned, dependents = job.claim.plan, job.claim.planned, job.claim.planned.dependents
    if planned.owner is not None:
        # Another element may follow, or what depends on their owner.
        return 1 + sum(plan.at(no).queue in blocking for no, _ in plan.steps[planned.owner].dependents)
    if not dependents:
        return int(plan.check is not None and plan.check.queue in blocking)
    return sum(plan.at(no).queue in blocking for no, _ in dependents)
