"""Triggers on the ends of runs: the transaction that ends a run notes it, so that each end fires once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import Ending
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.operations.triggers import endings, manage
from stepkeep.store.rows import FiringState
from tests.store.postgres.conftest import session, until_somebody_waits
from tests.triggers.stage import BY_ANN, Stage, hourly
from tests.workbench import ACTOR, TENANT, benches, chain

SOURCE = chain("source", 1)
AFTER = "after"
SECOND, DAY = 1_000_000, 24 * 3600 * 1_000_000


async def add(stage: Stage, workflow: str = "source") -> None:
    await stage.bench.publish(SOURCE)
    await stage.add(hourly(name=AFTER, schedule=None, ended=Ending(workflow=workflow)))


async def sweep(stage: Stage, times: int = 3) -> int:
    started = 0
    for _ in range(times):
        stage.store.clock_offset += 3 * SECOND
        started += await stage.sweep()
    return started


async def sources(stage: Stage) -> list[tuple[str, str | None]]:
    return [(one.state.value, one.source) for one in await stage.firings(AFTER)]


async def test_the_transaction_that_ends_a_run_notes_it(stage: Stage) -> None:
    await add(stage)
    run = await stage.bench.start(SOURCE)
    assert await sources(stage) == []
    await stage.bench.work_off()
    assert await sources(stage) == [("awaiting", run)]
    other = await stage.bench.start(SOURCE)
    await stage.bench.cancel(other)
    assert await sources(stage) == [("awaiting", run), ("awaiting", other)]
    assert await sweep(stage) == 2
    assert {one[0] for one in await sources(stage)} == {"started"}


async def test_a_run_that_lives_when_the_trigger_is_added_counts(stage: Stage) -> None:
    run = await stage.bench.start(SOURCE)
    gone = await stage.bench.start(SOURCE)
    await stage.bench.cancel(gone)
    await add(stage)
    assert await sources(stage) == [("awaiting", run)]
    assert (await stage.row(AFTER)).cursor_at is None
    assert await sweep(stage) == 0
    await stage.bench.work_off()
    assert await sweep(stage) == 1


async def test_an_addition_that_is_killed_half_way_is_completed_by_a_sweep(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await stage.bench.start(SOURCE)

    async def killed(*given: object) -> None:
        raise ConnectionError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(manage, "note_living", killed)
        with pytest.raises(ConnectionError):
            await add(stage)
    assert await sources(stage) == []
    assert await sweep(stage) == 0
    assert await sources(stage) == [("awaiting", run)]


async def test_more_ends_than_one_sweep_takes_are_fired_one_after_the_other(stage: Stage) -> None:
    await add(stage)
    for _ in range(endings.ENDINGS_AT_ONCE + 2):
        await stage.bench.cancel(await stage.bench.start(SOURCE))
    stage.store.clock_offset += 3 * SECOND
    assert await stage.sweep() == endings.ENDINGS_AT_ONCE
    assert await stage.sweep() == 2


async def test_ends_of_a_pause_are_skipped_and_those_before_it_fire_afterwards(stage: Stage) -> None:
    await add(stage)
    await stage.bench.cancel(before := await stage.bench.start(SOURCE))
    stage.store.clock_offset += SECOND
    await manage.pause_trigger(stage.firer, AFTER, caller=Caller(TENANT, ACTOR))
    await stage.bench.cancel(first := await stage.bench.start(SOURCE))
    assert await sweep(stage) == 0
    await stage.bench.cancel(second := await stage.bench.start(SOURCE))
    await manage.resume_trigger(stage.firer, AFTER, tenant=TENANT)
    await stage.bench.cancel(later := await stage.bench.start(SOURCE))
    assert await sweep(stage) == 2
    states = {source: state for state, source in await sources(stage)}
    assert states == {before: "started", first: "skipped", second: "skipped", later: "started"}


async def test_a_removed_trigger_notes_nothing_and_what_ended_meanwhile_does_not_fire_later(stage: Stage) -> None:
    living = await stage.bench.start(SOURCE)
    await add(stage)
    await manage.remove_trigger(stage.firer, AFTER, tenant=TENANT)
    stage.store.clock_offset += SECOND
    await stage.bench.cancel(living)
    await stage.bench.cancel(await stage.bench.start(SOURCE))
    stage.store.clock_offset += SECOND
    await add(stage)
    assert await sweep(stage) == 0
    [firing] = await stage.firings(AFTER)
    assert (firing.state, firing.source) == (FiringState.SKIPPED, living)


async def test_a_run_is_not_deleted_before_its_end_was_decided_about(stage: Stage) -> None:
    await add(stage)
    await stage.bench.cancel(run := await stage.bench.start(SOURCE))
    every = Policy(keep=0)
    gone = await prune(stage.bench.transactor, every, tenant=TENANT, folder=None)
    assert (gone.found, gone.deleted) == (0, 0)
    assert await stage.store.delete_runs(TENANT, [run]) == []
    assert await sweep(stage) == 1
    gone = await prune(stage.bench.transactor, every, tenant=TENANT, folder=None)
    assert gone.deleted == 1
    await stage.bench.cancel(waiting := await stage.bench.start(SOURCE))
    await manage.remove_trigger(stage.firer, AFTER, tenant=TENANT)
    assert await stage.store.delete_runs(TENANT, [waiting]) == [waiting]


async def test_old_firings_go_when_their_runs_are_gone(stage: Stage, tmp_path: Path) -> None:
    await add(stage)
    await stage.bench.cancel(await stage.bench.start(SOURCE))
    assert await sweep(stage) == 1
    forget = Policy(keep=0, forget_firings=2 * DAY)

    async def forgotten() -> int:
        return (await prune(stage.bench.transactor, forget, tenant=TENANT, folder=tmp_path)).firings

    stage.store.clock_offset += 3 * DAY
    assert await forgotten() == 0, "the run that it started lives"
    await stage.bench.work_off()
    assert await forgotten() == 1
    await stage.bench.cancel(await stage.bench.start(SOURCE))
    assert await sweep(stage) == 1
    await stage.bench.work_off()
    assert await forgotten() == 0, "it is too young"
    assert len(await stage.firings(AFTER)) == 1


async def test_a_firing_that_was_forgotten_fires_nothing_again_while_its_key_is_kept(stage: Stage) -> None:
    await stage.bench.publish(SOURCE)
    await stage.add(hourly(name=AFTER))
    fired = await manage.fire_trigger(stage.firer, AFTER, caller=BY_ANN, key="k")
    await stage.bench.cancel(fired["run_id"])
    stage.store.clock_offset += 2 * DAY
    forget = Policy(keep=0, forget_firings=DAY)
    assert (await prune(stage.bench.transactor, forget, tenant=TENANT, folder=None)).firings == 1
    again = await manage.fire_trigger(stage.firer, AFTER, caller=BY_ANN, key="k")
    assert (again["state"], again["run_id"]) == ("started", fired["run_id"])
    assert await stage.store.count_runs(TENANT) == {}


async def test_firings_are_kept_for_at_least_a_day(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="at least a day"):
        await prune(stage.bench.transactor, Policy(forget_firings=DAY - 1), tenant=TENANT, folder=None)


async def end_while_a_trigger_is_added(url: str) -> list[tuple[str, str | None]]:
    """The statement that ends a run begins before the trigger is added, waits for a lock, and commits after it."""
    async with benches(url, 2) as [one, other], session(url) as holder:
        stage = Stage(other)
        run = await one.start(SOURCE)
        [claim] = await one.claim(1)
        holding = holder.transaction()
        await holding.start()
        await holder.execute("select 1 from stepkeep.runs for update")
        ending = asyncio.create_task(one.report(claim))
        async with session(url) as looking:
            await until_somebody_waits(looking)
        await add(stage)
        assert not ending.done()
        await holding.rollback()
        await ending
        assert str(await one.state(run)) == "succeeded"
        await sweep(stage)
        return await sources(stage)


async def test_an_end_that_was_under_way_when_the_trigger_was_added_counts(postgres_dsn: str) -> None:
    [(state, _)] = await end_while_a_trigger_is_added(postgres_dsn)
    assert state == "started"


async def test_without_the_note_of_living_runs_such_an_end_is_missed(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(*given: object) -> None:
        return None

    monkeypatch.setattr(manage, "note_living", forgets)
    monkeypatch.setattr("stepkeep.operations.triggers.sweep.note_living", forgets)
    assert await end_while_a_trigger_is_added(postgres_dsn) == []
