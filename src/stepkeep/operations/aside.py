"""Runs work of user-given size in a thread, so that the event loop answers other callers meanwhile.

A tenant has one such piece of work under way at a time, and waits for its own only: its queue holds up no other tenant.
In a service that serves other tenants, too, it rests after each piece: a thread that computes takes turns with the
event loop.
It bounds nothing; the work itself must be bounded. The service and the operations call it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar, copy_context
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from stepkeep.operations.in_child import SMALL_BYTES, in_child

P = ParamSpec("P")
T = TypeVar("T")

_threads = ThreadPoolExecutor(4, "stepkeep-aside")
_turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()
"""By event loop and tenant."""
_rests: Callable[[str], float] = lambda tenant: 0.0  # noqa: E731 - the default of `rest_between`
_has_children = False

RESTING: ContextVar[Callable[[], AbstractAsyncContextManager[None]]] = ContextVar("resting", default=nullcontext)
"""Surrounds a wait for such work or for a group commit: a request of the service gives up its turn meanwhile."""


async def aside(tenant: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of the work, when the tenant has its turn."""
    loop, context = asyncio.get_running_loop(), copy_context()
    turn = _turns.setdefault((id(loop), tenant), asyncio.Lock())
    async with RESTING.get()():
        await turn.acquire()
        began = loop.time()
        try:
            return await loop.run_in_executor(_threads, lambda: context.run(work, *args, **kwargs))
        finally:
            if rest := (loop.time() - began) * _rests(tenant):
                loop.call_later(rest, turn.release)
            else:
                turn.release()


async def aside_large(tenant: str, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `aside`. In a service, work on many bytes is done by a child process."""
    if _has_children and size > SMALL_BYTES:
        return await aside(tenant, lambda: in_child(work, *args, **kwargs))
    return await aside(tenant, work, *args, **kwargs)


def use_children(has_children: bool = True) -> None:
    """From now on, this process is a service."""
    global _has_children
    _has_children = has_children


def rest_between(times: Callable[[str], float]) -> None:
    """From now on, a tenant's next piece of work begins so many times later as the last one took."""
    global _rests
    _rests = times
