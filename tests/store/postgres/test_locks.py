"""Locks: what was read under one is current, nobody waits in a circle, and claims wait for nobody."""

import asyncio
import random

import pytest
from tests.store.postgres.conftest import session, until_somebody_waits
from tests.store.test_contract_children import a_child, asked, notice, recall, write
from tests.store.values import QUEUE, key, load, moved, new_run, ready, run_id, running, save, want

from stepkeep.kernel.machine.rows import ChildState, rows_of
from stepkeep.kernel.machine.states import StepState
from stepkeep.store.change import Loaded, More, Propose, RunKey, Write
from stepkeep.store.connect import connect
from stepkeep.store.postgres.load import Loading
from stepkeep.store.protocol import Store

pytestmark = pytest.mark.postgres


async def test_steps_read_after_a_wait_are_those_of_the_run_that_was_waited_for(store: Store, url: str) -> None:
    await save(store, new_run(1, [ready(1)]))
    async with session(url) as rival:
        async with rival.transaction():
            await rival.execute("update runs set seq = 2 where id = $1", run_id(1))
            await rival.execute(
                "update steps set state = 'running', ready_at = null, fence = 1, worker = 1, claimed_at = 1,"
                " due_at = 9 where run_id = $1",
                run_id(1),
            )
            reading = asyncio.create_task(load(store, want(1, steps=(0,), whole=True)))
            await until_somebody_waits(rival)
        loaded = await reading
    assert loaded.runs[key(1)].seq == 2
    assert loaded.steps[key(1)][0].state is StepState.RUNNING


async def test_the_clock_is_read_after_the_wait(store: Store, url: str) -> None:
    await save(store, new_run(1))
    async with session(url) as rival:
        async with rival.transaction():
            await rival.execute("select from runs for update")
            reading = asyncio.create_task(load(store, want(1)))
            await until_somebody_waits(rival)
            let_go = await rival.fetchval("select stepkeep_now()")
        assert (await reading).now >= let_go


async def test_a_proposal_passes_over_runs_that_are_held_and_waits_for_none(store: Store, url: str) -> None:
    await save(store, *(new_run(number, [ready(number, at=number)]) for number in range(1, 5)))
    async with session(url) as rival, rival.transaction():
        await rival.execute("select from runs where id = any($1::uuid[]) for update", [run_id(1), run_id(2)])
        async with asyncio.timeout(5):
            assert await propose(store, limit=2) == [(*key(3), 0), (*key(4), 0)]
    assert await propose(store, limit=2) == [(*key(1), 0), (*key(2), 0)]


