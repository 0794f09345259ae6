"""What remote workers read: queues, definitions, data of the runs they hold, the allow list, and notices.

Data of a run is given while the worker holds a step of it; otherwise the run is not there. docs/remote-workers.md is
the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from stepkeep.api.handwritten import Routes
from stepkeep.api.routing import service_of
from stepkeep.api.stream import CHECK_SECONDS, EVENTS, RETRY_MILLISECONDS, Pulse, event_stream
from stepkeep.api.work import ATTEMPT, WorkerId, work_of
from stepkeep.engine.groups import ActingEngine
from stepkeep.kernel.errors import StepkeepError
from stepkeep.operations.operation import RUN_ID
from stepkeep.operations.remote.remote_work import Number
from stepkeep.operations.remote.work_messages import (
    Kept,
    Network,
    Queues,
    RunData,
    StoredOne,
    queues_of,
    run_data,
    stored,
)
from stepkeep.store.protocol import Notification
from stepkeep.worker.remote.requests import EvidenceRequest, InputsRequest

routes = Routes("Remote workers")

MOST_WAITING = 1000
"""Notices that a slow worker has not read. Beyond these it is told that anything may be ready."""


@routes("GET /work/queues", "work.queues", "list_queues", "List the queues of the tenant")
async def list_queues(request: Request, engine: ActingEngine) -> Queues:
    known = await work_of(request, engine).queues()
    return Queues(tenant=engine.tenant, owner=engine.access.owner, queues=queues_of(known))


@routes("GET /work/network", "work.network", "list_reachable", "What HTTP steps of the tenant may reach")
async def list_reachable(request: Request, engine: ActingEngine) -> Network:
    return Network(allow=await work_of(request, engine).network())


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
