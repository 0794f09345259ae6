"""Applies checks of the native front end to actions: graph rules, expressions and registered handlers.

An action is passed to them as the step it will become; their findings are translated into the terms and positions of
this dialect. The front end calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.checks import check_handlers
from stepkeep.definition.native.graph import Ancestry, check_graph
from stepkeep.definition.native.references import check_expressions
from stepkeep.definition.native.written import StepBlock
from stepkeep.definition.python.registry import Registry
from stepkeep.dialects.action.parts import Parts
from stepkeep.dialects.action.written import Action

_NOUN = re.compile(r"\b([Ss])tep(s?)\b")


def check_edges(parts: Parts, *, by_edges: bool) -> list[Finding]:
    """The graph rules of seed 000 section 5.2, which hold for every dialect."""
    return [_reworded(finding, _graph_path(finding.path, by_edges)) for finding in check_graph(parts.nodes)]


def check_contents(parts: Parts, tangled: bool, handlers: Registry | None) -> Iterator[Finding]:
    """Expressions read only outputs that surely exist; handlers exist and accept their inputs."""
    steps = {path: _as_step(action, parts) for path, action in parts.actions.items() if action.handler}
    names = {node.name for node in parts.nodes}
    ancestry = None if tangled else Ancestry({node.name: [name for name, _ in node.after] for node in parts.nodes})
    found: list[Finding] = list(check_expressions({}, steps, ancestry, names))
    if handlers is not None:
        for path, step in steps.items():
            found += check_handlers(step, path, handlers, all_known=True)
    for finding in found:
        yield finding._replace(
            path=_written_path(finding.path, parts), hint=finding.hint.replace("depends_on", "dependsOn")
        )


def _as_step(action: Action, parts: Parts) -> StepBlock:
    step: dict[str, Any] = {"name": action.action_id, "uses": action.handler}
    if "inputs" in action.model_fields_set:
        step["with"] = action.inputs
    capability = parts.capability_of(action)
    if capability is not None and capability.compensation_operation is not None:
        step["undo"] = undo = {"uses": capability.compensation_operation}
        hook = action.compensation
        if hook is not None and "compensation_input" in hook.model_fields_set:
            undo["with"] = hook.compensation_input
    return StepBlock.model_validate(step)


def _written_path(path: Path, parts: Parts) -> Path:
    """Where the part of a step is written in an action."""
    action = parts.actions[path[:2]]
    match path[2:]:
        case ("uses", *rest):
            return (*path[:2], "operation" if action.operation else "capability", *rest)
        case ("with", *rest):
            return (*path[:2], "inputs", *rest)
        case ("undo", "uses", *_):
            return ("capabilities", action.handler, "compensationOperation")
        case ("undo", "with", *rest):
            return (*path[:2], "compensation", "compensationInput", *rest)
    return path


def _graph_path(path: Path, by_edges: bool) -> Path:
    match path:
        case ("steps", *_):
            return ("actions",)
        case (*_, "depends_on"):
            return ("edges",) if by_edges else (*path[:-1], "dependsOn")
        case (*_, "name"):
            return (*path[:-1], "actionId")
    return path


def _reworded(finding: Finding, path: Path) -> Finding:
    return finding._replace(path=path, message=_in_our_words(finding.message), hint=_in_our_words(finding.hint))


def _in_our_words(text: str) -> str:
    """The first noun is the checker's own; the following ones may be user names."""
    return _NOUN.sub(lambda found: ("A" if found[1] == "S" else "a") + "ction" + found[2], text, count=1)
