"""A run as a workflow resource: its status, its steps, its compensation and its telemetry."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.seeds.ioa_stage import Stage, stage_on

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import Registry, default_registry
from stepkeep.dialects.ioa.events import latency
from stepkeep.dialects.registry import load_file
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category
from stepkeep.operations.runs.projected import list_runs_as
from stepkeep.store.records import RunFilter

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FLOW = """
failurePolicy: compensate
steps:
  - { name: a, agent: maker, action: do, timeout: 1m }
  - { name: sign, agent: asker, action: "GATE: ok?", dependsOn: [a], timeout: 24h }
  - { name: b, agent: other, action: do, dependsOn: [sign], timeout: 1m, retryPolicy: { maxRetries: 1, backoff: "7s" } }
  - { name: tell, agent: maker, action: mail, dependsOn: [b], timeout: 1m, onFailure: skip }
compensation: [{ step: a, action: undo, agent: maker }]
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(f"sqlite:///{tmp_path}/ioa.db") as opened:
        yield opened


def conditions(view: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in view["status"]["conditions"]}


class TestStatus:
    def test_before_it_starts(self, stage: Stage) -> None:
        view = stage.start(FLOW, start_now=False).view()
        assert (view["apiVersion"], view["kind"]) == ("ioa.dev/v0.2", "Workflow")
        assert view["metadata"] == {"name": "flow", "version": 1}
        assert view["status"] == {
            "state": "idle",
            "currentStep": None,
            "completedSteps": [],
            "failedSteps": [],
            "startedAt": None,
            "completedAt": None,
            "retries": 0,
            "latency": None,
            "costAccumulated": {"tokens": 0, "cost": 0, "currency": "USD"},
            "conditions": view["status"]["conditions"],
        }
        assert conditions(view) == {"StepsHealthy": ("Unknown", "NotStarted")}
        assert view["events"] == []

    def test_while_a_gate_is_open(self, stage: Stage) -> None:
        view = stage.start(FLOW).finish("a").view()
        assert view["status"]["state"] == "blocked"
        assert view["status"]["currentStep"] == "sign"
        assert view["status"]["completedSteps"] == ["a"]
        assert conditions(view) == {"StepsHealthy": ("True", "NoFailures"), "Blocked": ("True", "AwaitingInput")}
        assert [(one["name"], one["state"], one["agent"]) for one in view["steps"]] == [
            ("a", "completed", "maker"),
            ("sign", "running", "asker"),
            ("b", "pending", "other"),
            ("tell", "pending", "maker"),
        ]

    def test_at_the_end_with_a_retry_and_a_tolerated_failure(self, stage: Stage) -> None:
        stage.start(FLOW).finish("a").approve().fail("b").later(7).finish("b").fail("tell", error="no mail today")
        view = stage.view()
        status = view["status"]
        assert status["state"] == "completed"
        assert status["completedSteps"] == ["a", "sign", "b"]
        assert status["failedSteps"] == [], "skipped is not failed, and the schema has no skippedSteps"
        assert status["retries"] == 1
        assert status["latency"] == "7s"
        assert status["costAccumulated"] == {"tokens": 200, "cost": 1.0, "currency": "USD"}
        assert conditions(view) == {"StepsHealthy": ("True", "FailuresTolerated")}
        assert view["steps"][-1]["state"] == "skipped"
        assert view["steps"][-1]["error"] == "no mail today"

    def test_after_a_whole_rollback(self, stage: Stage) -> None:
        view = stage.start(FLOW).finish("a").reject().finish("undo:a").view()
        assert view["status"]["state"] == "completed"
        assert view["status"]["failedSteps"] == ["sign"]
        assert conditions(view) == {
            "StepsHealthy": ("False", "StepFailed"),
            "RolledBack": ("True", "RollbackComplete"),
        }
        assert [(one["step"], one["state"]) for one in view["compensation"]] == [("a", "completed")]

    @pytest.mark.parametrize(
        ("seconds", "said"), [(512, "8m32s"), (0.25, "250ms"), (0, "0s"), (59.999, "59s"), (90_000, "1d1h")]
    )
    def test_a_latency_reads_like_eight_minutes_and_thirty_two_seconds(self, seconds: float, said: str) -> None:
        day, rest = divmod(seconds, 86_400)
        minutes, rest = divmod(rest, 60)
        hours, minutes = divmod(minutes, 60)
        end = f"2026-02-{25 + int(day):02}T{int(hours):02}:{int(minutes):02}:{rest:06.3f}Z"
        assert latency("2026-02-25T00:00:00.000Z", end) == said

    def test_one_row_of_a_list(self, stage: Stage) -> None:
        stage.start(FLOW).finish("a")
        listed = stage.wait(list_runs_as(stage.bench.transactor, RunFilter(tenant="default"), "ioa"))
        [row] = listed["runs"]
        assert (row["run"], row["name"], row["state"], row["latency"]) == (stage.run_id, "flow", "blocked", None)


