"""Advice on a correct workstream that may still surprise: stored but unused parts, and timeouts.

Warnings stop nothing. The front end calls it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepkeep.definition.findings import Finding, Path
from stepkeep.dialects.workstream.named_rules import SAME_AS, rules_after, rules_before
from stepkeep.dialects.workstream.written import TaskBlock, WorkstreamBlock


def lint(written: WorkstreamBlock) -> list[Finding]:
    """All advice on one workstream."""
    found = [*_endless(written), *_unused_commands(written)]
    for place, task in enumerate(written.tasks):
        found += _not_enforced(task, ("tasks", place))
        found += _state_of_its_own(task, ("tasks", place))
    return found


def _endless(written: WorkstreamBlock) -> Iterator[Finding]:
    if written.max_duration_seconds is None:
        said = "The workstream has no `max_duration_seconds`: one that is stuck stays so forever."
        yield Finding(("workstream_id",), said, "Add one, for example `max_duration_seconds: 3600`.", key=True)


def _unused_commands(written: WorkstreamBlock) -> Iterator[Finding]:
    used = set(written.validation_rules.post_execution)
    for task in written.tasks:
        used.update((*rules_before(task), *rules_after(task)))
    used |= {SAME_AS[name] for name in used if name in SAME_AS}
    for name in written.rule_commands:
        if name not in used:
            said = f"No task and no final validation uses the rule `{name}`."
            yield Finding(("rule_commands", name), said, "Remove its command, or use it.", key=True, ignored=True)


def _not_enforced(task: TaskBlock, path: Path) -> Iterator[Finding]:
    carried = "is shown with the task, but nothing enforces it yet."
    context = task.context_requirements
    if context is not None and (context.max_context_tokens or context.optional_files or context.exclude_patterns):
        hint = "Only `required_files` is checked. Let the task's own program see to the rest."
        yield Finding(
            (*path, "context_requirements"), f"`context_requirements` {carried}", hint, key=True, ignored=True
        )


def _state_of_its_own(task: TaskBlock, path: Path) -> Iterator[Finding]:
    for key in ("status", "state"):
        if key in task.model_fields_set and not (key == "status" and task.status == "pending"):
            said = f"`{key}` is not read: every run keeps the state of its tasks by itself."
            yield Finding((*path, key), said, "Remove it.", key=True, ignored=True)
