"""The stage for seed 000: resources in, the run in its own words out."""

from __future__ import annotations

from contextlib import AbstractContextManager
from textwrap import dedent, indent
from typing import Any, Self

from tests.seeds import stage
from tests.workbench import ACTOR, TENANT

from stepkeep.definition.native.reader import CheckReport
from stepkeep.definition.python.registry import Registry
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.ioa.front import FRONT
from stepkeep.dialects.ioa.machine import JUDGED
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.pipeline.start import start_idle

HEAD = """\
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: { name: flow }
spec:
  description: A workflow under test.
  domainsInvolved: [growth, product]
"""


def resource(spec: str) -> str:
    """A whole resource around the rest of its spec."""
    return HEAD + indent(dedent(spec).strip(), "  ") + "\n"


def check(text: str, handlers: Registry | None = None) -> CheckReport:
    """What the front end has to say about a text."""
    document = parse_document(text, file="flow.yaml")
    return FRONT.examine(document.data, document, handlers)


def workflow(spec: str) -> Definition:
    """The definition in a spec that has no problems."""
    return accepted(check(resource(spec)))


def accepted(report: CheckReport) -> Definition:
    assert report.problems == ()
    assert report.definition is not None
    return report.definition


class Stage(stage.Stage):
    """One run on a real store."""

    judged, run_noun, step_noun = JUDGED, "workflow", "step"
    done = Completed(output=b'{"did":"it"}', cost=b'{"usd":0.5,"tokens":100}')
    failing = Category.AGENT

    def start(self, spec: str | Definition, **options: Any) -> Self:
        return self.start_with(workflow(spec) if isinstance(spec, str) else spec, **options)

    def start_idle(self) -> None:
        self.wait(start_idle(self.bench.transactor, self.run_id, caller=Caller(TENANT, ACTOR)))

    def approve(self, step: str | None = None) -> Self:
        self.decide(step)
        return self

    def reject(self, step: str | None = None) -> Self:
        self.decide(step, approve=False)
        return self

    @property
    def state(self) -> str:
        return self.run()[-1]

    def events(self) -> list[str]:
        return [event["event"] for event in self.view()["events"]]


def stage_on(url: str) -> AbstractContextManager[Stage]:
    return stage.opened(Stage, url)
