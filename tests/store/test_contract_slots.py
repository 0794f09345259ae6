"""What every store promises about execution slots: who waits, who holds one, what is granted once, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.store.test_contract_retention import ended
from tests.store.values import TENANT, a_run, finished, key, new_run, run_id, save, want, writes

from stepkeep.kernel.errors import Contended
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.change import Loaded, More, NewRun, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import SlotGrant, SlotRow
from stepkeep.store.slots import WorkflowSlots


def a_slot(number: int, workflow: str = "order", **given: Any) -> SlotRow:
    plain: dict[str, Any] = {"most": 3, "priority": 0, "asked_at": number}
    return SlotRow(tenant=TENANT, run_id=run_id(number), workflow=workflow, **{**plain, **given})


def waiting(number: int, workflow: str = "order", state: RunState = RunState.QUEUED, **given: Any) -> NewRun:
    return new_run(number, run=a_run(number, state=state), slot=a_slot(number, workflow, **given))


async def grant(store: Store, *numbers: int) -> None:
    granted = [SlotGrant(TENANT, run_id(one), 50) for one in numbers]
    await store.change([want(one) for one in numbers], writes(Write(rows=rows_of(granted))))


async def end(store: Store, number: int) -> None:
    change, entry = finished(a_run(number))
    change = replace(change, run=replace(change.run, open=0, moving=0, leased=0))
    await store.change([want(number)], writes(Write(runs=[change], entries=[entry])))


async def found(store: Store, workflow: str = "order", limit: int = 9) -> list[str]:
    return [one.row.run_id for one in await store.slots.find_waiting(TENANT, workflow, limit)]


async def test_runs_wait_in_the_order_of_priority_arrival_and_id(store: Store) -> None:
    await save(
        store, waiting(1, asked_at=9), waiting(2, asked_at=5), waiting(3, asked_at=9, priority=4), waiting(4, "b")
    )
    assert await found(store) == [run_id(one) for one in (3, 2, 1)]
    assert await found(store, limit=1) == [run_id(3)]
    assert await found(store, "b") == [run_id(4)]
    assert await store.slots.find_waiting("other", "order", 9) == []
    assert await store.slots.find_workflows() == [(TENANT, "b"), (TENANT, "order")]
    assert await store.slots.find_workflows(1) == [(TENANT, "b")]
    assert await store.slots.count_waiting(TENANT, 10) == 4
    assert await store.slots.count_waiting(TENANT, 2) == 2
    assert await store.slots.count_waiting("other", 2) == 0


async def test_a_run_is_read_with_its_slot(store: Store) -> None:
    await save(store, waiting(1, most=None, priority=-2), new_run(2))
    assert await store.slots.read(*key(1)) == a_slot(1, most=None, priority=-2)
    assert await store.slots.read(*key(2)) is None
    assert await store.slots.read("other", run_id(1)) is None
    await grant(store, 1)
    assert await store.slots.read(*key(1)) == a_slot(1, most=None, priority=-2, granted_at=50)


async def test_idle_paused_and_quarantined_runs_are_left_out(store: Store) -> None:
    await save(store, waiting(1, state=RunState.IDLE), waiting(2, state=RunState.PAUSED), waiting(3), waiting(4))
    await store.quarantine(TENANT, run_id(3), "it is odd", "bea")
    assert await found(store) == [run_id(4)]
    assert await store.slots.count_waiting(TENANT, 10) == 2


async def test_a_slot_is_granted_once(store: Store) -> None:
    await save(store, waiting(1), waiting(2), new_run(3))
    await grant(store, 1)
    assert await found(store) == [run_id(2)]
    for number in (1, 3):
        with pytest.raises(Contended):
            await grant(store, 2, number)
    assert await found(store) == [run_id(2)]


async def test_a_slot_is_held_until_its_run_has_ended(store: Store) -> None:
    await save(store, waiting(1), waiting(2), waiting(3), waiting(4, "b"))
    await grant(store, 1, 2, 4)
    assert await store.slots.count_held(TENANT) == {"order": 2, "b": 1}
    await end(store, 1)
    assert await store.slots.count_held(TENANT) == {"order": 1, "b": 1}
    assert await store.slots.read_use(TENANT) == [WorkflowSlots("b", 1, 0, 3), WorkflowSlots("order", 1, 1, 3)]
    assert await store.slots.count_held("other") == {}


async def test_what_is_held_is_counted_under_the_lock_of_the_tenant(store: Store) -> None:
    await save(store, waiting(1), waiting(2))
    await grant(store, 1)
    seen: list[Loaded] = []

    def look(loaded: Loaded) -> More | Write:
        seen.append(loaded)
        return Write() if len(seen) > 1 else More(slots=(TENANT, "other"))

    await store.change([want(2)], look)
    assert seen[-1].slots == {TENANT: {"order": 1}, "other": {}}


async def test_the_slots_of_ended_runs_are_forgotten(store: Store) -> None:
    await save(store, waiting(1), waiting(2), waiting(3), waiting(4), waiting(5))
    await grant(store, 1, 2)
    for number in (1, 3, 4):
        await end(store, number)
    assert [(one.row.run_id, one.state) for one in await store.slots.find_waiting(TENANT, "order", 2)] == [
        (run_id(3), RunState.SUCCEEDED),
        (run_id(4), RunState.SUCCEEDED),
    ]
    await store.slots.forget_ended(TENANT, [run_id(3), run_id(5), run_id(2)])
    known = [await store.slots.read(*key(number)) is not None for number in (1, 2, 3, 4, 5)]
    assert known == [False, True, False, True, True]
    await store.slots.forget_ended("other", [run_id(4)])
    assert await store.slots.read(*key(4)) is not None


async def test_a_run_that_waits_for_a_slot_is_not_stuck(store: Store) -> None:
    await save(store, waiting(1), new_run(2, run=a_run(2, state=RunState.QUEUED)))
    stuck = [run for _, run in await store.stuck_runs(10)]
    assert run_id(1) not in stuck
    await grant(store, 1)
    assert run_id(1) in [run for _, run in await store.stuck_runs(10)]


async def test_retention_deletes_the_slot_with_its_run(store: Store) -> None:
    await save(store, replace(ended(1), rows=rows_of([a_slot(1)])), waiting(2))
    assert await store.delete_runs(TENANT, [run_id(1), run_id(2)]) == [run_id(1)]
    assert await store.slots.read(*key(1)) is None
    assert await store.slots.read(*key(2)) is not None
