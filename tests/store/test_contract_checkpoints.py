"""Checkpoints: each a row that never changes, read by name, in pages and with its run, gone with it."""

import pytest
from tests.store.test_contract_gates import write
from tests.store.values import (
    TENANT,
    a_checkpoint,
    a_run,
    a_step,
    finished,
    key,
    load,
    new_run,
    run_id,
    save,
    want,
    writes,
)

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.store.change import Write
from stepkeep.store.protocol import Store


async def test_checkpoints_are_read_in_the_order_of_recording(store: Store) -> None:
    await save(store, new_run(1, (a_step(1), a_step(1, 1))), new_run(2))
    later, second, first = a_checkpoint(1, "a", seq=9), a_checkpoint(1, "c", seq=4), a_checkpoint(1, "b", seq=4)
    other = a_checkpoint(1, "a", no=1, fence=3, value=b'"\\ud83e"')
    await write(store, 1, later, second, first, other)
    assert await store.read_checkpoints(*key(1), 0) == [first, second, later]
    assert await store.read_checkpoints(*key(1), 0, (4, "b"), 1) == [second]
    assert await store.read_checkpoints(*key(1), 0, (9, "a")) == []
    assert await store.read_checkpoints(*key(1), 1) == [other]
    assert await store.newest_checkpoints(*key(1)) == [first, second, later, other]
    assert await store.newest_checkpoints(*key(1), 1) == [later, other]
    [whole] = await store.read_whole(TENANT, [run_id(1)])
    assert list(whole.checkpoints) == [first, second, later, other]
    [bare] = await store.read_whole(TENANT, [run_id(1)], with_messages=False)
    assert bare.checkpoints == ()
    for nobody in (key(2), ("other", run_id(1)), (TENANT, "no run")):
        assert await store.read_checkpoints(*nobody, 0) == await store.newest_checkpoints(*nobody) == []


async def test_a_change_is_told_the_fence_of_what_it_names(store: Store) -> None:
    await save(store, new_run(1, (a_step(1), a_step(1, 1))), new_run(2))
    await write(store, 1, a_checkpoint(1, "\u00e9", fence=4), a_checkpoint(1, "b", no=1))
    loaded = await load(
        store, want(1, checkpoints=((0, "\u00e9"), (0, "b"), (1, "b"))), want(2, checkpoints=((0, "b"),))
    )
    assert loaded.recorded.get(key(1)) == {(0, "\u00e9"): 4, (1, "b"): 1}
    assert not loaded.recorded.get(key(2))


async def test_a_name_is_recorded_once_in_a_step(store: Store) -> None:
    await save(store, new_run(1, (a_step(1),)))
    await write(store, 1, a_checkpoint(1, "a"))
    with pytest.raises(StepkeepError):
        await store.change([], writes(Write(rows=rows_of([a_checkpoint(1, "a", fence=2, value=b"2")]))))
    assert await store.read_checkpoints(*key(1), 0) == [a_checkpoint(1, "a")]


async def test_checkpoints_are_deleted_with_their_run(store: Store) -> None:
    await save(store, new_run(1), new_run(2))
    change, entry = finished(a_run(1))
    recorded = rows_of([a_checkpoint(1, "a"), a_checkpoint(2, "a")])
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], rows=recorded)))
    assert await store.delete_runs(TENANT, [run_id(1), run_id(2)]) == [run_id(1)]
    assert await store.newest_checkpoints(*key(1)) == []
    assert await store.newest_checkpoints(*key(2)) == [a_checkpoint(2, "a")]
