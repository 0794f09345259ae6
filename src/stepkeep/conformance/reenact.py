"""Re-enacts a run from its pinned definition: which steps open, what a failure leads to, how the run must end.

It follows each line through the parts of a run: its causes, its dependencies, its end, its people and its elements, and
reports a hop that is not enabled and a necessity that an entry leaves out. `enabled.py` checks single hops. It shares
no code with the engine. `history.py` calls it for logs that carry their definition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from stepkeep.conformance.adoption import ADOPTING
from stepkeep.conformance.causes import OPENINGS, RunCauses
from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.dependencies import Dependencies
from stepkeep.conformance.enabled import check_enabled
from stepkeep.conformance.ending import BLAMING, RUN_ENDED, RunEnding
from stepkeep.conformance.growth import Additions, Elements, Flows, rule_of
from stepkeep.conformance.hop import GuardedHop, wrong_field
from stepkeep.conformance.limits import RunGrants
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.people import PersonAct, RunPeople
from stepkeep.conformance.policies import gate_rule, permit_of, terms_of, verdict_in
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import (
    EFFECTS_LEFT,
    IN_DOUBT,
    LOST,
    RECORDED,
    FollowedStep,
    HeldResources,
    check_checkpoint,
    ends_attempt,
)

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
UNSURE = (IN_DOUBT, EFFECTS_LEFT, LOST)
"""How the error of a step begins whose effect remains, or may."""
LIVE = frozenset({"queued", "running", "blocked", "paused", "validating"})
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

HARD_ENDS = frozenset({"rejected", "rejected_tolerated", "deadline_passed", "deadline_tolerated"})
"""How a gate ends that satisfies no dependency."""


class Reenactment:
    """One run and what its definition makes necessary next."""

    def __init__(self, contract: Contract, steps: Mapping[int, FollowedStep]) -> None:
        self.contract, self.steps = contract.for_run(), steps
        gates = {place.name: place.gate for place in self.contract.places.values() if place.gate is not None}
        self.people = RunPeople(contract.document.duties, gates, self._state_of)
        self.causes = RunCauses(self.contract, steps, self.people)
        self.dependencies = Dependencies(self.contract, steps)
        self.ending = RunEnding(self.contract, steps, self.causes, self.dependencies)
        self.elements, self.flows, self.additions = Elements(contract), Flows(self.contract), Additions(self.contract)
        self.resources, self.grants = HeldResources(), RunGrants()
        self.must_stir = ""
        """The trigger by which the run went on, if something must move next."""
        self.planned = 0
        self.is_granted = False

    # -- causes ------------------------------------------------------------------------------------------------------
    def consume(self, line: Line, say: Say) -> None:
        """Read the cause of a line: its detail belongs to every hop that it leads to."""
        if not self.causes.consume(line, say):
            return
        self.ending.check_in_time(line, say)
        if (note := NEWS.get(line.event)) is not None:
            note(self, line, say)

    def _granted(self, line: Line, say: Say) -> None:
        """A run gets a slot once, and only if it was created to wait for one: then its first steps open."""
        if not self.causes.awaits_slot:
            said = "it has one already" if self.is_granted else "its creation does not say that it waits for one"
            say(Code.CAUSE, f"the run is granted a slot, but {said}")
            return
        if self.ending.started_at is None:
            say(Code.CAUSE, "the run is granted a slot before it was started")
        self.causes.awaits_slot, self.is_granted = False, True
        self.dependencies.open_first(line.at)

    def _violated(self, line: Line, say: Say) -> None:
        name = self.causes.asked.get("step")
        no = self.contract.numbers.get(str(name))
        place, step = (None, None) if no is None else (self.rule_of(no), self.steps.get(no))
        if place is None or step is None:
            say(Code.CAUSE, f"metadata.detail.step is {quoted(name)}, which the run does not have")
            return
        for _, said in self.people.violated(self._act(place, line), step.terms or place.gate):
            say(Code.PEOPLE, said)
        if line.about != "note":
            say(Code.CAUSE, "a refused act moves nothing, and this one does")

    def _recorded(self, line: Line, say: Say) -> None:
        adopted = self.causes.adoption.checkpoints(self.causes.asked.get("step"))
        for problem in check_checkpoint(self.steps, line, self.causes.asked, adopted):
            say(*problem)

    def _child_ended(self, line: Line, say: Say) -> None:
        self.causes.carry(str(self.causes.asked.get("step")), self.causes.asked.get("persons"))

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

        self._check_run_allows(step, line, run_state, say)
        for problem in check_enabled(self._hop(step, place, line, run_state)):
            flag(*problem)
        if (follow := STEP_HOPS.get(line.trigger)) is not None:
            follow(self, place, step, line, run_state, flag)
        self._check_people(step, place, line, flag)
        asked = self.causes.asked
        for problem in (
            *self._grow(place, line),
            *self.resources.follow(place, line, asked),
            *self.grants.follow(place, line, asked),
        ):
            flag(*problem)
        self._remember(step, place, line, run_state)

    def _check_run_allows(self, step: FollowedStep, line: Line, run_state: str, say: Say) -> None:
        if (failed := self.ending.must_stop) is not None:
            say(Code.POLICY, f"{step.title} moves where the run must stop, because {self._name(failed)} failed")
            self.ending.must_stop = None
        if self.must_stir == "progressed" and line.trigger in UNSTIRRED:
            say(Code.ENDING, f"the run is {quoted(self.must_stir)}, but nothing in it began")
        self.must_stir = ""
        if run_state == "queued" and line.trigger not in UNSTIRRED:
            say(Code.CLAIM, f"{step.title} is {quoted(line.trigger)} while the run is still 'queued'")

    def _hop(self, step: FollowedStep, place: PlannedRule, line: Line, run_state: str) -> GuardedHop:
        causes, name = self.causes, place.name
        verdict = verdict_in(causes.verdicts, name)
        causes.denied.discard(name)
        step.counts_losses, step.was_held = place.retry.counts_losses, name in causes.held
        if line.trigger == "held":
            step.terms, step.permit = gate_rule(terms_of(verdict)), None if verdict is None else permit_of(verdict)
        is_stopping, kept = run_state == "stopping", causes.adoption.deadlines.get(name)
        return GuardedHop(line, step, place, self.contract, causes.asked, verdict, is_stopping, kept, causes.format)

    def _check_people(self, step: FollowedStep, place: PlannedRule, line: Line, flag: Say) -> None:
        kept = self.causes.adoption.deadlines.get(place.name) if line.seq == 1 else None
        for rule, said in self.people.hop(self._act(place, line), step.terms or place.gate, kept):
            flag(Code.TIMER if rule == "decision_late" else Code.PEOPLE, said)
        step.open_gate = self.people.open.get(place.name)

    def _act(self, place: PlannedRule, line: Line) -> PersonAct:
        asked, is_main = self.causes.asked, place.phase == "main"
        return PersonAct(
            place.name,
            line.trigger,
            line.source or "",
            line.target,
            line.event,
            line.actor,
            asked,
            line.seq,
            line.at,
            is_main,
        )

    def _state_of(self, name: str) -> str:
        return self._state(self.contract.numbers.get(name, -1))

    def rule_of(self, no: int) -> PlannedRule | None:
        """The place of a step; whether the failure of an element is tolerated depends on those before it, and on its
        owner: one that was cancelled with its run tolerates nothing more."""
        place: PlannedRule | None = self.contract.places.get(no)
        if place is None or place.owner is None or place.phase != "main":
            return place
        is_call = self.flows.owner_of(place) is not None
        tolerates = self._state(place.owner) not in ENDED and (is_call or self.elements.is_tolerant(place))
        return replace(place, is_tolerant=tolerates)

    def _grow(self, place: PlannedRule, line: Line) -> Iterator[tuple[Code, str]]:
        """What a hop of an owner says about its elements."""
        yield from self.flows.moved(place, line, self.causes.verdicts)
        yield from self.flows.called(place, line)
        if place.kind.waits_for not in ("elements", "added") or place.phase != "main":
            return
        if line.trigger == "children_started":
            yield from self.elements.opened(place, line, self.causes.verdicts)
        elif line.source == "awaiting_children":
            yield from self.elements.owner_ends(place, line) if line.trigger != "cancelled" else ()

    def _plan(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        to_open, verdicts = self.dependencies.to_open, self.causes.verdicts
        if self.flows.owner_of(place) is not None:
            for problem in self.flows.plan(place, line, verdicts, self.causes.adoption):
                flag(*problem)
            to_open[place.no] = place.owner
        elif place.owner is not None and place.phase == "main":
            needs, added = 0, self.additions.are_of(place)
            for problem in (*self.elements.plan(place, line), *(self.additions.plan(place, verdicts) if added else ())):
                flag(*problem)
            if added:
                needs = self.dependencies.unmet[place.no] = self.contract.places[place.no].needs
            if not needs:
                to_open[place.no] = place.owner
        elif place.phase == "main":
            self.planned += 1
        elif place.phase == "check":
            to_open[place.no] = None
        elif place.no not in self.ending.hooks:
            flag(Code.UNDO, "it is planned, but the definition and the steps so far leave nothing to undo by it")

    def _adopt(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        adoption = self.causes.adoption
        self.flows.adopt(place)
        self.planned += place.owner is None
        if place.owner is not None and (rule := rule_of(adoption.call_of(line.step))) is not None:
            self.contract.places.learn_call(place, rule)
        for problem in adoption.take(line, has_elements=place.rule is not None and place.rule.growth is not None):
            flag(*problem)

    def _open(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        if line.source not in ("retrying", "running", "ready"):
            starts_by = "slot_granted" if self.is_granted else "run_started"
            self.dependencies.opened(place, line, flag, starts_by=starts_by)

    def _skip(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        self.dependencies.skipped(place, line, flag)

    def _take_messages(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        self.causes.take_messages(step, place, line, flag)

    def _fail(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        """A step that holds when no attempt is left fails only in a stopping run, or as its handler says."""
        # A wait that is impossible, as each is in an undo, is a failure without another attempt.
        is_final = self.causes.asked.get("final") is True or "waits_for" in self.causes.asked
        if place.is_held and line.source == "running" and run_state != "stopping" and not is_final:
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
            return self.flows.cancels(place, line, self._state(place.owner))
        # A child run of an element is in flight like an attempt.
        has_child = place.awaits_child and line.source == "awaiting_children"
        if has_child and line.event not in ("child_ended", "time_came"):
            flag(Code.CAUSE, wrong_field("event", line.event, "child_ended or time_came", "its child is in flight"))
        grace, leased = self.contract.document.grace, step.leased or has_child
        found = self.elements.cancels(place, line, leased=leased, grace_us=grace)
        if isinstance(found, str):
            flag(Code.TIMER, found)
        return bool(found)

    def _cancel(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str, flag: Say) -> None:
        ending, document = self.ending, self.contract.document
        if self._is_cancelled_by_owner(place, step, line, run_state, flag):
            self.dependencies.to_open.pop(place.no, None)
            return
        # A stop cancels nothing that is in flight; the end of a child may come in the same entry.
        in_flight = step.leased or (line.source == "awaiting_children" and place.awaits_child)
        now_stopping = ending.stopped_in == line.seq and not in_flight
        if now_stopping:
            ending.check_with_stop(line, flag)
        wanted = ending.blamed if now_stopping or run_state == "compensating" else None
        self.dependencies.check_of(line, wanted, flag)
        if run_state == "compensating":
            if document.hook_failure != "stop" or not ending.has_hook_failed or place.phase != "undo":
                flag(Code.POLICY, "it is cancelled during a rollback that the definition does not stop")
        elif run_state == "stopping":
            ending.check_fenced_off(step, line, flag)
        else:
            ending.cancelled_step(line, flag)

    # -- what a hop makes necessary ----------------------------------------------------------------------------------
    def _remember(self, step: FollowedStep, place: PlannedRule, line: Line, run_state: str) -> None:
        self._remember_attempt(step, line)
        if line.error is not None:
            # A person who fails a held step leaves its error in front, and with it how the last attempt ended.
            step.is_unsure, step.last_error = line.error.startswith(UNSURE), line.error
        # The handler completed, and the step does not succeed: its effect happened. The state that a cancelled step
        # left is certain where its line has the digest of an output, or where no hop was hidden.
        is_certain = line.digest is not None or step.is_unsure is not None
        is_cut_off = line.source == "validating" and line.trigger == "cancelled"
        if line.trigger in RULED_OUT or (is_cut_off and is_certain):
            step.is_unsure = True
        if line.trigger == "waited":
            self._remember_wait(step)
        if line.target in ENDED:
            self._ended(step, place, line, run_state)

    def _remember_attempt(self, step: FollowedStep, line: Line) -> None:
        if step.losses is not None:
            step.losses += line.trigger == "lease_lost"
        if ends_attempt(line.trigger, line.target) and step.began_at == 0 and step.is_claim_known:
            step.began_at = step.claimed_at
        step.is_exhausted = line.trigger in ("held_exhausted", "held_unfit")
        if step.is_exhausted and "unfit" in self.causes.asked:
            step.tried = (step.tried or frozenset()) | {self.causes.asked["unfit"]}
        elif step.is_exhausted or line.event == "hold_decided":
            step.tried = frozenset()
        if line.trigger in LOST_OR_NOT:
            step.was_lost = line.trigger == "lease_lost"
        if line.trigger in ("operator_retried", "code_changed"):
            step.spent, step.began_at, step.losses = (line.attempt or 1) - 1, 0, 0
        if line.trigger == "claimed":
            step.holder = line.actor

    def _remember_wait(self, step: FollowedStep) -> None:
        asked = self.causes.asked
        step.waits_for = asked.get("waits_for")
        step.takes_timeouts = asked.get("takes_timeouts") is not False if "waits_for" in asked else None
        count = asked.get("count")
        step.count = count if type(count) is int and count > 0 else 1
        step.may_refuse = not asked.keys().isdisjoint(("where", "count", "until"))

    def _ended(self, step: FollowedStep, place: PlannedRule, line: Line, run_state: str) -> None:
        step.ended_as = line.trigger
        if line.trigger in ADOPTING:
            return
        step.category, step.error, step.ended_by = line.category, line.error, (line.seq, line.event, line.actor)
        # A rejected or expired gate satisfies no dependency, nor does what is skipped because of one.
        step.is_hard = line.source == "awaiting_approval" and line.trigger in HARD_ENDS
        if line.trigger == "dependency_unmet":
            reason = self.steps.get(self.contract.numbers.get(line.of or "", -1))
            step.is_hard = reason is not None and reason.is_hard
        if place.phase == "undo":
            self.ending.hook_ended(place, line)
        elif place.phase == "main":
            self._main_ended(place, step, line, run_state)
        elif line.target == "failed" and run_state == "validating":
            self.ending.must_stop = place.no

    def _main_ended(self, place: PlannedRule, step: FollowedStep, line: Line, run_state: str) -> None:
        ending, is_over = self.ending, run_state == "stopping" or line.trigger == "cancelled"
        if place.owner is not None:
            self.flows.ended(place, self.steps, line.target)
            self.elements.ended(place, line)
            is_over = is_over or self.elements.is_stopping(place)
        elif line.target == "failed" and place.rule is not None:
            if is_over:
                # Of several failures the stronger policy counts.
                ending.policy = "compensate" if place.rule.on_failure == "compensate" else ending.policy
            elif place.rule.on_failure != "continue":
                ending.must_stop = place.no
                return
            else:
                ending.tolerated_failures += 1
                ending.blame(line.category, line.error)
        if not is_over:
            self.dependencies.ended(place, step, line.target, line.at)

    def _state(self, no: int) -> str:
        step = self.steps.get(no)
        return "" if step is None else step.state

    def _name(self, no: int) -> str:
        return self.contract.places[no].name

    # -- the run -----------------------------------------------------------------------------------------------------
    def run_hop(self, line: Line, say: Say) -> None:
        """Check a hop of the run before it is recorded."""
        event = RUN_EVENTS.get(line.trigger)
        if event is not None and line.event != event:
            said = wrong_field("event", line.event, event, f"only that leads to {quoted(line.trigger)}")
            say(Code.CAUSE, f"the run: {said}")
        if line.of is not None and line.trigger not in BLAMING:
            say(Code.CONTRADICTION, f"the run: {wrong_field('of', line.of, None, 'no step leads to this')}")
        if self.must_stir and (line.trigger != "steps_settled" or not self._is_all_adopted()):
            say(Code.ENDING, f"the run is {quoted(self.must_stir)}, but nothing in it moves")
        self.must_stir = line.trigger if line.trigger in STIRRED else ""
        if line.trigger == "started":
            self._start(line, say)
        self.ending.run_hop(line, say)

    def _is_all_adopted(self) -> bool:
        main = [step for step in self.steps.values() if step.phase == "main"]
        return bool(main) and all(step.ended_as in ADOPTING for step in main)

    def _start(self, line: Line, say: Say) -> None:
        """The run starts: its first steps open, unless it waits for a slot. A run that its timer starts was created
        with that moment, and does not start before it."""
        due, expected = self.causes.asked.get("start_at"), self.causes.start_at
        if due not in (None, expected):
            said = wrong_field("detail.start_at", due, expected, "that is the moment its creation names")
            say(Code.CAUSE, f"the run: {said}")
        if type(due) is int and line.at < due:
            say(Code.TIMER, f"the run starts at {line.at}, before its moment {due}")
        self.ending.started_at = line.at
        if not self.causes.awaits_slot and not self.is_granted:
            self.dependencies.open_first(line.at)

    # -- the end of an entry -----------------------------------------------------------------------------------------
    def entry_ended(self, state: str, say: Say) -> None:
        """Everything that an entry makes necessary happens in it."""
        causes = self.causes
        if self.planned < self.contract.size:
            said = f"{self.planned} of {self.contract.size} steps of the definition were planned"
            say(Code.DEFINITION, f"steps are missing: {said} when the run was created")
            self.planned = self.contract.size
        if causes.adoption.is_rollback and state in LIVE:
            say(Code.POLICY, f"the run is {quoted(state)}, but it only rolls another one back: it must stop at once")
        for name in causes.adoption.unsaid():
            say(Code.ADOPTION, f"step {quoted(name)} is not adopted, but the creation of the run says so")
        if self.must_stir:
            say(Code.ENDING, f"the run is {quoted(self.must_stir)}, but nothing in it moves")
        for name in sorted(causes.denied):
            say(Code.POLICY, f"the policy denies {quoted(name)}, but that does not move")
        self.ending.entry_ended(say)
        if state not in (*RUN_ENDED, "stopping", "compensating"):
            for part in (self.elements.entry_ended(self.steps), self.flows.entry_ended(self.steps)):
                for problem in part:
                    say(*problem)
            for problem in self.additions.entry_ended():
                say(*problem)
        if state not in RUN_ENDED:
            self.dependencies.entry_ended(say)
        self.must_stir = ""
        for kept in (causes.denied, self.elements.due, self.flows.due, self.dependencies):
            kept.clear()


NEWS: Mapping[str, Callable[[Reenactment, Line, Say], None]] = {
    "duty_violated": Reenactment._violated,
    RECORDED: Reenactment._recorded,
    "slot_granted": Reenactment._granted,
    "child_ended": Reenactment._child_ended,
}
"""What the run learns by an event, whatever it moves."""

STEP_HOPS: Mapping[str, Callable[[Reenactment, PlannedRule, FollowedStep, Line, str, Say], None]] = {
    "planned": Reenactment._plan,
    "dependency_unmet": Reenactment._skip,
    "cancelled": Reenactment._cancel,
    **dict.fromkeys(ADOPTING, Reenactment._adopt),
    **dict.fromkeys(OPENINGS, Reenactment._open),
    **dict.fromkeys(("message_arrived", "wait_satisfied"), Reenactment._take_messages),
    **dict.fromkeys(("failed", "failed_tolerated"), Reenactment._fail),
}
"""What a hop of a step means for its run, by its trigger."""
