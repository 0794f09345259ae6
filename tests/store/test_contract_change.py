"""A change is all or nothing, alone on its runs, and harms nobody else's."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.store.raw import Raw
from tests.store.values import (
    TENANT,
    a_message,
    a_run,
    a_step,
    a_worker,
    an_entry,
    consumed,
    details,
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

from stepkeep.kernel.errors import Conflict, Contended, InvariantBroken
from stepkeep.kernel.machine.rows import Attempt, Requesters, rows_of
from stepkeep.kernel.machine.states import AttemptState, RunState, StepState
from stepkeep.store.change import Decide, IdempotencyKey, Loaded, More, NewRun, Write
from stepkeep.store.protocol import Store
from stepkeep.store.rows import ReleasedKey


async def count(raw: Raw, table: str) -> int:
    [(number,)] = await raw.execute(f"select count(*) from {table}")
    return int(number)


async def test_the_people_who_asked_for_a_run_include_those_of_the_runs_that_it_repeats(store: Store) -> None:
    """Also where these runs are gone."""
    await save(store, new_run(1))
    again = details(3, created_by="user:cyd", rerun_of=run_id(2), asked_before=b'["user:ann","user:bea"]')
    await save(store, new_run(3, details=again), new_run(4, details=details(4, created_by="user:dan")))
    loaded = await load(store, *(want(number, duties=True) for number in (1, 3, 4)))
    asked = {which: involved.requesters for which, involved in loaded.involved.items()}
    assert asked == {
        key(1): {"user:ann"},
        key(3): {"user:ann", "user:bea", "user:cyd"},
        key(4): {"user:dan"},
    }


async def test_a_person_who_causes_a_run_later_is_one_of_its_requesters(store: Store) -> None:
    await save(store, new_run(1), new_run(2))
    change, entry = moved(a_run(1))
    names = Requesters(tenant=TENANT, run_id=run_id(1), asked_before=b'["user:bea"]')
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], rows=rows_of([names]))))
    found = await store.read_involved([key(1), key(2)])
    assert [found[key(number)].requesters for number in (1, 2)] == [{"user:ann", "user:bea"}, {"user:ann"}]


async def test_the_owners_of_workers_that_executed_or_hold_a_step_are_read(store: Store) -> None:
    workers = [
        await store.add_worker(a_worker(name, owner=owner), an_entry(name, 1))
        for name, owner in (("w-1", "user:bea"), ("w-2", "user:cyd"), ("w-3", None))
    ]
    held = running(1, 1, due_at=9, worker=workers[1].no)
    await save(store, new_run(1, (ready(1), held, running(1, 2, due_at=9, worker=workers[2].no))), new_run(2))
    over = Attempt(TENANT, run_id(1), 0, 1, 1, AttemptState.LOST, workers[0].no, started_at=1, ended_at=2)
    change, entry = moved(a_run(1))
    await store.change([want(1)], writes(Write(runs=[change], entries=[entry], attempts=[over])))
    found = await store.read_involved([key(1), key(2)])
    assert found[key(1)].executors == {0: {"user:bea"}, 1: {"user:cyd"}}
    assert (found[key(1)].requesters, found[key(2)].executors) == ({"user:ann"}, {})
    assert (await load(store, want(1, duties=True))).involved[key(1)] == found[key(1)]
    assert await store.read_involved([]) == {}


async def test_a_write_at_another_sequence_than_it_was_read_at_fails_whole(store: Store, raw: Raw) -> None:
    await save(store, new_run(1, (ready(1),)), new_run(2))
    good, entry = moved(a_run(2))
    stale, other_entry = moved(replace(a_run(1), seq=7))
    with pytest.raises(Contended):
        await store.change(
            [want(1), want(2)],
            writes(Write(runs=[good, stale], entries=[entry, other_entry], steps=[settled(ready(1))])),
        )
    assert (await load(store, want(1), want(2))).runs == {key(1): a_run(1), key(2): a_run(2)}
    assert await store.read_steps(*key(1)) == [ready(1)]
    assert await count(raw, "journal") == 2


def of_another_tenant(new: NewRun) -> NewRun:
    """The same run, down to its id, in another tenant's hands."""
    return replace(
        new,
        run=replace(new.run, tenant="other"),
        details=replace(new.details, tenant="other"),
        steps=tuple(replace(step, tenant="other") for step in new.steps),
        entries=(replace(new.entries[0], tenant="other"),),
    )


