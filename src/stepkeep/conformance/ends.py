"""Why a run stopped, as its end tells it in a dialect's words: the ground, the category and the error must agree.

Where the dialect shows the stop, all three are known. Where it hides the stop, the ground on the line names it, and the
definition, the steps and the time decide which grounds are possible and what each says. `retell.py` calls it for the
lines of a run after its stop; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from stepkeep.conformance.enabled import wrong_field
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.reenact import FAILED_BY, Reenactment
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.texts import RUN_TIMED_OUT, Wording

UNDO = "+compensate"
"""Ends a ground where a failure leads to a rollback."""

FAILURES = frozenset({"step_failed", *FAILED_BY})
"""Grounds of a stop that one failed step caused."""

GROUNDED = frozenset({"stopped_failed", "undo_started", "undone", "undo_failed"})
"""Triggers of the run whose ground is its stop."""

UNDOING = GROUNDED - {"stopped_failed"}
HIDEABLE = frozenset({"timed_out", "undo_requested"})
"""Stops that no hop of a step has to show."""

CANCELLED = Wording("cancelled by ", "")
ANY_TEXT = Wording("", "")


class Blame(NamedTuple):
    """A category and a text that an end may have; a category of "" stands for any."""

    category: str | None
    error: Wording

    def fits(self, line: Line) -> bool:
        is_right = line.category == self.category or (self.category == "" and line.category is not None)
        return is_right and line.error is not None and self.error.fits(line.error)


def stop_of(line: Line, ground: str | None) -> str:
    """The stop that a line of a run names."""
    return "undo_requested" if line.trigger == "stopped_cancelled" else (ground or "").removesuffix(UNDO)


def check_ground(run: Reenactment, line: Line, ground: str | None, say: Say) -> None:
    """Check the ground of a line that follows from a stop."""
    if line.trigger not in GROUNDED:
        return
    stop = stop_of(line, ground)
    if not run.is_stop_unseen and run.ground:
        undoes = line.trigger in UNDOING and run.ground in FAILURES
        expected = run.ground + (UNDO if undoes else "")
        if ground != expected:
            say(Code.ENDING, f"the run: {wrong_field('ground', ground, expected, 'that is why it stopped')}")
    elif not _is_possible(run, line, stop):
        said = f"metadata.ground is {quoted(ground)}, but nothing in this log allows that"
        say(Code.ENDING, f"the run stopped for a hidden reason: {said}")


def check_hidden_blame(run: Reenactment, line: Line, ground: str | None, say: Say) -> None:
    """Check category and error of an end whose stop the dialect hides."""
    if not any(blame.fits(line) for blame in _blames(run, stop_of(line, ground))):
        found = f"metadata.category is {quoted(line.category)} and metadata.error is {quoted(line.error)}"
        say(Code.ENDING, f"the run: {found}, which is not what a run says after {quoted(stop_of(line, ground))}")


def _is_possible(run: Reenactment, line: Line, stop: str) -> bool:
    document = run.contract.document
    if stop == "timed_out":
        return document.timeout is not None and line.at >= (run.timed_from or 0) + document.timeout
    if stop in FAILURES:
        failed = {FAILED_BY.get(step.ended_as, "step_failed") for step in run.failed_steps()}
        return run.may_fail_unseen or stop in failed
    return {
        "undo_requested": True,
        "rules_failed": bool(document.rules),
        "steps_failed": bool(run.tolerated_failures),
    }.get(stop, False)


def _blames(run: Reenactment, stop: str) -> Iterator[Blame]:
    """What an end after this stop may say. A failure that was tolerated before the stop is blamed first."""
    if stop == "timed_out":
        yield Blame("timeout", Wording(RUN_TIMED_OUT))
    elif stop == "undo_requested":
        yield Blame(None, CANCELLED)
    elif stop == "rules_failed" or run.may_fail_unseen:
        yield Blame("", ANY_TEXT)
    for step in run.failed_steps():
        rule = run.contract.places[step.no].rule
        if stop in FAILURES or (rule is not None and rule.on_failure == "continue"):
            yield Blame(step.category, Wording(step.error or ""))
