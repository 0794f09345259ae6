"""The error texts that the engine words itself, and what a line with such a cause must say.

The words of handlers, of rules and of evaluated conditions are free. It shares no code with the engine: a test compares
the texts with the kernel's. `enabled.py`, `reenact.py` and `retell.py` read it; it reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from stepkeep.conformance.contract import Place
from stepkeep.conformance.line import Line
from stepkeep.conformance.steps import Step

LOST = "LEASE_EXPIRED: the worker was not heard of in time"
IN_DOUBT = "IN_DOUBT: its handler was still running when the attempt was closed; it may have had its effect"
NOT_RUN = "NOT_RUN: "
RUN_TIMED_OUT = "the run did not end within its timeout"
UNDECIDED = "no decision came before the deadline"
CHILD_LATE = "IN_DOUBT: its child run had not ended when the deadline passed; it may have had its effect"
EFFECTS_LEFT = "EFFECTS_LEFT: "
ELEMENTLESS = "its elements did not end before the deadline"
CHILD_IN_DOUBT = "IN_DOUBT: its child run had not ended when the grace period did; it may have had its effect"
UNCOMPLETED = "the step was not completed before the deadline"
UNHEARD = ("no message ", " arrived before the deadline")
UNEVALUATED = "its condition cannot be evaluated: "
NO_LENGTH = "its sleep has no length: "
UNSHOWN = "its facts cannot be evaluated: "

LOSABLE = frozenset({"lease_lost", "failed", "failed_tolerated", "held_exhausted"})
"""Triggers that time causes by an expired lease only."""


class Wording(NamedTuple):
    """A text that is known whole, or only how it begins and ends."""

    begins: str
    ends: str | None = None

    def fits(self, error: str) -> bool:
        if self.ends is None:
            return error == self.begins
        return error.startswith(self.begins) and error.endswith(self.ends)

    def __str__(self) -> str:
        return self.begins if self.ends is None else f"{self.begins}…{self.ends}"


def asked_by(verb: str, actor: str, words: object) -> str:
    """How a request of a person reads, with the reason that its detail carries."""
    return f"{verb} by {actor}" + (f": {words}" if words else "")


def wordings(line: Line, step: Step, place: Place, asked: Mapping[str, Any]) -> tuple[Wording, ...]:
    """The texts that the failure on this line of a step may have; none where its words are free."""
    trigger = line.trigger
    if line.event == "time_came" and trigger in LOSABLE:
        return (Wording(LOST),)
    if trigger in ("deadline_passed", "deadline_tolerated"):
        return (_deadline(line, step, place),)
    if trigger.startswith("rejected"):
        return (Wording(asked_by("rejected", line.actor, asked.get("comment") or asked.get("reason"))),)
    if trigger.startswith("completion_failed"):
        said = asked_by("completed as Failed", line.actor, None)
        return Wording(said), Wording(f"{said}: ", "")
    if trigger.startswith("operator_failed"):
        said = asked_by("failed", line.actor, asked.get("reason"))
        if step.last_error is None:
            return Wording("", f" ({said})"), Wording(said)
        return (Wording(f"{step.last_error} ({said})"),)
    if trigger.startswith("children_failed"):
        has_child = place.rule is not None and place.rule.child is not None and not place.rule.owns
        return tuple(left_by_child(asked, is_main=place.phase == "main")) if has_child else ()
    if not trigger.startswith("condition"):
        return ()
    shows = place.gate is not None and place.gate.facts is not None
    begins = (UNEVALUATED, *((UNSHOWN,) if shows else ()), *((NO_LENGTH,) if place.is_length_open else ()))
    return tuple(Wording(one, "") for one in begins)


def left_by_child(asked: Mapping[str, Any], *, is_main: bool = True) -> Iterator[Wording]:
    """How the end of a child reads that did not succeed. The undo step that rolls a child back has its own words."""
    child, state = asked.get("child"), asked.get("state")
    said = EFFECTS_LEFT if asked.get("partial") is True and is_main else ""
    said += f"child run {child} " + ("was not started" if state == "not_started" else f"has ended {state}")
    yield Wording(said)
    yield Wording(f"{said}: ", "")


def _deadline(line: Line, step: Step, place: Place) -> Wording:
    if line.source == "awaiting_completion":
        return Wording(UNCOMPLETED)
    if line.source == "awaiting_children":
        owns = place.rule is not None and place.rule.growth is not None
        return Wording(ELEMENTLESS if owns else CHILD_LATE)
    if line.source == "awaiting_approval":
        return Wording(UNDECIDED if line.category == "timeout" else f"rejected: {UNDECIDED}")
    wait = None if place.rule is None else place.rule.wait
    name = step.waits_for if wait is None else wait.event
    begins, ends = UNHEARD
    return Wording(begins, ends) if name is None else Wording(f"{begins}{name!r}{ends}")


def left_by(error: str | None) -> str | None:
    """The state that a step left when its deadline passed, as far as its error tells."""
    if error in (UNDECIDED, f"rejected: {UNDECIDED}"):
        return "awaiting_approval"
    if error == UNCOMPLETED:
        return "awaiting_completion"
    if error in (CHILD_LATE, ELEMENTLESS):
        return "awaiting_children"
    return "awaiting_event" if (error or "").startswith(UNHEARD[0]) else None
