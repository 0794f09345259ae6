"""Remote workers: register, heartbeat, claim, renew, report, leave. The same operations as with a database.

A worker belongs to the owner of its key: for any other key it is not there. Claims wait (long poll) until there is
work. Data of a run is given while the worker holds a step of it. docs/remote-workers.md is the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import StreamingResponse

from stepkeep.api.handwritten import Routes
from stepkeep.api.routing import JsonAnswer, service_of, waiting
from stepkeep.api.stream import CHECK_SECONDS, EVENTS, RETRY_MILLISECONDS, Pulse, event_stream
from stepkeep.definition.expressions.scope import reference
from stepkeep.edges.safe_text import exception_text
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.outcomes import Failed, Outcome, Released
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.operation import RUN_ID
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.remote.recorded_checkpoints import CheckpointPage
from stepkeep.operations.remote.remote_work import Number, RemoteWork, Report
from stepkeep.operations.remote.work_messages import (
    ClaimedStep,
    Claims,
    Kept,
    Queues,
    ReachableNetwork,
    RecordedCalls,
    RecordedCheckpoints,
    Registered,
    Renewals,
    Replied,
    Replies,
    RunData,
    StoredOne,
    Written,
    claimed,
    queues_of,
    recorded,
    recorded_checkpoints,
    registered,
    reply_of,
    run_data,
    stored,
)
from stepkeep.operations.remote.work_outcomes import outcome_of
from stepkeep.store.change import Lease
from stepkeep.store.protocol import Notification
from stepkeep.worker.attempts.executor import Job, Prepared
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.attempts.templates import inputs_of, numbers_read
from stepkeep.worker.remote.requests import (
    CallsRequest,
    CheckpointRequest,
    CheckpointsRequest,
    ClaimRequest,
    EvidenceRequest,
    Heartbeat,
    InputsRequest,
    Registration,
    RenewRequest,
    ReportRequest,
    StreamsRequest,
)

routes = Routes("Remote workers")

WorkerId = Annotated[str, Meta(max_length=400, description="The `id` of the answer to the registration.")]

ATTEMPT = {"run_id": RUN_ID, "no": 0, "fence": 1}
"""The attempt of the examples."""


def work_of(request: Request, engine: ActingEngine) -> RemoteWork:
    """The remote workers of this caller."""
    return RemoteWork(engine.transactor, engine.access, service_of(request).work, admitted=engine.admitted)


@routes(
    "POST /work/workers",
    "work.register",
    "register_worker",
    "Register a remote worker",
    status=201,
    done="Registered",
    also="Was there",
    answers=Registered,
    example={"app": "billing", "instance": "9f86d081884c7d65", "host": "b1", "pid": 71, "capacity": 8},
)
async def register_worker(request: Request, engine: ActingEngine, body: Registration) -> JsonAnswer:
    """The owner of the key is on record as the executor of its steps. The same `instance` again is the same worker."""
    row, is_new = await work_of(request, engine).register(**msgspec.structs.asdict(body))
    return JsonAnswer(registered(row), 201 if is_new else 200)


@routes(
    "POST /work/workers/{worker_id}/heartbeat", "work.beat", "beat_worker", "Send a heartbeat", example={"busy": True}
)
async def beat_worker(
    request: Request, engine: ActingEngine, worker_id: WorkerId, body: Heartbeat | None = None
) -> Registered:
    """With another `incarnation` than before, or in the state `shutdown`, everything that the worker held is lost."""
    said = body or Heartbeat()
    row = await work_of(request, engine).beat(worker_id, busy=said.busy, report=said.report)
    return registered(row)


@routes("POST /work/workers/{worker_id}/drain", "work.drain", "drain_worker", "Say that a worker claims no more")
async def drain_worker(request: Request, engine: ActingEngine, worker_id: WorkerId) -> Registered:
    return registered(await work_of(request, engine).drain(worker_id))


@routes("DELETE /work/workers/{worker_id}", "work.leave", "remove_worker", "Deregister a worker")
async def remove_worker(request: Request, engine: ActingEngine, worker_id: WorkerId) -> Registered:
    """Report `released` for everything that it holds first: otherwise those steps wait for their leases."""
    return registered(await work_of(request, engine).leave(worker_id))


@routes(
    "POST /work/workers/{worker_id}/claim",
    "work.claim",
    "claim_steps",
    "Claim ready steps",
    example={"slots": 4, "handlers": ["billing.charge"], "wait_seconds": 0},
)
async def claim_steps(request: Request, engine: ActingEngine, worker_id: WorkerId, body: ClaimRequest) -> Claims:
    """Waits up to `wait_seconds` for work, and ends early when the service stops."""
    work, service = work_of(request, engine), service_of(request)

    async def is_gone() -> bool:
        return service.stopping.is_set() or await request.is_disconnected()

    async with waiting(request, body.wait_seconds):
        claims = await work.claim(
            worker_id,
            body,
            request=body.request_id,
            wait_seconds=body.wait_seconds,
            after=body.after,
            run=body.run_id,
            is_gone=is_gone,
        )
    return Claims(claims=await _claimed_steps(work, worker_id, claims, body.give, body.lease_us))


@routes(
    "POST /work/workers/{worker_id}/renew",
    "work.renew",
    "renew_leases",
    "Renew leases",
    example={"leases": [{**ATTEMPT, "lease_us": 60_000_000}]},
)
async def renew_leases(request: Request, engine: ActingEngine, worker_id: WorkerId, body: RenewRequest) -> Renewals:
    """A claim that is missing in the answer is lost: stop its handler. In a run that is `stopping`, stop it too."""
    leases = [Lease(engine.tenant, one.run_id, one.no, one.fence, one.lease_us) for one in body.leases]
    renewed = await work_of(request, engine).renew(worker_id, leases)
    return Renewals(renewed=renewed)


@routes(
    "POST /work/workers/{worker_id}/report",
    "work.report",
    "report_outcomes",
    "Report outcomes",
    example={"reports": [{**ATTEMPT, "outcome": {"kind": "completed", "output": 7}}]},
)
async def report_outcomes(request: Request, engine: ActingEngine, worker_id: WorkerId, body: ReportRequest) -> Replies:
    """In one transaction, each with its own reply. `fenced` means that the result was dropped: the lease was gone."""
    reports = [
        Report(
            run_id=one.run_id, no=one.no, fence=one.fence, outcome=outcome_of(one.outcome.given()), streams=one.ends()
        )
        for one in body.reports
    ]
    work, claim = work_of(request, engine), body.claim
    replies, claims = await work.report(worker_id, reports, claim, request=body.request_id)
    told: list[ClaimedStep] = []
    if claim is not None:
        told = await _claimed_steps(work, worker_id, claims, claim.give, claim.lease_us)
    return Replies(replies=[reply_of(one) for one in replies], claims=told)


@routes(
    "POST /work/workers/{worker_id}/checkpoint",
    "work.checkpoint",
    "record_checkpoint",
    "Record a checkpoint of a running attempt",
    example={**ATTEMPT, "name": "charge", "value": {"id": 7}},
)
async def record_checkpoint(
    request: Request, engine: ActingEngine, worker_id: WorkerId, body: CheckpointRequest
) -> Replied:
    """Later attempts of the step find it in their claim. Recorded under the fence of the claim, once for each name."""
    reply = await work_of(request, engine).checkpoint(
        worker_id, run_id=body.run_id, no=body.no, fence=body.fence, name=body.name, value=body.encoded()
    )
    return Replied(reply=reply_of(reply))


@routes(
    "POST /work/workers/{worker_id}/streams",
    "work.write",
    "append_to_streams",
    "Append to streams of a run",
    example={**ATTEMPT, "streams": [{"name": "tokens", "chunks": ["Hello"]}]},
)
async def append_to_streams(
    request: Request, engine: ActingEngine, worker_id: WorkerId, body: StreamsRequest
) -> Written:
    """Under the lease of the attempt. Places begin at 0 and go on; the same ones again are stored once. The report
    names every stream that was written."""
    parts = [one.part(body.fence) for one in body.streams]
    await work_of(request, engine).write(worker_id, body, parts)
    return Written(written=sum(one.count for one in parts))


@routes(
    "POST /work/workers/{worker_id}/checkpoints",
    "work.checkpoints",
    "read_checkpoints",
    "Read what earlier attempts of a step have recorded",
    example=ATTEMPT,
)
async def read_checkpoints(
    request: Request, engine: ActingEngine, worker_id: WorkerId, body: CheckpointsRequest
) -> RecordedCheckpoints:
    """In the order of recording. With `following`, ask again with its `seq` and `name`."""
    page = await work_of(request, engine).checkpoints(worker_id, body, (body.seq, body.name))
    return recorded_checkpoints(page)


@routes(
    "POST /work/workers/{worker_id}/calls",
    "work.calls",
    "read_calls",
    "Read the recorded calls of a flow",
    example={**ATTEMPT, "start": 0},
)
async def read_calls(request: Request, engine: ActingEngine, worker_id: WorkerId, body: CallsRequest) -> RecordedCalls:
    """What a replay of the flow is given. With `following`, ask again with that as `start` and with `until`."""
    page = await work_of(request, engine).calls(worker_id, body, start=body.start, until=body.until)
    return recorded(page)


async def _claimed_steps(
    work: RemoteWork, worker_id: str, claims: Sequence[Claim], give: str, lease_us: int | None
) -> list[ClaimedStep]:
    if give == "rows":
        return [claimed(claim, lease_us, row=await work.opened(claim)) for claim in claims]
    return [claimed(claim, lease_us, **data) for claim, data in await rendered_claims(work, worker_id, claims)]


async def rendered_claims(
    work: RemoteWork, worker_id: str, claims: Sequence[Claim]
) -> list[tuple[Claim, dict[str, Any]]]:
    """Each claim with its inputs. Claims that cannot be given are reported here, and left out."""
    if not claims:
        return []
    details = await work.details(worker_id, {claim.run_id for claim in claims})
    ready, refused = [], []
    for claim in claims:
        outcome = _unfit(claim)
        if outcome is None:
            try:
                template = inputs_of(claim.plan, claim.planned)
                numbers = numbers_read(template, claim.plan, claim.planned)
                wants = [(claim.run_id, no) for no in numbers.values()]
                outputs = await work.outputs(worker_id, wants) if wants else {}
                job = Job(claim, cast(Prepared, None))
                job.loaded.details = details.get(claim.run_id)
                job.loaded.outputs = {name: outputs.get((claim.run_id, no)) for name, no in numbers.items()}
                job.loaded.arguments = await work.arguments(claim)
                job.loaded.secrets = {name: reference(name) for name in template.secrets}
                inputs = template.render(job)
            except Exception as problem:  # noqa: BLE001 - inputs that cannot be rendered fail their step alone
                error = storable_text(f"the inputs cannot be rendered: {exception_text(problem)}")
                outcome = Failed(category=Category.VALIDATION, error=error, final=True)
            else:
                page = await work.first_checkpoints(claim) if claim.step.fence > 1 else CheckpointPage({}, None)
                told = recorded_checkpoints(page)
                known = {"checkpoints": told.checkpoints, "more_checkpoints": told.following}
                ready.append((claim, {**_data(job, inputs, work), **known}))
        if outcome is not None:
            refused.append(Report(run_id=claim.run_id, no=claim.step.no, fence=claim.step.fence, outcome=outcome))
            if isinstance(outcome, Released):
                work.set_unfit(worker_id, claim.step.queue)
    if refused:
        await work.report(worker_id, refused, None, request=None)
    return ready


def _unfit(claim: Claim) -> Outcome | None:
    """Why a worker that knows handlers only cannot run this step."""
    planned = claim.planned
    why = None
    if planned.has_pre:
        why = "it has rules before its handler"
    elif planned.definition.transactional:
        why = "it is transactional, and needs the database"
    return None if why is None else Released(reason=f"a remote worker of the plain protocol cannot run it: {why}")


def _data(job: Job, inputs: Any, work: RemoteWork) -> Mapping[str, Any]:
    details = job.loaded.details
    job.loaded.opened = work.opened_value
    woken = job.woken_by()
    return {
        "inputs": inputs,
        "input": None if details is None else msgspec.Raw(details.input),
        "business_key": None if details is None else details.business_key,
        "correlation_id": None if details is None else details.correlation_id,
        "woken_by": None
        if woken is None
        else {"timed_out": woken.timed_out, "id": woken.id, "name": woken.name, "payload": woken.payload},
        "has_rules": job.claim.planned.has_rules,
        "by_hand": job.claim.planned.by_hand,
    }


MOST_WAITING = 1000
"""Notices that a slow worker has not read. Beyond these it is told that anything may be ready."""


@routes("GET /work/queues", "work.queues", "list_queues", "List the queues of the tenant")
async def list_queues(request: Request, engine: ActingEngine) -> Queues:
    known = await work_of(request, engine).queues()
    return Queues(tenant=engine.tenant, owner=engine.access.owner, queues=queues_of(known))


@routes("GET /work/network", "work.network", "list_reachable", "What HTTP steps of the tenant may reach")
async def list_reachable(request: Request, engine: ActingEngine) -> ReachableNetwork:
    return ReachableNetwork(allow=await work_of(request, engine).network())


@routes(
    "GET /work/definitions/{definition_id}",
    "work.definition",
    "read_stored_definition",
    "One stored definition by its number",
)
async def read_stored_definition(request: Request, engine: ActingEngine, definition_id: Number) -> StoredOne:
    """`document` is the text that `digest` is over."""
    return stored(await work_of(request, engine).definition(definition_id))


@routes(
    "POST /work/workers/{worker_id}/inputs",
    "work.details",
    "read_inputs",
    "Read data of runs of which the worker holds a step",
    example={"runs": [{"run_id": RUN_ID, "details": True}]},
)
async def read_inputs(request: Request, engine: ActingEngine, worker_id: WorkerId, body: InputsRequest) -> RunData:
    work = work_of(request, engine)
    details = await work.details(worker_id, [one.run_id for one in body.runs if one.details])
    wants = [(one.run_id, no) for one in body.runs for no in one.outputs]
    outputs = await work.outputs(worker_id, wants) if wants else {}
    told = [
        run_data(
            one.run_id,
            details.get(one.run_id) if one.details else None,
            [(no, outputs.get((one.run_id, no))) for no in one.outputs] if one.outputs else None,
            await work.states(worker_id, one.run_id) if one.states else None,
        )
        for one in body.runs
    ]
    return RunData(runs=told)


@routes(
    "POST /work/workers/{worker_id}/evidence",
    "work.evidence",
    "keep_evidence",
    "Keep evidence of attempts that the worker has ended",
    example={"evidence": [{**ATTEMPT, "evidence": {"log": ["INFO a"]}}]},
)
async def keep_evidence(request: Request, engine: ActingEngine, worker_id: WorkerId, body: EvidenceRequest) -> Kept:
    found = [(one.run_id, one.no, one.fence, msgspec.json.encode(one.evidence)) for one in body.evidence]
    return Kept(kept=await work_of(request, engine).evidence(worker_id, found))


@routes(
    "GET /work/workers/{worker_id}/notices",
    "work.listen",
    "listen_for_work",
    "Follow what is ready, and what must stop",
    **EVENTS,
)
async def listen_for_work(request: Request, engine: ActingEngine, worker_id: WorkerId) -> StreamingResponse:
    """Events `notice` with `queues` (numbers; null: any) and `stopped` (runs; null: any). One may be lost: a worker
    also polls, and renews its leases."""
    work = work_of(request, engine)
    row = await work.listen(worker_id)
    await work.queues()
    service, store = service_of(request), engine.store
    waiting: asyncio.Queue[Notification] = asyncio.Queue(MOST_WAITING)

    def heard(notification: Notification) -> None:
        if waiting.full():
            while not waiting.empty():
                waiting.get_nowait()
            notification = Notification()
        waiting.put_nowait(notification)

    async def notices() -> AsyncIterator[bytes]:
        pulse = Pulse(engine, "work.listen")
        unsubscribe = store.notifier.listen(heard)
        try:
            # Once it listens, anything may have happened before.
            yield b"retry: %d\n\n" % RETRY_MILLISECONDS + _notice({"queues": None, "stopped": None})
            while not service.stopping.is_set():
                told = None
                try:
                    async with asyncio.timeout(CHECK_SECONDS):
                        told = work.notice(row, await waiting.get())
                except TimeoutError:
                    await work.queues()
                if told is not None:
                    yield pulse.spoke(_notice(told))
                if beat := await pulse.beat():
                    yield beat
        except StepkeepError:
            return  # the worker comes back, and is told why it is refused
        finally:
            unsubscribe()

    return event_stream(request, notices())


def _notice(told: Mapping[str, object]) -> bytes:
    return b"event: notice\ndata: %s\n\n" % msgspec.json.encode(told)
