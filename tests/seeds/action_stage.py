"""The stage for seed 003: WorkflowV1 documents in, RunV1 out."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from typing import Any, Self

from tests.seeds import stage
from tests.workbench import ACTOR, TENANT

from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.policy import publishable_policy
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.action.front import FRONT
from stepkeep.dialects.action.machine import JUDGED
from stepkeep.dialects.action.signal import read_signal
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.people import people
from stepkeep.operations.people.people import token_hash
from stepkeep.operations.people.policies import publish_policy

Doc = dict[str, Any]
TOKEN = "a token that was handed out"


# -- documents -------------------------------------------------------------------------------------------------------
def action(name: str, order: int, *after: str, **keys: Any) -> Doc:
    """An action that runs the operation `NAME:do`; with `after`, or `dependsOn`, the document is a graph."""
    written = {"actionId": name, "order": order, "portFamily": "FinanceAccounting", "operation": f"{name}:do", **keys}
    return written | ({"dependsOn": list(after)} if after else {})


def sequence(*names: str, **keys: Doc) -> list[Doc]:
    """Actions by ascending order without edges; `keys` adds to one of them by its name."""
    return [action(name, place, **keys.get(name, {})) for place, name in enumerate(names, 1)]


def document(*actions: Doc, **keys: Any) -> Doc:
    return {
        "schemaVersion": 1,
        "workflowId": "flow",
        "workspaceId": "ws-1",
        "name": "A workflow under test",
        "version": 1,
        "active": True,
        "executionTier": "Auto",
        "actions": list(actions),
        **keys,
    }


def compensated(*names: str, **more: Doc) -> Doc:
    """A capability section in which these actions have a side effect and `NAME:undo` takes it back."""
    safety = {"idempotent": True, "supportsCompensation": True}
    entry = {"safety": safety, "compensationInputSchema": {"type": "object"}}
    return {f"{name}:do": entry | {"compensationOperation": f"{name}:undo"} for name in names} | more


def side_effect() -> Doc:
    """A capability with a side effect that nothing takes back."""
    return {"safety": {"idempotent": True}, "sideEffecting": True}


def check(data: Any, handlers: Registry | None = None) -> CheckReport:
    """What the front end has to say about a document."""
    text = json.dumps(data, indent=1)
    parsed = parse_document(text, file="flow.json", syntax="json")
    return FRONT.examine(parsed.data, parsed, handlers)


def built(data: Doc) -> Definition:
    """The definition in a document that has no problems."""
    report = check(data)
    assert report.problems == ()
    assert report.definition is not None
    return report.definition


# -- runs ------------------------------------------------------------------------------------------------------------
class Stage(stage.Stage):
    """One run on a real store."""

    judged, run_noun, step_noun = JUDGED, "run", "action"
    done = Completed(output=b'{"ref":"e-1"}', token=token_hash(TOKEN))
    failing = Category.VALIDATION
    decider = "bea"

    def start(self, *actions: Doc, **keys: Any) -> Self:
        return self.start_with(built(document(*actions, **keys)))

    def start_with(self, definition: Definition, **options: Any) -> Self:
        return super().start_with(definition, **({"correlation_id": "order-4711"} | options))

    def govern(self, policy: Doc) -> None:
        """Publish a live policy; it counts at once."""
        document = publishable_policy(policy)
        self.wait(publish_policy(self.bench.transactor, document, caller=Caller(TENANT, ACTOR)))

    def payload(self, action_id: str, outcome: str = "Succeeded", **keys: Any) -> Doc:
        """A manual completion signal as section 3.3 has it."""
        return {
            "schemaVersion": 1,
            "runId": self.run_id,
            "actionId": action_id,
            "completionToken": TOKEN,
            "outcome": outcome,
            "actorUserId": "claims-to-be-carl",
            "completedAtIso": "2026-03-01T12:00:00+01:00",
            **keys,
        }

    def signal(self, payload: Doc, by: str = "dora") -> Accepted:
        """What an edge does with a payload once it knows who sent it."""
        arguments = read_signal(payload).arguments()
        return self.wait(people.complete(self.bench.transactor, **arguments, caller=Caller(TENANT, by)))

    def last(self) -> dict[str, str]:
        """How the actions stand."""
        return {each["actionId"]: each["status"] for each in self.view()["actions"]}

    @property
    def status(self) -> str:
        return self.run()[-1]


def stage_on(url: str) -> AbstractContextManager[Stage]:
    return stage.opened(Stage, url)
