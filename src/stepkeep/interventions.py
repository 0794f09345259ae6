"""Interventions in a run, as the engine offers them: `engine.interventions`.

Each method checks its arguments and calls one operation. `sync_interventions` has the same methods for programs without
an event loop. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepkeep.definition import arguments
from stepkeep.engine_arguments import optional_key
from stepkeep.operations import interventions, people, validate
from stepkeep.operations.access import Access, guarded
from stepkeep.operations.interventions import Asking
from stepkeep.operations.transact import Transactor


@guarded("interventions.")
class AsyncInterventions:
    """What people do to a run besides deciding: request changes, escalate a gate, freeze it, add a note."""

    def __init__(self, transactor: Transactor, access: Access) -> None:
        self._transactor, self.access = transactor, access

    async def request_changes(
        self, run_id: str, step: str | None = None, *, comment: str, for_: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Ask for changes at an open gate, and say which; `step` may be left out when exactly one is open.

        The gate stays open with its deadline, and every decision so far is void. Only a person who may decide it, and
        has not, may ask. The event `gate.changes_requested` tells others.
        """
        found = validate.run_id(run_id)
        who = self._who(by)
        return people.record_of(await interventions.request_changes(self._transactor, found, step, comment, for_, who))

    async def escalate(
        self, run_id: str, step: str | None = None, *, reason: str, for_: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Open the next level of a gate before its deadline does. Only a person who may decide it, and has not, may."""
        found = validate.run_id(run_id)
        who = self._who(by)
        return people.record_of(await interventions.escalate(self._transactor, found, step, reason, for_, who))

    async def reassign(
        self,
        run_id: str,
        step: str,
        *,
        to: Sequence[str] = (),
        fail: bool = False,
        reason: str,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Name other approvers for a gate that nobody may decide, or fail it (`fail=True`). It is never approved so.

        Only a person who did not ask for the run may, with the scope `operate`. Those named must be able to decide it.
        The event `gate.reassigned` tells others.
        """
        found, is_failed = validate.run_id(run_id), arguments.flag("fail", fail)
        who = self._who(by)
        return people.record_of(await interventions.reassign(self._transactor, found, step, to, is_failed, reason, who))

    async def annotate(
        self, run_id: str, note: str, *, step: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Keep a note in the journal of a run that has not ended, about a step if one is named. No state changes."""
        found = validate.run_id(run_id)
        return people.record_of(await interventions.annotate(self._transactor, found, note, step, self._who(by)))

    async def freeze(self, run_id: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Pause a run under the name of a freeze, with a reason. `engine.resume` ends it."""
        found = validate.run_id(run_id)
        return people.record_of(await interventions.freeze(self._transactor, found, reason, self._who(by)))

    def _who(self, by: str | None) -> Asking:
        acting = self.access.acting(optional_key("by", by))
        return {"tenant": self.access.tenant, **acting}
