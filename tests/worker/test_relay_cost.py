"""What a relay reads and when it looks: no more for a long journal than for a short one, and soon after a change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.suites import some
from tests.workbench import Bench, chain, on
from tests.worker.bed import QUICK, TENANT, Bed, bed_on, step
from tests.worker.test_relay import Receiver, add, receivers, relay_of, turns

import stepkeep as sk
from stepkeep.kernel.definition import Definition, Hook
from stepkeep.kernel.machine.outcomes import Completed, Emitted
from stepkeep.operations.delivery import outbox
from stepkeep.operations.delivery.declared_hooks import Selection
from stepkeep.operations.delivery.dialect_folds import Folds
from stepkeep.operations.delivery.outgoing import pending
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.worker.chores.relay import RARELY, SHORTEST, RelayPace
from stepkeep.worker.runtime import Runtime

__all__ = ["receivers"]

DONE = Completed(output=b"1", emit=(Emitted("order.paid", b'{"n":1}'),))
COURSE = ["Run*", "Action*", "*.workflow_step_*", "*.workflow_started", "*_state_transition", "step.*", "order.*"]
"""Everything but what needs the whole run."""


class RowsRead:
    """Counts the rows that reads of runs return."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        for name in ("read_run", "read_journal", "read_steps", "read_attempts", "read_outbox", "read_messages"):
            monkeypatch.setattr(bench.store, name, self._counted(getattr(bench.store, name), self._plain))
        monkeypatch.setattr(bench.store, "read_whole", self._counted(bench.store.read_whole, self._whole))
        reads = bench.store.deliveries
        monkeypatch.setattr(reads, "read_entries", self._counted(reads.read_entries, self._plain))

    def _counted(self, read: Callable[..., Any], size: Callable[[Any], int]) -> Callable[..., Any]:
        async def counted(*given: Any, **named: Any) -> Any:
            found = await read(*given, **named)
            self.rows += size(found)
            return found

        return counted

    @staticmethod
    def _plain(found: Any) -> int:
        return len(found) if isinstance(found, list) else int(found is not None)

    @staticmethod
    def _whole(found: Any) -> int:
        return sum(len(one.entries) + len(one.steps) + len(one.attempts) for one in found)


