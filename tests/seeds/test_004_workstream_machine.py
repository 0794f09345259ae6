"""Seed 004's tables, and that the engine keeps to them: refinement, forbidden arrows, and invariants that can fail."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.exploration import refined
from tests.seeds.workstream import BROKEN, HOLDS, RULE, Line, broken_by, judged, on_floor, task, workstream

from stepkeep.dialects.machine import ANY, MachineView
from stepkeep.dialects.workstream.machine import DEFAULTS, JUDGED, RUN, STEP, WORKER

# The seed's drawings, written down a second time: (from, to, trigger).
TASK_ARROWS = """
    [*] pending created; pending queued scheduler_assigned; queued running worker_started;
    running validating execution_completed; running retrying execution_failed; running failed execution_failed;
    running cancelled user_cancelled; retrying queued retry_delay_elapsed; validating completed validation_passed;
    validating failed validation_failed
"""
WORKSTREAM_ARROWS = """
    [*] planned created; planned ready all_tasks_created; ready executing first_task_started;
    executing validating all_tasks_completed; executing failed critical_task_failed;
    validating completed validation_passed; validating failed validation_failed; planned cancelled user_cancelled;
    ready cancelled user_cancelled; executing cancelled user_cancelled
"""
WORKER_ARROWS = """
    [*] initializing created; initializing idle registration_complete; idle busy task_assigned;
    busy idle task_completed; busy unresponsive health_check_timeout; unresponsive idle health_check_recovered;
    unresponsive shutdown max_timeout_exceeded; idle shutdown shutdown_requested; busy shutdown shutdown_requested
