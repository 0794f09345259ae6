"""Follows flows: which calls they make, and what the ends of calls make necessary for them.

What a flow calls is not in its definition. The cause of each growth tells it, and the steps of calls are judged by
that. The judge runs no flow, so that it takes any call as possible. `reenact.py` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepkeep.conformance.chain import CONTINUE, digest_of_named, successor_id
from stepkeep.conformance.contract import Contract, PlannedRule, StepRule
from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted

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


class Flow:
    """What the log has shown of the calls of one flow."""

    def __init__(self) -> None:
        self.planned = self.settled = self.settled_at_claim = 0
        self.recorded = 0
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
            no: Flow()
            for no, place in contract.places.items()
            if place.phase == "main" and place.rule is not None and place.rule.is_flow
        }
        self.due: set[int] = set()

    def owner_of(self, place: PlannedRule) -> Flow | None:
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

    def _suspended(self, place: PlannedRule, flow: Flow, line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
        self._begin(place, flow, line)
        if line.due_at != flow.deadline:
            yield Code.TIMER, f"metadata.due_at is {line.due_at}, expected {flow.deadline}: the deadline of its calls"
        flow.recorded += len(calls_in(place.name, asked))
        self.due.add(place.no)

    def _begin(self, place: PlannedRule, flow: Flow, line: Line) -> None:
        """The first suspension begins the time of the calls."""
        rule = None if place.rule is None else place.rule.growth
        if rule is not None and rule.deadline is not None and flow.deadline is None:
            flow.deadline = line.at + rule.deadline

    def _late(self, flow: Flow, line: Line) -> Iterator[Problem]:
        if flow.deadline is None or line.at < flow.deadline:
            yield Code.TIMER, f"its deadline passes at {line.at}, but it is at {flow.deadline}"

    # -- its calls -----------------------------------------------------------------------------------------------------
    def plan(self, place: PlannedRule, line: Line, asked: Mapping[str, Any]) -> Iterator[Problem]:
        """A call is planned: its cause says what it is."""
        assert place.owner is not None
        flow, owner = self.flows[place.owner], self._contract.places[place.owner]
        growth = None if owner.rule is None else owner.rule.growth
        if place.index != flow.planned:
            yield Code.CREATION, f"it is planned where {flow.planned} is next by the order of calls"
        if growth is not None and flow.planned >= growth.max:
            yield Code.POLICY, f"it is planned, but the definition allows {growth.max} calls"
        told = calls_in(owner.name, asked)
        at = (place.index or 0) - flow.recorded + len(told)
        rule = rule_of(told[at]) if 0 <= at < len(told) else None
        if rule is None:
            yield Code.CAUSE, "it is planned, but its cause does not say what was called: metadata.detail.plan_grown"
        else:
            self._contract.places.learn_call(place, rule)
            yield from self._continues(place, flow, told[at], rule)
        flow.planned += 1

    def _continues(self, place: PlannedRule, flow: Flow, call: Mapping[str, Any], rule: StepRule) -> Iterator[Problem]:
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

    def ended(self, place: PlannedRule, states: Mapping[int, Any]) -> None:
        """A call has settled."""
        flow = self.owner_of(place)
        if flow is not None and place.owner is not None:
            owner = states.get(place.owner)
            flow.settled += 1
            flow.must_go_on = owner is not None and owner.state == "awaiting_children"
            self.due.add(place.owner)

    def cancels(self, place: PlannedRule, line: Line, owner_state: str) -> bool:
        """Whether a call is cancelled because its flow ran out of time, or has ended."""
        flow = self.owner_of(place)
        if flow is None:
            return False
        is_late = flow.deadline is not None and line.at >= flow.deadline
        return is_late or owner_state in ENDED

    def entry_ended(self, states: Mapping[int, Any]) -> Iterator[Problem]:
        """The end of a call wakes a suspended flow in the same entry, and a suspended flow has something to await."""
        for number in sorted(self.due):
            flow, step = self.flows[number], states.get(number)
            name = quoted(self._contract.places[number].name)
            # A flow that is suspended after its deadline ends at once, and its new calls are not made.
            has_ended = step is not None and step.state in ENDED
            if flow.recorded > flow.planned and not has_ended:
                yield Code.DEFINITION, f"step {name} made {flow.recorded} calls, and {flow.planned} are planned"
            if step is None or step.state != "awaiting_children":
                continue
            if flow.settled == flow.planned:
                yield Code.STUCK, f"step {name} is suspended, and all its calls have settled: nothing wakes it"
            elif flow.must_go_on:
                yield Code.OUTCOME, f"step {name} must go on here: one of its calls has settled"
        self.due.clear()


def calls_in(name: str, asked: Mapping[str, Any]) -> list[Any]:
    """The calls that a cause tells of."""
    told = asked.get("plan_grown")
    record = told.get(name) if isinstance(told, dict) else None
    calls = record.get("calls") if isinstance(record, dict) else None
    return calls if isinstance(calls, list) else []


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