@pytest.mark.parametrize("dialect", some(["native", "ioa", "action", "workstream"], 4))
async def test_what_a_relay_reads_for_a_new_event_does_not_grow_with_the_journal(
    database_url: str, dialect: str, receivers: dict[str, Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as bench:
        for place, pattern in enumerate(COURSE):
            events = ["emitted", "transitions", "dialect"]
            await add(bench, f"sink{place}", on=pattern, events=events)
        definition = msgspec.structs.replace(chain("long", 40), dialect=dialect)
        await bench.start(definition)
        relay, counted, read = relay_of(bench), RowsRead(bench, monkeypatch), []
        for _ in range(40):
            [claim] = await bench.claim(1)
            await bench.report(claim, DONE)
            before = counted.rows
            await turns(relay)
            read.append(counted.rows - before)
        assert len(receivers["sink6"].got) == 40
        early, late = max(read[3:8]), max(read[33:38])
        assert 0 < late <= early, "the rows of the last steps are no more than those of the first"


@pytest.mark.parametrize("dialect", ["ioa", "action", "workstream"])
async def test_events_that_were_folded_bit_by_bit_are_those_of_the_whole_journal(
    dialect: str, receivers: dict[str, Receiver], tmp_path: Path
) -> None:
    async with on(f"sqlite:///{tmp_path}/test.db") as bench:
        got: dict[str, OutgoingEvent] = {}

        async def refuse_first(event: OutgoingEvent) -> None:
            if event.id not in got:
                got[event.id] = event
                raise sk.SinkFailed("not yet")
            assert got[event.id] == event, "an event is the same whenever it is made"

        receivers["shop"] = Receiver(refuse_first)
        await add(bench, events=["dialect"])
        run = await bench.start(msgspec.structs.replace(chain("story", 6), dialect=dialect))
        relay = relay_of(bench)
        for _ in range(6):
            [claim] = await bench.claim(1)
            await bench.report(claim, DONE)
            await turns(relay)
            bench.store.clock_offset += 2_000_000
        for _ in range(60):
            await turns(relay)
            bench.store.clock_offset += 2_000_000
        [row] = await bench.store.deliveries.read_cursors(TENANT, run)
        assert row.ready_at is None
        start = msgspec.structs.replace(row, sent=0, sent_number=2**31 - 1)
        whole = (await pending(bench.transactor, start, Selection(), 1000)).events
        assert [event.id.partition("/")[2] for event in whole] == receivers["shop"].got
        assert whole == [got[event.id] for event in whole]


async def test_a_page_ends_between_two_entries_and_the_next_one_goes_on(
    receivers: dict[str, Receiver], tmp_path: Path
) -> None:
    async with on(f"sqlite:///{tmp_path}/test.db") as bench:
        await add(bench, events=["dialect", "transitions"])
        run = await bench.start(msgspec.structs.replace(chain("paged", 12), dialect="action"))
        await bench.work_off()
        [row] = await bench.store.deliveries.read_cursors(TENANT, run)
        expected = (await pending(bench.transactor, row, Selection(), 100_000)).events
        found, folds = [], Folds()
        for _ in range(len(expected)):
            page = await pending(bench.transactor, row, Selection(), 3, folds)
            if not page.events:
                break
            found += page.events
            row = msgspec.structs.replace(row, sent=page.upto[0], sent_number=page.upto[1])
        assert found == expected


async def test_a_slow_sink_holds_up_only_its_own_runs(database_url: str) -> None:
    async def body(bed: Bed) -> None:
        told: list[str] = []
        release = asyncio.Event()
        bed.handler("work", lambda: None)

        @sk.hook("ops.slow", registry=bed.registry)
        async def slow(event: sk.OutgoingEvent) -> None:
            told.append("slow began")
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(release.wait(), home))

        @sk.hook("ops.quick", registry=bed.registry)
        def quick(event: sk.OutgoingEvent) -> None:
            told.append("quick")

        home = asyncio.get_running_loop()

        def flow(name: str) -> Definition:
            hook = Hook(name="told", on=("run.succeeded",), kind="handler", options={"handler": f"ops.{name}"})
            return Definition(name=name, version=1, steps=(step("work"),), hooks=(hook,))

        slow_runs = [await bed.start_again(await bed.publish(flow("slow"))) for _ in range(40)]
        quick_runs = [await bed.start_again(await bed.publish(flow("quick"))) for _ in range(40)]

        async def all_quick() -> bool:
            return told.count("quick") == 40

        settings = msgspec.structs.replace(QUICK, relay_seconds=0.05)
        worker = bed.worker(settings)

        async def done() -> bool:
            if not release.is_set() and await all_quick():
                assert told.count("slow began") == 32, "as many as one sink has places"
                release.set()
            open_ones = (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"]
            return release.is_set() and open_ones == []

        async with asyncio.timeout(60):
            await worker.run_until(done)
        assert told.count("slow began") == 40
        assert await bed.ended(*slow_runs, *quick_runs)()

    async with bed_on(database_url) as bed:
        await body(bed)


async def test_a_relay_is_woken_by_what_another_process_emits(database_url: str) -> None:
    """Looks that nothing asks for are an hour apart here: only a notification brings the event."""

    async with bed_on(database_url) as bed:
        told: list[str] = []
        bed.handler("work", lambda ctx: ctx.emit("order.paid", 1))
        sk.on("order.*", name="ops.told", registry=bed.registry)(lambda event: told.append(event.type))
        settings = msgspec.structs.replace(QUICK, relay_seconds=3600.0)
        started: list[str] = []

        async def done() -> bool:
            if not started and await bed.store.deliveries.list_sinks(TENANT):
                started.append(await bed.start(step("work")))
            return bool(told)

        async with asyncio.timeout(60):
            await bed.worker(settings).run_until(done)
        assert told == ["order.paid"]


class Clock(Runtime):
    """Time that passes only in sleeps and waits, which are noted."""

    def __init__(self) -> None:
        self.now, self.pauses = 0.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def spread(self, seconds: float, by: float = 0.0) -> float:
        return seconds

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if not event.is_set():
            self.now += seconds or 0.0
        return event.is_set()


async def test_looks_are_rare_without_a_cause_and_come_later_when_they_find_nothing() -> None:
    clock, notified = Clock(), [False]
    pace = RelayPace(1.0, clock, lambda: notified[0])

    async def took() -> float:
        began = clock.now
        await pace.wait()
        return round(clock.now - began, 6)

    pace.looked(0)
    assert await took() == 1.0
    notified[0] = True
    assert await took() == RARELY
    pace.looked(1)
    pace.wake()
    assert await took() == SHORTEST
    gaps = []
    for _ in range(10):
        pace.looked(0)
        pace.wake()
        gaps.append(await took())
    assert gaps == sorted(gaps)
    assert gaps[-1] == 1.0, "a busy worker without sinks looks once a second"