MANDATORY = {
    "workflow_started": ("audit", {"workflowName", "trigger", "domainsInvolved"}),
    "workflow_step_completed": ("trace", {"workflowName", "stepName", "agent", "durationMs", "correlationId"}),
    "workflow_step_failed": ("alert", {"workflowName", "stepName", "error", "onFailure"}),
    "workflow_completed": ("audit", {"workflowName", "totalDurationMs", "stepsCompleted", "costAccumulated"}),
    "workflow_failed": ("alert", {"workflowName", "failedStep", "failurePolicy"}),
    "workflow_compensating": ("alert", {"workflowName", "failedStep", "compensationSteps"}),
}


BESIDES = {
    "workflow_executing": ("trace", {"workflowName", "resumed"}),
    "workflow_blocked": ("alert", {"workflowName", "stepName"}),
    "workflow_step_running": ("trace", {"workflowName", "stepName", "agent", "correlationId"}),
    "workflow_step_skipped": ("trace", {"workflowName", "stepName", "because"}),
    "workflow_step_cancelled": ("trace", {"workflowName", "stepName", "because"}),
    "workflow_compensation_running": ("trace", {"workflowName", "stepName", "agent"}),
    "workflow_compensation_completed": ("trace", {"workflowName", "stepName", "agent", "durationMs"}),
    "workflow_compensation_failed": ("alert", {"workflowName", "stepName", "agent", "error"}),
    "workflow_cancelled": ("audit", {"workflowName", "reason"}),
}
"""Events that the taxonomy does not have and guideline 6 asks for."""


class TestTelemetry:
    """Guideline 6, with the mandatory payloads."""

    def check(self, stage: Stage) -> dict[str, Any]:
        """Every event has its category, its payload and the one correlation id; the last of each kind is returned."""
        view = stage.view()
        for event in view["events"]:
            category, payload = (MANDATORY | BESIDES)[event["event"]]
            assert ("extension" in event) == (event["event"] in BESIDES)
            assert event["category"] == category
            assert payload <= set(event["payload"])
            assert event["name"] == f"growth.{event['event']}"
            assert event["correlationId"] == view["correlationId"] == "order-7"
        return {event["event"]: event["payload"] for event in view["events"]}

    def test_of_a_run_that_completes(self, stage: Stage) -> None:
        stage.start(FLOW, correlation_id="order-7").finish("a").later(60).approve().finish("b").fail("tell")
        assert [name for name in stage.events() if name in MANDATORY] == [
            "workflow_started",
            "workflow_step_completed",
            "workflow_step_completed",
            "workflow_step_completed",
            "workflow_step_failed",
            "workflow_completed",
        ]
        told = self.check(stage)
        assert told["workflow_started"]["domainsInvolved"] == ["growth", "product"]
        assert told["workflow_step_failed"]["onFailure"] == "skip"
        assert told["workflow_completed"]["stepsCompleted"] == 3
        assert 60_000 <= told["workflow_completed"]["totalDurationMs"] < 120_000
        signed = [one for one in stage.view()["events"] if one["event"] in MANDATORY][2]["payload"]
        assert (signed["stepName"], signed["agent"]) == ("sign", "asker")
        assert 60_000 <= signed["durationMs"] < 120_000

    def test_of_a_run_that_fails_and_cannot_be_taken_back(self, stage: Stage) -> None:
        stage.start(FLOW, correlation_id="order-7").finish("a").reject().fail("undo:a", "validation")
        assert [name for name in stage.events() if name in MANDATORY] == [
            "workflow_started",
            "workflow_step_completed",
            "workflow_step_failed",
            "workflow_compensating",
            "workflow_failed",
        ]
        told = self.check(stage)
        assert told["workflow_compensating"] == {
            "workflowName": "flow",
            "failedStep": "sign",
            "compensationSteps": ["a"],
        }
        assert told["workflow_failed"]["failurePolicy"] == "compensate"

    def test_every_change_of_state_has_an_event(self, stage: Stage) -> None:
        """Guideline 6: log step transitions, emit telemetry events for every state change."""
        stage.start(FLOW, correlation_id="order-7").finish("a").approve()
        twice = ["workflow_step_running", "workflow_executing", "workflow_step_completed"] * 2
        assert sorted(stage.events()) == sorted(["workflow_started", "workflow_blocked", *twice])
        assert self.check(stage)["workflow_executing"]["resumed"] is True

    @pytest.mark.parametrize(
        ("story", "ends"),
        [
            (lambda stage: stage.finish("a").reject().finish("undo:a"), "workflow_compensation_completed"),
            (lambda stage: stage.finish("a").reject().fail("undo:a", "validation"), "workflow_compensation_failed"),
            (lambda stage: stage.finish("a").cancel(), "workflow_cancelled"),
            (lambda stage: stage.finish("a").approve().finish("b").fail("tell"), "workflow_completed"),
        ],
    )
    def test_every_line_of_the_log_that_changes_a_state_has_its_event(
        self, stage: Stage, story: Callable[[Stage], Any], ends: str
    ) -> None:
        """000-6.6: cancelled steps and compensations are changes, too."""
        story(stage.start(FLOW, correlation_id="order-7"))
        moves = [line for line in stage.log() if line["event_type"].endswith("_state_transition")]
        changes = [line for line in moves if line["from_state"] is not None]
        assert len(stage.events()) == len(changes)
        assert ends in self.check(stage)

    def test_a_retry_is_no_failure_of_the_step(self, stage: Stage) -> None:
        stage.start(FLOW, correlation_id="order-7").finish("a").approve()
        stage.report("b", Failed(category=Category.AGENT, error="once"))
        assert "workflow_step_failed" not in stage.events()

    def test_a_cancel_is_told_as_an_extension(self, stage: Stage) -> None:
        stage.start(FLOW).cancel()
        last = stage.view()["events"][-1]
        assert (last["event"], last["extension"]) == ("workflow_cancelled", True)


