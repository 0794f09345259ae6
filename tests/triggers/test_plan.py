"""What one sweep decides, without a database: overlap, catch-up and the next sweep."""

from __future__ import annotations

from msgspec.structs import replace

from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.triggers import CatchUp, Keep, Overlap
from stepkeep.operations.triggers.plan import LATE, MOST_STARTS, plan_firing, plan_sweep
from stepkeep.store.rows import (
    Backfill,
    BackfillState,
    FiringState,
    Watched,
)
from tests.store.triggers import firing, trigger
from tests.triggers.stage import HOUR, MINUTE, hourly, micros

NINE = micros("2031-05-01T09:00:00+00:00")
ROW = trigger(next_at=NINE, due_at=NINE)
LIVE = Watched(firing("before", FiringState.STARTED, run_id="r-1", watched=1), RunState.STOPPING)
WAITING = Watched(firing("older", FiringState.WAITING, watched=1, due_at=NINE - 5), None)


def test_a_firing_that_cancels_waits_while_the_earlier_run_stops_and_replaces_one_that_waits() -> None:
    planned = plan_sweep(ROW, hourly(overlap=Overlap.CANCEL), NINE, [LIVE, WAITING])
    assert planned.cancels == ("r-1",)
    assert planned.starts == ()
    assert [(one.moment, one.state) for one in planned.records] == [
        ("older", FiringState.SKIPPED),
        ("2031-05-01T09:00:00Z", FiringState.WAITING),
    ]
    assert planned.row.due_at is not None
    assert planned.row.due_at - NINE <= 10_000_000


def test_a_run_that_was_deleted_or_ended_holds_up_nothing() -> None:
    for state in (None, RunState.FAILED, RunState.CANCELLED):
        planned = plan_sweep(ROW, hourly(overlap=Overlap.SKIP), NINE, [LIVE._replace(run_state=state)])
        assert len(planned.starts) == 1
        assert [(one.moment, one.watched) for one in planned.records] == [("before", 0)]


def test_a_sweep_that_comes_too_early_starts_nothing_and_keeps_the_moment() -> None:
    planned = plan_sweep(ROW, hourly(), NINE - 1, [])
    assert (planned.starts, planned.records, planned.row.next_at, planned.row.due_at) == ((), (), NINE, NINE)


def test_a_moment_is_missed_after_a_minute() -> None:
    none = hourly(catch_up=CatchUp(keep=Keep.NONE))
    assert len(plan_sweep(ROW, none, NINE + LATE, []).starts) == 1
    assert plan_sweep(ROW, none, NINE + LATE + 1, []).starts == ()


def test_one_sweep_starts_a_bounded_number_of_runs() -> None:
    spec = hourly(catch_up=CatchUp(keep=Keep.ALL, most=10**6, window=10**6 * HOUR))
    planned = plan_sweep(ROW, spec, NINE + 10**5 * HOUR, [])
    assert len(planned.starts) <= MOST_STARTS + 1


def test_a_paused_or_removed_trigger_starts_nothing() -> None:
    for row in (replace(ROW, paused_at=1, paused_by="ann"), replace(ROW, removed_at=1)):
        planned = plan_sweep(row, hourly(overlap=Overlap.QUEUE), NINE + MINUTE, [])
        assert (planned.starts, planned.records, planned.row.due_at) == ((), (), None)


def test_an_event_is_decided_about_like_a_moment_and_by_hand_nothing_holds_it_up() -> None:
    new = firing("e-1", FiringState.WAITING, watched=1)
    skipping = hourly(overlap=Overlap.SKIP)
    [held] = plan_firing(ROW, skipping, NINE, [LIVE], new).records
    assert held.state is FiringState.SKIPPED
    [fire] = plan_firing(ROW, skipping, NINE, [LIVE], new, forced=True).starts
    assert fire.firing.moment == "e-1"


def test_a_backfill_whose_range_is_empty_is_done_at_once() -> None:
    job = Backfill(
        tenant=ROW.tenant,
        id="b",
        trigger_name=ROW.name,
        state=BackfillState.RUNNING,
        since_at=NINE + 1,
        until_at=NINE + 2,
        cursor_at=NINE,
        at_once=3,
        started=0,
        skipped=0,
        refused=0,
        created_at=1,
        created_by="ann",
    )
    done = plan_sweep(ROW, hourly(), NINE - 1, [], job).backfill
    assert done is not None
    assert done.state is BackfillState.DONE
