"""Each of the five formats runs to every ending it has, on both databases, and the judge accepts what it leaves behind.

Two steps each, whose second does what the run's input says. Exported and verified in its own words, and told in the
words of every other dialect.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.dialects import registry as dialects
from stepkeep.worker.settings import Settings

QUICK = Settings(
    sweep_seconds=0.02, idle_poll_seconds=0.02, concurrency=8, commands=sk.CommandPolicy(tenants=("default",))
)
ALL = ("ioa", "run", "linear", "action", "workstream")

IOA = """
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {{ name: two }}
spec:
  description: Two steps.
  domainsInvolved: [tests]
  timeout: 60s
  failurePolicy: {policy}
  steps:
    - {{ name: first, agent: first, action: Do the first thing, timeout: 10s, onFailure: {policy} }}
    - name: second
      agent: second
      action: Do the second thing
      dependsOn: [first]
      timeout: 1s
      retryPolicy: {{ maxRetries: 2, backoff: constant, initialDelay: 10ms, maxDelay: 10ms }}
      onFailure: {second}
  compensation:
    - {{ step: first, action: Take the first thing back, agent: undo }}
"""
RUN = """
template: two
max_attempts: 3
retry_base_delay: 5ms
steps:
  - { position: 1, name: first }
  - { position: 2, name: second, timeout_seconds: 1 }
"""
LINEAR = """
workflowType: two
workflowVersion: 1
retryPolicy: { maxAttempts: 3, baseBackoffMs: 10, maxBackoffMs: 20 }
steps:
  - first
  - { stepType: second, timeoutMs: 300 }
"""
ACTION = """
schemaVersion: 1
workflowId: two
workspaceId: tests
name: Two actions
version: 1
active: true
executionTier: Auto
actions:
  - { actionId: first, order: 1, portFamily: FinanceAccounting, operation: "thing:first" }
  - actionId: second
    order: 2
    portFamily: FinanceAccounting
    operation: "thing:second"
    timeoutMs: 300
    retryPolicy: { maxAttempts: 3, initialBackoffMs: 10, maxBackoffMs: 20 }
"""
UNDOABLE = """
capabilities:
  "thing:first":
    safety: { idempotent: true, supportsCompensation: true }
    compensationOperation: "thing:undo"
    compensationInputSchema: { type: object }
"""
WORKSTREAM = """
workstream_id: two
name: Two tasks
description: Two tasks.
tasks:
  - task_id: first
    name: First
    critical: true
    execution: {{ command: ["{python}", -c, "pass"], timeout_seconds: 10, max_retries: 0 }}
  - task_id: second
    name: Second
    critical: {critical}
    dependencies: [first]
    execution:
      command: ["{python}", "{program}", "${{{{ input.mode }}}}", "${{{{ run.id }}}}"]
      timeout_seconds: 1
      max_retries: 2
      retry_delay_seconds: 0.01
"""
PROGRAM = """
import pathlib, sys, time
mode, mark = sys.argv[1], pathlib.Path(__file__).with_name(sys.argv[2])
first, _ = not mark.exists(), mark.touch()
if mode == "hang":
    time.sleep(30)
sys.exit(mode == "fail" or (mode == "flaky" and first))
"""


def document(dialect: str, ending: str, folder: Path) -> str:
    """The dialect's own format for a run that is to end like this."""
    if dialect == "ioa":
        policy = "compensate" if ending == "rollback" else "abort"
        return IOA.format(policy=policy, second="skip" if ending == "skip" else policy)
    if dialect == "workstream":
        (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
        critical = "false" if ending == "skip" else "true"
        return WORKSTREAM.format(python=sys.executable, program=folder / "program.py", critical=critical)
    plain = {"run": RUN, "linear": LINEAR, "action": ACTION}[dialect]
    return plain + UNDOABLE if (dialect, ending) == ("action", "rollback") else plain


def handlers() -> sk.Registry:
    """Handlers under every name that the formats use; the second does what the input's `mode` says."""
    registry = sk.Registry()
    tried: set[str] = set()

    async def first() -> dict[str, bool]:
        return {"done": True}

    async def second(ctx: sk.Context) -> dict[str, bool]:
        mode = ctx.input["mode"]
        flaky = mode == "flaky" and ctx.run_id not in tried
        tried.add(ctx.run_id)
        if mode == "fail":
            raise sk.fail("told to fail")
        if flaky:
            raise ConnectionError("told to fail once")
        if mode == "hang":
            await asyncio.sleep(30)
        return {"done": True}

    for name in ("first", "thing:first", "thing:undo"):
        sk.step(name, registry=registry)(first)
    for name in ("second", "thing:second"):
        sk.step(name, registry=registry)(second)

    async def agent(ctx: sk.Context, action: str, inputs: dict[str, Any]) -> dict[str, bool]:
        return await (second(ctx) if "second" in action else first())

    for name in ("first", "second", "undo"):
        sk.agent(name, registry=registry)(agent)
    return registry


MODES = {"success": "ok", "failure": "fail", "retry": "flaky", "timeout": "hang", "skip": "fail", "rollback": "fail"}
ENDINGS = [
    (dialect, ending, state)
    for dialect in ALL
    for ending, state in (
        ("success", "succeeded"),
        ("failure", "failed"),
        ("retry", "succeeded"),
        ("timeout", "failed"),
        ("cancel", "cancelled"),
    )
] + [
    ("ioa", "skip", "succeeded"),
    ("workstream", "skip", "failed"),
    ("ioa", "rollback", "rolled_back"),
    ("action", "rollback", "rolled_back"),
]


def cases() -> list[Any]:
    """Every ending on both stores; with `make test` each on one store, and no real timeout on PostgreSQL."""
    return [
        pytest.param(store, *values, id=f"{store}-{values[0]}-{values[1]}", marks=() if is_short else pytest.mark.proof)
        for store in ("sqlite", "postgres")
        for values in ENDINGS
        for at_home in ("postgres" if values[0] in ("ioa", "workstream") and values[1] != "timeout" else "sqlite",)
        for is_short in (store == at_home,)
    ]


@pytest.mark.parametrize(("database_url", "dialect", "ending", "state"), cases(), indirect=["database_url"])
async def test_every_format_reaches_its_endings_and_the_judge_accepts_them(
    database_url: str, tmp_path: Path, dialect: str, ending: str, state: str
) -> None:
    file = tmp_path / f"{dialect}.yaml"
    file.write_text(document(dialect, ending, tmp_path), encoding="utf-8")
    definition = dialects.load_file(file)
    assert definition.dialect == dialect
    async with sk.AsyncEngine(database_url, registry=handlers()) as engine:
        run_id = (await engine.start(definition, {"mode": MODES.get(ending, "hang")})).run_id
        if ending == "cancel":
            await engine.cancel(run_id, reason="no longer wanted")

        async def ended() -> bool:
            return (await engine.result(run_id)).finished

        await engine.worker(settings=QUICK).run_until(ended)
        result = await engine.result(run_id)
        assert result.state == state, result.error
        if ending == "retry":
            assert result.view["steps"][1]["attempts"] == 2
        certificate = await engine.certify(run_id)
        assert certificate.ok, certificate.page()
        assert {verdict.dialect for verdict in certificate.dialects} == set(ALL)
        assert certificate.written_in == dialect
