"""A stage for seed 003: WorkflowV1 documents in, a real store below, verbs for what happens, RunV1 out.

No worker and no sleep: actions are claimed and reported by hand and the clock is moved. Whatever a test does, its run's
log is replayed by the judge at the end, with the dialect's invariants.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches

from stepkeep.conformance.replay import replay_lines
from stepkeep.definition.document import parse_document
from stepkeep.definition.native import CheckReport
from stepkeep.definition.policy import publishable_policy
from stepkeep.definition.registry import Registry
from stepkeep.dialects.action.front import FRONT
from stepkeep.dialects.action.machine import JUDGED
from stepkeep.dialects.action.signal import read_signal
from stepkeep.kernel.decision import Accepted
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.outcomes import Completed, Failed, Outcome, TimedOut
from stepkeep.kernel.states import Category, ErrorClass
from stepkeep.operations import people
from stepkeep.operations.expire import sweep
from stepkeep.operations.lines import encode_line
from stepkeep.operations.people import token_hash
from stepkeep.operations.policies import publish_policy
from stepkeep.operations.projected import describe_run_as, dialect_log
from stepkeep.operations.transact import Claim

T = TypeVar("T")
Doc = dict[str, Any]
LONG = 30 * 86_400 * SECOND
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
class Stage:
    """One run on a real store."""

    def __init__(self, runner: asyncio.Runner, bench: Bench) -> None:
        self._runner, self.bench = runner, bench
        self._held: dict[str, Claim] = {}
        self.run_id = ""

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # -- what happens ------------------------------------------------------------------------------------------------
    def start(self, *actions: Doc, **keys: Any) -> Stage:
        return self.start_with(built(document(*actions, **keys)))

    def start_with(self, definition: Definition, **options: Any) -> Stage:
        options.setdefault("correlation_id", "order-4711")
        self.run_id = self.wait(self.bench.start(definition, **options))
        return self

    def govern(self, policy: Doc) -> None:
        """Publish a live policy; it counts at once."""
        document = publishable_policy(policy)
        self.wait(publish_policy(self.bench.transactor, document, tenant=TENANT, actor=ACTOR))

    def claim(self, *names: str, lease: int = LONG) -> list[str]:
        """Take everything that is ready, in the order in which it is given; `names` must be among what is held then."""
        claims = self.wait(self.bench.claim(100, lease=lease))
        self._held |= {claim.planned.name: claim for claim in claims}
        for name in names:
            assert name in self._held, f"{name} is not to be had, only {sorted(self._held)}"
        return [claim.planned.name for claim in claims]

    def held(self, name: str) -> Claim:
        if name not in self._held:
            self.claim(name)
        return self._held[name]

    def report(self, name: str, outcome: Outcome) -> Stage:
        self.held(name)
        reply = self.wait(self.bench.report(self._held.pop(name), outcome))
        assert isinstance(reply, Accepted), reply
        return self

    def finish(self, *names: str) -> Stage:
        for name in names:
            self.report(name, Completed(output=b'{"ref":"e-1"}', token=token_hash(TOKEN)))
        return self

    def fail(
        self, name: str, category: str = "validation", error: str = "it broke", error_class: str | None = None
    ) -> Stage:
        known = None if error_class is None else ErrorClass(error_class)
        return self.report(name, Failed(category=Category(category), error=error, error_class=known))

    def time_out(self, name: str) -> Stage:
        return self.report(name, TimedOut())

    def later(self, seconds: float) -> Stage:
        """Move the clock, and let time do what it does."""
        self.bench.store.clock_offset += int(seconds * SECOND)
        while self.wait(sweep(self.bench.transactor)):
            pass
        return self

    def decide(self, step: str | None = None, *, approve: bool = True, by: str = "bea", comment: str = "") -> Accepted:
        return self.wait(
            people.decide_gate(
                self.bench.transactor,
                self.run_id,
                approve=approve,
                tenant=TENANT,
                actor=by,
                step=step,
                comment=comment,
            )
        )

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
        return self.wait(people.complete(self.bench.transactor, **arguments, tenant=TENANT, actor=by))

    def cancel(self, *, compensate: bool = False) -> Stage:
        self.wait(people.cancel(self.bench.transactor, self.run_id, tenant=TENANT, actor=ACTOR, compensate=compensate))
        return self

    # -- what is shown -----------------------------------------------------------------------------------------------
    def log(self) -> list[Doc]:
        """The run's log in the dialect's words, its closing line included."""
        return self.wait(dialect_log(self.bench.transactor, self.run_id, "action", tenant=TENANT))

    def run(self) -> list[str]:
        """Every status of the run, in order."""
        return [line["to_state"] for line in self.log() if line["event_type"] == "run_state_transition"]

    def states(self, name: str) -> list[str]:
        """Every state of one action, in order."""
        moves = (line for line in self.log() if line["event_type"] == "action_state_transition")
        return [line["to_state"] for line in moves if line["metadata"]["step"] == name]

    def last(self) -> dict[str, str]:
        """How the actions stand."""
        return {each["actionId"]: each["status"] for each in self.view()["actions"]}

    def extensions(self) -> set[tuple[str, str]]:
        return {(line["from_state"], line["to_state"]) for line in self.log() if "extension" in line["metadata"]}

    @property
    def status(self) -> str:
        return self.run()[-1]

    def view(self) -> Doc:
        """The run as `show --as action --json` has it."""
        return self.wait(describe_run_as(self.bench.transactor, self.run_id, "action", tenant=TENANT))

    def judge(self) -> None:
        """Nothing that a test makes may break the seed."""
        if self.run_id:
            report = replay_lines(map(encode_line, self.log()), JUDGED)
            assert report.findings == ()


@contextmanager
def stage_on(url: str) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        opening = benches(url)
        [bench] = runner.run(opening.__aenter__())
        try:
            stage = Stage(runner, bench)
            yield stage
            stage.judge()
        finally:
            runner.run(opening.__aexit__(None, None, None))
