"""Seed 002's format, words and judge: step types in, every default spelled out, every mistake at its line, every
invariant able to fail; and handlers that complete, wait, retry and die on a real worker."""

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
    later,
    on,
    problems,
    send,
    told,
)
from tests.workbench import SECOND

from stepkeep.definition.findings import LOAD_IT
from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.dialects.chains import WORD_RULE
from stepkeep.dialects.linear.front import FRONT
from stepkeep.dialects.linear.machine import JUDGED
from stepkeep.dialects.registry import check_file, dialect, recognise
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.definition import Backoff, Dependency, Handler
from stepkeep.kernel.errors import Problem
from stepkeep.kernel.machine.outcomes import Waiting
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, OnFailure, RunState, StepState
from stepkeep.operations.pipeline.expire import sweep

ORDER = """
workflowType: order.process
steps: [VALIDATE, PAY, SHIP]
"""

WAITS = Waiting(event="payment.settled", timeout=60 * SECOND)


# -- the format ------------------------------------------------------------------------------------------------------
def test_every_default_is_spelled_out() -> None:
    """002 retry policy, lease and sequence; design section 4."""
    definition = accepted("linear", ORDER)
    assert (definition.name, definition.version, definition.dialect) == ("order.process", 1, "linear")
    assert (definition.lease, definition.timeout, definition.on_failure) == (30 * SECOND, None, OnFailure.ABORT)
    for seq, step in enumerate(definition.steps):
        assert step.order == seq
        assert (step.retry.max_attempts, step.retry.backoff) == (10, Backoff.EXPONENTIAL)
        assert (step.retry.initial, step.retry.factor, step.retry.max) == (SECOND, 2.0, 300 * SECOND)
        assert set(step.retry.on) == RETRIED_BY_DEFAULT
        assert (step.timeout, step.undo) == (300 * SECOND, None)
    assert [step.executor for step in definition.steps] == [Handler(name=name) for name in ("VALIDATE", "PAY", "SHIP")]
    assert [step.depends_on for step in definition.steps] == [
        (),
        (Dependency(step="VALIDATE", allow=(StepState.SUCCEEDED,)),),
        (Dependency(step="PAY", allow=(StepState.SUCCEEDED,)),),
    ]


def test_a_step_says_field_by_field_what_differs_from_the_workflow() -> None:
    definition = accepted(
        "linear",
        """
        workflowType: order.process
        workflowVersion: 7
        leaseSeconds: 5
        retryPolicy: {maxAttempts: 4, baseBackoffMs: 10}
        steps:
          - VALIDATE
          - {stepType: PAY, retryPolicy: {maxAttempts: 2, maxBackoffMs: 40}, timeoutMs: 1500}
          - {stepType: SHIP, handler: "warehouse.ship", description: out it goes}
        """,
    )
    assert (definition.version, definition.lease) == (7, 5 * SECOND)
    validate, pay, ship = definition.steps
    assert (validate.retry.max_attempts, validate.retry.initial, validate.retry.max) == (4, 10_000, 300 * SECOND)
    assert (pay.retry.max_attempts, pay.retry.initial, pay.retry.max, pay.timeout) == (2, 10_000, 40_000, 1_500_000)
    assert (ship.name, ship.executor, ship.description) == ("SHIP", Handler(name="warehouse.ship"), "out it goes")


def test_a_step_type_may_come_again_and_is_the_same_handler() -> None:
    """002 Terminology: stepSeq tells steps apart, stepType names the code."""
    definition = accepted("linear", "workflowType: a\nsteps: [CALL, WAIT, CALL]")
    assert [step.name for step in definition.steps] == ["CALL", "WAIT", "CALL-2"]
    assert [step.executor for step in definition.steps] == [Handler(name=name) for name in ("CALL", "WAIT", "CALL")]
    assert definition.about["stepTypes"] == {"CALL": "CALL", "WAIT": "WAIT", "CALL-2": "CALL"}


