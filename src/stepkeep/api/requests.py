"""Reads what a client sends, within limits: headers, the body while it streams, and JSON without surprises.

A body is counted as it arrives, so that one without a length cannot fill the memory. JSON with a duplicate key, NaN,
too many levels or a number that no store keeps is refused. It decides nothing else. `routing` calls it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from starlette.requests import ClientDisconnect, Request

from stepkeep.api.problems import HEADERS, MEDIA, TIMEOUT, TOO_LARGE, ApiError
from stepkeep.errors import InvalidInput

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_TARGET_BYTES: Final = 8 * 1024
MAX_DEPTH: Final = 72
"""Levels of a JSON body. A payload may have 64; the body around it has a few more."""
LONGEST_NUMBER: Final = 40
BODY_SECONDS: Final = 30.0
"""How long a body may take to arrive."""

JSON_TYPES: Final = ("application/json",)


class BoundedRequest(Request):
    """A request whose body is read once, counted while it streams, and whose JSON was checked before any model."""

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
        return strict_json(body) if body else default

    async def _receive_body(self, limit: int) -> bytes:
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > limit:
            _refuse_size(limit)
        parts, size = [], 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in self.stream():
                    size += len(part)
                    if size > limit:
                        _refuse_size(limit)
                    parts.append(part)
        except TimeoutError:
            raise ApiError(TIMEOUT, f"The body did not arrive within {BODY_SECONDS:.0f} s.") from None
        except ClientDisconnect:  # the client is gone; the line about the request has its status
            raise ApiError(TIMEOUT, "The client went away before the whole body had arrived.") from None
        return b"".join(parts)


def check_headers(request: Request) -> None:
    """Refuse headers and targets beyond the limits."""
    headers = request.headers.raw
    if len(headers) > MAX_HEADERS or sum(len(name) + len(value) for name, value in headers) > MAX_HEADER_BYTES:
        raise ApiError(HEADERS, f"At most {MAX_HEADERS} headers with {MAX_HEADER_BYTES} bytes in all are read.")
    if len(request.scope.get("raw_path", b"")) + len(request.scope.get("query_string", b"")) > MAX_TARGET_BYTES:
        raise ApiError(HEADERS, f"An address has at most {MAX_TARGET_BYTES} bytes.")


def strict_json(body: bytes) -> Any:
    """The one JSON value of a body.

    >>> strict_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    stepkeep.errors.InvalidInput: the body has the key 'a' twice in one object. Remove one of them.
    """
    try:
        text = body.decode("utf-8")
        value = _DECODER.decode(text)
    except UnicodeDecodeError:
        raise InvalidInput("the body is not UTF-8.") from None
    except RecursionError:
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels.") from None
    except json.JSONDecodeError as problem:
        raise InvalidInput(f"the body is not JSON: {problem.msg} at character {problem.pos}.") from None
    if _is_deeper(value, MAX_DEPTH):
        raise InvalidInput(f"the body is nested deeper than {MAX_DEPTH} levels.")
    return value


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(items)
    if len(found) != len(items):
        seen: set[str] = set()
        twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidInput(f"the body has the key {twice[:80]!a} twice in one object. Remove one of them.")
    return found


def _no_constant(name: str) -> NoReturn:
    raise InvalidInput(f"the body has the value {name}, which is no JSON.")


def _integer(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise InvalidInput(f"the body has a number of {len(text)} digits, which no database keeps.")
    return int(text)


def _number(text: str) -> float:
    if len(text) > LONGEST_NUMBER or (value := float(text)) in (float("inf"), float("-inf")):
        raise InvalidInput(f"the body has the number {text[:20]}…, which no database keeps.")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_no_constant, parse_int=_integer, parse_float=_number
)


def _is_deeper(value: Any, most: int) -> bool:
    """Whether a value has more levels than this. Without recursion: the value is hostile."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _refuse_size(limit: int) -> NoReturn:
    raise ApiError(TOO_LARGE, f"A body has at most {limit:,} bytes. Keep large values elsewhere and pass their names.")
