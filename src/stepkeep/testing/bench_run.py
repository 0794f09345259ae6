"""`BenchRun`: one run on a workbench, with actions of people and assertions.

Every action lets the run continue at once. A failed assertion shows what was expected, what happened instead, and the
whole history of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.journal import RUN_ENTITY, Entry, open_entry
from stepkeep.kernel.machine.states import STEP_WAITING, Phase, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.people import people
from stepkeep.operations.pipeline import plans
from stepkeep.operations.runs.run_answers import RunView, StepDetail
from stepkeep.operations.runs.views import read_snapshot

if TYPE_CHECKING:
    from stepkeep.testing.workbench import Workbench

BEGUN = STEP_WAITING | {StepState.RUNNING}
QUIET = frozenset({"pending", "ready"})
ARROW = " → "
MICROS = 1_000_000


class BenchRun:
    """A run with actions and assertions. Created by `Workbench.run` and `Workbench.start`."""

    def __init__(self, bench: Workbench, run_id: str) -> None:
        self._bench, self.id = bench, run_id

    # -- looking -------------------------------------------------------------------------------------------------------
    @property
    def view(self) -> RunView:
        """Everything about the run now."""
        return self._bench.call(self._bench.engine.show(self.id))

    def show(self, as_: str) -> Mapping[str, Any]:
        """The run in a dialect."""
        return self._bench.call(self._bench.engine.show(self.id, as_=as_))

    @property
    def state(self) -> str:
        return str(self.view.run.state)

    @property
    def output(self) -> Any:
        return self.view.run.output

    @property
    def error(self) -> str | None:
        return self.view.run.error

    def step(self, name: str) -> StepDetail:
        """One step: `state`, `attempts`, `error`, `category`, `output` …"""
        steps = {step.name: step for step in self.view.steps}
        if name not in steps:
            raise InvalidInput(f"the run has no step {name}; it has {', '.join(steps)}.")
        return steps[name]

    @property
    def path(self) -> list[str]:
        """The steps that a worker began or that opened for people or messages, in that order, each once."""
        return self._names(Phase.MAIN, BEGUN)

    @property
    def undone(self) -> list[str]:
        """The steps whose undo steps succeeded, in the order in which they were undone."""
        return [name.removeprefix("undo:") for name in self._names(Phase.UNDO, {StepState.SUCCEEDED})]

    @property
    def waits(self) -> list[str]:
        """The steps that wait for people or messages now."""
        return [one.step for one in self.view.run.waiting_for]

    def _names(self, phase: Phase, states: Iterable[str]) -> list[str]:
        plan, wanted = self._plan(), frozenset(states)
        hops = [hop for entry in self._entries() for hop in entry.hops if hop.no != RUN_ENTITY]
        reached = dict.fromkeys(hop.no for hop in hops if hop.target in wanted)
        return [plan.at(no).name for no in reached if plan.at(no).phase is phase]

    def _plan(self) -> Plan:
        engine = self._bench.engine
        return self._bench.call(plans.plan_of(engine.transactor, engine.tenant, self.id))

    def _entries(self) -> list[Entry]:
        engine = self._bench.engine
        sealed = self._bench.call(read_snapshot(engine.transactor, self.id, tenant=engine.tenant)).entries
        return [open_entry(entry.body) for entry in sealed]

    @property
    def story(self) -> str:
        """Everything that happened, one line each, with the time since the run was created."""
        entries = self._entries()
        plan = self._plan()
        lines = []
        for entry in entries:
            for hop in entry.hops:
                if hop.target in QUIET:
                    continue
                who = "run" if hop.no == RUN_ENTITY else plan.at(hop.no).name
                why = ": ".join(part for part in (hop.category, hop.error) if part)
                lines.append(f"  {_since(entry.at - entries[0].at)}  {who:<20} {hop.target:<20} {why}".rstrip())
        return "\n".join(lines)

    # -- people --------------------------------------------------------------------------------------------------------
    def approve(self, step: str | None = None, *, by: str = "approver", comment: str = "") -> None:
        """Approve a gate, or the only one that is open."""
        self._decide(step, by, comment, approve=True)

    def reject(self, step: str | None = None, *, by: str = "approver", comment: str = "") -> None:
        """Reject a gate, or the only one that is open."""
        self._decide(step, by, comment, approve=False)

    def _decide(self, step: str | None, by: str, comment: str, *, approve: bool) -> None:
        engine = self._bench.engine
        self._act(
            people.decide_gate(
                engine.transactor,
                self.id,
                approve=approve,
                caller=Caller(engine.tenant, by),
                step=step,
                comment=comment,
            )
        )

    def decide(self, step: str, choice: str, *, by: str = "operator", reason: str = "", output: Any = None) -> None:
        """Retry, skip, fail or complete a step that holds because no attempt is left, or that is stuck otherwise."""
        from stepkeep.engine.arguments import encode_payload

        engine = self._bench.engine
        self._act(
            people.decide_hold(
                engine.transactor,
                self.id,
                step,
                choice,
                caller=Caller(engine.tenant, by),
                reason=reason,
                output=None if output is None else encode_payload(output),
            )
        )

    def complete(
        self, step: str, outcome: str = "Succeeded", *, output: Any = None, by: str = "operator", notes: str = ""
    ) -> None:
        """Complete a manual step by hand; the workbench kept the token that was issued for it."""
        from stepkeep.engine.arguments import encode_payload

        engine = self._bench.engine
        token = self._bench.token(self.id, step)
        self._act(
            people.complete(
                engine.transactor,
                self.id,
                step,
                token=token,
                outcome=outcome,
                caller=Caller(engine.tenant, by),
                output=None if output is None else encode_payload(output),
                notes=notes,
            )
        )

    def send(self, name: str, payload: Any = None, *, message_id: str | None = None) -> None:
        """Send a message to the run."""
        self._act(self._bench.engine.send(self.id, name, payload, message_id=message_id))

    def cancel(self, *, compensate: bool = False, reason: str = "") -> None:
        self._act(self._bench.engine.cancel(self.id, compensate=compensate, reason=reason))

    def _act(self, work: Any) -> None:
        self._bench.call(work)
        self._bench.settle()

    # -- assertions ----------------------------------------------------------------------------------------------------
    def assert_state(self, state: str) -> None:
        """The run is in this state: `succeeded`, `failed`, `cancelled`, `rolled_back`, `blocked` …"""
        __tracebackhide__ = True
        found = self.view["run"]
        if found["state"] != state:
            why = f" ({found['error']})" if found["error"] else ""
            self._fail(f"the run should be {state}, and is {found['state']}{why}")

    def assert_succeeded(self, output: Any = ...) -> None:
        """The run has succeeded (with this output)."""
        __tracebackhide__ = True
        self.assert_state("succeeded")
        if output is not ... and self.output != output:
            self._fail(f"the run should come to {output!r}, and came to {self.output!r}")

    def assert_path(self, *steps: str) -> None:
        """These steps were begun, in this order, and no others."""
        __tracebackhide__ = True
        if self.path != list(steps):
            self._differs("took another path", steps, self.path)

    def assert_undone(self, steps: Sequence[str]) -> None:
        """These steps were undone, in this order, and no others."""
        __tracebackhide__ = True
        if self.undone != list(steps):
            self._differs("undid other steps", steps, self.undone)

    def assert_waits(self, *steps: str) -> None:
        """Exactly these steps wait for people or messages now."""
        __tracebackhide__ = True
        if sorted(self.waits) != sorted(steps):
            self._differs("waits for others", steps, self.waits)

    def assert_step(self, name: str, state: str, *, category: str | None = None) -> None:
        """This step is in this state (and failed for this reason)."""
        __tracebackhide__ = True
        found = self.step(name)
        if found["state"] != state:
            why = f" ({found['error']})" if found["error"] else ""
            self._fail(f"step {name} should be {state}, and is {found['state']}{why}")
        if category is not None and found["category"] != category:
            self._fail(f"step {name} should have failed for {category}, and did for {found['category']}")

    def assert_attempts(self, name: str, number: int) -> None:
        """This step had this many attempts; wake-ups after a wait do not count."""
        __tracebackhide__ = True
        found = self.step(name)
        if found["attempts"] != number:
            ends = ", ".join(str(attempt["state"]) for attempt in found["history"]) or "none"
            self._fail(
                f"step {name} should have been attempted {_times(number)}, and was {_times(found['attempts'])}: {ends}"
            )

    def _differs(self, how: str, expected: Sequence[str], found: Sequence[str]) -> None:
        __tracebackhide__ = True
        place = next((at for at, pair in enumerate(zip(expected, found, strict=False)) if pair[0] != pair[1]), None)
        place = min(len(expected), len(found)) if place is None else place
        wanted = expected[place] if place < len(expected) else "the end"
        came = found[place] if place < len(found) else "nothing more"
        self._fail(
            f"the run {how}\n"
            f"  expected  {ARROW.join(expected) or 'nothing'}\n"
            f"  found     {ARROW.join(found) or 'nothing'}\n"
            f"  at {place + 1}: expected {wanted}, found {came}"
        )

    def _fail(self, said: str) -> None:
        __tracebackhide__ = True
        raise AssertionError(f"{said}\nWhat happened in run {self.id}:\n{self.story}")

    def __repr__(self) -> str:
        return f"BenchRun({self.id})"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _since(micros: int) -> str:
    seconds, left = divmod(micros, MICROS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"+{hours:02}:{minutes:02}:{seconds:02}.{left // 1000:03}"
