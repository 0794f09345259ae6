"""Follows the steps that handlers add: what each is, and which of them wait for others.

They are not in the definition. The cause of each growth tells them, and they are judged by that, as elements of the
step with `then`. The judge runs no handler, so that it takes any list as possible. `reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.flows import calls_in, rule_of
from stepkeep.conformance.report import Code, quoted

Problem = tuple[Code, str]
ENDS = frozenset({"succeeded", "failed", "skipped", "cancelled"})


class AddedSteps:
    """One list of steps, as its cause tells it, with the place of its first step."""

    def __init__(self, calls: list[Any], first: int) -> None:
        self.calls, self.first, self.planned = calls, first, 0


class Additions:
    """The lists that the handlers of one run returned, by the number of their owner."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._lists: dict[int, AddedSteps] = {}
        self._names: set[tuple[int, str]] = set()

    def are_of(self, place: PlannedRule) -> bool:
        """Whether a handler added this step."""
        if place.owner is None or place.phase != "main":
            return False
        rule = self._contract.places[place.owner].rule
        return rule is not None and rule.is_then

    def plan(self, place: PlannedRule, asked: Mapping[str, Any]) -> Iterator[Problem]:
        """A step is planned: its cause says what it is, and what it waits for."""
        assert place.owner is not None
        assert place.index is not None
        calls = calls_in(self._contract.places[place.owner].name, asked)
        told = self._lists.get(place.owner)
        if told is None or told.calls != calls:
            told = self._lists[place.owner] = AddedSteps(calls, place.index)
        told.planned += 1
        at = place.index - told.first
        call = calls[at] if 0 <= at < len(calls) else None
        rule, after = rule_of(call), [_edges(one, len(calls)) for one in calls]
        if call is None or rule is None or any(edges is None for edges in after):
            yield Code.CAUSE, "it is planned, but its cause does not say what was added: metadata.detail.plan_grown"
            return
        name = (place.owner, str(call.get("name")))
        if name in self._names:
            yield Code.DEFINITION, f"a step of the name {quoted(name[1])} was added before"
        self._names.add(name)
        dependents = [
            (place.no + other - at, allow)
            for other, edges in enumerate(after)
            for before, allow in edges or ()
            if before == at
        ]
        bears = "skip" if rule.on_failure == "skip" else "continue"
        self._contract.places.learn_call(place, rule, len(after[at] or ()), tuple(dependents), bears)

    def entry_ended(self) -> Iterator[Problem]:
        """All steps of a list are planned in the entry that tells it."""
        for number, told in self._lists.items():
            if told.planned != len(told.calls):
                name = quoted(self._contract.places[number].name)
                yield Code.DEFINITION, f"step {name} was given {len(told.calls)} steps, and {told.planned} are planned"
                told.planned = len(told.calls)


def _edges(call: Any, size: int) -> list[tuple[int, frozenset[str]]] | None:
    """What one step of a list waits for: places in the list, and the ends that satisfy it. None if that is no list."""
    after = call.get("after", []) if isinstance(call, dict) else None
    if not isinstance(after, list):
        return None
    found = []
    for edge in after:
        place, allow = (edge.get("place"), edge.get("allow")) if isinstance(edge, dict) else (None, None)
        if type(place) is not int or not 0 <= place < size or not isinstance(allow, list) or not ENDS.issuperset(allow):
            return None
        found.append((place, frozenset(allow)))
    return found
