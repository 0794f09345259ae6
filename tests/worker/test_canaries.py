"""Canaries of two tenants, two runs each and two attempts of every step, through every way of execution.

Each run is given values that name it. Every handler looks at all that it can see, and leaves marks on all that it can
reach. Afterwards no row, request, view, log line or attempt holds a value of another run, and no attempt has seen a
mark that an attempt before it left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.rows import Row, every_row, raw_bytes
from tests.suites import first_on
from tests.worker import canary_handlers
from tests.worker.bed import QUICK
from tests.worker.loopback import Answer, Server

import stepkeep as sk
from stepkeep.definition.native.reader import load_text
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import NotFound

CANARY = re.compile(r"CANARY-([a-z]+-[0-9])")
TENANTS = ("north", "south")
FIXED = {"notes": [], "mark": ""}
SHOWS = (
    "import json, os, sys; given = sys.stdin.read(); "
    "print(json.dumps({'environment': dict(os.environ), 'given': given, 'arguments': sys.argv[1:]})); "
    "sys.exit(os.environ['STEPKEEP_ATTEMPT'] == '1')"
)
AGAIN = {"max_attempts": 3, "initial": "1ms"}
MODES = ("async", "thread", "process", "agent", "transaction", "manual", "waits")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.answers["/call"] = answer
    yield server
    server.close()


def answer(request: dict[str, Any]) -> Answer:
    """The first attempt fails; both set cookies."""
    about = request["headers"]
    cookie = {"Set-Cookie": f"session=MARK/{about['authorization']}/{about['stepkeep-attempt']}; Path=/"}
    if about["stepkeep-attempt"] == "1":
        return 503, cookie, f"no, {about['x-who']}".encode()
    return 200, {**cookie, "content-type": "application/json"}, json.dumps(request["body"]).encode()


def handlers() -> Registry:
    registry = Registry()
    for name, function, fields in (
        ("canary.async", canary_handlers.in_loop, {}),
        ("canary.thread", canary_handlers.in_thread, {}),
        ("canary.process", canary_handlers.in_process, {"mode": "process"}),
        ("canary.transaction", canary_handlers.in_transaction, {"transactional": True}),
        ("canary.manual", canary_handlers.by_hand, {}),
        ("canary.waits", canary_handlers.waits, {}),
    ):
        registry.register(HandlerSpec(name=name, function=function, **fields))  # type: ignore[arg-type]
    registry.register(HandlerSpec(name="canary.agent", function=canary_handlers.as_agent, kind="agent"))
    return registry


def workflow(server: Server) -> Definition:
    given = {"mine": "${{ input.mine }}", "fixed": FIXED}
    after = {"again": ["async", "process", "http", "command"]}
    work: dict[str, dict[str, Any]] = {
        **{mode: {"uses": f"canary.{mode}"} for mode in ("async", "thread", "process", "waits")},
        "transaction": {"uses": "canary.transaction", "transactional": True},
        "manual": {"uses": "canary.manual", "completion": {"mode": "manual", "deadline": "1h"}},
        "again": {"uses": "canary.thread"},
        "agent": {"agent": "canary.agent", "action": "look around"},
        "command": {
            "command": {
                "argv": [sys.executable, "-c", SHOWS, "${{ input.mine }}"],
                "env": {"MINE": "${{ input.mine }}"},
            }
        },
        "http": {
            "http": {
                "url": server.url("/call"),
                "method": "POST",
                "headers": {"Authorization": "Bearer ${{ input.mine }}", "X-Who": "${{ input.mine }}"},
            }
        },
    }
    steps = [
        {"name": name, "with": given, "retry": AGAIN, "depends_on": after.get(name, []), **block}
        for name, block in work.items()
    ]
    document = {"workflow": "canaries", "timeout": "1h", "input": {"mine": {"type": "string"}}, "steps": steps}
    return load_text(json.dumps(document), "canaries.json")


async def run_all(url: str, server: Server) -> dict[str, tuple[AsyncEngine, str]]:
    """Two runs of each of two tenants on two workers of this process, each with a single place."""
    flow, runs = workflow(server), {}
    http, commands = sk.HttpPolicy(allow=("127.0.0.1",)), sk.CommandPolicy(tenants=TENANTS)
    async with AsyncExitStack() as stack:
        workers = []
        for tenant in TENANTS:
            engine = await stack.enter_async_context(
                AsyncEngine(url, tenant=tenant, actor="tests", registry=handlers(), http=http, commands=commands)
            )
            worker = engine.worker(concurrency=1, settings=QUICK)
            workers.append((worker, asyncio.create_task(worker.serve())))
            for number in (1, 2):
                mine = f"CANARY-{tenant}-{number}"
                started = await engine.start(
                    flow,
                    {"mine": mine},
                    idempotency_key=f"{mine}-key",
                    business_key=f"{mine}-business",
                    correlation_id=f"{mine}-correlation",
                    labels={"mine": mine},
                )
                await engine.send(started.run_id, "paid", {"mine": mine}, message_id=f"{mine}-message")
                runs[mine] = (engine, started.run_id)
        try:
            async with asyncio.timeout(120):
                for mine, (engine, run_id) in runs.items():
                    await engine.wait(run_id, until_blocked=True)
                    while not (await engine.result(run_id)).finished:
                        await complete(engine, run_id, mine)
        finally:
            for worker, serving in workers:
                worker.stop(0)
                await serving
        await look_as(runs)
    return runs


async def complete(engine: AsyncEngine, run_id: str, mine: str) -> None:
    steps = {step["name"]: step["state"] for step in (await engine.show(run_id))["steps"]}
    if steps["manual"] == "awaiting_completion":
        await engine.complete(run_id, "manual", token=canary_handlers.TOKENS[mine], output={"mine": mine})
    await engine.wait(run_id, seconds=0.05)


async def look_as(runs: dict[str, tuple[AsyncEngine, str]]) -> None:
    """Each tenant sees its own runs only, and in each of them its own values only."""
    for mine, (engine, run_id) in runs.items():
        views = [await engine.show(run_id), await engine.show(run_id, as_="action"), await engine.log(run_id)]
        assert owners(str(views)) == {mine.removeprefix("CANARY-")}
        others = [other for other, _ in runs.values() if other.tenant != engine.tenant]
        for other in others:
            with pytest.raises(NotFound):
                await other.show(run_id)
            assert run_id not in str(await other.runs())
            assert owners(str(await other.runs())) == {f"{other.tenant}-1", f"{other.tenant}-2"}


def owners(text: str) -> set[str]:
    return set(CANARY.findall(text))


def owner_of(row: Row, runs: dict[str, str]) -> str | None:
    """Whose row it is; None for rows that belong to no run."""
    table = row.table.rpartition(".")[2]
    return runs.get(row.columns["id"] if table == "runs" else row.columns.get("run_id", ""))


@first_on("postgres")
async def test_no_value_of_one_run_is_found_with_another(
    database_url: str, server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepkeep.worker.loop.geteuid", lambda: 1000)  # root runs no commands beside other tenants
    caplog.set_level(logging.INFO)
    canary_handlers.SEEN.clear()
    canary_handlers.TOKENS.clear()
    runs = {run_id: mine for mine, (_, run_id) in (await run_all(database_url, server)).items()}
    own = {run_id: mine.removeprefix("CANARY-") for run_id, mine in runs.items()}

    # Rows: each holds values of its own run alone, and those of no run hold none.
    rows = await asyncio.to_thread(every_row, database_url)
    for row in rows:
        whose = owner_of(row, own)
        assert owners(str(row.columns)) <= ({whose} if whose else set()), row
        assert whose is None or row.columns["tenant"] == whose[:-2]
    outputs = Counter[str]()
    for row in rows:
        if row.table.endswith("attempts") and row.columns["output"].startswith("{"):
            # What a successful attempt saw: no mark of any attempt, its own first one included.
            assert "MARK" not in row.columns["output"], row
            seen = json.loads(row.columns["output"])
            outputs[seen.get("mode", "command or HTTP")] += 1
            if seen.get("mode") == "process":
                assert (seen["cwd"], seen["umask"] == 0o77) == (os.getcwd(), False)
    assert outputs == {**dict.fromkeys(MODES, 4), "thread": 8, "command or HTTP": 8}

    # Attempts: what the first ones saw is in their errors, after their own mark.
    failed = [row for row in rows if row.table.endswith("attempts") and " saw " in row.columns["error"]]
    assert len(failed) >= 4 * len(MODES)
    assert all("MARK" not in row.columns["error"].partition(" saw ")[2] for row in failed)
    for each in canary_handlers.SEEN:
        assert owners(json.dumps(each)) == {own[each["run"]]}
        assert "MARK" not in json.dumps(each)
        assert each["seen"]["key"].startswith(each["run"])
        assert (each["seen"]["emitted"], each["seen"]["spent"], each["seen"]["who"]) == (0, None, "")

    # Requests: two of each run, on connections of their own, without cookies.
    assert len(server.requests) == 8
    assert len({request["peer"] for request in server.requests}) == 8
    for request in server.requests:
        assert owners(json.dumps(request)) == {own[request["headers"]["stepkeep-run-id"]]}
        assert "MARK" not in json.dumps(request)
        assert "cookie" not in request["headers"]

    # Tokens: one for each run, of which the database knows only a digest.
    assert len(set(canary_handlers.TOKENS.values())) == 4
    whole = str(rows) + raw_bytes(database_url).decode("latin-1")
    assert [token for token in canary_handlers.TOKENS.values() if token in whole] == []

    # Log lines name their run, and hold values of no other.
    told = [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    for text in told:
        whose = {mine for run_id, mine in own.items() if run_id in text}
        assert owners(text) <= whose, text
    assert any("CANARY" in text for text in told)