# -- the examples, with real workers ---------------------------------------------------------------------------------
@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    load_app(str(EXAMPLES / "ioa_handlers.py"))


def run_example(url: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    async def go() -> dict[str, Any]:
        async with sk.AsyncEngine(url) as engine:
            definition = load_file(EXAMPLES / f"{name}.yaml", default_registry, "ioa")
            result = await engine.run(definition, given)
            return await engine.show(result.id, as_="ioa")

    return asyncio.run(go())


@pytest.mark.usefixtures("agents")
class TestExamples:
    def test_onboarding_completes_on_both_databases(self, database_url: str) -> None:
        view = run_example(database_url, "ioa", {"email": "ada@example.com"})
        assert view["status"]["completedSteps"] == [
            "create-account",
            "provision-workspace",
            "setup-analytics",
            "send-welcome",
        ]
        assert view["status"]["costAccumulated"]["tokens"] == 600

    @pytest.mark.parametrize(
        ("given", "state", "undone"),
        [
            ({"fail_at": "create-account"}, "failed", []),
            ({"fail_at": "setup-analytics"}, "completed", ["provision-workspace", "create-account"]),
            ({"fail_at": "send-welcome"}, "completed", []),
        ],
    )
    def test_onboarding_fails_as_the_seed_says(
        self, tmp_path: Path, given: dict[str, str], state: str, undone: list[str]
    ) -> None:
        """Section 4.3: the mail cannot be unsent, so its failure is skipped; all others undo."""
        view = run_example(f"sqlite:///{tmp_path}/db", "ioa", given)
        assert view["status"]["state"] == state
        assert [entry["step"] for entry in view["compensation"]] == undone

    def test_an_undo_that_is_stuck_leaves_the_rest_as_it_is(self, tmp_path: Path) -> None:
        """Section 4.2 rule 4."""
        view = run_example(
            f"sqlite:///{tmp_path}/db", "ioa", {"fail_at": "setup-analytics", "stuck_at": "provision-workspace"}
        )
        assert view["status"]["state"] == "failed"
        assert [entry["state"] for entry in view["compensation"]] == ["failed", "cancelled"]

    def test_the_review_goes_on_without_what_was_skipped(self, tmp_path: Path) -> None:
        view = run_example(f"sqlite:///{tmp_path}/db", "ioa_content_review", {"fail_at": "check-facts"})
        assert {one["name"]: one["state"] for one in view["steps"]} == {
            "draft": "completed",
            "check-facts": "skipped",
            "check-style": "completed",
            "check-rights": "completed",
            "decide": "completed",
        }

    def test_the_deployment_waits_for_approval(self, tmp_path: Path) -> None:
        view = run_example(f"sqlite:///{tmp_path}/db", "ioa_deployment", {})
        assert view["status"]["state"] == "blocked"
        assert view["status"]["currentStep"] == "approve-production"


HEAD = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {{ name: {name} }}\nspec:\n"
SPEC = "  description: d\n  domainsInvolved: [growth]\n  timeout: 1h\n  failurePolicy: compensate\n  steps:\n"
CHILD = f"""{HEAD.format(name="inner")}{SPEC}
    - {{ name: book, agent: clerk, action: book, timeout: 1m }}
  compensation: [{{ step: book, action: unbook, agent: clerk }}]
"""
PARENT = f"""{HEAD.format(name="outer")}{SPEC}
    - {{ name: sub, workflow: inner, timeout: 10m }}
    - {{ name: last, agent: clerk, action: last, dependsOn: [sub], timeout: 1m }}
"""


@pytest.mark.parametrize(("fails", "undone"), [(False, []), (True, ["unbook"])])
async def test_a_sub_workflow_of_the_same_format_runs_and_is_taken_back(
    database_url: str, tmp_path: Path, fails: bool, undone: list[str]
) -> None:
    """000 §6 guideline 5, on both databases."""
    known, done = Registry(), []

    @sk.agent("clerk", registry=known)
    async def clerk(ctx: sk.Context, action: str, inputs: dict[str, Any]) -> dict[str, Any]:
        done.append((action, inputs if action == "book" else None))
        if fails and action == "last":
            raise ValueError("no")
        return {}

    def written(text: str) -> Definition:
        path = tmp_path / "ioa.yaml"
        path.write_text(text, encoding="utf-8")
        return load_file(path, known, "ioa")

    async with sk.AsyncEngine(database_url, registry=known) as engine:
        await engine.publish(written(CHILD))
        result = await engine.run(written(PARENT), {"seat": 7})
        view = await engine.show(result.id, as_="ioa")
    assert [action for action, _ in done] == ["book", "last", *undone]
    assert done[0] == ("book", {"seat": 7})
    assert view["status"]["state"] == "completed"
    assert [entry["step"] for entry in view["compensation"]] == (["sub"] if fails else [])


def test_an_agent_that_reports_governance_blocks_the_workflow_until_people_decide(database_url: str) -> None:
    """000 §3.1: "Governance | Action blocked by governance policy | Block + escalate"."""
    with stage_on(database_url) as stage:
        stage.start(FLOW)
        stage.report("a", Failed(category=Category.GOVERNANCE, error="the budget office has not agreed"))
        assert (stage.state, stage.events()[-1]) == ("blocked", "workflow_blocked")
        stage.approve("a")
        assert stage.state == "executing"
        stage.finish("a")
        assert stage.states("a")[-1] == "completed"
        stage.approve("sign")
        stage.report("b", Failed(category=Category.GOVERNANCE, error="not this one", final=True))
        stage.reject("b").finish("undo:a")
        assert stage.states("b")[-1] == "failed"


BLOCKING_AGENT = """
import stepkeep as sk

asked = []

@sk.agent("blocking-maker")
def make(ctx, action, inputs):
    asked.append(action)
    if len(asked) == 1:
        raise sk.fail("the budget office has not agreed", category="governance")
"""
BLOCKED = """
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: { name: blocked-by-its-agent }
spec:
  description: One step that its agent blocks.
  domainsInvolved: [engineering]
  timeout: 1h
  steps: [{ name: a, agent: blocking-maker, action: do, timeout: 1m }]
"""


def test_a_block_by_an_agent_is_no_verdict_of_a_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`policies replay` and the verifier of evidence packs ask rules again, and no rule has said it."""

    def stepkeep(*words: str) -> dict[str, Any]:
        assert main([*words, "--db", f"sqlite:///{tmp_path}/db", "--json"]) in (0, 4)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    (tmp_path / "blocking_agent.py").write_text(BLOCKING_AGENT)
    (tmp_path / "blocked.yaml").write_text(BLOCKED)
    app = str(tmp_path / "blocking_agent.py")
    run = stepkeep("run", str(tmp_path / "blocked.yaml"), "--as", "ioa", "--app", app)["run"]["id"]
    stepkeep("approve", run, "a", "--by", "ann")
    assert stepkeep("run", "--resume", run, "--app", app)["run"]["state"] == "succeeded"
    stepkeep("policies", "replay", run)
    stepkeep("evidence", run, "--output", str(tmp_path / "pack.zip"))
    stepkeep("evidence", "--verify", str(tmp_path / "pack.zip"))


def test_show_on_the_command_line_has_status_and_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stepkeep(*words: str) -> dict[str, Any]:
        assert main([*words, "--db", f"sqlite:///{tmp_path}/db", "--json"]) in (0, 4)
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    app = str(EXAMPLES / "ioa_handlers.py")
    run = stepkeep("run", str(EXAMPLES / "ioa_deployment.yaml"), "--as", "ioa", "--app", app)["run"]["id"]
    shown = stepkeep("show", run, "--as", "ioa")
    assert shown["status"]["state"] == "blocked"
    told = [event["event"] for event in shown["events"] if event["event"] in MANDATORY]
    assert told == ["workflow_started", "workflow_step_completed"]
