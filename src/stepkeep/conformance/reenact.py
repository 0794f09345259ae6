"""Re-enacts a run from its pinned definition: which steps open, what a failure leads to, how the run must end.

It keeps what the definition and the hops so far make necessary (steps that must open, a run that must stop), and
reports a hop that is not enabled and a necessity that an entry leaves out. `enabled.py` checks single hops. It shares
no code with the engine. `history.py` calls it for logs that carry their definition.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec.structs import replace

from stepkeep.conformance.adoption import ADOPTING, Adoption
from stepkeep.conformance.contract import Contract, PlannedRule, WaitRule, is_element_name
from stepkeep.conformance.details import check_detail
from stepkeep.conformance.enabled import check_enabled
from stepkeep.conformance.growth import Additions, Elements, Flows, rule_of
from stepkeep.conformance.hop import JOURNAL_FORMAT, GuardedHop, wrong_field
from stepkeep.conformance.limits import KeyGrants
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.people import PersonAct, RunPeople
from stepkeep.conformance.policies import check_pin, gate_rule, permit_of, terms_of, verdict_in
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import is_persons
from stepkeep.conformance.steps import (
    EFFECTS_LEFT,
    IN_DOUBT,
    LOST,
    NOT_RUN,
    RECORDED,
    FollowedStep,
    HeldResources,
    check_checkpoint,
    ends_attempt,
)

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
UNSURE = (IN_DOUBT, EFFECTS_LEFT, LOST)
"""How the error of a step begins whose effect remains, or may."""
RUN_ENDED = frozenset({"succeeded", "failed", "cancelled", "rolled_back"})
LIVE = frozenset({"queued", "running", "blocked", "paused", "validating"})
OPENINGS = frozenset(
    {
        "dependencies_met",
        "gate_opened",
        "held",
        "wait_opened",
        "children_started",
        "condition_false",
        "condition_broken",
        "denied",
        "denied_tolerated",
    }
)
STIRRED = frozenset({"progressed", "resumed"})
UNSTIRRED = frozenset({"planned", "dependencies_met", "cancelled"})
"""Hops of a step that leave a queued run queued."""

RUN_EVENTS = {
    "created": "run_created",
    "started": "run_started",
    "timed_out": "time_came",
    "undo_requested": "cancel_requested",
    "cancelled": "cancel_requested",
    "paused": "pause_requested",
    "unpaused": "unpause_requested",
    "unpaused_queued": "unpause_requested",
}
"""The only event that leads to a trigger of the run."""

BEGINNINGS = {
    "run_created": ("created",),
    "run_started": ("started",),
    "pause_requested": ("paused",),
    "unpause_requested": ("unpaused", "unpaused_queued"),
    "slot_granted": (*sorted(OPENINGS), "progressed"),
}
"""The first hop of a cause, where its event determines it."""

FOLLOWING = frozenset(
    {("step", trigger) for trigger in ("planned", "dependency_unmet", *ADOPTING, *OPENINGS)}
    | {
        ("run", trigger)
        for trigger in (
            "steps_settled", "rules_passed", "step_failed", "steps_failed", "rules_failed", "stopped_failed",
            "stopped_cancelled", "undo_started", "undone", "undo_failed", "waiting",
        )
    }
)  # fmt: skip
"""Hops that follow from another hop of the same cause."""

AFTER_TIMEOUT = frozenset({"time_came", "cancel_requested"})
"""Events that may come first after the timeout of a run, and do not go on with it."""

NOTED = ("message_arrived", "duty_violated", "annotated", RECORDED)
"""Events that may be on record without a hop."""

RULED_OUT = frozenset({"rules_failed", "rules_failed_tolerated"})
"""Ends of a step whose handler had completed."""

LOST_OR_NOT = frozenset(
    {
        "lease_lost",
        "claimed",
        "released",
        "rules_passed",
        "completion_succeeded",
        "operator_completed",
        "children_succeeded",
    }
)
"""Triggers after which it is known whether the next claim follows a lost lease."""

STOPS = frozenset({"step_failed", "steps_failed", "rules_failed", "timed_out", "undo_requested"})
WORDS = "some words"
"""Stands for the words of the engine about a timeout or a cancel, which are free."""

BLAMING = ("step_failed", "rules_failed")
"""Triggers of the run that name a step as their reason."""

HARD_ENDS = frozenset({"rejected", "rejected_tolerated", "deadline_passed", "deadline_tolerated"})
"""How a gate ends that satisfies no dependency."""


class Reenactment:
    """One run and what its definition makes necessary next."""

    def __init__(self, contract: Contract, steps: Mapping[int, FollowedStep]) -> None:
        self.contract, self.steps = contract.for_run(), steps
        self.unmet = {no: place.needs for no, place in contract.places.items() if place.phase == "main"}
        self.to_open: dict[int, int | None] = {}
        self.to_skip: dict[int, int] = {}
        self.hooks: list[int] = []
        self.must_stop: int | None = None
        self.must_cancel = False
        self.must_stir = ""
        self.planned = 0
        self.tolerated_failures = 0
        self.started_at: int | None = None
        self.start_at: object = None
        self.pinned: object = None
        self.awaits_slot = self.is_granted = False
        """Whether the run stays queued until it is granted an execution slot, and whether it was."""
        self.stopped_at: int | None = None
        self.stopped_in = 0
        self.stopped_by = self.cancelled_by = (0, "", "")
        self.blamed: int | None = None
        self.cause: str | None = None
        self.policy = ""
        self.is_partial = self.has_hook_failed = False
        self.category: str | None = None
        self.error: str | None = None
        self.arrived: Counter[str] = Counter()
        self.message_ids: dict[str, tuple[int, int]] = {}
        self.asked: Mapping[str, Any] = {}
        gates = {place.name: place.gate for place in self.contract.places.values() if place.gate is not None}
        self.people = RunPeople(contract.document.duties, gates, self._state_of)
        self.format = JOURNAL_FORMAT
        self.elements = Elements(contract)
        self.flows = Flows(self.contract)
        self.resources, self.places = HeldResources(), KeyGrants()
        self.additions = Additions(self.contract)
        self.verdicts: Mapping[str, Any] = {}
        self.held: set[str] = set()
        """Steps that a policy held."""
        self.denied: set[str] = set()
        """Steps that a policy denies in this entry, and that have not moved in it."""
        self.adoption = Adoption(None)
        self._cause: tuple[object, ...] = ()

    # -- causes ------------------------------------------------------------------------------------------------------
    def consume(self, line: Line, say: Say) -> None:
        """Read the cause of a line: its detail belongs to every hop that it leads to."""
        if (line.seq, line.by) == self._cause:
            return
        self._cause = line.seq, line.by
        self.asked = self.verdicts = {} if line.detail is None else json.loads(line.detail)
        self._note_holds()
        self._note_start(line, say)
        self._check_asked(line, say)
        self.check_in_time(line, say)
        begins = BEGINNINGS.get(line.event)
        if line.about != "note" and (
            (line.about, line.trigger) in FOLLOWING
            and line.source not in ("retrying", "running")
            and not _ends_pause(line)
            if begins is None
            else line.trigger not in begins
        ):
            say(Code.CAUSE, f"a cause cannot begin with {quoted(line.trigger)}, which follows from another hop")
        if line.about == "note" and line.event not in NOTED:
            say(Code.CAUSE, wrong_field("event", line.event, " or ".join(NOTED), "nothing else moves nothing"))
        if line.event == "duty_violated":
            self._check_violation(line, say)
        if line.event == RECORDED:
            adopted = self.adoption.checkpoints(self.asked.get("step"))
            for problem in check_checkpoint(self.steps, line, self.asked, adopted):
                say(*problem)
        if line.event == "message_arrived":
            self.arrived[str(self.asked.get("name"))] += 1
        if line.event == "slot_granted":
            self._check_grant(line, say)
        if line.event == "child_ended":
            self._carry(str(self.asked.get("step")), self.asked.get("persons"))

    def check_in_time(self, line: Line, say: Say) -> None:
        """Nothing goes on with a run whose timeout has passed: the first event after it ends the run. A timer of a step
        may be swept before that of its run."""
        limit, is_stopped = self._limit_at, self.cause is not None
        if limit is None or is_stopped or line.at < limit or line.event in AFTER_TIMEOUT:
            return
        say(Code.TIMER, f"{quoted(line.event)} goes on with the run at {line.at}, but its timeout ended at {limit}")

    def _check_grant(self, line: Line, say: Say) -> None:
        """A run gets a slot once, and only if it was created to wait for one."""
        if not self.awaits_slot:
            said = "it has one already" if self.is_granted else "its creation does not say that it waits for one"
            say(Code.CAUSE, f"the run is granted a slot, but {said}")
        elif self.started_at is None:
            say(Code.CAUSE, "the run is granted a slot before it was started")
        self.grant(line.at)

    def grant(self, at: int | None) -> None:
        """The run has its slot: its first steps open."""
        if self.awaits_slot:
            self.awaits_slot, self.is_granted = False, True
            self._open_first(at)

    def _check_violation(self, line: Line, say: Say) -> None:
        no = self.contract.numbers.get(str(self.asked.get("step")))
        place, step = (None, None) if no is None else (self.rule_of(no), self.steps.get(no))
        if place is None or step is None:
            say(Code.CAUSE, f"metadata.detail.step is {quoted(self.asked.get('step'))}, which the run does not have")
            return
        for _, said in self.people.violated(self._act(place, line), step.terms or place.gate):
            say(Code.PEOPLE, said)
        if line.about != "note":
            say(Code.CAUSE, "a refused act moves nothing, and this one does")

    def _note_start(self, line: Line, say: Say) -> None:
        before = self.asked.get("asked_before")
        if line.event == "run_started":
            self._check_requesters(line, before, say)
        self.people.ask(line.event, line.actor, self.asked)
        if line.event == "run_created":
            self.format = self.asked.get("format", 1)
            self.start_at = self.asked.get("start_at")
            self.pinned = self.asked.get("policy_revision")
            self.awaits_slot = self.asked.get("awaits_slot") is True
            if "continues" in self.asked or not self.planned:
                self.adoption = Adoption(self.asked.get("continues"))
                for name, persons in self.adoption.persons():
                    self._carry(name, persons)
                for problem in self.adoption.own_decisions(line.actor):
                    say(*problem)

    def _check_requesters(self, line: Line, before: object, say: Say) -> None:
        """The start of an idle run by another person names those who had asked for it; a timer asks for nothing."""
        known = self.people.requesters if "start_at" not in self.asked else ()
        expected = sorted(known) if line.actor not in known else None
        if known and self.format > 1 and before != expected:
            why = "the run was asked for by them" if expected else "its actor had asked for the run"
            say(Code.CAUSE, f"the run: {wrong_field('detail.asked_before', before, expected, why)}")

    def _check_refusals(self, say: Say) -> None:
        """Only a step with a filter, or one that takes several messages, refuses a message that it waits for."""
        filters = {
            place.name
            for place in (*self.contract.places.values(), *self.contract.places.calls.values())
            if place.rule is not None and place.rule.wait is not None and _may_refuse(place.rule.wait)
        }
        filters |= {step.name for step in self.steps.values() if step.may_refuse}
        refused = self.asked.get("refused_by", ())
        for name in refused if isinstance(refused, list) else ():
            if name not in filters:
                say(Code.CAUSE, f"{quoted(name)} refuses a message, and the definition gives it no filter")

    def _check_asked(self, line: Line, say: Say) -> None:
        """The detail of a cause, as far as its event determines it."""
        for said in check_detail(line, self.asked):
            say(Code.CAUSE, said)
        for _, said in check_pin(self.asked, self.pinned):
            say(Code.POLICY, said)
        if self.asked.get("vouched_by", "") == line.actor:
            said = wrong_field("detail.vouched_by", line.actor, "another name", "a program vouches for others")
            say(Code.CAUSE, said)
        if line.event == "run_created":
            self._check_limit(line, say)
        if line.event == "message_arrived":
            self._check_refusals(say)
            place = line.seq, line.by
            if self.message_ids.setdefault(str(self.asked.get("id")), place) != place:
                say(Code.CAUSE, f"message {quoted(self.asked.get('id'))} arrives again; a message is recorded once")

    def _check_limit(self, line: Line, say: Say) -> None:
        """A run of a workflow with slots waits for one. A child may run under the slot of its parent; a run that
        continues another may have nothing left to run."""
        exempt = line.actor.startswith("parent:") or "continues" in self.asked
        if self.contract.document.slots is not None and not self.awaits_slot and not exempt:
            said = wrong_field("detail.awaits_slot", None, True, "the definition limits the running runs")
            say(Code.POLICY, f"the run: {said}")

    def _note_holds(self) -> None:
        said = self.verdicts.get("policy")
        for name, verdict in said.items() if isinstance(said, dict) else ():
            effect = verdict.get("effect") if isinstance(verdict, dict) else None
            if effect == "hold":
                self.held.add(name)
            elif effect == "deny":
                self.denied.add(name)

    # -- steps -------------------------------------------------------------------------------------------------------
    def step_hop(self, step: FollowedStep, line: Line, run_state: str, say: Say) -> None:
        """Check a hop of a step before it is recorded."""
        place = self.rule_of(line.no)
        if place is None or place.name != line.step:
            known = "no step" if place is None else f"step {quoted(place.name)}"
            say(Code.DEFINITION, f"{step.title} has number {line.no}, where the definition has {known}")
            return

        def flag(code: Code, said: str) -> None:
            say(code, f"{step.title}: {said}")

        if self.must_stop is not None:
            say(Code.POLICY, f"{step.title} moves where the run must stop, because {self._name(self.must_stop)} failed")
            self.must_stop = None
        if self.must_stir and (line.trigger in UNSTIRRED if self.must_stir == "progressed" else False):
            say(Code.ENDING, f"the run is {quoted(self.must_stir)}, but nothing in it began")
        self.must_stir = ""
        if run_state == "queued" and line.trigger not in UNSTIRRED:
            say(Code.CLAIM, f"{step.title} is {quoted(line.trigger)} while the run is still 'queued'")
        verdict = verdict_in(self.verdicts, place.name)
        self.denied.discard(place.name)
        step.counts_losses = place.retry.counts_losses
        step.was_held = place.name in self.held
        if line.trigger == "held":
            step.terms, step.permit = gate_rule(terms_of(verdict)), None if verdict is None else permit_of(verdict)
        kept = self.adoption.deadlines.get(place.name)
        hop = GuardedHop(
            line, step, place, self.contract, self.asked, verdict, run_state == "stopping", kept, self.format
        )
        for problem in check_enabled(hop):
            flag(*problem)
        if line.trigger == "planned":
            self._plan(place, line, flag)
        elif line.trigger in ADOPTING:
            self.planned += place.owner is None
            self.flows.adopt(place)
            if place.owner is not None and (rule := rule_of(self.adoption.call_of(line.step))) is not None:
                self.contract.places.learn_call(place, rule)
            for problem in self.adoption.take(
                line, has_elements=place.rule is not None and place.rule.growth is not None
            ):
                flag(*problem)
        elif line.trigger in OPENINGS and line.source not in ("retrying", "running", "ready"):
            self._open(place, line, flag)
        elif line.trigger == "dependency_unmet":
            self._skip(place, line, flag)
        elif line.trigger in ("message_arrived", "wait_satisfied"):
            self._consume(step, place, line, flag)
        elif line.trigger == "cancelled":
            self._cancel(place, step, line, run_state, flag)
        elif line.trigger in ("failed", "failed_tolerated"):
            self._fail(place, line, run_state, flag)
        for problem in self._grow(place, line):
            flag(*problem)
        self._people(step, place, line, flag)
        for problem in self.resources.follow(place, line, self.asked):
            flag(*problem)
        for problem in self.places.follow(place, line, self.asked):
            flag(*problem)
        self._remember(step, place, line, run_state)

    def _people(self, step: FollowedStep, place: PlannedRule, line: Line, flag: Say) -> None:
        kept = self.adoption.deadlines.get(place.name) if line.seq == 1 else None
        for rule, said in self.people.hop(self._act(place, line), step.terms or place.gate, kept):
            flag(Code.TIMER if rule == "decision_late" else Code.PEOPLE, said)
        step.open_gate = self.people.open.get(place.name)

    def _act(self, place: PlannedRule, line: Line) -> PersonAct:
        states = line.source or "", line.target
        is_main = place.phase == "main"
        return PersonAct(
            place.name, line.trigger, *states, line.event, line.actor, self.asked, line.seq, line.at, is_main
        )

    def _carry(self, name: str, persons: object) -> None:
        if is_persons(persons):
            self.people.carry(name, cast(Mapping[str, Any], persons))

    def _state_of(self, name: str) -> str:
        return self._state(self.contract.numbers.get(name, -1))

    def rule_of(self, no: int) -> PlannedRule | None:
        """The place of a step; whether the failure of an element is tolerated depends on those before it, and on its
        owner: one that was cancelled with its run tolerates nothing more."""
        place: PlannedRule | None = self.contract.places.get(no)
        if place is None or place.owner is None or place.phase != "main":
            return place
        is_call = self.flows.owner_of(place) is not None
        bears = self._state(place.owner) not in ENDED and (is_call or self.elements.is_tolerant(place))
        return replace(place, is_tolerant=bears)

    def _grow(self, place: PlannedRule, line: Line) -> Iterator[tuple[Code, str]]:
        """What a hop of an owner says about its elements."""
        yield from self.flows.moved(place, line, self.verdicts)
        yield from self.flows.called(place, line)
        if place.kind.waits_for not in ("elements", "added") or place.phase != "main":
            return
        if line.trigger == "children_started":
            yield from self.elements.opened(place, line, self.verdicts)
        elif line.source == "awaiting_children":
            yield from self.elements.owner_ends(place, line) if line.trigger != "cancelled" else ()

    def _plan(self, place: PlannedRule, line: Line, flag: Say) -> None:
        if self.flows.owner_of(place) is not None:
            for problem in self.flows.plan(place, line, self.verdicts, self.adoption):
                flag(*problem)
            self.to_open[place.no] = place.owner
        elif place.owner is not None and place.phase == "main":
            for problem in self.elements.plan(place, line):
                flag(*problem)
            needs = 0
            if self.additions.are_of(place):
                for problem in self.additions.plan(place, self.verdicts):
                    flag(*problem)
                needs = self.unmet[place.no] = self.contract.places[place.no].needs
            if not needs:
                self.to_open[place.no] = place.owner
        elif place.phase == "main":
            self.planned += 1
        elif place.phase == "check":
            self.to_open[place.no] = None
        elif place.no not in self.hooks:
            flag(Code.UNDO, "it is planned, but the definition and the steps so far leave nothing to undo by it")

    def _open(self, place: PlannedRule, line: Line, flag: Say) -> None:
        if place.no not in self.to_open:
            flag(Code.DEPENDENCY, f"it is {quoted(line.trigger)} before the steps it depends on allow that")
            return
        wanted = self.to_open.pop(place.no)
        expected = "slot_granted" if self.is_granted else "run_started"
        if wanted is None and place.phase == "main" and line.event != expected:
            flag(Code.CAUSE, wrong_field("event", line.event, expected, "it depends on no step"))
        self._check_opener(line, wanted, flag)

    def _skip(self, place: PlannedRule, line: Line, flag: Say) -> None:
        if place.no not in self.to_skip:
            flag(Code.DEPENDENCY, "it is skipped, but no step it depends on makes that necessary")
            return
        self._check_opener(line, self.to_skip.pop(place.no), flag)

    def _check_opener(self, line: Line, wanted: int | None, flag: Say) -> None:
        """What the end of a step leads to happens in its entry and has its cause."""
        self._check_of(line, wanted, flag)
        step = None if wanted is None else self.steps.get(wanted)
        cause = line.seq, line.event, line.actor
        if step is not None and step.ended_by not in (None, cause):
            said = f"it has another entry, event or actor than the end of {quoted(step.name)}"
            flag(Code.CAUSE, f"{said}, which led to it")

    def _check_of(self, line: Line, wanted: int | None, flag: Say) -> None:
        expected = None if wanted is None else self._name(wanted)
        if line.of != expected:
            flag(Code.DEPENDENCY, wrong_field("of", line.of, expected, "that is the step that leads to it"))

    def _consume(self, step: FollowedStep, place: PlannedRule, line: Line, flag: Say) -> None:
        wait = place.rule.wait if place.rule else None
        name = wait.event if wait is not None else step.waits_for
        told = self.asked.get("name", name) if line.event == "message_arrived" else name
        if name is not None and told != name and step.moved_in not in (None, line.seq):
            # A wait that opens takes a message that came before: the entry is about what opened it.
            flag(Code.CAUSE, wrong_field("detail.name", told, name, "its wait ends by that message"))
        if name is None:
            return
        needed = step.count if wait is None else wait.count or 1
        if not self.arrived[name]:
            flag(Code.CAUSE, f"its wait ends by a message {quoted(name)}, but every such message was consumed before")
        elif self.arrived[name] < needed:
            said = f"its wait ends after {self.arrived[name]} messages {quoted(name)}"
            flag(Code.CAUSE, f"{said}, and the definition says that it takes {needed}")
        self.arrived[name] = max(0, self.arrived[name] - needed)

    def _fail(self, place: PlannedRule, line: Line, run_state: str, flag: Say) -> None:
        """A step that holds when no attempt is left fails only in a stopping run, or as its handler says."""
        goes_on = run_state != "stopping"
        # A wait that is impossible, as each is in an undo, is a failure without another attempt.
        is_final = self.asked.get("final") is True or "waits_for" in self.asked
        if place.is_held and line.source == "running" and goes_on and not is_final:
            flag(Code.POLICY, "it fails, but the definition says that it holds when no attempt is left")

    def _is_cancelled_by_owner(
        self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say
    ) -> bool:
        """Whether an element is cancelled because its owner stops, and not its run."""
        if place.owner is None or place.phase != "main" or run_state in ("stopping", "compensating"):
            return False
        if line.of != self._name(place.owner):
            return False
        if self.flows.owner_of(place) is not None:
            is_ended = self.flows.cancels(place, line, self._state(place.owner))
            if is_ended:
                self.to_open.pop(place.no, None)
            return is_ended
        grace = self.contract.document.grace
        # A child run of an element is in flight like an attempt.
        has_child = place.awaits_child and line.source == "awaiting_children"
        if has_child and line.event not in ("child_ended", "time_came"):
            flag(Code.CAUSE, wrong_field("event", line.event, "child_ended or time_came", "its child is in flight"))
        found = self.elements.cancels(place, line, leased=step.leased or has_child, grace_us=grace)
        if isinstance(found, str):
            flag(Code.TIMER, found)
        if found:
            self.to_open.pop(place.no, None)
        return bool(found)

    def _cancel(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        if self._is_cancelled_by_owner(place, step, line, run_state, flag):
            return
        # A stop cancels nothing that is in flight; the end of a child may come in the same entry.
        in_flight = step.leased or (line.source == "awaiting_children" and place.awaits_child)
        now_stopping = self.stopped_in == line.seq and not in_flight
        if now_stopping:
            self._check_together(line, self.stopped_by, flag)
        self._check_of(line, self.blamed if now_stopping or run_state == "compensating" else None, flag)
        if run_state == "compensating":
            if self.contract.document.hook_failure != "stop" or not self.has_hook_failed or place.phase != "undo":
                flag(Code.POLICY, "it is cancelled during a rollback that the definition does not stop")
        elif run_state == "stopping":
            is_early = self._in_grace(line) and not self._ends_at_once(line) and not self._lost(step, line)
            if line.event == "time_came" and step.leased and is_early:
                flag(Code.TIMER, f"it is fenced off before its grace period ends at {self._grace_end()}")
        else:
            if self.cancelled_by[0] == line.seq:
                self._check_together(line, self.cancelled_by, flag)
            self.must_cancel, self.cancelled_by = True, (line.seq, line.event, line.actor)

    def _check_together(self, line: Line, cause: tuple[int, str, str], flag: Say) -> None:
        """What one cause leads to in one entry has its event and its actor."""
        if (line.seq, line.event, line.actor) != cause:
            found, expected = f"{line.event} by {line.actor}", f"{cause[1]} by {cause[2]}"
            flag(Code.CAUSE, wrong_field("event and actor", found, expected, "that cancels its steps"))

    def _lost(self, step: FollowedStep, line: Line) -> bool:
        return not step.is_timer_known or (step.due_at is not None and line.at > step.due_at)

    def _ends_at_once(self, line: Line) -> bool:
        """Whether this is the timeout of a run that undoes nothing: it waits for nothing in flight."""
        undoes = self.policy == "compensate" or self.contract.document.compensate_always
        return self.cause == "timeout" and self.stopped_in == line.seq and not undoes

    def _in_grace(self, line: Line) -> bool:
        return self.stopped_at is not None and line.at < self._grace_end()

    def _grace_end(self) -> int:
        return (self.stopped_at or 0) + self.contract.document.grace

    # -- what a hop makes necessary ----------------------------------------------------------------------------------
    def _remember(self, step: FollowedStep, place: PlannedRule, line: Line, run_state: str) -> None:
        if step.losses is not None:
            step.losses += line.trigger == "lease_lost"
        if ends_attempt(line.trigger, line.target) and step.began_at == 0 and step.is_claim_known:
            step.began_at = step.claimed_at
        step.is_exhausted = line.trigger in ("held_exhausted", "held_unfit")
        if step.is_exhausted and "unfit" in self.asked:
            step.tried = (step.tried or frozenset()) | {self.asked["unfit"]}
        elif step.is_exhausted or line.event == "hold_decided":
            step.tried = frozenset()
        if line.trigger in LOST_OR_NOT:
            step.was_lost = line.trigger == "lease_lost"
        if line.error is not None:
            # A person who fails a held step leaves its error in front, and with it how the last attempt ended.
            step.is_unsure, step.last_error = line.error.startswith(UNSURE), line.error
        if line.trigger in RULED_OUT or (line.source == "validating" and line.trigger == "cancelled"):
            self._completed_in_vain(step, line)
        if line.trigger in ("operator_retried", "code_changed"):
            step.spent, step.began_at, step.losses = (line.attempt or 1) - 1, 0, 0
        if line.trigger == "claimed":
            step.holder = line.actor
        elif line.trigger == "waited":
            step.waits_for = self.asked.get("waits_for")
            is_told = "waits_for" in self.asked
            step.takes_timeouts = self.asked.get("takes_timeouts") is not False if is_told else None
            count = self.asked.get("count")
            step.count = count if type(count) is int and count > 0 else 1
            step.may_refuse = not self.asked.keys().isdisjoint(("where", "count", "until"))
        if line.target not in ENDED:
            return
        if line.trigger in ADOPTING:
            step.ended_as = line.trigger
            return
        step.category, step.error = line.category, line.error
        step.ended_by, step.ended_as = (line.seq, line.event, line.actor), line.trigger
        step.is_hard = _is_hard(step, line, self.steps, self.contract)
        if place.phase == "undo":
            self._hook_ended(place, line)
        elif place.phase == "main":
            self._main_ended(place, step, line, run_state)
        elif line.target == "failed" and run_state == "validating":
            self.must_stop = place.no

    def _completed_in_vain(self, step: FollowedStep, line: Line) -> None:
        """The handler completed, and the step does not succeed: its effect happened. The state that a step left is
        certain where its line has the digest of an output, or where no hop was hidden."""
        if line.trigger in RULED_OUT or line.digest is not None or step.is_unsure is not None:
            step.is_unsure = True

    def _hook_ended(self, place: PlannedRule, line: Line) -> None:
        failed = line.target != "succeeded"
        self.is_partial |= failed
        self.has_hook_failed |= failed
        if place.no in self.hooks:
            self.hooks.remove(place.no)
        if failed and self.contract.document.hook_failure == "stop":
            self.blamed = self.blamed if line.trigger == "cancelled" else place.no
            return
        if self.hooks:
            self.to_open[self.hooks[0]] = place.no

    def _main_ended(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str) -> None:
        if place.owner is not None:
            self.flows.ended(place, self.steps)
            self.elements.ended(place, line)
            if run_state != "stopping" and line.trigger != "cancelled" and not self.elements.is_stopping(place):
                self._tell_dependents(place, step, line.target, line.at)
            return
        if run_state == "stopping" or line.trigger == "cancelled":
            if line.target == "failed" and place.rule is not None and place.rule.on_failure == "compensate":
                # Of several failures the stronger policy counts.
                self.policy = "compensate"
            return
        if line.target == "failed":
            assert place.rule is not None
            if place.rule.on_failure != "continue":
                self.must_stop = place.no
                return
            self.tolerated_failures += 1
            self._blame(line.category, line.error)
        self._tell_dependents(place, step, line.target, line.at)

    def _tell_dependents(self, place: PlannedRule, step: FollowedStep, ended: str, at: int) -> None:
        for no, allow in place.dependents:
            if self._state(no) != "pending" or no in self.to_skip or no in self.to_open:
                continue
            if no not in self.unmet:
                continue  # an added step beyond those that the definition allows: that is a finding already
            if ended not in allow or step.is_hard:
                self.to_skip[no] = place.no
                continue
            self.unmet[no] -= 1
            if not self.unmet[no]:
                self.to_open[no] = place.no
                self.steps[no].seen_at = at

    def _state(self, no: int) -> str:
        step = self.steps.get(no)
        return "" if step is None else step.state

    def _name(self, no: int) -> str:
        return self.contract.places[no].name

    def _blame(self, category: str | None, error: str | None) -> None:
        if self.category is None:
            self.category, self.error = category, error

    # -- the run -----------------------------------------------------------------------------------------------------
    def run_hop(self, line: Line, say: Say) -> None:
        """Check a hop of the run before it is recorded."""
        document = self.contract.document
        event = RUN_EVENTS.get(line.trigger)
        if event is not None and line.event != event:
            said = wrong_field("event", line.event, event, f"only that leads to {quoted(line.trigger)}")
            say(Code.CAUSE, f"the run: {said}")
        if line.of is not None and line.trigger not in BLAMING:
            say(Code.CONTRADICTION, f"the run: {wrong_field('of', line.of, None, 'no step leads to this')}")
        if line.target not in RUN_ENDED and (line.category, line.error) != (None, None):
            found = line.category or line.error
            said = wrong_field("category or error", found, None, "only the end of a run has them")
            say(Code.CONTRADICTION, f"the run: {said}")
        if self.must_stir:
            if line.trigger != "steps_settled" or not self._is_all_adopted():
                say(Code.ENDING, f"the run is {quoted(self.must_stir)}, but nothing in it moves")
            self.must_stir = ""
        if line.trigger in STIRRED:
            self.must_stir = line.trigger
        elif line.trigger == "started":
            self._check_start(line, say)
            self.begin(line.at)
        elif line.trigger in STOPS:
            self._stop(line, say)
        elif line.trigger == "cancelled":
            if self.cancelled_by[0] == line.seq:
                self._check_together(line, self.cancelled_by, say)
            self.must_cancel, self.cause, self.error = False, "cancel", WORDS
            self.to_open.clear()
            self.to_skip.clear()
            if line.source != "idle" and self.asked.get("compensate") is not False:
                say(Code.POLICY, "the run is cancelled at once, but its cause asks for compensation")
        elif line.trigger in ("stopped_failed", "stopped_cancelled", "undo_started"):
            self._end_stopping(line, say)
        elif line.trigger in ("undone", "undo_failed"):
            if self.hooks and not (document.hook_failure == "stop" and self.has_hook_failed):
                say(Code.UNDO, f"the rollback ends, but {quoted(self._name(self.hooks[0]))} has not run")
            if (line.trigger == "undo_failed") != self.is_partial:
                expected = "undo_failed" if self.is_partial else "undone"
                say(Code.UNDO, f"the run: trigger is {quoted(line.trigger)}, expected {quoted(expected)}")
        elif line.trigger == "rules_passed" and document.rules:
            check = self._state(2 * self.contract.size)
            if check != "succeeded":
                say(Code.ENDING, f"the run passes its rules, but its check is {quoted(check)}")
        if line.target in RUN_ENDED:
            self._check_blame(line, say)

    def _is_all_adopted(self) -> bool:
        main = [step for step in self.steps.values() if step.phase == "main"]
        return bool(main) and all(step.ended_as in ADOPTING for step in main)

    def _check_start(self, line: Line, say: Say) -> None:
        """A run that its timer starts was created with that moment, and does not start before it."""
        due = self.asked.get("start_at")
        if due is None:
            return
        if due != self.start_at:
            said = wrong_field("detail.start_at", due, self.start_at, "that is the moment its creation names")
            say(Code.CAUSE, f"the run: {said}")
        if type(due) is int and line.at < due:
            say(Code.TIMER, f"the run starts at {line.at}, before its moment {due}")

    def begin(self, at: int | None) -> None:
        """The run starts: its first steps open, unless it waits for a slot."""
        self.started_at = at
        if not self.awaits_slot and not self.is_granted:
            self._open_first(at)

    def _open_first(self, at: int | None) -> None:
        adopted = sorted(
            (step for step in self.steps.values() if step.ended_as in ADOPTING), key=lambda one: one.settled
        )
        taken = {step.no for step in adopted}
        self.to_open = {no: None for no, needs in self.unmet.items() if not needs and no not in taken}
        for no in self.to_open.keys() & self.steps.keys() if at is not None else ():
            self.steps[no].seen_at = at or 0
        for step in adopted:
            self._tell_dependents(self.contract.places[step.no], step, step.state, at or 0)

    def _open_no_more(self) -> None:
        """The run stops: what has not opened never will. A child that has begun is in flight."""
        self.to_open.clear()
        self.to_skip.clear()

    def _stop(self, line: Line, say: Say) -> None:
        document, of = self.contract.document, self.contract.numbers.get(line.of or "")
        if line.trigger in BLAMING:
            if self.must_stop is None or of != self.must_stop:
                say(Code.POLICY, f"the run stops because of {quoted(line.of)}, which does not make that necessary")
            failed = self.steps.get(-1 if of is None else of)
            place = self.contract.places.get(-1 if of is None else of)
            rule = place.rule if place is not None and place.phase == "main" else None
            self.policy = document.on_failure if rule is None else rule.on_failure
            if failed is not None:
                self._blame(failed.category, failed.error)
        else:
            self.policy = document.on_failure
        if line.trigger == "steps_failed" and not self.tolerated_failures:
            say(Code.POLICY, "the run stops because steps failed, but none failed under 'continue'")
        if line.trigger == "timed_out":
            self._check_timeout(line, say)
            self._blame("timeout", WORDS)
        if line.trigger == "undo_requested":
            self.policy = "compensate"
            if self.asked.get("compensate") is not True:
                say(Code.POLICY, "the run stops to be undone, but its cause does not ask for compensation")
            self._blame(None, WORDS)
        self.cause = {"timed_out": "timeout", "undo_requested": "cancel"}.get(line.trigger, "failure")
        self.must_stop, self.stopped_at, self.stopped_in, self.blamed = None, line.at, line.seq, of
        self.stopped_by = line.seq, line.event, line.actor
        self._open_no_more()

    @property
    def _limit_at(self) -> int | None:
        """When the timeout of the run ends, if it has one and the log shows its start."""
        timeout, began = self.contract.document.timeout, self.started_at
        if timeout is None or began is None:
            return None
        return min(began, began if self.adoption.began_at is None else self.adoption.began_at) + timeout

    def _check_timeout(self, line: Line, say: Say) -> None:
        limit = self._limit_at
        if self.contract.document.timeout is None:
            say(Code.TIMER, "the run times out, but its definition has no timeout")
        elif limit is not None and line.at < limit:
            say(Code.TIMER, f"the run times out at {line.at}, but its timeout ends at {limit}")

    def _end_stopping(self, line: Line, say: Say) -> None:
        hooks = self._to_undo()
        expected = "undo_started" if hooks else "stopped_cancelled" if self.cause == "cancel" else "stopped_failed"
        if line.trigger != expected:
            why = f"{len(hooks)} steps are to be undone" if hooks else f"nothing is to be undone after a {self.cause}"
            say(Code.POLICY, f"the run: trigger is {quoted(line.trigger)}, expected {quoted(expected)}: {why}")
        self.hooks = hooks
        if hooks:
            self.to_open[hooks[0]] = None

    def _to_undo(self) -> list[int]:
        """The hooks that must run, in their order."""
        if self.policy != "compensate" and not self.contract.document.compensate_always:
            return []
        undone: list[FollowedStep] = []
        for no, step in sorted(self.steps.items()):
            place = self.contract.places.get(no)
            rule = None if place is None or place.phase != "main" else place.rule
            if self.adoption.remains(step):
                self.is_partial = True
                continue
            if rule is None or rule.growth is not None or self.adoption.is_anothers(step):
                continue
            ran = step.fence > 1 or (step.fence == 1 and not (step.error or "").startswith(NOT_RUN))
            is_owned = self.adoption.is_owned(step)
            if step.state != "succeeded" and not is_owned and not (ran and rule.compensate_when == "attempted"):
                if rule.undo is not None or rule.effect != "read":
                    self.is_partial |= step.is_unsure is True
                continue
            if rule.undo is not None:
                undone.append(step)
            elif rule.effect != "read":
                self.is_partial = True
        undo_no = self.contract.places.undo_no
        return [undo_no(step.no) for step in sorted(undone, key=lambda one: one.settled, reverse=True)]

    def _check_blame(self, line: Line, say: Say) -> None:
        expected = None if line.target == "succeeded" else self.category
        if line.category != expected:
            say(Code.ENDING, f"the run: {wrong_field('category', line.category, expected, 'its first failure')}")
        error = None if line.target == "succeeded" else self.error
        if line.error is None if error == WORDS else line.error != error:
            say(Code.ENDING, f"the run: {wrong_field('error', line.error, error, 'why it ended')}")

    # -- the end of an entry -----------------------------------------------------------------------------------------
    def entry_ended(self, state: str, say: Say) -> None:
        """Everything that an entry makes necessary happens in it."""
        if self.planned < self.contract.size:
            said = f"{self.planned} of {self.contract.size} steps of the definition were planned"
            say(Code.DEFINITION, f"steps are missing: {said} when the run was created")
            self.planned = self.contract.size
        if self.adoption.is_rollback and state in LIVE:
            say(Code.POLICY, f"the run is {quoted(state)}, but it only rolls another one back: it must stop at once")
        for name in self.adoption.unsaid():
            say(Code.ADOPTION, f"step {quoted(name)} is not adopted, but the creation of the run says so")
        if self.must_stop is not None:
            say(Code.POLICY, f"the run goes on although {quoted(self._name(self.must_stop))} failed: it must stop")
        if self.must_cancel:
            say(Code.POLICY, "steps are cancelled, but the run neither stops nor is cancelled")
        if self.must_stir:
            say(Code.ENDING, f"the run is {quoted(self.must_stir)}, but nothing in it moves")
        for name in sorted(self.denied):
            say(Code.POLICY, f"the policy denies {quoted(name)}, but that does not move")
        self.denied.clear()
        if state not in (*RUN_ENDED, "stopping", "compensating"):
            grown = (self.elements.entry_ended(self.steps), self.flows.entry_ended(self.steps))
            for problem in (*grown[0], *grown[1], *self.additions.entry_ended()):
                say(*problem)
        self.elements.due.clear()
        self.flows.due.clear()
        if state not in RUN_ENDED:
            for no in (*self.to_open, *self.to_skip):
                say(Code.DEPENDENCY, f"step {quoted(self._name(no))} must move on here: what it depends on has ended")
        self.must_stop, self.must_cancel, self.must_stir = None, False, ""
        self.to_open.clear()
        self.to_skip.clear()


def _ends_pause(line: Line) -> bool:
    """Whether this is the next element of a loop, which time brings."""
    return line.trigger == "planned" and line.event == "time_came" and is_element_name(line.step)


def _is_hard(step: FollowedStep, line: Line, steps: Mapping[int, FollowedStep], contract: Contract) -> bool:
    """Whether this end satisfies no dependency: a rejected or expired gate, and what is skipped because of one."""
    if line.trigger == "dependency_unmet":
        reason = steps.get(contract.numbers.get(line.of or "", -1))
        return reason is not None and reason.is_hard
    return line.source == "awaiting_approval" and line.trigger in HARD_ENDS


def _may_refuse(wait: WaitRule) -> bool:
    return wait.accepts is not None or wait.count is not None or wait.enough is not None
