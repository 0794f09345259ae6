"""What every store promises about resources: which steps wait for some, what is held, and what is void."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.store.test_contract_retention import ended
from tests.store.values import TENANT, a_run, key, new_run, ready, run_id, running, save, settled, want, writes

from stepkeep.kernel.errors import StepkeepError
from stepkeep.kernel.machine.rows import Step, rows_of
from stepkeep.store.change import Loaded, More, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import HoldRow, ResourceWaiter

SINCE = 100_000_000_000_000_000
"""The time of a step that is claimed together with its resources begins here."""


def a_hold(number: int, no: int = 0, resource: str = "repo", mode: str = "exclusive", **given: Any) -> HoldRow:
    plain: dict[str, Any] = {"fence": 1, "step": f"s{no}", "units": 0, "held_at": 5}
    return HoldRow(tenant=TENANT, run_id=run_id(number), no=no, resource=resource, mode=mode, **{**plain, **given})


async def hold(store: Store, *holds: HoldRow) -> None:
    await store.change([], writes(Write(rows=rows_of(holds))))


async def leave(store: Store, step: Step) -> None:
    """Write a step as it stands after its claim."""
    await store.change([want(1)], writes(Write(steps=[step])))


async def test_steps_wait_in_the_order_of_priority_and_arrival(store: Store) -> None:
    await save(
        store,
        new_run(1, [ready(1, at=SINCE + 9), ready(1, 1, at=SINCE + 5)]),
        new_run(2, [ready(2, at=SINCE + 9, priority=4), ready(2, 1, at=7)]),
        new_run(3, [ready(3, at=SINCE + 1, queue=8), running(3, 1, due_at=9)]),
        new_run(4, [ready(4, at=253_402_300_799_999_999)]),
    )
    queue = ready(1).queue
    found = await store.resources.find_waiting({queue}, 9)
    assert [(one.run_id, one.no) for one in found] == [(run_id(2), 0), (run_id(1), 1), (run_id(1), 0)]
    assert found[0] == ResourceWaiter(TENANT, run_id(2), 0, a_run(2).definition_id)
    assert await store.resources.find_waiting({queue}, 1) == found[:1]
    assert await store.resources.find_waiting({queue}, 9, start=1) == found[1:]
    assert await store.resources.find_waiting({queue}, 1, start=1) == found[1:2]
    assert [one.run_id for one in await store.resources.find_waiting({8, queue}, 9)][-1] != run_id(4)
    assert {one.run_id for one in await store.resources.find_waiting({8}, 9)} == {run_id(3)}
    assert await store.resources.find_waiting({queue}, 9, key(1)) == found[1:]
    assert await store.resources.find_waiting({queue}, 1, key(1)) == found[1:2]
    assert await store.resources.find_waiting({queue}, 9, key(1), 1) == found[2:]
    assert await store.resources.find_waiting({queue}, 9, key(3)) == []
    assert await store.resources.find_waiting((), 9) == []
    assert await store.resources.has_waiting()
    assert not await store.has_ready({8}), "a claim query proposes none of them"


async def test_nothing_waits_where_steps_need_no_resources(store: Store) -> None:
    await save(store, new_run(1, [ready(1), ready(1, 1, at=253_402_300_799_999_999)]))
    assert not await store.resources.has_waiting()


async def test_the_steps_of_a_quarantined_run_do_not_wait(store: Store) -> None:
    await save(store, new_run(1, [ready(1, at=SINCE + 9)]))
    await store.quarantine(TENANT, run_id(1), "ann", "odd")
    assert await store.resources.find_waiting({ready(1).queue}, 9) == []
    assert await store.resources.find_waiting({ready(1).queue}, 9, key(1)) == []


async def test_a_resource_is_held_while_its_step_is_held_under_the_same_fence(store: Store) -> None:
    step = running(1, due_at=90)
    await save(store, new_run(1, [step, running(1, 1, due_at=90)]), new_run(2, [running(2, due_at=90, fence=3)]))
    holds = [a_hold(1), a_hold(1, 1, "cpu", "units", units=4), a_hold(2, 0, "cpu", "shared", fence=3)]
    await hold(store, *holds)
    assert await store.resources.read_holds(TENANT) == [holds[1], holds[2], holds[0]]
    assert await store.resources.read_holds("other") == []
    await leave(store, replace(step, fence=2))
    assert await store.resources.read_holds(TENANT) == holds[1:], "another claim holds the step"
    await leave(store, settled(running(1, 1, due_at=90)))
    assert await store.resources.read_holds(TENANT) == holds[2:], "no claim holds the step"


async def test_what_is_held_is_read_under_the_lock(store: Store) -> None:
    await save(store, new_run(1, [running(1, due_at=90)]))
    await hold(store, a_hold(1))
    seen: list[tuple[HoldRow, ...]] = []

    def decide(loaded: Loaded) -> More | Write:
        if TENANT not in loaded.resources:
            return More(resources=(TENANT, "other"))
        seen.append(loaded.resources[TENANT])
        assert loaded.resources["other"] == ()
        return Write()

    await store.change([want(1)], decide)
    assert seen == [(a_hold(1),)]


async def test_void_rows_make_room_and_a_second_exclusive_one_is_refused(store: Store) -> None:
    step = running(1, due_at=90)
    await save(store, new_run(1, [step]), new_run(2, [running(2, due_at=90)]))
    await hold(store, a_hold(1))
    with pytest.raises(StepkeepError):
        await hold(store, a_hold(2))
    assert await store.resources.read_holds(TENANT) == [a_hold(1)]
    await leave(store, settled(step))
    await hold(store, a_hold(2))
    assert await store.resources.read_holds(TENANT) == [a_hold(2)]


async def test_what_is_left_goes_with_its_run(store: Store) -> None:
    await save(store, ended(1))
    await hold(store, a_hold(1))
    assert await store.delete_runs(TENANT, [run_id(1)])
    await save(store, new_run(1, [running(1, due_at=90)]))
    assert await store.resources.read_holds(TENANT) == []