async def test_one_change_may_write_to_several_tenants_and_each_gets_its_own(store: Store) -> None:
    mine = new_run(1, (ready(1),))
    theirs = of_another_tenant(mine)
    await save(store, mine, theirs)
    change, entry = moved(mine.run, error="mine")
    other, other_entry = moved(theirs.run, error="theirs")
    write = Write(
        runs=[change, other],
        steps=[settled(mine.steps[0]), replace(theirs.steps[0], ready_at=5)],
        entries=[entry, replace(other_entry, tenant="other")],
    )
    await store.change([want(1), replace(want(1), tenant="other")], writes(write))

    for one, step in ((change.run, write.steps[0]), (other.run, write.steps[1])):
        record = await store.read_run(one.tenant, one.id)
        assert record is not None
        assert record.run == one
        assert await store.read_steps(one.tenant, one.id) == [step]
        assert [kept.seq for kept in await store.read_journal(one.tenant, one.id)] == [1, 2]


async def test_a_run_that_does_not_exist_cannot_be_changed(store: Store, raw: Raw) -> None:
    change, entry = moved(a_run(1))
    with pytest.raises(Contended):
        await store.change([want(1)], writes(Write(runs=[change], entries=[entry])))
    assert await count(raw, "journal") == 0


async def test_a_step_that_does_not_exist_cannot_be_changed(store: Store) -> None:
    await save(store, new_run(1))
    change, entry = moved(a_run(1))
    with pytest.raises(InvariantBroken):
        await store.change([want(1)], writes(Write(runs=[change], entries=[entry], steps=[ready(1)])))
    assert (await load(store, want(1))).runs[key(1)] == a_run(1)


async def test_what_the_callback_raises_comes_back_and_leaves_nothing(store: Store, raw: Raw) -> None:
    def refuse(loaded: Loaded) -> Write:
        raise Conflict("somebody decided first", {"by": "user:ann"})

    with pytest.raises(Conflict) as refusal:
        await store.change([want(1)], refuse)
    assert refusal.value.winner == {"by": "user:ann"}
    await save(store, new_run(1))
    assert await count(raw, "runs") == 1


async def test_a_row_the_schema_refuses_takes_its_whole_change_with_it(store: Store, raw: Raw) -> None:
    half = replace(running(1, due_at=9), due_at=None)
    with pytest.raises(InvariantBroken):
        await save(store, new_run(2, (ready(2),)), new_run(1, (half,)))
    for table in ("runs", "run_details", "steps", "journal"):
        assert await count(raw, table) == 0


async def test_one_bad_change_does_not_harm_its_neighbours(store: Store, raw: Raw) -> None:
    def broken(loaded: Loaded) -> Write:
        raise ValueError("a defect")

    illegal = writes(Write(new_runs=[new_run(90, (replace(ready(90), ready_at=None),))]))
    stale = writes(Write(runs=[moved(a_run(91))[0]]))
    fine: list[Decide] = [writes(Write(new_runs=[new_run(n, (ready(n),))])) for n in range(20)]
    thinks = [decide for good in fine for decide in (good, broken, illegal, stale)]

    answers = await asyncio.gather(*(store.change((), decide) for decide in thinks), return_exceptions=True)

    kinds = [type(answer) for answer in answers]
    assert kinds == [type(None), ValueError, InvariantBroken, Contended] * 20
    assert await count(raw, "runs") == 20
    assert await count(raw, "steps") == 20


