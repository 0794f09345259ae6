"""Callers that ask at the same time share a read, and none of them gets what was read before it asked for something
new."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.operations.definitions.publish import find_plan
from stepkeep.operations.pipeline.shared_reads import RecentReads, SharedReads
from tests.holding import Hold


class Shelf:
    """Reads that end when the test says so. Each returns how many had begun."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[None]] = []
        self.reads: SharedReads[str, int] = SharedReads(self.read)

    async def read(self, key: str) -> int:
        number = len(self.begun) + 1
        self.begun.append(asyncio.get_running_loop().create_future())
        await self.begun[-1]
        return number

    async def ask(self, *, new: bool = False) -> asyncio.Task[int]:
        task = asyncio.ensure_future(self.reads.new("a") if new else self.reads.current("a"))
        await settle()
        return task


@pytest.fixture
def engine(database_url: str, hold: Hold) -> AsyncEngine:
    return hold(AsyncEngine(database_url, auto_migrate=True))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_callers_share_the_read_that_is_under_way() -> None:
    shelf = Shelf()
    asked = [await shelf.ask() for _ in range(64)]
    assert len(shelf.begun) == 1
    shelf.begun[0].set_result(None)
    assert set(await asyncio.gather(*asked)) == {1}


async def test_a_new_value_is_never_of_a_read_that_began_before() -> None:
    shelf = Shelf()
    first = await shelf.ask(new=True)
    later = [await shelf.ask(new=True) for _ in range(64)]
    shelf.begun[0].set_result(None)
    assert await first == 1
    await settle()
    assert len(shelf.begun) == 2, "all later callers share one read, which began after they asked"
    shelf.begun[1].set_result(None)
    assert set(await asyncio.gather(*later)) == {2}


async def test_a_caller_that_gives_up_takes_no_other_with_it() -> None:
    shelf = Shelf()
    leader, follower, other = await shelf.ask(), await shelf.ask(), await shelf.ask()
    leader.cancel()
    await settle()
    assert len(shelf.begun) == 2, "one of the others reads now"
    other.cancel()
    shelf.begun[1].set_result(None)
    assert await follower == 2


async def test_the_problem_of_a_read_is_told_to_all_and_not_kept() -> None:
    shelf = Shelf()
    asked = [await shelf.ask() for _ in range(3)]
    shelf.begun[0].set_exception(StoreUnavailable("the database is away"))
    problems = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in problems] == [StoreUnavailable] * 3
    again = await shelf.ask()
    shelf.begun[1].set_result(None)
    assert await again == 2


async def _answered(shelf: Shelf) -> int:
    asked = await shelf.ask()
    shelf.begun[-1].set_result(None)
    return await asked


def test_a_read_that_another_event_loop_broke_off_is_waited_for_by_nobody() -> None:
    shelf = Shelf()
    loop = asyncio.new_event_loop()
    task = loop.create_task(shelf.reads.current("a"))
    loop.run_until_complete(asyncio.sleep(0))
    try:
        assert asyncio.run(_answered(shelf)) == 2
    finally:
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()


async def test_starts_that_arrive_together_read_their_definition_a_few_times(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = sk.Workflow("shared", version=1)
    shared.approval("sign")
    await engine.publish(shared)
    store, reads = engine.transactor.store, 0
    read_definition = store.read_definition

    async def counted(tenant: str, name: str, version: int | None) -> object:
        nonlocal reads
        reads += 1
        return await read_definition(tenant, name, version)

    monkeypatch.setattr(store, "read_definition", counted)
    plans = await asyncio.gather(*(find_plan(engine.transactor, "shared", None, tenant="default") for _ in range(64)))
    assert len({plan.definition_id for plan in plans}) == 1
    assert reads == 2


async def test_quotas_of_a_tenant_are_read_once_for_all_that_ask_together(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reads = engine.store, 0
    read_setting = store.read_setting

    async def counted(*asked: object) -> object:
        nonlocal reads
        reads += 1
        return await read_setting(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "read_setting", counted)
    await asyncio.gather(*(engine.quotas.of_tenant("default") for _ in range(64)))
    assert reads == 1


async def test_what_was_read_recently_is_read_once_for_all_callers() -> None:
    reads: list[str] = []
    now = 0.0

    async def read(store: Any, tenant: str) -> int:
        reads.append(tenant)
        await asyncio.sleep(0)
        return len(reads)

    recent = RecentReads(read, 2.0, lambda: now)
    store: Any = object()
    assert await asyncio.gather(*(recent.read(store, "acme") for _ in range(5))) == [1] * 5
    now = 1.9
    assert await recent.read(store, "acme") == 1
    now = 2.0
    assert await asyncio.gather(*(recent.read(store, "acme") for _ in range(5))) == [2] * 5


async def test_a_read_that_began_before_a_change_is_neither_shared_nor_kept() -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    begun = 0

    async def read(store: Any, tenant: str) -> int:
        nonlocal begun
        mine, begun = begun, begun + 1
        await gates[mine].wait()
        return mine

    recent = RecentReads(read, 2.0, lambda: 0.0)
    store: Any = object()
    early = asyncio.create_task(recent.read(store, "acme"))
    await settle()
    recent.forget("acme")
    late = asyncio.create_task(recent.read(store, "acme"))
    await settle()
    gates[1].set()
    assert await late == 1
    gates[0].set()
    assert await early == 0
    assert await recent.read(store, "acme") == 1
