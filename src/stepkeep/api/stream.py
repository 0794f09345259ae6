"""Server-sent events: the journal of one run as it grows, with ids to resume from, heartbeats and an end.

An event is sent once its entry is committed, in order and without gaps: the id is the number of the entry, and a client
that comes back with `Last-Event-ID` gets what follows. A client that reads too slowly holds up no other: its own
connection waits. The key is checked again while a stream is open. `streams` of other things reuse `stream`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

import msgspec
from fastapi import Header
from fastapi.responses import StreamingResponse
from starlette.requests import Request

from stepkeep.api.bodies import As
from stepkeep.api.routing import Engine, router, service_of
from stepkeep.api.runs import RunId
from stepkeep.errors import InvalidInput, NotAllowed, StepkeepError
from stepkeep.operations.following import JournalFollower

log = logging.getLogger("stepkeep.api")

routes = router("Streams")

HEARTBEAT_SECONDS = 15.0
CHECK_SECONDS = 1.0
"""How often the key of an open stream is looked at again."""
RETRY_MILLISECONDS = 1000
PAGE = 200
SSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=200, description="The id of the last event that is known.")
]


class Event(msgspec.Struct, frozen=True):
    """One event: its id, its name and its data."""

    id: str
    name: str
    data: Any

    def encode(self) -> bytes:
        # JSON has no line breaks of its own, so that data is one line.
        return b"id: %s\nevent: %s\ndata: %s\n\n" % (
            self.id.encode(),
            self.name.encode(),
            msgspec.json.encode(self.data),
        )


def number_of(given: str | None) -> int:
    """The number of the last entry that a client knows; 0 without one."""
    if given is None:
        return 0
    if not given.isascii() or not given.isdigit() or len(given) > 13:
        raise InvalidInput("Last-Event-ID is the id of an event of this stream: a whole number.")
    return int(given)


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """The answer that streams these."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


@routes.get(
    "/runs/{run_id}/stream",
    operation_id="stream_run",
    summary="Follow the journal of a run",
    response_model=None,
    responses=SSE,
)
async def stream_run(
    request: Request, engine: Engine, run_id: RunId, as_: As = None, last_event_id: LastEventId = None
) -> StreamingResponse:
    """One event `entry` per journal entry, with its `seq` as id; `end` when the run has ended. With `as`, entries that
    the dialect does not show are left out."""
    follower = JournalFollower(engine.transactor, run_id, tenant=engine.tenant, dialect=as_)
    await follower.begin(number_of(last_event_id))

    async def entries() -> AsyncIterator[Event]:
        for one in await follower.read(PAGE):
            if one["lines"]:
                told = {name: value for name, value in one.items() if name != "body"}
                yield Event(str(one["seq"]), "entry", told)

    return event_stream(follow(request, engine, follower, entries))


async def follow(
    request: Request, engine: Engine, follower: JournalFollower, entries: Callable[[], AsyncIterator[Event]]
) -> AsyncIterator[bytes]:
    """The events of one run until it ends, the key ends, or the service stops."""
    service = service_of(request)
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    clock = asyncio.get_running_loop().time
    spoke_at = checked_at = clock()
    with service.watch.watching(engine.tenant, follower.run_id) as watched:
        while not service.stopping.is_set():
            try:
                before = follower.seq
                async for event in entries():
                    spoke_at = clock()
                    yield event.encode()
                if follower.is_over:
                    yield Event(str(follower.seq), "end", {"run_id": follower.run_id, "seq": follower.seq}).encode()
                    return
                if follower.seq == before:
                    await _wait(service.stopping, watched.beyond(before, CHECK_SECONDS))
                if clock() - checked_at >= CHECK_SECONDS:
                    checked_at = clock()
                    await engine.access.admit("log")
                if clock() - spoke_at >= HEARTBEAT_SECONDS:
                    spoke_at = clock()
                    yield b": still there\n\n"
            except NotAllowed:
                # The client comes back, and is told why it is refused.
                return
            except StepkeepError as problem:
                log.warning("the stream of run %s ends: %s", follower.run_id, problem)
                return


async def _wait(stopping: asyncio.Event, change: Coroutine[Any, Any, bool]) -> None:
    """Wait for a change, or until the service stops."""
    waits = [asyncio.ensure_future(one) for one in (change, stopping.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
