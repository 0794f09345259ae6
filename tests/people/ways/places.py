"""Where a gate stands, and where the deed is done by which a person gets a duty: parts of definitions, as tables.

It publishes nothing. `play.py` builds the definition of a case from one part of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import stepkeep as sk

Step = Callable[[sk.Workflow, str, dict[str, Any]], None]
"""Adds a step of this name with these terms of an approval."""

GIVEN = {"case": "${{ input.case }}", "amount": "${{ input.amount }}"}
PASSED = {**GIVEN, "items": "${{ input.items }}"}
TWICE = {"until": "${{ index >= 1 }}", "max": 3}
ONCE = sk.Retry(max_attempts=1)
LARGE = "${{ input.amount > 1000 }}"


def _gate(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.approval(name, **_python(terms))


def _hold(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.step(name, "ways.work", hold=terms)


def _mapped_hold(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.step(name, "ways.work", hold=terms, inputs={"case": "${{ input.case }}"}, map={"over": "${{ input.items }}"})


def _looped_hold(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.step(name, "ways.work", hold=terms, inputs={"case": "${{ input.case }}"}, repeat=TWICE)


def _policy(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.step(name, "ways.work")
    _holds(flow, name, terms)


def _chosen_policy(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.switch(name, flow.case("only", "ways.work", inputs={"case": "${{ input.case }}"}))
    _holds(flow, name, terms)


def _holds(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    said = {key: value for key, value in terms.items() if key != "facts"}
    flow._head["policy"] = [{"name": "large", "steps": [name], "then": "hold", "approval": said}]


def _exhausted(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.step(name, "ways.broken", retry=ONCE, on_exhausted="hold")


def _manual(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.step(name, "ways.noted", completion="manual")


def _asked(flow: sk.Workflow, name: str, terms: dict[str, Any], **more: Any) -> None:
    asked = _python({key: value for key, value in terms.items() if key not in ("prompt", "facts")})
    given = {**GIVEN, "prompt": "Pay ${{ input.amount }}?", "terms": asked, **more}
    flow.step(name, "ways.asking", flow={"max_calls": 5}, inputs=given)


def _added(flow: sk.Workflow, name: str, terms: dict[str, Any], **more: Any) -> None:
    said = {**terms, "facts": {}, "prompt": "Pay ${{ input.amount }}?"}
    given = {"case": "${{ input.case }}", "steps": [{"name": "sign", "approval": said}], **more}
    flow.step(name, "ways.adding", then={"max_steps": 3}, inputs=given)


def _large_gate(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    flow.approval(name, if_=LARGE, **_python(terms))


def _derived_gate(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    """What an earlier step makes of the input says whether people are asked."""
    flow.step("look", "ways.looking", inputs={"amount": "${{ input.amount }}"})
    flow.approval(name, if_="${{ steps.look.output.is_large }}", **_python(terms))


def _large_policy(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    _policy(flow, name, terms)
    flow._head["policy"][0]["when"] = "input.amount > 1000"


def _large_asked(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    _asked(flow, name, terms, above=1000)


def _large_added(flow: sk.Workflow, name: str, terms: dict[str, Any]) -> None:
    _added(flow, name, terms, amount="${{ input.amount }}", above=1000)


def _python(terms: dict[str, Any]) -> dict[str, Any]:
    return {"not_" if key == "not" else key: value for key, value in terms.items()}


KINDS: Mapping[str, Step] = {
    "gate": _gate,
    "hold": _hold,
    "policy": _policy,
    "exhausted": _exhausted,
    "manual": _manual,
    "map": _mapped_hold,
    "loop": _looped_hold,
    "switch": _chosen_policy,
    "flow": _asked,
    "then": _added,
    "large_gate": _large_gate,
    "derived_gate": _derived_gate,
    "large_policy": _large_policy,
    "large_flow": _large_asked,
    "large_then": _large_added,
}
"""What waits for a person."""

ONLY_LARGE = ("large_gate", "derived_gate", "large_policy", "large_flow", "large_then")
"""Kinds that ask nobody about the first amount."""

WITHOUT_TERMS = ("exhausted", "manual")
"""Kinds that have no terms of an approval: only duties of the workflow concern them."""


def _child(flow: sk.Workflow, child: str) -> None:
    flow.workflow("sub", child, inputs=PASSED)


def _mapped(flow: sk.Workflow, child: str) -> None:
    flow.workflow("sub", child, inputs=PASSED, map={"over": "${{ input.items }}", "max": 5})


def _looped(flow: sk.Workflow, child: str) -> None:
    flow.workflow("sub", child, inputs=PASSED, repeat=TWICE)


def _chosen(flow: sk.Workflow, child: str) -> None:
    flow.switch("sub", flow.case("only", workflow=child, inputs=PASSED))


def _called(flow: sk.Workflow, child: str) -> None:
    flow.step("sub", "ways.calling", flow={"max_calls": 5}, inputs={**PASSED, "child": child})


WRAPPERS: Mapping[str, Callable[[sk.Workflow, str], None] | None] = {
    "top": None,
    "child": _child,
    "grandchild": _child,
    "mapped": _mapped,
    "looped": _looped,
    "chosen": _chosen,
    "called": _called,
}
"""How the run that waits for a person stands below the one that pays."""

SIMPLE: dict[str, Any] = {"roles": ["finance"]}
WORKS: Mapping[str, Callable[[sk.Workflow], Any]] = {
    "plain": lambda flow: flow.step("prep", "ways.work"),
    "map": lambda flow: flow.step(
        "prep", "ways.work", inputs={"case": "${{ input.case }}"}, map={"over": "${{ input.items }}"}
    ),
    "loop": lambda flow: flow.step("prep", "ways.work", inputs={"case": "${{ input.case }}"}, repeat=TWICE),
    "switch": lambda flow: flow.switch("prep", flow.case("only", "ways.work", inputs={"case": "${{ input.case }}"})),
    "flow": lambda flow: flow.step(
        "prep", "ways.stepping", flow={"max_calls": 5}, inputs={"case": "${{ input.case }}"}
    ),
    "then": lambda flow: flow.step(
        "prep",
        "ways.adding",
        then={"max_steps": 3},
        inputs={"case": "${{ input.case }}", "steps": [{"name": "work", "uses": "ways.work"}]},
    ),
    "child": lambda flow: flow.workflow("prep", "ways-work", inputs=PASSED),
}
"""Where pal's worker executes `prep`."""

