"""Follows the dependencies of one run: which steps must open or be left out next, and by which step.

`reenact.py` says when a step has ended and when the run starts; this module checks that each step opens by the last of
those it depends on, in the entry in which that ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepkeep.conformance.adoption import ADOPTING
from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.hop import wrong_field
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import FollowedStep


class Dependencies:
    """What the ends of steps make necessary: `to_open` and `to_skip` name the step that leads to each."""

    def __init__(self, contract: Contract, steps: Mapping[int, FollowedStep]) -> None:
        self._contract, self._steps = contract, steps
        self.unmet = {no: place.needs for no, place in contract.places.items() if place.phase == "main"}
        self.to_open: dict[int, int | None] = {}
        self.to_skip: dict[int, int] = {}

    def clear(self) -> None:
        """What has not opened never will. A child that has begun is in flight."""
        self.to_open.clear()
        self.to_skip.clear()

    def open_first(self, at: int | None) -> None:
        """The run goes on: what depends on nothing opens, and what depends on adopted steps alone."""
        adopted = sorted(
            (step for step in self._steps.values() if step.ended_as in ADOPTING), key=lambda one: one.settled
        )
        taken = {step.no for step in adopted}
        self.to_open = {no: None for no, needs in self.unmet.items() if not needs and no not in taken}
        for no in self.to_open.keys() & self._steps.keys() if at is not None else ():
            self._steps[no].seen_at = at or 0
        for step in adopted:
            self.ended(self._contract.places[step.no], step, step.state, at or 0)

    def ended(self, place: PlannedRule, step: FollowedStep, state: str, at: int) -> None:
        """A step has ended: those that depend on it open when all others have, or are left out."""
        for no, allow in place.dependents:
            known = self._steps.get(no)
            # An added step beyond those that the definition allows is a finding already.
            if known is None or known.state != "pending" or {no} & (self.to_skip.keys() | self.to_open.keys()):
                continue
            if no not in self.unmet:
                continue
            if state not in allow or step.is_hard:
                self.to_skip[no] = place.no
                continue
            self.unmet[no] -= 1
            if not self.unmet[no]:
                self.to_open[no], known.seen_at = place.no, at

    def opened(self, place: PlannedRule, line: Line, flag: Say, *, starts_by: str) -> None:
        """A step opens. `starts_by` is the event by which those open that depend on nothing."""
        if place.no not in self.to_open:
            flag(Code.DEPENDENCY, f"it is {quoted(line.trigger)} before the steps it depends on allow that")
            return
        wanted = self.to_open.pop(place.no)
        if wanted is None and place.phase == "main" and line.event != starts_by:
            flag(Code.CAUSE, wrong_field("event", line.event, starts_by, "it depends on no step"))
        self._check_opener(line, wanted, flag)

    def skipped(self, place: PlannedRule, line: Line, flag: Say) -> None:
        if place.no not in self.to_skip:
            flag(Code.DEPENDENCY, "it is skipped, but no step it depends on makes that necessary")
            return
        self._check_opener(line, self.to_skip.pop(place.no), flag)

    def _check_opener(self, line: Line, wanted: int | None, flag: Say) -> None:
        """What the end of a step leads to happens in its entry and has its cause."""
        self.check_of(line, wanted, flag)
        step = None if wanted is None else self._steps.get(wanted)
        cause = line.seq, line.event, line.actor
        if step is not None and step.ended_by not in (None, cause):
            said = f"it has another entry, event or actor than the end of {quoted(step.name)}"
            flag(Code.CAUSE, f"{said}, which led to it")

    def check_of(self, line: Line, wanted: int | None, flag: Say) -> None:
        """A line names the step that leads to it."""
        expected = None if wanted is None else self._contract.places[wanted].name
        if line.of != expected:
            flag(Code.DEPENDENCY, wrong_field("of", line.of, expected, "that is the step that leads to it"))

    def entry_ended(self, say: Say) -> None:
        """What the entry made necessary has happened in it."""
        for no in (*self.to_open, *self.to_skip):
            name = quoted(self._contract.places[no].name)
            say(Code.DEPENDENCY, f"step {name} must move on here: what it depends on has ended")
