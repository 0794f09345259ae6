"""Follows steps that grow: maps, loops and choices with their elements, flows with their calls, and handlers that add
steps.

How many elements an owner has, what a flow calls and what a handler adds is told by the cause of each growth. The judge
evaluates no expression and runs no flow, so that it takes any as possible. `reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from stepkeep.conformance.chain import CONTINUE, digest_of_named, successor_id
from stepkeep.conformance.contract import Contract, GrowthRule, PlannedRule, StepRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted

if TYPE_CHECKING:
    from stepkeep.conformance.adoption import Adoption

Problem = tuple[Code, str]

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
RETRY = {
    "max_attempts": 3,
    "max_losses": 3,
    "backoff": "exponential",
    "initial": 1_000_000,
    "factor": 2.0,
    "max": 30_000_000,
    "jitter": 0.0,
    "on": ["agent", "external", "timeout", "transient", "unknown"],
}
"""The policy of a step that states none; a template has what differs from it."""
UNDO_RETRY = RETRY | {"max_attempts": 2, "max": 10_000_000}
DEFAULTS = {"on_failure": "abort", "effect": "read", "compensate_when": "succeeded", "completion": "auto"}


class FollowedFlow:
    """What the log has shown of the calls of one flow."""

    def __init__(self) -> None:
        self.planned = self.settled = self.settled_at_claim = 0
        self.recorded = 0
        self.adopted: set[int] = set()
        """The places of calls that an earlier run made. New calls take those between them first."""
        self.next = 0
        """The place of the next call."""

        self.cancels: set[int] = set()
        """The places of the calls that the report of this entry cancels."""
        self.ended: set[int] = set()
        self.deadline: int | None = None
        self.must_go_on = False
        """Whether a call has settled while the flow was suspended, and nothing has woken it since."""
        self.continues: int | None = None
        """The place of the call by which it continues as new."""
        self.successor: str | None = None
        """The run as which it continues, once that call has opened."""


class Flows:
    """The flows of one run, by number."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self.flows = {
            no: FollowedFlow()
            for no, place in contract.places.items()
            if place.phase == "main" and place.kind.waits_for == "calls"
        }
        self.due: set[int] = set()

    def owner_of(self, place: PlannedRule) -> FollowedFlow | None:
        """The flow that made this call; None if it is no call."""
        return self.flows.get(-1 if place.owner is None or place.phase != "main" else place.owner)

    # -- the flow itself -----------------------------------------------------------------------------------------------
    def moved(self, place: PlannedRule, line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
        """A hop of the flow's own step."""
        flow = self.flows.get(place.no)
        if flow is None or place.phase != "main":
            return
        flow.must_go_on = False
        if line.trigger == "claimed":
            flow.settled_at_claim = flow.settled
        elif line.trigger == "children_started":
            yield from self._suspended(place, flow, line, asked)
        elif line.trigger == "children_settled" and flow.settled <= flow.settled_at_claim:
            yield Code.CAUSE, "it goes on, but none of its calls has settled since it was claimed"
        elif line.trigger == "completed" and flow.settled < flow.planned:
            yield Code.OUTCOME, f"it returns, but {flow.planned - flow.settled} of its calls have not settled"
        elif line.trigger.startswith("deadline_") and line.source == "awaiting_children":
            yield from self._late(flow, line)

    def _suspended(
        self, place: PlannedRule, flow: FollowedFlow, line: Line, asked: Mapping[str, Any]
    ) -> Iterator[Problem]:
        self._begin(place, flow, line)
        if line.due_at != flow.deadline:
            yield Code.TIMER, f"metadata.due_at is {line.due_at}, expected {flow.deadline}: the deadline of its calls"
        flow.recorded += len(calls_in(place.name, asked))
        flow.cancels = set(cancels_in(place.name, asked))
        if wrong := sorted(place for place in flow.cancels if not 0 <= place < flow.recorded):
            yield Code.CAUSE, f"it cancels the calls {wrong}, and has made {flow.recorded}"
        self.due.add(place.no)

    def _begin(self, place: PlannedRule, flow: FollowedFlow, line: Line) -> None:
        """The first suspension begins the time of the calls."""
        rule = None if place.rule is None else place.rule.growth
        if rule is not None and rule.deadline is not None and flow.deadline is None:
            flow.deadline = line.at + rule.deadline

    def _late(self, flow: FollowedFlow, line: Line) -> Iterator[Problem]:
        if flow.deadline is None or line.at < flow.deadline:
            yield Code.TIMER, f"its deadline passes at {line.at}, but it is at {flow.deadline}"

    # -- its calls -----------------------------------------------------------------------------------------------------
    def adopt(self, place: PlannedRule) -> None:
        """A call is adopted from an earlier run."""
        flow = self.owner_of(place)
        if flow is not None and place.index is not None:
            flow.adopted.add(place.index)
            flow.ended.add(place.index)
            flow.planned, flow.recorded, flow.settled = flow.planned + 1, flow.recorded + 1, flow.settled + 1

    def plan(self, place: PlannedRule, line: Line, asked: Mapping[str, Any], adoption: Adoption) -> Iterator[Problem]:
        """A call is planned: its cause says what it is."""
        assert place.owner is not None
        flow, owner = self.flows[place.owner], self._contract.places[place.owner]
        growth = None if owner.rule is None else owner.rule.growth
        while flow.next in flow.adopted:
            flow.next += 1
        if place.index != flow.next:
            yield Code.CREATION, f"it is planned where {flow.next} is next by the order of calls"
        if growth is not None and flow.planned >= growth.max:
            yield Code.POLICY, f"it is planned, but the definition allows {growth.max} calls"
        told = calls_in(owner.name, asked)
        at = flow.planned - flow.recorded + len(told)
        rule = rule_of(told[at]) if 0 <= at < len(told) else None
        if rule is None:
            yield Code.CAUSE, "it is planned, but its cause does not say what was called: metadata.detail.plan_grown"
        else:
            self._contract.places.learn_call(place, rule)
            yield from self._continues(place, flow, told[at], rule)
            key = adoption.kept_key(owner.name, place.index, told[at])
            if told[at].get("key") != key:
                said = f"its call has the key of {quoted(told[at].get('key'))}, expected {quoted(key)}"
                yield Code.ADOPTION, f"{said}: the creation of the run says what it keeps"
        flow.planned, flow.next = flow.planned + 1, flow.next + 1

    def _continues(
        self, place: PlannedRule, flow: FollowedFlow, call: Mapping[str, Any], rule: StepRule
    ) -> Iterator[Problem]:
        """A call by which the flow continues as new is its last one, and starts the workflow of its own run."""
        if flow.continues is not None:
            yield Code.CHAIN, "it is planned, but the flow has continued as new, which ends it"
        if call.get("kind") != CONTINUE:
            return
        flow.continues, own = place.index, self._contract.document
        if flow.settled < flow.planned:
            yield Code.CHAIN, f"the flow continues as new, and {flow.planned - flow.settled} of its calls are under way"
        if self._contract.size > 1:
            yield Code.CHAIN, f"the flow continues as new, and is one of {self._contract.size} steps"
        if rule.child is None or (rule.child.workflow, rule.child.version) != (own.name, own.version):
            said = f"{own.name}, version {own.version}"
            yield Code.CHAIN, f"the flow continues as another workflow or version than {said}"
        elif not rule.child.detached:
            yield Code.CHAIN, "the flow continues as new, and would wait for its successor"

    def called(self, place: PlannedRule, line: Line) -> Iterator[Problem]:
        """A hop of a call. That of a successor has an id which follows from the run, the call and its entry."""
        flow = self.owner_of(place)
        if flow is None or flow.continues is None or place.index != flow.continues:
            return
        if line.trigger == "children_started":
            flow.successor = successor_id(line.at, line.tenant, line.owner, line.no, line.seq)
            return
        # The output of the flow itself may be sealed; the certificate compares it.
        expected = None if flow.successor is None else digest_of_named("run_id", flow.successor)
        if line.trigger == "rules_passed" and expected not in (None, line.digest):
            said = f"metadata.digest is {line.digest}, which is not that of run {flow.successor}"
            yield Code.CHAIN, f"{said}: the id of a successor follows from the run and the call"

    def ended(self, place: PlannedRule, states: Mapping[int, Any], target: str) -> None:
        """A call has settled."""
        flow = self.owner_of(place)
        if flow is not None and place.owner is not None:
            owner = states.get(place.owner)
            flow.settled += 1
            # A flow knows of the calls that it has cancelled itself.
            is_known = place.index in flow.cancels and target == "cancelled"
            flow.ended.add(-1 if place.index is None else place.index)
            flow.must_go_on |= owner is not None and owner.state == "awaiting_children" and not is_known
            self.due.add(place.owner)

    def cancels(self, place: PlannedRule, line: Line, owner_state: str) -> bool:
        """Whether a call is cancelled because its flow ran out of time, or has ended."""
        flow = self.owner_of(place)
        if flow is None:
            return False
        is_late = flow.deadline is not None and line.at >= flow.deadline
        is_asked = place.index in flow.cancels and line.event == "step_reported"
        return is_late or is_asked or owner_state in ENDED

    def entry_ended(self, states: Mapping[int, Any]) -> Iterator[Problem]:
        """The end of a call wakes a suspended flow in the same entry, and a suspended flow has something to await."""
        for number in sorted(self.due):
            flow, step = self.flows[number], states.get(number)
            left, flow.cancels = sorted(flow.cancels - flow.ended), set()
            name = quoted(self._contract.places[number].name)
            # A flow that is suspended after its deadline ends at once, and its new calls are not made.
            has_ended = step is not None and step.state in ENDED
            if flow.recorded > flow.planned and not has_ended:
                yield Code.DEFINITION, f"step {name} made {flow.recorded} calls, and {flow.planned} are planned"
            if step is None or step.state != "awaiting_children":
                continue
            if left:
                yield Code.OUTCOME, f"step {name} cancels its calls {left}, and they have not ended"
            if flow.settled == flow.planned:
                yield Code.STUCK, f"step {name} is suspended, and all its calls have settled: nothing wakes it"
            elif flow.must_go_on:
                yield Code.OUTCOME, f"step {name} must go on here: one of its calls has settled"
        self.due.clear()


def calls_in(name: str, asked: Mapping[str, Any]) -> list[Any]:
    """The calls that a cause tells of."""
    return _told_in(name, asked, "calls")


def cancels_in(name: str, asked: Mapping[str, Any]) -> list[int]:
    """The places of the calls that a flow cancels."""
    return [place for place in _told_in(name, asked, "cancels") if type(place) is int]


def _told_in(name: str, asked: Mapping[str, Any], what: str) -> list[Any]:
    told = asked.get("plan_grown")
    record = told.get(name) if isinstance(told, dict) else None
    found = record.get(what) if isinstance(record, dict) else None
    return found if isinstance(found, list) else []


def rule_of(told: Any) -> StepRule | None:
    """The step of a call, from the template in its record; None if there is none."""
    template = told.get("step") if isinstance(told, dict) else None
    if not isinstance(template, dict):
        return None
    try:
        found = DEFAULTS | template | {"retry": RETRY | template.get("retry", {})}
        if (undo := template.get("undo")) is not None:
            retry = RETRY | undo["retry"] if "retry" in undo else UNDO_RETRY
            found["undo"] = undo | {"retry": retry}
        return msgspec.json.decode(msgspec.json.encode(found), type=StepRule)
    except (TypeError, KeyError, msgspec.MsgspecError):
        return None


# -- added ---------------------------------------------------------------------------------------------------------
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
        return self._contract.places[place.owner].kind.waits_for == "added"

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


# -- elements ------------------------------------------------------------------------------------------------------
def is_cancelled_by_owner(line: Line, place: PlannedRule) -> bool:
    """Whether a cancelled element names its owner as the reason: then its owner stopped, and not its run."""
    return place.owner is not None and place.phase == "main" and line.of == place.name.rsplit("[", 1)[0]


class OwnerOfElements:
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
        self.owners: dict[int, OwnerOfElements] = {}
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
        owner = self.owners[place.no] = OwnerOfElements(rule, count, line.at)
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

    def _is_over(self, owner: OwnerOfElements) -> bool:
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
