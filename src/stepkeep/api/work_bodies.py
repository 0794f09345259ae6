"""The bodies of the routes of remote workers: requests, and the JSON of workers, claims and replies to reports.

It calls nothing. `work` and `work_data` use it; docs/remote-workers.md has every field with an example.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from stepkeep.api.bodies import RUN_ID, Anything, Body
from stepkeep.definition.bounds import MAX_ADDED, MAX_CALL_BYTES, MAX_WIDTH
from stepkeep.definition.calls import WORDS
from stepkeep.edges.safe_text import exception_message, inert
from stepkeep.kernel.decision import Accepted
from stepkeep.kernel.definition import SECOND, Flow, Handler
from stepkeep.kernel.errors import InvalidInput, StepkeepError, Unreadable
from stepkeep.kernel.rows import Step, Worker
from stepkeep.operations.batch import Answer as Reply
from stepkeep.operations.recorded_calls import CallPage
from stepkeep.operations.remote_work import LONGEST_WAIT_SECONDS, MOST_AT_ONCE, Wanted
from stepkeep.operations.transact import Claim
from stepkeep.operations.work_outcomes import KINDS
from stepkeep.store.change import StoredDefinition
from stepkeep.worker.payloads import Unstorable, encode

LARGEST = 2**53
MAX_NUMBER = 2**31 - 1
"""The largest number of a step, a fence or an attempt that a store keeps."""
HEARTBEAT_SECONDS = 10.0
Number = Field(ge=0, le=MAX_NUMBER)


class Registration(Body):
    """A new worker."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"app": "billing", "instance": "9f86d081884c7d65", "host": "b1", "pid": 71, "capacity": 8}]
        }
    )

    app: str = Field(max_length=100, description="What its id begins with.")
    instance: str = Field(
        max_length=32, pattern="^[0-9a-f]{8,32}$", description="Random, once per process: the same again is the same."
    )
    host: str = Field(default="remote", min_length=1, max_length=100)
    pid: int = Field(default=0, ge=0, le=LARGEST)
    capacity: int = Field(default=1, ge=1, le=1_000_000, description="How many steps it runs at once.")
    capabilities: list[str] = Field(
        default=[], max_length=100, description="What it can do; the owner needs the role `capability:NAME` for each."
    )


class Heartbeat(Body):
    """A sign of life, at least every ten seconds."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"busy": True}]})

    busy: bool | None = Field(default=None, description="Whether it runs steps.")
    report: Anything | None = Field(default=None, description="What it serves, for `explain` and `status`.")


class Claiming(Body):
    """How many steps of which queues a worker takes."""

    slots: int = Field(default=1, ge=0, le=MOST_AT_ONCE, description="How many at most.")
    queues: list[int] | None = Field(default=None, max_length=100_000, description="By number, of GET /work/queues.")
    handlers: list[str] | None = Field(default=None, max_length=10_000, description="Or by the names of handlers.")
    groups: list[str] | None = Field(
        default=None, max_length=1000, description="With `handlers`: only these named queues."
    )
    blocking: list[int] = Field(default=[], max_length=100_000, description="Queues with a limit of their own.")
    blocking_slots: int = Field(default=0, ge=0, le=LARGEST)
    lease_us: int | None = Field(default=None, ge=1, le=LARGEST, description="Another lease than the definition's.")
    give: Literal["inputs", "rows"] = Field(
        default="inputs", description="With `rows`: the stored row, for workers that render inputs by themselves."
    )

    def wanted(self, after: int | None = None, run: str | None = None) -> Wanted:
        return Wanted(
            slots=self.slots,
            queues=None if self.queues is None else tuple(self.queues),
            handlers=None if self.handlers is None else tuple(self.handlers),
            groups=None if self.groups is None else tuple(self.groups),
            blocking=tuple(self.blocking),
            blocking_slots=self.blocking_slots,
            lease_us=self.lease_us,
            after=after,
            run=run,
        )


class ClaimRequest(Claiming):
    """A claim."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"slots": 4, "handlers": ["billing.charge"], "wait_seconds": 0}]}
    )

    request_id: str | None = Field(
        default=None, max_length=100, description="The same id again gets the same steps, and claims no others."
    )
    wait_seconds: float = Field(
        default=0, ge=0, le=LONGEST_WAIT_SECONDS, description="How long to wait if there is nothing to claim."
    )
    after: int | None = Field(default=None, ge=0, le=LARGEST, description="Steps that became ready earlier are left.")
    run_id: str | None = Field(default=None, max_length=36, description="Only steps of this run.")


