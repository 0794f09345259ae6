"""Hooks on transitions of workers, on both stores: durable, in order for each worker, at least once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.worker.bed import QUICK, TENANT, Bed, bed_on, step

import stepkeep as sk
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery import outbox, sinks
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.workers import GIVE_UP_AFTER, HEARTBEAT, MISSED_BEATS
from stepkeep.store.deliveries import worker_cursor

FAST = msgspec.structs.replace(QUICK, relay_seconds=0.02)
WRITES = (
    "import os, sys; "
    "open(sys.argv[1], 'a').write(os.environ['STEPKEEP_WORKER'] + ' ' + sys.stdin.read() + '\\n'); "
    "assert 'STEPKEEP_RUN_ID' not in os.environ"
)


@asynccontextmanager
async def run_on(url: str) -> AsyncIterator[Bed]:
    async with bed_on(url) as bed:
        bed.handler("work", lambda: None)
        yield bed


async def idle(bed: Bed) -> bool:
    return (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"] == []


async def test_another_worker_tells_that_one_was_lost_and_given_up(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "events"

    async with run_on(database_url) as bed:
        argv = [sys.executable, "-c", WRITES, str(file)]
        given = {"on": ["worker.*"], "options": {"argv": argv}, "events": ["workers"], "caller": Caller(TENANT, "ada")}
        await sinks.add_sink(bed.transactor, "watch", "command", **given)
        lost = await workers.register(bed.store, tenant=TENANT, app="lost", capacity=1)
        await workers.mark_busy(bed.store, lost)
        bed.store.clock_offset += MISSED_BEATS * HEARTBEAT + 1
        assert await workers.retire_silent(bed.store, actor="sweep") == 1
        bed.store.clock_offset += GIVE_UP_AFTER
        assert await workers.retire_silent(bed.store, actor="sweep") == 1

        def told() -> list[dict[str, Any]]:
            lines = file.read_text().splitlines() if file.exists() else []
            return [json.loads(line.partition(" ")[2]) for line in lines if line.startswith(f"{lost.id} ")]

        async def done() -> bool:
            return len(told()) >= 5

        async with asyncio.timeout(60):
            await bed.worker(FAST).run_until(done)
        events = told()
        assert [one["type"].removeprefix("worker.") for one in events] == [
            *("initializing", "idle", "busy", "unresponsive", "shutdown")
        ]
        assert [one["data"]["severity"] for one in events] == ["info", "info", "info", "error", "error"]
        assert {(one["workerid"], one["subject"], one["source"]) for one in events} == {
            (lost.id, lost.id, f"/stepkeep/{TENANT}/workers")
        }
        assert len({one["id"] for one in events}) == 5
        assert all("runid" not in one for one in events)


async def test_a_worker_tells_of_itself_and_the_next_one_of_its_end(database_url: str) -> None:
    async with run_on(database_url) as bed:
        told: dict[str, list[str]] = {}

        @sk.on("worker.*", events=["workers"], name="ops.watch", registry=bed.registry)
        def watch(event: sk.OutgoingEvent) -> None:
            assert event.worker is not None
            told.setdefault(event.worker, []).append(event.type.removeprefix("worker."))

        # The first worker adds the sink of the function; the second one is watched from its registration on.
        async with asyncio.timeout(60):
            await bed.worker(FAST).run_until(lambda: _has_sink(bed))
        second = bed.worker(FAST)
        run_id = await bed.start(step("work"))
        async with asyncio.timeout(60):
            await second.run_until(bed.ended(run_id))
        third = bed.worker(FAST)

        async def done() -> bool:
            return second.id is not None and told.get(second.id, [])[-1:] == ["shutdown"]

        async with asyncio.timeout(60):
            await third.run_until(done)
        assert second.id is not None
        assert told[second.id][:2] == ["initializing", "idle"]
        assert told[second.id][-2:] == ["draining", "shutdown"]


async def _has_sink(bed: Bed) -> bool:
    return await bed.store.deliveries.list_sinks(TENANT) != []


async def test_a_hook_of_a_worker_that_is_dead_is_shown_redriven_and_dropped(tmp_path: Path) -> None:
    async with run_on(f"sqlite:///{tmp_path}/test.db") as bed:

        @sk.on("worker.idle", events=["workers"], name="ops.refuse", registry=bed.registry)
        def refuse(event: sk.OutgoingEvent) -> None:
            raise sk.SinkFailed("no", is_final=True)

        given = {"on": ["worker.idle"], "options": {"handler": "ops.refuse"}, "caller": Caller(TENANT, "ada")}
        await sinks.add_sink(bed.transactor, "on:ops.refuse", "handler", events=["workers"], **given)
        worker = await workers.register(bed.store, tenant=TENANT, app="seen", capacity=1)
        which = (worker_cursor(worker.id), "on:ops.refuse")

        async def dead() -> bool:
            [row] = (await outbox.list_deliveries(bed.transactor, tenant=TENANT, run_id=which[0]))["deliveries"]
            return bool(row["state"] == "dead")

        async with asyncio.timeout(60):
            await bed.worker(FAST).run_until(dead)
        shown = await outbox.show_delivery(bed.transactor, *which, tenant=TENANT)
        assert shown["delivery"]["worker"] == worker.id
        [event] = shown["events"]
        assert (event["type"], event["state"]) == ("worker.idle", "dead")
        by = {"caller": Caller(TENANT, "ada"), "reason": "seen"}
        await outbox.redrive(bed.transactor, run_id=which[0], **by)
        async with asyncio.timeout(60):
            await bed.worker(FAST).run_until(dead)
        dropped = await outbox.drop(bed.transactor, *which, event["id"], **by)
        assert dropped["dropped"] == event["id"]
