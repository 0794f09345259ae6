"""Reads server-sent events as a browser does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2


class Got(NamedTuple):
    id: str
    event: str
    data: Any


@asynccontextmanager
async def listening(client: httpx2.AsyncClient, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Got]]:
    """The events of a stream, as they come."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("GET", path, headers=named) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer)


async def _events(answer: httpx2.Response) -> AsyncIterator[Got]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Got(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


async def all_of(client: httpx2.AsyncClient, path: str, **headers: str) -> list[Got]:
    """The events of a stream until it ends."""
    async with listening(client, path, **headers) as events:
        return [one async for one in events]
