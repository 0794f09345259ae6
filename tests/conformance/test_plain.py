"""Plain logs of seed 004's schema: a legal story passes, and what the seed rules out is found at its line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepkeep.conformance.machines import REFERENCE
from stepkeep.conformance.validate import main, validate
from stepkeep.operations.logs.log import canonical_machines

Log = list[dict[str, Any]]


def line(second: int, noun: str, entity: str, source: str | None, target: str, trigger: str, **rest: Any) -> Any:
    severity = rest.pop("severity", "info")
    return {
        "timestamp": f"2024-01-15T10:30:{second:02}.000Z",
        "event_type": f"{noun}_state_transition",
        "severity": severity,
        "entity_id": entity,
        "from_state": source,
        "to_state": target,
        "trigger": trigger,
        "metadata": rest,
    }


def story() -> Log:
    """A workstream of two tasks and a worker; one task is retried once."""
    return [
        line(0, "workstream", "ws-1", None, "planned", "created"),
        line(0, "task", "a", None, "pending", "created", max_retries=1),
        line(0, "task", "b", None, "pending", "created", max_retries=1),
        line(1, "workstream", "ws-1", "planned", "ready", "all_tasks_created"),
        line(1, "worker", "w-1", None, "initializing", "created"),
        line(1, "worker", "w-1", "initializing", "idle", "registration_complete"),
        line(2, "task", "a", "pending", "queued", "scheduler_assigned"),
        line(2, "task", "b", "pending", "queued", "scheduler_assigned"),
        line(3, "task", "a", "queued", "running", "worker_started", worker_id="w-1", retry_count=0),
        line(3, "worker", "w-1", "idle", "busy", "task_assigned", worker_id="w-1"),
        line(3, "workstream", "ws-1", "ready", "executing", "first_task_started"),
        line(5, "task", "a", "running", "retrying", "execution_failed", severity="warning", retry_count=1),
        line(7, "task", "a", "retrying", "queued", "retry_delay_elapsed"),
        line(8, "task", "a", "queued", "running", "worker_started", worker_id="w-1", retry_count=1),
        line(9, "task", "a", "running", "validating", "execution_completed", duration_seconds=1, worker_id="w-1"),
        line(9, "task", "a", "validating", "completed", "validation_passed", retry_count=1),
        line(10, "task", "b", "queued", "running", "worker_started", worker_id="w-1"),
        line(11, "task", "b", "running", "validating", "execution_completed"),
        line(12, "task", "b", "validating", "completed", "validation_passed"),
        line(12, "worker", "w-1", "busy", "idle", "task_completed"),
        line(13, "workstream", "ws-1", "executing", "validating", "all_tasks_completed"),
        line(14, "workstream", "ws-1", "validating", "completed", "validation_passed"),
    ]


def judged(log: Log) -> list[str]:
    _, report = validate([json.dumps(one).encode() for one in log])
    return [str(finding) for finding in report.findings]


def test_a_legal_plain_log_passes_with_the_worker_id_of_the_seed() -> None:
    assert judged(story()) == []


def at(log: Log, entity: str, target: str, turn: int = 0) -> dict[str, Any]:
    return [one for one in log if (one["entity_id"], one["to_state"]) == (entity, target)][turn]


def wrong(entity: str, target: str, **changes: Any) -> Callable[[Log], None]:
    return lambda log: at(log, entity, target).update(changes)


def said(entity: str, target: str, turn: int = 0, **changes: Any) -> Callable[[Log], None]:
    return lambda log: at(log, entity, target, turn)["metadata"].update(changes)


def without(*targets: tuple[str, str]) -> Callable[[Log], None]:
    def change(log: Log) -> None:
        for entity, target in targets:
            log.remove(at(log, entity, target, -1))

    return change


ILLEGAL: dict[str, tuple[Callable[[Log], None], str]] = {
    "a retry that is information": (wrong("a", "retrying", severity="info"), "severity is 'info', expected warning"),
    "a completion that is critical": (wrong("b", "completed", severity="critical"), "expected info"),
    "a retry too many": (said("a", "pending", max_retries=0), "it must fail"),
    "a retry count out of nowhere": (said("a", "completed", retry_count=7), "retry_count is 7, expected 1"),
    "a retry count that goes back": (said("a", "running", 1, retry_count=0), "retry_count is 0, expected 1"),
    "a worker on a queued task": (said("b", "queued", worker_id="w-1"), "only running tasks have workers"),
    "another worker at the end": (said("a", "validating", worker_id="w-2"), "expected 'w-1'"),
    "a duration longer than the task": (said("b", "completed", duration_seconds=60), "duration_seconds is 60"),
    "a workstream that completes too early": (
        without(("b", "completed")),
        "workstream 'ws-1' is 'validating', but a task is 'validating'",
    ),
    "tasks that start in a ready workstream": (without(("ws-1", "executing")), "makes it 'executing'"),
    "a trigger that its arrow does not have": (
        wrong("a", "queued", trigger="retry_delay_elapsed"),
        "the specification's arrow is for scheduler_assigned",
    ),
    "time that goes back between entities": (
        wrong("w-1", "busy", timestamp="2024-01-15T10:30:01.000Z"),
        "time runs backwards",
    ),
}


@pytest.mark.parametrize("what", ILLEGAL)
def test_what_the_seed_rules_out_is_found(what: str) -> None:
    change, message = ILLEGAL[what]
    log = story()
    change(log)
    assert any(message in one for one in judged(log)), judged(log)


def test_a_task_that_fails_with_retries_left_is_found() -> None:
    log = story()[:11]
    log.append(line(5, "task", "a", "running", "failed", "execution_failed", severity="error"))
    assert any("it must be retried" in one for one in judged(log)), judged(log)


def test_the_validator_is_part_of_the_package(tmp_path: Path) -> None:
    file = tmp_path / "transitions.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in story()))
    command = [sys.executable, "-m", "stepkeep.conformance.validate", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{file}: plain workstream log, 22 lines, no findings\n")
    assert main([str(tmp_path / "missing")]) == 2


def test_the_judges_own_tables_are_those_of_the_engine() -> None:
    engine = canonical_machines()
    assert set(REFERENCE) == set(engine)
    for name, (rows, ended) in REFERENCE.items():
        differing = frozenset(rows) ^ frozenset(engine[name][0])
        assert not differing, f"rows of {name} that only one side has; the judge's are in conformance/machines.py"
        assert frozenset(ended) == frozenset(engine[name][1]), name
