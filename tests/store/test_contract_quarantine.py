"""A run that is set aside stays as it is on every store: nothing finds it, writes it, renews it or deletes it."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.store.values import (
    QUEUE,
    SECOND,
    TENANT,
    a_run,
    finished,
    key,
    load,
    moved,
    new_run,
    ready,
    run_id,
    running,
    save,
    settled,
    want,
    writes,
)

from stepkeep.kernel.errors import Contended, Quarantined
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.change import Basis, Lease, Loaded, Propose, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import FinishedFilter

NOWHERE = "00000000-0000-7000-8000-00000000ffff"


async def proposed(store: Store, limit: int = 10) -> list[str]:
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> Write:
        seen.append(loaded)
        return Write()

    await store.change((), decide, Propose(queues=(QUEUE,), limit=limit))
    return [run for _, run, _ in seen[-1].proposed]


async def test_a_quarantine_is_kept_with_its_reason_and_its_release(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]), new_run(2, [ready(2)]))
    noted = await store.quarantine(TENANT, run_id(1), "ann", "its note is damaged")
    assert noted is not None
    assert (noted.run_id, noted.quarantined_by, noted.reason) == (run_id(1), "ann", "its note is damaged")
    assert noted.released_at is None
    assert await store.quarantine(TENANT, run_id(1), "bea", "again") is None, "it is set aside already"
    assert await store.list_quarantined(TENANT) == [noted]
    assert await store.list_quarantined("another tenant") == []
    ended = await store.release(TENANT, run_id(1), "bea", "restored")
    assert ended is not None
    assert ended.released_at is not None
    assert ended.released_at >= noted.quarantined_at
    assert ended == replace(noted, released_at=ended.released_at, released_by="bea", release_reason="restored")
    assert await store.release(TENANT, run_id(1), "bea", "again") is None
    assert await store.list_quarantined(TENANT) == []
    again = await store.quarantine(TENANT, run_id(1), "cyd", "damaged again")
    assert await store.read_quarantines(TENANT) == [again, ended]
    assert await store.read_quarantines(TENANT, limit=1) == [again]


async def test_there_is_nothing_to_set_aside_where_there_is_no_run(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]))
    for tenant, run in ((TENANT, NOWHERE), ("another tenant", run_id(1)), (TENANT, "no id at all")):
        assert await store.quarantine(tenant, run, "ann", "why") is None
        assert await store.release(tenant, run, "ann", "why") is None
    assert await store.read_quarantines(TENANT) == []


async def test_its_steps_are_neither_proposed_nor_in_the_way_of_others(store: Store) -> None:
    await save(store, *(new_run(number, [ready(number, at=number)]) for number in range(1, 6)))
    for number in (1, 2, 3):
        await store.quarantine(TENANT, run_id(number), "ann", "why")
    assert await proposed(store, limit=1) == [run_id(4)]
    found = await store.find_claimable(Propose(queues=(QUEUE,), limit=1))
    assert [run for _, run, _ in found.proposed] == [run_id(4)]
    assert found.passed_over == 0
    assert await store.has_ready([QUEUE])
    for number in (4, 5):
        await store.quarantine(TENANT, run_id(number), "ann", "why")
    assert not await store.has_ready([QUEUE])
    assert await proposed(store) == []
    await store.release(TENANT, run_id(2), "ann", "fine")
    assert await proposed(store) == [run_id(2)]


async def test_its_timers_do_not_go_off(store: Store) -> None:
    now = await store.now()
    run = a_run(2, due_at=now - SECOND)
    await save(store, new_run(1, [running(1, due_at=now - SECOND)]), new_run(2, [ready(2)], run=run))
    assert {one.run_id for one in await store.find_due(10)} == {run_id(1), run_id(2)}
    await store.quarantine(TENANT, run_id(1), "ann", "why")
    await store.quarantine(TENANT, run_id(2), "ann", "why")
    assert await store.find_due(10) == []
    await store.release(TENANT, run_id(1), "ann", "fine")
    assert [one.run_id for one in await store.find_due(10)] == [run_id(1)]


async def test_it_is_barred_from_every_decision(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]), new_run(2, [ready(2)]))
    await store.quarantine(TENANT, run_id(1), "ann", "why")
    loaded = await load(store, want(1, steps=(0,)), want(2, steps=(0,)))
    assert set(loaded.runs) == {key(2)}
    assert isinstance(loaded.barred[key(1)], Quarantined)
    async with store.transaction() as transaction:
        seen: list[Loaded] = []

        def decide(loaded: Loaded) -> Write:
            seen.append(loaded)
            return Write()

        await transaction.change([want(1)], decide)
        assert isinstance(seen[-1].barred[key(1)], Quarantined)


async def test_what_was_decided_before_is_not_written(store: Store) -> None:
    now = await store.now()
    step = running(1, due_at=now + 60 * SECOND)
    await save(store, new_run(1, [step]))
    loaded = await load(store, want(1, steps=(0,)))
    run = loaded.runs[key(1)]
    change, entry = moved(run)
    await store.quarantine(TENANT, run_id(1), "ann", "why")
    for only_hot in (False, True):
        what = Write(runs=[change], entries=[entry], steps=[settled(step)], only_hot=only_hot)
        with pytest.raises(Contended):
            await store.write_if_unchanged(what, loaded, Basis.REMEMBERED)
        with pytest.raises(Contended):
            await store.change([], writes(what))
    record = await store.read_run(TENANT, run_id(1))
    assert record is not None
    assert record.run == run
    await store.release(TENANT, run_id(1), "ann", "fine")
    await store.write_if_unchanged(Write(runs=[change], entries=[entry]), loaded, Basis.REMEMBERED)
    record = await store.read_run(TENANT, run_id(1))
    assert record is not None
    assert record.run.seq == run.seq + 1


async def test_its_leases_are_not_renewed(store: Store) -> None:
    now = await store.now()
    steps = [running(number, due_at=now + 60 * SECOND) for number in (1, 2)]
    await save(store, *(new_run(number, [step]) for number, step in enumerate(steps, 1)))
    await store.quarantine(TENANT, run_id(1), "ann", "why")
    leases = [Lease(tenant=TENANT, run_id=run_id(number), no=0, fence=1, lease=600 * SECOND) for number in (1, 2)]
    assert [one.run_id for one in await store.renew(leases)] == [run_id(2)]
    assert await store.read_steps(TENANT, run_id(1)) == [steps[0]]


async def test_it_is_never_deleted_and_nobody_calls_it_stuck(store: Store) -> None:
    await save(store, *(new_run(number) for number in (1, 2, 3)))
    loaded = await load(store, *(want(number) for number in (1, 2)))
    what = Write()
    for number in (1, 2):
        change, entry = finished(loaded.runs[key(number)])
        what.runs.append(change)
        what.entries.append(entry)
    await store.change([], writes(what))
    assert [run for _, run in await store.stuck_runs()] == [run_id(3)]
    for number in (1, 3):
        await store.quarantine(TENANT, run_id(number), "ann", "why")
    assert await store.stuck_runs() == []
    assert await store.find_finished(FinishedFilter(tenant=TENANT)) == [run_id(2)]
    assert await store.find_finished(FinishedFilter(tenant=TENANT, workflow="flow")) in ([], [run_id(2)])
    assert await store.delete_runs(TENANT, [run_id(1), run_id(2)]) == [run_id(2)]
    record = await store.read_run(TENANT, run_id(1))
    assert record is not None
    assert record.run.state is RunState.SUCCEEDED


async def test_of_several_who_set_it_aside_at_once_one_does(store: Store, other: Store) -> None:
    await save(store, new_run(1, [ready(1)]))
    noted = await asyncio.gather(
        *(one.quarantine(TENANT, run_id(1), f"operator {place}", "why") for place, one in enumerate([store, other] * 4))
    )
    assert sum(one is not None for one in noted) == 1
    assert len(await store.read_quarantines(TENANT)) == 1
