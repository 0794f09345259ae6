"""The native front end: YAML or JSON in, the kernel's definition or all problems out.

It runs the checks in order and contains none of them. Nothing of the document is executed. The command line, the engine
and the tests call `load_file`, `load_text` and `check_file`; the Python API calls `examine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import msgspec
from pydantic import ValidationError

from stepkeep.definition.findings import Finding, Path, Source, as_written, located
from stepkeep.definition.native.advice import advised, log_ignored_once
from stepkeep.definition.native.build import build
from stepkeep.definition.native.checks import (
    check_duties,
    check_edges,
    check_gates,
    check_handlers,
    check_rule_handlers,
    check_step,
    check_workflow,
)
from stepkeep.definition.native.graph import Ancestry, Node, check_graph
from stepkeep.definition.native.lint import lint
from stepkeep.definition.native.references import check_expressions
from stepkeep.definition.native.transition_hooks import check_hook_handlers, check_hooks
from stepkeep.definition.native.triggers import check_triggers
from stepkeep.definition.native.written import StepBlock, WorkflowBlock
from stepkeep.definition.policy import check_policy
from stepkeep.definition.python.declared import check_declared, flow_advice
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.complaints import complaints
from stepkeep.definition.text.document import Syntax, parse_document, read_document
from stepkeep.edges.safe_text import html_table
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.errors import DefinitionError, Problem


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: a definition when there are no problems, and advice in either case.

    `ignored` is the part of the advice that is about fields without effect.
    """

    definition: Definition | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    ignored: tuple[Problem, ...] = ()

    def __repr__(self) -> str:
        lines = [f"{kind}: {said}" for kind, said in self._lines()]
        return "\n".join([f"<CheckReport: {self._title}>", *lines])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html_table(self._title, self._lines())

    @property
    def _title(self) -> str:
        name = "" if self.definition is None else f"{self.definition.name} v{self.definition.version}, "
        return f"{name}problems: {len(self.problems)}, warnings: {len(self.warnings)}"

    def _lines(self) -> list[tuple[str, str]]:
        return [*(("problem", str(one)) for one in self.problems), *(("warning", str(one)) for one in self.warnings)]


def load_file(path: str | FilePath, handlers: Registry | None = None) -> Definition:
    """The definition in a file, or DefinitionError with every problem in it.

    With `handlers`, what their decorators say (retry, timeout, undo …) fills in what steps leave open, and a
    name that is not among them is a problem.
    """
    return accepted(check_file(path, handlers))


def load_text(text: str, file_name: str, handlers: Registry | None = None) -> Definition:
    """The definition in a text; `file_name` is what problems call it, and says whether it is YAML or JSON."""
    return accepted(check_text(text, file_name, handlers))


def check_file(path: str | FilePath, handlers: Registry | None = None) -> CheckReport:
    """Every problem and warning of a file. Never raises for its content."""
    try:
        document = read_document(path)
    except DefinitionError as error:
        return CheckReport(definition=None, problems=error.problems)
    return examine(document.data, document, handlers)


def check_text(text: str, file_name: str, handlers: Registry | None = None) -> CheckReport:
    """Every problem and warning of a text."""
    try:
        syntax: Syntax = "json" if file_name.lower().endswith(".json") else "yaml"
        document = parse_document(text, file=file_name, syntax=syntax)
    except DefinitionError as error:
        return CheckReport(definition=None, problems=error.problems)
    return examine(document.data, document, handlers)


