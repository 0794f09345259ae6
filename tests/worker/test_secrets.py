"""Secrets reach handlers and nothing else: no row, file, view, log line or error of a run holds a value."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from tests.rows import every_row, raw_bytes
from tests.workbench import eventually
from tests.worker import secret_handlers
from tests.worker.bed import QUICK
from tests.worker.loopback import Answer, Server

import stepkeep as sk
from stepkeep.definition.native.reader import load_text
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Definition
from stepkeep.worker.attempts.secrets import MAX_VALUE_BYTES, MissingSecret, SecretReader, Secrets

VALUE = 'CANARY-9f"3/a+c&7 d8\\e1'
SPELLINGS = (
    VALUE,
    json.dumps(VALUE)[1:-1],
    quote(VALUE, safe=""),
    repr(VALUE)[1:-1],
    base64.b64encode(VALUE.encode()).decode()[:24],
    base64.b64encode(b"ada:" + VALUE.encode()).decode()[6:30],
    "CANARY",
)
FAILS = "import os, sys; print(os.environ['TOKEN']); print(sys.argv[1], file=sys.stderr); sys.exit(not sys.argv[2:])"
AGAIN = {"max_attempts": 2, "initial": "1ms"}


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.answers["/call"] = answer
    yield server
    server.close()


def answer(request: dict[str, Any]) -> Answer:
    """The request comes back whole: refused at first, then accepted."""
    if request["headers"]["stepkeep-attempt"] == "1":
        return 503, {}, json.dumps(request["headers"]).encode()
    return 200, {"content-type": "application/json"}, json.dumps({"got": request["body"], "peer": "x"}).encode()


def handlers() -> Registry:
    registry = Registry()
    for name, function, fields in (
        ("say.async", secret_handlers.in_loop, {}),
        ("say.thread", secret_handlers.in_thread, {}),
        ("say.process", secret_handlers.in_process, {"mode": "process"}),
        ("say.transaction", secret_handlers.in_transaction, {"transactional": True}),
        ("say.undo", secret_handlers.undo, {}),
        ("say.returns", secret_handlers.returns, {}),
    ):
        registry.register(HandlerSpec(name=name, function=function, **fields))  # type: ignore[arg-type]
    registry.register(HandlerSpec(name="say.agent", function=secret_handlers.as_agent, kind="agent"))
    return registry


def workflow(server: Server) -> Definition:
    given = {"token": "${{ secret.TOKEN }}"}
    python = [sys.executable, "-c", FAILS, "--token=${{ secret.TOKEN }}"]
    environment = {"TOKEN": "${{ secret.TOKEN }}"}
    headers = {"Authorization": "Bearer ${{ secret.LINE }}"}
    work: dict[str, dict[str, Any]] = {
        **{mode: {"uses": f"say.{mode}", "with": given} for mode in ("async", "thread", "process", "transaction")},
        "agent": {"agent": "say.agent", "action": "speak", "with": given},
        "command": {"command": {"argv": python, "env": environment}, "on_failure": "continue"},
        "echo": {"command": {"argv": [*python, "fine"], "env": environment}, "with": given},
        "http": {
            "http": {"url": server.url("/call"), "method": "POST", "headers": headers, "body": given},
            "undo": {"uses": "say.undo", "with": given},
        },
        "nowhere": {
            "http": {"url": server.url("/none/${{ secret.LINE }}"), "headers": {"X": "x ${{ secret.TOKEN }}\ny"}},
            "on_failure": "continue",
        },
    }
    steps = [{"name": name, "retry": AGAIN, "depends_on": [], **block} for name, block in work.items()]
    last = {"name": "last", "uses": "say.returns", "with": {**given, "how": "output"}, "on_failure": "compensate"}
    steps.append({**last, "depends_on": [{"step": name, "allow": ["failed"]} for name in work]})
    document = {"workflow": "secrets", "timeout": "1h", "steps": steps}
    return load_text(json.dumps(document), "secrets.json")


def engine_on(url: str, secrets: Any, **options: Any) -> AsyncEngine:
    http = sk.HttpPolicy(allow=("127.0.0.1",))
    return AsyncEngine(url, actor="tests", registry=handlers(), http=http, secrets=secrets, **options)


async def test_no_value_is_found_in_a_database_a_view_or_a_log(
    database_url: str, server: Server, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "stepkeep")
    secret_handlers.SEEN.clear()
    seen: list[str] = []

    async with engine_on(database_url, {"TOKEN": VALUE, "LINE": "CANARY-line-4711"}) as engine:
        worker = engine.worker(settings=replace(QUICK, log_lines=50))
        serving = asyncio.create_task(worker.serve())
        try:
            started = await engine.start(workflow(server))
            result = await engine.wait(started.run_id, seconds=90)
            assert result.state == "failed"
            view = await engine.show(started.run_id)
            states = {step["name"]: step["state"] for step in view["steps"] if step["phase"] == "main"}
            assert {name for name, state in states.items() if state != "succeeded"} == {
                "command",
                "nowhere",
                "last",
            }, view
            outputs = {step["name"]: step["output"] for step in view["steps"]}
            assert outputs["http"]["body"]["got"] == '{"token":"[secret TOKEN]"}'
            assert outputs["echo"]["stdout"] == "[secret TOKEN]\n"
            seen.extend([str(view), str(await engine.log(started.run_id)), str(await engine.runs())])
            for step in states:
                told = await engine.show(started.run_id, step=step)
                seen.append(str(told))
                if step == "thread":
                    assert "'inputs': {'token': '${{ secret.TOKEN }}'}" in str(told)
                    assert "thread refused '[secret TOKEN]'" in str(told)
                    assert "thread uses [secret TOKEN]" in str(told)
        finally:
            worker.stop(0)
            await serving
    assert {token for _, token in secret_handlers.SEEN} == {VALUE}
    assert server.requests[0]["headers"]["authorization"] == "Bearer CANARY-line-4711"
    whole = {
        "rows": str([row.columns for row in await asyncio.to_thread(every_row, database_url)]),
        "files": raw_bytes(database_url).decode("latin-1"),
        "views": "\n".join(seen),
        "log": caplog.text + "".join(str(record.__dict__) for record in caplog.records),
        "streams": "".join(capfd.readouterr()),
    }
    found = [(where, spelling) for where, text in whole.items() for spelling in SPELLINGS if spelling in text]
    assert found == []
    assert "[secret TOKEN]" in whole["rows"]
    assert "[secret TOKEN]" in whole["log"]


@pytest.mark.parametrize(
    "how", ["output", "part", "number", "event", "event name", "wait", "cost", "cost of a failure"]
)
async def test_a_result_that_holds_a_value_is_refused_and_names_the_secret(database_url: str, how: str) -> None:
    value = "4711081547110815"

    async with engine_on(database_url, {"TOKEN": value if how != "event name" else value[:8]}) as engine:
        flow = sk.Workflow("returns", registry=engine.registry)
        flow.step("one", "say.returns", inputs={"token": sk.secret("TOKEN"), "how": how})
        result = await engine.run(flow)
        assert result.state == "failed"
        if how != "cost of a failure":
            assert result.view["run"]["category"] == "validation"
            assert "holds the value of the secret TOKEN, and would be stored" in str(result.error)
        assert result.view["steps"][0]["attempts"] == 1
    assert value[:8] not in str([row.columns for row in await asyncio.to_thread(every_row, database_url)])


async def test_a_worker_without_the_secret_leaves_the_step_to_another(database_url: str) -> None:
    async with (
        engine_on(database_url, {"OTHER": "x" * 8}) as poor,
        engine_on(database_url, {"TOKEN": VALUE}) as rich,
    ):
        flow = sk.Workflow("one", registry=poor.registry)
        flow.step("one", "say.thread", inputs={"token": sk.secret("TOKEN")}, retry=sk.Retry(max_attempts=2))
        first = poor.worker(settings=QUICK)
        serving = asyncio.create_task(first.serve())
        started = await poor.start(flow)
        await poor.wait(started.run_id, seconds=0.5)

        async def lacks_it() -> bool:
            return (await poor.explain(started.run_id))["causes"][0]["code"] == "no_secret"

        await eventually(lacks_it)
        explained = await poor.explain(started.run_id)
        assert (
            "it reads the secret TOKEN, which no live worker has (1 worker is alive)"
            in (explained["causes"][0]["sentence"])
        )
        assert (await poor.show(started.run_id))["steps"][0]["attempts"] == 0
        second = rich.worker(settings=QUICK)
        also = asyncio.create_task(second.serve())
        assert (await rich.wait(started.run_id, seconds=60)).state == "succeeded"
        for worker, task in ((first, serving), (second, also)):
            worker.stop(0)
            await task


async def test_a_source_that_is_asked_in_vain_hands_the_step_back_and_counts_nothing(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def find(name: str) -> str | None:
        asked.append(name)
        if len(asked) == 1:
            raise RuntimeError(VALUE)
        return None

    async with engine_on(database_url, find) as engine:
        flow = sk.Workflow("one", registry=engine.registry)
        flow.step("one", "say.thread", inputs={"token": sk.secret("TOKEN")})
        worker = engine.worker(settings=QUICK)
        serving = asyncio.create_task(worker.serve())
        started = await engine.start(flow)
        for _ in range(60):
            await engine.wait(started.run_id, seconds=0.5)
            if asked:
                break
        [step] = (await engine.show(started.run_id))["steps"]
        assert (step["state"], step["attempts"], len(asked)) == ("ready", 0, 1)
        worker.stop(0)
        await serving
    assert (
        "is handed back: this worker has no secret TOKEN: the function for secrets raised RuntimeError" in caplog.text
    )
    assert VALUE not in caplog.text


# -- where values are --------------------------------------------------------------------------------------------------
def read(secrets: Secrets, name: str) -> str:
    return asyncio.run(SecretReader(secrets).read([name]))[name]


def test_values_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPKEEP_SECRET_TOKEN", "from the environment")
    assert read(Secrets(), "TOKEN") == "from the environment"
    assert SecretReader(Secrets()).has("TOKEN")
    assert "TOKEN" in (SecretReader(Secrets()).offered() or ())
    with pytest.raises(MissingSecret, match="set STEPKEEP_SECRET_OTHER"):
        read(Secrets(), "OTHER")
    with pytest.raises(MissingSecret, match="set STEPKEEP_SECRET_TOKEN"):
        read(Secrets(environment=False), "TOKEN")


def test_values_are_found_in_a_directory_of_files(tmp_path: Path) -> None:
    (tmp_path / "TOKEN").write_text("two\nlines\n")
    (tmp_path / "EMPTY").write_text("")
    (tmp_path / "HUGE").write_text("x" * (MAX_VALUE_BYTES + 5))
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe")
    (tmp_path / "not-a-name").write_text("x")
    secrets = Secrets(directory=str(tmp_path), environment=False)
    assert read(secrets, "TOKEN") == "two\nlines"
    assert SecretReader(secrets).offered() == ("BINARY", "EMPTY", "HUGE", "TOKEN")
    for name, why in (("EMPTY", "empty"), ("HUGE", "more than 65536 bytes"), ("BINARY", "UTF-8"), ("NONE", "set ")):
        with pytest.raises(MissingSecret, match=why):
            read(secrets, name)


@pytest.mark.parametrize(
    "text",
    ["# comment\nexport TOKEN='a b=c'\nOTHER=x # y\n\nbroken\n", '{"TOKEN": "a b=c", "OTHER": "x # y"}'],
)
def test_values_are_found_in_a_file_of_lines_or_of_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "secrets").write_text(text)
    secrets = Secrets(file=str(tmp_path / "secrets"), environment=False)
    assert (read(secrets, "TOKEN"), read(secrets, "OTHER")) == ("a b=c", "x # y")
    assert SecretReader(secrets).offered() == ("OTHER", "TOKEN")
    (tmp_path / "secrets").write_text('{"TOKEN": 5}')
    with pytest.raises(MissingSecret, match="no JSON object of texts"):
        read(secrets, "TOKEN")
    (tmp_path / "secrets").unlink()
    with pytest.raises(MissingSecret, match="does not exist"):
        read(secrets, "TOKEN")


def test_values_are_printed_by_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asking(code: str) -> Secrets:
        return Secrets(command=(sys.executable, "-c", code), environment=False)

    assert read(asking("import sys; print('the', sys.argv[1])"), "TOKEN") == "the TOKEN"
    assert SecretReader(asking("")).offered() is None
    monkeypatch.setattr("stepkeep.worker.attempts.secrets.READ_SECONDS", 0.5)
    for code, why in (
        ("import sys; print('CANARY', file=sys.stderr); sys.exit(3)", "ended with status 3"),
        ("", "its value is empty"),
        ("print('x' * 100_000)", "status -9|more than 65536"),
        ("import time; time.sleep(60)", "status -9"),
    ):
        with pytest.raises(MissingSecret, match=why):
            read(asking(code), "TOKEN")
    with pytest.raises(MissingSecret, match="cannot be started"):
        read(Secrets(command=("/no/such/program",)), "TOKEN")


def test_a_changed_value_is_used_after_a_moment_and_a_missing_one_is_asked_for_again() -> None:
    values, clock = {"TOKEN": "first-value"}, [0.0]
    reader = SecretReader(Secrets(values=values.get, environment=False), lambda: clock[0])

    def now() -> str:
        return asyncio.run(reader.read(["TOKEN"]))["TOKEN"]

    assert now() == "first-value"
    values["TOKEN"] = "second-value"
    assert now() == "first-value"
    clock[0] = 31.0
    assert now() == "second-value"
    del values["TOKEN"]
    clock[0] = 62.0
    with pytest.raises(MissingSecret):
        now()
    assert (reader.has("TOKEN"), reader.lacking()) == (False, ("TOKEN",))
    clock[0] = 93.0
    assert (reader.has("TOKEN"), reader.lacking()) == (True, ())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Secrets(values={"a-b": "x"}),
        lambda: Secrets(values={"A": 5}),  # type: ignore[dict-item]
        lambda: Secrets(command="pass show"),  # type: ignore[arg-type]
        lambda: Secrets(command=()),
        lambda: AsyncEngine("sqlite:///x.db", secrets=5),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_source_of_secrets_is_refused_at_once(wrong: Callable[[], object]) -> None:
    with pytest.raises(sk.InvalidInput):
        wrong()


def test_secrets_are_not_printed_with_their_source() -> None:
    assert VALUE not in repr(Secrets(values={"TOKEN": VALUE}))
