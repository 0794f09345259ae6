"""Hooks that a definition declares, on both stores: pinned with its version, after the commit, in order."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worker.bed import QUICK, TENANT, Bed, bed_on, step

import stepkeep as sk
from stepkeep.kernel.definition import Definition, Hook, Retry, StepDefinition, Wait
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery import outbox, sinks
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.worker.executors.command import CommandPolicy

FAST = msgspec.structs.replace(QUICK, relay_seconds=0.02)
WRITES = "import os, sys; open(sys.argv[1], 'a').write(os.environ['STEPKEEP_EVENT'] + ' ' + sys.stdin.read() + '\\n')"
ONCE = Retry(max_attempts=1)


@asynccontextmanager
async def run_on(url: str) -> AsyncIterator[Bed]:
    async with bed_on(url) as bed:
        bed.handler("work", lambda: None)
        bed.handler("breaks", _breaks)
        yield bed


def _breaks() -> None:
    raise ValueError("broken")


async def open_deliveries(bed: Bed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"]
    return found


async def work_until(bed: Bed, until: Any, **fields: Any) -> None:
    async with asyncio.timeout(60):
        await bed.worker(FAST, **fields).run_until(until)


async def work_off(bed: Bed, *runs: str, **fields: Any) -> None:
    async def done() -> bool:
        return await bed.ended(*runs)() and await open_deliveries(bed) == []

    await work_until(bed, done, **fields)


async def test_a_function_is_called_for_the_states_that_the_hook_names(database_url: str) -> None:
    async with run_on(database_url) as bed:
        told: list[tuple[str, Any]] = []

        @sk.hook("ops.tell", registry=bed.registry)
        def tell(event: sk.OutgoingEvent) -> None:
            told.append((event.type, event.payload.get("step")))

        hooks = (
            Hook(name="course", on=("run.*",), kind="handler", options={"handler": "ops.tell"}),
            Hook(name="b-1", on=("step.failed",), kind="handler", options={"handler": "ops.tell"}, step="breaks"),
            Hook(name="w-1", on=("step.failed",), kind="handler", options={"handler": "ops.tell"}, step="work"),
        )
        run_id = await bed.start(step("work"), step("breaks", retry=ONCE), hooks=hooks)
        plain = await bed.start(step("work"), name="plain")
        await work_off(bed, run_id, plain)
        states = [name for name, _ in told if name.startswith("run.")]
        assert (states[0], states[-1]) == ("run.idle", "run.failed")
        assert [one for one in told if one[0] == "step.failed"] == [("step.failed", "breaks")]
        assert len(await bed.store.deliveries.read_cursors(TENANT, run_id)) == 3
        assert await bed.store.deliveries.read_cursors(TENANT, plain) == []


async def test_a_hook_stays_that_of_its_version(database_url: str, tmp_path: Path) -> None:
    def writing(file: str) -> Hook:
        argv = [sys.executable, "-c", WRITES, str(tmp_path / file)]
        return Hook(name="told", on=("run.succeeded",), kind="command", options={"argv": argv})

    async def body(bed: Bed) -> None:
        old = await bed.publish(Definition(name="flow", version=1, steps=(step("work"),), hooks=(writing("old"),)))
        first = await bed.start_again(old)
        new = await bed.publish(Definition(name="flow", version=2, steps=(step("work"),), hooks=(writing("new"),)))
        second = await bed.start_again(new)
        await work_off(bed, first, second)
        for file, run_id in (("old", first), ("new", second)):
            [line] = (tmp_path / file).read_text().splitlines()
            name, _, body = line.partition(" ")
            assert (name, json.loads(body)["runid"]) == ("run.succeeded", run_id)

    async with run_on(database_url) as bed:
        await body(bed)


async def test_a_message_and_an_end_at_the_start_reach_their_run(database_url: str) -> None:
    async with run_on(database_url) as bed:
        waits = StepDefinition(name="wait", order=0, wait=Wait(event="flow.done"))
        watcher_plan = await bed.publish(Definition(name="watcher", version=1, steps=(waits,)))
        watcher = (await bed.begin(watcher_plan, input=b"{}", business_key="watch-flow")).run_id
        told = Hook(
            name="told", on=("run.succeeded",), kind="message", options={"key": "watch-{workflow}", "name": "flow.done"}
        )
        skipped = step("work", condition="false")
        run_id = await bed.start(skipped, hooks=(told,))
        await work_until(bed, bed.ended(run_id, watcher))
        [message] = await bed.store.read_messages(TENANT, watcher)
        assert message.id.startswith(f"{run_id}/")
        assert (await bed.run(watcher)).state is RunState.SUCCEEDED


async def test_a_hook_that_fails_is_dead_at_last_is_shown_redriven_dropped_and_keeps_its_run(database_url: str) -> None:
    async with run_on(database_url) as bed:
        calls: list[str] = []

        @sk.hook("ops.refuse", registry=bed.registry)
        def refuse(event: sk.OutgoingEvent) -> None:
            calls.append(event.id)
            raise sk.SinkFailed("no", is_final=True)

        hook = Hook(name="told", on=("run.succeeded",), kind="handler", options={"handler": "ops.refuse"})
        run_id = await bed.start(step("work"), hooks=(hook,))
        sink = "hook:flow@1/told"

        def dead(times: int) -> Any:
            async def look() -> bool:
                rows = await open_deliveries(bed)
                return len(calls) >= times and [one["state"] for one in rows] == ["dead"]

            return look

        await work_until(bed, dead(1))
        assert (await bed.run(run_id)).state is RunState.SUCCEEDED, "a hook never fails its run"
        shown = await outbox.show_delivery(bed.transactor, run_id, sink, tenant=TENANT)
        assert [(one["type"], one["state"]) for one in shown["events"]] == [("run.succeeded", "dead")]
        assert "no" in shown["delivery"]["error"]
        kept = await prune(bed.transactor, Policy(older_than=0), tenant=TENANT, folder=None)
        assert kept.deleted == 0, "a run with a dead hook is kept"
        await outbox.redrive(bed.transactor, caller=Caller(TENANT, "ada"), reason="again", sink=sink)
        await work_until(bed, dead(2))
        assert len(set(calls)) == 1, "the id of an event never changes"
        event = shown["events"][0]["id"]
        await outbox.drop(bed.transactor, run_id, sink, event, caller=Caller(TENANT, "ada"), reason="known")
        await work_off(bed, run_id)
        assert len(calls) == 2


async def test_a_worker_without_the_function_or_the_program_leaves_the_hook_to_another(tmp_path: Path) -> None:
    async with run_on(f"sqlite:///{tmp_path}/test.db") as bed:
        hooks = (
            Hook(name="a", on=("run.succeeded",), kind="handler", options={"handler": "ops.late"}),
            Hook(name="b", on=("run.succeeded",), kind="command", options={"argv": ["true"]}),
        )
        run_id = await bed.start(step("work"), hooks=hooks)
        await work_until(bed, bed.ended(run_id), commands=CommandPolicy(enabled=False))
        rows = await open_deliveries(bed)
        assert [(one["sink"], one["attempts"]) for one in rows] == [("hook:flow@1/a", 0), ("hook:flow@1/b", 0)]
        called: list[str] = []
        sk.hook("ops.late", registry=bed.registry)(lambda event: called.append(event.type))
        await work_off(bed, run_id)
        assert called == ["run.succeeded"]


async def test_no_sink_of_a_tenant_can_take_the_name_of_a_hook(tmp_path: Path) -> None:
    async with run_on(f"sqlite:///{tmp_path}/test.db") as bed:
        given: dict[str, Any] = {"on": ["*"], "options": {}, "caller": Caller(TENANT, "a")}
        with pytest.raises(InvalidInput, match="hook:"):
            await sinks.add_sink(bed.transactor, "hook:flow", "host", **given)
