"""Interventions for programs without an event loop: the methods of `interventions`, called and awaited.

It has no logic of its own: each method calls the one of the same name. `sync_engine.Engine` makes the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepkeep.interventions import AsyncInterventions
from stepkeep.sync_administration import Call


class Interventions:
    """What people do to a run besides deciding: request changes, escalate a gate, freeze it, add a note.

    >>> waiting = engine.run(order, {"amount": 5})
    >>> engine.interventions.annotate(waiting.run_id, "the bank has a holiday", by="bea")["by"]
    'bea'
    """

    def __init__(self, core: AsyncInterventions, call: Call) -> None:
        self._core, self._call = core, call

    def request_changes(
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
        return self._call(self._core.request_changes(run_id, step, comment=comment, for_=for_, by=by))

    def escalate(
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
        return self._call(self._core.escalate(run_id, step, reason=reason, for_=for_, by=by))

    def reassign(
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
        return self._call(self._core.reassign(run_id, step, to=to, fail=fail, reason=reason, by=by))

    def annotate(self, run_id: str, note: str, *, step: str | None = None, by: str | None = None) -> dict[str, Any]:
        """Keep a note in the journal of a run that has not ended, about a step if one is named. No state changes.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> engine.interventions.annotate(waiting.run_id, "asked for an offer", step="sign-off")["step"]
        'sign-off'
        """
        return self._call(self._core.annotate(run_id, note, step=step, by=by))

    def freeze(self, run_id: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Pause a run under the name of a freeze, with a reason. `engine.resume` ends it.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> engine.interventions.freeze(waiting.run_id, reason="an audit", by="bea")["state"] == "paused"
        True
        """
        return self._call(self._core.freeze(run_id, reason=reason, by=by))
