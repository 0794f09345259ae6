"""User code and the decision about its step commit together, or neither does (promise 4)."""

import asyncio
from typing import Any

import pytest
from tests.store.raw import Raw
from tests.store.test_contract_change import increment
from tests.store.values import a_run, key, load, moved, new_run, running, save, settled, want, writes

from stepkeep.kernel.errors import Contended, Fenced
from stepkeep.store.change import Decide, Loaded, Write
from stepkeep.store.protocol import Store, Transaction


async def execute(transaction: Transaction, statement: str) -> None:
    """Run a statement of the user's by whichever driver it is."""
    answer: Any = transaction.connection.execute(statement)
    if asyncio.iscoroutine(answer):
        await answer


async def notes(raw: Raw) -> list[str]:
    return [text for (text,) in await raw.execute("select text from notes order by text")]


async def ready_store(store: Store, raw: Raw) -> None:
    await raw.execute("create table notes (text text)")
    await save(store, new_run(1, (running(1, due_at=10**17),)), new_run(2))


def complete(loaded: Loaded) -> Write:
    change, entry = moved(loaded.runs[key(1)])
    return Write(runs=[change], entries=[entry], steps=[settled(loaded.steps[key(1)][0])])


async def test_both_are_there_after_the_end(store: Store, raw: Raw) -> None:
    await ready_store(store, raw)
    async with store.transaction() as transaction:
        await execute(transaction, "insert into notes values ('mine')")
        await transaction.change([want(1, steps=(0,))], complete)
        assert await notes(raw) == []
        run = await store.read_run(*key(1))
        assert run is not None
        assert run.run.seq == 1
    assert await notes(raw) == ["mine"]
    assert (await load(store, want(1))).runs[key(1)].seq == 2


async def complete_with_a_note(store: Store, decide: Decide, then: Exception | None = None) -> None:
    async with store.transaction() as transaction:
        await execute(transaction, "insert into notes values ('mine')")
        await transaction.change([want(1, steps=(0,))], decide)
        if then is not None:
            raise then


async def test_neither_is_there_after_an_error(store: Store, raw: Raw) -> None:
    await ready_store(store, raw)
    with pytest.raises(ZeroDivisionError):
        await complete_with_a_note(store, complete, ZeroDivisionError())
    assert await notes(raw) == []
    assert (await load(store, want(1))).runs[key(1)] == a_run(1)


async def test_a_refused_decision_takes_the_users_writes_with_it(store: Store, raw: Raw) -> None:
    await ready_store(store, raw)

    def too_late(loaded: Loaded) -> Write:
        raise Fenced("another claim came first")

    with pytest.raises(Fenced):
        await complete_with_a_note(store, too_late)
    with pytest.raises(Contended):
        await complete_with_a_note(store, writes(Write(runs=[moved(a_run(1, seq=9))[0]])))
    assert await notes(raw) == []


async def test_a_cancelled_user_leaves_nothing_and_blocks_nobody(store: Store, raw: Raw) -> None:
    await ready_store(store, raw)
    inside = asyncio.Event()

    async def user() -> None:
        async with store.transaction() as transaction:
            await execute(transaction, "insert into notes values ('mine')")
            await transaction.change([want(1, steps=(0,))], complete)
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(user())
    await inside.wait()
    waiting = asyncio.ensure_future(store.change([want(1)], increment(1)))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await waiting
    assert await notes(raw) == []
    assert (await load(store, want(1))).runs[key(1)].priority == 1


async def test_changes_and_transactions_take_turns(store: Store, other: Store, raw: Raw) -> None:
    await ready_store(store, raw)

    async def by_transaction(place: Store) -> None:
        async with place.transaction() as transaction:
            await execute(transaction, "insert into notes values ('x')")
            await transaction.change([want(2)], increment(2))

    await asyncio.gather(
        *(by_transaction(place) for place in (store, other) for _ in range(5)),
        *(place.change([want(2)], increment(2)) for place in (store, other) for _ in range(20)),
    )
    assert (await load(store, want(2))).runs[key(2)].priority == 50
    assert len(await notes(raw)) == 10