class Emitted(Body):
    """An event for the outbox."""

    name: str = Field(max_length=255)
    payload: Any = None


class CallBody(Body):
    """A call that a flow makes for the first time."""

    kind: Literal[tuple(WORDS)] = Field(description="The method of the context.")  # type: ignore[valid-type]
    name: str = Field(min_length=1, max_length=255, description="What was called: a handler, an event, a workflow.")
    digest: str = Field(
        pattern="^[0-9a-f]{32}$", description="The first 32 digits of the SHA-256 of the arguments, with sorted keys."
    )
    arguments: Any = Field(default=None, description="JSON of at most 256 KiB.")
    step: Anything = Field(description="The step, written as in a definition, without its name and its inputs.")

    @model_validator(mode="after")
    def _can_be_kept(self) -> CallBody:
        try:
            encode(self.arguments, what="arguments", limit=MAX_CALL_BYTES)
        except Unstorable as problem:
            raise PydanticCustomError("unstorable", "{said}", {"said": str(problem)}) from None
        return self


class OutcomeBody(Body):
    """How an attempt ended. Which fields there are depends on `kind`."""

    kind: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    output: Any = None
    steps: list[Anything] | None = Field(
        default=None, max_length=MAX_ADDED, description="Of `then`: the steps to add, written as in a definition."
    )
    calls: list[CallBody] | None = Field(
        default=None, max_length=MAX_WIDTH, description="Of `suspended`: the calls that the flow has not made before."
    )
    seen: int = Field(default=0, ge=0, le=MAX_WIDTH, description="Of `suspended`: how many ends of calls it was given.")
    code: str | None = Field(default=None, min_length=1, max_length=64, description="Of `suspended`: which code ran.")
    token_sha256: str | None = Field(default=None, max_length=64)
    error: str | None = Field(default=None, max_length=20_000)
    category: str | None = Field(default=None, max_length=50)
    delay_us: int | None = Field(default=None, ge=0, le=LARGEST)
    final: bool = False
    unrun: bool = False
    error_class: str | None = Field(default=None, max_length=50)
    event: str | None = Field(default=None, max_length=255)
    timeout_us: int | None = Field(default=None, ge=0, le=LARGEST)
    takes_timeouts: bool = True
    where: str | None = Field(default=None, max_length=20_000)
    count: int | None = Field(default=None, ge=1, le=LARGEST)
    until: str | None = Field(default=None, max_length=20_000)
    reason: str | None = Field(default=None, max_length=20_000)
    cost: Any = None
    emit: list[Emitted] = Field(default=[], max_length=1000)

    def given(self) -> dict[str, Any]:
        """The fields that the client sent."""
        return self.model_dump(exclude_unset=True)


class OneReport(Body):
    """The outcome of one attempt."""

    run_id: str = Field(max_length=36)
    no: int = Number
    fence: int = Number
    outcome: OutcomeBody


class ReportRequest(Body):
    """Outcomes, and a claim of the steps that they make ready."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"reports": [{"run_id": RUN_ID, "no": 0, "fence": 1, "outcome": {"kind": "completed", "output": 7}}]}
            ]
        }
    )

    reports: list[OneReport] = Field(min_length=1, max_length=MOST_AT_ONCE)
    request_id: str | None = Field(default=None, max_length=100, description="The same id again gets the same reply.")
    claim: Claiming | None = None


class CheckpointRequest(Body):
    """What a handler records while it runs."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"run_id": RUN_ID, "no": 0, "fence": 1, "name": "charge", "value": {"id": 7}}]}
    )

    run_id: str = Field(max_length=36)
    no: int = Number
    fence: int = Number
    name: str = Field(min_length=1, max_length=100)
    value: Any = Field(default=None, description="JSON of at most 256 KiB.")

    def encoded(self) -> bytes:
        """The value as it is stored."""
        try:
            return encode(self.value, what="the value of the checkpoint")
        except Unstorable as problem:
            raise InvalidInput(f"{problem}.") from None


class CallsRequest(Body):
    """The calls of a flow that the worker holds: from which place on, and as of which answer."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"run_id": RUN_ID, "no": 0, "fence": 1, "start": 0}]})

    run_id: str = Field(max_length=36)
    no: int = Number
    fence: int = Number
    start: int = Field(default=0, ge=0, le=MAX_WIDTH, description="The place of the first call.")
    until: int | None = Field(default=None, ge=0, le=LARGEST, description="That of the first page, for all others.")


class OneLease(Body):
    """A lease, and how long it shall last from now."""

    run_id: str = Field(max_length=36)
    no: int = Number
    fence: int = Number
    lease_us: int = Field(ge=1, le=LARGEST)


class RenewRequest(Body):
    """Leases to renew."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"leases": [{"run_id": RUN_ID, "no": 0, "fence": 1, "lease_us": 60_000_000}]}]}
    )

    leases: list[OneLease] = Field(min_length=1, max_length=10_000)


