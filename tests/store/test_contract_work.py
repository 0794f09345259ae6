"""Finding work: proposals in claim order, leases, timers, and the runs that nothing will ever move."""

import asyncio

import pytest
from msgspec.structs import replace
from tests.store.values import (
    QUEUE,
    SECOND,
    TENANT,
    a_run,
    a_step,
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

from stepkeep.kernel.machine.rows import Note, Run, Step
from stepkeep.kernel.machine.states import RunState, StepState, StopCause
from stepkeep.store.change import Lease, Loaded, Propose, Renewed, RunKey, Write
from stepkeep.store.protocol import Store
from stepkeep.store.records import Due

Claim = tuple[str, str, int]


async def propose(
    store: Store,
    limit: int = 100,
    queues: tuple[int, ...] = (QUEUE,),
    after: int | None = None,
    run: RunKey | None = None,
) -> Loaded:
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> Write:
        seen.append(loaded)
        return Write()

    await store.change((), decide, Propose(queues=queues, limit=limit, after=after, run=run))
    return seen[-1]


async def claim(store: Store, limit: int) -> list[Claim]:
    """Claim what is proposed, as the kernel would have it written."""
    claimed: list[Claim] = []

    def decide(loaded: Loaded) -> Write:
        claimed[:] = loaded.proposed
        write = Write()
        for tenant, run, no in loaded.proposed:
            step = loaded.steps[tenant, run][no]
            assert step.state is StepState.READY
            lease = {"worker": 1, "claimed_at": loaded.now, "due_at": loaded.now + SECOND, "fence": step.fence + 1}
            write.steps.append(replace(step, state=StepState.RUNNING, ready_at=None, **lease))
        for tenant, run in dict.fromkeys((tenant, run) for tenant, run, _ in loaded.proposed):
            change, entry = moved(loaded.runs[tenant, run])
            write.runs.append(change)
            write.entries.append(entry)
        return write

    await store.change((), decide, Propose(queues=(QUEUE,), limit=limit))
    return claimed


async def test_proposals_come_by_priority_then_ready_time_then_run_then_number(store: Store) -> None:
    await save(
        store,
        new_run(1, (ready(1, 0, at=50), ready(1, 1, at=50), ready(1, 2, at=40, priority=-1))),
        new_run(2, (ready(2, 0, at=90, priority=9, queue=8), ready(2, 1, at=50), ready(2, 2, at=60, queue=8))),
        new_run(3, (ready(3, 0, at=99, priority=9), ready(3, 1, at=10), ready(3, 2, at=1, queue=9))),
    )
    order = [(2, 0), (3, 0), (3, 1), (1, 0), (1, 1), (2, 1), (2, 2), (1, 2)]
    expected = [(*key(number), no) for number, no in order]
    loaded = await propose(store, queues=(8, QUEUE, 55))
    assert loaded.proposed == expected
    assert set(loaded.runs) == {key(1), key(2), key(3)}
    assert all(loaded.steps[tenant, run][no].ready_at for tenant, run, no in loaded.proposed)
    assert (await propose(store, limit=3, queues=(QUEUE, 8))).proposed == expected[:3]
    assert (await propose(store, queues=())).proposed == []
    one_queue = [(*key(number), no) for number, no in order if (number, no) not in {(2, 0), (2, 2)}]
    assert (await propose(store)).proposed == one_queue
    assert (await propose(store, limit=2)).proposed == one_queue[:2]


async def test_a_claim_for_one_run_proposes_no_step_of_another(store: Store) -> None:
    await save(
        store,
        new_run(1, (ready(1, 0, at=50, priority=9),)),
        new_run(2, (ready(2, 0, at=60), ready(2, 1, at=50), ready(2, 2, at=40, queue=8), a_step(2, 3))),
    )
    assert (await propose(store, run=key(2))).proposed == [(*key(2), 0), (*key(2), 1)]
    assert (await propose(store, run=key(2), limit=1)).proposed == [(*key(2), 0)]
    assert (await propose(store, run=key(2), queues=(8,))).proposed == [(*key(2), 2)]
    assert (await propose(store, run=key(3))).proposed == []
    assert (await propose(store, run=("another tenant", key(2)[1]))).proposed == []


async def test_only_claimable_steps_are_proposed(store: Store) -> None:
    now = await store.now()
    validating = a_step(1, 1, state=StepState.VALIDATING, ready_at=5, fence=1)
    await save(
        store,
        new_run(
            1,
            (
                ready(1, 0, at=now + 60 * SECOND),
                validating,
                running(1, 2, due_at=1),
                a_step(1, 3, state=StepState.RETRYING, due_at=1),
                a_step(1, 4, state=StepState.AWAITING_APPROVAL),
                settled(a_step(1, 5)),
                a_step(1, 6),
            ),
        ),
    )
    assert (await propose(store)).proposed == [(*key(1), 1)]
    store.clock_offset += 61 * SECOND
    assert (await propose(store)).proposed == [(*key(1), 0), (*key(1), 1)]


async def test_a_run_gets_its_share_by_ready_time_and_fills_it_by_number(store: Store) -> None:
    await save(
        store,
        new_run(1, (ready(1, 0, at=40), ready(1, 1, at=10), ready(1, 2, at=30), ready(1, 3, at=5, queue=QUEUE + 1))),
        new_run(2, (ready(2, 0, at=20, priority=-1), ready(2, 1, at=15, priority=-1)), run=a_run(2, priority=-1)),
        new_run(3, (ready(3, 4, at=20), ready(3, 5, at=35))),
    )
    order = [(1, 0), (3, 4), (1, 1), (3, 5), (1, 2), (2, 0), (2, 1)]
    expected = [(*key(number), no) for number, no in order]
    for limit in range(1, 9):
        wanted = Propose(queues=(QUEUE,), limit=limit)
        assert (await propose(store, limit=limit)).proposed == expected[:limit]
        assert (await store.find_claimable(wanted)).proposed == expected[:limit]
    both = Propose(queues=(QUEUE, QUEUE + 1), limit=2)
    assert (await store.find_claimable(both)).proposed == [(*key(1), 0), (*key(1), 1)]
    assert (await propose(store, limit=2, queues=both.queues)).proposed == [(*key(1), 0), (*key(1), 1)]


async def test_a_step_that_became_ready_while_a_claim_waited_for_its_run_takes_its_place_by_number(
    store: Store, other: Store
) -> None:
    await save(store, new_run(1, (a_step(1, 0), ready(1, 1, at=10))))
    loaded = await propose(store, limit=1)
    assert loaded.proposed == [(*key(1), 1)]
    change, entry = moved(a_run(1))
    await other.change([want(1)], writes(Write(runs=[change], entries=[entry], steps=[ready(1, 0, at=20)])))
    assert (await propose(store, limit=1)).proposed == [(*key(1), 0)]


async def test_the_low_water_mark_leaves_out_what_was_ready_before_it(store: Store) -> None:
    await save(store, new_run(1, (ready(1, 0, at=10),)), new_run(2, (ready(2, at=20), ready(2, 1, at=30))))
    assert (await propose(store, after=20)).proposed == [(*key(2), 0), (*key(2), 1)]


async def test_wanted_runs_and_proposals_come_together(store: Store) -> None:
    await save(store, new_run(1, (ready(1), a_step(1, 1))), new_run(2, (ready(2),)))
    seen: list[Loaded] = []

    def decide(loaded: Loaded) -> Write:
        seen.append(loaded)
        return Write()

    await store.change([want(1, steps=(1,))], decide, Propose(queues=(QUEUE,), limit=9))
    assert seen[-1].proposed == [(*key(1), 0), (*key(2), 0)]
    assert set(seen[-1].steps[key(1)]) == {0, 1}


async def test_concurrent_claims_skip_nothing_and_double_nothing(store: Store, other: Store) -> None:
    everything = [(*key(n), no) for n in range(40) for no in range(3)]
    await save(store, *(new_run(n, [ready(n, no) for no in range(3)]) for n in range(40)))

    async def drain(place: Store) -> list[Claim]:
        mine: list[Claim] = []
        empty = 0
        while empty < 3:
            # An empty answer may mean that somebody else holds the runs just now; ask again.
            found = await claim(place, 7)
            empty = 0 if found else empty + 1
            mine += found
        return mine

    claims = [one for part in await asyncio.gather(*(drain(p) for p in (store, other) * 3)) for one in part]
    claims += await drain(store)
    assert sorted(claims) == sorted(everything)


async def test_a_lease_that_stands_is_extended_from_now(store: Store) -> None:
    now = await store.now()
    await save(
        store,
        new_run(1, (running(1, due_at=now + 5 * SECOND, fence=4),), run=a_run(1, moving=1, leased=1)),
        new_run(
            2,
            (running(2, due_at=now + 5 * SECOND, state=StepState.VALIDATING),),
            run=a_run(2, RunState.STOPPING, cause=StopCause.CANCEL),
        ),
    )
    store.clock_offset += 4 * SECOND
    renewed = await store.renew(
        [Lease(TENANT, run_id(1), 0, 4, 30 * SECOND), Lease(TENANT, run_id(2), 0, 1, 60 * SECOND)]
    )
    assert sorted(renewed, key=lambda one: one.run_id) == [
        Renewed(run_id(1), 0, 4, RunState.RUNNING),
        Renewed(run_id(2), 0, 1, RunState.STOPPING),
    ]
    loaded = await load(store, want(1, steps=(0,)), want(2, steps=(0,)))
    for number, lease in ((1, 30), (2, 60)):
        due_at = loaded.steps[key(number)][0].due_at
        assert due_at is not None
        assert now + (4 + lease) * SECOND <= due_at <= loaded.now + lease * SECOND
    assert loaded.runs[key(1)].seq == 1


async def test_a_renewal_takes_nothing_away_from_a_longer_lease(store: Store) -> None:
    due_at = await store.now() + 60 * SECOND
    await save(store, new_run(1, (running(1, due_at=due_at),)))
    assert len(await store.renew([Lease(TENANT, run_id(1), 0, 1, 5 * SECOND)])) == 1
    assert (await store.read_steps(*key(1)))[0].due_at == due_at


async def test_a_lease_that_does_not_stand_is_left_alone(store: Store) -> None:
    now = await store.now()
    steps = (
        running(1, 0, due_at=now + 60 * SECOND, fence=5),
        running(1, 1, due_at=now - 1),
        ready(1, 2, fence=1),
        settled(a_step(1, 3, fence=1)),
        a_step(1, 4, state=StepState.VALIDATING, ready_at=1, fence=1),
        a_step(1, 5, state=StepState.AWAITING_EVENT, due_at=now + 60 * SECOND, fence=1, note=Note(event="e")),
    )
    await save(store, new_run(1, steps))
    wrong = [(0, 4), (0, 6), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (77, 1)]
    leases = [Lease(TENANT, run_id(1), no, fence, SECOND) for no, fence in wrong]
    others = [Lease("other", run_id(1), 0, 5, SECOND), Lease(TENANT, run_id(2), 0, 5, SECOND)]
    assert await store.renew([*leases, *others]) == []
    assert await store.read_steps(*key(1)) == list(steps)
    assert await store.renew([]) == []


async def test_a_lease_expires_by_the_databases_clock(store: Store) -> None:
    now = await store.now()
    await save(store, new_run(1, (running(1, due_at=now + 10 * SECOND),)))
    lease = Lease(TENANT, run_id(1), 0, 1, 10 * SECOND)
    store.clock_offset += 9 * SECOND
    assert len(await store.renew([lease])) == 1
    store.clock_offset += 9 * SECOND
    assert len(await store.renew([lease])) == 1
    store.clock_offset += 11 * SECOND
    assert await store.renew([lease]) == []


async def test_what_is_due_is_found_oldest_first(store: Store) -> None:
    now = await store.now()
    retrying = a_step(1, 1, state=StepState.RETRYING, due_at=now - 30)
    later = a_step(1, 2, state=StepState.RETRYING, due_at=now + 60 * SECOND)
    await save(
        store,
        new_run(1, (running(1, 0, due_at=now - 10), retrying, later, ready(1, 3)), run=a_run(1, due_at=now - 20)),
        new_run(2, (ready(2),), run=a_run(2, due_at=now + 90 * SECOND)),
        new_run(3, (ready(3),)),
    )
    due = [Due(*key(1), 1), Due(*key(1), None), Due(*key(1), 0)]
    assert await store.find_due(10) == due
    assert await store.find_due(2) == due[:2]
    store.clock_offset += 61 * SECOND
    assert await store.find_due(10) == [*due, Due(*key(1), 2)]
    store.clock_offset += 30 * SECOND
    assert await store.find_due(10) == [*due, Due(*key(1), 2), Due(*key(2), None)]


async def test_the_clock_moves_with_its_offset_and_never_by_itself_backwards(store: Store) -> None:
    before = await store.now()
    store.clock_offset = 3600 * SECOND
    moved_on = await store.now()
    assert 3600 * SECOND <= moved_on - before < 3660 * SECOND
    assert (await load(store)).now >= moved_on
    readings = [await store.now() for _ in range(50)]
    assert readings == sorted(readings)
    store.clock_offset = 0
    assert (await load(store)).now < moved_on


WAITS: dict[str, Step] = {
    "claimable": ready(1),
    "claimable rules": a_step(1, state=StepState.VALIDATING, ready_at=1, fence=1),
    "leased, even if expired": running(1, due_at=1),
    "backing off": a_step(1, state=StepState.RETRYING, due_at=1),
    "waiting for people": a_step(1, state=StepState.AWAITING_APPROVAL),
    "waiting for a message": a_step(1, state=StepState.AWAITING_EVENT, note=Note(event="e")),
    "waiting for a completion": a_step(1, state=StepState.AWAITING_COMPLETION, note=Note(token="t")),
}


@pytest.mark.parametrize("cause", WAITS)
async def test_a_run_with_a_cause_to_move_is_not_stuck(store: Store, cause: str) -> None:
    await save(store, new_run(1, (WAITS[cause], a_step(1, 1), settled(a_step(1, 2)))))
    assert await store.stuck_runs() == []


STUCK: dict[str, Run] = {
    "running with only pending steps": a_run(2),
    "queued with nothing to claim": a_run(2, RunState.QUEUED),
    "blocked on nothing": a_run(2, RunState.BLOCKED),
    "validating with no check under way": a_run(2, RunState.VALIDATING),
    "stopping with nothing in flight": a_run(2, RunState.STOPPING, cause=StopCause.FAILURE),
    "compensating with no hook to run": a_run(2, RunState.COMPENSATING, cause=StopCause.FAILURE),
    "running with nothing but its own timeout": a_run(2, due_at=10**17),
}


@pytest.mark.parametrize("kind", STUCK)
async def test_a_run_that_nothing_will_move_is_found_and_nothing_else(store: Store, kind: str) -> None:
    idle = a_run(3, RunState.IDLE)
    grace = a_run(4, RunState.STOPPING, cause=StopCause.CANCEL, due_at=5)
    done = a_run(5, RunState.FAILED, ended_at=5)
    await save(
        store,
        new_run(1, (ready(1),)),
        new_run(2, (a_step(2, 0), settled(a_step(2, 1))), run=STUCK[kind]),
        new_run(3, (a_step(3),), run=idle),
        new_run(4, (), run=grace),
        new_run(5, (settled(a_step(5)),), run=done),
    )
    assert await store.stuck_runs() == [key(2)]
    assert await store.stuck_runs(limit=0) == []


async def test_the_claim_is_gone_from_the_proposals_once_written(store: Store) -> None:
    await save(store, new_run(1, (ready(1),)))
    assert await claim(store, 5) == [(*key(1), 0)]
    assert await claim(store, 5) == []
    step = (await load(store, want(1, steps=(0,)))).steps[key(1)][0]
    await store.change([want(1)], writes(Write(steps=[replace(ready(1), fence=step.fence)])))
    assert await claim(store, 5) == [(*key(1), 0)]


async def test_what_could_be_claimed_is_found_with_its_runs_and_nothing_is_held(store: Store, other: Store) -> None:
    now = await store.now()
    late, note = now + 60 * SECOND, Note(woken_by="paid")
    await save(
        store,
        new_run(1, (ready(1, 0, at=now - 5), ready(1, 1, at=now - 9, attempts=2, note=note))),
        new_run(2, (ready(2, at=now - 7, priority=4), a_step(2, 1, unmet=1)), run=a_run(2, priority=4)),
        new_run(3, (ready(3, at=late), ready(3, 1, at=now - 20, queue=QUEUE + 7))),
    )

    found = await store.find_claimable(Propose(queues=(QUEUE,), limit=10))

    assert found.proposed == [(*key(2), 0), (*key(1), 0), (*key(1), 1)]
    assert found.runs == {key(1): a_run(1), key(2): a_run(2, priority=4)}
    assert found.steps == {
        key(1): {0: ready(1, 0, at=now - 5), 1: ready(1, 1, at=now - 9, attempts=2, note=note)},
        key(2): {0: ready(2, at=now - 7, priority=4)},
    }
    assert now <= found.now <= await store.now()
    assert (await store.find_claimable(Propose(queues=(QUEUE,), limit=1))).proposed == [(*key(2), 0)]
    assert (await store.find_claimable(Propose(queues=(QUEUE,), limit=9, after=now - 6))).proposed == [(*key(1), 0)]
    assert (await store.find_claimable(Propose(queues=(QUEUE + 1,), limit=9))).proposed == []
    change, entry = moved(a_run(1))
    await other.change([want(1)], writes(Write(runs=[change], entries=[entry])))
