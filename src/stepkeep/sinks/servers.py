"""What sinks of message brokers share: the address of the server is a secret of the worker, read before each send.

An address in the options of a sink would let a tenant choose which internal server a worker connects to. A secret is
given by the operator, and it may hold a password. It opens nothing itself; `redis`, `nats` and `kafka` call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from stepkeep.kernel.errors import InvalidInput
from stepkeep.sinks.interface import SinkContext, SinkFailed

C = TypeVar("C")
CONNECT_SECONDS = 5.0
MAX_NAME = 200


class Connection(Generic[C]):
    """One connection, opened when it is first needed, and again after a failure or with a new address."""

    def __init__(
        self,
        context: SinkContext,
        secret: str,
        connect: Callable[[str], Awaitable[C]],
        disconnect: Callable[[C], Awaitable[None]],
    ) -> None:
        self._context, self._secret = context, secret
        self._connect, self._disconnect = connect, disconnect
        self._lock = asyncio.Lock()
        self._open: tuple[str, C] | None = None

    async def get(self) -> C:
        """The open connection; raises SinkFailed where the secret or the server is missing."""
        address = (await self._context.secret(self._secret)).strip()
        async with self._lock:
            if self._open is not None and self._open[0] != address:
                await self.drop()
            if self._open is None:
                self._open = address, await self._connect(address)
            return self._open[1]

    async def drop(self) -> None:
        """Close the connection, whatever its state; the next `get` opens another."""
        known, self._open = self._open, None
        if known is not None:
            await self._disconnect(known[1])


def check_name(kind: str, option: str, name: str) -> None:
    """Refuse a name that no broker takes: empty, too long, or with a space or a control character in it."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        raise InvalidInput(
            f"the option {option} of a {kind} sink is a name of 1 to {MAX_NAME} characters without spaces, "
            f"not {name!a}."
        )


def failed(kind: str, problem: Exception, *, said: str = "") -> SinkFailed:
    """The failure of a send in our own words: a library's text may quote an address with its password."""
    return SinkFailed(f"{kind}: {said or f'the event was not acknowledged ({type(problem).__name__})'}")
