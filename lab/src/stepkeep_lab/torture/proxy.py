"""A proxy for PostgreSQL that breaks the connection around COMMIT: before it, after the answer, or without an answer.

It knows just enough of the protocol to see a COMMIT, or a write that is a transaction by itself. Each fault is counted
with the server's real answer, which the client has to find out.
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
ENDS = (COMMIT, b"rollback\0")
WRITES = b"changed_runs"
"""What the statement that writes decisions speaks of, and no other."""

DONE = (b"COMMIT\0", b"SELECT 1\0")
"""What the server says to either when it has done it."""
BROKEN = (OSError, asyncio.IncompleteReadError)


class Cut(StrEnum):
    """Where the line breaks."""

    BEFORE = "cut before COMMIT"
    AFTER = "cut after COMMIT"
    SILENT = "COMMIT answered by silence"


CUT = "commits cut"
"""All of them."""

WEIGHTS = (5, 5, 1)
"""Silence costs the client seconds, so it is rarer."""


class Frames:
    """What a client sends, message by message; the parts of a write that commits by itself come as one."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._writers: set[bytes] = set()
        self._in_transaction = False

    async def next(self) -> tuple[bytes, bool]:
        """The next message, and whether it is to be committed when it is done."""
        kind, body, message = await self._frame()
        if kind == b"Q":
            if body.lower().startswith(b"begin"):
                self._in_transaction = True
            elif body.lower() in ENDS:
                self._in_transaction = False
            return message, body.lower() == COMMIT
        if kind == b"P" and WRITES in body:
            self._writers.add(body.partition(b"\0")[0])
        if kind != b"B" or self._in_transaction or body.split(b"\0", 2)[1] not in self._writers:
            return message, False
        while kind != b"S":
            kind, _, more = await self._frame()
            message += more
        return message, True

    async def _frame(self) -> tuple[bytes, bytes, bytes]:
        head = await self._reader.readexactly(HEADER)
        body = await self._reader.readexactly(int.from_bytes(head[1:]) - 4)
        return head[:1], body, head + body


class Proxy:
    """Cuts a share of all commits while `rate` is above nothing, and counts each cut under its name."""

    def __init__(self, upstream: str, rng: random.Random, cuts: Counter[str]) -> None:
        self._upstream, self._rng, self._cuts = upstream, rng, cuts
        self.rate = 0.0
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
            frames = Frames(reader)
            while True:
                message, commits = await frames.next()
                if commits:
                    self.commits += 1
                    if self._rng.random() < self.rate:
                        await self._break(
                            self._rng.choices(list(Cut), WEIGHTS)[0], message, answers, up_reader, up_writer
                        )
                        return
                up_writer.write(message)
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
            answer = await up_reader.read(4096)
            if not any(said in answer for said in DONE):
                return
        self._cuts[str(cut)] += 1
        self._cuts[CUT] += 1
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
async def proxy(upstream: str, rng: random.Random, cuts: Counter[str]) -> AsyncIterator[tuple[Proxy, int]]:
    """A proxy on a port of the loopback interface; yields it and the port."""
    made = Proxy(upstream, rng, cuts)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    try:
        yield made, int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await made.hang_up()
        await server.wait_closed()
