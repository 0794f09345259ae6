"""Checks the order of undo steps: only for steps that were started, each once, last completed first, one at a time."""

from __future__ import annotations

from collections.abc import Mapping

from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import Step


class Rollback:
    """The undo steps of one run, in the order in which they were planned."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._ended = 0
        self._last: Step | None = None

    def check(self, hook: Step, line: Line, steps: Mapping[int, Step], undone: int, say: Say) -> None:
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

    def _plan(self, hook: Step, undone: Step | None, say: Say) -> None:
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