"""
TERMINAL = {"task": {"completed", "failed", "cancelled"}, "workstream": {"completed", "failed", "cancelled"}}
TERMINAL["worker"] = {"shutdown"}


@pytest.mark.parametrize(
    ("view", "drawn"), [(STEP, TASK_ARROWS), (RUN, WORKSTREAM_ARROWS), (WORKER, WORKER_ARROWS)], ids=lambda one: ""
)
def test_each_machine_is_the_one_that_the_seed_draws(view: MachineView, drawn: str) -> None:
    """Task, Workstream and Worker: States, Transitions."""
    expected = {tuple(row.split()) for row in drawn.split(";")}
    assert {(arrow.source or "[*]", arrow.target, arrow.trigger) for arrow in view.arrows} == expected
    assert set(view.states) == {state for source, target, _ in expected for state in (source, target)} - {"[*]"}
    assert set(view.terminal) == TERMINAL[view.noun]
    assert view.extra == {}, "no state is shown that the seed does not have"
    assert {ruled.source for ruled in view.forbidden if ruled.target == ANY} == set(view.terminal)
    assert all(arrow.cites.startswith("004 ") for arrow in view.arrows)


def test_the_engine_refines_all_three_machines_and_every_extension_is_needed() -> None:
    """Design section 1: every canonical transition is a legal arrow, a stutter, or on the closed list."""
    found = refined(JUDGED)
    assert found.breaches == ()
    listed = {view.noun: [(one.source, one.target) for one in view.extensions] for view in JUDGED.views}
    assert listed == {
        "workstream": [
            ("ready", "executing"), ("executing", "validating"), ("executing", "failed"), ("executing", "failed"),
            ("validating", "failed"), ("ready", "failed"), ("validating", "cancelled"),
        ],
        "task": [
            ("pending", "cancelled"), ("queued", "cancelled"), ("retrying", "cancelled"), ("validating", "cancelled"),
            ("running", "queued"), ("running", "failed"), ("running", "failed"), ("running", "cancelled"),
            ("running", "validating"), ("validating", "failed"), ("queued", "validating"), ("queued", "failed"),
            ("pending", "validating"), ("pending", "queued"), ("pending", "completed"),
            ("pending", "failed"), ("retrying", "failed"), ("retrying", "validating"), ("retrying", "completed"),
            ("running", "completed"), (None, "completed"), (None, "cancelled"),
        ],
        "worker": [("idle", "unresponsive"), ("initializing", "shutdown")],
    }  # fmt: skip


def test_every_arrow_of_the_seed_is_one_that_the_engine_can_take() -> None:
    shown = refined(JUDGED).shown
    for name, view in (("step", STEP), ("run", RUN), ("worker", WORKER)):
        assert {(arrow.source, arrow.target) for arrow in view.arrows} <= shown[name]


def test_every_reason_and_every_default_says_something() -> None:
    assert all(len(one.reason) > 40 for view in JUDGED.views for one in view.extensions)
    assert len({one.question for one in DEFAULTS}) == len(DEFAULTS) >= 12


def test_the_machines_are_imported_without_the_front_end() -> None:
    said = "import sys, stepkeep.dialects.workstream.machine as m; print(m.JUDGED.name, 'pydantic' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["workstream", "False"]


# -- a log that the invariants hold for, to be tampered with ---------------------------------------------------------
@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """A workstream with a retry, a validation, a final success."""
    folder: Path = tmp_path_factory.mktemp("honest")

    async def act() -> list[Line]:
        async with on_floor(f"sqlite:///{folder}/stepkeep.db") as floor:
            await floor.start(
                workstream(task("build", max_retries=1), task("test", "build", post=[RULE], critical=True))
            )
            await floor.do("build", BROKEN)
            await floor.pass_time(2)
            await floor.do("build")
            await floor.do("test")
            await floor.report("test", HOLDS)
            return await floor.log()

    return asyncio.run(act())


def changed(lines: list[Line], which: Callable[[Line], bool], **fields: Any) -> list[Line]:
    """The same log with other words in the last line that fits; fields of its metadata begin with `meta_`."""
    copy: list[Line] = json.loads(json.dumps(lines))
    line = [line for line in copy if which(line)][-1]
    for name, value in fields.items():
        if name.startswith("meta_"):
            line["metadata"][name.removeprefix("meta_")] = value
        else:
            line[name] = value
    return copy


def of(entity: str, target: str) -> Callable[[Line], bool]:
    return lambda line: line["entity_id"].endswith(entity) and line["to_state"] == target


def stream(target: str) -> Callable[[Line], bool]:
    return lambda line: line["event_type"] == "workstream_state_transition" and line["to_state"] == target


def test_the_honest_log_breaks_nothing(honest: list[Line]) -> None:
    assert broken_by(honest) == set()
    assert judged(honest) == []


PLANTED: dict[str, Callable[[list[Line]], list[Line]]] = {
    "single-active-state": lambda log: changed(log, of("build", "validating"), from_state="queued"),
    "monotonic-progress": lambda log: changed(log, of("build", "queued"), from_state="failed"),
    "worker-assignment": lambda log: changed(log, of("build", "validating"), meta_worker="w-1"),
    "retry-limit": lambda log: changed(log, of("build", "retrying"), meta_retry_count=2),
    "timestamp-ordering": lambda log: changed(log, of("build", "completed"), timestamp="2020-01-01T00:00:00.000Z"),
    "dependency-satisfaction": lambda log: changed(log, of("build", "completed"), to_state="failed"),
    "task-state-consistency": lambda log: changed(log, stream("executing"), to_state="ready"),
    "completion-requirement": lambda log: changed(log, of("test", "completed"), to_state="cancelled"),
    "failure-propagation": lambda log: changed(log, of("test", "completed"), to_state="failed"),
    "archive-preservation": lambda log: changed(log, stream("executing"), to_state="failed"),
    "resource-cleanup": lambda log: changed(log, of("build", "running"), meta_fence=1),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_invariant_of_tasks_and_workstreams_finds_what_breaks_it(honest: list[Line], name: str) -> None:
    """Task Lifecycle, Invariants 1 to 6; Workstream Lifecycle, Invariants 1 to 4; Worker invariant 4 (fences)."""
    assert name in broken_by(PLANTED[name](honest))


MORE: dict[str, tuple[str, Callable[[list[Line]], list[Line]]]] = {
    "a task that runs without a worker": (
        "worker-assignment",
        lambda log: changed(log, of("build", "running"), meta_worker=""),
    ),
    "a task that nobody created": (
        "single-active-state",
        lambda log: [line for line in log if not of("build", "pending")(line)],
    ),
    "a workstream that completes without one of its tasks": (
        "completion-requirement",
        lambda log: [line for line in log if "test" not in line["entity_id"]],
    ),
    "a task that goes on after the workstream failed": (
        "archive-preservation",
        lambda log: changed(log, stream("ready"), to_state="failed"),
    ),
    "a failed workstream that is kept as completed": (
        "archive-preservation",
        lambda log: changed(log, stream("completed"), to_state="failed"),
    ),
    "a cancelled workstream with a task that goes on": (
        "task-state-consistency",
        lambda log: changed(log, stream("executing"), to_state="cancelled"),
    ),
    "a critical failure that leads nowhere": (
        "failure-propagation",
        lambda log: [
            line
            for line in changed(log, of("test", "completed"), to_state="failed")
            if not (stream("validating")(line) or stream("completed")(line))
        ],
    ),
}


@pytest.mark.parametrize("what", MORE)
def test_other_ways_to_break_them_are_found_too(honest: list[Line], what: str) -> None:
    name, plant = MORE[what]
    assert name in broken_by(plant(honest))


# -- plain logs, as other programs write them ------------------------------------------------------------------------
def plain(entity: str, noun: str, source: str | None, target: str, trigger: str, second: int, **metadata: Any) -> Line:
    return {
        "timestamp": f"2024-01-15T10:30:{second:02}.000Z",
        "event_type": f"{noun}_state_transition",
        "severity": "info",
        "entity_id": entity,
        "from_state": source,
        "to_state": target,
        "trigger": trigger,
        "metadata": metadata,
    }


def life(entity: str, noun: str, *hops: tuple[str, str | None, str, str], **metadata: Any) -> list[Line]:
    return [
        plain(entity, noun, source, target, trigger, int(second), **metadata)
        for second, source, target, trigger in hops
    ]


REGISTERED = (("0", None, "initializing", "created"), ("1", "initializing", "idle", "registration_complete"))
WORKER_1 = life("worker-001", "worker", *REGISTERED, capacity=1)
QUEUED = (("2", None, "pending", "created"), ("3", "pending", "queued", "scheduler_assigned"))


def queued(*entities: str) -> list[Line]:
    return [line for entity in entities for line in life(entity, "task", *QUEUED, workstream_id="ws-001")]


def started(entity: str, second: int = 4, worker: str = "worker-001") -> Line:
    return plain(entity, "task", "queued", "running", "worker_started", second, worker=worker)


def worker(source: str, target: str, trigger: str, second: int = 5) -> Line:
    return plain("worker-001", "worker", source, target, trigger, second)


BUSY = worker("idle", "busy", "task_assigned", 4)
SILENT = worker("busy", "unresponsive", "health_check_timeout", 40)


def test_a_plain_log_of_the_seeds_schema_is_judged_by_the_same_tables() -> None:
    """Event Schema; Validation: all transitions are valid, invariants maintained, timestamps monotonic."""
    log = [*WORKER_1, *queued("task-ulid-001"), started("task-ulid-001"), BUSY]
    log += [
        plain("task-ulid-001", "task", "running", "validating", "execution_completed", 6, duration_seconds=2),
        plain("task-ulid-001", "task", "validating", "completed", "validation_passed", 7, retry_count=0),
        worker("busy", "idle", "task_completed", 8),
        worker("idle", "shutdown", "shutdown_requested", 9),
    ]
    assert judged(log, sealed=False) == []
    illegal = plain("task-ulid-001", "task", "completed", "running", "worker_started", 10)
    assert any("monotonic-progress" in said for said in judged([*log, illegal], sealed=False))
    wrong = changed(log, of("task-ulid-001", "running"), from_state="pending")
    assert any("there is no such arrow" in said for said in judged(wrong, sealed=False))
    assert any("time runs backwards" in said for said in judged([log[-1], *log], sealed=False))
    assert any("event_type" in said for said in judged([{**log[0], "event_type": "task_note"}], sealed=False))


BAD_WORKERS: dict[str, tuple[str, list[Line]]] = {
    "more tasks than it has room for": (
        "capacity-limit",
        [*WORKER_1, *queued("a", "b"), started("a"), started("b")],
    ),
    "busy with room for nothing": (
        "capacity-limit",
        [*life("worker-001", "worker", *REGISTERED, capacity=0), BUSY],
    ),
    "missed before it was heard": (
        "health-monitoring",
        [WORKER_1[0], worker("initializing", "unresponsive", "health_check_timeout")],
    ),
    "heard of after its shutdown": (
        "health-monitoring",
        [*WORKER_1, worker("idle", "shutdown", "shutdown_requested"), worker("shutdown", "idle", "x", 6)],
    ),
    "busy again without having been heard": (
        "health-monitoring",
        [*WORKER_1, BUSY, SILENT, worker("unresponsive", "busy", "x", 41)],
    ),
    "given a task while it does not respond": (
        "health-monitoring",
        [*WORKER_1, BUSY, SILENT, *queued("a"), started("a", 41)],
    ),
    "shut down with a task in its hands": (
        "graceful-shutdown",
        [*WORKER_1, *queued("a"), started("a"), BUSY, worker("busy", "shutdown", "shutdown_requested")],
    ),
    "failed, and its task completes all the same": (
        "resource-cleanup",
        [
            *WORKER_1, *queued("a"), started("a"), BUSY, SILENT,
            plain("a", "task", "running", "validating", "execution_completed", 41),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_WORKERS)
def test_each_invariant_of_workers_finds_what_breaks_it(what: str) -> None:
    """Worker State Machine, Invariants 1 to 4."""
    name, log = BAD_WORKERS[what]
    assert name in broken_by(log)


def test_a_worker_that_keeps_to_the_invariants_breaks_none() -> None:
    log = [
        *WORKER_1, *queued("a", "b"), started("a"), BUSY, SILENT,
        plain("a", "task", "running", "retrying", "execution_failed", 41),
        worker("unresponsive", "idle", "health_check_recovered", 42),
        started("b", 43),
        plain("b", "task", "running", "validating", "execution_completed", 44),
        plain("b", "task", "validating", "completed", "validation_passed", 45),
        worker("idle", "shutdown", "shutdown_requested", 46),
    ]  # fmt: skip
    assert broken_by(log) == set()


def test_every_invariant_of_the_seed_has_a_checker_and_a_planted_violation() -> None:
    names = [invariant.name for invariant in JUDGED.invariants]
    assert len(names) == 6 + 4 + 4
    assert {*PLANTED, *(name for name, _ in BAD_WORKERS.values())} == set(names)
