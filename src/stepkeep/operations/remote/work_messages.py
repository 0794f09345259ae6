"""What the service tells remote workers, as values: the service encodes them, and a worker in Python decodes them.

Other languages find every field in docs/remote-workers.md. Nothing is decided here. `api.work` and
`worker.remote` use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from stepkeep.edges.safe_text import exception_message, inert
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import SECOND, Handler, QueueSpec
from stepkeep.kernel.errors import StepkeepError, Unreadable
from stepkeep.kernel.machine.rows import Details, Step, Worker
from stepkeep.kernel.machine.states import Category, StepState, WorkerState
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.pipeline.batch import Answer as Reply
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.remote.recorded_calls import CallPage
from stepkeep.operations.remote.recorded_checkpoints import CheckpointPage
from stepkeep.store.change import Renewed, StoredDefinition

HEARTBEAT_SECONDS = 10.0

Object = dict[str, Any]
Payload = msgspec.Raw
"""JSON that keeps its bytes."""


class RegisteredWorker(Answer, kw_only=True):
    """A worker as the service knows it."""

    id: str
    no: int
    state: WorkerState
    incarnation: int
    capacity: int
    capabilities: tuple[str, ...]
    owner: str | None
    tenant: str
    heartbeat_seconds: float = HEARTBEAT_SECONDS

    def row(self, queues: tuple[int, ...]) -> Worker:
        """The worker as it knows itself, with the queues that it asked for."""
        known = {name: getattr(self, name) for name in self.__struct_fields__ if name != "heartbeat_seconds"}
        return Worker(**known, queues=queues, heard_at=0, started_at=0)


class Registered(Answer, kw_only=True):
    """A worker after what it said."""

    worker: RegisteredWorker


class CallsSoFar(Answer, kw_only=True):
    """How many calls of a flow are on record, and up to which end of them its events and costs are."""

    calls: int
    seen: int


class CheckpointPlace(Answer, kw_only=True):
    """Where a page of checkpoints ends."""

    seq: int
    name: str


class ClaimedStep(Answer, kw_only=True):
    """A step that the worker holds. With `give: rows` it has `row`, otherwise everything from `inputs` on."""

    run_id: str
    step: str
    no: int
    fence: int
    attempt: int
    handler: str | None
    workflow: str
    version: int
    definition_id: int
    lease_us: int
    timeout_seconds: float
    claimed_at: int
    run_due_at: int | None
    flow: CallsSoFar | None
    row: Annotated[Any, says("The stored row.")] = UNSET
    inputs: Any = UNSET
    input: Any = UNSET
    business_key: str | UnsetType | None = UNSET
    correlation_id: str | UnsetType | None = UNSET
    woken_by: Object | UnsetType | None = UNSET
    has_rules: bool | UnsetType = UNSET
    by_hand: bool | UnsetType = UNSET
    checkpoints: Annotated[Object | UnsetType, says("What earlier attempts recorded, by name: the first page.")] = UNSET
    more_checkpoints: Annotated[CheckpointPlace | UnsetType | None, says("Where the next page begins.")] = UNSET


class Claims(Answer, kw_only=True):
    """The steps that the worker holds from now on."""

    claims: list[ClaimedStep]


class Replies(Answer, kw_only=True):
    """One reply for each report, in order, and the steps that were claimed with them."""

    replies: list[Object]
    claims: list[ClaimedStep]


class Replied(Answer, kw_only=True):
    """The reply to one request: accepted, or why not."""

    reply: Object


class Renewals(Answer, kw_only=True):
    """The leases that are still valid. A claim that is not among them is lost."""

    renewed: list[Renewed]


class WorkCall(Answer, kw_only=True):
    """A recorded call of a flow. One without `settled` has not ended."""

    no: int
    fence: int
    kind: str
    name: str
    digest: str
    state: StepState
    settled: int | UnsetType = UNSET
    at: Annotated[int | UnsetType, says("When its end was recorded, in microseconds.")] = UNSET
    category: Category | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    output: Payload | UnsetType = UNSET


class RecordedCalls(Answer, kw_only=True):
    """A page of calls; `following` is the place of the next one, null after the last."""

    calls: list[WorkCall]
    until: int
    following: int | None


class RecordedCheckpoints(Answer, kw_only=True):
    """A page of what earlier attempts have recorded, by name; `following` is null after the last page."""

    checkpoints: dict[str, Payload]
    following: CheckpointPlace | None


def recorded_checkpoints(page: CheckpointPage) -> RecordedCheckpoints:
    """A page as it is told."""
    following = None if page.following is None else CheckpointPlace(seq=page.following[0], name=page.following[1])
    checkpoints = {name: Payload(value) for name, value in page.values.items()}
    return RecordedCheckpoints(checkpoints=checkpoints, following=following)


class WorkQueue(Answer, kw_only=True):
    """A queue of the tenant."""

    number: int
    kind: str
    name: str
    capabilities: tuple[str, ...]
    group: str


class Queues(Answer, kw_only=True):
    """The tenant and the owner of the key, and the queues of the tenant."""

    tenant: str
    owner: str | None
    queues: list[WorkQueue]


class ReachableNetwork(Answer, kw_only=True):
    """The allow list of the tenant."""

    allow: list[str]


class WorkDefinition(Answer, kw_only=True):
    """A definition as it is stored."""

    id: int
    name: str
    version: int
    dialect: str
    digest: str
    queues: tuple[int, ...]
    document: str


class StoredOne(Answer, kw_only=True):
    """A definition as it is stored."""

    definition: WorkDefinition


class WorkOutput(Answer, kw_only=True):
    """One output; `absent` where the step has none."""

    no: int
    output: Payload
    absent: bool | UnsetType = UNSET


class WorkRun(Answer, kw_only=True):
    """What was read of one run."""

    run_id: str
    details: dict[str, Payload] | UnsetType = UNSET
    outputs: list[WorkOutput] | UnsetType = UNSET
    steps: list[Any] | UnsetType = UNSET


class RunData(Answer, kw_only=True):
    """What was read of each run."""

    runs: list[WorkRun]


class Written(Answer):
    """The chunks are stored."""

    written: Annotated[int, says("How many.")]


class Kept(Answer, kw_only=True):
    """Of how many attempts evidence was kept; those of other workers are left out."""

    kept: int


def registered(row: Worker) -> Registered:
    return Registered(worker=msgspec.convert(row, RegisteredWorker, from_attributes=True))


def claimed(claim: Claim, lease_us: int | None, **more: Any) -> ClaimedStep:
    """What a claim tells, with more."""
    planned, plan, step = claim.planned, claim.plan, claim.step
    grown = None if step.note is None else step.note.grown
    so_far = CallsSoFar(calls=0, seen=0) if grown is None else CallsSoFar(calls=grown.count, seen=grown.seen or 0)
    return ClaimedStep(
        run_id=claim.run_id,
        step=planned.name,
        no=step.no,
        fence=step.fence,
        attempt=step.attempts + 1,
        handler=planned.executor.name if isinstance(planned.executor, Handler) else None,
        workflow=plan.definition.name,
        version=plan.definition.version,
        definition_id=plan.definition_id,
        lease_us=lease_us or plan.definition.lease,
        timeout_seconds=planned.timeout / SECOND,
        claimed_at=claim.claimed_at,
        run_due_at=claim.run_due_at,
        flow=so_far if planned.kind.is_flow else None,
        **more,
    )


def recorded(page: CallPage) -> RecordedCalls:
    """A page of calls."""
    told = []
    for row, settled, output, at in page.calls:
        call = None if row.note is None else row.note.call
        assert call is not None
        made: dict[str, Any] = {"kind": call.kind, "name": call.name, "digest": call.digest}
        made |= {} if settled is None else {"settled": settled, "category": row.category, "error": row.error}
        made |= {} if at is None else {"at": at}
        made |= {} if output is None else {"output": Payload(output)}
        told.append(WorkCall(no=row.no, fence=row.fence, state=row.state, **made))
    return RecordedCalls(calls=told, until=page.until, following=page.following)


def reply_of(reply: Reply) -> Object:
    """The reply to one report: accepted, or why not. Unexpected errors are told by their code alone."""
    if isinstance(reply, Accepted):
        return {"accepted": True, "repeated": reply.repeated, **dict(reply.record)}
    if isinstance(reply, Unreadable) or not isinstance(reply, StepkeepError):
        return {"accepted": False, "code": "unreadable" if isinstance(reply, Unreadable) else "unexpected"}
    code, detail = getattr(reply, "code", "broken"), inert(exception_message(reply) or "")
    return {"accepted": False, "code": code, "detail": detail}


def queues_of(known: Mapping[int, QueueSpec]) -> list[WorkQueue]:
    return [
        WorkQueue(number=number, **{name: getattr(spec, name) for name in spec.__struct_fields__})
        for number, spec in known.items()
    ]


def stored(found: StoredDefinition) -> StoredOne:
    plain = {name: getattr(found, name) for name in WorkDefinition.__struct_fields__}
    return StoredOne(definition=WorkDefinition(**{**plain, "document": found.document.decode()}))


def run_data(
    run_id: str,
    detail: Details | None,
    outputs: Iterable[tuple[int, bytes | None]] | None,
    steps: Iterable[Step] | None,
) -> WorkRun:
    """What is told of one run: those parts that are not None."""
    told: dict[str, Any] = {}
    if detail is not None:
        plain = msgspec.to_builtins(msgspec.structs.replace(detail, input=b""))
        told["details"] = {**plain, "input": Payload(detail.input)}
    if outputs is not None:
        told["outputs"] = [
            WorkOutput(no=no, output=Payload(b"null"), absent=True)
            if output is None
            else WorkOutput(no=no, output=Payload(output))
            for no, output in outputs
        ]
    if steps is not None:
        told["steps"] = list(steps)
    return WorkRun(run_id=run_id, **told)
