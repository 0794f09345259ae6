"""Group commit: items that arrive during a flush form the next batch.

There is no timer, and nothing waits when idle: the first item is flushed at once, alone. Under load, batches grow by
themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from stepkeep.errors import SchemaMismatch, StoreUnavailable

T = TypeVar("T")
R = TypeVar("R")

BATCH_BYTES = 16 * 1024 * 1024
"""Limit on the payload bytes of one transaction. A single larger item is flushed alone."""

Flush = Callable[[list[T]], Awaitable[Sequence[R | BaseException]]]


class Lane(Generic[T, R]):
    """Collects items and flushes them one batch at a time; each item gets its own reply, or its own exception."""

    def __init__(
        self, flush: Flush[T, R], *, limit: int = 500, size_bytes: Callable[[T], int] = lambda item: 0
    ) -> None:
        self._flush = flush
        self._limit, self._size_bytes = limit, size_bytes
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._flushing: asyncio.Task[None] | None = None

    async def put(self, item: T) -> R:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_all())
        return await answer

    async def _flush_all(self) -> None:
        while self._waiting:
            count = fitting(self._waiting, self._limit, lambda waiting: self._size_bytes(waiting[0]))
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            # Skip items whose caller gave up before the flush.
            batch = [(item, future) for item, future in batch if not future.done()]
            if not batch:
                continue
            try:
                answers = await self._flush([item for item, _ in batch])
            except Exception as error:  # noqa: BLE001 - the batch failed as a whole: every item gets the reason
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                _resolve(future, answer)


def fitting(items: Sequence[T], limit: int, size_bytes: Callable[[T], int], most_bytes: int = BATCH_BYTES) -> int:
    """How many of the first items form one batch: at most `limit`, at most `most_bytes` in total, at least one."""
    total = 0
    for count, item in enumerate(items[:limit]):
        total += size_bytes(item)
        if total > most_bytes and count:
            return count
    return min(limit, len(items))


async def all_or_each(
    items: list[T], together: Callable[[list[T]], Awaitable[list[R | Exception]]]
) -> list[R | Exception]:
    """Flush all items at once; on failure, in halves, until the faulty item is alone and the rest is done."""
    try:
        return await together(items)
    except (StoreUnavailable, SchemaMismatch):
        raise
    except Exception as problem:  # noqa: BLE001 - whatever it is, it belongs to one of them
        if len(items) == 1:
            return [problem]
    middle = len(items) // 2
    done: list[R | Exception] = []
    for half in (items[:middle], items[middle:]):
        try:
            done += await all_or_each(half, together)
        except (StoreUnavailable, SchemaMismatch) as problem:
            # Items that were committed before stay committed and are answered.
            done += [problem] * len(half)
    return done


def _resolve(future: asyncio.Future[R], answer: R | BaseException) -> None:
    if future.done():  # the caller is gone; the change was committed all the same
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
