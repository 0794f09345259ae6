"""Runs that an operator sets aside: `engine.quarantine`, `.release`, `.quarantined`. `AsyncEngine` inherits it."""

from __future__ import annotations

from typing import Annotated

from stepkeep.engine.base import AsyncBase
from stepkeep.engine.run_actions import Required
from stepkeep.operations import quarantine
from stepkeep.operations.access import OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, RunId, group, operation
from stepkeep.operations.quarantine import QuarantineList, QuarantineView

EXAMPLE = {"reason": "its rows are damaged"}


@group("", "Runs")
class AsyncQuarantine(AsyncBase):
    """What an operator does to a run whose rows may be damaged."""

    @operation(
        OPERATE,
        "POST /runs/{run_id}/quarantine",
        "quarantine_run",
        "Quarantine a run",
        example=EXAMPLE,
        repeatable=False,
    )
    async def quarantine(self, run_id: RunId, *, reason: Required, by: Actor = None) -> QuarantineView:
        """Quarantine a run, readable or not: nothing claims, changes or deletes it until it is released.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.quarantine(started.run_id, reason="under investigation", by="bea").reason
        'under investigation'
        """
        return await quarantine.quarantine(self.transactor, run_id, caller=self._caller(by), reason=reason)

    @operation(
        OPERATE, "POST /runs/{run_id}/release", "release_run", "End a quarantine", example=EXAMPLE, repeatable=False
    )
    async def release(self, run_id: RunId, *, reason: Required, by: Actor = None) -> QuarantineView:
        """End a run's quarantine; it continues where it was.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> _ = engine.quarantine(started.run_id, reason="under investigation")
        >>> engine.release(started.run_id, reason="false alarm", by="bea").released_by
        'bea'
        """
        return await quarantine.release(self.transactor, run_id, caller=self._caller(by), reason=reason)

    @operation(READ, "GET /quarantine", "list_quarantined", "List quarantined runs", agents="reads")
    async def quarantined(
        self, *, history: Annotated[bool, says("Every quarantine there was, ended ones too.")] = False
    ) -> QuarantineList:
        """The quarantined runs; with `history` every quarantine, ended ones included.

        >>> engine.quarantined().quarantined
        []
        """
        return await quarantine.quarantined(self.transactor, tenant=self.tenant, history=history)
