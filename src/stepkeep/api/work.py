"""Remote workers: register, heartbeat, claim, renew, report, leave. The same operations as with a database.

A worker belongs to the owner of its key: for any other key it is not there. Claims wait (long poll) until there is
work. Data of runs is in `work_data`. docs/remote-workers.md is the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta
from starlette.requests import Request

from stepkeep.api.handwritten import Routes
from stepkeep.api.routing import JsonAnswer, service_of, waiting
from stepkeep.definition.secrets import reference
from stepkeep.edges.safe_text import exception_text
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.machine.outcomes import Failed, Outcome, Released
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.operation import RUN_ID
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.remote.remote_work import RemoteWork, Report
from stepkeep.operations.remote.work_messages import (
    ClaimedStep,
    Claims,
    RecordedCalls,
    Registered,
    Renewals,
    Replied,
    Replies,
    claimed,
    recorded,
    registered,
    reply_of,
)
from stepkeep.operations.remote.work_outcomes import outcome_of
from stepkeep.store.change import Lease
from stepkeep.worker.attempts.executor import Job, Prepared
from stepkeep.worker.attempts.payloads import storable_text
from stepkeep.worker.attempts.templates import inputs_of, numbers_read
from stepkeep.worker.remote.requests import (
    CallsRequest,
    CheckpointRequest,
    ClaimRequest,
    Heartbeat,
    Registration,
    RenewRequest,
    ReportRequest,
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
        Report(run_id=one.run_id, no=one.no, fence=one.fence, outcome=outcome_of(one.outcome.given()))
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
                ready.append((claim, {**_data(job, inputs, work), "checkpoints": await _checkpoints(work, claim)}))
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


def _data(job: Job, inputs: Any, work: RemoteWork) -> dict[str, Any]:
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


async def _checkpoints(work: RemoteWork, claim: Claim) -> dict[str, Any]:
    """What earlier attempts of the step have recorded, by name."""
    note = (await work.opened(claim)).note
    return {} if note is None else {one.name: msgspec.Raw(one.value.encode()) for one in note.checkpoints}
