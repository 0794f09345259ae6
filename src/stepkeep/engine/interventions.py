"""Interventions in a run, as the engine offers them: `engine.interventions`.

Each method checks its arguments and calls one operation. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepkeep.definition import arguments
from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.operations import interventions, people, validate
from stepkeep.operations.access import guarded
from stepkeep.operations.interventions import Asking


@guarded("interventions.")
class AsyncInterventions(AsyncGroup):
    """What people do to a run besides deciding: request changes, escalate a gate, freeze it, add a note.

    >>> waiting = engine.run(order, {"amount": 5})
    >>> engine.interventions.annotate(waiting.run_id, "the bank has a holiday", by="bea")["by"]
    'bea'
    """

    async def request_changes(
        self, run_id: str, step: str | None = None, *, comment: str, for_: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Ask for changes at an open gate, and say which; `step` may be left out when exactly one is open.

        The gate stays open with its deadline, and every decision so far is void. Only a person who may decide it, and
        has not, may ask. The event `gate.changes_requested` tells others.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> said = engine.interventions.request_changes(waiting.run_id, comment="name the supplier", by="bea")
        >>> said["decision"], said["needs"]["approved"]
        ('changes_requested', 1)
        """
        found = validate.run_id(run_id)
        who = self._who(by)
        return people.record_of(await interventions.request_changes(self._transactor, found, step, comment, for_, who))

    async def escalate(
        self, run_id: str, step: str | None = None, *, reason: str, for_: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Open the next level of a gate before its deadline does. Only a person who may decide it, and has not, may.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> from stepkeep import Conflict
        >>> try:
        ...     engine.interventions.escalate(waiting.run_id, reason="bea is away", by="bea")
        ... except Conflict as problem:
        ...     print(str(problem).partition("has ")[2])
        no level above 0. Decide it, or delegate the decision.
        """
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

        >>> waiting = engine.run(order, {"amount": 5})
        >>> from stepkeep import Conflict
        >>> try:
        ...     engine.interventions.reassign(waiting.run_id, "sign-off", to=["bea"], reason="all have left", by="cyd")
        ... except Conflict as problem:
        ...     print(str(problem).partition(": ")[2])
        an operator only unblocks one that nobody may
        """
        found, is_failed = validate.run_id(run_id), arguments.flag("fail", fail)
        who = self._who(by)
        return people.record_of(await interventions.reassign(self._transactor, found, step, to, is_failed, reason, who))

    async def annotate(
        self, run_id: str, note: str, *, step: str | None = None, by: str | None = None
    ) -> dict[str, Any]:
        """Keep a note in the journal of a run that has not ended, about a step if one is named. No state changes.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> engine.interventions.annotate(waiting.run_id, "asked for an offer", step="sign-off")["step"]
        'sign-off'
        """
        found = validate.run_id(run_id)
        return people.record_of(await interventions.annotate(self._transactor, found, note, step, self._who(by)))

    async def freeze(self, run_id: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Pause a run under the name of a freeze, with a reason. `engine.resume` ends it.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> engine.interventions.freeze(waiting.run_id, reason="an audit", by="bea")["state"] == "paused"
        True
        """
        found = validate.run_id(run_id)
        return people.record_of(await interventions.freeze(self._transactor, found, reason, self._who(by)))

    def _who(self, by: str | None) -> Asking:
        acting = self._acting(by)
        return {"tenant": self._tenant, **acting}


class Interventions(Blocking[AsyncInterventions]):
    request_changes = blocking(AsyncInterventions.request_changes)
    escalate = blocking(AsyncInterventions.escalate)
    reassign = blocking(AsyncInterventions.reassign)
    annotate = blocking(AsyncInterventions.annotate)
    freeze = blocking(AsyncInterventions.freeze)
