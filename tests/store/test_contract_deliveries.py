"""Delivery cursors on every store: moved by the transaction that emits, claimed and reported by relays with a fence."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.store.test_contract_rows import FULL_OUTBOX
from tests.store.values import (
    SECOND,
    TENANT,
    a_run,
    a_worker,
    an_entry,
    key,
    new_run,
    run_id,
    save,
    want,
    writes,
)

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.rows import OutboxEntry, Run, rows_of
from stepkeep.kernel.machine.states import RunState
from stepkeep.store.bounds import INTEGERS
from stepkeep.store.change import Basis, Loaded, RunChange, Write
from stepkeep.store.deliveries import (
    HOOK,
    RUN_WEBHOOK,
    WHOLE,
    Action,
    DeliveryState,
    Lag,
    Report,
    Takes,
    state_of,
    worker_cursor,
    worker_of,
)
from stepkeep.store.protocol import Store
from stepkeep.store.records import FinishedFilter, WorkerChange
from stepkeep.store.rows import Delivery, SinkRow

LEASE = 30 * SECOND


def a_sink(name: str = "shop", takes: Takes = Takes.EMITTED, prefix: str = "", **given: Any) -> SinkRow:
    kept = {"kind": "jsonl", "patterns": (f"{prefix}*",), "options": b"{}", "created_at": 1, "created_by": "ann"}
    return SinkRow(tenant=TENANT, name=name, takes=int(takes), prefix=prefix, **{**kept, **given})


def action(what: str, sink: str = "shop", number: int | None = None, place: tuple[int, int] | None = None) -> Action:
    seq, no = place or (None, None)
    run = None if number is None else run_id(number)
    return Action(
        tenant=TENANT, at=0, actor="ann", action=what, sink=sink, run_id=run, seq=seq, number=no, reason="why"
    )


async def add(store: Store, *sinks: SinkRow) -> None:
    for sink in sinks:
        await store.deliveries.save_sink(sink, action("sink_added", sink.name))


def told(number: int, seq: int, no: int = 0, name: str = "order.paid") -> OutboxEntry:
    return replace(FULL_OUTBOX, run_id=run_id(number), seq=seq, number=no, name=name)


async def emit(store: Store, number: int, *entries: OutboxEntry, ended: bool = False) -> None:
    """Move a run on by one entry that emits these."""
    before = (await store.read_run(*key(number))).run  # type: ignore[union-attr]
    after, entry = moved_on(before, ended=ended)
    change = Write(runs=[RunChange(was=before.seq, run=after)], entries=[entry], rows=rows_of(entries))
    await store.change([want(number)], writes(change))


def moved_on(run: Run, *, ended: bool = False) -> tuple[Run, Any]:
    entry = an_entry(run.id, run.seq + 1, run.head, at=run.moved_at + 1)
    end = {"state": RunState.SUCCEEDED, "ended_at": run.moved_at + 1} if ended else {}
    return replace(run, seq=run.seq + 1, head=entry.hash, moved_at=run.moved_at + 1, **end), entry


async def cursor(store: Store, number: int = 1, sink: str = "shop") -> Delivery:
    [found] = [one for one in await store.deliveries.read_cursors(*key(number)) if one.sink == sink]
    return found


async def claim(store: Store, sink: str = "shop", most: int = 10, lease: int = LEASE) -> list[Delivery]:
    return await store.deliveries.claim(TENANT, [(sink, most)], "w-1", lease)


def report(one: Delivery, sent: int, number: int = WHOLE, **given: Any) -> Report:
    which = {"tenant": one.tenant, "run_id": one.run_id, "sink": one.sink, "fence": one.fence}
    return Report(**{**which, "sent": sent, "sent_number": number, **given})


# -- what the emitting transaction does ------------------------------------------------------------------------------


async def test_a_run_that_emits_nothing_has_no_cursor(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1)
    assert await store.deliveries.read_cursors(*key(1)) == []
    assert await store.deliveries.find_due_sinks(TENANT) == []


async def test_a_sink_that_is_there_is_replaced_only_if_that_is_asked_for(store: Store) -> None:
    first, other = a_sink(), a_sink(created_by="bob")
    assert await store.deliveries.save_sink(first, action("sink_added"), replace=False) is True
    assert await store.deliveries.save_sink(other, action("sink_added"), replace=False) is False
    assert await store.deliveries.list_sinks(TENANT) == [first]
    assert len(await store.deliveries.read_actions(TENANT, None, 10)) == 1
    assert await store.deliveries.save_sink(other, action("sink_replaced")) is True
    assert await store.deliveries.list_sinks(TENANT) == [other]


async def test_an_event_without_a_sink_is_kept_and_moves_nothing(store: Store) -> None:
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    assert await store.deliveries.read_cursors(*key(1)) == []
    assert [one.seq for one in await store.read_outbox(*key(1))] == [2]


async def test_an_event_creates_the_cursor_of_each_sink_whose_prefix_it_has(store: Store) -> None:
    await add(store, a_sink(), a_sink("orders", prefix="order."), a_sink("mails", prefix="mail."))
    await save(store, new_run(1))
    await emit(store, 1)
    await emit(store, 1, told(1, 3))
    found = await store.deliveries.read_cursors(*key(1))
    assert [(one.sink, one.last, one.sent, one.sent_number) for one in found] == [
        ("orders", 3, 2, WHOLE),
        ("shop", 3, 2, WHOLE),
    ]
    assert sorted(await store.deliveries.find_due_sinks(TENANT)) == ["orders", "shop"]


async def test_what_was_emitted_before_the_sink_was_added_is_not_sent(store: Store) -> None:
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    await add(store, a_sink())
    await emit(store, 1, told(1, 3))
    one = await cursor(store)
    assert (one.sent, one.last) == (2, 3)
    found = await store.deliveries.read_entries(*key(1), (one.sent, one.sent_number), 10)
    assert [entry.seq for entry in found] == [3]


async def test_a_new_run_that_emits_at_once_has_its_cursor(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1, outbox=(told(1, 1), told(1, 1, 1))))
    assert (await cursor(store)).last == 1


async def test_a_sink_of_the_course_has_a_cursor_from_the_start_that_every_entry_moves(store: Store) -> None:
    await add(store, a_sink("course", Takes.TRANSITIONS), a_sink("ends", Takes.ENDINGS))
    await save(store, new_run(1))
    assert (await cursor(store, sink="course")).last == 1
    assert (await cursor(store, sink="ends")).ready_at is None
    await emit(store, 1)
    assert (await cursor(store, sink="course")).last == 2
    assert (await cursor(store, sink="ends")).last == 0
    await emit(store, 1, ended=True)
    assert (await cursor(store, sink="course")).last == 3
    ends = await cursor(store, sink="ends")
    assert (ends.last, ends.sent, ends.ready_at is not None) == (3, 0, True)


async def test_a_write_without_locks_moves_cursors_too(store: Store) -> None:
    await add(store, a_sink("course", Takes.DIALECT), a_sink())
    start = a_run(1, moved_at=1)
    await store.write_if_unchanged(Write(new_runs=[new_run(1, run=start)]), Loaded(now=0), Basis.NEW)
    assert (await cursor(store, sink="course")).last == 1
    after, entry = moved_on(start)
    change = Write(runs=[RunChange(was=1, run=after)], entries=[entry], rows=rows_of([told(1, 2)]))
    await store.write_if_unchanged(change, Loaded(now=0, runs={key(1): start}), Basis.REMEMBERED)
    assert (await cursor(store, sink="course")).last == 2
    again, entry = moved_on(after)
    hot = Write(runs=[RunChange(was=2, run=again)], entries=[entry], only_hot=True)
    await store.write_if_unchanged(hot, Loaded(now=0, runs={key(1): after}), Basis.REMEMBERED)
    found = await store.deliveries.read_cursors(*key(1))
    assert [(one.sink, one.last) for one in found] == [("course", 3), ("shop", 2)]


async def test_a_run_may_bring_a_cursor_of_its_own(store: Store) -> None:
    brought = Delivery(
        tenant=TENANT,
        run_id=run_id(1),
        sink=RUN_WEBHOOK,
        takes=8,
        last=0,
        sent=0,
        sent_number=WHOLE,
        target=b'{"url":"https://shop.example/"}',
    )
    await save(store, new_run(1, deliveries=(brought,)))
    assert await store.deliveries.read_cursors(*key(1)) == [brought]
    await emit(store, 1, ended=True)
    assert await store.deliveries.find_due_sinks(TENANT) == [RUN_WEBHOOK]


@pytest.mark.parametrize("column", INTEGERS["deliveries"])
async def test_a_number_of_a_cursor_beyond_its_bounds_is_refused(store: Store, column: str) -> None:
    row = Delivery(tenant=TENANT, run_id=run_id(1), sink="x", takes=8, last=0, sent=0, sent_number=WHOLE)
    beyond = INTEGERS["deliveries"][column].high + 1
    with pytest.raises(InvalidInput, match=rf"deliveries\.{column}"):
        await save(store, new_run(1, deliveries=(replace(row, **{column: beyond}),)))


# -- claims and reports ----------------------------------------------------------------------------------------------


async def test_a_claim_takes_the_oldest_due_first_and_each_once(store: Store) -> None:
    await add(store, a_sink())
    for number in (3, 1, 2):
        await save(store, new_run(number))
        await emit(store, number, told(number, 2))
        store.clock_offset += SECOND
    first = await claim(store, most=2)
    assert sorted(one.run_id for one in first) == [run_id(1), run_id(3)]
    assert {(one.fence, one.holder) for one in first} == {(1, "w-1")}
    assert all(one.lease_until == one.ready_at for one in first)
    assert [one.run_id for one in await claim(store)] == [run_id(2)]
    assert await claim(store) == []
    assert await claim(store, "another") == []
    assert await claim(store, most=0) == []


async def test_what_a_relay_held_is_due_again_when_its_lease_ends(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    [lost] = await claim(store)
    now = await store.now()
    assert state_of(await cursor(store), now) is DeliveryState.SENDING
    store.clock_offset += LEASE + SECOND
    assert state_of(await cursor(store), await store.now()) is DeliveryState.READY
    [again] = await claim(store)
    assert again.fence == 2
    assert await store.deliveries.report([report(lost, 2)]) == [False], "it comes too late"
    assert (await cursor(store)).sent == 1
    assert await store.deliveries.report([report(again, 2)]) == [True]
    assert await store.deliveries.report([report(again, 2)]) == [False], "the claim has ended"


async def test_a_report_of_all_makes_the_cursor_idle_and_one_of_a_part_leaves_it_due(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2), told(1, 2, 1))
    [one] = await claim(store)
    assert await store.deliveries.report([report(one, 2, 0)]) == [True]
    left = await cursor(store)
    assert (left.sent, left.sent_number, state_of(left, await store.now())) == (2, 0, DeliveryState.READY)
    [two] = await claim(store)
    await store.deliveries.report([report(two, 2)])
    assert (await cursor(store)).ready_at is None
    assert await store.deliveries.count_cursors(TENANT) == []


async def test_what_is_emitted_during_a_delivery_is_not_stranded(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    [one] = await claim(store)
    await emit(store, 1, told(1, 3))
    assert (await cursor(store)).lease_until is not None, "the claim goes on"
    await store.deliveries.report([report(one, 2)])
    left = await cursor(store)
    assert (left.sent, left.last, state_of(left, await store.now())) == (2, 3, DeliveryState.READY)


async def test_a_claim_may_go_on_after_a_report(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2), told(1, 2, 1))
    [one] = await claim(store)
    store.clock_offset += LEASE - SECOND
    assert await store.deliveries.report([report(one, 2, 0, lease_us=LEASE)]) == [True]
    store.clock_offset += LEASE - SECOND
    assert await claim(store) == []
    assert await store.deliveries.report([report(one, 2)]) == [True]


async def test_a_failure_is_due_after_its_backoff_and_a_dead_one_never(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    [one] = await claim(store)
    await store.deliveries.report([report(one, 1, attempts=1, retry_us=4 * SECOND, error="500")])
    failed = await cursor(store)
    assert (failed.attempts, failed.error, failed.sent) == (1, "500", 1)
    assert await claim(store) == []
    store.clock_offset += 5 * SECOND
    [two] = await claim(store)
    await store.deliveries.report([report(two, 1, attempts=2, is_dead=True, error="500 again")])
    await emit(store, 1, told(1, 3))
    store.clock_offset += 1000 * SECOND
    dead = await cursor(store)
    assert (state_of(dead, await store.now()), dead.last, dead.ready_at) == (DeliveryState.DEAD, 3, None)
    assert await claim(store) == []
    assert await store.deliveries.list_cursors(TENANT, dead=True) == [dead]
    assert await store.deliveries.count_cursors(TENANT) == [Lag(sink="shop", waiting=0, dead=1, oldest_at=None)]


async def dead_one(store: Store, number: int = 1) -> Delivery:
    await save(store, new_run(number))
    await emit(store, number, told(number, 2), told(number, 2, 1))
    [one] = await claim(store)
    await store.deliveries.report([report(one, 1, attempts=10, is_dead=True, error="no")])
    return await cursor(store, number)


async def test_a_redrive_makes_a_dead_one_due_and_is_on_record(store: Store) -> None:
    await add(store, a_sink())
    await dead_one(store)
    assert await store.deliveries.redrive(action("redriven", number=1, place=(2, 0))) is True
    assert await store.deliveries.redrive(action("redriven", number=1, place=(2, 0))) is False
    [again] = await claim(store)
    assert (again.attempts, again.sent, again.dead_at) == (0, 1, None)
    noted, *_ = await store.deliveries.read_actions(TENANT, run_id(1))
    assert (noted.actor, noted.action, noted.seq, noted.number, noted.reason) == ("ann", "redriven", 2, 0, "why")
    assert len(await store.deliveries.read_actions(TENANT, run_id(1))) == 1, "what changed nothing is not on record"


async def test_a_drop_passes_over_the_dead_entry_alone(store: Store) -> None:
    await add(store, a_sink())
    await dead_one(store)
    assert await store.deliveries.drop(action("dropped", number=1, place=(3, 0))) is False, "there is no such entry"
    assert await store.deliveries.drop(action("dropped", number=1, place=(2, 0))) is True
    assert await store.deliveries.drop(action("dropped", number=1, place=(2, 0))) is False
    [rest] = await claim(store)
    assert (rest.sent, rest.sent_number) == (2, 0)
    found = await store.deliveries.read_entries(*key(1), (2, 0), 10)
    assert [(one.seq, one.number) for one in found] == [(2, 1)]
    assert [one.action for one in await store.deliveries.read_actions(TENANT)] == ["dropped", "sink_added"]


async def test_a_quarantined_run_is_not_claimed(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    await store.quarantine(*key(1), "ann", "wait")
    assert await claim(store) == []
    await store.release(*key(1), "ann", "go on")
    assert len(await claim(store)) == 1


async def test_several_relays_never_claim_the_same_cursor(store: Store) -> None:
    await add(store, a_sink())
    for number in range(1, 21):
        await save(store, new_run(number))
        await emit(store, number, told(number, 2))
    found = await asyncio.gather(*(claim(store, most=7) for _ in range(6)))
    taken = [one.run_id for some in found for one in some]
    assert len(taken) == len(set(taken))
    rest = [one.run_id for one in await claim(store, most=100)]
    assert sorted([*taken, *rest]) == [run_id(number) for number in range(1, 21)]


# -- lists, removal and retention ------------------------------------------------------------------------------------


async def test_lists_go_on_after_a_cursor_and_show_one_sink(store: Store) -> None:
    await add(store, a_sink("a"), a_sink("b"))
    for number in (1, 2):
        await save(store, new_run(number))
        await emit(store, number, told(number, 2))
    every = await store.deliveries.list_cursors(TENANT)
    assert [(one.sink, one.run_id) for one in every] == [
        (sink, run_id(number)) for sink in ("a", "b") for number in (1, 2)
    ]
    assert await store.deliveries.list_cursors(TENANT, after=("a", run_id(2))) == every[2:]
    assert await store.deliveries.list_cursors(TENANT, sink="b", limit=1) == every[2:3]
    assert await store.deliveries.list_cursors("other") == []


async def test_a_sink_with_undelivered_events_is_removed_only_on_purpose(store: Store) -> None:
    await add(store, a_sink())
    assert await store.deliveries.remove_sink(action("sink_removed", "none"), discard=True) is None
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    assert await store.deliveries.remove_sink(action("sink_removed"), discard=False) == 1
    assert len(await store.deliveries.list_sinks(TENANT)) == 1
    assert await store.deliveries.remove_sink(action("sink_removed"), discard=True) == 1
    assert await store.deliveries.list_sinks(TENANT) == []
    assert await store.deliveries.read_cursors(*key(1)) == []
    assert [one.action for one in await store.deliveries.read_actions(TENANT)] == ["sink_removed", "sink_added"]


async def test_a_replaced_sink_keeps_its_cursors(store: Store) -> None:
    await add(store, a_sink())
    await save(store, new_run(1))
    await emit(store, 1, told(1, 2))
    changed = a_sink(kind="webhook", options=b'{"url":"x"}', created_by="bea")
    await add(store, changed)
    assert await store.deliveries.list_sinks(TENANT) == [changed]
    assert len(await claim(store)) == 1


async def test_retention_keeps_a_run_until_everything_is_delivered(store: Store) -> None:
    await add(store, a_sink())
    for number in (1, 2, 3):
        done = a_run(number, RunState.SUCCEEDED, ended_at=9)
        await save(store, new_run(number, run=done, outbox=(told(number, 1),) if number < 3 else ()))
    every = [run_id(number) for number in (1, 2, 3)]
    assert await store.find_finished(FinishedFilter(tenant=TENANT)) == [run_id(3)]
    assert await store.find_finished(FinishedFilter(tenant=TENANT, workflow="onboarding")) == [run_id(3)]
    assert await store.delete_runs(TENANT, every) == [run_id(3)]
    sent, dead = sorted(await claim(store), key=lambda one: one.run_id)
    assert await store.delete_runs(TENANT, every) == [], "one that is being sent stays too"
    await store.deliveries.report([report(sent, 1)])
    await store.deliveries.report([report(dead, 0, is_dead=True)])
    assert await store.delete_runs(TENANT, every) == [run_id(1)]
    assert await store.deliveries.read_cursors(*key(1)) == []
    await store.deliveries.remove_sink(action("sink_removed"), discard=True)
    assert await store.delete_runs(TENANT, every) == [run_id(2)]


# -- hooks of definitions, and transitions of workers ----------------------------------------------------------------


async def test_a_cursor_that_a_run_brings_for_a_hook_is_found_claimed_and_keeps_the_run(store: Store) -> None:
    hook = f"{HOOK}flow@1/told"
    given = {"tenant": TENANT, "sink": hook, "takes": int(Takes.TRANSITIONS), "last": 1, "sent": 0}
    brought = Delivery(run_id=run_id(1), sent_number=WHOLE, ready_at=1, **given)
    await save(store, new_run(1, deliveries=(brought,)), new_run(2))
    assert await store.deliveries.find_due_sinks(TENANT) == [hook]
    [one] = await claim(store, hook)
    assert await store.deliveries.find_due_sinks(TENANT) == [], "the lease holds it"
    assert await store.deliveries.report([report(one, 1)]) == [True]
    await emit(store, 1, ended=True)
    assert (await cursor(store, 1, hook)).last == 2
    assert await store.find_finished(FinishedFilter(tenant=TENANT)) == []
    assert await store.find_finished(FinishedFilter(tenant=TENANT, workflow="onboarding")) == []
    assert await store.delete_runs(TENANT, [run_id(1)]) == []
    [one] = await claim(store, hook)
    await store.deliveries.report([report(one, 2)])
    assert await store.find_finished(FinishedFilter(tenant=TENANT)) == [run_id(1)]
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]


async def test_due_sinks_are_found_however_many_cursors_they_have(store: Store) -> None:
    await add(store, a_sink("a"), a_sink("b", Takes.TRANSITIONS), a_sink("c", Takes.ENDINGS))
    await save(store, *(new_run(number) for number in range(1, 6)))
    for number in range(1, 6):
        await emit(store, number, told(number, 2))
    assert await store.deliveries.find_due_sinks(TENANT) == ["a", "b"]
    await store.deliveries.claim(TENANT, [("a", 5)], "w", LEASE)
    assert await store.deliveries.find_due_sinks(TENANT) == ["b"]


async def watched(store: Store, worker: str = "w-1") -> list[Delivery]:
    return await store.deliveries.read_cursors(TENANT, worker_cursor(worker))


async def test_a_transition_of_a_worker_moves_the_cursors_of_sinks_for_workers(store: Store) -> None:
    await add(store, a_sink(), a_sink("watch", Takes.WORKERS), a_sink("both", Takes.WORKERS | Takes.ENDINGS))
    first = an_entry("w-1", 1)
    worker = await store.add_worker(a_worker(head=first.hash), first)
    both, watch = await watched(store)
    assert (watch.sink, watch.last, watch.sent, watch.sent_number) == ("watch", 1, 0, WHOLE)
    assert (worker_of(watch), worker_of(both), state_of(watch, await store.now())) == (
        "w-1",
        "w-1",
        DeliveryState.READY,
    )
    second = an_entry("w-1", 2, first.hash)
    moved = replace(worker, seq=2, head=second.hash)
    late = WorkerChange(was=9, worker=moved, entry=second)
    assert await store.change_workers([late]) == [False]
    assert [one.last for one in await watched(store)] == [1, 1], "a change that is refused moves nothing"
    assert await store.change_workers([replace(late, was=1)]) == [True]
    assert [(one.last, one.sent) for one in await watched(store)] == [(2, 0), (2, 0)]
    assert [one.seq for one in await store.deliveries.read_worker_entries(TENANT, "w-1", 1, 10)] == [2]
    assert [one.seq for one in await store.deliveries.read_worker_entries(TENANT, "w-1", 0, 1)] == [1]
    [one] = await claim(store, "watch")
    assert await store.deliveries.report([report(one, 2)]) == [True]
    assert [one.sink for one in await watched(store) if one.ready_at is None] == ["watch"]


async def test_runs_have_no_cursor_for_what_a_sink_takes_of_workers(store: Store) -> None:
    await add(store, a_sink("watch", Takes.WORKERS), a_sink("both", Takes.WORKERS | Takes.TRANSITIONS))
    await save(store, new_run(1))
    [one] = await store.deliveries.read_cursors(*key(1))
    assert (one.sink, one.takes, worker_of(one)) == ("both", Takes.TRANSITIONS, None)


async def test_a_sink_for_workers_gets_what_happens_after_it_was_added(store: Store) -> None:
    first = an_entry("w-1", 1)
    worker = await store.add_worker(a_worker(head=first.hash), first)
    await add(store, a_sink("watch", Takes.WORKERS))
    assert await watched(store) == []
    second = an_entry("w-1", 2, first.hash)
    await store.change_workers([WorkerChange(was=1, worker=replace(worker, seq=2, head=second.hash), entry=second)])
    [one] = await watched(store)
    assert (one.last, one.sent) == (2, 1)
