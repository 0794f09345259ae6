"""Finished runs on their way out: which are found, what is read of them, what is deleted and what is not."""

import asyncio

from msgspec.structs import replace
from tests.store.raw import Raw
from tests.store.test_contract_rows import FULL_ATTEMPT
from tests.store.values import (
    TENANT,
    a_message,
    a_run,
    a_step,
    an_entry,
    details,
    load,
    new_run,
    run_id,
    save,
    settled,
    want,
    writes,
)

from stepkeep.kernel.machine.rows import Message, OutboxEntry
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.store.change import IdempotencyKey, Loaded, More, NewRun, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import FinishedFilter, RunRecord, WholeRun

TABLES = ("runs", "run_details", "steps", "attempts", "journal", "messages", "outbox")


def ended(number: int, at: int = 9, state: RunState = RunState.SUCCEEDED, **given: object) -> NewRun:
    return new_run(number, (settled(a_step(number)),), run=a_run(number, state, ended_at=at), **given)


def promise(number: int) -> IdempotencyKey:
    return IdempotencyKey(tenant=TENANT, operation="start", key=f"k{number}", fingerprint="f", run_id=run_id(number))


def numbered(found: list[str]) -> list[int]:
    return [int(one[-12:]) for one in found]


async def found(store: Store, **given: object) -> list[int]:
    return numbered(await store.find_finished(FinishedFilter(**{"tenant": TENANT, **given})))


async def test_every_ending_is_found_oldest_first_and_nothing_that_goes_on(store: Store) -> None:
    for number, state in enumerate(sorted(RUN_TERMINAL, reverse=True)):
        await save(store, ended(10 - number, state=state))
    await save(store, new_run(1), new_run(20, run=a_run(20, RunState.BLOCKED)))
    assert await found(store) == [7, 8, 9, 10]


async def test_runs_are_found_by_when_they_ended_not_by_when_they_began(store: Store) -> None:
    await save(store, ended(1, at=30), ended(2, at=10), ended(3, at=20))
    assert await found(store, ended_by=20) == [2, 3]
    assert await found(store, ended_by=9) == []


async def test_finding_goes_on_where_it_stopped_and_ends_where_it_is_told(store: Store) -> None:
    await save(store, *(ended(number) for number in range(1, 7)))
    assert await found(store, limit=2) == [1, 2]
    assert await found(store, after=run_id(2), limit=2) == [3, 4]
    assert await found(store, after=run_id(2), before=run_id(6)) == [3, 4, 5]


async def test_runs_of_one_workflow_are_found_alone(store: Store) -> None:
    await save(store, *(ended(number, at=number) for number in (1, 2, 3)))
    await save(store, *(ended(number, at=number, details=details(number, workflow="other")) for number in (4, 5, 6)))
    assert await found(store, workflow="other") == [4, 5, 6]
    assert await found(store, workflow="other", ended_by=5, after=run_id(4)) == [5]
    assert await found(store, workflow="nobody") == []
    assert await found(store, tenant="another") == []


async def test_the_newest_to_keep_are_counted_from_the_end(store: Store) -> None:
    await save(store, *(ended(number) for number in (1, 2, 4)), new_run(3), new_run(5))
    await save(store, ended(6, details=details(6, workflow="other")))

    async def newest(after_it: int, workflow: str | None = None) -> str | None:
        return await store.find_newest_finished(TENANT, after_it, workflow)

    assert [await newest(number) for number in range(5)] == [run_id(6), run_id(4), run_id(2), run_id(1), None]
    assert [await newest(number, "other") for number in range(2)] == [run_id(6), None]
    assert [await newest(number, "onboarding") for number in range(2)] == [run_id(4), run_id(2)]


def full(number: int) -> NewRun:
    told = OutboxEntry(tenant=TENANT, run_id=run_id(number), seq=1, number=0, name="told", payload=b"{}", created_at=1)
    return ended(
        number, messages=(a_message(number, "m", 1, consumed_by=0),), outbox=(told,), idempotency=promise(number)
    )


async def test_a_run_is_read_whole_with_everything_that_belongs_to_it(store: Store) -> None:
    new = full(1)
    await save(store, new, ended(2))
    await store.change([want(1)], writes(Write(attempts=[FULL_ATTEMPT])))
    whole = await store.read_whole(TENANT, [run_id(2), run_id(9), "nonsense", run_id(1)])
    assert [one.record.run.id for one in whole] == [run_id(2), run_id(1)]
    assert whole[1] == WholeRun(
        record=RunRecord(run=new.run, details=new.details),
        steps=new.steps,
        attempts=(FULL_ATTEMPT,),
        entries=(an_entry(run_id(1), 1),),
        messages=tuple(new.rows.of(Message)),
        outbox=tuple(new.rows.of(OutboxEntry)),
    )
    assert whole[0].attempts == whole[0].messages == whole[0].outbox == ()
    assert await store.read_whole("another", [run_id(1)]) == []


