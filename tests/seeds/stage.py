"""A stage for specifications whose runs are played by hand: a real store, verbs for what happens, their own words.

No worker and no sleep: steps are claimed and reported by hand and the clock is moved. Whatever a test does, its run's
log is replayed by the judge at the end, with the dialect's invariants. `ioa_stage` and `action_stage` add documents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self, TypeVar

from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches

from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Definition
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, TimedOut
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.runs.projected import describe_run_as, dialect_log

S = TypeVar("S", bound="Stage")
T = TypeVar("T")
LONG = 30 * 86_400 * SECOND


class Stage:
    """One run on a real store."""

    judged: ClassVar[JudgedDialect]
    run_noun: ClassVar[str]
    step_noun: ClassVar[str]
    done: ClassVar[Completed]
    """What a step answers that is completed."""
    failing: ClassVar[Category]
    """The category of a failure where a test says nothing else."""
    decider = ACTOR

    def __init__(self, runner: asyncio.Runner, bench: Bench) -> None:
        self._runner, self.bench = runner, bench
        self._held: dict[str, Claim] = {}
        self.run_id = ""

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    # -- what happens ------------------------------------------------------------------------------------------------
    def start_with(self, definition: Definition, **options: Any) -> Self:
        self.run_id = self.wait(self.bench.start(definition, **options))
        return self

    def claim(self, *names: str, lease: int = LONG) -> list[str]:
        """Take everything that is ready, in the order in which it is given; `names` must be among what is held then."""
        claims = self.wait(self.bench.claim(100, lease=lease))
        self._held |= {claim.planned.name: claim for claim in claims}
        for name in names:
            assert name in self._held, f"{name} is not to be had, only {sorted(self._held)}"
        return [claim.planned.name for claim in claims]

    def ready(self) -> set[str]:
        """What workers hold or could hold now."""
        self.claim()
        return set(self._held)

    def held(self, name: str) -> Claim:
        if name not in self._held:
            self.claim(name)
        return self._held[name]

    def report(self, name: str, outcome: Outcome) -> Self:
        self.held(name)
        reply = self.wait(self.bench.report(self._held.pop(name), outcome))
        assert isinstance(reply, Accepted), reply
        return self

    def finish(self, *names: str) -> Self:
        for name in names:
            self.report(name, self.done)
        return self

    def fail(
        self, name: str, category: str | None = None, error: str = "it broke", error_class: str | None = None
    ) -> Self:
        known = None if error_class is None else ErrorClass(error_class)
        return self.report(
            name, Failed(category=Category(category) if category else self.failing, error=error, error_class=known)
        )

    def time_out(self, name: str) -> Self:
        return self.report(name, TimedOut())

    def later(self, seconds: float) -> Self:
        """Move the clock, and let time do what it does."""
        self.bench.store.clock_offset += int(seconds * SECOND)
        while self.wait(sweep(self.bench.transactor)):
            pass
        return self

    def decide(
        self, step: str | None = None, *, approve: bool = True, by: str | None = None, comment: str = ""
    ) -> Accepted:
        act = self.bench.approve if approve else self.bench.reject
        return self.wait(act(self.run_id, step, by or self.decider, comment))

    def cancel(self, *, compensate: bool = False, by: str = ACTOR) -> Self:
        transactor = self.bench.transactor
        self.wait(people.cancel(transactor, self.run_id, caller=Caller(TENANT, by), compensate=compensate))
        return self

    # -- what is shown -----------------------------------------------------------------------------------------------
    def log(self) -> list[dict[str, Any]]:
        """The run's log in the dialect's words, its closing line included."""
        return self.wait(dialect_log(self.bench.transactor, self.run_id, self.judged.name, tenant=TENANT))

    def run(self) -> list[str]:
        """Every state of the run, in order."""
        return [line["to_state"] for line in self.log() if line["event_type"] == f"{self.run_noun}_state_transition"]

    def states(self, name: str) -> list[str]:
        """Every state of one step, in order."""
        moves = (line for line in self.log() if line["event_type"] == f"{self.step_noun}_state_transition")
        return [line["to_state"] for line in moves if line["metadata"]["step"] == name]

    def extensions(self) -> set[tuple[str, str]]:
        return {(line["from_state"], line["to_state"]) for line in self.log() if "extension" in line["metadata"]}

    def view(self) -> dict[str, Any]:
        """The run as `show --as NAME --json` has it."""
        return self.wait(describe_run_as(self.bench.transactor, self.run_id, self.judged.name, tenant=TENANT))

    def judge(self) -> None:
        """Nothing that a test makes may break the specification."""
        if self.run_id:
            report = replay_lines(map(encode_line, self.log()), self.judged)
            assert report.findings == ()


@contextmanager
def opened(kind: type[S], url: str) -> Iterator[S]:
    with asyncio.Runner() as runner:
        opening = benches(url)
        [bench] = runner.run(opening.__aenter__())
        try:
            stage = kind(runner, bench)
            yield stage
            stage.judge()
        finally:
            runner.run(opening.__aexit__(None, None, None))
