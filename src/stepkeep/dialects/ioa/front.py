"""The front end of the ioa dialect: a workflow resource in, the canonical definition or all problems out.

It runs the checks in order and contains none of them; nothing of the document is executed. The dialect registry calls
it for documents that it recognises.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from stepkeep.definition.complaints import complaints
from stepkeep.definition.findings import Finding, Path, Source, as_written, located
from stepkeep.definition.graph import Node, check_graph
from stepkeep.definition.native import CheckReport
from stepkeep.definition.registry import Registry
from stepkeep.dialects.ioa.build import build
from stepkeep.dialects.ioa.checks import check_agents, check_compensation, check_policy, check_steps
from stepkeep.dialects.ioa.keys import check_keys
from stepkeep.dialects.ioa.lint import lint
from stepkeep.dialects.ioa.written import API_VERSION, KIND, Block, CompensationBlock, StepBlock, WorkflowResource

B = TypeVar("B", bound=Block)

STEPS: Path = ("spec", "steps")
COMPENSATION: Path = ("spec", "compensation")


class Front:
    """Workflow resources of `ioa.dev`."""

    def recognises(self, data: Any) -> bool:
        if not isinstance(data, dict):
            return False
        version = data.get("apiVersion")
        ours = isinstance(version, str) and version.startswith("ioa.dev/")
        return ours or (data.get("kind") == KIND and "spec" in data)

    def examine(self, data: Any, source: Source, handlers: Registry | None = None) -> CheckReport:
        """Check a resource; `source` has the position of each part."""
        if not isinstance(data, dict):
            said = f"A workflow is a mapping with `apiVersion: {API_VERSION}` and `kind: {KIND}`."
            return CheckReport(definition=None, problems=(source.problem((), said),))
        written, findings = _shaped(data)
        slips, strays = check_keys(data)
        findings += [*slips, *_findings(data, handlers)]
        if written is None or findings:
            found = [finding._replace(path=as_written(finding.path, data)) for finding in findings]
            return CheckReport(definition=None, problems=located(source, found))
        definition = build(written, handlers)
        return CheckReport(definition=definition, warnings=located(source, [*strays, *lint(written, definition)]))


FRONT = Front()


def _shaped(data: dict[str, Any]) -> tuple[WorkflowResource | None, list[Finding]]:
    try:
        return WorkflowResource.model_validate(data), []
    except ValidationError as error:
        return None, complaints(error, data)


def _findings(data: dict[str, Any], handlers: Registry | None) -> Iterator[Finding]:
    """Every problem beyond the shape, from all parts that are valid on their own."""
    nodes = list(_outline(data))
    for finding in check_graph(nodes):
        yield finding._replace(path=_in_our_words(finding.path))
    steps = dict(_blocks(data, STEPS, StepBlock))
    entries = dict(_blocks(data, COMPENSATION, CompensationBlock))
    yield from check_steps(steps)
    yield from check_compensation(entries, steps, {node.name for node in nodes})
    spec = data.get("spec")
    yield from check_policy(spec.get("failurePolicy") if isinstance(spec, dict) else None)
    if handlers is not None:
        yield from check_agents(steps, entries, handlers)


def _listed(data: dict[str, Any], path: Path) -> list[Any]:
    found: Any = data
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, list) else []


def _blocks(data: dict[str, Any], path: Path, block: type[B]) -> Iterator[tuple[Path, B]]:
    for place, item in enumerate(_listed(data, path)):
        try:
            yield (*path, place), block.model_validate(item)
        except ValidationError:
            continue


def _outline(data: dict[str, Any]) -> Iterator[Node]:
    """Names and dependencies, as far as they are readable."""
    for place, step in enumerate(_listed(data, STEPS)):
        if isinstance(step, dict) and isinstance(step.get("name"), str):
            path = (*STEPS, place)
            edges = step.get("dependsOn")
            names = enumerate(edges if isinstance(edges, list) else ())
            after = tuple((name, (*path, "dependsOn", number)) for number, name in names if isinstance(name, str))
            yield Node(step["name"], path, after)


def _in_our_words(path: Path) -> Path:
    """The graph checks use the key `depends_on` and top-level `steps`."""
    ours = tuple("dependsOn" if part == "depends_on" else part for part in path)
    return ours if ours[:1] == ("spec",) else ("spec", *ours)
