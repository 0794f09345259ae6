"""Random documents in the formats of the five dialects, read by the dialects' own front ends.

A simulated worker has no agents and no programs: what runs a step is put in the place of both, and leases are short, so
that a seed does not wait for them. Everything else is what the front end made of the document.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from stepkeep.definition.native.reader import CheckReport
from stepkeep.dialects import registry
from stepkeep.kernel.definition import SECOND, Definition, Handler, StepDefinition
from stepkeep.kernel.errors import Problem
from stepkeep_lab.simulation.definitions import CAPABILITY, HANDLERS, maybe

Doc = dict[str, Any]


def draw_in_dialect(random: Random, dialect: str, name: str, most: int) -> Definition:
    """A workflow of at most this many steps that was written in this dialect."""
    document = DRAWERS[dialect](random, name, random.randint((most + 1) // 2, most))
    report = registry.dialect(dialect).front.examine(document, _Nowhere(), None)
    assert isinstance(report, CheckReport)
    if report.definition is None:
        raise AssertionError(f"a document was drawn that {dialect} refuses: {document}: {report.problems}")
    return _staged(random, report.definition)


class _Nowhere:
    """Where a drawn document is written."""

    def problem(self, path: Any, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Problem:
        return Problem(file="drawn", line=1, column=1, path=str(path), message=message, hint=hint)


def _staged(random: Random, definition: Definition) -> Definition:
    steps = tuple(_played(random, step) for step in definition.steps)
    return replace(definition, steps=steps, lease=random.choice((4, 8)) * SECOND, grace=random.choice((3, 8)) * SECOND)


def _played(random: Random, step: StepDefinition) -> StepDefinition:
    if step.executor is None:
        return step
    undo = None if step.undo is None else replace(step.undo, executor=Handler(name="undo"))
    return replace(step, executor=Handler(name=random.choice(HANDLERS)), undo=undo)


# -- one drawer each ---------------------------------------------------------------------------------------------------
def _template(random: Random, name: str, size: int) -> Doc:
    steps = [
        {
            "position": place + 1,
            "name": "APPROVAL" if maybe(random, 0.25) else random.choice(HANDLERS),
            "timeout_seconds": random.choice((3, 8, 30)),
        }
        for place in range(size)
    ]
    return {
        "template": name,
        "max_attempts": random.randint(1, 4),
        "retry_base_delay": "250ms",
        "steps": steps,
    }


def _linear(random: Random, name: str, size: int) -> Doc:
    return {
        "workflowType": name,
        "retryPolicy": {"maxAttempts": random.randint(1, 5), "baseBackoffMs": 250, "maxBackoffMs": 2_000},
        "steps": [{"stepType": random.choice(HANDLERS), "timeoutMs": 4_000} for _ in range(size)],
    }


def _resource(random: Random, name: str, size: int) -> Doc:
    names = [f"s{place}" for place in range(size)]
    steps = [_resource_step(random, names, place) for place in range(size)]
    undone = [step["name"] for step in steps if not step["action"].startswith("GATE:") and maybe(random, 0.5)]
    return {
        "apiVersion": "ioa.dev/v0.2",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {
            "description": "drawn",
            "domainsInvolved": ["chance"],
            "timeout": random.choice(("40s", "2m")),
            "failurePolicy": random.choice(("abort", "compensate")),
            "steps": steps,
            "compensation": [{"step": one, "action": "undo it", "agent": "a"} for one in undone],
        },
    }


def _resource_step(random: Random, names: list[str], place: int) -> Doc:
    return {
        "name": names[place],
        "agent": "a",
        "action": "GATE: may it?" if maybe(random, 0.15) else "do it",
        "dependsOn": _some(random, names[:place]),
        "timeout": random.choice(("3s", "10s")),
        "retryPolicy": {"maxRetries": random.randint(0, 3), "backoff": "linear", "initialDelay": "500ms"},
        "onFailure": random.choice(("abort", "skip", "compensate")),
    }


def _actions(random: Random, name: str, size: int) -> Doc:
    names = [f"s{place}" for place in range(size)]
    return {
        "schemaVersion": 1,
        "workflowId": name,
        "workspaceId": "chance",
        "name": name,
        "version": 1,
        "active": True,
        "executionTier": "Auto",
        "actions": [_action(random, names, place) for place in range(size)],
        "capabilities": {
            "thing:read": {"safety": {"idempotent": True}, "sideEffecting": False},
            "thing:write": {
                "safety": {"idempotent": False, "supportsCompensation": True},
                "sideEffecting": True,
                "compensationOperation": "thing:undo",
                "compensationInputSchema": {"type": "object"},
            },
            "thing:send": {"safety": {"idempotent": False}, "sideEffecting": True},
        },
    }


def _action(random: Random, names: list[str], place: int) -> Doc:
    manual = maybe(random, 0.15)
    action = {
        "actionId": names[place],
        "order": place + 1,
        "portFamily": "SoftwareDev",
        "operation": random.choice(("thing:read", "thing:write", "thing:send")),
        "dependsOn": _some(random, names[:place]),
        "timeoutMs": random.choice((3_000, 10_000)),
        "retryPolicy": {"maxAttempts": random.randint(1, 4), "initialBackoffMs": 250, "maxBackoffMs": 2_000},
    }
    if manual:
        return action | {"completionMode": "ManualOnly", "completionDeadlineMs": 20_000}
    if maybe(random, 0.15):
        return action | {"executionTierOverride": "HumanApprove", "approvalDeadlineMs": 20_000}
    return action


def _workstream(random: Random, name: str, size: int) -> Doc:
    names = [f"s{place}" for place in range(size)]
    return {
        "workstream_id": name,
        "max_duration_seconds": random.choice((40, 120)),
        "tasks": [_task(random, names, place) for place in range(size)],
    }


def _task(random: Random, names: list[str], place: int) -> Doc:
    task = {
        "task_id": names[place],
        "critical": maybe(random, 0.4),
        "dependencies": _some(random, names[:place]),
        "execution": {
            "command": ["true"],
            "timeout_seconds": random.choice((3, 10)),
            "max_retries": random.randint(0, 3),
            "retry_delay_seconds": 0.5,
        },
    }
    if maybe(random, 0.2):
        task["worker_requirements"] = {"capabilities": [CAPABILITY]}
    if maybe(random, 0.3):
        task["validation_rules"] = {"post_execution": ["${{ output.ok }}"]}
    return task


def _some(random: Random, earlier: list[str]) -> list[str]:
    return [one for one in earlier if maybe(random, 0.4)]


DRAWERS: dict[str, Callable[[Random, str, int], Doc]] = {
    "run": _template,
    "linear": _linear,
    "ioa": _resource,
    "action": _actions,
    "workstream": _workstream,
}
"""How a document of each dialect is drawn."""
