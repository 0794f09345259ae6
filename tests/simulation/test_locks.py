"""Locks of the model database: waited for in order, handed on, given up in a deadlock."""

import asyncio

import pytest
from tests.store.values import a_run, key, moved, new_run, want, writes

from stepkeep.kernel.errors import Contended, StoreUnavailable
from stepkeep.kernel.machine.rows import Run
from stepkeep.store.change import RunChange, Write
from stepkeep_lab.simulation.database import Database
from stepkeep_lab.simulation.locks import Locks, Owner
from stepkeep_lab.simulation.store import ModelStore


async def test_two_that_wait_for_each_other_are_found() -> None:
    locks, one, other = Locks(), Owner(), Owner()
    await locks.take(one, "a")
    await locks.take(other, "b")
    waiting = asyncio.ensure_future(locks.take(one, "b"))
    await asyncio.sleep(0)
    with pytest.raises(Contended):
        await locks.take(other, "a")
    locks.release(other)
    await waiting
    assert (locks.waits, locks.deadlocks) == (2, 1)


async def test_a_lock_goes_to_whoever_waited_longest() -> None:
    locks, holder = Locks(), Owner()
    await locks.take(holder, "a")
    got: list[int] = []

    async def take(number: int, owner: Owner) -> None:
        await locks.take(owner, "a")
        got.append(number)
        locks.release(owner)

    tasks = [asyncio.ensure_future(take(number, Owner())) for number in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    locks.release(holder)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert got == [0, 2]
    assert locks.try_take(Owner(), "a")


async def test_who_is_granted_a_lock_and_ends_before_noticing_takes_it_from_nobody() -> None:
    locks, holder, hasty, patient = Locks(), Owner(), Owner(), Owner()
    await locks.take(holder, "a")
    ending, waiting = (asyncio.ensure_future(locks.take(owner, "a")) for owner in (hasty, patient))
    await asyncio.sleep(0)
    locks.release(holder)
    locks.release(hasty)
    ending.cancel()
    await asyncio.gather(ending, waiting, return_exceptions=True)
    assert patient.holds == ["a"]
    assert not locks.try_take(Owner(), "a")
    assert locks.try_take(patient, "a")


async def test_a_shared_lock_holds_up_one_that_wants_it_alone_and_no_other_sharer() -> None:
    locks, one, other, writer, late = Locks(), Owner(), Owner(), Owner(), Owner()
    await locks.share(one, "a")
    await locks.share(other, "a")
    writing = asyncio.ensure_future(locks.take(writer, "a"))
    await asyncio.sleep(0)
    sharing = asyncio.ensure_future(locks.share(late, "a"))
    await asyncio.sleep(0)
    assert not writing.done()
    assert not sharing.done(), "the writer came first"
    locks.release(one)
    await asyncio.sleep(0)
    assert not writing.done()
    locks.release(other)
    await writing
    assert not sharing.done()
    locks.release(writer)
    await sharing
    assert (late.holds, locks.is_held("a")) == (["a"], True)
    locks.release(late)
    assert not locks.is_held("a")


async def test_sharers_that_wait_for_each_other_are_found() -> None:
    locks, one, other = Locks(), Owner(), Owner()
    await locks.share(one, "a")
    await locks.share(other, "a")
    await locks.take(other, "b")
    waiting = asyncio.ensure_future(locks.take(one, "b"))
    await asyncio.sleep(0)
    with pytest.raises(Contended):
        await locks.take(other, "a")
    locks.release(other)
    await waiting
    assert one.holds == ["a", "b"]


async def test_a_session_that_dies_while_it_waits_leaves_the_queue() -> None:
    database = Database()
    store = ModelStore(database)
    await store.change((), writes(Write(new_runs=[new_run(1)])))
    holder, waiter = database.begin(), database.begin()
    await holder.lock_runs([key(1)])
    waiter.waiting = asyncio.ensure_future(waiter.lock_runs([key(1)]))
    await asyncio.sleep(0)
    database.crash()
    with pytest.raises(asyncio.CancelledError):
        await waiter.waiting
    change, entry = moved(a_run(1))
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry])))
    assert database.tables.runs[key(1)].seq == 2


async def test_a_record_that_arrives_after_its_session_has_ended_takes_no_lock() -> None:
    session = Database(lambda: 0).begin()
    session.abort()
    change = RunChange(was=1, run=Run(tenant="acme", id="late", definition_id=1))
    with pytest.raises(StoreUnavailable):
        await session.record(Write(runs=[change]), 0)
    assert session.holds == []
