"""Issue "outside world": ten thousand messages by key, early, late, duplicated and shuffled, are each consumed once.

A third is sent before the run exists, a third before the wait, the rest after it. A fifth is sent twice, at any moment
from its first sending on, also after the run has ended. Several processes send, and some sends race the start.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import pytest

from stepkeep.kernel.definition import Definition, Wait
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.messages.by_key import Sent
from tests.suites import in_proof
from tests.workbench import TENANT, Bench, benches, gate, task

PARCEL = Definition(
    name="parcel", version=1, steps=(task("pack"), gate("payment", 1, ["pack"], wait=Wait(event="paid")))
)
CLIENTS = 4
AT_ONCE = 200
"""How many sends and starts are under way at the same time."""

Send = Callable[[int], Coroutine[Any, Any, Any]]


async def in_groups(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    done, left = [], list(work)
    for first in range(0, len(left), AT_ONCE):
        done += await asyncio.gather(*left[first : first + AT_ONCE])
    return done


def shuffled(chance: random.Random, *parts: Sequence[int]) -> list[int]:
    together = [number for part in parts for number in part]
    chance.shuffle(together)
    return together


@pytest.mark.parametrize("count", [240, in_proof(10_000)])
async def test_each_of_many_messages_is_consumed_once(
    database_url: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(17)
    numbers = shuffled(chance, range(count))
    third = count // 3
    early, before, after = numbers[:third], numbers[third : 2 * third], numbers[2 * third :]
    again = chance.sample(range(count), count // 5)
    # Of each third, the moment of the duplicate: with the first sending, or in a later phase.
    late: list[list[int]] = [[] for _ in range(5)]
    for number in again:
        first = 0 if number in set(early) else 1 if number in set(before) else 3
        late[chance.randint(first, 4)].append(number)

    async def act(opened: list[Bench]) -> None:
        plan = await opened[0].publish(PARCEL)
        replies: list[Sent] = []
        started: list[str] = []

        async def send(number: int) -> None:
            bench = opened[number % CLIENTS] if chance.random() < 0.5 else opened[chance.randrange(CLIENTS)]
            sent = await bench.send_by_key(f"order-{number}", "paid", str(number).encode(), message_id=f"m-{number}")
            replies.append(sent)

        async def start(number: int) -> None:
            started.append((await opened[number % CLIENTS].begin(plan, business_key=f"order-{number}")).run_id)

        began = time.perf_counter()
        await in_groups(map(send, shuffled(chance, early, late[0])))
        racing, rest = before[: len(before) // 3], before[len(before) // 3 :]
        # The order of the list is the order of the beginnings: a start and a send to its key are under way at once.
        both = [work for number in shuffled(chance, numbers) for work in _pair(number, set(racing), start, send)]
        await in_groups(both)
        await in_groups(map(send, shuffled(chance, rest, late[1])))
        await asyncio.gather(opened[0].work_off(), in_groups(map(send, late[2])))
        await opened[0].work_off()
        await in_groups(map(send, shuffled(chance, after, late[3])))
        await in_groups(map(send, late[4]))
        seconds = time.perf_counter() - began

        assert len(replies) == count + len(again)
        assert sum(not reply.repeated for reply in replies) == count, "each message was accepted once"
        store = opened[0].store
        assert await store.count_runs(TENANT) == {RunState.SUCCEEDED: count}
        assert await store.list_mailbox(TENANT) == [], "no message is left"
        consumed = await _consumed(opened[0], started)
        assert sorted(consumed) == sorted((f"order-{number}", f"m-{number}", 1) for number in range(count))
        with capsys.disabled():
            print(f"\n{count} messages by key, {len(again)} twice, on {store.url.split(':')[0]}: {seconds:.1f} s")

    async with benches(database_url, CLIENTS) as opened:
        await act(opened)


def _pair(number: int, racing: set[int], start: Send, send: Send) -> list[Coroutine[Any, Any, Any]]:
    work = [start(number), *([send(number)] if number in racing else [])]
    return work if number % 2 else work[::-1]


async def _consumed(bench: Bench, run_ids: Sequence[str]) -> list[tuple[str | None, str, int | None]]:
    """(business key, message id, consumer) of every message of these runs."""
    found = []
    for first in range(0, len(run_ids), 500):
        for whole in await bench.store.read_whole(TENANT, run_ids[first : first + 500]):
            key = whole.record.details.business_key
            found += [(key, message.id, message.consumed_by) for message in whole.messages]
    return found
