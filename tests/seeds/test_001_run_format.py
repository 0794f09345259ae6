"""Seed 001's format, words and judge: templates in, every default spelled out, every mistake at its line, every
invariant able to fail; and the service around it: one run per key, tenants that do not see each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from tests.seeds.chained import (
    EXAMPLES,
    FLAKY,
    HOPELESS,
    Forgery,
    Line,
    accepted,
    broken,
    cancel,
    decide,
    examined,
    later,
    on,
    path,
    problems,
    shown,
    told,
)
from tests.workbench import SECOND

from stepkeep.definition.findings import LOAD_IT
from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.dialects.chains import WORD_RULE, distinct
from stepkeep.dialects.registry import check_file, dialect, recognise
from stepkeep.dialects.run.front import FRONT
from stepkeep.dialects.run.machine import JUDGED
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Backoff, Dependency, Handler
from stepkeep.kernel.errors import KeyReused, NotFound
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, OnFailure, RunState, StepState
from stepkeep.operations.logs.log import export_run

DEFAULT = """
template: default
steps:
  - {position: 1, name: LLM}
  - {position: 2, name: TOOL, timeout_seconds: 90}
  - {position: 3, name: APPROVAL}
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/run.db"


# -- the format ------------------------------------------------------------------------------------------------------
def test_every_default_is_spelled_out() -> None:
    """001 worker defaults; design section 4."""
    definition = accepted("run", DEFAULT)
    assert (definition.name, definition.version, definition.dialect, definition.priority) == ("default", 1, "run", 0)
    assert (definition.lease, definition.timeout, definition.on_failure) == (30 * SECOND, None, OnFailure.ABORT)
    llm, tool, gate = definition.steps
    assert (llm.executor, llm.timeout) == (Handler(name="LLM"), 30 * SECOND)
    assert (llm.retry.max_attempts, llm.retry.backoff, llm.retry.initial) == (3, Backoff.EXPONENTIAL, 4 * SECOND)
    assert (llm.retry.factor, llm.retry.max, llm.retry.jitter) == (2.0, None, 0.0)
    assert set(llm.retry.on) == RETRIED_BY_DEFAULT
    assert tool.timeout == 90 * SECOND
    assert gate.approval is not None
    assert gate.approval.deadline is None
    assert [step.undo for step in definition.steps] == [None] * 3
    assert [step.order for step in definition.steps] == [1, 2, 3]


def test_what_is_written_takes_the_place_of_the_defaults() -> None:
    definition = accepted(
        "run",
        """
        template_name: quick
        version: 4
        priority: 7
        max_attempts: 5
        retry_base_delay: 500ms
        reclaim_after: 5m
        default_step_timeout: 2m
        steps: [{position: 0, name: LLM}, {position: 1, name: TOOL}]
        """,
    )
    assert (definition.name, definition.version, definition.priority, definition.lease) == (
        "quick",
        4,
        7,
        300 * SECOND,
    )
    (llm, tool) = definition.steps
    assert (llm.retry.max_attempts, llm.retry.initial, tool.timeout) == (5, SECOND, 120 * SECOND)


def test_each_step_waits_for_success_of_the_one_before() -> None:
    """001 Ordering: all earlier steps are already SUCCEEDED; a skip would not do."""
    steps = accepted("run", DEFAULT).steps
    assert [step.depends_on for step in steps] == [
        (),
        (Dependency(step="LLM", allow=(StepState.SUCCEEDED,)),),
        (Dependency(step="TOOL", allow=(StepState.SUCCEEDED,)),),
    ]


def test_a_name_that_comes_again_is_another_step_of_the_same_handler() -> None:
    text = "name: twice\nsteps: [{position: 1, name: LLM}, {position: 2, name: LLM}, {position: 3, name: LLM-2}]"
    steps = accepted("run", text).steps
    assert [step.name for step in steps] == ["LLM", "LLM-3", "LLM-2"]
    assert [step.executor for step in steps] == [Handler(name="LLM"), Handler(name="LLM"), Handler(name="LLM-2")]
    assert len(set(distinct(["a", "a", "a-2", "a", "a-3", "a-2"]))) == 6