def examine(data: Any, source: Source, handlers: Registry | None = None, *, all_known: bool = True) -> CheckReport:
    """Check data of the native format, whatever its origin; `source` has the position of each part.

    `all_known` means that `handlers` is complete, so that any other name is a mistake.
    """
    if not isinstance(data, dict):
        said = "A workflow is a mapping that begins with `workflow: NAME`."
        return CheckReport(definition=None, problems=(source.problem((), said),))
    written, findings = _shaped(data)
    steps = dict(_steps(data) if written is None else _numbered(written))
    nodes = list(_outline(data))
    tangles = check_graph(nodes)
    findings += tangles
    ancestry = None if tangles else Ancestry({node.name: [name for name, _ in node.after] for node in nodes})
    findings += _findings(data, written, steps, ancestry, {node.name for node in nodes})
    if handlers is not None:
        final = [] if written is None else written.rules
        findings += check_rule_handlers(final, ("rules",), handlers, all_known=all_known)
        if written is not None and all_known:
            findings += check_hook_handlers(written, handlers)
        for path, step in steps.items():
            declared = None if written is None else written.input
            findings += check_handlers(step, path, handlers, all_known=all_known, declared=declared)
    if written is None or findings:
        found = [finding._replace(path=as_written(finding.path, data)) for finding in findings]
        return CheckReport(definition=None, problems=located(source, found))
    definition = build(written, handlers)
    lost, advice = ([], []) if handlers is None or all_known else check_declared(definition, handlers)
    if lost:
        return CheckReport(definition=None, problems=located(source, lost))
    assert ancestry is not None
    code = () if handlers is None else flow_advice(definition, handlers)
    advice = [*lint(written, definition, ancestry), *advice, *code]
    return CheckReport(definition=definition, **advised(source, advice))


def accepted(report: CheckReport) -> Definition:
    """The definition of a report, or DefinitionError; fields without effect are logged."""
    if report.definition is None:
        raise DefinitionError(report.problems)
    log_ignored_once(report.ignored)
    return report.definition


def _shaped(data: dict[str, Any]) -> tuple[WorkflowBlock | None, list[Finding]]:
    try:
        return WorkflowBlock.model_validate(data), []
    except ValidationError as error:
        return None, complaints(error, data)


def _numbered(written: WorkflowBlock) -> Iterator[tuple[Path, StepBlock]]:
    yield from ((("steps", place), step) for place, step in enumerate(written.steps))


def _steps(data: dict[str, Any]) -> Iterator[tuple[Path, StepBlock]]:
    """The steps that are valid on their own, so that one wrong key hides no other finding."""
    steps = data.get("steps")
    for place, step in enumerate(steps if isinstance(steps, list) else ()):
        try:
            yield ("steps", place), StepBlock.model_validate(step)
        except ValidationError:
            continue


def _outline(data: dict[str, Any]) -> Iterator[Node]:
    """Names and dependencies, as far as they are readable."""
    steps = data.get("steps")
    known = [
        (("steps", place), step)
        for place, step in enumerate(steps if isinstance(steps, list) else ())
        if isinstance(step, dict) and isinstance(step.get("name"), str)
    ]
    sequence = not any("depends_on" in step for _, step in known)
    before: str | None = None
    for path, step in known:
        if sequence:
            after: tuple[tuple[str, Path], ...] = ((before, path),) if before is not None else ()
        else:
            after = tuple(_edges(step.get("depends_on"), (*path, "depends_on")))
        yield Node(step["name"], path, after)
        before = step["name"]


def _edges(written: Any, path: Path) -> Iterator[tuple[str, Path]]:
    for place, edge in enumerate(written if isinstance(written, list) else ()):
        name = edge.get("step") if isinstance(edge, dict) else edge
        if isinstance(name, str):
            yield name, (*path, place)


def _findings(
    data: dict[str, Any],
    written: WorkflowBlock | None,
    steps: Mapping[Path, StepBlock],
    ancestry: Ancestry | None,
    names: set[str],
) -> Iterator[Finding]:
    for path, step in steps.items():
        yield from check_step(step, path)
    by_name = {step.name: step for step in steps.values()}
    yield from check_gates(steps, ancestry)
    yield from check_edges(by_name, {step.name: path for path, step in steps.items()})
    if written is not None:
        yield from check_workflow(written)
        yield from check_duties(written.duties, steps, ancestry)
        yield from check_policy(written)
        yield from check_triggers(written.triggers, ("triggers",))
        yield from check_hooks(written)
    yield from check_expressions(data, steps, ancestry, names)
