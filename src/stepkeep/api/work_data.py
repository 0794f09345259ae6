"""What remote workers read: queues, definitions, data of the runs they hold, the allow list, and notices.

Data of a run is given while the worker holds a step of it; otherwise the run is not there. docs/remote-workers.md is
the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import Path
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import RUN_ID, Anything, Body
from stepkeep.api.routing import Answer, Engine, answers, router, service_of
from stepkeep.api.stream import CHECK_SECONDS, HEARTBEAT_SECONDS, RETRY_MILLISECONDS, SSE, event_stream
from stepkeep.api.work import WorkerId, work_of
from stepkeep.api.work_bodies import MAX_NUMBER, definition_json
from stepkeep.kernel.errors import StepkeepError
from stepkeep.store.protocol import Notification

routes = router("Remote workers")

MOST_WAITING = 1000
"""Notices that a slow worker has not read. Beyond these it is told that anything may be ready."""

DefinitionId = Annotated[int, Path(ge=0, le=MAX_NUMBER)]


class Queues(BaseModel):
    """The tenant and the owner of the key, and the queues of the tenant."""

    tenant: str
    owner: str | None
    queues: list[Anything]


class Network(BaseModel):
    """The allow list of the tenant."""

    allow: list[str]


class StoredOne(BaseModel):
    """A definition as it is stored."""

    definition: Anything


class OneRun(Body):
    """What of a run is read."""

    run_id: str = Field(max_length=36)
    details: bool = False
    outputs: list[int] = Field(default=[], max_length=10_000, description="Numbers of steps.")
    states: bool = False


class InputsRequest(Body):
    """Runs of which the worker holds a step."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"runs": [{"run_id": RUN_ID, "details": True}]}]})

    runs: list[OneRun] = Field(min_length=1, max_length=1000)


class RunData(BaseModel):
    """What was read of each run."""

    runs: list[Anything]


class OneEvidence(Body):
    """Why an attempt failed."""

    run_id: str = Field(max_length=36)
    no: int = Field(ge=0, le=MAX_NUMBER)
    fence: int = Field(ge=0, le=MAX_NUMBER)
    evidence: Anything = Field(description="`traceback`, `inputs`, `log`: what the worker wants to keep.")


class EvidenceRequest(Body):
    """Evidence of attempts that the worker has ended."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"evidence": [{"run_id": RUN_ID, "no": 0, "fence": 1, "evidence": {"log": ["INFO a"]}}]}]
        }
    )

    evidence: list[OneEvidence] = Field(min_length=1, max_length=1000)


class Kept(BaseModel):
    """Of how many attempts evidence was kept; those of other workers are left out."""

    kept: int


@routes.get(
    "/work/queues",
    operation_id="list_queues",
    summary="List the queues of the tenant",
    response_model=None,
    responses=answers(Queues),
)
async def list_queues(request: Request, engine: Engine) -> Answer:
    known = await work_of(request, engine).queues()
    told = [
        {
            "number": number,
            "kind": spec.kind,
            "name": spec.name,
            "capabilities": list(spec.capabilities),
            "group": spec.group,
        }
        for number, spec in known.items()
    ]
    return Answer({"tenant": engine.tenant, "owner": engine.access.owner, "queues": told})


@routes.get(
    "/work/network",
    operation_id="list_reachable",
    summary="What HTTP steps of the tenant may reach",
    response_model=None,
    responses=answers(Network),
)
async def list_reachable(request: Request, engine: Engine) -> Answer:
    return Answer({"allow": await work_of(request, engine).network()})


@routes.get(
    "/work/definitions/{definition_id}",
    operation_id="read_stored_definition",
    summary="One stored definition by its number",
    response_model=None,
    responses=answers(StoredOne),
)
async def read_stored_definition(request: Request, engine: Engine, definition_id: DefinitionId) -> Answer:
    """`document` is the text that `digest` is over."""
    return Answer({"definition": definition_json(await work_of(request, engine).definition(definition_id))})


@routes.post(
    "/work/workers/{worker_id}/inputs",
    operation_id="read_inputs",
    summary="Read data of runs of which the worker holds a step",
    response_model=None,
    responses=answers(RunData),
)
async def read_inputs(request: Request, engine: Engine, worker_id: WorkerId, body: InputsRequest) -> Answer:
    work = work_of(request, engine)
    details = await work.details(worker_id, [one.run_id for one in body.runs if one.details])
    wants = [(one.run_id, no) for one in body.runs for no in one.outputs]
    outputs = await work.outputs(worker_id, wants) if wants else {}
    told = []
    for one in body.runs:
        found: dict[str, Any] = {"run_id": one.run_id}
        if one.details and (detail := details.get(one.run_id)) is not None:
            found["details"] = {
                **msgspec.to_builtins(msgspec.structs.replace(detail, input=b"")),
                "input": msgspec.Raw(detail.input),
            }
        if one.outputs:
            found["outputs"] = [
                {"no": no, "output": None if (output := outputs.get((one.run_id, no))) is None else msgspec.Raw(output)}
                | ({"absent": True} if output is None else {})
                for no in one.outputs
            ]
        if one.states:
            found["steps"] = [msgspec.to_builtins(step) for step in await work.states(worker_id, one.run_id)]
        told.append(found)
    return Answer({"runs": told})


@routes.post(
    "/work/workers/{worker_id}/evidence",
    operation_id="keep_evidence",
    summary="Keep evidence of attempts that the worker has ended",
    response_model=None,
    responses=answers(Kept),
)
async def keep_evidence(request: Request, engine: Engine, worker_id: WorkerId, body: EvidenceRequest) -> Answer:
    found = [(one.run_id, one.no, one.fence, msgspec.json.encode(one.evidence)) for one in body.evidence]
    return Answer({"kept": await work_of(request, engine).evidence(worker_id, found)})


@routes.get(
    "/work/workers/{worker_id}/notices",
    operation_id="listen_for_work",
    summary="Follow what is ready, and what must stop",
    response_model=None,
    responses=SSE,
)
async def listen_for_work(request: Request, engine: Engine, worker_id: WorkerId) -> StreamingResponse:
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
        clock = asyncio.get_running_loop().time
        spoke_at = checked_at = clock()
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
                    spoke_at = clock()
                    yield _notice(told)
                if clock() - checked_at >= CHECK_SECONDS:
                    checked_at = clock()
                    await engine.access.admit("work.listen")
                if clock() - spoke_at >= HEARTBEAT_SECONDS:
                    spoke_at = clock()
                    yield b": still there\n\n"
        except StepkeepError:
            return  # the worker comes back, and is told why it is refused
        finally:
            unsubscribe()

    return event_stream(request, notices())


def _notice(told: dict[str, Any]) -> bytes:
    return b"event: notice\ndata: %s\n\n" % msgspec.json.encode(told)
