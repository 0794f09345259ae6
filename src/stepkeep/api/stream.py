"""Server-sent events: the journal of one run as it grows, with ids to resume from, heartbeats and an end.

An event is sent once its entry is committed, in order and without gaps: the id is the number of the entry, and a client
that comes back with `Last-Event-ID` gets what follows. A client that reads too slowly holds up no other: its own
connection waits. The key is checked again while a stream is open. `streams` of other things reuse `stream`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import StreamingResponse

from stepkeep.api.handwritten import As, Routes
from stepkeep.api.routing import seat_of, service_of
from stepkeep.engine.groups import ActingEngine
from stepkeep.engine.streams import StepOfStream, StreamName
from stepkeep.kernel.errors import InvalidInput, NotAllowed, StepkeepError
from stepkeep.operations.answers import says
from stepkeep.operations.operation import RunId
from stepkeep.operations.runs.following import JournalFollower
from stepkeep.operations.runs.tailing import Listener, TenantTail
from stepkeep.operations.streams.reading import ALL, StreamReader
from stepkeep.operations.streams.tailing import CutOff
from stepkeep.operations.streams.tailing import follow as follow_pieces

log = logging.getLogger("stepkeep.api")

routes = Routes("Streams")

HEARTBEAT_SECONDS = 15.0
CHECK_SECONDS = 0.4
"""How often the key of an open stream is looked at again."""
RETRY_MILLISECONDS = 1000
PAGE = 200
EVENTS = {"done": "Server-sent events", "media": "text/event-stream"}

LastEventId = Annotated[Annotated[str, Meta(max_length=200)] | None, says("The id of the last event that is known.")]


class StreamEvent(msgspec.Struct, frozen=True):
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


def event_stream(request: Request, events: AsyncIterator[bytes]) -> StreamingResponse:
    """The answer that streams these."""
    if (seat := seat_of(request)) is not None:
        seat.move("streams")
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


class Pulse:
    """Keeps a stream open: looks at its key again now and then, and says something to a client that hears nothing."""

    def __init__(self, engine: ActingEngine, operation: str) -> None:
        self._access, self._operation = engine.access, operation
        self._clock = asyncio.get_running_loop().time
        self._spoke_at = self._checked_at = self._clock()

    def spoke(self, told: bytes) -> bytes:
        """What is sent now."""
        self._spoke_at = self._clock()
        return told

    async def beat(self) -> bytes:
        """What is to be sent besides events; raises NotAllowed once the key has ended."""
        if self._clock() - self._checked_at >= CHECK_SECONDS:
            self._checked_at = self._clock()
            await self._access.admit(self._operation)
        return self.spoke(b": still there\n\n") if self._clock() - self._spoke_at >= HEARTBEAT_SECONDS else b""


@routes("GET /runs/{run_id}/stream", "log", "stream_run", "Follow the journal of a run", **EVENTS)
async def stream_run(
    request: Request, engine: ActingEngine, run_id: RunId, as_: As = None, last_event_id: LastEventId = None
) -> StreamingResponse:
    """One event `entry` per journal entry, with its `seq` as id; `end` when the run has ended. With `as`, entries that
    the dialect does not show are left out."""
    follower = JournalFollower(engine.transactor, run_id, tenant=engine.tenant, dialect=as_)
    await follower.begin(number_of(last_event_id))

    async def entries() -> AsyncIterator[StreamEvent]:
        for one in await follower.read(PAGE):
            if one["lines"]:
                told = {name: value for name, value in one.items() if name != "body"}
                yield StreamEvent(str(one["seq"]), "entry", told)

    return event_stream(request, follow(request, engine, follower, entries))


async def follow(
    request: Request, engine: ActingEngine, follower: JournalFollower, entries: Callable[[], AsyncIterator[StreamEvent]]
) -> AsyncIterator[bytes]:
    """The events of one run until it ends, the key ends, or the service stops."""
    service = service_of(request)
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    pulse = Pulse(engine, "log")
    with service.watch.watching(engine.tenant, follower.run_id) as watched:
        while not service.stopping.is_set():
            try:
                before = follower.seq
                async for event in entries():
                    yield pulse.spoke(event.encode())
                if follower.is_over:
                    end = {"run_id": follower.run_id, "seq": follower.seq}
                    yield StreamEvent(str(follower.seq), "end", end).encode()
                    return
                if follower.seq == before:
                    await watched.beyond(before, CHECK_SECONDS)
                if beat := await pulse.beat():
                    yield beat
            except NotAllowed:
                # The client comes back, and is told why it is refused.
                return
            except StepkeepError as problem:
                log.warning("the stream of run %s ends: %s", follower.run_id, problem)
                return


@routes("GET /runs/{run_id}/streams/{name}", "streams.read", "tail_stream", "Follow a stream of a run", **EVENTS)
async def tail_stream(
    request: Request,
    engine: ActingEngine,
    run_id: RunId,
    name: StreamName,
    step: StepOfStream = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """One event `piece` for chunks that were written together, with its number as id; `end` when the run has ended.
    With `*` as name, all streams of the run. A client that does not keep up gets `cut`, and may come back."""
    given = None if name == ALL else name
    reader = StreamReader(engine.transactor, engine.tenant, run_id, given, step, number_of(last_event_id))
    await reader.begin()  # refuses what is not there
    return event_stream(request, _tail(request, engine, reader))


async def _tail(request: Request, engine: ActingEngine, reader: StreamReader) -> AsyncIterator[bytes]:
    service, pulse = service_of(request), Pulse(engine, "streams.read")
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    try:
        async for pieces in follow_pieces(reader, engine.stream_tail, CHECK_SECONDS):
            for piece in pieces:
                yield pulse.spoke(StreamEvent(str(piece.number), "piece", piece).encode())
            if beat := await pulse.beat():
                yield beat
            if service.stopping.is_set():
                return
        yield StreamEvent(str(reader.after), "end", {"run_id": reader.run_id}).encode()
    except NotAllowed:
        return  # the client comes back, and is told why it is refused
    except CutOff as problem:
        service.measures.cut += 1
        yield StreamEvent(str(problem.number), "cut", {"run_id": reader.run_id, "why": str(problem)}).encode()
    except StepkeepError as problem:
        log.warning("the stream of chunks of run %s ends: %s", reader.run_id, problem)


@routes("GET /stream", "log", "stream_tenant", "Follow the journals of all runs", **EVENTS)
async def stream_tenant(request: Request, engine: ActingEngine, last_event_id: LastEventId = None) -> StreamingResponse:
    """One event `entry` per journal entry of the tenant, in order per run, from now on or after `Last-Event-ID`. After
    a resumption an entry may be told again: ignore a `seq` that is not higher than the last one of its run."""
    tail = None
    if last_event_id is not None:
        tail = TenantTail(engine.transactor, engine.tenant, last_event_id)
        await engine.store.read_tail(engine.tenant, last_event_id, 1)  # refuses what is no position
    return event_stream(request, _follow_tenant(request, engine, tail))


async def _follow_tenant(request: Request, engine: ActingEngine, tail: TenantTail | None) -> AsyncIterator[bytes]:
    service = service_of(request)
    pulse = Pulse(engine, "log")
    try:
        async with service.tailer.listening(engine.tenant) as (listener, position):
            # The first event tells where the stream begins, so that a client that gets nothing else can resume, too.
            told: Mapping[str, Any] | None = {"tenant": engine.tenant}
            begins = position if tail is None else tail.position
            yield b"retry: %d\n\n" % RETRY_MILLISECONDS + StreamEvent(begins, "begin", told).encode()
            known: dict[str, int] = {}
            while tail is not None and (missed := await tail.read()):
                for one in missed:
                    known[one["run_id"]] = one["seq"]
                    yield _entry(one)
            while not service.stopping.is_set():
                told = await _next(listener)
                if listener.is_cut:
                    service.measures.cut += 1
                    log.warning("a stream of tenant %s is cut off: its client does not keep up", engine.tenant)
                    return
                if told is not None and told["seq"] > known.get(told["run_id"], 0):
                    yield pulse.spoke(_entry(told))
                if beat := await pulse.beat():
                    yield beat
    except NotAllowed:
        return  # the client comes back, and is told why it is refused
    except StepkeepError as problem:
        log.warning("a stream of tenant %s ends: %s", engine.tenant, problem)


def _entry(told: Mapping[str, Any]) -> bytes:
    return StreamEvent(told["position"], "entry", {name: told[name] for name in told if name != "position"}).encode()


async def _next(listener: Listener) -> Mapping[str, Any] | None:
    """The next entry; None if none came for a while."""
    if not listener.queue.empty():
        return listener.queue.get_nowait()
    try:
        # No task is made for it: a thousand listeners wait here, twice a second each.
        async with asyncio.timeout(CHECK_SECONDS):
            return await listener.queue.get()
    except TimeoutError:
        return None
