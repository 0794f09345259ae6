"""The format of the action dialect: WorkflowV1 documents.

It names the checks in their order and contains none of them. The dialect registry finds `FRONT` here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepkeep.definition.findings import Finding
from stepkeep.dialects.action.build import build, check_contents, check_edges
from stepkeep.dialects.action.checks import check_constraints, check_document, lint
from stepkeep.dialects.action.parts import is_graph, parts_of
from stepkeep.dialects.action.written import WorkflowV1
from stepkeep.dialects.format import Format, FormatReading

_OTHER_WORDS = {
    "parameters": "Write `inputs`; what a run is started with is `${{ input }}`.",
    "dependencies": "Write `dependsOn`.",
    "retry": "Write `retryPolicy`.",
    "timeout": "Write `timeoutMs`.",
    "compensationInput": "Write it inside `compensation`.",
    "compensationOperation": "Write it in `capabilities`, beside its compensationInputSchema.",
    "idempotencyKey": "Leave it out: it is made of the run's and the action's ids.",
}


def _problems(reading: FormatReading[WorkflowV1]) -> Iterator[Finding]:
    data = reading.data
    parts = parts_of(data)
    tangles = check_edges(parts, by_edges="edges" in data)
    yield from tangles
    yield from check_document(data, parts)
    if reading.written is not None:
        yield from check_constraints(reading.written.sod_constraints, {node.name for node in parts.nodes})
    yield from check_contents(parts, bool(tangles), reading.handlers)


def _hinted(finding: Finding) -> Finding:
    """Advice for keys of other formats."""
    key = str(finding.path[-1]) if finding.path else ""
    if finding.key and finding.message.startswith("There is no key") and key in _OTHER_WORDS:
        return finding._replace(hint=_OTHER_WORDS[key])
    return finding


def _amend(schema: dict[str, Any]) -> None:
    schema["$defs"]["Action"]["anyOf"] = [{"required": ["operation"]}, {"required": ["capability"]}]


FRONT = Format(
    model=WorkflowV1,
    title="WorkflowV1 with runtime metadata and a capability section",
    is_a="A workflow is a mapping with `workflowId` and `actions`.",
    claims=lambda data: "workflowId" in data and "actions" in data,
    problems=_problems,
    build=lambda written, reading: build(written, parts_of(reading.data), not is_graph(reading.data), reading.handlers),
    advice=lambda written, definition, reading: lint(written, definition, parts_of(reading.data)),
    reword=_hinted,
    amend=_amend,
)
