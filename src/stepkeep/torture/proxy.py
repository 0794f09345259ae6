"""A line to PostgreSQL that breaks around COMMIT: before the server has heard it, after it has answered, or in silence.

It speaks just enough of the protocol to see a COMMIT pass. What it did to each is counted, because the server's answer
that it kept to itself is the truth which the client has to find out.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum

HEADER = 5
COMMIT = b"commit\0"
BROKEN = (OSError, asyncio.IncompleteReadError)


class Cut(StrEnum):
    """Where the line breaks."""

    BEFORE = "cut before COMMIT"
    AFTER = "cut after COMMIT"
    SILENT = "COMMIT answered by silence"


WEIGHTS = (5, 5, 1)
"""Silence costs the client seconds, so it is rarer."""


class Proxy:
    """Cuts a share of all commits while `rate` is above nothing."""

    def __init__(self, upstream: str, rng: random.Random) -> None:
        self._upstream, self._rng = upstream, rng
        self.rate = 0.0
        self.cuts: Counter[Cut] = Counter()
        self.commits = 0
        self._lines: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        try:
            await self._carry(reader, writer)
        except (*BROKEN, asyncio.CancelledError):
            pass
        finally:
            self._lines.discard(task)
            with suppress(RuntimeError):
                writer.close()

    async def hang_up(self) -> None:
        lines = list(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(self._upstream)
        answers = asyncio.create_task(_pump(up_reader, writer))
        try:
            length = await reader.readexactly(4)
            up_writer.write(length + await reader.readexactly(int.from_bytes(length) - 4))
            while True:
                head = await reader.readexactly(HEADER)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if head[:1] == b"Q" and body.lower() == COMMIT:
                    self.commits += 1
                    if self._rng.random() < self.rate:
                        await self._break(
                            self._rng.choices(list(Cut), WEIGHTS)[0], head + body, answers, up_reader, up_writer
                        )
                        return
                up_writer.write(head + body)
                await up_writer.drain()
        finally:
            answers.cancel()
            up_writer.close()

    async def _break(
        self,
        cut: Cut,
        message: bytes,
        answers: asyncio.Task[None],
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        if cut is not Cut.BEFORE:
            # From here on the answers are for us alone.
            answers.cancel()
            with suppress(asyncio.CancelledError):
                await answers
            up_writer.write(message)
            await up_writer.drain()
            if b"COMMIT\0" not in await up_reader.read(4096):
                return
        self.cuts[cut] += 1
        if cut is Cut.SILENT:
            await asyncio.sleep(3600)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(*BROKEN):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(RuntimeError):
        writer.close()


@asynccontextmanager
async def proxy(upstream: str, rng: random.Random) -> AsyncIterator[tuple[Proxy, int]]:
    """A proxy on a port of the loopback interface; yields it and the port."""
    made = Proxy(upstream, rng)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield made, int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await made.hang_up()
        await server.wait_closed()
