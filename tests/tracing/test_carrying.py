"""The trace of a caller goes through a run: into commands and HTTP steps, out through webhooks, and to a collector."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.operations.runs.spans import parse_trace
from tests.api.stage import HELLO, on, told
from tests.databases import migrated_file
from tests.tracing.test_spans import CALLER
from tests.worker.loopback import Server

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


async def test_the_trace_of_a_request_is_kept_with_its_run_and_is_no_part_of_the_key(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(HELLO)
        async with stage.client(await stage.key()) as client:
            own = {"Idempotency-Key": "k1", "traceparent": CALLER}
            run = (await client.post("/runs", json={"workflow": "hello"}, headers=own)).json()["run_id"]
            again = await client.post("/runs", json={"workflow": "hello"}, headers={"Idempotency-Key": "k1"})
            assert again.status_code == 200
            assert again.json()["run_id"] == run
            labels = (await client.get(f"/runs/{run}")).json()["run"]["labels"]
            assert labels == {"traceparent": CALLER}
            bad = await client.post("/runs", json={"workflow": "hello"}, headers={"traceparent": "nonsense"})
            shown = (await client.get(f"/runs/{bad.json()['run_id']}")).json()["run"]
            assert not shown["labels"]
            told(await client.get("/runs/nothing", headers={"traceparent": CALLER}), 404, "not_found")


async def test_commands_http_steps_and_webhooks_get_it_without_any_sdk(tmp_path: Path, receiver: Server) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "workflow: carried\ntimeout: 1m\nsteps:\n"
        '  - {name: shell, command: [sh, -c, \'printf "%s" "$TRACEPARENT"\']}\n'
        f"  - {{name: call, http: {{url: '{receiver.url('/step')}'}}, depends_on: [shell]}}\n"
    )

    async def act() -> None:
        engine = AsyncEngine(
            f"sqlite:///{tmp_path / 's.db'}",
            actor="ann",
            http=sk.HttpPolicy(allow=("127.0.0.1",)),
            secrets={"HOOK": KEY},
        )
        async with engine:
            url = receiver.url("/hook")
            await engine.sinks.add("wire", "webhook", options={"url": url, "secrets": ["HOOK"]}, events=["endings"])
            await engine.start_worker(concurrency=4)
            run = await engine.start(str(flow), labels={"traceparent": CALLER}, webhook_url=receiver.url("/own"))
            done = await engine.wait(run.run_id)
            assert done.state == "succeeded", done
            shown = await engine.show(run.run_id)
            [shell] = [one for one in shown["steps"] if one["name"] == "shell"]
            assert shell["output"]["stdout"] == CALLER
            async with asyncio.timeout(20):
                while {one["path"] for one in receiver.requests} != {"/step", "/hook", "/own"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    await act()
    for one in receiver.requests:
        assert one["headers"]["traceparent"] == CALLER, one["path"]
    [hook] = [one for one in receiver.requests if one["path"] == "/hook"]
    assert json.loads(hook["body"])["traceparent"] == CALLER


PROGRAM = """
import sys
import stepkeep as sk

@sk.step("greet")
def greet(ctx: sk.Context) -> str:
    return ctx.trace or "none"

flow = sk.Workflow("hello")
flow.step("greet", "greet")
with sk.open(sys.argv[1]) as engine, engine.start_worker():
    run = engine.start(flow)
    print(engine.wait(run.run_id).output)
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_nothing_of_opentelemetry_is_imported_without_the_sdk(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path / 's.db'}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "none\n[]\n"


def test_a_command_sends_its_spans_to_the_collector_that_the_environment_names(
    tmp_path: Path, receiver: Server
) -> None:
    receiver.answers["/v1/traces"] = (200, {"content-type": "application/x-protobuf"}, b"")
    url = migrated_file(tmp_path / "s.db")
    (tmp_path / "app.py").write_text(
        "import stepkeep as sk\n@sk.step('greet')\ndef greet(ctx: sk.Context) -> str:\n    return ctx.trace\n"
    )
    (tmp_path / "hello.yaml").write_text("workflow: hello\ntimeout: 1h\nsteps: [{name: greet, uses: greet}]\n")
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("STEPKEEP_", "OTEL_"))}

    def stepkeep(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "stepkeep", *arguments, "--db", url],
            cwd=tmp_path,
            env={**quiet, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url("").rstrip("/"), "OTEL_BSP_SCHEDULE_DELAY": "50"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    started = stepkeep("start", "hello.yaml", "--handlers-elsewhere", "--label", f"traceparent={CALLER}", "--json")
    run = json.loads(started.communicate()[0])["run"]["id"]
    worker = stepkeep("worker", "--app", "app.py")
    try:
        waited = stepkeep("wait", run, "--json")
        said = waited.communicate(timeout=60)[1]
        assert waited.returncode == 0, said
    finally:
        worker.terminate()
        said = worker.communicate(timeout=30)[1]
    spans = {}
    for request in receiver.raw["/v1/traces"]:
        for resource in ExportTraceServiceRequest.FromString(request).resource_spans:
            assert any(one.value.string_value == "stepkeep-worker" for one in resource.resource.attributes)
            spans |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert set(spans) == {"run hello", "step greet", "attempt greet"}, said
    caller = parse_trace(CALLER)
    assert caller is not None
    assert {span.trace_id for span in spans.values()} == {caller.trace_id.to_bytes(16)}
    assert spans["run hello"].parent_span_id == caller.span_id.to_bytes(8)
    assert spans["step greet"].parent_span_id == spans["run hello"].span_id
    assert spans["attempt greet"].parent_span_id == spans["step greet"].span_id
