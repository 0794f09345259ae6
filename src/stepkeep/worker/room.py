"""Places: how many attempts a worker holds, how many of them are narrow, and what is left for more.

Two limits hold at every moment: `concurrency` for all attempts, `threads` for narrow ones. Everything that has a place
is counted here, and so is every place that a claim under way may fill; nothing here claims, runs or reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

from stepkeep.kernel.outcomes import Completed, Outcome, RulesPassed
from stepkeep.worker.executor import Job
from stepkeep.worker.leases import Leases
from stepkeep.worker.queues import Kind, Served
from stepkeep.worker.reports import Report
from stepkeep.worker.settings import Settings

SHARE = 4
"""One place in so many is kept for narrow work, where a worker serves any: else a crowd of handlers that only wait
would keep it out for as long as they wait."""


class Room(NamedTuple):
    """What is free: `total` places, of which `kept` are for narrow work only. `narrow` is how many more attempts may be
    narrow, be it in free places or in those that others leave."""

    total: int
    narrow: int = 0
    kept: int = 0

    def of(self, kind: Kind) -> int:
        """How many attempts of this kind may be claimed from the queues."""
        return min(self.total, self.narrow) if kind is Kind.NARROW else self.total - self.kept


class Offer(NamedTuple):
    """Places for what a commit may make ready: those its reports leave, and some that are `spare`.

    `follow` is how many steps may follow; of what does, `narrow_room` attempts at most may be narrow.
    """

    follow: int = 0
    room: int = 0
    narrow_room: int = 0
    spare: int = 0
    narrow_spare: int = 0


class Places:
    """Who has a place: attempts held, handlers that outlived their lease, and claims under way."""

    def __init__(self, settings: Settings, leases: Leases) -> None:
        self._sizes = {Kind.WIDE: settings.concurrency, Kind.NARROW: settings.pool}
        self._share = min(settings.pool, settings.concurrency // SHARE)
        self._leases = leases
        self.queues = Served()
        self.zombies: set[Job] = set()
        self._promised: set[Job] = set()
        self._reserved = self._reserved_narrow = 0

    def size(self, kind: Kind) -> int:
        """How many attempts of this kind there may be at once."""
        return self._sizes[kind]

    def is_narrow(self, job: Job) -> bool:
        # By its queue, as it was claimed: a coroutine's step keeps its wide place while its rules are judged.
        return job.claim.step.queue in self.queues.narrow

    @property
    def free(self) -> Room:
        """Places that nothing holds: no lease, no handler that outlived its lease, no claim under way.

        The place of a report under way is promised to what it makes ready, even if its job is given up meanwhile.
        """
        given_up = self._leases.lacks(self._promised)
        total = self._sizes[Kind.WIDE] - len(self._leases) - len(self.zombies) - len(given_up) - self._reserved
        if not self.queues.narrow:
            return Room(total)
        narrow = sum(self.is_narrow(job) for jobs in (self._leases, self.zombies, given_up) for job in jobs)
        narrow += self._reserved_narrow
        return Room(total, self._sizes[Kind.NARROW] - narrow, max(0, self._share - narrow))

    def offer(self, batch: Sequence[Report], leaving: Set[Job]) -> Offer:
        """Room for what these reports make ready: no more than can follow, since what is held for it meanwhile, nobody
        else can claim for."""
        free = self.free
        follow = sum([len(job.claim.planned.dependents) or 1 for job, _ in batch])
        spare = max(0, min(free.of(Kind.WIDE), follow - len(leaving)))
        room = spare + len(leaving)
        if not self.queues.narrow:
            return Offer(follow, room, 0, spare, 0)
        left = sum(self.is_narrow(job) for job in leaving)
        narrow_follow = sum(_narrow_after(job, outcome, self.queues.narrow) for job, outcome in batch)
        narrow_spare = max(0, min(free.narrow, narrow_follow - left, room - left))
        return Offer(follow, room, left + narrow_spare, spare, narrow_spare)

    @contextmanager
    def set_aside(self, total: int, narrow: int = 0, leaving: Set[Job] = frozenset()) -> Iterator[None]:
        """Hold free places for a claim under way, and those of `leaving`, whatever becomes of these meanwhile."""
        self._reserved += total
        self._reserved_narrow += narrow
        self._promised |= leaving
        try:
            yield
        finally:
            self._reserved -= total
            self._reserved_narrow -= narrow
            self._promised -= leaving


def _narrow_after(job: Job, outcome: Outcome, narrow: Set[int]) -> int:
    """How many narrow steps may follow this report: dependents, or (not knowing which) one hook, or the final check."""
    if not isinstance(outcome, Completed | RulesPassed):
        return 1
    plan, dependents = job.claim.plan, job.claim.planned.dependents
    if not dependents:
        return int(plan.check is not None and plan.check.queue in narrow)
    return sum(plan.at(no).queue in narrow for no, _ in dependents)
