"""Follows the hops of a journal and reports those that could not have happened.

`History` follows one machine (a worker). `RunHistory` follows a run with its steps, and checks what needs both: when a
step may change, how a run may end, and the order of undo steps. `steps.py` checks one step. After missing lines, checks
that need the whole history are switched off.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from stepkeep.conformance.contract import Contract, is_element_name
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import UNKNOWN, Machines, Say, check_hop
from stepkeep.conformance.reenact import Reenactment
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import NEW, FollowedStep, check_step

MOVING = ("ready", "running", "validating", "retrying")
"""States in which a step can change without a person or a message."""

WAITING = ("awaiting_approval", "awaiting_event", "awaiting_completion", "awaiting_children")
"""States in which a step waits for a person, a message, its children or a deadline."""

PHASES = {"idle": "main", "compensating": "undo", "validating": "check"}
"""The phase of a step that is planned while its run is in this state."""

CREATING = frozenset({"planned", "adopted", "adopted_skipped"})
"""Triggers that add a step to its run."""

GROWING = ("queued", "running", "blocked", "paused")
"""Run states in which elements are planned."""

QUIET = {
    "idle": frozenset({"cancelled"}),
    "queued": frozenset({"cancelled", "dependencies_met"}),
    "blocked": frozenset(
        {"cancelled", "token_reissued", "decision_recorded", "changes_requested", "escalated", "reassigned", "reminded"}
    ),
}
"""Run states in which few step hops are allowed, and which ones."""

ONLY_PHASE = {
    "running": ("main",),
    "paused": ("main",),
    "validating": ("check",),
    "stopping": ("main", "check"),
    "compensating": ("undo",),
}
"""Run states in which steps change, and the phases of those steps."""


CAUSES = {
    "queued": (MOVING, "main"),
    "running": (MOVING, "main"),
    "blocked": (WAITING, "main"),
    "validating": (MOVING, "check"),
    "compensating": ((*MOVING, "awaiting_children", "awaiting_approval"), "undo"),
}
"""Run states between entries, and the step states of which at least one must exist so that the run can continue."""


class EntityHistory:
    """One entity and its state."""

    def __init__(self, kind: str, machines: Machines) -> None:
        self.kind, self.machines = kind, machines
        self.state: str | None = None

    def follow(self, line: Line, say: Say) -> None:
        if self.state in self.machines[self.kind][1]:
            say(Code.TERMINAL, f"the {self.kind} had ended {quoted(self.state)}; nothing may follow")
        if line.about == "note":
            if self.state not in (UNKNOWN, line.target):
                say(
                    Code.CONTRADICTION, f"the note says {quoted(line.target)}, but the {self.kind} is not in that state"
                )
            return
        check_hop(self.machines[self.kind], None, self.state, line, say)
        self.state = line.target

    def lose(self) -> None:
        """Lines are missing: the state is unknown until the next line gives it."""
        self.state = UNKNOWN

    def is_in(self, state: str) -> bool:
        return self.state in (UNKNOWN, state)

    def number_of(self, step: str) -> int | None:
        return None

    def entry_ended(self, say: Say) -> None:
        """Every line of an entry was followed."""


class RunHistory(EntityHistory):
    """A run and its steps. `counts` has the number of steps per phase and state, so that no check scans all steps."""

    def __init__(self, kind: str, machines: Machines, contract: Contract | None = None) -> None:
        super().__init__(kind, machines)
        self.partial = False
        self.has_progressed = self.awaits_slot = False
        self.steps: dict[int, FollowedStep] = {}
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        self.leased = 0
        self.settled = 0
        self._next_planned = 0
        self.size = 0
        self.rollback = UndoOrder()
        self.reenactment = None if contract is None else Reenactment(contract, self.steps)

    def lose(self) -> None:
        super().lose()
        self.partial = True
        self.reenactment = None
        self.steps.clear()

    def number_of(self, step: str) -> int | None:
        return self.numbers.get(step)

    def follow(self, line: Line, say: Say) -> None:
        if line.event == "run_created" and line.detail is not None and '"awaits_slot"' in line.detail:
            self.awaits_slot = json.loads(line.detail).get("awaits_slot") is True
        elif line.event == "slot_granted":
            self.awaits_slot = False
        if self.reenactment is not None:
            self.reenactment.consume(line, say)
        if line.about != "step":
            super().follow(line, say)
            if line.about == "run" and not self.partial:
                self._check_run(line, say)
                if self.reenactment is not None:
                    self.reenactment.run_hop(line, say)
            return
        self._check_name(line, say)
        if self.state in self.machines["run"][1]:
            say(Code.TERMINAL, f"a step moves although the run had ended {quoted(self.state)}")
        if self.state is None:
            say(Code.CREATION, "a step moves before its run was created")
        self._follow_step(line, say)

    def _check_name(self, line: Line, say: Say) -> None:
        assert line.step is not None
        if (self.numbers.setdefault(line.step, line.no), self.names.setdefault(line.no, line.step)) != (
            line.no,
            line.step,
        ):
            say(Code.CONTRADICTION, f"step {quoted(line.step)} and number {line.no} did not belong together before")

    def _follow_step(self, line: Line, say: Say) -> None:
        step = self.steps.get(line.no)
        known = UNKNOWN if self.partial else None
        check_hop(self.machines["step"], line.step, step.state if step else known, line, say)
        if step is None:
            phase = PHASES.get(self.state or "", "main")
            step = self.steps[line.no] = FollowedStep(line.no, line.step or "", phase)
            self.counts[phase, step.state] += 1
        if not self.partial:
            self._check_permission(step, line, say)
            self.rollback.check(step, line, self.steps, self._undone_by(step), say)
            if self.reenactment is not None:
                self.reenactment.step_hop(step, line, self.state or "", say)
        leased = step.leased
        check_step(step, line, self.partial, say)
        self.leased += step.leased - leased
        self._count(step, line)

    def _undone_by(self, hook: FollowedStep) -> int:
        """The number of the step that a hook undoes; the numbers of elements follow from their names."""
        if hook.phase == "undo" and hook.no > 2 * self.size:
            return self.numbers.get(hook.name.removeprefix("undo:"), -1)
        return hook.no - self.size

    def _count(self, step: FollowedStep, line: Line) -> None:
        self.counts[step.phase, step.state] -= 1
        self.counts[step.phase, line.target] += 1
        self.counts[step.phase, "all"] += step.state == NEW
        step.state = line.target
        if line.target in self.machines["step"][1]:
            self.settled += 1
            step.settled = self.settled

    # -- what the run's state allows its steps -----------------------------------------------------------------------
    def _check_permission(self, step: FollowedStep, line: Line, say: Say) -> None:
        state = self.state or ""
        is_element = line.trigger == "planned" and state in GROWING and is_element_name(line.step)
        if is_element or (line.trigger in CREATING and state == "idle" and is_element_name(line.step)):
            # An element of a map or a loop, or one that the rollback of a child adopted.
            allowed = is_element or line.trigger != "planned"
        elif line.trigger in CREATING:
            allowed = state == "idle" or (line.trigger == "planned" and state in PHASES)
            if step.phase == "main":
                self.size += 1
                self._check_order(step, line, say)
        elif state in QUIET:
            allowed = line.trigger in QUIET[state]
        elif state == "paused":
            allowed = step.phase == "main" and line.trigger != "claimed"
        elif state == "stopping":
            allowed = line.target in self.machines["step"][1] or line.trigger in ("completed", "children_succeeded")
        else:
            allowed = step.phase in ONLY_PHASE.get(state, (step.phase,))
        if not allowed:
            say(Code.CLAIM, f"{step.title} ({step.phase}) is {quoted(line.trigger)} while the run is {quoted(state)}")

    def _check_order(self, step: FollowedStep, line: Line, say: Say) -> None:
        """The adopted steps come first, in the order of their completion; the others follow by number."""
        if line.trigger != "planned":
            if self._next_planned:
                say(Code.CREATION, f"{step.title} is adopted after other steps were planned")
            return
        expected = self._next_planned
        while (known := self.steps.get(expected)) is not None and known.state != NEW:
            expected += 1
        if line.no != expected:
            say(Code.CREATION, f"step number {line.no} is planned where {expected} is next")
        self._next_planned = max(line.no, expected) + 1

    # -- what the steps allow their run ------------------------------------------------------------------------------
    def _open(self, *phases: str) -> int:
        ended = self.machines["step"][1]
        return sum(self.counts[phase, "all"] - sum(self.counts[phase, state] for state in ended) for phase in phases)

    def _in(self, states: tuple[str, ...], phase: str) -> int:
        return sum(self.counts[phase, state] for state in states)

    def _check_run(self, line: Line, say: Say) -> None:
        target, trigger = line.target, line.trigger
        is_end, is_settled = target in self.machines["run"][1], trigger in ("steps_settled", "steps_failed")
        blames = trigger in ("step_failed", "rules_failed")
        wrong = {
            "has steps that have not ended": is_end and self._open("main", "undo", "check"),
            "has steps in flight": not is_end and line.source == "stopping" and self._open("main", "check"),
            "has steps that have not settled": is_settled and self._open("main"),
            "has a step that failed": (target == "succeeded" or trigger == "steps_settled") and self._failed(),
            "has no step that failed": trigger == "steps_failed" and not self._failed(),
            "has steps that can move": target == "blocked" and self._in(MOVING, "main"),
            f"blames a step that did not fail: {quoted(line.of)}": blames and not self._has_failed(line.of),
            "has a hook that did not succeed": (
                trigger == "undone" and self.counts["undo", "succeeded"] != self.counts["undo", "all"]
            ),
        }
        self.has_progressed |= line.trigger == "progressed"
        begun = "had begun before" if self.has_progressed else "had not begun before"
        wrong[begun] = trigger in ("unpaused", "unpaused_queued") and self.has_progressed != (trigger == "unpaused")
        for reason, is_wrong in wrong.items():
            if is_wrong:
                say(Code.ENDING, f"the run goes to {quoted(line.target)} by {quoted(line.trigger)}, but {reason}")

    def _failed(self) -> int:
        return self.counts["main", "failed"] + self.counts["check", "failed"]

    def _has_failed(self, name: str | None) -> bool:
        step = self.steps.get(self.numbers.get(name or "", -1))
        return step is not None and step.state == "failed"

    def entry_ended(self, say: Say) -> None:
        """Between entries, an unfinished run must have a cause to progress."""
        if self.partial:
            return
        state = self.state or ""
        if self.reenactment is not None:
            self.reenactment.entry_ended(state, say)
        in_flight = self.leased + self.counts["main", "awaiting_children"]
        if state == "stopping" and self._open("main", "check") != in_flight:
            say(Code.ENDING, "the run is stopping, but a step that no worker holds has not ended")
        if state == "blocked" and self._in(MOVING, "main"):
            say(Code.ENDING, "the run stays blocked, but a step in it can move")
        causes = in_flight if state == "stopping" else self._in(*CAUSES[state]) if state in CAUSES else 1
        if causes <= 0 and not (state == "queued" and self.awaits_slot):
            say(Code.STUCK, f"the run stays {quoted(self.state)}, but nothing in it can move it on")


# -- rollback ------------------------------------------------------------------------------------------------------
class UndoOrder:
    """The undo steps of one run, in the order in which they were planned."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._ended = 0
        self._last: FollowedStep | None = None

    def check(self, hook: FollowedStep, line: Line, steps: Mapping[int, FollowedStep], undone: int, say: Say) -> None:
        """Check a hop of an undo step. `undone` is the number of the step that it undoes."""
        if hook.phase != "undo":
            return
        if line.trigger == "planned":
            self._plan(hook, steps.get(undone), say)
            return
        # One that holds waits for a decision, if its definition says so.
        is_held = line.trigger == "held_exhausted"
        if line.target.startswith("awaiting_") and line.target != "awaiting_children" and not is_held:
            say(Code.UNDO, f"hook {quoted(hook.name)} waits; hooks must not")
        if self._place.get(hook.no) != self._ended and line.trigger != "cancelled":
            say(Code.UNDO, f"hook {quoted(hook.name)} moves out of turn")
        if line.target in ("succeeded", "failed", "skipped", "cancelled"):
            self._ended += 1

    def _plan(self, hook: FollowedStep, undone: FollowedStep | None, say: Say) -> None:
        self._place[hook.no] = len(self._place)
        if undone is None or undone.phase != "main" or hook.name != f"undo:{undone.name}":
            say(Code.UNDO, f"hook {quoted(hook.name)} undoes no step of this run")
            return
        if undone.state != "succeeded" and not undone.fence and not undone.is_adopted:
            say(Code.UNDO, f"hook {quoted(hook.name)} undoes a step that was never tried")
        if self._last is not None and undone.settled > self._last.settled:
            said = f"{quoted(undone.name)} completed after {quoted(self._last.name)} and must be undone before it"
            say(Code.UNDO, said)
        self._last = undone
