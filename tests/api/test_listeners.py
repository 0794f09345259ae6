"""Many listeners of one process: each gets every event, in order, and a listener that does not read is cut alone."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import AsyncIterator

import pytest

from tests.api.stage import HELLO, on
from tests.databases import migrated_file
from tests.suites import in_proof

RUNS = 10


@pytest.fixture
def many_files() -> None:
    """As many open files as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def lines(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, object]]:
    """The data of each event of a stream."""
    while line := await reader.readline():
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("count", [50, in_proof(1000)])
async def test_every_listener_gets_every_event_in_order(count: int, tmp_path: object, many_files: None) -> None:
    async with on(migrated_file(tmp_path / "s.db")) as stage:
        await stage.publish(HELLO)
        key = await stage.key()
        async with stage.serving(key) as client:
            host, port = client.base_url.host, client.base_url.port
            request = f"GET /stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
            opened = []
            for _ in range(count):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(request)
                opened.append((lines(reader), writer))
            for stream, _ in opened:
                assert "tenant" in await anext(stream)
            assert stage.app.service.tailer.listeners == count
            runs = [(await client.post("/runs", json={"workflow": "hello"})).json()["run_id"] for _ in range(RUNS)]

            async def read(stream: AsyncIterator[dict[str, object]]) -> list[tuple[object, object]]:
                return [((told := await anext(stream))["run_id"], told["seq"]) for _ in range(RUNS)]

            async with asyncio.timeout(120):
                got = await asyncio.gather(*(read(stream) for stream, _ in opened))
            assert all(one == [(run, 1) for run in runs] for one in got)
            for _, writer in opened:
                writer.close()
