"""Reads what a client sends, within limits: headers, the body while it streams, and JSON without surprises.

A body is counted as it arrives, so that one without a length cannot fill the memory. JSON with a duplicate key, NaN,
too many levels or a number that no store keeps is refused. It decides nothing else. `routing` calls it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import Any, Final, NoReturn

from starlette.requests import ClientDisconnect, Request

from stepkeep.api.problems import HEADERS, MEDIA, TIMEOUT, TOO_LARGE, ApiError
from stepkeep.definition.text.json_text import strict_json
from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.aside import aside
from stepkeep.operations.in_child import SMALL_BYTES, in_child
from stepkeep.operations.typed import LargePart
from stepkeep.worker.attempts.payloads import Unstorable, encode

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_TARGET_BYTES: Final = 8 * 1024
BODY_SECONDS: Final = 30.0
"""How long a body may take to arrive."""
FIRST_SECONDS: Final = 5.0
"""How long it may take longer than at the slowest rate."""
SLOWEST_RATE: Final = 1_000
"""Bytes a second."""

JSON_TYPES: Final = ("application/json",)


class BoundedRequest(Request):
    """A request whose body is read once, counted while it streams, and whose JSON was checked before any model."""

    charge: Callable[[int], Awaitable[None]] | None = None
    """Counts the bytes of the body for the tenant of the caller."""

    @property
    def share(self) -> str:
        """Whose turn it is when work waits: the tenant of the key, or the address of a caller without one."""
        caller = getattr(self.state, "caller", None)
        return caller.access.tenant if caller is not None else f"from {self.client.host if self.client else ''}"

    async def read(self, *, media_types: Iterable[str] = JSON_TYPES, limit: int = MAX_BODY_BYTES) -> bytes:
        """The body, in one of these media types; empty if there is none."""
        check_headers(self)
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise ApiError(MEDIA, "Compressed bodies are not read. Send it without Content-Encoding.")
        body = await self._receive_body(limit)
        given = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and given not in media_types:
            known = " or ".join(media_types)
            raise ApiError(MEDIA, f"Send the body as {known}, and say so in Content-Type.")
        self._body = body
        return body

    async def read_raw(self, *, limit: int = MAX_BODY_BYTES) -> bytes:
        """The body as it came over the line, whatever its media type says."""
        check_headers(self)
        return await self._receive_body(limit)

    async def read_json(self, default: Any = None) -> Any:
        """The checked value of a JSON body; the default if there is none."""
        body = await self.read()
        if len(body) > SMALL_BYTES:
            return await aside(self.share, read_large, body)
        return strict_json(body) if body else default

    async def _receive_body(self, limit: int) -> bytes:
        length = self.headers.get("content-length", "")
        said = int(length[:20]) if length.isdigit() else None
        if said is not None:
            if said > limit:
                _refuse_size(limit)
            await self._charge(said)  # before it is read: a tenant that has used up its share costs no more
        seat, parts, size = self.scope["state"].get("seat"), [], 0
        try:
            async with nullcontext() if seat is None else seat.moved("bodies"):
                async with asyncio.timeout(BODY_SECONDS) as patience:
                    began = asyncio.get_running_loop().time()
                    patience.reschedule(began + FIRST_SECONDS)
                    async for part in self.stream():
                        size += len(part)
                        if size > limit:
                            _refuse_size(limit)
                        parts.append(part)
                        patience.reschedule(began + min(BODY_SECONDS, FIRST_SECONDS + size / SLOWEST_RATE))
        except TimeoutError:
            late = f"The body did not arrive within {BODY_SECONDS:.0f} s, or slower than {SLOWEST_RATE} bytes a second."
            raise ApiError(TIMEOUT, late) from None
        except ClientDisconnect:  # the client is gone; the line about the request has its status
            raise ApiError(TIMEOUT, "The client went away before the whole body had arrived.") from None
        if said is None:
            await self._charge(size)
        return b"".join(parts)

    async def _charge(self, size: int) -> None:
        if self.charge is not None:
            await self.charge(size)


ONCE: Final = frozenset({b"authorization", b"host", b"idempotency-key", b"origin", b"x-csrf-token"})
"""Headers that a request has once at most: a proxy might go by the last one where the service goes by the first."""


def check_headers(request: Request) -> None:
    """Refuse headers and targets beyond the limits, and a second header where one decides."""
    headers = request.headers.raw
    deciding = [name for name, _ in headers if name in ONCE]
    if len(deciding) > len(set(deciding)):
        twice = max(deciding, key=deciding.count).decode()
        raise InvalidInput(f"the request has the header {twice} more than once. Send it once.")
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise ApiError(HEADERS, f"At most {MAX_HEADERS} headers with {MAX_HEADER_BYTES} bytes in all are read.")
    if len(request.scope.get("raw_path", b"")) + len(request.scope.get("query_string", b"")) > MAX_TARGET_BYTES:
        raise ApiError(HEADERS, f"An address has at most {MAX_TARGET_BYTES} bytes.")


def _refuse_size(limit: int) -> NoReturn:
    raise ApiError(TOO_LARGE, f"A body has at most {limit:,} bytes. Keep large values elsewhere and pass their names.")


def read_large(body: bytes) -> Any:
    """The checked value of a body; large parts of an object are `LargePart`."""
    return in_child(checked, body)


def checked(body: bytes) -> Any:
    """The same, in the child."""
    value = strict_json(body)
    if isinstance(value, dict):
        return {name: _packed(one) for name, one in value.items()}
    return type(value)()  # no route has such a body: what it holds is of no interest


def _packed(one: Any) -> Any:
    if not isinstance(one, dict | list | str):
        return one
    try:
        encoded = encode(one, what="what was passed", limit=sys.maxsize, is_json=True)
    except Unstorable as problem:
        return LargePart(b"", str(problem), one)
    return LargePart(encoded) if len(encoded) > SMALL_BYTES else one
