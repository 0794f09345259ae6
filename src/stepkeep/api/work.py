"""Remote workers: register, heartbeat, claim, renew, report, leave. The same operations as with a database.

A worker belongs to the owner of its key: for any other key it is not there. Claims wait (long poll) until there is
work. Data of runs is in `work_data`. docs/remote-workers.md is the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request

from stepkeep.api.routing import Answer, Engine, answers, router, service_of, waiting
from stepkeep.api.work_bodies import (
    CallsRequest,
    CheckpointRequest,
    ClaimRequest,
    Claims,
    Heartbeat,
    RecordedCalls,
    Registered,
    Registration,
    Renewals,
    RenewRequest,
    Replied,
    Replies,
    ReportRequest,
    calls_json,
    claim_json,
    reply_json,
    row_json,
    worker_json,
)
from stepkeep.api.work_inputs import rendered_claims
from stepkeep.engine import AsyncEngine
from stepkeep.operations.remote_work import ClaimName, RemoteWork, Report
from stepkeep.operations.transact import Claim
from stepkeep.operations.work_outcomes import outcome_of
from stepkeep.store.change import Lease

routes = router("Remote workers")

WorkerId = Annotated[str, Path(max_length=400, description="The `id` of the answer to the registration.")]


def work_of(request: Request, engine: AsyncEngine) -> RemoteWork:
    """The remote workers of this caller."""
    return RemoteWork(engine.transactor, engine.access, service_of(request).work)


@routes.post(
    "/work/workers",
    operation_id="register_worker",
    summary="Register a remote worker",
    status_code=201,
    response_model=None,
    responses={**answers(Registered, status=201, says="Registered"), **answers(Registered, says="Was there")},
)
async def register_worker(request: Request, engine: Engine, body: Registration) -> Answer:
    """The owner of the key is on record as the executor of its steps. The same `instance` again is the same worker."""
    row, is_new = await work_of(request, engine).register(**body.model_dump())
    return Answer({"worker": worker_json(row)}, 201 if is_new else 200)


@routes.post(
    "/work/workers/{worker_id}/heartbeat",
    operation_id="beat_worker",
    summary="Send a heartbeat",
    response_model=None,
    responses=answers(Registered),
)
async def beat_worker(request: Request, engine: Engine, worker_id: WorkerId, body: Heartbeat | None = None) -> Answer:
    """With another `incarnation` than before, or in the state `shutdown`, everything that the worker held is lost."""
    said = body or Heartbeat()
    row = await work_of(request, engine).beat(worker_id, busy=said.busy, report=said.report)
    return Answer({"worker": worker_json(row)})


@routes.post(
    "/work/workers/{worker_id}/drain",
    operation_id="drain_worker",
    summary="Say that a worker claims no more",
    response_model=None,
    responses=answers(Registered),
)
async def drain_worker(request: Request, engine: Engine, worker_id: WorkerId) -> Answer:
    return Answer({"worker": worker_json(await work_of(request, engine).drain(worker_id))})


@routes.delete(
    "/work/workers/{worker_id}",
    operation_id="remove_worker",
    summary="Deregister a worker",
    response_model=None,
    responses=answers(Registered),
)
async def remove_worker(request: Request, engine: Engine, worker_id: WorkerId) -> Answer:
    """Report `released` for everything that it holds first: otherwise those steps wait for their leases."""
    return Answer({"worker": worker_json(await work_of(request, engine).leave(worker_id))})


@routes.post(
    "/work/workers/{worker_id}/claim",
    operation_id="claim_steps",
    summary="Claim ready steps",
    response_model=None,
    responses=answers(Claims),
)
async def claim_steps(request: Request, engine: Engine, worker_id: WorkerId, body: ClaimRequest) -> Answer:
    """Waits up to `wait_seconds` for work, and ends early when the service stops."""
    work, service = work_of(request, engine), service_of(request)

    async def is_gone() -> bool:
        return service.stopping.is_set() or await request.is_disconnected()

    async with waiting(request, body.wait_seconds):
        claims = await work.claim(
            worker_id,
            body.wanted(body.after, body.run_id),
            request=body.request_id,
            wait_seconds=body.wait_seconds,
            is_gone=is_gone,
        )
    return Answer({"claims": await _told(work, worker_id, claims, body.give, body.lease_us)})


@routes.post(
    "/work/workers/{worker_id}/renew",
    operation_id="renew_leases",
    summary="Renew leases",
    response_model=None,
    responses=answers(Renewals),
)
async def renew_leases(request: Request, engine: Engine, worker_id: WorkerId, body: RenewRequest) -> Answer:
    """A claim that is missing in the answer is lost: stop its handler. In a run that is `stopping`, stop it too."""
    leases = [Lease(engine.tenant, one.run_id, one.no, one.fence, one.lease_us) for one in body.leases]
    renewed = await work_of(request, engine).renew(worker_id, leases)
    told = [
        {"run_id": one.run_id, "no": one.no, "fence": one.fence, "run_state": one.run_state.value} for one in renewed
    ]
    return Answer({"renewed": told})


@routes.post(
    "/work/workers/{worker_id}/report",
    operation_id="report_outcomes",
    summary="Report outcomes",
    response_model=None,
    responses=answers(Replies),
)
async def report_outcomes(request: Request, engine: Engine, worker_id: WorkerId, body: ReportRequest) -> Answer:
    """In one transaction, each with its own reply. `fenced` means that the result was dropped: the lease was gone."""
    reports = [
        Report(run_id=one.run_id, no=one.no, fence=one.fence, outcome=outcome_of(one.outcome.given()))
        for one in body.reports
    ]
    work, claim = work_of(request, engine), body.claim
    wanted = None if claim is None else claim.wanted()
    replies, claims = await work.report(worker_id, reports, wanted, request=body.request_id)
    told: list[dict[str, Any]] = []
    if claim is not None:
        told = await _told(work, worker_id, claims, claim.give, claim.lease_us)
    return Answer({"replies": [reply_json(one) for one in replies], "claims": told})


@routes.post(
    "/work/workers/{worker_id}/checkpoint",
    operation_id="record_checkpoint",
    summary="Record a checkpoint of a running attempt",
    response_model=None,
    responses=answers(Replied),
)
async def record_checkpoint(request: Request, engine: Engine, worker_id: WorkerId, body: CheckpointRequest) -> Answer:
    """Later attempts of the step find it in their claim. Recorded under the fence of the claim, once for each name."""
    reply = await work_of(request, engine).checkpoint(
        worker_id, run_id=body.run_id, no=body.no, fence=body.fence, name=body.name, value=body.encoded()
    )
    return Answer({"reply": reply_json(reply)})


@routes.post(
    "/work/workers/{worker_id}/calls",
    operation_id="read_calls",
    summary="Read the recorded calls of a flow",
    response_model=None,
    responses=answers(RecordedCalls),
)
async def read_calls(request: Request, engine: Engine, worker_id: WorkerId, body: CallsRequest) -> Answer:
    """What a replay of the flow is given. With `following`, ask again with that as `start` and with `until`."""
    name = ClaimName(body.run_id, body.no, body.fence)
    page = await work_of(request, engine).calls(worker_id, name, start=body.start, until=body.until)
    return Answer(calls_json(page))


async def _told(
    work: RemoteWork, worker_id: str, claims: Sequence[Claim], give: str, lease_us: int | None
) -> list[dict[str, Any]]:
    if give == "rows":
        return [row_json(claim, await work.opened(claim), lease_us) for claim in claims]
    ready = await rendered_claims(work, worker_id, claims)
    return [{**claim_json(claim, lease_us), **data} for claim, data in ready]