GATES: Mapping[str, Callable[[sk.Workflow], Any]] = {
    "plain": lambda flow: flow.approval("first", **SIMPLE),
    "hold": lambda flow: flow.step("first", "ways.work", hold=SIMPLE),
    "child": lambda flow: flow.workflow("first", "ways-gate", inputs=PASSED),
    "map": lambda flow: flow.workflow(
        "first", "ways-gate", inputs=PASSED, map={"over": "${{ input.items }}", "max": 5}
    ),
    "flow": lambda flow: _asked(flow, "first", SIMPLE),
    "then": lambda flow: _added(flow, "first", SIMPLE),
}
"""Where pal decides `first`."""


class Duty(NamedTuple):
    """How a duty is written, by what pal gets it, and the rule that speaks of it."""

    rule: str
    deed: str = ""
    excluded: str = ""
    constraint: str = ""
    quorum: int = 1


DUTIES: Mapping[str, Duty] = {
    "requester": Duty("maker_checker", excluded="requester"),
    "executed": Duty("maker_checker", "prep", "executed:prep"),
    "completed": Duty("maker_checker", "hand", "completed:prep"),
    "decided": Duty("maker_checker", "first", "decided:first"),
    "distinct": Duty("distinct", "first", constraint="distinct"),
    "four_eyes": Duty("four_eyes", "first", constraint="four_eyes"),
    "executes": Duty("incompatible", "prep", constraint="incompatible"),
    "completes": Duty("incompatible", "hand", constraint="incompatible"),
    "decides": Duty("incompatible", "first", constraint="incompatible"),
    "quorum": Duty("one_decision", "vote", quorum=2),
}

DEEDS: Mapping[str, tuple[str, ...]] = {
    "": ("none",),
    "vote": ("none",),
    "hand": ("plain",),
    "prep": tuple(WORKS),
    "first": tuple(GATES),
}
