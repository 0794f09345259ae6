"""Packs JSON answers with gzip for clients that take it. Streams and small answers stay as they are.

Pure ASGI, between the envelope and the routes. It changes no status and no content. `app` installs it.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import MutableMapping
from typing import Any, Final

from stepkeep.api.envelope import App, Message, Receive, Send

SMALLEST_PACKED: Final = 2_048
"""A smaller answer fits the same few packets."""
LARGEST_AT_ONCE: Final = 65_536
"""A larger one is packed in a thread, because other requests wait meanwhile."""
LEVEL: Final = 3
"""More costs three times the CPU for a tenth of the bytes."""


class Packing:
    """Packs what one application answers to GET requests."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or not _takes_gzip(scope["headers"]):
            return await self._app(scope, receive, send)
        held: Message | None = None

        async def packing(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and _is_json(message):
                held = message  # whether it is packed depends on the body
                return
            if held is not None:
                start, held = held, None
                body = message.get("body", b"")
                if not message.get("more_body") and len(body) >= SMALLEST_PACKED:
                    message = {**message, "body": await _packed(body)}
                    start["headers"] = _headers(start["headers"], len(message["body"]))
                await send(start)
            await send(message)

        return await self._app(scope, receive, packing)


async def _packed(body: bytes) -> bytes:
    if len(body) > LARGEST_AT_ONCE:
        return await asyncio.to_thread(gzip.compress, body, LEVEL, mtime=0)
    return gzip.compress(body, LEVEL, mtime=0)


def _headers(given: Any, length: int) -> list[tuple[bytes, bytes]]:
    own = [(name, value) for name, value in given if name.lower() != b"content-length"]
    packed = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
    return [*own, *packed, (b"content-length", str(length).encode())]


def _takes_gzip(headers: Any) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in headers)


def _is_json(message: Message) -> bool:
    named = dict(message.get("headers", ()))
    return b"json" in named.get(b"content-type", b"") and b"content-encoding" not in named