class Registered(BaseModel):
    """A worker as the service knows it."""

    worker: Anything


class Claims(BaseModel):
    """The steps that the worker holds from now on."""

    claims: list[Anything]


class Replies(BaseModel):
    """One reply for each report, in order, and the steps that were claimed with them."""

    replies: list[Anything]
    claims: list[Anything]


class Replied(BaseModel):
    """The reply to one request: accepted, or why not."""

    reply: Anything


class RecordedCalls(BaseModel):
    """A page of calls; `following` is the place of the next one, null after the last."""

    calls: list[Anything]
    until: int
    following: int | None


class Renewals(BaseModel):
    """The leases that are still valid. A claim that is not among them is lost."""

    renewed: list[Anything]


def worker_json(row: Worker) -> dict[str, Any]:
    return {
        "id": row.id,
        "no": row.no,
        "state": row.state.value,
        "incarnation": row.incarnation,
        "capacity": row.capacity,
        "capabilities": list(row.capabilities),
        "owner": row.owner,
        "tenant": row.tenant,
        "heartbeat_seconds": HEARTBEAT_SECONDS,
    }


def claim_json(claim: Claim, lease_us: int | None) -> dict[str, Any]:
    """What every claim tells."""
    planned, step = claim.planned, claim.step
    return {
        "run_id": claim.run_id,
        "step": planned.name,
        "no": step.no,
        "fence": step.fence,
        "attempt": step.attempts + 1,
        "handler": planned.executor.name if isinstance(planned.executor, Handler) else None,
        "workflow": claim.plan.definition.name,
        "version": claim.plan.definition.version,
        "definition_id": claim.plan.definition_id,
        "lease_us": lease_us or claim.plan.definition.lease,
        "timeout_seconds": planned.timeout / SECOND,
        "claimed_at": claim.claimed_at,
        "run_due_at": claim.run_due_at,
        "flow": _flow_json(claim) if isinstance(planned.growth, Flow) else None,
    }


def _flow_json(claim: Claim) -> dict[str, Any]:
    """How many calls of a flow are on record, and up to which end of them its events and costs are."""
    grown = None if claim.step.note is None else claim.step.note.grown
    return {"calls": 0, "seen": 0} if grown is None else {"calls": grown.count, "seen": grown.seen or 0}


def row_json(claim: Claim, step: Step, lease_us: int | None) -> dict[str, Any]:
    """The same with the stored row."""
    return {**claim_json(claim, lease_us), "row": msgspec.to_builtins(step)}


def calls_json(page: CallPage) -> dict[str, Any]:
    """A page of calls. One without `settled` has not ended."""
    told = []
    for row, settled, output in page.calls:
        call = None if row.note is None else row.note.call
        assert call is not None
        one: dict[str, Any] = {
            "no": row.no,
            "fence": row.fence,
            "kind": call.kind,
            "name": call.name,
            "digest": call.digest,
        }
        ended: dict[str, Any] = {"settled": settled, "category": row.category, "error": row.error}
        one |= {"state": row.state.value} | ({} if settled is None else ended)
        told.append(one if output is None else one | {"output": msgspec.Raw(output)})
    return {"calls": told, "until": page.until, "following": page.following}


def reply_json(reply: Reply) -> dict[str, Any]:
    """The reply to one report: accepted, or why not. Unexpected errors are told by their code alone."""
    if isinstance(reply, Accepted):
        return {"accepted": True, "repeated": reply.repeated, **dict(reply.record)}
    if isinstance(reply, Unreadable) or not isinstance(reply, StepkeepError):
        return {"accepted": False, "code": "unreadable" if isinstance(reply, Unreadable) else "unexpected"}
    return {
        "accepted": False,
        "code": getattr(reply, "code", "broken"),
        "detail": inert(exception_message(reply) or ""),
    }


def definition_json(stored: StoredDefinition) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.name,
        "version": stored.version,
        "dialect": stored.dialect,
        "digest": stored.digest,
        "queues": list(stored.queues),
        "document": stored.document.decode(),
    }
