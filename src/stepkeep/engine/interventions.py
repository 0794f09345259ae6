"""What people do to a run besides deciding: `engine.interventions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from stepkeep.engine.base import AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.engine.run_actions import Delegator, Gate, Required
from stepkeep.operations.access import DECIDE, OPERATE
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Actor, Name, RunId, group, operation
from stepkeep.operations.people import interventions
from stepkeep.operations.people.cases import MOST_PEOPLE
from stepkeep.operations.people.interventions import NoteKept
from stepkeep.operations.people.people import Decided, RunChange, answer_of

Approvers = Annotated[
    Sequence[Name], Meta(max_length=MOST_PEOPLE, description="Who may decide it, besides those whom it names.")
]


@group("interventions", "Runs")
class AsyncInterventions(AsyncGroup):
    """What people do to a run besides deciding: request changes, escalate a gate, freeze it, add a note.

    >>> waiting = engine.run(order, {"amount": 5})
    >>> engine.interventions.annotate(waiting.run_id, "the bank has a holiday", by="bea").by
    'bea'
    """

    @operation(
        DECIDE,
        "POST /runs/{run_id}/request-changes",
        "request_changes",
        "Request changes at an open gate",
        example={"step": "sign", "comment": "name the supplier"},
    )
    async def request_changes(
        self, run_id: RunId, step: Gate = None, *, comment: Required, for_: Delegator = None, by: Actor = None
    ) -> Decided:
        """Ask for changes at an open gate, and say which; `step` may be left out when exactly one is open.

        The gate stays open with its deadline, and every decision so far is void. Only a person who may decide it, and
        has not, may ask. The event `gate.changes_requested` tells others.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> said = engine.interventions.request_changes(waiting.run_id, comment="name the supplier", by="bea")
        >>> said.decision, said.needs.approved
        ('changes_requested', 1)
        """
        who = self._caller(by)
        return answer_of(
            Decided, await interventions.request_changes(self._transactor, run_id, step, comment, for_, who)
        )

    @operation(
        DECIDE,
        "POST /runs/{run_id}/escalate",
        "escalate_gate",
        "Open the next level of a gate",
        example={"step": "sign", "reason": "bea is away"},
    )
    async def escalate(
        self, run_id: RunId, step: Gate = None, *, reason: Required, for_: Delegator = None, by: Actor = None
    ) -> Decided:
        """Open the next level of a gate before its deadline does. Only a person who may decide it, and has not, may.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> from stepkeep import Conflict
        >>> try:
        ...     engine.interventions.escalate(waiting.run_id, reason="bea is away", by="bea")
        ... except Conflict as problem:
        ...     print(str(problem).partition("has ")[2])
        no level above 0. Decide it, or delegate the decision.
        """
        who = self._caller(by)
        return answer_of(Decided, await interventions.escalate(self._transactor, run_id, step, reason, for_, who))

    @operation(
        OPERATE,
        "POST /runs/{run_id}/reassign",
        "reassign_gate",
        "Name other approvers for a gate that nobody may decide, or fail it",
        example={"step": "sign", "to": ["dan"], "reason": "finance has left"},
    )
    async def reassign(
        self,
        run_id: RunId,
        step: Annotated[Name, says("Which gate.")],
        *,
        to: Approvers = (),
        fail: Annotated[bool, says("Fail the gate instead.")] = False,
        reason: Required,
        by: Actor = None,
    ) -> Decided:
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
        who = self._caller(by)
        return answer_of(Decided, await interventions.reassign(self._transactor, run_id, step, to, fail, reason, who))

    @operation(
        DECIDE,
        "POST /runs/{run_id}/notes",
        "annotate_run",
        "Keep a note in the journal of a run",
        agents="changes",
        example={"note": "the bank has a holiday"},
    )
    async def annotate(
        self,
        run_id: RunId,
        note: Required,
        *,
        step: Annotated[Name | None, says("The step that it is about.")] = None,
        by: Actor = None,
    ) -> NoteKept:
        """Keep a note in the journal of a run that has not ended, about a step if one is named. No state changes.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> engine.interventions.annotate(waiting.run_id, "asked for an offer", step="sign-off").step
        'sign-off'
        """
        return answer_of(NoteKept, await interventions.annotate(self._transactor, run_id, note, step, self._caller(by)))

    @operation(OPERATE, "POST /runs/{run_id}/freeze", "freeze_run", "Freeze a run", example={"reason": "an audit"})
    async def freeze(self, run_id: RunId, *, reason: Required, by: Actor = None) -> RunChange:
        """Pause a run under the name of a freeze, with a reason. `engine.resume` ends it.

        >>> waiting = engine.run(order, {"amount": 5})
        >>> print(engine.interventions.freeze(waiting.run_id, reason="an audit", by="bea").state)
        paused
        """
        return answer_of(RunChange, await interventions.freeze(self._transactor, run_id, reason, self._caller(by)))


class Interventions(Blocking[AsyncInterventions]):
    request_changes, escalate = blocking(AsyncInterventions.request_changes), blocking(AsyncInterventions.escalate)
    reassign, annotate = blocking(AsyncInterventions.reassign), blocking(AsyncInterventions.annotate)
    freeze = blocking(AsyncInterventions.freeze)
