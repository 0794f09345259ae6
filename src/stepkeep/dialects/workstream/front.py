"""The front end of the workstream dialect: its document in, the canonical definition or all problems out.

It runs the checks in order and contains none of them; nothing of the document is executed. The dialect registry calls
it for documents that it recognises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from stepkeep.definition.complaints import complaints
from stepkeep.definition.findings import Finding, Path, Source, located
from stepkeep.definition.graph import Ancestry, Node, check_graph
from stepkeep.definition.native import CheckReport
from stepkeep.definition.registry import Registry
from stepkeep.dialects.workstream.build import build
from stepkeep.dialects.workstream.checks import check_by_native, check_final_rules, check_tasks, in_our_words
from stepkeep.dialects.workstream.lint import lint
from stepkeep.dialects.workstream.written import TaskBlock, WorkstreamBlock


class Front:
    """Workstreams of seed 004."""

    def recognises(self, data: Any) -> bool:
        return isinstance(data, dict) and "workstream_id" in data

    def examine(self, data: Any, source: Source, handlers: Registry | None = None) -> CheckReport:
        """Check a workstream; `source` has the position of each part. Its tasks are programs: no handlers."""
        if not isinstance(data, dict):
            said = "A workstream is a mapping with `workstream_id` and `tasks`."
            return CheckReport(definition=None, problems=(source.problem((), said),))
        written, findings = _shaped(data)
        findings += _findings(data, dict(_tasks(data) if written is None else _numbered(written)))
        if written is None or findings:
            return CheckReport(definition=None, problems=located(source, findings))
        return CheckReport(definition=build(written), warnings=located(source, lint(written)))


FRONT = Front()


def _shaped(data: dict[str, Any]) -> tuple[WorkstreamBlock | None, list[Finding]]:
    try:
        return WorkstreamBlock.model_validate(data), []
    except ValidationError as error:
        return None, [in_our_words(finding) for finding in complaints(error, data, WorkstreamBlock)]


def _findings(data: dict[str, Any], tasks: dict[Path, TaskBlock]) -> Iterator[Finding]:
    """Every problem beyond the shape, from all tasks that are valid on their own."""
    nodes = list(_outline(data))
    tangles = check_graph(nodes)
    yield from (in_our_words(finding) for finding in tangles)
    ancestry = None if tangles else Ancestry({node.name: [name for name, _ in node.after] for node in nodes})
    yield from check_tasks(data, tasks)
    yield from check_final_rules(data)
    yield from check_by_native(data, tasks, ancestry, {node.name for node in nodes})


def _listed(data: dict[str, Any]) -> list[Any]:
    tasks = data.get("tasks")
    return tasks if isinstance(tasks, list) else []


def _numbered(written: WorkstreamBlock) -> Iterator[tuple[Path, TaskBlock]]:
    yield from ((("tasks", place), task) for place, task in enumerate(written.tasks))


def _tasks(data: dict[str, Any]) -> Iterator[tuple[Path, TaskBlock]]:
    for place, task in enumerate(_listed(data)):
        try:
            yield ("tasks", place), TaskBlock.model_validate(task)
        except ValidationError:
            continue


def _outline(data: dict[str, Any]) -> Iterator[Node]:
    """Names and dependencies, as far as they are readable."""
    for place, task in enumerate(_listed(data)):
        if isinstance(task, dict) and isinstance(task.get("task_id"), str):
            path = ("tasks", place)
            edges = task.get("dependencies")
            names = enumerate(edges if isinstance(edges, list) else ())
            after = tuple((name, (*path, "dependencies", number)) for number, name in names if isinstance(name, str))
            yield Node(task["task_id"], path, after)