def increment(number: int) -> Decide:
    """Read a number in the run's row and write it back one higher: what a lost update would show in."""

    def decide(loaded: Loaded) -> Write:
        run = loaded.runs[key(number)]
        change, entry = moved(run, priority=run.priority + 1)
        return Write(runs=[change], entries=[entry])

    return decide


async def test_concurrent_changes_of_one_run_are_one_after_the_other(store: Store, other: Store) -> None:
    await save(store, new_run(1), new_run(2))
    await asyncio.gather(
        *(place.change([want(1)], increment(1)) for place in (store, other) for _ in range(25)),
        *(place.change([want(2)], increment(2)) for place in (store, other) for _ in range(5)),
    )
    runs = (await load(store, want(1), want(2))).runs
    assert (runs[key(1)].priority, runs[key(1)].seq) == (50, 51)
    assert (runs[key(2)].priority, runs[key(2)].seq) == (10, 11)
    assert [entry.seq for entry in await store.read_journal(*key(1))] == list(range(1, 52))


async def test_changes_of_many_runs_in_any_order_do_not_deadlock(store: Store, other: Store) -> None:
    numbers = range(1, 9)
    await save(store, *(new_run(n) for n in numbers))

    def decide(loaded: Loaded) -> Write:
        moves = [moved(run, priority=run.priority + 1) for run in loaded.runs.values()]
        return Write(runs=[change for change, _ in moves], entries=[entry for _, entry in moves])

    forwards, backwards = [want(n) for n in numbers], [want(n) for n in reversed(numbers)]
    await asyncio.gather(
        *(place.change(wants, decide) for place in (store, other) for wants in (forwards, backwards) * 5)
    )
    assert {run.priority for run in (await load(store, *forwards)).runs.values()} == {20}


async def test_a_callback_may_ask_for_more_and_what_it_had_stays(store: Store) -> None:
    await save(
        store,
        new_run(1, (ready(1), a_step(1, 1)), messages=(a_message(1, "m", 1),)),
        new_run(2, (ready(2),)),
    )
    rounds: list[More] = [
        More(wants=(want(1, steps=(1,), inbox=True, messages=("m",)),)),
        More(wants=(want(2, whole=True, input=True), want(3, whole=True))),
        More(wants=(want(1, whole=True, waiting=True, messages=("other", "m")),)),
    ]
    seen: list[tuple[set[int], int]] = []

    def decide(loaded: Loaded) -> More | Write:
        seen.append((set(loaded.steps[key(1)]), len(loaded.runs)))
        if len(seen) <= len(rounds):
            return rounds[len(seen) - 1]
        assert loaded.inbox == {key(1): (a_message(1, "m", 1),)}
        assert loaded.seen == {(*key(1), "m")}
        assert loaded.whole >= {key(1), key(2)}
        assert key(2) in loaded.inputs
        return Write()

    await store.change([want(1, steps=(0,))], decide)
    assert seen == [({0}, 1), ({0, 1}, 1), ({0, 1}, 2), ({0, 1}, 2)]


async def test_messages_come_in_order_once_each_and_only_unconsumed(store: Store) -> None:
    await save(store, new_run(1))
    messages = [a_message(1, f"m-{n}", n) for n in (10, 2, 1)]
    await store.change([want(1)], writes(Write(rows=rows_of(messages))))
    inbox = (await load(store, want(1, inbox=True))).inbox[key(1)]
    assert [message.number for message in inbox] == [1, 2, 10]

    taken = replace(inbox[1], consumed_by=4)
    await store.change([want(1)], writes(Write(rows=rows_of([consumed(taken)]))))
    left = (await load(store, want(1, inbox=True, messages=("m-2",)))).inbox[key(1)]
    assert [message.number for message in left] == [1, 10]
    assert await store.read_messages(*key(1)) == [inbox[0], taken, inbox[2]]

    with pytest.raises(Contended):
        await store.change([want(1)], writes(Write(rows=rows_of([consumed(replace(taken, consumed_by=5))]))))
    with pytest.raises(Contended):
        await store.change([want(1)], writes(Write(rows=rows_of([a_message(1, "m-2", 11)]))))
    assert len(await store.read_messages(*key(1))) == 3


