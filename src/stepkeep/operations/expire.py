"""The sweep: everything that is due is proposed to the kernel. Any worker sweeps; there is no leader.

Late, doubled or interrupted sweeps do no harm: the kernel checks each timer again under the run's lock.
"""

from __future__ import annotations

import logging

from stepkeep.errors import Refused
from stepkeep.kernel.decision import Accepted
from stepkeep.kernel.events import TimeCame
from stepkeep.operations.transact import Transactor
from stepkeep.operations.workers import retire_silent

log = logging.getLogger(__name__)


async def sweep(transactor: Transactor, *, limit: int = 500, actor: str = "sweep") -> int:
    """Let time act on everything, workers included. Returns how many timers were found."""
    found = await sweep_timers(transactor, limit=limit, actor=actor)
    await retire_silent(transactor.store, actor=actor)
    return found


async def sweep_timers(transactor: Transactor, *, limit: int = 500, actor: str = "sweep") -> int:
    """Let time act on steps and runs that are due, oldest first. Returns how many were found."""
    due = await transactor.store.find_due(limit)
    if due:
        events = [TimeCame(tenant=d.tenant, run_id=d.run_id, actor=actor, no=d.no) for d in due]
        for answer in await transactor.submit_all(events):
            if not isinstance(answer, Accepted | Refused):
                log.error("something that is due cannot be moved", exc_info=answer)
    return len(due)
