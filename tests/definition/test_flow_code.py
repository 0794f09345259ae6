"""What `check` says about the code of a flow, about its options, and how results and workflows are shown."""

from __future__ import annotations

import asyncio
import datetime as dates
import io
import json
import os
import random
import subprocess
import threading
import time
import uuid
from datetime import datetime
from pathlib import Path
from random import randint
from typing import Any

import httpx
import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import Registry
from stepkeep.kernel.errors import InvalidInput


def warnings_of(function: Any) -> list[str]:
    """What `check` says about the code of this function, without the line."""
    made = sk.flow("looked-at", timeout="1m", registry=Registry())(function)
    said = [one.message for one in made.check().warnings if one.message.startswith("The flow ")]
    return [text.partition("calls `")[2].partition("`")[0] for text in said]


def test_clocks_and_random_numbers_of_a_flow_are_warned_of() -> None:
    async def late(ctx: sk.FlowContext) -> float:
        if datetime.now(dates.UTC).hour > 12 or dates.date.today().day == 1:  # noqa: DTZ011
            return randint(1, 6) + random.random()
        return [time.time(), time.monotonic()][0] + len(str(uuid.uuid4()))

    assert warnings_of(late) == [
        "datetime.now()",
        "dates.date.today()",
        "randint()",
        "random.random()",
        "time.time()",
        "time.monotonic()",
        "uuid.uuid4()",
    ]


def test_what_is_recorded_seeded_or_no_clock_is_not() -> None:
    async def early(ctx: sk.FlowContext, uuid: Any = None) -> Any:
        now = await ctx.once("now", time.time)
        day = await ctx.once("day", lambda: datetime.now(dates.UTC).isoformat())
        dice = random.Random(7)
        await asyncio.gather(ctx.sleep("1s"))
        return now, day, dice.random(), datetime.fromisoformat(day), uuid.uuid4(), dates.timedelta(1)

    assert warnings_of(early) == []


def test_threads_files_and_connections_of_a_flow_are_warned_of() -> None:
    async def busy(ctx: sk.FlowContext, name: str) -> Any:
        threading.Thread(target=print).start()
        await asyncio.to_thread(time.sleep, 1)
        time.sleep(1)  # noqa: ASYNC251
        with open(name) as file:  # noqa: ASYNC230
            text = file.read()
        os.remove(name)
        subprocess.run(["true"], check=False)
        await asyncio.open_connection("localhost", 1)
        return text + Path(name).read_text() + httpx.get("http://localhost").text  # noqa: ASYNC210

    assert warnings_of(busy) == [
        "threading.Thread()",
        "asyncio.to_thread()",
        "time.sleep()",
        "open()",
        "os.remove()",
        "subprocess.run()",
        "asyncio.open_connection()",
        "Path(name).read_text()",
        "httpx.get()",
    ]


def test_what_only_computes_is_not() -> None:
    async def quiet(ctx: sk.FlowContext, name: str) -> Any:
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(ctx.sleep("1s"))
        text = io.StringIO(name).read() + os.path.join(name, "a")
        print(sorted({"a": 1}), len(text), Path(name).name, json.dumps({}))
        return await ctx.once("text", Path(name).read_text), task

    assert warnings_of(quiet) == []


def test_the_warning_names_the_line_and_what_to_write() -> None:
    async def late(ctx: sk.FlowContext) -> float:
        return time.time()

    line = late.__code__.co_firstlineno + 1
    made = sk.flow("one", registry=Registry())(late)
    [said] = [one for one in made.check().warnings if "`time.time()`" in one.message]
    assert f"in line {line}:" in said.message
    assert said.hint == "Write `await ctx.once(NAME, time.time)`: it is recorded."


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("effect", "It is an option of a step: `ctx.options(effect=...).step(...)` gives it to a call."),
        ("resources", "A flow gives them back whenever it waits for a call."),
        ("timout", "Did you mean `timeout=`?"),
        ("nonsense", "Its options: version, max_calls, deadline, timeout, retry, registry, description,"),
    ],
)
def test_an_option_that_no_flow_has_is_refused_with_what_to_write(option: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        sk.flow("none", **{option: 1})
    assert str(refused.value).startswith(f"flow has no option `{option}=`.")
    assert said in str(refused.value)


def test_workflows_reports_and_results_are_shown_in_a_line_and_as_html() -> None:
    flow = sk.Workflow("shown", version=3, registry=Registry())
    for number in range(12):
        flow.approval(f"gate-{number}", deadline="1h")
    assert repr(flow).startswith("<Workflow shown v3: gate-0, gate-1,")
    assert repr(flow).endswith("gate-9 and 2 more>")
    report = flow.check()
    assert repr(report).splitlines()[0] == f"<CheckReport: shown v3, problems: 0, warnings: {len(report.warnings)}>"
    assert len(repr(report)) < 500 * (1 + len(report.warnings))
    result = sk.Result(run_id="r1", state=sk.RunState.SUCCEEDED, output={"page": "<script>"}, load=dict)
    assert repr(result) == '<Result: run r1 succeeded: {"page":"<script>"}>'
    assert len(repr(sk.Result(run_id="r1", state=sk.RunState.SUCCEEDED, output="x" * 100_000))) < 500
    for one in (flow, report, result):
        shown = one._repr_html_()
        assert shown.startswith("<b>")
        assert "<script>" not in shown
