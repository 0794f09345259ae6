"""The ground on a dialect's line, which names the cause more finely than the canonical trigger does.

A ground follows from the line, the definition and the hops before. This module lists what it may be; where a hidden
hop decides, several grounds remain. Lines that follow from a stop are in `ends.py`. `retell.py` calls it.
"""

from __future__ import annotations

from stepkeep.conformance.arrows import STEP
from stepkeep.conformance.contract import Place
from stepkeep.conformance.elements import is_cancelled_by_owner
from stepkeep.conformance.line import Line
from stepkeep.conformance.reenact import Reenactment
from stepkeep.conformance.steps import Step

CANCELLED_BY = {"timed_out": "run_timed_out", "undo_requested": "run_cancelled"}
"""Why the steps of a stopping run are cancelled; after any other stop, because it failed."""

WAITING = frozenset({"awaiting_approval", "awaiting_event", "awaiting_completion"})
BEGINS_WAIT = frozenset(trigger for trigger, target in STEP if target in WAITING)
ENDS_WAIT = frozenset(trigger for trigger, _ in STEP if trigger not in BEGINS_WAIT) & frozenset(
    trigger for (trigger, _), sources in STEP.items() if WAITING.issuperset(sources.split())
)
"""Triggers of a step that only begin, or only end, a wait."""

ENDS_OF_WAITS = ("approved", "deadline", "input")
"""How the last wait of a run ended, which the line of a run may say when a step moves it."""


BY_PERSON = ("completion_signalled", "hold_decided", "step_decided")
"""Events by which a person completes a step."""


def grounds_of_step(hop: Line, place: Place, step: Step, stop: str | None) -> tuple[str | None, ...]:
    """The grounds that the line of a step may have; None stands for no ground besides its trigger.

    `stop` is why the run stopped, empty if it did not; None if the dialect may have hidden that.
    """
    if hop.trigger == "failed":
        limit = place.retry.max_attempts
        if hop.attempt is not None and hop.attempt >= limit:
            return ("attempts_exhausted",)
        return ("lost_too_often",) if hop.category == "poison" else ("not_retryable",)
    if hop.trigger == "rules_passed":
        owns = place.rule is not None and place.rule.owns and place.phase == "main" and place.owner is None
        if step.children_succeeded == hop.seq or (owns and hop.event not in BY_PERSON):
            return ("children_succeeded",)
        if place.rule is not None and place.rule.is_then and place.owner is None and hop.event not in BY_PERSON:
            # A handler that adds no step ends its step at once, which a dialect may hide.
            return ("children_succeeded", "executed")
        return ("completed_by_hand",) if hop.event in BY_PERSON else ("executed",)
    if hop.trigger == "claimed":
        known = step.was_lost
        return (None, "reclaimed") if known is None else (("reclaimed" if known else None),)
    if hop.trigger == "cancelled":
        return ("owner_stopped",) if is_cancelled_by_owner(hop, place) else _of_cancelled(hop, stop)
    return (None,)


def _of_cancelled(hop: Line, stop: str | None) -> tuple[str | None, ...]:
    if stop is None or (not stop and hop.took is not None):
        # A cancel ends attempts also in a run that had stopped before.
        return ("run_cancelled", "run_failed", "run_timed_out")
    return (cancelled_after(stop) if stop else "run_cancelled",)


def cancelled_after(stop: str) -> str:
    """The ground on which steps are cancelled after a stop."""
    return CANCELLED_BY.get(stop, "run_failed")


def grounds_of_run(line: Line, run: Reenactment) -> tuple[str | None, ...]:
    """The same for a line of the run that does not follow from its stop."""
    if line.trigger == "progressed":
        return ("first_claim",) if line.event == "step_claimed" else (None,)
    if line.trigger == "step_failed":
        return ("compensate",) if _policy_of(run, line.of) == "compensate" else (None,)
    if line.of is None and line.trigger in ("steps_settled", "rules_passed"):
        return _settled(run)
    if line.of is None or _is_no_step(run, line.of):
        return (None,)
    if run.is_final(line.of):
        return ("first_claim",) if line.trigger == "claimed" else _settled(run)
    if line.trigger in BEGINS_WAIT:
        return (None,)
    if line.trigger in ENDS_WAIT:
        return (_ended_by(line.trigger), *((None,) if run.stopped_at is not None else ()))
    return (None, *ENDS_OF_WAITS, *(("first_claim",) if line.trigger == "claimed" else ()))


def _settled(run: Reenactment) -> tuple[str | None, ...]:
    states = {step.state for step in run.steps.values() if step.phase == "main"}
    return ("some_left_out",) if states & {"skipped", "cancelled"} else ("all_succeeded",)


def _is_no_step(run: Reenactment, name: str) -> bool:
    """Whether a name is that of a hook or of a check, and not that of a step or of an element of one."""
    place = run.contract.places.get(run.contract.numbers.get(name, 0))
    return place is not None and place.phase != "main"


def _ended_by(trigger: str) -> str | None:
    """How a wait ended, in the words of a ground; a ground that is the trigger itself is left out."""
    if "deadline" in trigger or trigger == "slept":
        return "deadline"
    return {"approved": None, "hold_approved": "approved"}.get(trigger, "input")


def _policy_of(run: Reenactment, name: str | None) -> str:
    place = run.contract.places.get(run.contract.numbers.get(name or "", -1))
    return "" if place is None or place.rule is None else place.rule.on_failure
