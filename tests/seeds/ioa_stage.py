"""A stage for seed 000: resources in, a real store below, verbs for what happens, the run in its own words out.

No worker and no sleep: steps are claimed and reported by hand and the clock is moved. Whatever a test does, its run's
log is replayed by the judge at the end, with the dialect's invariants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from textwrap import dedent, indent
from typing import Any, TypeVar

from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches

from stepkeep.conformance.replay import replay_lines
from stepkeep.definition.document import parse_document
from stepkeep.definition.native import CheckReport
from stepkeep.definition.registry import Registry
from stepkeep.dialects.ioa.front import FRONT
from stepkeep.dialects.ioa.machine import JUDGED
from stepkeep.kernel.decision import Accepted
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.outcomes import Completed, Failed, Outcome, TimedOut
from stepkeep.kernel.states import Category
from stepkeep.operations import people
from stepkeep.operations.expire import sweep
from stepkeep.operations.lines import encode_line
from stepkeep.operations.projected import describe_run_as, dialect_log
from stepkeep.operations.start import start_idle
from stepkeep.operations.transact import Claim

T = TypeVar("T")
LONG = 30 * 86_400 * SECOND

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


class Stage:
    """One run on a real store."""

    def __init__(self, runner: asyncio.Runner, bench: Bench) -> None:
        self._runner, self.bench = runner, bench
        self._held: dict[str, Claim] = {}
        self.run_id = ""

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # -- what happens ------------------------------------------------------------------------------------------------
    def start(self, spec: str | Definition, **options: Any) -> Stage:
        definition = workflow(spec) if isinstance(spec, str) else spec
        self.run_id = self.wait(self.bench.start(definition, **options))
        return self

    def start_idle(self) -> None:
        self.wait(start_idle(self.bench.transactor, self.run_id, tenant=TENANT, actor=ACTOR))

    def claim(self, *names: str, lease: int = LONG) -> None:
        """Take everything that is ready; the named steps must be among what is held then."""
        for claim in self.wait(self.bench.claim(100, lease=lease)):
            self._held[claim.planned.name] = claim
        for name in names:
            assert name in self._held, f"{name} is not to be had, only {sorted(self._held)}"

    def ready(self) -> set[str]:
        """What workers hold or could hold now."""
        self.claim()
        return set(self._held)

    def report(self, name: str, outcome: Outcome) -> None:
        if name not in self._held:
            self.claim(name)
        reply = self.wait(self.bench.report(self._held.pop(name), outcome))
        assert isinstance(reply, Accepted), reply

    def finish(self, *names: str) -> Stage:
        for name in names:
            self.report(name, Completed(output=b'{"did":"it"}', cost=b'{"usd":0.5,"tokens":100}'))
        return self

    def fail(self, name: str, category: str = "agent", error: str = "it broke") -> Stage:
        self.report(name, Failed(category=Category(category), error=error))
        return self

    def time_out(self, name: str) -> Stage:
        self.report(name, TimedOut())
        return self

    def later(self, seconds: float) -> Stage:
        """Move the clock, and let time do what it does."""
        self.bench.store.clock_offset += int(seconds * SECOND)
        while self.wait(sweep(self.bench.transactor)):
            pass
        return self

    def approve(self, step: str | None = None) -> Stage:
        return self._decide(step, approve=True)

    def reject(self, step: str | None = None) -> Stage:
        return self._decide(step, approve=False)

    def _decide(self, step: str | None, *, approve: bool) -> Stage:
        transactor = self.bench.transactor
        self.wait(people.decide_gate(transactor, self.run_id, approve=approve, tenant=TENANT, actor=ACTOR, step=step))
        return self

    def cancel(self, *, compensate: bool = False) -> Stage:
        transactor = self.bench.transactor
        self.wait(people.cancel(transactor, self.run_id, tenant=TENANT, actor=ACTOR, compensate=compensate))
        return self

    # -- what is shown -----------------------------------------------------------------------------------------------
    def log(self) -> list[dict[str, Any]]:
        """The run's log in the dialect's words, its closing line included."""
        return self.wait(dialect_log(self.bench.transactor, self.run_id, "ioa", tenant=TENANT))

    def workflow(self) -> list[str]:
        """Every state of the workflow, in order."""
        return [line["to_state"] for line in self.log() if line["event_type"] == "workflow_state_transition"]

    def step(self, name: str) -> list[str]:
        """Every state of one step, in order."""
        steps = (line for line in self.log() if line["event_type"] == "step_state_transition")
        return [line["to_state"] for line in steps if line["metadata"]["step"] == name]

    def extensions(self) -> set[tuple[str, str]]:
        return {(line["from_state"], line["to_state"]) for line in self.log() if "extension" in line["metadata"]}

    @property
    def state(self) -> str:
        return self.workflow()[-1]

    def view(self) -> dict[str, Any]:
        """The run as `show --as ioa --json` has it."""
        return self.wait(describe_run_as(self.bench.transactor, self.run_id, "ioa", tenant=TENANT))

    def events(self) -> list[str]:
        return [event["event"] for event in self.view()["events"]]

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
