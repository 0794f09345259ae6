"""What was decided without a look is written only where the database agrees: all of it, or nothing."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.store.raw import Raw
from tests.store.values import (
    QUEUE,
    SECOND,
    TENANT,
    a_message,
    a_run,
    a_step,
    finished,
    key,
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

from stepkeep.kernel.errors import Contended
from stepkeep.kernel.machine.rows import Attempt, Note, OutboxEntry, Run, Step, rows_of
from stepkeep.kernel.machine.states import AttemptState, StepState
from stepkeep.store.change import Basis, Loaded, NewRun, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import ReleasedKey

LONG = 60 * SECOND


def told(run: Run, seq: int) -> OutboxEntry:
    return OutboxEntry(tenant=TENANT, run_id=run.id, seq=seq, number=0, name="told", payload=b"{}", created_at=1)


def other_tenants(new: NewRun) -> NewRun:
    """The same run, of a tenant called `other`."""
    return replace(
        new,
        run=replace(new.run, tenant="other"),
        details=replace(new.details, tenant="other"),
        steps=tuple(replace(step, tenant="other") for step in new.steps),
        entries=(replace(new.entries[0], tenant="other"),),
    )


def known(*runs: Run) -> Loaded:
    return Loaded(now=0, runs={(run.tenant, run.id): run for run in runs})


async def test_what_is_still_as_it_was_left_is_written_and_the_clock_comes_back(store: Store) -> None:
    now = await store.now()
    held, next_one = running(1, due_at=now + LONG), a_step(1, 1, unmet=1)
    await save(store, new_run(1, (held, next_one)))
    change, entry = moved(a_run(1), error="noted")
    write = Write(runs=[change], steps=[settled(held), running(1, 1, due_at=now + LONG)], entries=[entry])

    said = await store.write_if_unchanged(write, known(a_run(1)), Basis.REMEMBERED)

    assert now <= said <= await store.now()
    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == change.run
    assert await store.read_steps(*key(1)) == write.steps
    assert [one.seq for one in await store.read_journal(*key(1))] == [1, 2]


def remembered(*rows: Step) -> dict[int, Step]:
    return {row.no: row for row in rows}


@pytest.mark.parametrize("looks", [False, True], ids=["recorded", "changed"])
async def test_where_rows_only_move_they_are_written_as_whole_rows_would_be_and_the_rest_stays(
    store: Store, looks: bool
) -> None:
    now = await store.now()
    stays = {"priority": 3, "attempts": 2, "losses": 1, "note": Note(woken_by="paid")}
    claimable, held = ready(1, 0, at=now, **stays), running(1, 1, due_at=now + LONG, **stays)
    waits, joins = a_step(1, 2, unmet=1, **stays), a_step(1, 3, unmet=2, **stays)
    run = a_run(
        1, priority=3, failed=1, inbox=2, business_key="order 7", started_at=5, open=4, moving=2, leased=1, due_at=99
    )
    await save(store, new_run(1, (claimable, held, waits, joins), run=run))
    lease = {"worker": 8, "claimed_at": now + 1, "due_at": now + LONG + 1}
    steps = [
        replace(claimable, state=StepState.RUNNING, ready_at=None, fence=1, **lease),
        settled(held),
        replace(waits, state=StepState.READY, ready_at=now + 1, unmet=0),
        replace(joins, unmet=1),
    ]
    change, entry = moved(run, open=3, moving=3, leased=2, due_at=None, moved_at=now + 1)
    attempt = Attempt(TENANT, run.id, 1, 1, 3, AttemptState.SUCCEEDED, 1, 1, now, output=b"1", cost=b'{"eur":2}')
    write = Write(runs=[change], steps=steps, entries=[entry], attempts=[attempt], only_hot=True)

    if looks:
        await store.change([want(1, whole=True)], writes(write))
    else:
        before = remembered(claimable, held, waits, joins)
        await store.write_if_unchanged(
            write, Loaded(now=now, runs={key(1): run}, steps={key(1): before}), Basis.REMEMBERED
        )

    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == change.run
    assert await store.read_steps(*key(1)) == steps
    assert await store.read_attempts(*key(1)) == [attempt]
    assert [one.seq for one in await store.read_journal(*key(1))] == [1, 2]

    last, its_entry = finished(change.run)
    ends = [settled(step, fence=max(step.fence, 1)) for step in steps if step.settled is None]
    ended = Write(runs=[last], steps=ends, entries=[its_entry], only_hot=True)
    if looks:
        await store.change([want(1)], writes(ended))
    else:
        await store.write_if_unchanged(
            ended, Loaded(now=now, runs={key(1): change.run}, steps={key(1): remembered(*steps)}), Basis.REMEMBERED
        )
    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == last.run
    assert [step.state for step in await store.read_steps(*key(1))] == [StepState.SUCCEEDED] * 4
    assert not await store.has_ready([QUEUE])
    assert await store.find_due(10) == []


@pytest.mark.parametrize("only_hot", [False, True])
async def test_one_run_that_has_moved_on_keeps_all_the_others_from_being_written(
    store: Store, raw: Raw, only_hot: bool
) -> None:
    due = await store.now() + LONG
    await save(store, new_run(1, (running(1, due_at=due),)), new_run(2, (running(2, due_at=due),)))
    other, its_entry = moved(a_run(2))
    await store.change([want(2)], writes(Write(runs=[other], entries=[its_entry])))

    changes = [moved(a_run(number)) for number in (1, 2)]
    write = Write(
        runs=[change for change, _ in changes],
        entries=[entry for _, entry in changes],
        steps=[settled(running(number, due_at=due)) for number in (1, 2)],
        only_hot=only_hot,
    )
    with pytest.raises(Contended):
        await store.write_if_unchanged(write, known(a_run(1), a_run(2)), Basis.REMEMBERED)

    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == a_run(1)
    assert await store.read_steps(*key(1)) == [running(1, due_at=due)]
    [(entries,)] = await raw.execute("select count(*) from journal")
    assert entries == 3


async def test_the_runs_of_two_tenants_are_written_together_or_not_at_all(store: Store) -> None:
    due = await store.now() + LONG
    foreign = other_tenants(new_run(2, (running(2, due_at=due),)))
    there, [its_step] = foreign.run, foreign.steps
    await save(store, new_run(1, (running(1, due_at=due),)), foreign)
    (mine, my_entry), (its, its_entry) = moved(a_run(1)), moved(there)
    write = Write(
        runs=[mine, replace(its, was=7)],
        entries=[my_entry, replace(its_entry, tenant="other")],
        steps=[settled(running(1, due_at=due)), settled(its_step)],
    )
    with pytest.raises(Contended):
        await store.write_if_unchanged(write, known(a_run(1), there), Basis.REMEMBERED)
    assert await store.read_steps(*key(1)) == [running(1, due_at=due)]

    write = replace(write, runs=[mine, its])
    await store.write_if_unchanged(write, known(a_run(1), there), Basis.REMEMBERED)
    assert await store.read_steps(*key(1)) == [settled(running(1, due_at=due))]
    assert await store.read_steps("other", run_id(2)) == [settled(its_step)]


@pytest.mark.parametrize("only_hot", [False, True])
async def test_a_finished_run_is_not_written_however_little_it_was_heard_of(store: Store, only_hot: bool) -> None:
    due = await store.now() + LONG
    held = running(1, due_at=due)
    await save(store, new_run(1, (held,)))
    end, its_entry = finished(a_run(1))
    cancelled = settled(held, StepState.CANCELLED)
    await store.change([want(1)], writes(Write(runs=[end], steps=[cancelled], entries=[its_entry])))

    change, entry = moved(a_run(1))
    write = Write(runs=[change], steps=[settled(held)], entries=[entry], only_hot=only_hot)
    with pytest.raises(Contended):
        await store.write_if_unchanged(write, known(a_run(1)), Basis.REMEMBERED)
    assert await store.read_steps(*key(1)) == [cancelled]


@pytest.mark.parametrize("only_hot", [False, True])
async def test_a_lease_that_has_run_out_by_the_databases_clock_is_not_written_over(
    store: Store, only_hot: bool
) -> None:
    held = running(1, due_at=await store.now() + SECOND)
    await save(store, new_run(1, (held,)))
    change, entry = moved(a_run(1))
    write = Write(runs=[change], steps=[settled(held)], entries=[entry], only_hot=only_hot)
    store.clock_offset += 2 * SECOND

    with pytest.raises(Contended):
        await store.write_if_unchanged(write, known(a_run(1)), Basis.REMEMBERED)
    assert await store.read_steps(*key(1)) == [held]
    record = await store.read_run(*key(1))
    assert record is not None
    assert record.run == a_run(1)

    store.clock_offset -= 2 * SECOND
    await store.write_if_unchanged(write, known(a_run(1)), Basis.REMEMBERED)
    assert await store.read_steps(*key(1)) == [settled(held)]


async def test_what_else_a_decision_writes_comes_and_goes_with_it(store: Store) -> None:
    due = await store.now() + LONG
    run = a_run(1, business_key="order 7")
    held = running(1, due_at=due)
    await save(store, new_run(1, (held,), run=run))
    change, entry = finished(run)
    write = Write(
        runs=[change],
        steps=[settled(held)],
        entries=[entry],
        rows=rows_of([told(run, entry.seq), ReleasedKey(TENANT, "order 7")]),
    )
    stale = Write(runs=[moved(a_run(1, seq=9))[0]], steps=[settled(held)], rows=rows_of([told(run, 9)]))
    with pytest.raises(Contended):
        await store.write_if_unchanged(stale, known(run), Basis.REMEMBERED)
    assert await store.read_outbox(*key(1)) == []

    await store.write_if_unchanged(write, known(run), Basis.REMEMBERED)

    assert await store.read_outbox(*key(1)) == write.rows.of(OutboxEntry)
    await save(store, new_run(2, run=a_run(2, business_key="order 7")))
    assert await store.read_run(*key(2)) is not None


async def test_of_two_who_write_the_same_runs_at_once_in_any_order_one_does_and_neither_waits_for_ever(
    store: Store,
) -> None:
    due = await store.now() + LONG
    numbers = range(1, 21)
    await save(store, *[new_run(number, (running(number, due_at=due),)) for number in numbers])

    def one_write(order: list[int]) -> Write:
        changes = [moved(a_run(number)) for number in order]
        return Write(
            runs=[change for change, _ in changes],
            entries=[entry for _, entry in changes],
            steps=[settled(running(number, due_at=due)) for number in order],
        )

    remembered = known(*[a_run(number) for number in numbers])
    answers = await asyncio.gather(
        store.write_if_unchanged(one_write(list(numbers)), remembered, Basis.REMEMBERED),
        store.write_if_unchanged(one_write(list(reversed(numbers))), remembered, Basis.REMEMBERED),
        return_exceptions=True,
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["Contended", "int"]
    for number in numbers:
        assert [entry.seq for entry in await store.read_journal(TENANT, run_id(number))] == [1, 2]


async def test_a_run_that_comes_into_being_is_written_without_a_look(store: Store) -> None:
    now = await store.now()
    write = Write(new_runs=[new_run(1, (ready(1, at=now),)), new_run(2, (ready(2, at=now),))])
    assert write.is_plain

    said = await store.write_if_unchanged(write, Loaded(now=now), Basis.REMEMBERED)

    assert now <= said <= await store.now()
    for number in (1, 2):
        assert await store.read_steps(*key(number)) == [ready(number, at=now)]
        assert [one.seq for one in await store.read_journal(*key(number))] == [1]
    assert await store.has_ready([QUEUE])


async def test_a_run_that_is_not_new_keeps_all_that_would_begin_with_it_from_being_written(store: Store) -> None:
    now = await store.now()
    await save(store, new_run(2, (a_step(2),)))
    with pytest.raises(Contended):
        await store.write_if_unchanged(Write(new_runs=[new_run(1), new_run(2)]), Loaded(now=now), Basis.NEW)
    assert await store.read_run(*key(1)) is None
    assert await store.read_steps(*key(2)) == [a_step(2)]


async def test_a_run_does_not_begin_before_the_moment_has_come(store: Store) -> None:
    later = await store.now() + 60 * SECOND
    with pytest.raises(Contended):
        await store.write_if_unchanged(Write(new_runs=[new_run(1)]), Loaded(now=later), Basis.NEW)
    assert await store.read_run(*key(1)) is None


async def test_what_a_new_run_brings_with_it_is_written_with_it_though_nobody_has_looked(store: Store) -> None:
    now = await store.now()
    run = a_run(1, business_key="order 7")
    message = a_message(1, "m-1", 1)
    born = new_run(1, (ready(1, at=now),), run=run, messages=(message,), outbox=(told(run, 1),))
    write = Write(new_runs=[born, other_tenants(new_run(2))])
    assert not write.is_plain

    await store.write_if_unchanged(write, Loaded(now=now), Basis.REMEMBERED)

    assert await store.read_messages(*key(1)) == [message]
    assert await store.read_outbox(*key(1)) == [told(run, 1)]
    assert await store.read_run("other", run_id(2)) is not None
    with pytest.raises(Contended):
        await store.write_if_unchanged(
            Write(new_runs=[new_run(3, run=a_run(3, business_key="order 7"))]), Loaded(now=now), Basis.NEW
        )
    assert await store.read_run(*key(3)) is None
