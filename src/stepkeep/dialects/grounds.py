"""The ground of a hop: why it happened, in finer words than its canonical trigger.

A seed's word is true for some grounds only: `Run cancel` is false for a step that was cancelled because another failed.
Arrows and extensions therefore list the grounds that cover them (`when`). A pure fold over hops; it must not import the
engine. Projections, the certificate and the refinement call it.
"""

from __future__ import annotations

from typing import NamedTuple

STEP_GROUNDS = {
    "cancelled": ("run_cancelled", "run_failed", "run_timed_out", "owner_stopped"),
    "failed": ("attempts_exhausted", "lost_too_often", "not_retryable"),
    "claimed": ("claimed", "reclaimed"),
    "rules_passed": ("executed", "completed_by_hand", "children_succeeded"),
}
"""The possible grounds of a step's hop; every other trigger is its own ground."""

RUN_FACTS = {"progressed": ("", "first_claim"), "step_failed": ("", "compensate")}
"""What the run's own hops do not tell and an observer knows: the event, and the policy of the failed step."""

WAITING = frozenset({"awaiting_approval", "awaiting_event", "awaiting_completion"})
STOPS = frozenset({"step_failed", "steps_failed", "rules_failed", "timed_out", "undo_requested"})
STOPPED = frozenset({"stopped_failed", "undo_started", "undone", "undo_failed"})
SETTLED = frozenset({"steps_settled", "rules_passed"})

FAILURES = {word: word for word in ("rejected", "deadline_passed", "operator_failed")}
"""Failures of a step that no execution caused."""

UNDOING = frozenset({"undo_started", "undone", "undo_failed"})
WITHOUT_UNDO = frozenset({"step_failed", *FAILURES.values()})
"""A rollback that starts after such a stop was asked for by a later failure, or by the whole definition."""

CANCELLED_BY = {"timed_out": "run_timed_out", "undo_requested": "run_cancelled"}
"""Why a stopping run cancels its steps; for every other cause, because it failed."""


RULES_PASSED_AFTER = {
    "completion_succeeded": "completed_by_hand",
    "operator_completed": "completed_by_hand",
    "children_succeeded": "children_succeeded",
}
"""Why the rules of a step hold that no worker checked."""


FINAL = "final"
"""The phase of a step that a dialect adds for the end of a run. It opens when every other step has settled."""


class Seen(NamedTuple):
    """A canonical hop: `kind` is run, step or worker, `name` is the step's (or entity's) name. `phase` is main, undo,
    check or final.

    `fact` is what the hops cannot tell: `first_claim`, `compensate`, `owner_stopped`, or the ground of a `failed` step.
    """

    kind: str
    name: str
    source: str | None
    trigger: str
    target: str
    phase: str = "main"
    fact: str = ""


FACTUAL = frozenset({"cancelled", "progressed", "step_failed", "failed"})
"""Triggers about which there is a fact."""


def fact_of(
    trigger: str,
    event: str,
    *,
    attempt: int | None,
    limit: int | None,
    category: str | None,
    policy: str | None,
    step: str | None = None,
    of: str | None = None,
) -> str:
    """The fact about one hop: `limit` is the step's `max_attempts`, `policy` the `on_failure` of the failed step. `of`
    is the step that led to this hop of `step`."""
    if trigger == "cancelled" and step is not None and of is not None and is_element_of(step, of):
        return "owner_stopped"
    if trigger == "progressed":
        return "first_claim" if event == "step_claimed" else ""
    if trigger == "step_failed":
        return "compensate" if policy == "compensate" else ""
    if trigger != "failed":
        return ""
    if attempt is not None and limit is not None and attempt >= limit:
        return "attempts_exhausted"
    return "lost_too_often" if category == "poison" else "not_retryable"


def is_element_of(step: str, owner: str) -> bool:
    """Whether a step is an element of this owner, by its name.

    >>> is_element_of("resize[3]", "resize"), is_element_of("resize", "resize")
    (True, False)
    """
    return step.startswith(f"{owner}[") and step.endswith("]")


class RunGrounds:
    """The grounds of what is shown of a run; its memory is small, because the refinement explores all of it."""

    def __init__(self) -> None:
        self.stop = ""
        self.wait_ended_by = ""
        self.failure = ""
        self.left_out = False

    def feed(self, seen: Seen) -> str:
        """The ground on which the run is shown in another state after this hop, of the run or of a step."""
        if seen.kind != "run":
            if seen.phase == FINAL:
                return self._settled
            return self._after_step(seen) if seen.phase == "main" else seen.trigger
        if seen.trigger in STOPS:
            self.stop = seen.trigger
            if seen.trigger == "step_failed":
                self.stop = (self.failure or seen.trigger) + ("+compensate" if seen.fact else "")
            self.wait_ended_by, self.failure, self.left_out = "", "", False
        if seen.trigger in SETTLED:
            return self._settled
        if seen.trigger in UNDOING and self.stop in WITHOUT_UNDO:
            self.stop += "+compensate"
        return (self.stop if seen.trigger in STOPPED else seen.fact) or seen.trigger

    @property
    def _settled(self) -> str:
        return "some_left_out" if self.left_out else "all_succeeded"

    def _after_step(self, seen: Seen) -> str:
        if seen.target in WAITING:
            return seen.trigger
        if not self.stop:
            if seen.source in WAITING:
                self.wait_ended_by = _ended_by(seen.trigger)
            if seen.target == "failed":
                self.failure = FAILURES.get(seen.trigger, "step_failed")
            self.left_out = self.left_out or seen.target in ("skipped", "cancelled")
        return self.wait_ended_by or seen.trigger


def _ended_by(trigger: str) -> str:
    if "deadline" in trigger or trigger == "slept":
        return "deadline"
    return "approved" if trigger in ("approved", "hold_approved") else "input"


class Grounds:
    """The grounds of the hops of one run (or worker) and its steps."""

    def __init__(self) -> None:
        self._run = RunGrounds()
        self._state = ""
        self._steps: dict[str, str] = {}

    def feed(self, seen: Seen) -> tuple[str, str]:
        """The ground of the hop itself, and the ground of a change of the run that it may show."""
        run = self._run.feed(seen)
        if seen.kind != "step":
            self._state = seen.target
            return (run if seen.kind == "run" else seen.trigger), run
        return self._of_step(seen), run

    def _of_step(self, seen: Seen) -> str:
        before = self._steps.get(seen.name)
        if seen.trigger == "lease_lost" or seen.trigger in RULES_PASSED_AFTER:
            self._steps[seen.name] = seen.trigger
        elif seen.trigger in ("claimed", "rules_passed", "released"):
            self._steps.pop(seen.name, None)
        if seen.trigger == "cancelled":
            if seen.fact:
                return seen.fact
            if self._state not in ("stopping", "compensating"):
                return "run_cancelled"
            return CANCELLED_BY.get(self._run.stop, "run_failed")
        if seen.trigger == "claimed" and before == "lease_lost":
            return "reclaimed"
        if seen.trigger == "rules_passed":
            return RULES_PASSED_AFTER.get(before or "", "executed")
        return seen.fact or seen.trigger
