"""Checks a workstream beyond its shape: rules that cannot run, contradictions, bad commands and expressions.

Commands, capabilities and expressions are checked by the native format, as the step that the task will become; its
findings are translated into this dialect's terms. Each check yields findings and continues. The front end calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import NOT_EVALUATED, Finding, Path, did_you_mean
from stepkeep.definition.native.checks import check_step
from stepkeep.definition.native.graph import Ancestry
from stepkeep.definition.native.references import check_expressions
from stepkeep.definition.native.written import StepBlock
from stepkeep.dialects.workstream.named_rules import NAMED_RULES, SAME_AS, rules_after, rules_before
from stepkeep.dialects.workstream.written import RuleCommandBlock, TaskBlock, WorkstreamBlock

INSTEAD = "Give it a command under `rule_commands`, or write an expression, as in `${{ output.exit_code == 0 }}`."

Tasks = Mapping[Path, TaskBlock]


def check_tasks(data: Mapping[str, Any], tasks: Tasks) -> Iterator[Finding]:
    """Every problem of tasks that needs neither the graph nor expressions."""
    needs = {task.task_id: task.dependencies for task in tasks.values()}
    for path, task in tasks.items():
        if task.workstream_id not in (None, data.get("workstream_id")):
            said = f"This task belongs to another workstream, `{task.workstream_id}`."
            yield Finding((*path, "workstream_id"), said, "Remove it here: a document is one workstream.")
        if None not in (task.critical, task.is_critical) and task.critical != task.is_critical:
            said = "`critical` and `is_critical` contradict each other."
            yield Finding((*path, "is_critical"), said, "Keep one of them.", key=True)
        for place, other in enumerate(task.blocks):
            if task.task_id not in needs.get(other, ()):
                said = f"`{task.task_id}` is said to block `{other}`, which does not depend on it."
                hint = f"Add it to the `dependencies` of `{other}`; what a task blocks follows from those."
                yield Finding((*path, "blocks", place), said, hint)
        rules = task.validation_rules
        for key, texts in (("pre_execution", rules.pre_execution), ("post_execution", rules.post_execution)):
            yield from _known_rules(texts or (), (*path, "validation_rules", key), data)


def check_final_rules(data: Mapping[str, Any]) -> Iterator[Finding]:
    """The rules of the whole workstream, and the commands of named rules."""
    yield from _known_rules(final_rules(data), ("validation_rules", "post_execution"), data)
    for name, block in _commands(data).items():
        for place, text in enumerate(block.command):
            at = ("rule_commands", name, *(("command",) if "command" in _mapping(data, name) else ()), place)
            if OPENING in text:
                said = "The command of a rule is taken as it is written."
                yield Finding(at, said, NOT_EVALUATED)
            elif place == 0 and not text.strip():
                yield Finding(at, "The program of a rule is empty.", "Write its name.")


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    written = data["rule_commands"][name]
    return written if isinstance(written, dict) else {}


def _commands(data: Mapping[str, Any]) -> dict[str, RuleCommandBlock]:
    """The commands of rules, as far as they are valid on their own."""
    written = data.get("rule_commands")
    found = {}
    for name, given in written.items() if isinstance(written, dict) else ():
        try:
            found[name] = RuleCommandBlock.model_validate({"command": given} if not isinstance(given, dict) else given)
        except ValidationError:
            continue
    return found


def final_rules(data: Mapping[str, Any]) -> list[str]:
    """The texts of the final rules, as far as they are readable."""
    block = data.get("validation_rules")
    rules = block.get("post_execution") if isinstance(block, dict) else None
    return [rule for rule in rules if isinstance(rule, str)] if isinstance(rules, list) else []


def _known_rules(rules: Iterable[str], path: Path, data: Mapping[str, Any]) -> Iterator[Finding]:
    own = data.get("rule_commands")
    known = {*NAMED_RULES, *(own if isinstance(own, dict) else ())}
    for place, rule in enumerate(rules):
        if OPENING not in rule and rule not in known:
            hint = did_you_mean(rule, known) or INSTEAD
            yield Finding((*path, place), f"`{rule}` is no rule.", hint)


def check_by_native(data: Mapping[str, Any], tasks: Tasks, ancestry: Ancestry | None, names: set[str]) -> list[Finding]:
    """Findings of the native format on the commands, capabilities and expressions of these tasks."""
    steps = {path: _as_step(task) for path, task in tasks.items()}
    rules = {"rules": [rule if OPENING in rule else "true" for rule in final_rules(data)]}
    found = [finding for path, step in steps.items() for finding in check_step(step, path)]
    found += check_expressions(rules, steps, ancestry, names)
    return [in_our_words(finding) for finding in found]


def _as_step(task: TaskBlock) -> StepBlock:
    # Rules that are not expressions only keep the numbering here.
    first, rules = (
        [rule if OPENING in rule else "true" for rule in texts or ()]
        for texts in (task.validation_rules.pre_execution, task.validation_rules.post_execution)
    )
    command: dict[str, Any] = {"argv": task.execution.command}
    if task.execution.working_directory is not None:
        command["cwd"] = task.execution.working_directory
    return StepBlock.model_validate(
        {
            "name": task.task_id,
            "command": command,
            "capabilities": task.worker_requirements.capabilities,
            "pre": first,
            "rules": rules,
        }
    )


_OURS = {"step": "task", "steps": "tasks", "workflow": "workstream", "Step": "Task", "Steps": "Tasks"}
_OUR_KEYS = {"`depends_on`": "`dependencies`", "`steps`": "`tasks`", "`cwd`": "`working_directory`"}
_WORDS = re.compile(rf"`[^`]*`|\b(?:{'|'.join(_OURS)})\b")


def in_our_words(finding: Finding) -> Finding:
    """Findings of shared checks, with this dialect's nouns and keys."""
    return finding._replace(
        path=_our_path(finding.path), message=_reworded(finding.message), hint=_reworded(finding.hint)
    )


def _reworded(text: str) -> str:
    # Text in backticks is the user's own, except for our keys.
    return _WORDS.sub(lambda found: _OURS.get(found[0]) or _OUR_KEYS.get(found[0], found[0]), text)


def _our_path(path: Path) -> Path:
    match path:
        case ("steps", *rest):
            return ("tasks", *rest)
        case ("rules", number, *_):
            return ("validation_rules", "post_execution", number)
        case ("tasks", place, "name"):
            return ("tasks", place, "task_id")
        case ("tasks", place, "depends_on", *rest):
            return ("tasks", place, "dependencies", *rest)
        case ("tasks", place, "command", "argv", *rest):
            return ("tasks", place, "execution", "command", *rest)
        case ("tasks", place, "command", "cwd", *rest):
            return ("tasks", place, "execution", "working_directory", *rest)
        case ("tasks", place, "pre", number, *_):
            return ("tasks", place, "validation_rules", "pre_execution", number)
        case ("tasks", place, "rules", number, *_):
            return ("tasks", place, "validation_rules", "post_execution", number)
        case ("tasks", place, "capabilities", *rest):
            return ("tasks", place, "worker_requirements", "capabilities", *rest)
    return path


# -- lint ----------------------------------------------------------------------------------------------------------
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
