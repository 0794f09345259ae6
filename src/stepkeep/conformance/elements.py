"""Follows elements of maps, loops, choices and handlers that add steps: which may be planned, and what their ends
require of their owner.

It knows how many elements an owner has from the record of its growth, and everything else from the pinned definition.
What an expression came to is not in a log, so a loop may go on or end after each element. `reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.conformance.contract import Contract, GrowthRule, PlannedRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted

Problem = tuple[Code, str]
ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})


def is_cancelled_by_owner(line: Line, place: PlannedRule) -> bool:
    """Whether a cancelled element names its owner as the reason: then its owner stopped, and not its run."""
    return place.owner is not None and place.phase == "main" and line.of == place.name.rsplit("[", 1)[0]


class Owner:
    """What the log has shown of the elements of one step."""

    def __init__(self, rule: GrowthRule, count: int, at: int) -> None:
        self.rule, self.count = rule, count
        self.case: int | None = None
        """The case that a choice took; None for a map or a loop, and where the log does not tell."""
        self.planned = self.settled = self.failed = 0
        self.last_failed = False
        self.deadline = None if rule.deadline is None else at + rule.deadline
        self.stopped_at: int | None = None
        self.goes_on_at: int | None = None

    @property
    def tolerated(self) -> int:
        share = self.rule.tolerate_share
        return self.rule.tolerate if share is None else int(share * self.count)

    @property
    def may_plan(self) -> int:
        """How many elements there may be planned in all, now."""
        if self.stopped_at is not None:
            return self.planned
        if self.rule.kind == "map":
            return min(self.count, self.settled + self.rule.in_flight)
        if self.rule.kind == "switch":
            return min(self.count, 1)
        if self.rule.kind == "then":
            return self.rule.max
        return min(self.rule.max, self.settled + 1)

    @property
    def is_done(self) -> bool:
        """Whether no element is left that could still settle."""
        if self.rule.kind == "map" and self.stopped_at is None:
            return self.settled == self.count
        return self.settled == self.planned


class Elements:
    """The owners of one run that have opened, by number."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.owners: dict[int, Owner] = {}
        self.due: set[int] = set()
        """Owners that this entry must move on: one of their elements has settled."""

    def is_tolerant(self, place: PlannedRule) -> bool:
        """Whether the failure of this element is tolerated."""
        owner = self.owners.get(-1 if place.owner is None else place.owner)
        if owner is None:
            return False
        bears = owner.rule.kind == "map" and owner.failed < owner.tolerated
        bears = bears or (owner.rule.kind == "then" and _may_be_skipped(place))
        return bears or self._contract.places[place.owner or 0].is_tolerant

    def opened(self, place: PlannedRule, line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
        """The owner opened: its cause says how many elements it has."""
        assert place.rule is not None
        rule = place.rule.growth
        if rule is None:
            return
        told = asked.get("plan_grown")
        record = told.get(place.name) if isinstance(told, dict) else None
        count = record.get("count") if isinstance(record, dict) else None
        if rule.kind == "then":
            calls = record.get("calls") if isinstance(record, dict) else None
            count = len(calls) if isinstance(calls, list) else None
        most = rule.max if rule.kind in ("map", "then") else 1
        if type(count) is not int or not 0 <= count <= most:
            yield Code.CAUSE, f"its cause must say how many elements it has, 0 to {most}: metadata.detail.plan_grown"
            count = 0
        owner = self.owners[place.no] = Owner(rule, count, line.at)
        if rule.kind == "switch" and count:
            owner.case = record.get("case") if isinstance(record, dict) else None
            if type(owner.case) is not int or not 0 <= owner.case < rule.max:
                yield Code.CAUSE, f"its cause must say which case it takes, 0 to {rule.max - 1}: plan_grown.case"
                owner.case = None
        self.due.add(place.no)

    def plan(self, place: PlannedRule, line: Line) -> Iterator[Problem]:
        """An element is planned."""
        owner = self.owners.get(-1 if place.owner is None else place.owner)
        if owner is None or place.index is None:
            yield Code.DEFINITION, "it is planned, but its owner has not begun"
            return
        if owner.rule.kind == "switch":
            if owner.case not in (None, place.index):
                yield (
                    Code.DEFINITION,
                    f"case {place.index} is planned, but its cause says that case {owner.case} is taken",
                )
        elif place.index != owner.planned:
            yield Code.CREATION, f"it is planned where {place.index} is {owner.planned} by the order of the list"
        if owner.planned >= owner.may_plan:
            said = f"{owner.planned} elements are planned and {owner.settled} have settled"
            yield Code.POLICY, f"it is planned, but {said}: the definition allows no more now"
        if owner.goes_on_at is not None and line.at < owner.goes_on_at:
            yield Code.TIMER, f"it is planned at {line.at}, but the pause of its loop ends at {owner.goes_on_at}"
        owner.planned, owner.goes_on_at = owner.planned + 1, None

    def ended(self, place: PlannedRule, line: Line) -> None:
        """An element has settled."""
        number = -1 if place.owner is None else place.owner
        owner = self.owners.get(number)
        if owner is None:
            return
        owner.settled += 1
        self.due.add(number)
        if line.target == "succeeded" and owner.rule.kind == "loop" and owner.rule.pause:
            owner.goes_on_at = line.at + owner.rule.pause
        is_borne = owner.rule.kind == "then" and (_may_be_skipped(place) or line.category is None)
        owner.failed += line.target != "succeeded" and not is_borne
        if owner.stopped_at is None and self._is_over(owner):
            owner.stopped_at = line.at

    def _is_over(self, owner: Owner) -> bool:
        if owner.rule.kind != "map":
            return owner.failed > 0
        return owner.failed > owner.tolerated and (owner.rule.early_stop or owner.settled == owner.count)

    def cancels(self, place: PlannedRule, line: Line, *, leased: bool, grace_us: int) -> bool | str:
        """Whether its owner cancels this element; a text says why it cannot."""
        owner = self.owners.get(-1 if place.owner is None else place.owner)
        if owner is None:
            return False
        is_late = owner.deadline is not None and line.at >= owner.deadline and line.event == "time_came"
        if is_late:
            return True
        if owner.stopped_at is None:
            return False
        if leased and line.event == "time_came" and line.at < owner.stopped_at + grace_us:
            return f"it is fenced off before the grace period of its owner ends at {owner.stopped_at + grace_us}"
        return True

    def is_stopping(self, place: PlannedRule) -> bool:
        """Whether the owner of this element only waits for those that workers hold."""
        owner = self.owners.get(-1 if place.owner is None else place.owner)
        return owner is not None and owner.stopped_at is not None

    def owner_ends(self, place: PlannedRule, line: Line) -> Iterator[Problem]:
        """An owner succeeds, fails or runs out of time."""
        owner = self.owners.get(place.no)
        if owner is None:
            return
        self.due.discard(place.no)
        if line.trigger in ("children_succeeded", "rules_passed"):
            if not owner.is_done or owner.settled < min(owner.count, 1):
                yield Code.OUTCOME, f"it succeeds, but {owner.planned - owner.settled} of its elements have not settled"
            if owner.failed > owner.tolerated:
                said = f"{owner.failed} of its elements failed, and the definition tolerates {owner.tolerated}"
                yield Code.POLICY, f"it succeeds, but {said}"
        elif line.trigger.startswith("children_failed"):
            if not owner.is_done:
                yield Code.OUTCOME, f"it fails, but {owner.planned - owner.settled} of its elements have not settled"
            if owner.stopped_at is None and line.category != "validation":
                yield Code.POLICY, "it fails, but no more of its elements failed than the definition tolerates"
        elif owner.deadline is None or line.at < owner.deadline:
            yield Code.TIMER, f"its deadline passes at {line.at}, but it is at {owner.deadline}"

    def entry_ended(self, states: Mapping[int, Any]) -> Iterator[Problem]:
        """What the end of an element, or the opening of its owner, makes necessary happens in the same entry."""
        for number in sorted(self.due):
            owner, name = self.owners[number], quoted(self._contract.places[number].name)
            step = states.get(number)
            if step is None or step.state != "awaiting_children":
                continue
            if owner.rule.kind == "then" and owner.planned < owner.count:
                said = f"{owner.planned} of {owner.count} steps that its handler added are planned"
                yield Code.DEFINITION, f"step {name} must go on here: {said}"
            elif owner.is_done and owner.goes_on_at is None:
                yield Code.OUTCOME, f"step {name} must end or go on here: all its elements have settled"
            elif owner.rule.kind == "map" and owner.planned < owner.may_plan:
                said = f"{owner.planned} elements are planned where {owner.may_plan} must be"
                yield Code.DEFINITION, f"step {name} must go on here: {said}"
        self.due.clear()


def _may_be_skipped(place: PlannedRule) -> bool:
    """Whether the handler that added this step lets it fail."""
    return place.rule is not None and place.rule.on_failure == "skip"
