"""Schedules that fire: each moment once, by its overlap and catch-up policy, whatever crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from stepkeep.cli.render.tables import runs_table
from stepkeep.kernel.definition import InputField, InputType
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import CatchUp, Keep, Overlap, Schedule
from stepkeep.operations.runs.search import Terms, search_runs
from stepkeep.operations.triggers import manage
from stepkeep.operations.triggers.firing import actor_of
from stepkeep.operations.triggers.sweep import TriggerSweep
from stepkeep.store.records import RunFilter
from tests.triggers.stage import BY_ANN, MINUTE, NAME, WORK, Stage, hourly, micros
from tests.workbench import ACTOR, TENANT

NINE = "2031-05-01T09:00:01+00:00"
TEN = "2031-05-01T10:00:01+00:00"
ELEVEN = "2031-05-01T11:00:01+00:00"


async def test_a_trigger_fires_when_its_moment_has_come_and_not_before(stage: Stage) -> None:
    view = await stage.add()
    assert view["next_at"] == "2031-05-01T09:00:00.000Z"
    assert await stage.sweep() == 0
    assert await stage.sweep_at(NINE) == 1
    assert await stage.sweep() == 0
    [run_id] = await stage.runs()
    record = await stage.store.read_run(TENANT, run_id)
    assert record is not None
    assert (record.details.created_by, record.details.input) == (actor_of(NAME), b"{}")
    assert await stage.sweep_at(TEN) == 1
    assert await stage.states() == [("09:00", "started"), ("10:00", "started")]


async def test_three_schedulers_at_once_fire_each_moment_once(stages: list[Stage]) -> None:
    await stages[0].add()
    for text in (NINE, TEN, ELEVEN):
        for stage in stages:
            await stage.set_clock(text)
        started = await asyncio.gather(*(stage.sweep() for stage in stages * 2))
        assert sum(started) == 1
    assert [state for _, state in await stages[0].states()] == ["started"] * 3
    assert len(await stages[0].runs()) == 3


async def test_a_crash_before_the_commit_loses_no_moment_and_one_after_it_repeats_none(stage: Stage) -> None:
    await stage.add()
    await stage.set_clock(NINE)
    real = stage.store.change

    async def crash_before(*given: object) -> None:
        raise StoreUnavailable("the process is gone")

    async def crash_after(*given: object) -> None:
        await real(*given)  # type: ignore[arg-type]
        raise StoreUnavailable("the process is gone")

    for crash in (crash_before, crash_after):
        stage.store.change = crash  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreUnavailable):
            await stage.sweep()
    stage.store.change = real  # type: ignore[method-assign]
    assert await TriggerSweep(stage.bench.transactor).sweep() == 0
    assert await stage.states() == [("09:00", "started")]
    assert len(await stage.runs()) == 1


# -- overlap -----------------------------------------------------------------------------------------------------------
async def test_skip_records_a_firing_that_overlaps_and_starts_nothing(stage: Stage) -> None:
    await stage.add(hourly(overlap=Overlap.SKIP))
    await stage.sweep_at(NINE)
    assert await stage.sweep_at(TEN) == 0
    assert await stage.states() == [("09:00", "started"), ("10:00", "skipped")]
    assert "has not ended" in str((await stage.firings())[1].reason)
    await stage.bench.work_off()
    assert await stage.sweep_at(ELEVEN) == 1


async def test_queue_starts_waiting_firings_in_order_as_runs_end(stage: Stage) -> None:
    await stage.add(hourly(overlap=Overlap.QUEUE, most_waiting=2))
    for text in (NINE, TEN, ELEVEN, "2031-05-01T12:00:01+00:00"):
        await stage.sweep_at(text)
    states = [("09:00", "started"), ("10:00", "waiting"), ("11:00", "waiting"), ("12:00", "skipped")]
    assert await stage.states() == states
    await stage.bench.work_off()
    assert await stage.sweep_at("2031-05-01T12:00:20+00:00") == 1
    assert (await stage.states())[1:3] == [("10:00", "started"), ("11:00", "waiting")]
    assert await stage.sweep_at("2031-05-01T12:00:40+00:00") == 0
    await stage.bench.work_off()
    assert await stage.sweep_at("2031-05-01T12:01:00+00:00") == 1
    assert [await stage.bench.state(run) for run in await stage.runs()] == [
        RunState.SUCCEEDED,
        RunState.SUCCEEDED,
        RunState.QUEUED,
    ]


async def test_cancel_ends_the_earlier_run_and_the_newest_firing_starts_after_it(stage: Stage) -> None:
    await stage.add(hourly(overlap=Overlap.CANCEL, schedule=Schedule(every=10_000_000)))
    await stage.sweep_at("2031-05-01T08:30:11+00:00")
    [first] = await stage.runs()
    claims = await stage.bench.claim(1)
    assert len(claims) == 1
    assert await stage.sweep_at("2031-05-01T08:30:21+00:00") == 1
    assert [state for _, state in await stage.states()] == ["started", "started"]
    assert await stage.bench.state(first) is RunState.CANCELLED
    history = await stage.store.read_journal(TENANT, first)
    assert b"replaces it" in history[-1].body


async def test_allow_starts_every_moment(stage: Stage) -> None:
    await stage.add(hourly(overlap=Overlap.ALLOW))
    for text in (NINE, TEN, ELEVEN):
        assert await stage.sweep_at(text) == 1


# -- catch-up ----------------------------------------------------------------------------------------------------------
LATER = "2031-05-01T15:20:00+00:00"


@pytest.mark.parametrize(
    ("catch_up", "fired"),
    [
        (CatchUp(keep=Keep.NONE), []),
        (CatchUp(keep=Keep.LAST), ["15:00"]),
        (CatchUp(keep=Keep.ALL, most=3), ["13:00", "14:00", "15:00"]),
        (CatchUp(keep=Keep.ALL, most=10), ["09:00", "10:00", "11:00", "12:00", "13:00", "14:00", "15:00"]),
        (CatchUp(keep=Keep.ALL, most=10, window=150 * MINUTE), ["13:00", "14:00", "15:00"]),
    ],
    ids=["none", "last", "all up to 3", "all", "window"],
)
async def test_missed_moments_are_caught_up_as_the_policy_says(
    stage: Stage, catch_up: CatchUp, fired: list[str]
) -> None:
    await stage.add(hourly(catch_up=catch_up))
    await stage.sweep_at(LATER)
    assert [moment for moment, state in await stage.states() if state == "started"] == fired
    left_out = [one for one in await stage.firings() if one.state == "skipped"]
    assert len(left_out) == (len(fired) < 7)
    assert all("not caught up" in str(one.reason) for one in left_out)
    assert await stage.sweep_at("2031-05-01T16:00:01+00:00") == 1


async def test_a_year_without_workers_starts_no_more_than_the_policy_allows(stage: Stage) -> None:
    every_minute = Schedule(cron="* * * * *")
    await stage.add(hourly(schedule=every_minute, catch_up=CatchUp(keep=Keep.ALL, most=1000)))
    assert await stage.sweep_at("2032-05-01T08:30:30+00:00") <= 21
    assert await stage.sweep() == 0


async def test_caught_up_runs_are_spread(stage: Stage) -> None:
    await stage.add(hourly(catch_up=CatchUp(keep=Keep.ALL, most=3, spread=MINUTE)))
    await stage.sweep_at(LATER)
    now = await stage.store.now()
    delays = []
    for run_id in await stage.runs():
        record = await stage.store.read_run(TENANT, run_id)
        assert record is not None
        delays.append(0 if record.run.due_at is None else round((record.run.due_at - now) / MINUTE))
    assert delays == [0, 1, 2]


async def test_a_late_moment_is_not_caught_up_where_a_later_one_is_on_time(stage: Stage) -> None:
    await stage.add(hourly(catch_up=CatchUp(keep=Keep.LAST)))
    await stage.sweep_at(ELEVEN)
    assert [moment for moment, state in await stage.states() if state == "started"] == ["11:00"]


# -- pause, fire, remove -----------------------------------------------------------------------------------------------
async def test_a_paused_trigger_fires_nothing_and_its_pause_is_not_caught_up(stage: Stage) -> None:
    await stage.add(hourly(catch_up=CatchUp(keep=Keep.ALL)))
    paused = await manage.pause_trigger(stage.firer, NAME, caller=Caller(TENANT, "ann"))
    assert (paused["state"], paused["paused_by"], paused["next_at"]) == ("paused", "ann", None)
    with pytest.raises(Conflict, match="paused already, by ann"):
        await manage.pause_trigger(stage.firer, NAME, caller=Caller(TENANT, "bea"))
    for text in (NINE, TEN):
        assert await stage.sweep_at(text) == 0
    assert (await stage.row()).due_at is None
    resumed = await manage.resume_trigger(stage.firer, NAME, tenant=TENANT)
    assert (resumed["state"], resumed["next_at"]) == ("active", "2031-05-01T11:00:00.000Z")
    assert await stage.sweep() == 0
    assert await stage.sweep_at(ELEVEN) == 1
    assert await stage.states() == [("11:00", "started")]
    with pytest.raises(Conflict, match="not paused"):
        await manage.resume_trigger(stage.firer, NAME, tenant=TENANT)


async def test_firings_that_wait_stay_waiting_during_a_pause(stage: Stage) -> None:
    await stage.add(hourly(overlap=Overlap.QUEUE))
    await stage.sweep_at(NINE)
    await stage.sweep_at(TEN)
    await manage.pause_trigger(stage.firer, NAME, caller=Caller(TENANT, "ann"))
    await stage.bench.work_off()
    assert await stage.sweep_at(ELEVEN) == 0
    await manage.resume_trigger(stage.firer, NAME, tenant=TENANT)
    assert await stage.sweep() == 1
    assert await stage.states() == [("09:00", "started"), ("10:00", "started")]


async def test_one_key_fires_by_hand_once_also_while_paused(stage: Stage) -> None:
    await stage.add(hourly(overlap=Overlap.SKIP))
    await manage.pause_trigger(stage.firer, NAME, caller=Caller(TENANT, "ann"))
    first = await manage.fire_trigger(stage.firer, NAME, caller=BY_ANN, key="k", payload={"a": 1})
    again = await manage.fire_trigger(stage.firer, NAME, caller=BY_ANN, key="k")
    other = await manage.fire_trigger(stage.firer, NAME, caller=BY_ANN)
    assert first["state"] == "started"
    assert first["run_id"] == again["run_id"] != other["run_id"]
    record = await stage.store.read_run(TENANT, first["run_id"])
    assert record is not None
    assert (record.details.created_by, record.details.input) == ("ann", b'{"a":1}')


async def test_a_removed_trigger_fires_nothing_and_its_moments_never_fire_again(stage: Stage) -> None:
    await stage.add()
    await stage.sweep_at(NINE)
    await manage.remove_trigger(stage.firer, NAME, tenant=TENANT)
    assert await stage.sweep_at(TEN) == 0
    with pytest.raises(NotFound, match="no trigger nightly"):
        await manage.show_trigger(stage.bench.transactor, NAME, tenant=TENANT)
    await stage.add()
    job = await backfill(stage, "2031-05-01T09:00:00+00:00", TEN)
    for second in range(2, 9):
        await stage.sweep_at(f"2031-05-01T10:00:0{second}+00:00")
    [done] = await stage.store.triggers.list_backfills(TENANT, NAME)
    assert (done.id, done.started, done.skipped) == (job["backfill"], 1, 1)
    assert await stage.states() == [("09:00", "started"), ("10:00", "started")]


# -- what cannot start -------------------------------------------------------------------------------------------------
async def test_a_run_that_is_refused_is_on_record_and_holds_up_nothing(stage: Stage) -> None:
    fields = {"day": InputField(type=InputType.STRING)}
    strict = msgspec.structs.replace(WORK, name="strict", input_fields=("day",), input_types=fields)
    await stage.add(hourly(overlap=Overlap.SKIP), strict)
    await stage.add(hourly(name="other"))
    assert await stage.sweep_at(NINE) == 1
    [refused] = await stage.firings()
    assert (refused.state, "day" in str(refused.reason)) == ("refused", True)
    await stage.sweep_at(TEN)
    assert [state for _, state in await stage.states()] == ["refused", "refused"]


async def test_inputs_are_filled_with_the_moment(stage: Stage) -> None:
    spec = hourly(inputs={"day": "${{ trigger.moment }}", "by": "${{ trigger.name }}", "n": 3})
    await stage.add(spec)
    await stage.sweep_at(NINE)
    [run_id] = await stage.runs()
    record = await stage.store.read_run(TENANT, run_id)
    assert record is not None
    assert msgspec.json.decode(record.details.input) == {"day": "2031-05-01T09:00:00Z", "by": NAME, "n": 3}


async def test_a_trigger_needs_a_published_workflow_and_a_plain_name(stage: Stage) -> None:
    with pytest.raises(NotFound, match="no published workflow"):
        await manage.add_trigger(stage.firer, hourly(), "nothing", caller=Caller(TENANT, ACTOR))
    for name in ("", "a b", "ä", "-x", "x" * 101):
        with pytest.raises(InvalidInput, match="the name of a trigger"):
            await stage.add(hourly(name=name))


async def test_jitter_delays_the_start_and_not_the_moment(stage: Stage) -> None:
    await stage.add(hourly(schedule=Schedule(cron="0 * * * *", jitter=10 * MINUTE)))
    due_at = (await stage.row()).due_at
    assert due_at is not None
    delay = due_at - micros("2031-05-01T09:00:00+00:00")
    assert 0 < delay <= 10 * MINUTE
    stage.store.clock_offset += due_at - 1_000_000 - await stage.store.now()
    assert await stage.sweep() == 0
    stage.store.clock_offset += 1_000_001
    assert await stage.sweep() == 1
    assert await stage.states() == [("09:00", "started")]


# -- backfill ----------------------------------------------------------------------------------------------------------
async def backfill(stage: Stage, since: str, until: str, **given: object) -> dict[str, object]:
    bounds = {"since": micros(since), "until": micros(until)}
    return await manage.backfill(stage.firer, NAME, caller=Caller(TENANT, "ann"), **bounds, **given)  # type: ignore[arg-type]


async def test_a_backfill_fires_the_moments_of_a_range_in_batches_and_survives_its_worker(stages: list[Stage]) -> None:
    stage = stages[0]
    await stage.add(hourly(overlap=Overlap.SKIP))
    for one in stages:
        await one.set_clock("2031-05-03T00:30:00+00:00")
    await stage.sweep()
    dry = await backfill(stage, "2031-05-02T00:00:00+00:00", "2031-05-03T00:00:00+00:00", dry_run=True)
    assert (dry["moments"], dry["first"][0]) == (24, "2031-05-02T00:00:00Z")  # type: ignore[index]
    assert await stage.store.triggers.list_backfills(TENANT, NAME) == []
    await backfill(stage, "2031-05-02T00:00:00+00:00", "2031-05-03T00:00:00+00:00", at_once=5)
    live = []
    for turn in range(12):
        # Each sweep is of another worker; one that dies between two sweeps is replaced by the next.
        worker = stages[turn % 3]
        live.append(await worker.sweep())
        assert sum(live) <= 5 * (turn + 1)
        await worker.bench.work_off()
        for one in stages:
            one.store.clock_offset += 2_000_000
    [job] = await stage.store.triggers.list_backfills(TENANT, NAME)
    assert (job.state, job.started, job.skipped, job.refused) == ("done", 24, 0, 0)
    assert max(live) <= 5
    mine = [one for one in await stage.firings() if one.backfill == job.id]
    assert len({one.moment for one in mine}) == len({one.run_id for one in mine}) == 24


async def test_a_backfill_starts_no_more_runs_than_it_may_at_once(stage: Stage) -> None:
    await stage.add()
    await stage.set_clock("2031-05-03T00:30:00+00:00")
    await stage.sweep()
    await backfill(stage, "2031-05-02T00:00:00+00:00", "2031-05-03T00:00:00+00:00", at_once=3)
    assert await stage.sweep() == 3
    stage.store.clock_offset += 2_000_000
    assert await stage.sweep() == 0
    await stage.bench.work_off()
    stage.store.clock_offset += 2_000_000
    assert await stage.sweep() == 3


async def test_a_list_of_runs_tells_the_moment_of_each_run_of_a_backfill(stage: Stage) -> None:
    await stage.add()
    await stage.set_clock("2031-05-03T00:30:00+00:00")
    await stage.sweep()
    own = await stage.bench.start(WORK)
    job = await backfill(stage, "2031-05-02T00:00:00+00:00", "2031-05-02T02:00:00+00:00", at_once=3)
    await stage.sweep()
    listed = await search_runs(stage.bench.transactor, RunFilter(tenant=TENANT), Terms())
    fired = {one.id: one.fired for one in listed.runs}
    assert fired.pop(own) is None
    fired = {run: one for run, one in fired.items() if one["backfill"] is not None}
    moments = ["2031-05-02T00:00:00Z", "2031-05-02T01:00:00Z"]
    told = [{"trigger": NAME, "moment": moment, "backfill": job["backfill"]} for moment in moments]
    assert sorted(fired.values(), key=lambda one: str(one["moment"])) == told
    table = runs_table(listed["runs"])
    assert f"{NAME}/{moments[0]}" in [str(cell) for cell in table.columns[-1].cells]


async def test_a_backfill_counts_no_moment_after_its_range_and_lets_other_tasks_have_their_turn() -> None:
    asked: list[int] = []

    def moments() -> Iterator[int]:
        for moment in range(10_000):
            asked.append(moment)
            yield moment

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert len(await manage.moments_before(2_000, moments())) == 2_000
    beside.cancel()
    assert asked[-1] == 2_000, "one moment beyond the range ends it"
    assert turns >= 4


async def test_a_backfill_can_be_stopped_and_refuses_wrong_ranges(stage: Stage) -> None:
    await stage.add()
    await stage.set_clock("2031-05-03T00:30:00+00:00")
    job = await backfill(stage, "2031-05-02T00:00:00+00:00", "2031-05-03T00:00:00+00:00")
    stopped = await manage.stop_backfill(stage.firer, NAME, str(job["backfill"]), tenant=TENANT)
    assert stopped["state"] == "stopped"
    with pytest.raises(Conflict, match="stopped already"):
        await manage.stop_backfill(stage.firer, NAME, str(job["backfill"]), tenant=TENANT)
    with pytest.raises(NotFound):
        await manage.stop_backfill(stage.firer, NAME, "nothing", tenant=TENANT)
    for since, until, said in (
        ("2031-05-03T00:00:00+00:00", "2031-05-02T00:00:00+00:00", "before its end"),
        ("2031-05-02T00:00:00+00:00", "2031-05-09T00:00:00+00:00", "ends by now"),
        ("1990-01-01T00:00:00+00:00", "2031-05-03T00:00:00+00:00", "more than 50000"),
    ):
        with pytest.raises(InvalidInput, match=said):
            await backfill(stage, since, until)
    with pytest.raises(InvalidInput, match="at_once"):
        await backfill(stage, "2031-05-02T00:00:00+00:00", "2031-05-03T00:00:00+00:00", at_once=0)


async def test_a_trigger_shows_its_next_moments_its_firings_and_its_backfills(stage: Stage) -> None:
    await stage.add(hourly(schedule=Schedule(cron="30 2 * * *", zone="Europe/Zurich")))
    [listed] = (await manage.list_triggers(stage.bench.transactor, tenant=TENANT))["triggers"]
    shown = await manage.show_trigger(stage.bench.transactor, NAME, tenant=TENANT)
    assert listed.items() <= shown.items()
    assert shown["schedule"] == {"cron": "30 2 * * *", "zone": "Europe/Zurich", "gap": "shift", "fold": "first"}
    assert shown["next"][0] == {
        "moment": "2031-05-02T00:30:00Z",
        "local": "2031-05-02T02:30:00+02:00",
        "due_at": "2031-05-02T00:30:00.000Z",
    }
    after = micros("2031-10-25T12:00:00+00:00")
    coming = await manage.next_moments(stage.bench.transactor, NAME, tenant=TENANT, count=2, after=after)
    assert [one["moment"] for one in coming["next"]] == ["2031-10-26T00:30:00Z", "2031-10-27T01:30:00Z"]
