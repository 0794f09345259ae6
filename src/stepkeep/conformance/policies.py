"""Checks the verdicts of policies in a log: what a rule said about a step, and what the step did then.

A verdict is in the detail of a cause, under the name of its step. It is compared with the hop and with the rules of the
pinned definition. Live rules are not in a log; `policies replay` evaluates them again. `enabled.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepkeep.conformance.contract import GateRule, PlannedRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import Step

Problem = tuple[Code, str]
Verdict = Mapping[str, Any]

EFFECTS = ("allow", "hold", "deny")
CANNOT_EVALUATE = "cannot_evaluate"
DENIALS = ("denied", "denied_tolerated")
GOES_ON = ("dependencies_met", "gate_opened", "wait_opened", "retry_due")
JUDGED = frozenset((*DENIALS, *GOES_ON, "held"))
"""Hops before which the policies are asked."""


UNPINNED = ("parent", "agent")
"""Whose verdicts no policy of the tenant gives."""
BLOCKING = frozenset({"ioa"})
"""Formats whose agents block a step by reporting `governance` (seed 000, 3.1)."""
SIGNALS = frozenset(
    {"completion_succeeded", "completion_failed", "completion_failed_tolerated", "completion_cancelled"}
)
"""Hops by which a person completes a step; a policy that does not allow the step refuses them."""


def verdict_in(detail: Mapping[str, Any], step: str | None) -> Verdict | None:
    """The verdict on a step in the detail of a cause."""
    found = detail.get("policy")
    said = found.get(step) if isinstance(found, dict) else None
    return said if isinstance(said, dict) else None


def terms_of(verdict: Verdict | None) -> Mapping[str, Any] | None:
    """The gate of a step that a policy holds."""
    terms = None if verdict is None or verdict.get("effect") != "hold" else verdict.get("terms")
    return terms if isinstance(terms, dict) else None


def gate_rule(terms: Mapping[str, Any] | None) -> GateRule | None:
    """Those terms as the judge reads them; None where they are not those of a gate."""
    try:
        return None if terms is None else msgspec.convert(terms, GateRule)
    except msgspec.ValidationError:
        return None


def permit_of(verdict: Verdict) -> str:
    """The rule of a hold, as an approval of it is remembered."""
    where = verdict.get("revision") if verdict.get("by") == "tenant" else "definition"
    return f"{verdict.get('rule')}@{where}"


def check_pin(detail: Mapping[str, Any], pinned: object) -> Iterator[Problem]:
    """A run that was created under a pinned revision of the live policy is judged by that one alone."""
    verdicts = detail.get("policy")
    for step, verdict in verdicts.items() if pinned is not None and isinstance(verdicts, dict) else ():
        if isinstance(verdict, dict) and verdict.get("by") not in UNPINNED and verdict.get("revision") != pinned:
            said = f"the verdict on {quoted(step)} is by revision {quoted(verdict.get('revision'))}"
            yield Code.POLICY, f"{said}, but the run is pinned to revision {quoted(pinned)}"


def check_verdict(line: Line, step: Step, place: PlannedRule, verdict: Verdict | None) -> Iterator[Problem]:
    """Every contradiction between a hop and the verdict before it."""
    if line.trigger in SIGNALS and verdict is not None:
        yield from _accepted(step, place, verdict)
    if line.trigger not in JUDGED or place.phase != "main":
        return
    if verdict is None:
        yield from _unjudged(line, place)
        return
    effect = verdict.get("effect")
    if effect not in EFFECTS:
        yield Code.SCHEMA, f"its verdict is {quoted(effect)}, expected {', '.join(EFFECTS)}"
        return
    yield from _rule(place, verdict)
    expected = _expected(line, step, place, verdict)
    if line.trigger not in expected:
        said = f"the policy says {quoted(effect)} (rule {quoted(verdict.get('rule'))})"
        yield Code.POLICY, f"trigger is {quoted(line.trigger)}, expected {' or '.join(expected)}: {said}"


def _accepted(step: Step, place: PlannedRule, verdict: Verdict) -> Iterator[Problem]:
    """Journals of earlier versions have no verdict on a completion."""
    yield from _rule(place, verdict)
    rule, effect = verdict.get("rule"), verdict.get("effect")
    is_permitted = effect == "hold" and verdict.get("permitted") is True
    is_permitted = is_permitted and (step.is_permit_unseen or step.permit == permit_of(verdict))
    if effect != "allow" and not str(rule).startswith("budget:") and not is_permitted:
        yield Code.POLICY, f"its completion is accepted, but the policy says {quoted(effect)} (rule {quoted(rule)})"


def _unjudged(line: Line, place: PlannedRule) -> Iterator[Problem]:
    if line.trigger in DENIALS:
        yield Code.POLICY, "it is denied, but no verdict of a policy is on record"
    elif line.trigger == "held" and (place.opens_by != "held" or line.source != "pending"):
        yield Code.POLICY, "it is held, but neither its definition nor a verdict on record says so"
    elif place.rules and (place.owner is None or line.source == "retrying"):
        # The owner was judged for all its elements; each is judged again before a retry.
        yield Code.POLICY, "its definition has rules about it, but no verdict is on record"


def _rule(place: PlannedRule, verdict: Verdict) -> Iterator[Problem]:
    effect, rule, by = verdict["effect"], verdict.get("rule"), verdict.get("by")
    if rule is None:
        if effect != "allow":
            yield Code.POLICY, f"the verdict {quoted(effect)} names no rule"
    elif rule == CANNOT_EVALUATE:
        if effect != "deny":
            yield Code.POLICY, f"a rule cannot be evaluated, and the verdict is {quoted(effect)}, expected 'deny'"
    elif by == "definition" and place.rules.get(rule) != effect:
        known = place.rules.get(rule)
        said = "no such rule about it" if known is None else f"{quoted(known)} as its effect"
        yield Code.POLICY, f"rule {quoted(rule)} has the verdict {quoted(effect)}, but the definition has {said}"
    if by == "parent" and (effect != "deny" or not str(rule).startswith("budget:") or not verdict.get("run")):
        yield Code.POLICY, f"rule {quoted(rule)} is by a run above, but only a budget of a run that it names denies so"
    elif by == "parent" and not _is_spent(verdict):
        said = f"{quoted(verdict.get('spent'))} of {quoted(verdict.get('limit'))}"
        yield Code.POLICY, f"rule {quoted(rule)} of a run above denies it, and {said} were spent"
    if by == "agent" and (rule, effect) != ("governance", "hold"):
        yield Code.POLICY, f"an agent reports {quoted(rule)} with the verdict {quoted(effect)}; it only blocks a step"
    if rule is not None and by not in ("definition", "tenant", "parent", "agent"):
        yield Code.SCHEMA, f"the rule {quoted(rule)} is by {quoted(by)}, expected definition, tenant, parent or agent"
    if by == "tenant" and type(verdict.get("revision")) is not int:
        yield Code.SCHEMA, f"the rule {quoted(rule)} of the tenant has no revision"


def _is_spent(verdict: Verdict) -> bool:
    """Whether the numbers of a denial by a run above are those of a spent budget."""
    spent, limit = verdict.get("spent"), verdict.get("limit")
    are_numbers = type(spent) in (int, float) and type(limit) in (int, float)
    return are_numbers and spent >= limit  # type: ignore[operator]


def _expected(line: Line, step: Step, place: PlannedRule, verdict: Verdict) -> tuple[str, ...]:
    effect = verdict["effect"]
    onward = ("retry_due",) if line.source == "retrying" else (place.opens_by,)
    if effect == "deny":
        return DENIALS
    rule = place.rule
    if effect == "allow" or rule is None or rule.approval is not None or rule.wait is not None:
        return onward
    if rule.executor is None:
        return ("held", *onward)  # earlier versions held no children and no choices
    if verdict.get("permitted") is True and (step.is_permit_unseen or step.permit == permit_of(verdict)):
        return onward
    return ("held",)