async def test_a_message_is_seen_whether_consumed_or_not(store: Store) -> None:
    await save(store, new_run(1, messages=(a_message(1, "old", 1, consumed_by=0), a_message(1, "new", 2))))
    loaded = await load(store, want(1, messages=("old", "new", "never")))
    assert loaded.seen == {(*key(1), "old"), (*key(1), "new")}


async def test_a_message_may_arrive_and_be_consumed_in_one_change(store: Store) -> None:
    await save(store, new_run(1))
    message = a_message(1, "m", 1)
    taken = replace(message, consumed_by=2)
    await store.change([want(1)], writes(Write(rows=rows_of([message, consumed(taken)]))))
    assert await store.read_messages(*key(1)) == [taken]


def starting(number: int, idempotency: str | None = None, business: str | None = None) -> NewRun:
    promise = None
    if idempotency is not None:
        promise = IdempotencyKey(
            tenant=TENANT, operation="start", key=idempotency, fingerprint="f", run_id=run_id(number)
        )
    return new_run(number, run=a_run(number, business_key=business), idempotency=promise)


def start_once(number: int, *, idempotency: str | None = None, business: str | None = None) -> Decide:
    """A start as the operations do it: look whether the key is taken, and if not, take it."""

    def decide(loaded: Loaded) -> More | Write:
        if idempotency is not None and (TENANT, "start", idempotency, "") in loaded.idempotency:
            raise Conflict("taken", {"run": loaded.idempotency[TENANT, "start", idempotency, ""].run_id})
        if business is not None and (TENANT, business) in loaded.business_keys:
            raise Conflict("taken", {"run": loaded.business_keys[TENANT, business]})
        if not asked:
            asked.append(True)
            return More(
                idempotency=((TENANT, "start", idempotency, ""),) if idempotency else (),
                business_keys=((TENANT, business),) if business else (),
            )
        return Write(new_runs=[starting(number, idempotency, business)])

    asked: list[bool] = []
    return decide


async def until_decided(store: Store, make: Callable[[], Decide]) -> None:
    """Run a change again as long as it meets another, as `transact` does."""
    while True:
        try:
            return await store.change((), make())
        except Contended:
            continue


@pytest.mark.parametrize("kind", ["idempotency", "business"])
async def test_a_race_for_one_key_has_one_winner_whom_the_losers_see(
    store: Store, other: Store, raw: Raw, kind: str
) -> None:
    def start(number: int) -> Callable[[], Decide]:
        return lambda: start_once(number, **{kind: "k"})

    answers = await asyncio.gather(
        *(until_decided(place, start(n)) for n, place in enumerate([store, other] * 10)), return_exceptions=True
    )
    lost = [answer for answer in answers if isinstance(answer, Conflict)]
    [winner] = [run_id(n) for n, answer in enumerate(answers) if answer is None]
    assert len(lost) == 19
    assert {str(conflict.winner["run"]) for conflict in lost if conflict.winner} == {winner}
    assert await count(raw, "runs") == 1
    assert await count(raw, f"{kind}_keys") == 1


async def test_taking_a_key_that_is_taken_is_contention_and_leaves_nothing(store: Store, raw: Raw) -> None:
    await save(store, starting(1, "i", "b"))
    for second in (starting(2, "i"), starting(2, business="b"), starting(1)):
        with pytest.raises(Contended):
            await save(store, second)
    assert await count(raw, "runs") == 1
    assert await count(raw, "run_details") == 1