def test_where_a_handler_runs_is_its_own_business_and_when_it_is_retried_is_not() -> None:
    registry = Registry()
    for name in ("LLM", "TOOL"):
        registry.register(HandlerSpec(name=name, function=print, timeout=SECOND, queue="gpu", capabilities=("cuda",)))
    step = accepted("run", DEFAULT, registry).steps[0]
    assert (step.queue, step.capabilities, step.timeout) == ("gpu", ("cuda",), 30 * SECOND)


def test_all_mistakes_are_told_at_once_each_at_its_place() -> None:
    text = """\
template: default
nam: x
max_attempts: 11
retry_base_delay: 2
reclaim_after: 10ms
steps:
  - {position: 1, name: LLM, timeout: 3}
  - {position: 1, name: "no spaces"}
  - {name: TOOL}
  - {position: two, name: TOOL}
  - {position: 4, name: TOOL, timeout_seconds: 0}
"""
    assert problems("run", text) == [
        "doc.yaml:2:1: There is no key `nam` here. Did you mean `name`?",
        "doc.yaml:3:15: `max_attempts` must be at most 10, not 11.",
        "doc.yaml:4:19: `retry_base_delay`: 2 has no unit, so it could be seconds or milliseconds. Write 2s or 2ms.",
        "doc.yaml:5:16: `reclaim_after` must be from 1s to 1d, not `10ms`.",
        "doc.yaml:7:30: There is no key `timeout` here. Did you mean `timeout_seconds`?",
        "doc.yaml:8:16: Position 1 is taken already. Give each step a position of its own.",
        f"doc.yaml:8:25: `name` cannot be `no spaces`: use {WORD_RULE}.",
        "doc.yaml:9:5: `position` is missing. Add `position: …`.",
        "doc.yaml:10:16: `position` must be a whole number, not text.",
        "doc.yaml:11:48: `timeout_seconds` must be at least 1, not 0.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps: [{position: 1, name: A}]", "`template` is missing."),
        ("template: a\nname: b\nsteps: [{position: 1, name: A}]", "named twice, by `template` and `name`"),
        ("template:\nsteps: [{position: 1, name: A}]", "`template` is empty."),
        ("template: a", "`steps` is missing."),
        ("template: a\nsteps: []", "`steps` must not be empty."),
        ("template: a\nsteps: [{position: 2, name: A}]", "The first position is 2. Positions begin at 1."),
        (
            "template: a\nsteps: [{position: 1, name: A}, {position: 3, name: B}]",
            "Position 3 follows position 1. Positions have no gaps: write 2.",
        ),
        ("template: a\nsteps: [{position: -1, name: A}]", "`position` must be at least 0, not -1."),
        ("- template", "A template is a mapping that begins with `template: NAME`."),
    ],
)
def test_each_mistake_is_told_in_words(text: str, said: str) -> None:
    assert any(said in problem for problem in problems("run", text)), problems("run", text)


def test_a_handler_that_nobody_registered_is_told_where_it_is_named() -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="LLM", function=print))
    assert problems("run", DEFAULT, registry) == ["doc.yaml:5:25: There is no handler `TOOL`. " + LOAD_IT]


