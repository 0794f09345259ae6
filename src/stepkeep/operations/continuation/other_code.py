"""Flows that hold because no code fits: made ready once for each other code that a live worker has.

It compares what such flows have tried with what workers publish, and reads no code. Workers with the database sweep,
and the service for remote ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from stepkeep.definition.native.build import flow_version
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.events import CodeChanged
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.remote.services import Known, WaitingStep, known_workers
from stepkeep.store.records import FIRST_ID, UnfitStep

log = logging.getLogger(__name__)

SECONDS = 2.0
"""How often a process looks for such flows."""
AT_ONCE = 200
"""How many it looks at together."""


class CodeSweep:
    """Looks for flows of one tenant that hold, a page at a time."""

    def __init__(self, transactor: Transactor, tenant: str) -> None:
        self._transactor, self._tenant = transactor, tenant
        self._after = FIRST_ID
        self._due_at = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next look, by a monotonic clock."""
        if now < self._due_at:
            return False
        self._due_at = now + SECONDS
        return True

    async def sweep(self, own: Known | None = None) -> int:
        """Make flows ready for which a live worker has other code. `own` is a worker of this process, which may not
        have published what it has. Returns how many were made ready."""
        store, tenant = self._transactor.store, self._tenant
        found = await store.find_unfit(tenant, self._after, AT_ONCE)
        self._after = found[-1].run_id if len(found) == AT_ONCE else FIRST_ID
        if not found:
            return 0
        rows, reports, queues, now = await asyncio.gather(
            store.list_workers(tenant, live_only=True),
            store.list_worker_reports(tenant),
            store.list_queues(tenant),
            store.now(),
        )
        live = [known for known in known_workers(rows, reports) if known.is_live(now)]
        events = _events(tenant, found, [*([] if own is None else [own]), *live], dict(queues))
        made = 0
        for answer in await self._transactor.submit_all(events) if events else ():
            made += isinstance(answer, Accepted)
            if not isinstance(answer, Accepted | Refused):
                log.error("a flow that holds cannot be made ready", exc_info=answer)
        return made


def _events(
    tenant: str, found: Sequence[UnfitStep], workers: Sequence[Known], queues: Mapping[int, QueueSpec]
) -> list[CodeChanged]:
    made = []
    for one in found:
        spec = queues.get(one.queue)
        for known in workers if spec is not None else ():
            assert spec is not None
            code = _code(known, spec, one)
            if code is not None and code not in one.tried:
                made.append(CodeChanged(tenant=tenant, run_id=one.run_id, actor=known.row.id, no=one.no, code=code))
                break
    return made


def _code(known: Known, spec: QueueSpec, step: UnfitStep) -> str | None:
    """The digest of the code that a worker has for a flow; None if it does not take it."""
    if known.service is None or known.lacks(spec, step.queue, WaitingStep(step.run_id, 0, step.no)):
        return None
    versions, wanted = known.service.flows.get(spec.name, {}), flow_version(spec.capabilities)
    newest = max(versions, default=0)
    return versions.get(newest if wanted is None else wanted, versions.get(0))
