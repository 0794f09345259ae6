"""Hooks on transitions of runs and steps: programs and messages, after the commit, in order, never failing a run."""

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
from msgspec.structs import replace
from tests.worker.bed import QUICK, TENANT, Bed, bed_on, step

from stepkeep.kernel.definition import Definition, Retry, StepDefinition, Wait
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery import outbox, sinks
from stepkeep.worker.executors.command import CommandPolicy

FAST = replace(QUICK, relay_seconds=0.02)
WRITES = "import os, sys; open(sys.argv[1], 'a').write(os.environ['STEPKEEP_EVENT'] + ' ' + sys.stdin.read() + '\\n')"


@asynccontextmanager
async def run_on(url: str) -> AsyncIterator[Bed]:
    async with bed_on(url) as bed:
        bed.handler("work", lambda: None)
        bed.handler("breaks", _breaks)
        yield bed


def _breaks() -> None:
    raise ValueError("broken")


async def add(bed: Bed, kind: str, options: dict[str, Any], *patterns: str, events: str = "transitions") -> None:
    await sinks.add_sink(
        bed.transactor, "hook", kind, on=patterns, options=options, events=[events], caller=Caller(TENANT, "alice")
    )


async def idle(bed: Bed) -> bool:
    return (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"] == []


async def work_until(bed: Bed, until: Any, **fields: Any) -> None:
    async with asyncio.timeout(60):
        await bed.worker(FAST, **fields).run_until(until)


def written(file: Path) -> list[tuple[str, dict[str, Any]]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [(line.partition(" ")[0], json.loads(line.partition(" ")[2])) for line in lines]


async def test_a_program_is_run_for_each_transition_in_order(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "events"

    async with run_on(database_url) as bed:
        options = {"argv": [sys.executable, "-c", WRITES, str(file)], "workflow": "flow"}
        await add(bed, "command", options, "run.*", "step.failed")
        run_id = await bed.start(step("breaks", retry=Retry(max_attempts=1)))
        other = await bed.start(step("work"), name="other")

        async def done() -> bool:
            return await bed.ended(run_id, other)() and await idle(bed)

        await work_until(bed, done)
        names = [name for name, _ in written(file)]
        assert names[-1] == "run.failed"
        assert names.index("run.running") < names.index("step.failed") < names.index("run.failed")
        events = [event for _, event in written(file)]
        assert {event["runid"] for event in events} == {run_id}, "events of another workflow are passed over"
        assert [event["sequence"] for event in events] == sorted(event["sequence"] for event in events)
        assert len({event["id"] for event in events}) == len(events)


async def test_a_hook_that_fails_never_fails_the_run_and_is_tried_again(tmp_path: Path) -> None:
    async with run_on(f"sqlite:///{tmp_path}/test.db") as bed:
        await add(bed, "command", {"argv": ["false"]}, "run.succeeded", events="endings")
        run_id = await bed.start(step("work"))

        async def failed() -> bool:
            rows = (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"]
            return bool(rows) and rows[0]["attempts"] >= 1

        await work_until(bed, failed)
        assert (await bed.run(run_id)).state is RunState.SUCCEEDED
        [row] = (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"]
        assert "false: exit status 1" in row["error"]


async def test_a_worker_that_may_not_run_the_program_leaves_it_to_another(tmp_path: Path) -> None:
    file = tmp_path / "events"

    async with run_on(f"sqlite:///{tmp_path}/test.db") as bed:
        await add(
            bed, "command", {"argv": [sys.executable, "-c", WRITES, str(file)]}, "run.succeeded", events="endings"
        )
        run_id = await bed.start(step("work"))
        await work_until(bed, bed.ended(run_id), commands=CommandPolicy(enabled=False))
        await work_until(bed, bed.ended(run_id), commands=CommandPolicy(programs=("true",)))
        assert written(file) == []
        [row] = (await outbox.list_deliveries(bed.transactor, tenant=TENANT))["deliveries"]
        assert row["attempts"] == 0, "nothing was counted against it"
        await work_until(bed, lambda: idle(bed))
        assert [name for name, _ in written(file)] == ["run.succeeded"]


async def test_a_message_goes_to_the_run_that_has_the_key(database_url: str) -> None:
    async with run_on(database_url) as bed:
        await add(bed, "message", {"key": "watch-{workflow}", "workflow": "flow"}, "run.*", events="endings")
        waits = StepDefinition(name="wait", order=0, wait=Wait(event="run.succeeded"))
        plan = await bed.publish(Definition(name="watcher", version=1, steps=(waits,)))
        watcher = (await bed.begin(plan, input=b"{}", business_key="watch-flow")).run_id
        run_id = await bed.start(step("work"))
        await work_until(bed, bed.ended(run_id, watcher))
        assert (await bed.run(watcher)).state is RunState.SUCCEEDED
        [message] = await bed.store.read_messages(TENANT, watcher)
        assert message.id.startswith(f"{run_id}/")
        assert msgspec.json.decode(message.payload)["type"] == "run.succeeded"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("command", {"argv": []}),
        ("command", {"argv": [" "]}),
        ("command", {"argv": ["a\0"]}),
        ("command", {"argv": ["true"], "cwd": "here"}),
        ("command", {"argv": "true; rm -rf /"}),
        ("command", {"argv": ["true"], "shell": True}),
        ("message", {"key": " "}),
        ("message", {"key": "a", "name": ""}),
        ("message", {}),
    ],
)
async def test_senseless_options_are_refused(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    async with run_on(f"sqlite:///{tmp_path}/test.db") as bed:
        with pytest.raises(InvalidInput):
            await add(bed, kind, options, "*")