def test_a_gate_that_cannot_do_what_is_asked_of_it_is_advised_about() -> None:
    text = "template: a\nsteps: [{position: 1, name: APPROVAL, timeout_seconds: 5}, {position: 2, name: Approval}]"
    said = [str(warning) for warning in examined("run", text).warnings]
    assert len(said) == 2
    assert "`timeout_seconds` of APPROVAL does nothing" in said[0]
    assert "only `APPROVAL` is a gate" in said[1]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        7,
        {},
        {"steps": None},
        {"steps": {}},
        {"template": [], "steps": [None, 1, "x", []]},
        {"template": "a", "steps": [{"position": True, "name": {}}]},
        {"template": "a", "steps": [{"position": 10**30, "name": "A"}]},
        {"template": "a", "steps": [{"position": 1, "name": "A", "timeout_seconds": 1.5}]},
        {"template": "a" * 10_000, "steps": [{"position": 1, "name": "B" * 10_000}]},
        {"template": "a", "steps": [{"position": no, "name": "A"} for no in range(1, 10_002)]},
        {"template": "a", "steps": [{"position": 1}] * 2_000},
    ],
    ids=lambda data: repr(data)[:40],
)
def test_nothing_that_can_be_written_makes_a_traceback(data: Any) -> None:
    class Anywhere:
        def problem(self, path: Any, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Any:
            from stepkeep.kernel.errors import Problem

            return Problem(file="f", line=1, column=1, path=str(path), message=message, hint=hint)

    front = dialect("run").front
    assert front.recognises(data) in (True, False)
    report = front.examine(data, Anywhere(), Registry())
    assert report.definition is None
    assert 0 < len(report.problems) <= 51


def test_ten_thousand_steps_are_as_good_as_three() -> None:
    rows = "".join(f"  - {{position: {no}, name: A}}\n" for no in range(1, 10_001))
    steps = accepted("run", f"template: long\nsteps:\n{rows}").steps
    assert len({step.name for step in steps}) == 10_000
    assert max(len(step.name) for step in steps) <= 63


def test_the_format_is_recognised_and_no_other_is_taken_for_it() -> None:
    assert recognise(yaml.safe_load(DEFAULT)) == "run"
    assert recognise({"name": "a", "steps": [{"position": 1, "name": "LLM"}]}) == "run"
    assert recognise({"workflow": "a", "steps": [{"name": "x", "uses": "y"}]}) == "native"
    assert recognise({"workflowType": "a", "steps": ["x"]}) == "linear"
    assert not dialect("run").front.recognises({"name": "a", "steps": [{"name": "x"}]})


def test_the_published_schema_is_up_to_date_and_the_example_follows_it() -> None:
    published = dialect("run").schema
    assert json.dumps(published) == json.dumps(json.loads(FRONT.schema_text())), (
        "python -m stepkeep.dialects.format run"
    )
    validator = jsonschema_rs.validator_for(published)
    for text in (DEFAULT, (EXAMPLES / "run.yaml").read_text()):
        assert [str(error) for error in validator.iter_errors(yaml.safe_load(text))] == []
    assert not validator.is_valid({"template": "a", "name": "b", "steps": [{"position": 1, "name": "A"}]})
    assert not validator.is_valid({"template": "a", "steps": [{"position": 1, "name": "A", "timeout": 1}]})


def test_the_machine_alone_imports_no_front_end() -> None:
    code = "import sys, stepkeep.dialects.run.machine; print([m for m in sys.modules if m.startswith('pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- the judge can fail ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Line]]:
    """Honest logs of a run that passed, one that failed and one that was cancelled."""
    found: dict[str, list[Line]] = {}

    async def scene() -> None:
        async with on(f"sqlite:///{tmp_path_factory.mktemp('logs')}/run.db") as bench:
            definition = accepted("run", DEFAULT)
            passed = await bench.start(definition)
            await bench.work_off()
            await decide(bench, passed, approve=True)
            failed = await bench.start(definition)
            (claim,) = await bench.claim()
            await bench.report(claim, FLAKY)
            await later(bench, 4 * SECOND)
            (claim,) = await bench.claim()
            await bench.report(claim, HOPELESS)
            cancelled = await bench.start(definition)
            await bench.claim()
            await cancel(bench, cancelled)
            for name, run_id in (("passed", passed), ("failed", failed), ("cancelled", cancelled)):
                found[name] = await told(bench, run_id, "run")

    asyncio.run(scene())
    return found


def approved_too_early(forgery: Forgery) -> None:
    forgery.drop("APPROVAL", "WAITING_APPROVAL")


def approved_by_the_clock(forgery: Forgery) -> None:
    forgery.the("APPROVAL", "SUCCEEDED")["metadata"]["event"] = "time_came"


def approved_after_its_deadline(forgery: Forgery) -> None:
    forgery.the("APPROVAL", "WAITING_APPROVAL")["metadata"]["due_at"] = forgery.the("APPROVAL", "SUCCEEDED")[
        "metadata"
    ]["at"]


def reclaimed_too_early(forgery: Forgery) -> None:
    forgery.lines[[*forgery.of("LLM", "RUNNING")][1]]["metadata"]["ground"] = "reclaimed"


def claimed_by_a_worker(forgery: Forgery) -> None:
    forgery.the("APPROVAL", "WAITING_APPROVAL")["metadata"]["worker"] = "w-1"


def created_backwards(forgery: Forgery) -> None:
    last = forgery.drop("TOOL", "PENDING")
    forgery.put(forgery.the("LLM", "PENDING"), last)


def overtaken(forgery: Forgery) -> None:
    early = forgery.drop("TOOL", "RUNNING")
    forgery.put(forgery.the("LLM", "SUCCEEDED"), early)


def one_left_behind(forgery: Forgery) -> None:
    forgery.the("TOOL", "SUCCEEDED")["to_state"] = "SKIPPED"
    forgery.the("APPROVAL", "WAITING_APPROVAL")["metadata"]["order"] = 3


def one_attempt_too_many(forgery: Forgery) -> None:
    forgery.the("LLM", "RUNNING")["metadata"]["attempt"] = 4


def failed_without_failing(forgery: Forgery) -> None:
    forgery.the(None, "FAILED")["to_state"] = "CANCELED"


def failed_for_nothing(forgery: Forgery) -> None:
    forgery.the("LLM", "FAILED")["to_state"] = "CANCELED"


def moving_on_after_the_end(forgery: Forgery) -> None:
    end = forgery.drop(None, "SUCCEEDED")
    forgery.put(forgery.the("APPROVAL", "SUCCEEDED"), end)


def left_running(forgery: Forgery) -> None:
    forgery.drop("LLM", "CANCELED")


@pytest.mark.parametrize(
    ("log", "lie", "breaks"),
    [
        ("passed", approved_too_early, "approval only from WAITING_APPROVAL"),
        ("passed", approved_by_the_clock, "approval is a person's"),
        ("passed", approved_after_its_deadline, "an approval is in time"),
        ("failed", reclaimed_too_early, "a step is reclaimed when it is stale"),
        ("passed", claimed_by_a_worker, "no worker executes a gate"),
        ("passed", created_backwards, "steps are created in position order"),
        ("passed", overtaken, "a step begins when all earlier ones SUCCEEDED"),
        ("passed", one_left_behind, "a run succeeds when all its steps did"),
        ("failed", one_attempt_too_many, "attempts stay within max_attempts"),
        ("failed", failed_without_failing, "a run fails when a step does, and only then"),
        ("failed", failed_for_nothing, "a run fails when a step does, and only then"),
        ("passed", moving_on_after_the_end, "nothing moves in a run that has ended"),
        ("cancelled", left_running, "a cancel ends every step"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_invariant_finds_a_planted_lie(
    logs: dict[str, list[Line]], log: str, lie: Callable[[Forgery], None], breaks: str
) -> None:
    assert broken(logs[log], JUDGED) == {}
    forgery = Forgery(logs[log])
    lie(forgery)
    assert breaks in broken(forgery.lines, JUDGED)


def test_a_cancel_ends_what_it_waited_for_only_in_the_same_transaction(logs: dict[str, list[Line]]) -> None:
    """Found by the simulation: who cancels and waits for a step is not overruled when that step fails."""
    name = "a run fails when a step does, and only then"
    forgery = Forgery(logs["failed"])
    end = forgery.the(None, "FAILED")
    end["to_state"] = "CANCELED"
    assert name in broken(forgery.lines, JUDGED)
    end["metadata"]["because"] = "stopped_cancelled"
    assert name not in broken(forgery.lines, JUDGED)
    end["metadata"]["seq"] += 1
    assert name in broken(forgery.lines, JUDGED)


def test_every_invariant_cites_the_seed_and_is_lied_to_above() -> None:
    marks = test_each_invariant_finds_a_planted_lie.pytestmark  # type: ignore[attr-defined]
    planted = {case[2] for case in marks[0].args[1]}
    assert {invariant.name for invariant in JUDGED.invariants} == planted
    assert all(invariant.cites.startswith("001 ") for invariant in JUDGED.invariants)
    assert all(default.cites.startswith("001 ") for default in JUDGED.defaults)


# -- the words -------------------------------------------------------------------------------------------------------
async def test_a_run_reads_as_the_service_would_answer(url: str) -> None:
    async with on(url) as bench:
        text = "template: words\nsteps:" + "".join(
            f"\n  - {{position: {no}, name: {name}}}" for no, name in enumerate(("LLM", "LLM", "APPROVAL"), 1)
        )
        run_id = await bench.start(accepted("run", text))
        (claim,) = await bench.claim()
        await bench.report(claim, FLAKY)
        await later(bench, 4 * SECOND)
        for _ in range(2):
            (claim,) = await bench.claim()
            await bench.report(claim, Completed(output=b"{}", cost=b'{"usd":0.25}'))
        await decide(bench, run_id, approve=True, actor="ada")
        found = await shown(bench, run_id, "run")
        rows = [
            {"id": f"{run_id}/LLM", "name": "LLM", "status": "SUCCEEDED"},
            {"id": f"{run_id}/LLM-2", "name": "LLM", "status": "SUCCEEDED"},
            {"id": f"{run_id}/APPROVAL", "name": "APPROVAL", "status": "SUCCEEDED"},
        ]
        assert (found["id"], found["status"]) == (run_id, "SUCCEEDED")
        assert found["steps"] == {"run_id": run_id, "steps": rows}
        assert found["cost"] == {
            "run_id": run_id,
            "total_cost_usd": 0.5,
            "steps": [{**row, "cost_usd": usd} for row, usd in zip(rows, (0.25, 0.25, 0.0), strict=True)],
        }
        assert [(event["seq"], event["type"]) for event in found["events"]] == [
            (1, "STEP_CLAIMED"),
            (2, "STEP_FAILED_RETRY"),
            (3, "STEP_CLAIMED"),
            (4, "STEP_SUCCEEDED"),
            (5, "STEP_CLAIMED"),
            (6, "STEP_SUCCEEDED"),
            (7, "STEP_WAITING_APPROVAL"),
            (8, "STEP_APPROVED"),
            (9, "RUN_APPROVED"),
        ]
        by_type = {event["type"]: event for event in found["events"]}
        retry = by_type["STEP_FAILED_RETRY"]["payload"]
        assert {**retry, "next_run_at": None} == {
            "status": "PENDING",
            "step": "LLM",
            "error": "the line is bad",
            "attempt": 1,
            "max_attempts": 3,
            "next_run_at": None,
        }
        assert retry["next_run_at"] > by_type["STEP_FAILED_RETRY"]["created_at"]
        assert set(by_type["STEP_CLAIMED"]["payload"]) == {
            "status",
            "step",
            "reclaimed",
            "previous",
            "api_key_id",
            "claimed_at",
        }
        assert by_type["STEP_SUCCEEDED"]["payload"] == {"status": "SUCCEEDED", "step": "LLM", "cost": 0.25}
        assert by_type["RUN_APPROVED"]["payload"] == {"approved_by": "ada"}
        assert (by_type["RUN_APPROVED"]["step_id"], by_type["STEP_APPROVED"]["step_id"]) == (None, rows[2]["id"])


async def test_failures_and_cancels_are_told_as_events(url: str) -> None:
    async with on(url) as bench:
        definition = accepted("run", DEFAULT)
        failed = await bench.start(definition)
        (claim,) = await bench.claim()
        await bench.report(claim, HOPELESS)
        last = (await shown(bench, failed, "run"))["events"][-1]
        assert last["type"] == "STEP_FAILED"
        assert last["payload"] == {
            "status": "FAILED",
            "step": "LLM",
            "error": "no such customer",
            "attempt": 1,
            "max_attempts": 3,
        }
        cancelled = await bench.start(definition)
        await cancel(bench, cancelled)
        (only,) = (await shown(bench, cancelled, "run"))["events"]
        assert (only["type"], only["payload"]) == (
            "RUN_CANCELED",
            {"reason": "user_request", "canceled_by": "tester"},
        )


async def test_a_native_run_can_be_read_in_these_words(url: str) -> None:
    """The extension SKIPPED, and names that are the steps' own."""
    text = """
        {"workflow": "mixed", "steps": [
          {"name": "look", "uses": "noop", "if": "${{ input.go }}"},
          {"name": "act", "uses": "noop"}]}
    """

    async with on(url) as bench:
        from stepkeep.definition.native.reader import load_text

        run_id = await bench.start(load_text(text, "m.json"), b'{"go": false}')
        await bench.work_off()
        lines = await told(bench, run_id, "run")
        assert path(lines, "look") == "PENDING SKIPPED"
        found = await shown(bench, run_id, "run")
        assert found["status"] == "SUCCEEDED"
        assert [step["name"] for step in found["steps"]["steps"]] == ["look", "act"]


# -- the service around it -------------------------------------------------------------------------------------------
def registry_of(*names: str) -> Registry:
    registry = Registry()
    for name in names:
        registry.register(HandlerSpec(name=name, function=lambda: {"ok": True}))
    return registry


async def test_one_key_makes_one_run(database_url: str) -> None:
    """001 Idempotent run creation."""

    definition = accepted("run", DEFAULT)
    async with AsyncEngine(database_url, registry=registry_of("LLM", "TOOL")) as engine:
        first, again = await asyncio.gather(
            engine.start(definition, {"a": 1}, idempotency_key="k-1"),
            engine.start(definition, {"a": 1}, idempotency_key="k-1"),
        )
        assert first.run_id == again.run_id
        assert sorted([first.created, again.created]) == [False, True]
        with pytest.raises(KeyReused, match="another body"):
            await engine.start(definition, {"a": 2}, idempotency_key="k-1")
        assert len((await engine.runs())["runs"]) == 1
    async with AsyncEngine(database_url, tenant="other") as other:
        elsewhere = await other.start(definition, {"a": 2}, idempotency_key="k-1")
        assert elsewhere.created
        assert elsewhere.run_id != first.run_id


async def test_another_tenants_run_does_not_exist(database_url: str) -> None:
    """001 Tenant isolation: get, list, cancel and approve answer as if there were no such run."""

    async with (
        AsyncEngine(database_url, tenant="ours", registry=registry_of("LLM", "TOOL")) as ours,
        AsyncEngine(database_url, tenant="theirs", registry=registry_of("LLM", "TOOL")) as theirs,
    ):
        result = await ours.run(accepted("run", DEFAULT))
        assert result.state is RunState.BLOCKED
        run_id = result.id
        attempts: list[Callable[[], Any]] = [
            lambda: theirs.show(run_id),
            lambda: theirs.show(run_id, as_="run"),
            lambda: theirs.cancel(run_id),
            lambda: theirs.approve(run_id),
            lambda: theirs.approve(run_id, "APPROVAL"),
            lambda: theirs.reject(run_id),
            lambda: theirs.send(run_id, "hello"),
            lambda: theirs.rerun(run_id),
        ]
        for attempt in attempts:
            with pytest.raises(NotFound):
                await attempt()
        with pytest.raises(NotFound):
            async for _ in export_run(theirs.transactor, run_id, tenant="theirs"):
                pass
        assert (await theirs.runs())["runs"] == []
        assert (await ours.runs(as_="run"))["runs"] == [{"id": run_id, "status": "WAITING_APPROVAL"}]
        assert (await ours.approve(run_id))["repeated"] is False
        assert (await ours.show(run_id, as_="run"))["status"] == "SUCCEEDED"


# -- the example -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "status", "tool"),
    [
        ({"topic": "leases"}, "WAITING_APPROVAL", ["SUCCEEDED"]),
        ({"flaky_at": "TOOL"}, "WAITING_APPROVAL", ["PENDING", "SUCCEEDED"]),
        ({"fail_at": "TOOL"}, "FAILED", ["FAILED"]),
        ({"slow_at": "TOOL"}, "FAILED", ["PENDING", "PENDING", "FAILED"]),
    ],
    ids=["success", "retry", "failure", "timeout"],
)
async def test_the_example_does_what_it_says(url: str, given: dict[str, str], status: str, tool: list[str]) -> None:
    load_app(str(EXAMPLES / "run_handlers.py"))
    async with AsyncEngine(url) as engine:
        report = check_file(EXAMPLES / "run.yaml", engine.registry)
        assert (report.problems, report.warnings) == ((), ())
        assert report.definition is not None
        result = await engine.run(report.definition, given)
        assert (await engine.show(result.id, as_="run"))["status"] == status
        lines = [line async for line in export_run(engine.transactor, result.id, tenant="default", dialect="run")]
        ends = [
            line["to_state"]
            for line in lines
            if line["metadata"].get("step") == "TOOL" and line["from_state"] == "RUNNING"
        ]
        assert ends == tool
        if status == "WAITING_APPROVAL":
            await engine.cancel(result.id)
            assert (await engine.show(result.id, as_="run"))["status"] == "CANCELED"
