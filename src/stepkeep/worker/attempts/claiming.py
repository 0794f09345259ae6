"""Claims steps from the queues, and releases claims whose commit was never confirmed.

It runs no handler and reports no outcome. `attempts` calls it with the number of free slots.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from stepkeep.kernel.errors import StoreError
from stepkeep.kernel.machine.outcomes import Released
from stepkeep.operations.pipeline.transact import Claim, UnconfirmedClaims
from stepkeep.worker.chores.queues import Kind
from stepkeep.worker.shared import Shared

log = logging.getLogger("stepkeep.worker")

ClaimName = tuple[str, str, int, int]
"""(tenant, run id, step number, fence)."""


class Claiming:
    """Claims of one worker, and those of which it is unknown whether they were committed."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._unconfirmed: dict[ClaimName, Claim] = {}

    async def claim(self, kind: Kind | None, limit: int, after: int | None) -> list[Claim]:
        """Claim up to `limit` steps from the queues of one kind, or of all. Their slots are reserved meanwhile."""
        shared, blocking = self._shared, 0 if kind is Kind.ASYNC else limit
        try:
            with shared.slots.reserve(limit, blocking):
                # First of all: the same step claimed again would have the same fence as the claim whose commit is
                # unknown.
                await self.release_unconfirmed()
                queues = shared.slots.queues.all if kind is None else shared.slots.queues.of(kind)
                claimer = shared.claimer(queues, limit, blocking)
                claims = await shared.transactor.claim(claimer, limit=limit, after=after, run=shared.only_run)
                for run in shared.family if shared.only_run is not None else ():
                    left = limit - len(claims)
                    if left <= 0:
                        break
                    claims += await shared.transactor.claim(claimer.having([]), limit=left, after=None, run=run)
                return claims
        except UnconfirmedClaims as unknown:
            self._unconfirmed |= named(unknown.claims)
            raise

    @property
    def has_unconfirmed(self) -> bool:
        """Whether there are claims with an unknown commit. No query finds these as work."""
        return bool(self._unconfirmed)

    def keep_unconfirmed(self, claims: dict[ClaimName, Claim]) -> None:
        """Claimed by an unconfirmed commit, if at all. The next claim or the drain releases them."""
        self._unconfirmed |= claims

    def note_unconfirmed(self, claims: dict[ClaimName, Claim]) -> None:
        """The same, released at once: no other worker would run these while their leases last."""
        self.keep_unconfirmed(claims)
        self._shared.spawn(self._release_soon())

    async def release_unconfirmed(self) -> None:
        """Release claims whose commit was not confirmed. If the commit never happened, the release is refused and
        ignored."""
        unconfirmed, self._unconfirmed = self._unconfirmed, {}
        if not unconfirmed:
            return
        log.info("releasing up to %d steps whose claim was never confirmed", len(unconfirmed))
        try:
            events = [self._shared.event(claim, Released()) for claim in unconfirmed.values()]
            await self._shared.transactor.submit_all(events)
        except StoreError:
            self._unconfirmed |= unconfirmed
            raise
        self._shared.signals.more_work()

    async def _release_soon(self) -> None:
        try:
            await self.release_unconfirmed()
        except StoreError as problem:
            self._shared.outage.met(problem)


def named(claims: Iterable[Claim]) -> dict[ClaimName, Claim]:
    return {(claim.tenant, claim.run_id, claim.step.no, claim.step.fence): claim for claim in claims}