async def test_a_step_claimed_between_being_found_and_being_locked_is_not_proposed(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await save(store, new_run(1, [ready(1)]), new_run(2, [ready(2)]))
    load_claimable = Loading._load_claimable

    async with session(url) as rival:

        async def too_late(self: Loading, shares: list[RunKey], asked: Propose) -> None:
            assert len(shares) == 2
            await rival.execute(
                "update steps set state = 'running', ready_at = null, fence = 1, worker = 1, claimed_at = 1,"
                " due_at = 9 where run_id = $1",
                run_id(1),
            )
            await load_claimable(self, shares, asked)

        monkeypatch.setattr(Loading, "_load_claimable", too_late)
        assert await propose(store, limit=5) == [(*key(2), 0)]


async def test_a_wanted_run_may_be_proposed_too(store: Store) -> None:
    await save(store, new_run(1, [ready(1)]), new_run(2, [ready(2)]))
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> Write:
        seen.append(loaded)
        return Write()

    await store.change([want(2)], decide, Propose(queues=(QUEUE,), limit=5))
    assert seen[-1].proposed == [(*key(1), 0), (*key(2), 0)]
    assert set(seen[-1].runs) == {key(1), key(2)}


async def test_a_run_wanted_later_with_a_smaller_id_starts_the_whole_again_in_order(store: Store) -> None:
    await save(store, new_run(1), new_run(2))
    rounds: list[set[tuple[str, str]]] = []

    def decide(loaded: Loaded) -> More | Write:
        rounds.append(set(loaded.runs))
        return Write() if key(1) in loaded.runs else More(wants=(want(1),))

    await store.change([want(2)], decide)
    assert rounds == [{key(2)}, {key(1), key(2)}]


async def test_changes_of_many_runs_in_any_order_never_deadlock(store: Store, other: Store) -> None:
    numbers = range(1, 9)
    await save(store, *(new_run(number) for number in numbers))
    dice = random.Random(1)

    async def bump(which: Store) -> None:
        chosen = dice.sample(numbers, 4)
        first, rest = chosen[:2], chosen[2:]

        def decide(loaded: Loaded) -> More | Write:
            missing = tuple(want(number) for number in rest if key(number) not in loaded.runs)
            if missing:
                return More(wants=missing)
            pairs = [moved(loaded.runs[key(number)]) for number in chosen]
            return Write(runs=[change for change, _ in pairs], entries=[entry for _, entry in pairs])

        await which.change([want(number) for number in first], decide)

    await asyncio.gather(*(bump(store if count % 2 else other) for count in range(60)))
    loaded = await load(store, *(want(number) for number in numbers))
    assert sum(run.seq - 1 for run in loaded.runs.values()) == 60 * 4


async def test_two_workers_that_ask_at_once_never_get_the_same_step(store: Store, other: Store) -> None:
    await save(store, *(new_run(number, [ready(number)]) for number in range(1, 61)))
    claimed: list[tuple[str, str, int]] = []

    async def claim(which: Store) -> None:
        for _ in range(40):
            taken: list[tuple[str, str, int]] = []

            def decide(loaded: Loaded, taken: list[tuple[str, str, int]] = taken) -> Write:
                taken[:] = loaded.proposed
                assert len(taken) <= 5
                write = Write()
                for tenant, run, no in taken:
                    change, entry = moved(loaded.runs[tenant, run])
                    number = int(run[-12:])
                    write.runs.append(change)
                    write.entries.append(entry)
                    write.steps.append(running(number, no, due_at=loaded.now + 1))
                return write

            await which.change((), decide, Propose(queues=(QUEUE,), limit=5))
            claimed.extend(taken)

    await asyncio.gather(*(claim(which) for which in (store, other, store, other)))
    assert len(claimed) == 60
    assert len(set(claimed)) == 60


async def propose(store: Store, limit: int) -> list[tuple[str, str, int]]:
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> Write:
        seen.append(loaded)
        return Write()

    await store.change((), decide, Propose(queues=(QUEUE,), limit=limit))
    return seen[-1].proposed


async def test_a_batch_of_parents_and_one_of_their_children_write_in_one_order(store: Store, url: str) -> None:
    """One calls two children back while the other notes their ends: none waits for the other in a circle."""
    first, second = (a_child(no, state=ChildState.STARTED, todo=None, todo_at=None) for no in (0, 1))
    await asked(store, first, second)
    other = connect(url)
    await other.open()
    try:
        # A session sees within one transaction what waited when it first looked: another one looks.
        async with session(url) as rival, session(url) as watcher:
            async with rival.transaction():
                # The parents begin with the second child, and meet this lock first unless they follow the order.
                await rival.execute("select from children where child_id = $1 for update", second.child_id)
                parents = asyncio.create_task(write(store, Write(rows=rows_of([recall(second), recall(first)]))))
                await until_somebody_waits(watcher)
                below = asyncio.create_task(write(other, Write(rows=rows_of([notice(first), notice(second)]))))
                await until_somebody_waits(watcher, 2)
            await asyncio.gather(parents, below)
    finally:
        await other.close()
    links = await store.children.read_all(first.tenant, first.run_id)
    assert [(link.state, link.recall) for link in links] == [(ChildState.ENDED, "cancel")] * 2