async def test_a_released_business_key_can_be_taken_again(store: Store) -> None:
    await save(store, starting(1, business="b"))
    run, entry = finished(a_run(1, business_key="b"))
    await store.change(
        [want(1)],
        writes(
            Write(runs=[run], entries=[entry], rows=rows_of([ReleasedKey(TENANT, "b"), ReleasedKey(TENANT, "unknown")]))
        ),
    )
    await save(store, starting(2, business="b"))
    with pytest.raises(Contended):
        await save(store, starting(3, business="b"))


async def test_the_same_keys_of_another_tenant_are_other_keys(store: Store) -> None:
    await save(store, starting(1, "i", "b"))
    theirs = IdempotencyKey(tenant="other", operation="start", key="i", fingerprint="f", run_id=run_id(2))
    run = replace(a_run(2), tenant="other", business_key="b")
    new = new_run(2, run=run, idempotency=theirs)
    entry = replace(new.entries[0], tenant="other")
    await save(store, replace(new, details=replace(new.details, tenant="other"), entries=(entry,)))
    assert await store.read_run("other", run_id(2)) is not None
    assert await store.read_run(TENANT, run_id(2)) is None


async def test_the_same_key_of_another_scope_is_another_key(store: Store) -> None:
    [mine] = starting(1, "i").rows.of(IdempotencyKey)
    theirs = replace(mine, run_id=run_id(2), scope="a key")
    await save(store, starting(1, "i"), new_run(2, idempotency=theirs))
    with pytest.raises(Contended):
        await save(store, new_run(3, idempotency=replace(theirs, run_id=run_id(3))))
    wanted = More(idempotency=(theirs.scoped_key, (*mine.scoped_key[:3], "no key")))
    assert (await load(store, more=wanted)).idempotency == {theirs.scoped_key: theirs}


async def test_a_change_whose_answer_was_lost_is_recognised_when_it_is_run_again(store: Store, raw: Raw) -> None:
    await until_decided(store, lambda: start_once(1, idempotency="k"))
    # The commit came through but the caller never heard of it, and runs the whole again.
    with pytest.raises(Conflict) as known:
        await until_decided(store, lambda: start_once(2, idempotency="k"))
    assert known.value.winner == {"run": run_id(1)}

    step = running(1, due_at=10**17)
    await store.change([want(1)], writes(Write(new_steps=[step])))

    def complete(loaded: Loaded) -> Write:
        row = loaded.steps[key(1)][0]
        if row.state is not StepState.RUNNING or row.fence != 1:
            return Write()
        change, entry = moved(loaded.runs[key(1)])
        return Write(runs=[change], entries=[entry], steps=[settled(row)])

    for _ in range(3):
        await store.change([want(1, steps=(0,))], complete)
    assert await count(raw, "journal") == 2


async def test_a_caller_who_gave_up_leaves_the_change_whole_or_undone(store: Store) -> None:
    await save(store, new_run(1, (ready(1),)))
    for _ in range(20):
        task = asyncio.ensure_future(store.change([want(1)], increment(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await store.change([want(1)], increment(1))
    run = (await load(store, want(1))).runs[key(1)]
    assert run.priority == run.seq - 1
    assert len(await store.read_journal(*key(1))) == run.seq
    assert an_entry(run.id, run.seq, (await store.read_journal(*key(1)))[-2].hash).hash == run.head


async def test_a_finished_run_is_never_written_again(store: Store) -> None:
    run, entry = finished(a_run(1))
    await save(store, new_run(1, (settled(ready(1)),)))
    await store.change([want(1)], writes(Write(runs=[run], entries=[entry])))
    again, another = moved(run.run)
    with pytest.raises(InvariantBroken):
        await store.change([want(1)], writes(Write(runs=[again], entries=[another])))
    revived, third = moved(replace(run.run, state=RunState.RUNNING, ended_at=None))
    with pytest.raises(InvariantBroken):
        await store.change([want(1)], writes(Write(runs=[revived], entries=[third])))
    with pytest.raises(InvariantBroken):
        await store.change([want(1)], writes(Write(steps=[ready(1)])))
    assert len(await store.read_journal(*key(1))) == 2
