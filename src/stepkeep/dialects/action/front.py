"""The front end of the action dialect: a WorkflowV1 document in, the canonical definition or all problems out.

It runs the checks in order and contains none of them; nothing of the document is executed. The dialect registry calls
it for documents that it recognises.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from stepkeep.definition.complaints import complaints
from stepkeep.definition.findings import Finding, Source, located
from stepkeep.definition.native import CheckReport
from stepkeep.definition.registry import Registry
from stepkeep.dialects.action.borrowed import check_contents, check_edges
from stepkeep.dialects.action.build import build
from stepkeep.dialects.action.checks import check_document
from stepkeep.dialects.action.lint import lint
from stepkeep.dialects.action.parts import is_graph, parts_of
from stepkeep.dialects.action.written import WorkflowV1

_OTHER_WORDS = {
    "parameters": "Write `inputs`; what a run is started with is `${{ input }}`.",
    "dependencies": "Write `dependsOn`.",
    "retry": "Write `retryPolicy`.",
    "timeout": "Write `timeoutMs`.",
    "compensationInput": "Write it inside `compensation`.",
    "compensationOperation": "Write it in `capabilities`, beside its compensationInputSchema.",
    "idempotencyKey": "Leave it out: it is made of the run's and the action's ids.",
}


class Front:
    """WorkflowV1 documents."""

    def recognises(self, data: Any) -> bool:
        return isinstance(data, dict) and "workflowId" in data and "actions" in data

    def examine(self, data: Any, source: Source, handlers: Registry | None = None) -> CheckReport:
        """Check a document; `source` has the position of each part."""
        if not isinstance(data, dict):
            said = "A workflow is a mapping with `workflowId` and `actions`."
            return CheckReport(definition=None, problems=(source.problem((), said),))
        written, findings = _shaped(data)
        parts = parts_of(data)
        tangles = check_edges(parts, by_edges="edges" in data)
        findings += [*tangles, *check_document(data, parts), *check_contents(parts, bool(tangles), handlers)]
        if written is None or findings:
            return CheckReport(definition=None, problems=located(source, findings))
        definition = build(written, parts, not is_graph(data), handlers)
        return CheckReport(definition=definition, warnings=located(source, lint(written, definition, parts)))


FRONT = Front()


def _shaped(data: dict[str, Any]) -> tuple[WorkflowV1 | None, list[Finding]]:
    try:
        return WorkflowV1.model_validate(data), []
    except ValidationError as error:
        return None, [_hinted(finding) for finding in complaints(error, data, WorkflowV1)]


def _hinted(finding: Finding) -> Finding:
    """Advice for keys of other formats."""
    key = str(finding.path[-1]) if finding.path else ""
    if finding.key and finding.message.startswith("There is no key") and key in _OTHER_WORDS:
        return finding._replace(hint=_OTHER_WORDS[key])
    return finding
