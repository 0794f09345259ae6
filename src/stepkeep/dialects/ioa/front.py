"""The format of the ioa dialect: workflow resources of `ioa.dev`.

It names the checks in their order and contains none of them. The dialect registry finds `FRONT` here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.graph import check_graph
from stepkeep.dialects.format import Format, FormatReading, outline, valid, valid_blocks
from stepkeep.dialects.ioa import triggers
from stepkeep.dialects.ioa.build import build
from stepkeep.dialects.ioa.checks import check_agents, check_compensation, check_keys, check_policy, check_steps, lint
from stepkeep.dialects.ioa.written import (
    API_VERSION,
    KIND,
    CompensationBlock,
    IoaStepBlock,
    IoaTriggerBlock,
    WorkflowResource,
)
from stepkeep.kernel.definition import Definition

STEPS: Path = ("spec", "steps")
COMPENSATION: Path = ("spec", "compensation")


def _claims(data: dict[str, Any]) -> bool:
    version = data.get("apiVersion")
    ours = isinstance(version, str) and version.startswith("ioa.dev/")
    return ours or (data.get("kind") == KIND and "spec" in data)


def _problems(reading: FormatReading[WorkflowResource]) -> Iterator[Finding]:
    data, handlers = reading.data, reading.handlers
    slips, _ = check_keys(data)
    yield from slips
    nodes = list(outline(data, STEPS, name="name", edges="dependsOn"))
    for finding in check_graph(nodes):
        yield finding._replace(path=_in_our_words(finding.path))
    steps = dict(valid_blocks(data, STEPS, IoaStepBlock))
    entries = dict(valid_blocks(data, COMPENSATION, CompensationBlock))
    yield from check_steps(steps)
    yield from check_compensation(entries, steps, {node.name for node in nodes})
    spec = data.get("spec")
    yield from check_policy(spec.get("failurePolicy") if isinstance(spec, dict) else None)
    yield from triggers.check(valid(IoaTriggerBlock, spec.get("trigger")) if isinstance(spec, dict) else None)
    if handlers is not None:
        yield from check_agents(steps, entries, handlers)


def _in_our_words(path: Path) -> Path:
    """The graph checks use the key `depends_on` and top-level `steps`."""
    ours = tuple("dependsOn" if part == "depends_on" else part for part in path)
    return ours if ours[:1] == ("spec",) else ("spec", *ours)


def _advice(
    written: WorkflowResource, definition: Definition, reading: FormatReading[WorkflowResource]
) -> Iterator[Finding]:
    _, strays = check_keys(reading.data)
    yield from strays
    yield from lint(written, definition)


def _amend(schema: dict[str, Any]) -> None:
    """What the models cannot say: the top is closed, and a step has an agent and an action or is a workflow."""
    schema.update(additionalProperties=False)
    step = schema["$defs"][IoaStepBlock.__name__]
    for key in ("agent", "action"):
        del step["properties"][key]["default"]
    step["anyOf"] = [{"required": ["agent", "action"]}, {"required": ["workflow"]}]


FRONT = Format(
    model=WorkflowResource,
    title="Workflow resource, ioa.dev/v0.2",
    is_a=f"A workflow is a mapping with `apiVersion: {API_VERSION}` and `kind: {KIND}`.",
    claims=_claims,
    problems=_problems,
    build=lambda written, reading: build(written, reading.handlers),
    advice=_advice,
    amend=_amend,
)
