"""Resources of steps in one log: a claim has what its step needs, and no two steps of the run hold what excludes both.

It follows the claims of one run. What other runs hold is not in its log; the claim tells what of a pool was held.
`reenact.py` calls it for each hop of a step, `details.py` for the shape of what a claim tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.conformance.contract import PlannedRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code
from stepkeep.conformance.schema import text

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


class Resources:
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
