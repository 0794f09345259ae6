"""Verdicts of policies: what a rule said about a step, and what the step did then.

A verdict is in the detail of a cause, under the name of its step. It is compared with the hop and with the rules of the
definition. Live rules are not in a log; `policies replay` and evidence packs evaluate them again. Standard library
alone: evidence packs ship this file. `enabled.py` and `evidence/verifier.py` call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from stepkeep.conformance.people import COMPLETES, GateRule, Problem, gate_of

Verdict = Mapping[str, Any]

EFFECTS = ("allow", "hold", "deny")
"""The effects of a verdict, from the mildest to the strictest."""
EXCEEDED = {"hold": "hold", "warn": "allow", "stop": "deny"}
"""The effect of a budget that is spent."""
CANNOT_EVALUATE = "cannot_evaluate"
DENIALS = ("denied", "denied_tolerated")
JUDGED = frozenset((*DENIALS, "dependencies_met", "gate_opened", "wait_opened", "retry_due", "held"))
"""Hops before which the policies are asked."""
UNPINNED = ("parent", "agent")
"""Whose verdicts no policy of the tenant gives."""
BY = ("definition", "tenant", *UNPINNED)
BLOCKING = frozenset({"ioa"})
"""Formats whose agents block a step by reporting `governance` (seed 000, 3.1)."""


class Concerned(NamedTuple):
    """The step that a verdict is about, as its definition has it.

    `rules` are the effects of the definition's rules about it. An element that opens needs no verdict: its owner was
    judged. `permit` is the hold that was approved; None if no hold was, `...` if the log may hide it.
    """

    opens_by: str
    kind: str
    rules: Mapping[str, str]
    is_element: bool
    permit: Any = None


def opening_of(step: Mapping[str, Any]) -> str:
    """How a step of a definition opens, by its kind."""
    owns = (step.get("growth") or {}).get("kind", "flow") not in ("flow", "then")
    if step.get("child") and not owns:
        return "children_started"
    for word, part in (("gate_opened", "approval"), ("wait_opened", "wait"), ("held", "hold")):
        if step.get(part):
            return word
    return "children_started" if owns else "dependencies_met"


def kind_of(step: Mapping[str, Any]) -> str:
    """Whether a step waits for people or events, is work, or neither: a policy holds work alone."""
    return "waits" if step.get("approval") or step.get("wait") else "work" if step.get("executor") else "other"


def rules_about(definition: Mapping[str, Any], step: str) -> dict[str, str]:
    """The effects of the rules of a definition that concern a step, by name."""
    found = {
        str(rule.get("name")): str(rule.get("then"))
        for rule in definition.get("policy") or ()
        if not rule.get("steps") or any(fnmatchcase(step, str(pattern)) for pattern in rule["steps"])
    }
    budget = definition.get("budget") or {}
    spent = EXCEEDED.get(budget.get("on_exceeded", "stop"), "")
    return found | {f"budget:{name}": spent for name in budget.get("limits") or ()}


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
    """Those terms as they are replayed; None where they are not those of a gate."""
    try:
        return None if terms is None else gate_of(terms)
    except (TypeError, AttributeError):
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
            said = f"the verdict on {step!r} is by revision {verdict.get('revision')!r}"
            yield "verdict_wrong", f"{said}, but the run is pinned to revision {pinned!r}"


def check_verdict(trigger: str, source: str | None, about: Concerned, verdict: Verdict | None) -> Iterator[Problem]:
    """Every contradiction between a hop of a main step and the verdict before it."""
    if trigger in COMPLETES and verdict is not None:
        # Journals of earlier versions have no verdict on a completion.
        yield from _consistent(about, verdict)
        is_free = verdict.get("effect") == "allow" or str(verdict.get("rule")).startswith("budget:")
        if not is_free and not _is_permitted(about, verdict):
            yield "verdict_ignored", f"a completion is accepted, but the policy says {verdict.get('effect')!r}"
    opens_children = trigger == "children_started" and source == "pending" and verdict is not None
    if trigger not in JUDGED and not opens_children:
        return
    if verdict is None:
        if trigger in DENIALS:
            yield "verdict_missing", "it is denied, but no verdict of a policy is on record"
        elif trigger == "held" and (about.opens_by != "held" or source != "pending"):
            yield "verdict_missing", "it is held, but neither its definition nor a verdict on record says so"
        elif about.rules and (not about.is_element or source == "retrying"):
            yield "verdict_missing", "its definition has rules about it, but no verdict is on record"
        return
    yield from _consistent(about, verdict)
    expected = _expected(source, about, verdict)
    if trigger not in expected:
        said = f"the policy says {verdict.get('effect')!r} (rule {verdict.get('rule')!r})"
        yield "verdict_ignored", f"trigger is {trigger!r}, expected {' or '.join(expected)}: {said}"


def _consistent(about: Concerned, verdict: Verdict) -> Iterator[Problem]:
    """What a verdict says of itself, and of the rules of the definition."""
    effect, rule, by = verdict.get("effect"), verdict.get("rule"), verdict.get("by")
    is_budget = effect == "deny" and str(rule).startswith("budget:")
    wrong = {
        f"its effect is none of {', '.join(EFFECTS)}": effect not in EFFECTS,
        "it names no rule": rule is None and effect != "allow",
        "its rule cannot be evaluated, which denies": rule == CANNOT_EVALUATE and effect != "deny",
        f"the definition has {about.rules.get(str(rule))!r} as the effect of its rule": (
            rule not in (None, CANNOT_EVALUATE) and by == "definition" and about.rules.get(str(rule)) != effect
        ),
        "only a spent budget of a run above that it names denies so": (
            by == "parent" and not (is_budget and verdict.get("run") and _is_spent(verdict))
        ),
        "an agent only blocks a step": by == "agent" and (rule, effect) != ("governance", "hold"),
        f"its rule is by none of {', '.join(BY)}": rule is not None and by not in BY,
        "a rule of the tenant has a revision": by == "tenant" and type(verdict.get("revision")) is not int,
    }
    for said, is_wrong in wrong.items():
        if is_wrong:
            yield "verdict_wrong", f"the verdict is {effect!r} (rule {rule!r} by {by!r}): {said}"


def _is_spent(verdict: Verdict) -> bool:
    """Whether the numbers of a denial by a run above are those of a spent budget."""
    numbers: list[Any] = [verdict.get("spent"), verdict.get("limit")]
    return all(type(one) in (int, float) for one in numbers) and bool(numbers[0] >= numbers[1])


def _is_permitted(about: Concerned, verdict: Verdict) -> bool:
    is_told = verdict.get("effect") == "hold" and verdict.get("permitted") is True
    return is_told and about.permit in (..., permit_of(verdict))


def _expected(source: str | None, about: Concerned, verdict: Verdict) -> tuple[str, ...]:
    """The hops that follow the verdict."""
    onward = "retry_due" if source == "retrying" else about.opens_by
    if verdict.get("effect") == "deny":
        return DENIALS
    if verdict.get("effect") != "hold" or about.kind == "waits" or _is_permitted(about, verdict):
        return (onward,)
    return ("held", onward) if about.kind == "other" else ("held",)  # earlier versions held no children and no choices
