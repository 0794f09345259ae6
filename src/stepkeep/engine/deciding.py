"""The engine's part for people: decisions at gates and stuck steps, messages, cancel, pause, quarantine, policies.

Each method checks its arguments and calls one operation. It decides nothing. `AsyncEngine` inherits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepkeep.definition import arguments
from stepkeep.definition.bounds import MESSAGE_TTL
from stepkeep.definition.retry import Duration, microseconds
from stepkeep.engine.arguments import (
    encode_payload,
    optional_key,
)
from stepkeep.engine.definitions import AsyncDefinitions, Runnable, names_version
from stepkeep.engine.messages import goes_with_key, one_target
from stepkeep.kernel.errors import (
    InvalidInput,
)
from stepkeep.operations import (
    pausing,
    people,
    plans,
    policies,
    rollback,
    validate,
)
from stepkeep.operations import quarantine as quarantines
from stepkeep.operations.access import Scope
from stepkeep.operations.correlation import correlated_run
from stepkeep.operations.start import StartRequest
from stepkeep.worker.runtime import Runtime

if TYPE_CHECKING:
    pass


class AsyncDeciding(AsyncDefinitions):
    """What people do to runs."""

    async def approve(
        self,
        run_id: str,
        step: str | None = None,
        *,
        comment: str = "",
        evidence: Sequence[str] = (),
        for_: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Approve an open gate; `step` may be left out when exactly one is open.

        A gate with a quorum counts the decision: `counted` and `needs` of the answer say how it stands. `for_` names
        the person who delegated the decision; `evidence` are references that are kept with it.

        >>> waiting = engine.run(order, {"amount": 10})
        >>> engine.approve(waiting.run_id, "sign-off", by="bea", comment="within budget")["by"]
        'bea'
        >>> engine.work_on(waiting.run_id).output
        {'receipt': 'r-10'}
        """
        return await self._decide(run_id, step, comment, evidence, for_, by, approve=True)

    async def reject(
        self,
        run_id: str,
        step: str | None = None,
        *,
        comment: str = "",
        evidence: Sequence[str] = (),
        for_: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Reject an open gate; `step` may be left out when exactly one is open.

        A gate with a quorum counts the decision: `counted` and `needs` of the answer say how it stands. `for_` names
        the person who delegated the decision; `evidence` are references that are kept with it.

        >>> waiting = engine.run(order, {"amount": 10})
        >>> engine.reject(waiting.run_id, by="bea", comment="too late")["decision"]
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
    ) -> dict[str, Any]:
        accepted = await people.decide_gate(
            self.transactor,
            validate.run_id(run_id),
            approve=approve,
            tenant=self.tenant,
            **self._acting(by),
            step=step,
            comment=comment,
            on_behalf_of=for_,
            evidence=tuple(arguments.items("evidence", evidence)),
        )
        return people.record_of(accepted)

    async def decide(
        self, run_id: str, step: str, choice: str, *, reason: str = "", output: Any = None, by: str | None = None
    ) -> dict[str, Any]:
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
        >>> engine.decide(held.run_id, "call", "skip", by="bea", reason="not needed today")["decision"]
        'skipped'
        """
        accepted = await people.decide_hold(
            self.transactor,
            validate.run_id(run_id),
            step,
            choice,
            tenant=self.tenant,
            **self._acting(by),
            reason=reason,
            output=None if output is None else encode_payload(output),
        )
        return people.record_of(accepted)

    async def complete(
        self,
        run_id: str,
        step: str,
        *,
        token: str,
        outcome: str = "Succeeded",
        output: Any = None,
        notes: str = "",
        evidence: Sequence[str] = (),
        claim: Mapping[str, Any] | None = None,
        for_: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Complete a manual step by hand, with the token that was issued for it.

        `claim` is what the signal says about itself (`actorUserId`, `completedAtIso`): kept and shown, never trusted.

        >>> waiting = engine.run(packing)
        >>> engine.complete(waiting.run_id, "pack", token=tokens.pop(), output={"boxes": 2}, by="bea")["by"]
        'bea'
        """
        accepted = await people.complete(
            self.transactor,
            validate.run_id(run_id),
            step,
            token=token,
            outcome=outcome,
            tenant=self.tenant,
            **self._acting(by),
            output=None if output is None else encode_payload(output),
            notes=notes,
            evidence=tuple(arguments.items("complete: evidence", evidence)),
            claim=None if claim is None else encode_payload(dict(arguments.mapping("complete: claim", claim))),
            on_behalf_of=for_,
        )
        return people.record_of(accepted)

    async def reissue_token(self, run_id: str, step: str, *, reason: str, by: str | None = None) -> dict[str, Any]:
        """Give a manual step a new completion token in place of a lost one; the old one is useless from then on.

        `token` of the answer is the new one. It is shown once and kept nowhere. The deadline of the step stays.

        >>> lost = engine.run(packing)
        >>> token = engine.reissue_token(lost.run_id, "pack", reason="the mail was lost", by="bea")["token"]
        >>> engine.complete(lost.run_id, "pack", token=token, by="bea")["by"]
        'bea'
        """
        token = Runtime().token()
        accepted = await people.reissue_token(
            self.transactor,
            validate.run_id(run_id),
            step,
            token=token,
            reason=reason,
            tenant=self.tenant,
            **self._acting(by),
        )
        return {**people.record_of(accepted), "token": token}

    async def send(
        self,
        run_id: str | None = None,
        name: str = "",
        payload: Any = None,
        *,
        key: str | None = None,
        correlation_id: str | None = None,
        start: Runnable | None = None,
        input: Any = None,  # noqa: A002 - the word users know
        idempotency_key: str | None = None,
        ttl: Duration | None = None,
        message_id: str | None = None,
        by: str | None = None,
    ) -> dict[str, Any]:
        """Send a message to a run: by its id, its business key or its correlation id. It is kept until a step waits
        for it; one by business key also until a run has the key. With `start`, a run is started if none has it.

        >>> waiting = engine.run(delivery)
        >>> engine.send(waiting.run_id, "arrived", {"door": 3}, message_id="parcel-1", by="courier")["repeated"]
        False
        >>> engine.send(key="parcel-9", name="noted", payload={"door": 3})["run_id"] is None
        True
        >>> engine.send(key="parcel-9", name="arrived", start=delivery)["started"]
        True
        """
        one_target(run_id, key, correlation_id)
        goes_with_key(key, start=start, ttl=ttl)
        if start is None and (input is not None or idempotency_key is not None):
            raise InvalidInput("send: input and idempotency_key go with start=, the workflow to start.")
        if key is not None:
            return await self._send_by_key(key, name, payload, start, input, idempotency_key, ttl, message_id, by)
        if correlation_id is not None:
            run_id = await correlated_run(self.store, correlation_id, tenant=self.tenant)
        accepted = await people.send(
            self.transactor,
            validate.run_id(run_id),
            name,
            encode_payload(payload),
            tenant=self.tenant,
            **self._acting(by),
            message_id=message_id,
        )
        return await self._sent({**people.record_of(accepted), "run_id": run_id})

    async def _send_by_key(
        self,
        key: str,
        name: str,
        payload: Any,
        start: Runnable | None,
        given: Any,
        idempotency_key: str | None,
        ttl: Duration | None,
        message_id: str | None,
        by: str | None,
    ) -> dict[str, Any]:
        request = None
        acting = self._acting(by)
        if start is not None:
            self.access.require(Scope.START, operation="send with start")
            request = StartRequest(
                plan=await self._plan(start),
                names_version=names_version(start),
                tenant=self.tenant,
                **acting,
                input=encode_payload({} if given is None else given),
                business_key=validate.key("the business key", key),
                idempotency_key=optional_key("the idempotency key", idempotency_key),
                scope=self._scope(),
            )
        sent = await self._key_sender.send(
            key,
            name,
            encode_payload(payload),
            tenant=self.tenant,
            actor=acting["actor"],
            vouched_by=acting["vouched_by"],
            api_key=acting["key"],
            message_id=message_id,
            ttl=None if ttl is None else microseconds(ttl, what="send: ttl", bounds=MESSAGE_TTL),
            start=request,
        )
        return await self._sent(sent.record())

    async def _sent(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record of a message, with the name of the step that took it."""
        if record.get("consumed_by") is not None:
            plan = await plans.plan_of(self.transactor, self.tenant, record["run_id"])
            record["consumed_by"] = plan.at(record["consumed_by"]).name
        return record

    async def cancel(
        self, run_id: str, *, compensate: bool = False, reason: str = "", by: str | None = None
    ) -> dict[str, Any]:
        """End a run; with `compensate`, what it did is undone first.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.cancel(started.run_id, reason="sent twice", by="bea")["repeated"]
        False
        """
        accepted = await people.cancel(
            self.transactor,
            validate.run_id(run_id),
            tenant=self.tenant,
            **self._acting(by),
            compensate=arguments.flag("cancel: compensate", compensate),
            reason=reason,
        )
        return people.record_of(accepted)

    async def pause(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Claim nothing more of a run until it is resumed. What is in flight settles; deadlines and the timeout of the
        run go on.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> print(engine.pause(started.run_id, reason="the shop is closed", by="bea")["state"])
        paused
        """
        accepted = await pausing.pause_run(
            self.transactor, validate.run_id(run_id), tenant=self.tenant, **self._acting(by), reason=reason
        )
        return people.record_of(accepted)

    async def resume(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Go on with a paused run.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> _ = engine.pause(started.run_id)
        >>> print(engine.resume(started.run_id)["state"])
        queued
        """
        accepted = await pausing.resume_run(
            self.transactor, validate.run_id(run_id), tenant=self.tenant, **self._acting(by), reason=reason
        )
        return people.record_of(accepted)

    async def rollback_preview(self, run_id: str) -> dict[str, Any]:
        """What a cancel with `compensate` would undo now, in which order, and what it cannot undo and why.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.rollback_preview(started.run_id)["undo"]
        []
        """
        return await rollback.rollback_preview(self.transactor, validate.run_id(run_id), tenant=self.tenant)

    async def quarantine(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """Quarantine a run, readable or not: nothing claims, changes or deletes it until it is released. A reason is
        required.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.quarantine(started.run_id, reason="under investigation", by="bea")["reason"]
        'under investigation'
        """
        return await quarantines.quarantine(
            self.transactor, run_id, tenant=self.tenant, actor=self._actor(by), reason=reason
        )

    async def release(self, run_id: str, *, reason: str = "", by: str | None = None) -> dict[str, Any]:
        """End a run's quarantine; it continues where it was.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> _ = engine.quarantine(started.run_id, reason="under investigation")
        >>> engine.release(started.run_id, reason="false alarm", by="bea")["released_by"]
        'bea'
        """
        return await quarantines.release(
            self.transactor, run_id, tenant=self.tenant, actor=self._actor(by), reason=reason
        )

    async def quarantined(self, *, history: bool = False) -> dict[str, Any]:
        """The quarantined runs; with `history` every quarantine, ended ones included.

        >>> engine.quarantined()
        {'quarantined': []}
        """
        return await quarantines.quarantined(
            self.transactor, tenant=self.tenant, history=arguments.flag("quarantined: history", history)
        )

    async def publish_policy(self, policy: str | Path | Mapping[str, Any], *, by: str | None = None) -> dict[str, Any]:
        """Publish a policy, a file or a mapping, as the next revision of the tenant. Its cases must hold.

        >>> rules = [{"name": "weekend", "when": "time.weekday >= 6", "then": "deny", "workflows": ["payout"]}]
        >>> engine.publish_policy({"policy": "payouts", "rules": rules}, by="bea")["revision"]
        1
        """
        from stepkeep.definition.policy import publishable_policy

        document = publishable_policy(policy)
        return await policies.publish_policy(self.transactor, document, tenant=self.tenant, actor=self._actor(by))

    async def policy_off(self, *, by: str | None = None) -> dict[str, Any]:
        """Publish a revision without rules: only the rules of definitions count from then on.

        >>> engine.policy_off(by="bea")["policy"]
        'off'
        """
        return await policies.publish_policy(self.transactor, policies.OFF, tenant=self.tenant, actor=self._actor(by))

    async def list_policies(self) -> dict[str, Any]:
        """The revisions of the tenant's policy, newest first.

        >>> engine.list_policies()
        {'policies': []}
        """
        return await policies.list_policies(self.transactor, tenant=self.tenant)

    async def show_policy(self, revision: int | None = None) -> dict[str, Any]:
        """A revision of the tenant's policy with its rules; without a number, the newest.

        >>> _ = engine.policy_off()
        >>> engine.show_policy(1)["document"]
        {'name': 'off', 'rules': []}
        """
        return await policies.show_policy(self.transactor, revision, tenant=self.tenant)

    async def replay_policy(self, run_id: str) -> dict[str, Any]:
        """Evaluate every verdict of a run again, by the facts and the revisions on record.

        >>> started = engine.start(hello, {"name": "Ada"})
        >>> engine.replay_policy(started.run_id)["ok"]
        True
        """
        return await policies.replay_policy(self.transactor, validate.run_id(run_id), tenant=self.tenant)
