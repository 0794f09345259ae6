"""The sweep: proposes every due timer to the kernel. Any worker sweeps; there is no leader.

Late, duplicate or interrupted sweeps do no harm, because the kernel checks each timer again under the run's lock.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import Refused, Unreadable
from stepkeep.kernel.machine.events import TimeCame
from stepkeep.operations.limits.pauses import pauses_of_idle
from stepkeep.operations.pipeline.transact import MOST_HIDDEN, Transactor
from stepkeep.operations.pipeline.workers import retire_silent
from stepkeep.store.records import Due

log = logging.getLogger(__name__)


async def sweep(transactor: Transactor, *, limit: int = 500, actor: str = "sweep") -> int:
    """Handle all due timers, those of workers included. Returns how many were found."""
    found = await sweep_timers(transactor, limit=limit, actor=actor)
    await retire_silent(transactor.store, actor=actor)
    return found


async def sweep_timers(transactor: Transactor, *, limit: int = 500, actor: str = "sweep") -> int:
    """Handle due timers of steps and runs, oldest first. Returns how many were found, without those of unreadable
    runs."""
    unreadable = transactor.unreadable
    while True:
        beyond = unreadable.due
        due = await transactor.store.find_due(limit + beyond)
        hopeless = await _move(transactor, due, actor) if due else 0
        unreadable.due = min(hopeless, MOST_HIDDEN)
        # Timers of unreadable runs stay the oldest: the next sweep reads beyond them.
        if len(due) > hopeless or unreadable.due <= beyond:
            return len(due) - hopeless


async def _move(transactor: Transactor, due: Sequence[Due], actor: str) -> int:
    """Handle these timers. Returns how many belong to unreadable runs."""
    hopeless = 0
    events = [TimeCame(tenant=one.tenant, run_id=one.run_id, actor=actor, no=one.no) for one in due]
    # A delayed run of a paused workflow is paused in the transaction that starts it.
    pauses = await pauses_of_idle(transactor.store, [(one.tenant, one.run_id) for one in due if one.no is None])
    for answer in await transactor.submit_all([*events, *pauses]):
        hopeless += isinstance(answer, Unreadable)
        if not isinstance(answer, Accepted | Refused | Unreadable):
            log.error("something that is due cannot be moved", exc_info=answer)
    return hopeless
