"""Follows one step: lease, fence, attempts and timers, the resources that a claim holds, and its checkpoints.

It checks each hop against earlier hops of the same step. Exactly one outcome ends each claim. `history.py` checks what
the run allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.conformance.contract import PlannedRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.people import ASKED, GateRule, OpenedGate
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import text

NEW = "new"
"""The state of a step before its first hop."""

UNDER_LEASE = frozenset(
    {
        "completed", "released", "lease_lost", "waited", "completion_requested", "retry_scheduled",
        "rules_passed", "rules_failed", "rules_failed_tolerated", "failed", "failed_tolerated", "held_exhausted",
        "held_unfit",
    }
)  # fmt: skip
"""Triggers that only the worker holding the step can cause."""

TIMED = frozenset(
    {
        "retry_due", "lease_lost", "slept", "deadline_handed_over", "deadline_passed", "deadline_tolerated",
        "deadline_approved", "hold_deadline_approved", "deadline_skipped", "escalated", "reminded",
    }
)  # fmt: skip
"""Triggers that only a timer causes, or a person who does not wait for it."""

BY_HAND = frozenset({"completion_succeeded", "operator_completed"})
"""Triggers by which a person completes a step."""


LOST = "LEASE_EXPIRED: "
IN_DOUBT = "IN_DOUBT: "
EFFECTS_LEFT = "EFFECTS_LEFT: "
NOT_RUN = "NOT_RUN: "
"""How an error begins whose rest is free: the lease was lost, the handler or its child may have had its effect, a child
left what it did, or a rule failed before the handler."""


class FollowedStep:
    """What the log has shown of one step."""

    def __init__(self, no: int, name: str, phase: str) -> None:
        self.no, self.name, self.phase = no, name, phase
        self.title = f"step {quoted(name)}"
        self.state = NEW
        self.is_adopted = False
        self.fence = 0
        self.leased = False
        self.claimed_at = 0
        self.seen_at = 0  # when it moved or became ready to open: no hidden hop came before that
        self.attempt = 1
        self.due_at: int | None = None
        self.settled = 0
        self.ended_by: tuple[int, str, str] | None = None
        self.ended_as = ""
        self.was_lost: bool | None = False
        self.completed_by_hand: int | None = None
        self.children_succeeded: int | None = None
        self.moved_in: int | None = 0
        self.moved_by = ("", "")
        self.is_claim_known = self.is_timer_known = True
        self.losses: int | None = 0
        self.counts_losses = None if phase == "undo" else True
        """Whether a lost lease uses up an attempt; None while no definition tells it."""
        self.is_attempt_open = False  # its lease was lost, and that may be no attempt
        self.was_held = False  # by a policy
        self.spent: int | None = 0
        self.began_at: int | None = 0
        self.holder: str | None = ""
        self.waits_for: str | None = None
        self.takes_timeouts: bool | None = True
        self.count = 1  # how many messages end the wait of its handler, at least
        self.may_refuse = False  # whether its handler chooses messages
        self.is_hard = self.is_exhausted = False
        self.tried: frozenset[object] | None = frozenset()
        """Digests of the code of a flow that does not fit; None where the log does not tell."""
        self.category: str | None = None
        self.error: str | None = None
        self.last_error: str | None = None
        self.is_unsure: bool | None = False
        self.open_gate: OpenedGate | None = None
        self.checkpoints: set[str] = set()  # what its handler has recorded while it ran
        self.terms: GateRule | None = None
        self.permit: str | None = None
        self.is_permit_unseen = False  # the dialect may have hidden a hold, and with it the rule that was approved

    def forget(self) -> None:
        """A hop was hidden: what it would have determined is unknown."""
        self.is_timer_known = False
        self.losses = self.moved_in = self.waits_for = self.takes_timeouts = None
        self.spent = self.began_at = None
        self.count, self.may_refuse = 1, True

    def forget_claim(self) -> None:
        """A claim was hidden: its worker and its time are unknown."""
        self.is_claim_known, self.holder = False, None


def check_step(step: FollowedStep, line: Line, partial: bool, say: Say) -> None:
    """Check one hop, then record it."""
    step.is_adopted |= line.trigger.startswith("adopted")
    if partial:
        step.fence = line.fence or 0
        return
    _check_fence(step, line, say)
    _check_lease(step, line, say)
    _check_attempt(step, line, say)
    is_timed = line.trigger in TIMED and line.event not in (ASKED, "step_decided")
    if is_timed and step.is_timer_known and (step.due_at is None or line.at < step.due_at):
        say(Code.TIMER, f"{step.title}: {quoted(line.trigger)} came before it was due")
    _remember(step, line)


def _check_fence(step: FollowedStep, line: Line, say: Say) -> None:
    fence = line.fence or 0
    if line.trigger == "claimed":
        if fence != step.fence + 1:
            said = f"metadata.fence is {fence}, expected {step.fence + 1}: each claim adds 1 to the fence"
            say(Code.FENCE, f"{step.title}: {said}")
        if line.due_at is None or line.due_at <= line.at:
            say(Code.TIMER, f"{step.title} is claimed under a lease that does not last")
    elif fence != step.fence:
        say(Code.FENCE, f"{step.title} moves under fence {fence}, but its last claim has {step.fence}")


def _check_lease(step: FollowedStep, line: Line, say: Say) -> None:
    if line.trigger == "claimed":
        if step.leased:
            say(Code.OUTCOME, f"{step.title} is claimed while another claim holds it")
    elif (
        line.trigger in UNDER_LEASE
        and not step.leased
        and line.seq not in (step.completed_by_hand, step.children_succeeded)
    ):
        say(Code.OUTCOME, f"{step.title}: {quoted(line.trigger)} without a claim that holds it")
    ends = step.leased and line.trigger not in ("claimed", "completed")
    took = line.at - step.claimed_at if ends else None
    if ends and not step.is_claim_known:
        if line.took is None or line.took > line.at - step.seen_at:
            say(Code.OUTCOME, f"{step.title}: metadata.duration_seconds is longer than the time since its last line")
    elif line.took != took:
        say(Code.OUTCOME, f"{step.title}: metadata.duration_seconds is not the time since its claim")


def _check_attempt(step: FollowedStep, line: Line, say: Say) -> None:
    attempt = step.attempt if line.fence else None
    if step.is_attempt_open and line.attempt is not None and line.attempt + 1 == attempt:
        return
    if line.attempt != attempt:
        say(Code.ATTEMPT, f"{step.title}: metadata.attempt is {line.attempt} where {attempt} is due")


def ends_attempt(trigger: str, target: str) -> bool:
    """Whether a hop uses up an attempt and another may follow: not a wake-up, a release, or a loss during rules."""
    return target == "retrying" or trigger == "held_exhausted"


def is_no_attempt(step: FollowedStep, trigger: str, event: str) -> bool | None:
    """Whether a hop is a lost lease that uses up no attempt; None if no definition tells it."""
    is_loss = trigger == "lease_lost" or (trigger == "held_exhausted" and event == "time_came")
    return is_loss and (None if step.counts_losses is None else not step.counts_losses)


def _remember(step: FollowedStep, line: Line) -> None:
    if line.trigger == "claimed":
        step.leased, step.claimed_at, step.is_claim_known = True, line.at, True
    elif line.trigger != "completed":
        step.leased = False
    step.is_timer_known = True
    if line.trigger != "completed" or step.is_claim_known:
        # Where its claim is hidden, the lease that goes on has begun before this line.
        step.seen_at = line.at
    if line.trigger in BY_HAND:
        step.completed_by_hand = line.seq
    if line.trigger == "children_succeeded":
        step.children_succeeded = line.seq
    step.fence = line.fence or 0
    is_none = is_no_attempt(step, line.trigger, line.event)
    step.is_attempt_open = is_none is None
    step.attempt = (line.attempt or step.attempt) + (not is_none and ends_attempt(line.trigger, line.target))
    step.due_at = line.due_at
    step.moved_in, step.moved_by = line.seq, (line.event, line.actor)


# -- resources -----------------------------------------------------------------------------------------------------
HELD_IN = frozenset({"running", "validating"})
"""The states in which a step holds its resources."""


def is_granted(value: Any) -> bool:
    """Whether this is a list of resources, each with an amount that was free."""
    return isinstance(value, list) and bool(value) and all(map(_is_grant, value))


def _is_grant(grant: Any) -> bool:
    if not isinstance(grant, dict) or not text(grant.get("name")):
        return False
    amount, rest = grant.get("amount"), grant.keys() - {"name", "amount"}
    if not rest:
        return amount in ("exclusive", "shared") or _is_number(amount)
    held, most = grant.get("held"), grant.get("most")
    if rest != {"held", "most"} or not all(type(one) is int for one in (amount, held, most)):
        return False
    numbers: tuple[Any, Any, Any] = (amount, held, most)
    return bool(numbers[0] > 0 and numbers[1] >= 0 and numbers[0] + numbers[1] <= numbers[2])


def _is_number(value: Any) -> bool:
    return type(value) is int and value > 0


class HeldResources:
    """What the steps of one run hold."""

    def __init__(self) -> None:
        self._held: dict[int, Mapping[str, Any]] = {}

    def follow(self, place: PlannedRule, line: Line, asked: Mapping[str, Any]) -> Iterator[tuple[Code, str]]:
        """Every problem of this hop."""
        if line.trigger != "claimed":
            # A lease that is lost while rules are to run leaves the step in its state.
            if line.trigger != "completed" or line.target not in HELD_IN:
                self._held.pop(place.no, None)
            return
        rule = place.rule
        needed = rule.resources if rule is not None and place.phase == "main" else {}
        told: Any = asked.get("resources")
        given = {one["name"]: one["amount"] for one in told} if is_granted(told) else {}
        if given != needed:
            wanted = ", ".join(f"{name}: {amount}" for name, amount in needed.items()) or "none"
            yield Code.CLAIM, f"it is claimed with other resources than its definition names ({wanted})"
        if needed:
            self._held[place.no] = needed
            yield from self._conflicts(place)

    def _conflicts(self, place: PlannedRule) -> Iterator[tuple[Code, str]]:
        for name, amount in self._held[place.no].items():
            others = {no: held[name] for no, held in self._held.items() if no != place.no and name in held}
            if others and "exclusive" in (amount, *others.values()):
                said = f"it holds {name} while another step of the run does, and one of them holds it alone"
                yield Code.CLAIM, said


# -- checkpoints ---------------------------------------------------------------------------------------------------
Problem = tuple[Code, str]

RECORDED = "checkpoint_recorded"


def check_checkpoint(
    steps: Mapping[int, FollowedStep], line: Line, asked: Mapping[str, Any], adopted: frozenset[str]
) -> Iterator[Problem]:
    """Every reason why this checkpoint cannot be on record like this; then remember it.

    `adopted` are those that the step has from an earlier run.
    """
    step, name, fence = steps.get(asked.get("no", -1)), str(asked.get("checkpoint")), asked.get("fence")
    if step is None or step.name != asked.get("step"):
        yield Code.CAUSE, f"metadata.detail.step is {quoted(asked.get('step'))}, which is no step of this number"
        return
    if step.state != "running" or not step.leased:
        yield Code.OUTCOME, f"{step.title} records {quoted(name)}, and no worker runs it"
    if fence != step.fence:
        said = f"metadata.detail.fence is {fence}, but its last claim has {step.fence}"
        yield Code.FENCE, f"{step.title} records {quoted(name)}: {said}"
    if step.holder not in (None, line.actor):
        said = f"metadata.actor is {quoted(line.actor)}, expected {quoted(step.holder)}"
        yield Code.CAUSE, f"{said}: only the worker that claimed {step.title} records checkpoints of it"
    if name in step.checkpoints or name in adopted:
        yield Code.CAUSE, f"{step.title} has the checkpoint {quoted(name)} already; one is recorded once"
    step.checkpoints.add(name)
    if line.about != "note":
        yield Code.CAUSE, f"the checkpoint {quoted(name)} moves something; a checkpoint moves nothing"
