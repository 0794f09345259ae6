"""Hints between stores: rung after a commit that others may wait for, and for nothing else."""

import asyncio

import pytest
from tests.store.listening import listening, ready_to_hear
from tests.store.values import (
    QUEUE,
    SECOND,
    TENANT,
    a_run,
    a_step,
    finished,
    key,
    load,
    moved,
    new_run,
    ready,
    run_id,
    running,
    save,
    want,
    writes,
)

from stepkeep.kernel.errors import Refused
from stepkeep.kernel.machine.states import RunState, StopCause
from stepkeep.store.change import Loaded, Write
from stepkeep.store.protocol import RUNS_SETTLED, RUNS_STOPPED, Store
from stepkeep.store.records import RunStatus

OTHER_QUEUE = 8


async def test_who_listens_elsewhere_hears_of_a_step_that_can_be_claimed(store: Store, other: Store) -> None:
    with listening(other) as ear:
        await ready_to_hear(other, ear)
        await save(store, new_run(1, (ready(1),)))
        await ear.hears_of(QUEUE)


async def test_who_listens_here_hears_exactly_what_was_written(store: Store) -> None:
    with listening(store) as ear:
        await ready_to_hear(store, ear)
        await save(store, new_run(1, (ready(1), ready(1, 1, queue=OTHER_QUEUE), a_step(1, 2, queue=9))))
        assert (await ear.hears()).topics == {QUEUE, OTHER_QUEUE}
        await save(store, new_run(2, (ready(2),)))
        assert (await ear.hears()).topics == {QUEUE}


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED, RunState.BLOCKED])
async def test_a_run_that_comes_to_rest_is_told_of(store: Store, other: Store, state: RunState) -> None:
    run = a_run(1)
    await save(store, new_run(1, (running(1, due_at=SECOND),), run=run))
    with listening(other) as ear:
        await ready_to_hear(other, ear)
        change, entry = moved(run, state=state) if state is RunState.BLOCKED else finished(run, state)
        await store.change((want(1),), writes(Write(runs=[change], entries=[entry])))
        await ear.hears_of(RUNS_SETTLED, key(1)[1])


async def test_a_run_that_is_stopping_is_named(store: Store, other: Store) -> None:
    run = a_run(1)
    await save(store, new_run(1, (running(1, due_at=SECOND),), run=run))
    with listening(other) as ear:
        await ready_to_hear(other, ear)
        change, entry = moved(run, state=RunState.STOPPING, cause=StopCause.FAILURE, leased=1, moving=1, due_at=SECOND)
        await store.change((want(1),), writes(Write(runs=[change], entries=[entry])))
        await ear.hears_of(RUNS_STOPPED, key(1)[1])


async def test_a_write_that_leaves_nothing_to_claim_and_nothing_at_rest_is_not_told(store: Store) -> None:
    with listening(store) as ear:
        await ready_to_hear(store, ear)
        await save(store, new_run(1, (running(1, due_at=SECOND), a_step(1, 1))))
        await load(store, want(1))
        await asyncio.sleep(0)
        assert ear.heard == []


async def test_what_was_not_committed_is_not_told(store: Store) -> None:
    def refuses(loaded: Loaded) -> Write:
        raise Refused("no")

    with listening(store) as ear:
        await ready_to_hear(store, ear)
        with pytest.raises(Refused):
            await store.change((), refuses)
        with pytest.raises(Refused):
            await _begin_and_give_up(store)
        await asyncio.sleep(0)
        assert ear.heard == []


async def _begin_and_give_up(store: Store) -> None:
    async with store.transaction() as transaction:
        await transaction.change((), writes(Write(new_runs=[new_run(1, (ready(1),))])))
        raise Refused("after all")


async def test_a_transaction_of_user_code_tells_once_it_is_committed(store: Store) -> None:
    with listening(store) as ear:
        await ready_to_hear(store, ear)
        async with store.transaction() as transaction:
            await transaction.change((), writes(Write(new_runs=[new_run(1, (ready(1),))])))
            assert ear.heard == []
        await ear.hears_of(QUEUE)


async def test_who_no_longer_listens_hears_nothing(store: Store) -> None:
    with listening(store) as ear:
        await ready_to_hear(store, ear)
    await save(store, new_run(1, (ready(1),)))
    await asyncio.sleep(0)
    assert ear.heard == []


async def test_a_look_tells_whether_any_of_these_queues_has_work(store: Store) -> None:
    now = await store.now()
    assert not await store.has_ready([QUEUE])
    await save(store, new_run(1, (running(1, due_at=SECOND), a_step(1, 1), ready(1, 2, at=now + 60 * SECOND))))
    assert not await store.has_ready([QUEUE])
    await save(store, new_run(2, (ready(2, queue=OTHER_QUEUE),)))
    assert not await store.has_ready([QUEUE])
    assert not await store.has_ready([])
    assert await store.has_ready([QUEUE, OTHER_QUEUE])
    store.clock_offset += 61 * SECOND
    assert await store.has_ready([QUEUE])


async def test_states_of_many_runs_are_read_at_once(store: Store) -> None:
    await save(store, new_run(1), new_run(2, run=a_run(2, RunState.QUEUED)))
    found = await store.read_states([key(1), key(2), key(3), (TENANT, "no-id"), ("nobody", run_id(1)), key(1)])
    assert {one: status.state for one, status in found.items()} == {key(1): RunState.RUNNING, key(2): RunState.QUEUED}
    assert found[key(1)] == RunStatus(state=RunState.RUNNING, definition_id=a_run(1).definition_id, seq=a_run(1).seq)
    assert await store.read_states([]) == {}