def test_the_handler_never_hangs_on_what_else_is_registered() -> None:
    registry = Registry()
    for name in ("VALIDATE", "PAY", "SHIP", "order.process.SHIP"):
        registry.register(HandlerSpec(name=name, function=print, queue="warehouse"))
    with_code, without = accepted("linear", ORDER, registry), accepted("linear", ORDER)
    assert [step.executor for step in with_code.steps] == [step.executor for step in without.steps]
    assert with_code.steps[0].queue == "warehouse"


def test_all_mistakes_are_told_at_once_each_at_its_place() -> None:
    text = """\
workflowType: order process
workflowVersion: 0
lease: 30
retryPolicy: {maxAttempts: 11, baseBackoffMs: 9, maxBackoffMs: 5, jitter: 1}
steps:
  - VALI DATE
  - {type: PAY}
  - {stepType: SHIP, timeoutMs: 5s, retryPolicy: {maxBackoffMs: 3}}
  - 7
"""
    cap = "Write a cap that is not below the first pause."
    assert problems("linear", text) == [
        (
            "doc.yaml:1:15: `workflowType` cannot be `order process`. Use letters, digits, `_`, `.` and `-`, starting "
            "with a letter or digit, at most 63 characters."
        ),
        "doc.yaml:2:18: `workflowVersion` must be at least 1, not 0.",
        (
            "doc.yaml:3:1: There is no key `lease` here. Known keys: workflowType, workflowVersion, description, "
            "retryPolicy, leaseSeconds, steps."
        ),
        f"doc.yaml:4:14: `baseBackoffMs` is 9 and more than `maxBackoffMs`, 5. {cap}",
        "doc.yaml:4:28: `maxAttempts` must be at most 10, not 11.",
        "doc.yaml:4:67: There is no key `jitter` here. Known keys: maxAttempts, baseBackoffMs, maxBackoffMs.",
        f"doc.yaml:6:5: Step 1 cannot be `VALI DATE`: use {WORD_RULE}.",
        "doc.yaml:7:5: `stepType` is missing. Add `stepType: …`.",
        "doc.yaml:7:6: There is no key `type` here. Did you mean `stepType`?",
        "doc.yaml:8:33: `timeoutMs` must be a whole number, not text.",
        f"doc.yaml:8:50: `baseBackoffMs` is 9 and more than `maxBackoffMs`, 3. {cap}",
        "doc.yaml:9:5: Step 4 must be a step type, or a mapping with `stepType`.",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workflowType: a", "`steps` is missing."),
        ("workflowType: a\nsteps: []", "`steps` must not be empty."),
        ("workflowType: a\nsteps: ['']", "Step 1 must not be empty"),
        ("workflowType: ''\nsteps: [A]", "`workflowType` cannot be"),
        ("steps: [A]", "`workflowType` is missing."),
        ("- A", "A linear workflow is a mapping that begins with `workflowType: NAME`."),
    ],
)
def test_each_mistake_is_told_in_words(text: str, said: str) -> None:
    assert any(said in problem for problem in problems("linear", text)), problems("linear", text)


