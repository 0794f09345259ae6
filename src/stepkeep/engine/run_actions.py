"""What people do to a run: decide at gates and about stuck steps, complete steps, cancel, pause, resume, set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from stepkeep.definition import arguments
from stepkeep.engine.arguments import encode_payload
from stepkeep.engine.base import AsyncBase
from stepkeep.operations import validate
from stepkeep.operations.access import COMPLETE, DECIDE, OPERATE, READ
from stepkeep.operations.answers import says
from stepkeep.operations.continuation import pausing, quarantine, rollback
from stepkeep.operations.continuation.quarantine import QuarantineList, QuarantineView
from stepkeep.operations.continuation.rollback import RollbackPreview
from stepkeep.operations.operation import Actor, Name, RunId, Words, group, operation
from stepkeep.operations.people import people
from stepkeep.operations.people.people import MAX_EVIDENCE, Completed, Decided, NewToken, RunChange
from stepkeep.operations.typed import InPython
from stepkeep.worker.runtime import Runtime

StepName = Annotated[str, Meta(min_length=1, max_length=255, description="The name of a step.", examples=["greet"])]
Gate = Annotated[Name | None, says("Which gate; not needed where exactly one is open.")]
Evidence = Annotated[
    Sequence[str], Meta(max_length=MAX_EVIDENCE, description="References that are kept with the decision.")
]
Delegator = Annotated[Name | None, says("Who delegated the decision.")]
Required = Annotated[str, Meta(min_length=1, max_length=4000)]
"""Words that stay on record and must say something."""
Outcome = Literal["Succeeded", "Failed", "Cancelled"]
DAMAGED = {"reason": "its rows are damaged"}


@group("", "Runs")
class AsyncRunActions(AsyncBase):
    """What people do to runs."""

    @operation(
        DECIDE,
        "POST /runs/{run_id}/approve",
        "approve_gate",
        "Approve an open gate",
        example={"step": "sign", "comment": "checked"},
    )
    async def approve(
        self,
        run_id: RunId,
        step: Gate = None,
        *,
        comment: Words = "",
        evidence: Evidence = (),
        for_: Delegator = None,
        by: Actor = None,
    ) -> Decided:
        """Approve an open gate; `step` may be left out when exactly one is open.

        A gate with a quorum counts the decision: `counted` and `needs` of the answer say how it stands. `for_` names
        the person who delegated the decision; `evidence` are references that are kept with it. The same decision again
        is answered as before; another one is a conflict with the `winner`.

        >>> waiting = engine.run(order, {"amount": 10})
        >>> engine.approve(waiting.run_id, "sign-off", by="bea", comment="within budget").by
        'bea'
        >>> engine.work_on(waiting.run_id).output
        {'receipt': 'r-10'}
        """
        return await self._decide(run_id, step, comment, evidence, for_, by, approve=True)

    @operation(
        DECIDE,
        "POST /runs/{run_id}/reject",
        "reject_gate",
        "Reject an open gate",
        example={"step": "sign", "comment": "checked"},
    )
    async def reject(
        self,
        run_id: RunId,
        step: Gate = None,
        *,
        comment: Words = "",
        evidence: Evidence = (),
        for_: Delegator = None,
        by: Actor = None,
    ) -> Decided:
        """Reject an open gate; `step` may be left out when exactly one is open.

        A gate with a quorum counts the decision: `counted` and `needs` of the answer say how it stands. `for_` names
        the person who delegated the decision; `evidence` are references that are kept with it.

        >>> waiting = engine.run(order, {"amount": 10})
        >>> engine.reject(waiting.run_id, by="bea", comment="too late").decision
        'rejected'
        """
        return await self._decide(run_id, step, comment, evidence, for_, by, approve=False)

    async def _decide(
        self,
        run_id: str,
        step: str | None,
        comment: str,
        evidence: Sequence[str],
        for_: str | None,
        by: str | None,
        *,
        approve: bool,
    ) -> Decided:
        accepted = await people.decide_gate(
            self.transactor,
            run_id,
            approve=approve,
            caller=self._caller(by),
            step=step,
            comment=comment,
            on_behalf_of=for_,
            evidence=tuple(evidence),
        )
        return people.answer_of(Decided, accepted)

    @operation(
        DECIDE,
        "POST /runs/{run_id}/steps/{step:path}/decide",
        "decide_step",
        "Decide about a stuck step",
        tag="Steps",
        example={"choice": "retry", "reason": "the cable was loose"},
    )
    async def decide(
        self,
        run_id: RunId,
        step: StepName,
        choice: Literal["retry", "skip", "fail", "complete"],
        *,
        reason: Words = "",
        output: Annotated[Any, says("What a completed step comes to.")] = None,
        by: Actor = None,
    ) -> Decided:
        """Decide about a step that is stuck: `"retry"`, `"skip"`, `"fail"` or `"complete"`, which takes an `output`.

        A step holds if its definition says `on_exhausted="hold"`. A retry gives it all its attempts again. A decision
        about a step that waits for its next attempt, a worker or a message needs a reason.

        >>> import stepkeep as sk
        >>> def unreliable():
        ...     raise ConnectionError("no route")
        >>> flow = sk.Workflow("held")
        >>> tried = flow.step("call", unreliable, retry=sk.Retry(max_attempts=1), on_exhausted="hold")
        >>> held = engine.run(flow)
        >>> held.waiting_for[0]["for"]
        'decision'
        >>> engine.decide(held.run_id, "call", "skip", by="bea", reason="not needed today").decision
        'skipped'
        """
        accepted = await people.decide_hold(
            self.transactor,
            validate.run_id(run_id),
            step,
            choice,
            caller=self._caller(by),
            reason=reason,
            output=None if output is None else encode_payload(output),
        )
        return people.answer_of(Decided, accepted)

    @operation(
        COMPLETE,
        "POST /runs/{run_id}/steps/{step:path}/complete",
        "complete_step",
        "Complete a manual step",
        tag="Steps",
        by_hand=True,
        here=["claim"],
    )
    async def complete(
        self,
        run_id: RunId,
        step: StepName,
        *,
        token: Words,
        outcome: Annotated[str, InPython(Outcome)] = "Succeeded",
        output: Any = None,
        notes: Words = "",
        evidence: Evidence = (),
        claim: Annotated[Mapping[str, Any] | None, InPython(dict[str, Any] | None)] = None,
        for_: Delegator = None,
        by: Actor = None,
    ) -> Completed:
        """Complete a manual step by hand, with the token that was issued for it.

        `claim` is what the signal says about itself (`actorUserId`, `completedAtIso`): kept and shown, never trusted.

        >>> waiting = engine.run(packing)
        >>> engine.complete(waiting.run_id, "pack", token=tokens.pop(), output={"boxes": 2}, by="bea").by
        'bea'
        """
        accepted = await people.complete(
            self.transactor,
            validate.run_id(run_id),
            step,
            token=token,
            outcome=outcome,
            caller=self._caller(by),
            output=None if output is None else encode_payload(output),
            notes=notes,
            evidence=tuple(evidence),
            claim=None if claim is None else encode_payload(dict(arguments.mapping("complete: claim", claim))),
            on_behalf_of=for_,
        )
        return people.answer_of(Completed, accepted)

    @operation(
        COMPLETE,
        "POST /runs/{run_id}/steps/{step:path}/token",
        "reissue_token",
        "Replace a lost completion token",
        tag="Steps",
        repeatable=False,
        example={"reason": "the mail was lost"},
    )
    async def reissue_token(self, run_id: RunId, step: StepName, *, reason: Required, by: Actor = None) -> NewToken:
        """Give a manual step a new completion token in place of a lost one; the old one is useless from then on.

        `token` of the answer is the new one. It is shown once and kept nowhere. The deadline of the step stays.

        >>> lost = engine.run(packing)
        >>> token = engine.reissue_token(lost.run_id, "pack", reason="the mail was lost", by="bea").token
        >>> engine.complete(lost.run_id, "pack", token=token, by="bea").by
        'bea'
        """
        token = Runtime().token()
        accepted = await people.reissue_token(
            self.transactor, run_id, step, token=token, reason=reason, caller=self._caller(by)
        )
        return people.answer_of(NewToken, accepted, token=token)

    @operation(
        OPERATE,
        "POST /runs/{run_id}/cancel",
        "cancel_run",
        "Cancel a run",
        agents="ends",
        example={"reason": "ordered twice", "compensate": True},
    )
    async def cancel(
        self,
        run_id: RunId,
        *,
        compensate: Annotated[bool, says("Undo first what the run did.")] = False,
        reason: Words = "",
        by: Actor = None,
    ) -> RunChange:
        """End a run; with `compensate`, what it did is undone first. A run that is cancelled already is answered the
        same again.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.cancel(started.run_id, reason="sent twice", by="bea").repeated
        False
        """
        accepted = await people.cancel(
            self.transactor, run_id, caller=self._caller(by), compensate=compensate, reason=reason
        )
        return people.answer_of(RunChange, accepted)

    @operation(
        OPERATE,
        "POST /runs/{run_id}/pause",
        "pause_run",
        "Pause a run",
        agents="changes",
        example={"reason": "the shop is closed"},
    )
    async def pause(self, run_id: RunId, *, reason: Words = "", by: Actor = None) -> RunChange:
        """Claim nothing more of a run until it is resumed. What is in flight settles; deadlines and the timeout of the
        run go on.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> print(engine.pause(started.run_id, reason="the shop is closed", by="bea").state)
        paused
        """
        accepted = await pausing.pause_run(self.transactor, run_id, caller=self._caller(by), reason=reason)
        return people.answer_of(RunChange, accepted)

    @operation(
        OPERATE,
        "POST /runs/{run_id}/resume",
        "resume_run",
        "Go on with a paused run",
        agents="changes",
        example={"reason": "the shop is closed"},
    )
    async def resume(self, run_id: RunId, *, reason: Words = "", by: Actor = None) -> RunChange:
        """Go on with a paused run. One that is not paused is answered as it is.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> _ = engine.pause(started.run_id)
        >>> print(engine.resume(started.run_id).state)
        queued
        """
        accepted = await pausing.resume_run(self.transactor, run_id, caller=self._caller(by), reason=reason)
        return people.answer_of(RunChange, accepted)

    @operation(
        READ,
        "GET /runs/{run_id}/rollback",
        "preview_rollback",
        "What would a cancel with compensation undo?",
        agents="reads",
    )
    async def rollback_preview(self, run_id: RunId) -> RollbackPreview:
        """What a cancel with `compensate` would undo now, in which order, and what it cannot undo and why.

        It is decided as the cancel would be, and written nowhere.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.rollback_preview(started.run_id).undo
        []
        """
        return await rollback.rollback_preview(self.transactor, validate.run_id(run_id), tenant=self.tenant)

    @operation(
        OPERATE,
        "POST /runs/{run_id}/quarantine",
        "quarantine_run",
        "Quarantine a run",
        example=DAMAGED,
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
        OPERATE, "POST /runs/{run_id}/release", "release_run", "End a quarantine", example=DAMAGED, repeatable=False
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
