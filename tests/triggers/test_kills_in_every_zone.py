"""Clock changes by every rule of the world, with three real schedulers of which one is killed at each change.

Zones whose clocks change at the same moments by the same amounts for ten years have one rule. A seed draws a zone and a
year for each rule; the moments of every zone and year are in tests/schedules.
Zones whose clocks change at the same moment are one group. Its triggers are added before the change; then the clock
jumps past it, a scheduler is killed, and every moment must have fired once.
"""

from __future__ import annotations

import os
import random
import signal
from collections import defaultdict
from datetime import UTC, datetime
from itertools import takewhile
from multiprocessing.context import ForkServerProcess
from zoneinfo import ZoneInfo

import pytest

from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import CatchUp, Keep, Schedule, TriggerSpec
from stepkeep.operations.triggers import manage
from stepkeep.operations.triggers.plan import moment_text
from stepkeep.schedules.moments import checked, moments_after
from stepkeep.schedules.zones import Change
from stepkeep.store.rows import FiringState
from tests.schedules.test_moments import ZONES, changes
from tests.suites import in_proof
from tests.triggers.stage import HOUR, WORK, Stage, hourly
from tests.triggers.test_kills import PROCESSES, schedule_for_ever, set_clock
from tests.workbench import ACTOR, TENANT, benches, eventually

SECOND = 1_000_000
YEARS = range(2027, 2037)
ALL_AT_ONCE = 40
"""How many zones of a group are tried at a time."""

Group = tuple[int, tuple[str, ...]]
"""The moment of a change in microseconds, and the zones whose clocks change then."""


def groups() -> list[Group]:
    chance, rules = random.Random(1), defaultdict[tuple[Change, ...], list[str]](list)
    for zone in ZONES:
        rules[tuple(change for year in YEARS for change in changes(zone, year))].append(zone)
    found: dict[int, list[str]] = defaultdict(list)
    for rule, alike in rules.items():
        zone, year = chance.choice(alike), chance.choice(YEARS)
        # A rule may have changes in some of the years only.
        for change in changes(zone, year) or rule[:2]:
            found[change.at * SECOND].append(zone)
    return [
        (at, tuple(zones[first : first + ALL_AT_ONCE]))
        for at, zones in sorted(found.items())
        for first in range(0, len(zones), ALL_AT_ONCE)
    ]


def schedules(zone: str, at: int) -> dict[str, Schedule]:
    """One that counts elapsed hours, and one at a local time that the change skips or repeats."""
    before = datetime.fromtimestamp(at // SECOND - 1, UTC).astimezone(ZoneInfo(zone))
    after = datetime.fromtimestamp(at // SECOND, UTC).astimezone(ZoneInfo(zone))
    is_gap = after.utcoffset() > before.utcoffset()  # type: ignore[operator]
    # The minute after the last one before a gap does not exist; the last one before a fold comes twice.
    minute, hour = (
        ((before.minute + 1) % 60, (before.hour + (before.minute == 59)) % 24)
        if is_gap
        else (
            before.minute,
            before.hour,
        )
    )
    plain = {"often": f"{before.minute} * * * *", "daily": f"{minute} {hour} * * *"}
    return {name: checked(Schedule(cron=cron, zone=zone)) for name, cron in plain.items()}


def name_of(kind: str, zone: str, at: int) -> str:
    return f"{kind}/{zone.replace('+', 'plus')}/{at // SECOND}"


@pytest.mark.parametrize("every", [pytest.param(30, id="few"), in_proof(1)])
async def test_every_change_of_the_clock_fires_once_with_kills(database_url: str, every: int) -> None:
    chosen = groups()[::every]
    chance, now = random.Random(every), PROCESSES.Value("q", chosen[0][0] - HOUR)
    kept = CatchUp(keep=Keep.ALL, most=20, window=24 * HOUR)
    counted: dict[str, int] = defaultdict(int)

    def started() -> ForkServerProcess:
        process = PROCESSES.Process(target=schedule_for_ever, args=(database_url, now), daemon=True)
        process.start()
        return process

    async def one_group(stage: Stage, group: Group) -> None:
        at, zones = group
        begin, end = at - HOUR - SECOND, at + 2 * HOUR
        set_clock(stage, begin)
        now.value = begin
        wanted: dict[str, list[str]] = {}
        for zone in zones:
            for kind, schedule in schedules(zone, at).items():
                name = name_of(kind, zone, at)
                spec: TriggerSpec = hourly(name=name, schedule=schedule, catch_up=kept)
                await manage.add_trigger(stage.firer, spec, WORK.name, caller=Caller(TENANT, ACTOR))
                row = await stage.row(name)
                moments = takewhile(lambda one: one <= end, moments_after(schedule, (row.next_at or end) - 1))
                wanted[name] = [moment_text(one) for one in moments]
        now.value = end
        set_clock(stage, end)
        place = chance.randrange(3)
        os.kill(processes[place].pid or 0, signal.SIGKILL)
        processes[place].join()
        processes[place] = started()
        counted["kills"] += 1

        async def has_passed() -> bool:
            rows = [await stage.row(name) for name in wanted]
            return all(row.next_at is not None and row.next_at > end for row in rows)

        await eventually(has_passed, seconds=120)
        for name, moments in wanted.items():
            listed = await stage.store.triggers.list_firings(TENANT, name)
            assert sorted(one.moment for one in listed) == moments, name
            assert all(one.state is FiringState.STARTED for one in listed), name
            counted["firings"] += len(listed)
            await manage.remove_trigger(stage.firer, name, tenant=TENANT)
        counted["changes"] += len(zones)

    processes = [started() for _ in range(3)]
    try:
        async with benches(database_url) as [bench]:
            stage = Stage(bench)
            await bench.publish(WORK)
            for group in chosen:
                await one_group(stage, group)
            runs = sum((await bench.store.count_runs(TENANT)).values())
    finally:
        for process in processes:
            process.kill()
            process.join()
    print(dict(counted))
    assert runs == counted["firings"] > 2 * counted["changes"]
    assert counted["kills"] == len(chosen)
    assert counted["changes"] == sum(len(zones) for _, zones in chosen)
