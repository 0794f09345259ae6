"""Workers: their rows, their heartbeats and their journals."""

import pytest
from msgspec.structs import replace
from tests.store.values import SECOND, TENANT, a_worker, an_entry

from stepkeep.kernel.errors import Contended, InvariantBroken
from stepkeep.kernel.machine.states import WorkerState
from stepkeep.store.protocol import Store
from stepkeep.store.records import WorkerChange


async def test_a_worker_is_given_a_number_and_read_back_whole(store: Store) -> None:
    first = await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    second = await store.add_worker(a_worker("w-2", capabilities=(), queues=()), an_entry("w-2", 1))
    assert first == a_worker("w-1", no=first.no)
    assert 0 < first.no < second.no
    assert await store.list_workers(TENANT) == [first, second]
    assert await store.list_workers("other") == []
    assert await store.read_worker_journal(TENANT, "w-1") == [an_entry("w-1", 1)]
    assert await store.read_worker_journal("other", "w-1") == []


async def test_the_id_of_a_worker_is_taken_once(store: Store) -> None:
    await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    with pytest.raises(Contended):
        await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    assert len(await store.list_workers(TENANT)) == 1
    assert len(await store.read_worker_journal(TENANT, "w-1")) == 1


async def test_a_worker_is_changed_only_where_it_was(store: Store) -> None:
    first = await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    second = await store.add_worker(a_worker("w-2"), an_entry("w-2", 1))
    entry = an_entry("w-1", 2, first.head)
    busy = replace(first, state=WorkerState.BUSY, seq=2, head=entry.hash, incarnation=2, capacity=9)
    busy = replace(busy, capabilities=("cpu",), queues=(5,), heard_at=77, started_at=78)
    stale = replace(second, state=WorkerState.SHUTDOWN, seq=9)
    changes = [
        WorkerChange(was=1, worker=busy, entry=entry),
        WorkerChange(was=8, worker=stale, entry=an_entry("w-2", 9)),
        WorkerChange(was=1, worker=a_worker("w-3"), entry=an_entry("w-3", 2)),
    ]
    assert await store.change_workers(changes) == [True, False, False]
    assert await store.list_workers(TENANT) == [busy, second]
    assert await store.read_worker_journal(TENANT, "w-1") == [an_entry("w-1", 1), entry]
    assert len(await store.read_worker_journal(TENANT, "w-2")) == 1
    quiet = replace(busy, capacity=1)
    assert await store.change_workers([WorkerChange(was=2, worker=quiet, entry=None)]) == [True]
    assert await store.change_workers([]) == []
    assert (await store.list_workers(TENANT))[0] == quiet


async def test_a_heartbeat_moves_the_time_and_nothing_else(store: Store) -> None:
    worker = await store.add_worker(a_worker("w-1", WorkerState.UNRESPONSIVE), an_entry("w-1", 1))
    before = await store.now()
    heard = await store.beat(TENANT, worker.no, 1)
    assert heard is not None
    assert before <= heard.heard_at <= await store.now()
    assert heard == replace(worker, heard_at=heard.heard_at)
    assert await store.beat(TENANT, worker.no + 1, 1) is None
    assert await store.beat("other", worker.no, 1) is None


async def test_a_former_incarnation_and_a_dead_worker_are_told_but_not_heard(store: Store) -> None:
    worker = await store.add_worker(a_worker("w-1", incarnation=2), an_entry("w-1", 1))
    assert await store.beat(TENANT, worker.no, 1) == worker
    gone = await store.add_worker(a_worker("w-2", WorkerState.SHUTDOWN), an_entry("w-2", 1))
    assert await store.beat(TENANT, gone.no, 1) == gone


async def test_a_change_does_not_undo_a_heartbeat_it_did_not_see(store: Store) -> None:
    worker = await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    heard = await store.beat(TENANT, worker.no, 1)
    entry = an_entry("w-1", 2, worker.head)
    busy = replace(worker, state=WorkerState.BUSY, seq=2, head=entry.hash)
    assert await store.change_workers([WorkerChange(was=1, worker=busy, entry=entry)]) == [True]
    assert heard is not None
    assert await store.list_workers(TENANT) == [replace(busy, heard_at=heard.heard_at)]


async def test_silent_workers_are_found_longest_silence_first(store: Store) -> None:
    now = await store.now()
    for name, age, state in (
        ("quiet", 40, WorkerState.BUSY),
        ("quieter", 50, WorkerState.DRAINING),
        ("loud", 5, WorkerState.IDLE),
        ("gone", 90, WorkerState.SHUTDOWN),
    ):
        await store.add_worker(a_worker(name, state, heard_at=now - age * SECOND), an_entry(name, 1))

    async def silent(seconds: int, limit: int = 100) -> list[str]:
        return [worker.id for worker in await store.silent_workers(seconds * SECOND, limit)]

    assert await silent(30) == ["quieter", "quiet"]
    assert await silent(30, limit=1) == ["quieter"]
    store.clock_offset += 30 * SECOND
    assert await silent(30) == ["quieter", "quiet", "loud"]
    live = [worker.id for worker in await store.list_workers(TENANT, live_only=True)]
    assert live == ["quiet", "quieter", "loud"]


async def test_a_worker_is_found_by_its_id(store: Store) -> None:
    worker = await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    await store.add_worker(a_worker("w-2"), an_entry("w-2", 1))
    assert await store.find_worker(TENANT, "w-1") == worker
    assert await store.find_worker("another", "w-1") is None
    assert await store.find_worker(TENANT, "w-3") is None


@pytest.mark.parametrize(("before", "after"), [("user:bea", "user:cyd"), ("user:bea", None), (None, "user:bea")])
async def test_a_worker_keeps_its_owner(store: Store, before: str | None, after: str | None) -> None:
    """The people behind attempts are found through the number of the worker: another owner would change them."""
    worker = await store.add_worker(a_worker(owner=before), an_entry("w-1", 1))
    entry = an_entry("w-1", 2, worker.head)
    other = replace(worker, owner=after, seq=2, head=entry.hash)
    with pytest.raises(InvariantBroken, match="keeps its owner"):
        await store.change_workers([WorkerChange(was=1, worker=other, entry=entry)])
    assert (await store.list_workers(TENANT))[0].owner == before