async def test_a_deleted_run_leaves_no_row_behind_and_takes_no_neighbours_row(store: Store, raw: Raw) -> None:
    await save(store, full(1), full(2))
    await store.change([want(1)], writes(Write(attempts=[FULL_ATTEMPT])))
    assert await store.delete_runs(TENANT, [run_id(1)]) == [run_id(1)]
    assert await store.read_run(TENANT, run_id(1)) is None
    assert await store.read_whole(TENANT, [run_id(1)]) == []
    counts = {table: (await raw.execute(f"select count(*) from {table}"))[0][0] for table in TABLES}
    assert counts == {**dict.fromkeys(TABLES, 1), "attempts": 0}
    [left] = await store.read_whole(TENANT, [run_id(2)])
    assert left.messages == tuple(full(2).rows.of(Message))


async def test_deleting_passes_over_what_is_not_finished_not_there_or_somebody_elses(store: Store) -> None:
    await save(store, ended(1), new_run(2))
    assert await store.delete_runs("another", [run_id(1)]) == []
    assert await store.delete_runs(TENANT, [run_id(2), run_id(3), "nonsense"]) == []
    assert await store.delete_runs(TENANT, []) == []
    assert await store.delete_runs(TENANT, [run_id(1), run_id(2)]) == [run_id(1)]
    assert await store.delete_runs(TENANT, [run_id(1)]) == [], "once is enough"
    assert await store.read_run(TENANT, run_id(2)) is not None


async def test_two_who_delete_the_same_runs_do_not_wait_for_each_other(store: Store, other: Store) -> None:
    await save(store, *(ended(number) for number in range(40)))
    every = [run_id(number) for number in range(40)]
    first, second = await asyncio.gather(
        store.delete_runs(TENANT, every), other.delete_runs(TENANT, list(reversed(every)))
    )
    assert not set(first) & set(second)
    # Whoever was passed over by both is still there, and goes the next time.
    rest = await store.delete_runs(TENANT, every)
    assert sorted([*first, *second, *rest]) == every


async def test_the_key_of_a_deleted_run_still_answers_until_it_is_forgotten(store: Store) -> None:
    await save(store, *(ended(number, idempotency=promise(number)) for number in (1, 2, 3)))
    await store.delete_runs(TENANT, [run_id(1), run_id(3)])
    keys = tuple((TENANT, "start", f"k{number}", "") for number in (1, 2, 3))

    async def kept() -> set[str]:
        answers: list[Loaded] = []

        def decide(loaded: Loaded) -> More | Write:
            answers.append(loaded)
            return More(idempotency=keys) if len(answers) == 1 else Write()

        await store.change((), decide)
        return {promised.key for promised in answers[-1].idempotency.values()}

    assert await kept() == {"k1", "k2", "k3"}
    assert await store.forget_keys(TENANT, run_id(3), 10) == 1, "k2's run is there, k3's began later"
    assert await kept() == {"k2", "k3"}
    assert await store.forget_keys("another", run_id(9), 10) == 0
    assert await store.forget_keys(TENANT, run_id(9), 0) == 0
    assert await store.forget_keys(TENANT, run_id(9), 10) == 1
    assert await kept() == {"k2"}


async def test_a_key_is_forgotten_in_the_scope_of_its_run_alone(store: Store) -> None:
    mine, other = promise(1), replace(promise(1), run_id=run_id(2), scope="another key")
    await save(store, ended(1, idempotency=mine), ended(2, idempotency=other))
    await store.delete_runs(TENANT, [run_id(1)])
    assert await store.forget_keys(TENANT, run_id(9), 10) == 1
    wanted = More(idempotency=(mine.scoped_key, other.scoped_key))
    assert (await load(store, more=wanted)).idempotency == {other.scoped_key: other}


async def test_maintenance_changes_nothing_that_is_kept(store: Store) -> None:
    await save(store, full(1), new_run(2))
    before = await store.read_whole(TENANT, [run_id(1), run_id(2)])
    await store.maintain()
    await store.maintain()
    assert await store.read_whole(TENANT, [run_id(1), run_id(2)]) == before
