"""Finds triggers that are due and fires them. Any worker sweeps; there is no leader.

A sweep that comes late, twice or is interrupted does no harm: what it writes is one transaction per trigger, and the
trigger's sequence number lets it be written once. Workers call it with each sweep of timers.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from stepkeep.kernel.errors import StoreError
from stepkeep.operations.pipeline.start import Starter
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.triggers.endings import endings, note_living
from stepkeep.operations.triggers.firing import Firer, spec_of
from stepkeep.operations.triggers.plan import Planned, backfill_batch, moment_text, plan_sweep
from stepkeep.store.rows import (
    Backfill,
    BackfillState,
    FiringState,
    TriggerKey,
    TriggerRow,
)

LIMIT = 100
"""How many triggers one sweep fires."""

PUT_OFF = 60 * 1_000_000
"""How much later a trigger is looked at again that cannot be read or decided about."""

log = logging.getLogger(__name__)


class TriggerSweep:
    """The sweeps of one process."""

    def __init__(self, transactor: Transactor, starter: Starter | None = None) -> None:
        self._store = transactor.store
        self.firer = Firer(transactor, starter)

    async def sweep(self, limit: int = LIMIT) -> int:
        """Fire all triggers that are due. Returns how many runs were started."""
        started = 0
        for key in await self._store.triggers.find_due(limit):
            try:
                started += await self.fire_due(key)
            except StoreError:
                raise
            except Exception:
                log.exception("the trigger %s cannot be fired; it is put off for a minute", key[1])
                await self._put_off(key)
        return started

    async def fire_due(self, key: TriggerKey) -> int:
        """Sweep one trigger. Returns how many runs it started; 0 if another process came first."""
        triggers = self._store.triggers
        await note_living(self.firer, key)
        row = await triggers.read(*key)
        now = await self._store.now()
        if row is None or row.due_at is None or row.due_at > now:
            return 0
        spec = spec_of(row)
        watched = await triggers.read_watched(*key)
        job = await self._running_backfill(row)
        fired: frozenset[str] = frozenset()
        if job is not None:
            batch = [moment_text(moment) for moment in backfill_batch(spec, job)]
            there = await triggers.read_firings(*key, batch)
            fired = frozenset(one.moment for one in there if one.run_id is not None)
        found = await endings(self.firer, row, spec, now)
        planned = plan_sweep(row, spec, now, watched, job, fired, found.arrived, found.noted)
        if await self.firer.cancel(planned):
            watched = await triggers.read_watched(*key)
            planned = plan_sweep(row, spec, now, watched, job, fired, found.arrived, found.noted)
        if found.has_more:
            planned = replace(planned, row=replace(planned.row, due_at=now))
        done = await self.firer.carry_out(row, planned)
        if done is None:
            return 0
        for one in done.firings:
            if one.state is FiringState.REFUSED:
                log.warning("the trigger %s could not start a run for %s: %s", row.name, one.moment, one.reason)
        return done.started

    async def _running_backfill(self, row: TriggerRow) -> Backfill | None:
        """The oldest backfill that is not done; one at a time."""
        jobs = await self._store.triggers.list_backfills(row.tenant, row.name)
        running = [job for job in jobs if job.state is BackfillState.RUNNING]
        return running[-1] if running else None

    async def _put_off(self, key: TriggerKey) -> None:
        row = await self._store.triggers.read(*key)
        if row is not None and row.due_at is not None:
            later = replace(row, seq=row.seq + 1, due_at=await self._store.now() + PUT_OFF)
            await self.firer.carry_out(row, Planned(row=later))
