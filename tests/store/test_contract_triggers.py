"""Triggers on every store: a firing and its run are written together, each moment once, under the trigger's row."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.store.triggers import backfill, firing, locked, trigger, write_triggers
from tests.store.values import TENANT, a_run, an_entry, details, new_run, run_id

from stepkeep.kernel.errors import Contended, InvalidInput, InvariantBroken
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.triggers import TriggerKind
from stepkeep.store.bounds import INTEGERS
from stepkeep.store.change import Loaded, More, RunChange, Want, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import FinishedFilter
from stepkeep.store.rows import BackfillState, FiringState, TriggerChange

KEY = (TENANT, "nightly")
WORKFLOW = details(1).workflow
STARTED, WAITING, AWAITING = FiringState.STARTED, FiringState.WAITING, FiringState.AWAITING


async def test_every_row_of_triggers_is_read_as_it_was_written(store: Store) -> None:
    full = trigger(
        version=3,
        kind=TriggerKind.EVENT,
        topic="order.paid",
        spec=b'{"name":"x"}',
        next_at=7,
        due_at=8,
        cursor_at=9,
        paused_at=4,
        paused_by="bea",
        removed_at=None,
    )
    fired = firing("m", source=run_id(2), backfill="b1", reason="why", given=b"{}", watched=1, depth=3)
    job = backfill(1, ended_at=9, state=BackfillState.DONE)
    await write_triggers(store, full, firings=[fired], backfills=[job])
    triggers = store.triggers
    assert await triggers.read(*KEY) == full
    assert await triggers.list_all(TENANT) == [full] == await triggers.list_of_workflow(TENANT, "w")
    assert await triggers.list_of_kind(TENANT, TriggerKind.EVENT) == [full]
    assert await triggers.list_of_kind(TENANT, TriggerKind.SCHEDULE) == []
    assert await triggers.list_firings(*KEY) == [fired] == await triggers.read_firings(*KEY, ["m", "n"])
    assert await triggers.list_backfills(*KEY) == [job]
    assert await locked(store, KEY, (TENANT, "none")) == {KEY: full}
    for nothing in (
        triggers.list_all("other"),
        triggers.list_of_workflow(TENANT, "v"),
        triggers.list_firings("o", "m"),
    ):
        assert await nothing == []
    assert await triggers.read("other", "nightly") is None


async def test_of_changes_at_one_sequence_one_is_written(store: Store, other: Store) -> None:
    await write_triggers(store, trigger())
    changed = [trigger(seq=2, workflow=name) for name in ("a", "b", "c", "d")]
    done = await asyncio.gather(
        *(write_triggers(one, row, was=1) for one, row in zip([store, other] * 2, changed, strict=True)),
        return_exceptions=True,
    )
    assert sum(one is None for one in done) == 1
    assert all(one is None or isinstance(one, Contended) for one in done), done
    with pytest.raises(Contended):
        await write_triggers(store, trigger())
    with pytest.raises(InvariantBroken):
        await write_triggers(store, trigger(seq=2), was=2)


async def test_a_decision_waits_for_the_lock_of_a_trigger_and_sees_what_was_written(store: Store, other: Store) -> None:
    await write_triggers(store, trigger())

    async def fire(one: Store, moment: str) -> None:
        asked: list[Loaded] = []

        def decide(loaded: Loaded) -> More | Write:
            if not asked or asked[-1] is not loaded:
                asked.append(loaded)
                return More(triggers=(KEY,))
            row = loaded.triggers[KEY]
            change = TriggerChange(was=row.seq, row=replace(row, seq=row.seq + 1))
            return Write(rows=rows_of([change, firing(moment, due_at=row.seq)]))

        await one.change([], decide)

    await asyncio.gather(*(fire(one, f"m{place}") for place, one in enumerate([store, other] * 4)))
    row = await store.triggers.read(*KEY)
    assert row is not None
    assert row.seq == 9
    assert sorted(one.due_at for one in await store.triggers.list_firings(*KEY)) == list(range(1, 9))


async def test_a_firing_and_its_run_are_written_together_or_not_at_all(store: Store) -> None:
    await write_triggers(store, trigger())
    fired = firing("m1", STARTED, run_id=run_id(1), watched=1)
    change = TriggerChange(was=7, row=trigger(seq=8))
    with pytest.raises(Contended):
        await store.change([], lambda loaded: Write(new_runs=[new_run(1)], rows=rows_of([fired, change])))
    assert await store.read_run(TENANT, run_id(1)) is None
    assert await store.triggers.list_firings(*KEY) == []
    change = TriggerChange(was=1, row=trigger(seq=2))
    await store.change([], lambda loaded: Write(new_runs=[new_run(1)], rows=rows_of([fired, change])))
    asked = [run_id(2), "no id", run_id(1)]
    assert await store.triggers.find_firings_of(TENANT, asked) == {run_id(1): fired}
    assert await store.triggers.find_firings_of("other", asked) == {}


async def test_a_moment_that_fired_never_gets_another_run(store: Store) -> None:
    await write_triggers(store, firings=[firing("m1", STARTED, run_id=run_id(1))])
    with pytest.raises(InvariantBroken):
        await write_triggers(store, firings=[firing("m1", STARTED, run_id=run_id(2))])
    with pytest.raises(InvariantBroken):
        await write_triggers(store, firings=[firing("m1", FiringState.SKIPPED)])
    for wrong in (firing("m2", STARTED), firing("m2", WAITING, run_id=run_id(3))):
        with pytest.raises(InvariantBroken):
            await write_triggers(store, firings=[wrong])
    await write_triggers(store, firings=[firing("m3", reason="late", depth=2, source=run_id(5))])
    await write_triggers(store, firings=[firing("m3", STARTED, run_id=run_id(4), made_at=99, depth=3)])
    [fired] = await store.triggers.read_firings(*KEY, ["m3"])
    assert (fired.run_id, fired.reason, fired.made_at, fired.depth, fired.source) == (run_id(4), None, 6, 3, run_id(5))


async def test_due_triggers_of_all_tenants_are_found_oldest_first(store: Store) -> None:
    now = await store.now()
    rows = [
        trigger("late", due_at=now - 9),
        trigger("soon", due_at=now - 5, tenant="other"),
        trigger("never", due_at=None),
        trigger("later", due_at=now + 60_000_000),
    ]
    await write_triggers(store, *rows)
    assert await store.triggers.find_due(10) == [(TENANT, "late"), ("other", "soon")]
    assert await store.triggers.find_due(1) == [(TENANT, "late")]


async def test_lists_have_pages_and_leave_out_what_was_removed(store: Store) -> None:
    await write_triggers(store, *(trigger(name) for name in "cab"), trigger("gone", removed_at=9))
    assert [row.name for row in await store.triggers.list_all(TENANT)] == ["a", "b", "c"]
    assert [row.name for row in await store.triggers.list_all(TENANT, after="a", limit=1)] == ["b"]
    assert "gone" not in [row.name for row in await store.triggers.list_of_workflow(TENANT, "w")]
    assert (await store.triggers.read(TENANT, "gone")) is not None
    firings = [firing(f"m{place}", due_at=place // 2) for place in range(5)]
    await write_triggers(store, firings=firings)
    first = await store.triggers.list_firings(*KEY, limit=3)
    assert [one.moment for one in first] == ["m4", "m3", "m2"]
    rest = await store.triggers.list_firings(*KEY, before=(first[-1].due_at, first[-1].moment))
    assert [one.moment for one in rest] == ["m1", "m0"]
    await write_triggers(store, backfills=[backfill(1), backfill(2)])
    assert [one.id for one in await store.triggers.list_backfills(*KEY)] == ["b2", "b1"]


async def test_watched_firings_come_with_the_states_of_their_runs(store: Store) -> None:
    await store.change([], lambda loaded: Write(new_runs=[new_run(1)]))
    await write_triggers(
        store,
        firings=[
            firing("m1", STARTED, run_id=run_id(1), watched=1, due_at=2),
            firing("m2", STARTED, run_id=run_id(2), watched=1, due_at=1),
            firing("m3", WAITING, watched=1, due_at=3),
            firing("m4", watched=0),
            firing(run_id(1), AWAITING, source=run_id(1), watched=1),
            firing(run_id(3), AWAITING, source=run_id(3), watched=1),
        ],
    )
    found = await store.triggers.read_watched(*KEY)
    assert [(one.firing.moment, one.run_state) for one in found] == [
        ("m2", None),
        ("m1", RunState.RUNNING),
        ("m3", None),
    ]
    assert [one.firing.moment for one in await store.triggers.read_watched(*KEY, limit=1)] == ["m2"]
    # Run 1 lives; run 3 was deleted.
    [ending] = await store.triggers.read_endings(*KEY)
    assert (ending.firing.source, ending.run_state) == (run_id(3), None)


async def test_runs_without_a_firing_are_found_by_workflow(store: Store) -> None:
    await store.change([], lambda loaded: Write(new_runs=[new_run(number) for number in (1, 2, 3)]))
    workflow = (await store.read_details([(TENANT, run_id(1))]))[TENANT, run_id(1)].workflow
    await write_triggers(store, firings=[firing(run_id(2), AWAITING, source=run_id(2), watched=1)])
    first = "00000000-0000-0000-0000-000000000000"
    assert await store.triggers.find_unseen(*KEY, workflow, first) == [run_id(1), run_id(3)]
    assert await store.triggers.find_unseen(*KEY, workflow, run_id(1)) == [run_id(3)]
    assert await store.triggers.find_unseen(*KEY, "another", first) == []
    assert await store.triggers.find_unseen(TENANT, "weekly", workflow, first, limit=1) == [run_id(1)]


async def test_the_end_of_a_run_is_noted_for_the_triggers_about_its_workflow(store: Store) -> None:
    ended = {"kind": TriggerKind.ENDED, "topic": WORKFLOW}
    await write_triggers(
        store,
        trigger("nightly", **ended),
        trigger("paused", **ended, paused_at=1, paused_by="ann"),
        trigger("removed", **ended, removed_at=2),
        trigger("other", kind=TriggerKind.ENDED, topic="another"),
        trigger("event", kind=TriggerKind.EVENT, topic=WORKFLOW),
    )
    await store.change([], lambda loaded: Write(new_runs=[new_run(number) for number in (1, 2)]))
    assert await store.triggers.list_firings(*KEY) == []
    ended_run = a_run(1, RunState.CANCELLED, seq=2, ended_at=9)
    change = Write(runs=[RunChange(was=1, run=ended_run)], entries=[an_entry(run_id(1), 2)])
    await store.change([Want(tenant=TENANT, run_id=run_id(1))], lambda loaded: change)
    for name, expected in (("nightly", 1), ("paused", 1), ("removed", 0), ("other", 0), ("event", 0)):
        found = await store.triggers.list_firings(TENANT, name)
        assert [(one.moment, one.source, one.state, one.watched) for one in found] == [
            (run_id(1), run_id(1), AWAITING, 1)
        ] * expected, name
    assert await store.delete_runs(TENANT, [run_id(1)]) == []
    assert await store.find_finished(FinishedFilter(tenant=TENANT, limit=9)) == []
    for name in ("nightly", "paused"):
        await write_triggers(store, firings=[firing(run_id(1), source=run_id(1), trigger_name=name)])
    assert await store.find_finished(FinishedFilter(tenant=TENANT, limit=9)) == [run_id(1)]
    assert await store.triggers.forget_firings(TENANT, 2**60, 9) == 0, "the run is kept"
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]
    assert await store.triggers.forget_firings("another", 2**60, 9) == 0
    assert await store.triggers.forget_firings(TENANT, 0, 9) == 0
    assert await store.triggers.forget_firings(TENANT, 2**60, 1) == 1
    assert await store.triggers.forget_firings(TENANT, 2**60, 9) == 1


async def test_a_run_that_ends_at_once_is_noted(store: Store) -> None:
    await write_triggers(store, trigger("nightly", kind=TriggerKind.ENDED, topic=WORKFLOW))
    new = new_run(1)
    run = replace(new.run, state=RunState.SUCCEEDED, ended_at=9)
    await store.change([], lambda loaded: Write(new_runs=[new_run(2), replace(new, run=run)]))
    assert [one.moment for one in await store.triggers.list_firings(*KEY)] == [run_id(1)]


ROWS: dict[str, Any] = {
    "triggers": lambda value: TriggerChange(was=0, row=trigger(**value)),
    "firings": lambda value: firing("m", **value),
    "backfills": lambda value: backfill(1, **value),
}


@pytest.mark.parametrize(("table", "column"), [(name, column) for name in ROWS for column in INTEGERS[name]])
async def test_the_largest_and_the_smallest_number_fit_and_one_more_is_refused(
    store: Store, table: str, column: str
) -> None:
    bounds = INTEGERS[table][column]
    for wrong in (bounds.low - 1, bounds.high + 1):
        with pytest.raises(InvalidInput, match=f"{table}.{column}"):
            await store.change([], lambda loaded, value=wrong: Write(rows=rows_of([ROWS[table]({column: value})])))
    for value in {"seq": [bounds.high]}.get(column, [bounds.low, bounds.high]):
        if table == "triggers":
            # Each change of a trigger has a new sequence number: a new row for each value.
            name = f"{value}"
            row = trigger(name, **{column: value})
            await write_triggers(store, row)
            assert await store.triggers.read(TENANT, name) == row
            continue
        made: Any = (firing if table == "firings" else backfill)(**_named(table, value), **{column: value})
        await store.change([], lambda loaded, row=made: Write(rows=rows_of([row])))
        assert made in await _read(store, table, made)


def _named(table: str, value: int) -> dict[str, object]:
    """Another key for each value: columns that are written once keep their first one."""
    return {"moment": f"m{value}"} if table == "firings" else {"number": value % 1000}


async def _read(store: Store, table: str, row: Any) -> Any:
    if table == "firings":
        return await store.triggers.read_firings(*KEY, [row.moment])
    return await store.triggers.list_backfills(*KEY)
