"""Durable streams of runs: `engine.streams` lists and reads them, `engine.tail` follows them while they grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from msgspec import Meta

from stepkeep.engine.base import AsyncBase, AsyncGroup
from stepkeep.engine.blocking import Blocking, blocking
from stepkeep.kernel.machine.bounds import INT
from stepkeep.operations.access import READ
from stepkeep.operations.answers import says
from stepkeep.operations.operation import Name, PageLimit, RunId, group, operation
from stepkeep.operations.streams import reading
from stepkeep.operations.streams.reading import StreamList, StreamPage, StreamPiece, StreamReader
from stepkeep.operations.streams.tailing import follow

BEAT_SECONDS = 5.0
"""How long a follower waits at once."""

StreamName = Annotated[str, Meta(max_length=100, description="The name of a stream; `*` for all of them.")]
StepOfStream = Annotated[Name | None, says("Only what this step has written.")]
After = Annotated[int, Meta(ge=0, le=INT, description="The number of the last piece that is known; 0 at first.")]


@group("streams", "Streams")
class AsyncStreams(AsyncGroup):
    """Durable streams of runs. A handler writes one with `ctx.stream("tokens").write(chunk)`.

    >>> engine.streams.list(engine.run(hello, {"name": "Ada"}).run_id).streams
    []
    """

    @operation(READ, "GET /runs/{run_id}/streams", "list_streams", "The streams of a run", agents="reads")
    async def list(self, run_id: RunId) -> StreamList:
        """The streams of a run, by step and name, with how much they have. `log` has what its handlers logged.

        >>> engine.streams.list(engine.run(hello, {"name": "Ada"}).run_id).streams
        []
        """
        return await reading.list_streams(self._transactor, self._tenant, run_id)

    @operation(
        READ,
        "GET /runs/{run_id}/streams/{name}/pieces",
        "read_stream",
        "Read a part of a stream",
        agents="reads",
    )
    async def read(
        self, run_id: RunId, name: StreamName, *, step: StepOfStream = None, after: After = 0, limit: PageLimit = 100
    ) -> StreamPage:
        """What was written, in order, from a piece on. Read again with the `after` of the page until it is `over`.

        A new attempt of a step replaces what earlier ones wrote, or goes on after a chunk of them: its first piece has
        `restart` where chunks that were read do not count any more.

        >>> engine.streams.read(engine.run(hello, {"name": "Ada"}).run_id, "tokens").pieces
        []
        """
        given = None if name == reading.ALL else name
        return await reading.read_page(self._transactor, self._tenant, run_id, given, step, after, limit)


class Streams(Blocking[AsyncStreams]):
    list, read = blocking(AsyncStreams.list), blocking(AsyncStreams.read)


class AsyncTailing(AsyncBase):
    """The part of an engine that follows streams."""

    async def tail(
        self, run_id: str, name: str | None = None, *, step: str | None = None, after: int = 0
    ) -> AsyncIterator[StreamPiece]:
        """The pieces of a stream of a run as it grows, or of all its streams, until the run has ended.

        All who follow streams in this process share one reader of the database. One that does not keep up is ended with
        CutOff; it may come back with the number of its last piece.
        """
        await self.access.admit("streams.read")
        reader = StreamReader(self.transactor, self.tenant, run_id, name, step, after)
        async for pieces in follow(reader, self.stream_tail, BEAT_SECONDS):
            for piece in pieces:
                yield piece


class Tailing:
    """The same without an event loop."""

    def tail(
        self, run_id: str, name: str | None = None, *, step: str | None = None, after: int = 0
    ) -> Iterator[StreamPiece]:
        """The pieces of a stream of a run as it grows, or of all its streams, until the run has ended.

        >>> done = engine.run(hello, {"name": "Ada"})
        >>> list(engine.tail(done.run_id))
        []
        """
        host: Any = self
        pieces = host._core.tail(run_id, name, step=step, after=after)

        async def following() -> StreamPiece | None:
            found: StreamPiece | None = await anext(pieces, None)
            return found

        while (piece := host._call(following())) is not None:
            yield piece
