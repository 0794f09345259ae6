"""Utilisation of workers: measured on each change, told over windows, published with the heartbeat (seed 004)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.worker.bed import TENANT, on_sqlite, step

from stepkeep.operations.remote.services import UsageWindow, known_workers
from stepkeep.operations.runs.status import worker_view
from stepkeep.worker.utilisation import WINDOWS, Meter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Clock, Meter]:
    clock = Clock()
    return clock, Meter(clock)


def test_busy_time_and_slots_are_shares_of_the_time_that_passed() -> None:
    clock, meter = made()
    clock.now += 10
    meter.took(2)
    clock.now += 5
    meter.left()
    clock.now += 5
    meter.left()
    clock.now += 20
    [minute, *_] = meter.usage()
    assert minute == UsageWindow(seconds=60, measured=40.0, busy=0.25, slots=0.375, claims=2, settled=2)


def test_a_window_forgets_what_is_older() -> None:
    clock, meter = made()
    meter.took(1)
    for _ in range(12):
        clock.now += 10
        meter.usage()
    meter.left()
    for _ in range(6):
        clock.now += 10
        usage = meter.usage()
    minute, ten, _ = usage
    assert (minute.busy, minute.claims, minute.settled) == (0.0, 0, 1)
    assert (ten.measured, ten.busy, ten.claims) == (180.0, 0.6667, 1)


def test_an_attempt_that_never_ends_counts_while_it_runs() -> None:
    clock, meter = made()
    meter.took(1)
    clock.now += 90
    assert [window.busy for window in meter.usage()] == [1.0, 1.0, 1.0]


def test_a_day_of_heartbeats_keeps_no_more_than_an_hour() -> None:
    clock, meter = made()
    for _ in range(8_640):
        clock.now += 10
        meter.usage()
    assert len(meter._kept) <= WINDOWS[-1] / 10 + 2


async def test_a_worker_publishes_how_much_of_it_is_used(tmp_path: Path) -> None:
    async with on_sqlite(tmp_path) as bed:
        hold = asyncio.Event()

        async def slow() -> None:
            await hold.wait()

        bed.handler("slow", slow)
        run_id = await bed.start(step("slow"))
        seen: list[dict[str, object]] = []

        async def used() -> bool:
            rows = await bed.store.list_workers(TENANT)
            reports = await bed.store.read_worker_reports(TENANT, [row.no for row in rows])
            now = await bed.store.now()
            for known in known_workers(rows, reports):
                view = worker_view(known, now)
                if view["usage"] and view["usage"][0]["claims"] == 1 and view["usage"][0]["busy"] > 0:
                    seen.append(view)
                    hold.set()
            return bool(seen) and await bed.ended(run_id)()

        async with asyncio.timeout(30):
            await bed.worker().run_until(used)
        minute = seen[0]["usage"][0]  # type: ignore[index]
        assert minute["settled"] == 0
        assert 0 < minute["utilisation"] <= 1 / 16
