"""Group commit: items that arrive during a commit form the next batch.

There is no timer, and nothing waits when idle: the first item is committed at once, alone. Under load, batches grow by
themselves, and a large one is divided, so that one half is decided while the database writes the other. Starts, events
of callers and reports of workers all go through `GroupCommit`; it does not know what it carries.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from stepkeep.kernel.errors import Contended, SchemaMismatch, StoreUnavailable
from stepkeep.operations.aside import RESTING

T = TypeVar("T")
R = TypeVar("R")

MAX_CONFLICT_RETRIES = 12
"""How often a transaction that conflicts with another one is run before the caller is told."""

BATCH_ITEMS = 500
BATCH_BYTES = 16 * 1024 * 1024
"""Limit on the payload bytes of one transaction. A single larger item is committed alone."""

LARGE_BYTES = 64 * 1024
"""Submissions of this size have a lane of their own: a database takes long to write them, and no small one waits."""

DIVIDED = 40
"""A batch of so many is divided where two can be under way. A commit costs as much as ten items: halves of fewer would
cost more than they gain."""

GATHER_SECONDS = 0.002
"""How long a few items wait for those that the previous commit will cause."""


class GroupCommit(Generic[T]):
    """Lanes of items. Each lane commits one batch at a time, or `abreast` of them if many items wait; several lanes
    commit in parallel.

    `commit` must answer every item of its batch before it returns, and raises nothing. It returns how many further
    items its batch will cause. Two batches that take turns would never merge by themselves: a smaller batch waits
    `GATHER_SECONDS` for these items.
    """

    def __init__(
        self,
        commit: Callable[[list[T]], Awaitable[int]],
        *,
        size_bytes: Callable[[T], int],
        limit: int = BATCH_ITEMS,
        lanes: int = 1,
        lane_of: Callable[[T], int] = lambda item: 0,
        abreast: int = 1,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._commit, self._sleep, self._lane_of = commit, sleep, lane_of
        self._limit, self._size_bytes = limit, size_bytes
        self._waiting: list[list[T]] = [[] for _ in range(lanes)]
        self._flushing: list[list[asyncio.Task[None]]] = [[] for _ in range(lanes)]
        self._abreast = abreast
        self._under_way = [0] * lanes

    def put(self, items: Iterable[T]) -> None:
        for item in items:
            self._waiting[self._lane_of(item)].append(item)
        for lane in range(self.lanes):
            self._begin(lane)

    def _begin(self, lane: int) -> None:
        """Commit what waits in a lane, unless the batch under way takes it next."""
        running = [task for task in self._flushing[lane] if not task.done()]
        if self._waiting[lane] and (not running or (len(running) < self._abreast and self._is_enough(lane))):
            running.append(asyncio.get_running_loop().create_task(self._flush(lane)))
        self._flushing[lane] = running

    def _is_enough(self, lane: int) -> bool:
        """Whether what waits is worth a commit beside the one under way, which takes it next otherwise. Two batches
        that differ much would cost two commits for little overlap."""
        return len(self._waiting[lane]) >= max(DIVIDED, self._under_way[lane]) // 2

    @property
    def lanes(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return all(task.done() for task in self.tasks)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for tasks in self._flushing for task in tasks]

    async def _flush(self, lane: int) -> None:
        while (waiting := self._waiting[lane]) and (not self._under_way[lane] or self._is_enough(lane)):
            count = fitting(waiting, self._limit, self._size_bytes)
            if count >= DIVIDED and self._abreast > 1 and not self._under_way[lane]:
                count = -(-count // 2)
            batch, self._waiting[lane] = waiting[:count], waiting[count:]
            self._under_way[lane] += count
            self._begin(lane)
            try:
                caused = await self._commit(batch)
            finally:
                self._under_way[lane] -= count
            if 0 < len(self._waiting[lane]) < caused:
                await self._sleep(GATHER_SECONDS)


class Submissions(Generic[T, R]):
    """Two lanes, for small and for large items, in which each item gets its own reply, or its own exception."""

    def __init__(
        self,
        flush: Callable[[list[T]], Awaitable[Sequence[R | BaseException]]],
        *,
        limit: int = BATCH_ITEMS,
        size_bytes: Callable[[T], int] = lambda item: 0,
        abreast: int = 1,
    ) -> None:
        self._flush = flush
        self._commits: GroupCommit[tuple[T, asyncio.Future[R]]] = GroupCommit(
            self._commit,
            limit=limit,
            size_bytes=lambda submitted: size_bytes(submitted[0]),
            lanes=2,
            lane_of=lambda submitted: size_bytes(submitted[0]) >= LARGE_BYTES,
            abreast=abreast,
        )

    async def put(self, item: T) -> R:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._commits.put([(item, answer)])
        async with RESTING.get()():  # a commit takes as many items as wait for it
            return await answer

    async def _commit(self, batch: list[tuple[T, asyncio.Future[R]]]) -> int:
        # Skip items whose caller gave up before the commit.
        batch = [(item, future) for item, future in batch if not future.done()]
        if not batch:
            return 0
        try:
            answers = await self._flush([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - the batch failed as a whole: every item gets the reason
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            _resolve(future, answer)
        return 0


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


async def again_if_contended(
    transaction: Callable[[], Awaitable[T]], conflicted: Callable[[], None] = lambda: None
) -> T:
    """Run a whole transaction again after a conflict: it wrote nothing. `conflicted` is called for each conflict."""
    for attempt in range(MAX_CONFLICT_RETRIES):
        try:
            return await transaction()
        except Contended:
            conflicted()
            if attempt == MAX_CONFLICT_RETRIES - 1:
                raise
            await asyncio.sleep(random.uniform(0, 0.002 * 2**attempt))  # noqa: S311
    raise AssertionError("unreachable")