def test_a_handler_that_nobody_registered_is_told_where_it_is_named() -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="VALIDATE", function=print))
    text = "workflowType: a\nsteps:\n  - VALIDATE\n  - VALIDAT\n  - {stepType: SHIP, handler: ships.go}\n"
    assert problems("linear", text, registry) == [
        "doc.yaml:4:5: There is no handler `VALIDAT`. Did you mean `VALIDATE`?",
        "doc.yaml:5:31: There is no handler `ships.go`. " + LOAD_IT,
    ]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        7,
        {},
        {"workflowType": None},
        {"workflowType": {}, "steps": {}},
        {"workflowType": "a", "steps": [None, 1, [], {}, {"stepType": {}}, {"stepType": "A", "handler": []}]},
        {"workflowType": "a", "steps": ["A"], "retryPolicy": []},
        {"workflowType": "a", "steps": [{"stepType": "A", "retryPolicy": {"baseBackoffMs": 10**40}}]},
        {"workflowType": "a", "steps": ["A"] * 10_001},
        {"workflowType": "a", "steps": [7] * 2_000},
    ],
    ids=lambda data: repr(data)[:40],
)
def test_nothing_that_can_be_written_makes_a_traceback(data: Any) -> None:
    class Anywhere:
        def problem(self, path: Any, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem:
            return Problem(file="f", line=1, column=1, path=str(path), message=message, hint=hint)

    front = dialect("linear").front
    assert front.recognises(data) in (True, False)
    report = front.examine(data, Anywhere(), Registry())
    assert report.definition is None
    assert 0 < len(report.problems) <= 51


def test_the_format_is_recognised_by_its_type() -> None:
    assert recognise(yaml.safe_load(ORDER)) == "linear"
    assert not dialect("linear").front.recognises({"workflow": "a", "steps": []})


def test_the_published_schema_is_up_to_date_and_the_example_follows_it() -> None:
    published = dialect("linear").schema
    assert json.dumps(published) == json.dumps(json.loads(FRONT.schema_text())), (
        "python -m stepkeep.dialects.format linear"
    )
    validator = jsonschema_rs.validator_for(published)
    for text in (ORDER, (EXAMPLES / "linear.yaml").read_text()):
        assert [str(error) for error in validator.iter_errors(yaml.safe_load(text))] == []
    assert not validator.is_valid({"workflowType": "a", "steps": [{"type": "A"}]})
    assert not validator.is_valid({"workflowType": "a", "steps": []})


def test_the_machine_alone_imports_no_front_end() -> None:
    code = "import sys, stepkeep.dialects.linear.machine; print([m for m in sys.modules if m.startswith('pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- the judge can fail ----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Line]]:
    """Honest logs of an instance that completed (after a wait and a retry), one that died, one that was cancelled."""
    found: dict[str, list[Line]] = {}

    async def scene() -> None:
        async with on(f"sqlite:///{tmp_path_factory.mktemp('logs')}/linear.db") as bench:
            definition = accepted("linear", ORDER)
            completed = await bench.start(definition)
            for outcome in (WAITS, FLAKY, None, None, None):
                (claim,) = await bench.claim()
                await bench.report(claim, outcome)
                if outcome is WAITS:
                    await send(bench, completed, "payment.settled")
                await later(bench, SECOND)
            failed = await bench.start(definition)
            (claim,) = await bench.claim()
            await bench.report(claim, HOPELESS)
            cancelled = await bench.start(definition)
            await cancel(bench, cancelled)
            for name, run_id in (("completed", completed), ("failed", failed), ("cancelled", cancelled)):
                found[name] = await told(bench, run_id, "linear")

    asyncio.run(scene())
    return found


def inserted_late(forgery: Forgery) -> None:
    late = forgery.drop("SHIP", "PENDING")
    forgery.put(forgery.the("VALIDATE", "RUNNING"), late)


def numbered_wrongly(forgery: Forgery) -> None:
    forgery.the("PAY", "PENDING")["metadata"]["order"] = 4


def started_with_too_few(forgery: Forgery) -> None:
    forgery.the(None, "RUNNING")["metadata"]["steps"] = 4


def never_activated(forgery: Forgery) -> None:
    forgery.lines = [
        line for line in forgery.lines if line["to_state"] not in ("READY", "RUNNING") or "step" not in line["metadata"]
    ]
    forgery.lines = [
        line for line in forgery.lines if line["metadata"].get("step") != "VALIDATE" or line["from_state"] is None
    ]


def two_at_once(forgery: Forgery) -> None:
    early = forgery.drop("PAY", "READY")
    forgery.put(forgery.the("VALIDATE", "DONE"), early)


def out_of_turn(forgery: Forgery) -> None:
    forgery.drop("VALIDATE", "DONE")


def jumping(forgery: Forgery) -> None:
    for place in [*forgery.of("PAY")][::-1]:
        if forgery.lines[place]["from_state"] is not None:
            forgery.lines.pop(place)


def run_without_a_claim(forgery: Forgery) -> None:
    del forgery.the("PAY", "RUNNING")["metadata"]["worker"]


def claimed_under_an_old_fence(forgery: Forgery) -> None:
    second = [*forgery.of("VALIDATE", "RUNNING")][1]
    forgery.lines[second]["metadata"]["fence"] = 1


def recovered_too_early(forgery: Forgery) -> None:
    forgery.lines[[*forgery.of("VALIDATE", "READY")][2]]["metadata"]["because"] = "lease_lost"


def timed_out_too_early(forgery: Forgery) -> None:
    forgery.lines.pop([*forgery.of("VALIDATE", "READY")][1])


def heard_too_late(forgery: Forgery) -> None:
    said = forgery.lines[[*forgery.of("VALIDATE", "READY")][1]]["metadata"]
    forgery.the("VALIDATE", "WAITING")["metadata"]["due_at"] = said["at"]
    said["event"] = "completion_signalled"


def written_by_another(forgery: Forgery) -> None:
    forgery.the("PAY", "DONE")["metadata"]["fence"] = 9


def completed_too_early(forgery: Forgery) -> None:
    forgery.drop("SHIP", "DONE")


def retried_once_too_often(forgery: Forgery) -> None:
    forgery.lines[[*forgery.of("VALIDATE", "READY")][2]]["metadata"]["attempt"] = 10


def dead_and_running(forgery: Forgery) -> None:
    forgery.drop(None, "FAILED")


def failed_for_nothing(forgery: Forgery) -> None:
    forgery.drop("VALIDATE", "DEAD")


def moving_on_after_the_end(forgery: Forgery) -> None:
    end = forgery.drop(None, "COMPLETED")
    forgery.put(forgery.the("SHIP", "DONE"), end)


@pytest.mark.parametrize(
    ("log", "lie", "breaks"),
    [
        ("completed", inserted_late, "all steps are inserted before the start"),
        ("completed", numbered_wrongly, "all steps are inserted before the start"),
        ("completed", started_with_too_few, "all steps are inserted before the start"),
        ("completed", never_activated, "the first step is activated by the start"),
        ("completed", two_at_once, "one step is active at a time"),
        ("completed", out_of_turn, "a step is activated when the one before is DONE"),
        ("completed", jumping, "current_step_seq moves by one"),
        ("completed", run_without_a_claim, "RUNNING is reached by a claim alone"),
        ("completed", claimed_under_an_old_fence, "RUNNING is reached by a claim alone"),
        ("completed", recovered_too_early, "a lease is recovered when it has expired"),
        ("completed", timed_out_too_early, "a wait times out at its deadline"),
        ("completed", heard_too_late, "what comes after the deadline does not count"),
        ("completed", written_by_another, "only the holder of the lease writes"),
        ("completed", completed_too_early, "COMPLETED means that all steps are DONE"),
        ("completed", retried_once_too_often, "retries respect max_attempts"),
        ("failed", dead_and_running, "a DEAD step fails its instance at once"),
        ("failed", failed_for_nothing, "a DEAD step fails its instance at once"),
        ("completed", moving_on_after_the_end, "nothing moves in an instance that has ended"),
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
    name = "a DEAD step fails its instance at once"
    forgery = Forgery(logs["failed"])
    end = forgery.the(None, "FAILED")
    end["to_state"] = "CANCELED"
    assert name in broken(forgery.lines, JUDGED)
    end["metadata"]["because"] = "stopped_cancelled"
    assert name not in broken(forgery.lines, JUDGED)
    end["metadata"]["seq"] += 1
    assert name in broken(forgery.lines, JUDGED)


def test_every_invariant_cites_the_seed_and_is_lied_to_above(logs: dict[str, list[Line]]) -> None:
    marks = test_each_invariant_finds_a_planted_lie.pytestmark  # type: ignore[attr-defined]
    planted = {case[2] for case in marks[0].args[1]}
    assert {invariant.name for invariant in JUDGED.invariants} == planted
    assert all(invariant.cites.startswith("002 ") for invariant in JUDGED.invariants)
    assert all(default.cites.startswith("002 ") for default in JUDGED.defaults)
    assert broken(logs["cancelled"], JUDGED) == {}


# -- the example, on a real worker -----------------------------------------------------------------------------------
async def order(engine: AsyncEngine, given: dict[str, Any]) -> str:
    load_app(str(EXAMPLES / "linear_handlers.py"))
    report = check_file(EXAMPLES / "linear.yaml", engine.registry)
    assert (report.problems, report.warnings) == ((), ())
    assert report.definition is not None
    return (await engine.run(report.definition, given, business_key=given["order"])).id


async def statuses(engine: AsyncEngine, run_id: str) -> tuple[str, list[str]]:
    found = await engine.show(run_id, as_="linear")
    return found["workflow_instance"]["status"], [row["status"] for row in found["workflow_step"]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/linear.db"


async def test_the_example_waits_for_its_payment_and_completes(database_url: str) -> None:
    """002 end-to-end lifecycle, with the wake-up handed to the handler."""

    async with AsyncEngine(database_url) as engine:
        run_id = await order(engine, {"order": "o-7"})
        assert await statuses(engine, run_id) == ("RUNNING", ["DONE", "WAITING", "PENDING"])
        (event,) = await engine.store.read_outbox("default", run_id)
        assert event.name == "payment.requested"
        await engine.send(run_id, "payment.settled", {"amount": 120})
        result = await engine.work_on(run_id)
        assert result.state is RunState.SUCCEEDED
        assert await statuses(engine, run_id) == ("COMPLETED", ["DONE"] * 3)
        assert (await engine.show(run_id))["steps"][1]["output"] == {"paid": {"amount": 120}}


async def test_the_example_hands_the_timeout_of_its_wait_to_the_handler(url: str) -> None:
    """002 3) taskType = WAITING_TIMEOUT."""

    async with AsyncEngine(url) as engine:
        run_id = await order(engine, {"order": "o-7", "patience": "1h"})
        engine.store.clock_offset = 3601 * SECOND
        await sweep(engine.transactor)
        result = await engine.work_on(run_id)
        assert result.error == "no payment came for o-7 within 1h"
        assert await statuses(engine, run_id) == ("FAILED", ["DONE", "DEAD", "CANCELED"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fail_at": "VALIDATE"}, ("FAILED", ["DEAD", "CANCELED", "CANCELED"])),
        ({"flaky_at": "VALIDATE"}, ("RUNNING", ["DONE", "WAITING", "PENDING"])),
    ],
    ids=["Dead", "Retry"],
)
async def test_the_example_does_what_it_says(url: str, given: dict[str, str], expected: tuple[str, list[str]]) -> None:
    async with AsyncEngine(url) as engine:
        run_id = await order(engine, {"order": "o-7", **given})
        assert await statuses(engine, run_id) == expected
        tried = (await engine.show(run_id, as_="linear"))["workflow_step"][0]
        assert tried["attempts"] == 1
        if expected[0] == "RUNNING":
            await engine.cancel(run_id)
            assert (await statuses(engine, run_id))[0] == "CANCELED"
        rows = (await engine.runs(as_="linear"))["runs"]
        assert [(row["instance_id"], row["biz_key"], row["workflow_type"]) for row in rows] == [
            (run_id, "o-7", "order.process")
        ]
