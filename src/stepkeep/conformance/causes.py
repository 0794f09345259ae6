"""Follows the causes of one run: what each says of itself, and what creation, messages and policies say of the run.

It keeps the detail of the present cause, which belongs to every hop that the cause leads to, and the messages that no
step has consumed. It moves no step. `reenact.py` reads each line with it first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from stepkeep.conformance.adoption import ADOPTING, Adoption
from stepkeep.conformance.contract import Contract, PlannedRule, WaitRule, is_element_name
from stepkeep.conformance.details import check_detail
from stepkeep.conformance.hop import JOURNAL_FORMAT, wrong_field
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.people import RunPeople
from stepkeep.conformance.policies import check_pin
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import is_persons
from stepkeep.conformance.steps import RECORDED, FollowedStep

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

NOTED = ("message_arrived", "duty_violated", "annotated", RECORDED)
"""Events that may be on record without a hop."""


class RunCauses:
    """The present cause of one run, and what earlier ones said."""

    def __init__(self, contract: Contract, steps: Mapping[int, FollowedStep], people: RunPeople) -> None:
        self._contract, self._steps, self._people = contract, steps, people
        self.asked: Mapping[str, Any] = {}
        self.verdicts: Mapping[str, Any] = {}
        self.held: set[str] = set()
        """Steps that a policy held."""
        self.denied: set[str] = set()
        """Steps that a policy denies in this entry, and that have not moved in it."""
        self.adoption = Adoption(None)
        self.format: int = JOURNAL_FORMAT
        self.start_at: object = None
        self.awaits_slot = False
        """Whether the run stays queued until it is granted an execution slot."""
        self._pinned: object = None
        self._was_created = False
        self._arrived: Counter[str] = Counter()
        self._message_ids: dict[str, tuple[int, int]] = {}
        self._cause: tuple[object, ...] = ()

    def consume(self, line: Line, say: Say) -> bool:
        """Read the cause of a line. Returns whether it is another one than that of the line before."""
        if (line.seq, line.by) == self._cause:
            return False
        self._cause = line.seq, line.by
        self.asked = self.verdicts = {} if line.detail is None else json.loads(line.detail)
        self._note_holds()
        if line.event == "run_started":
            self._check_requesters(line, say)
        self._people.ask(line.event, line.actor, self.asked)
        if line.event == "run_created":
            self._created(line, say)
        self._check_asked(line, say)
        self._check_beginning(line, say)
        if line.event == "message_arrived":
            self._message(line, say)
        return True

    def _check_beginning(self, line: Line, say: Say) -> None:
        """A cause begins with a hop that follows from no other hop, or moves nothing if that is how its event is."""
        begins = BEGINNINGS.get(line.event)
        if line.about == "note":
            if line.event not in NOTED:
                why = "nothing else moves nothing"
                say(Code.CAUSE, wrong_field("event", line.event, " or ".join(NOTED), why))
        elif line.trigger not in begins if begins is not None else _follows(line):
            say(Code.CAUSE, f"a cause cannot begin with {quoted(line.trigger)}, which follows from another hop")

    def _note_holds(self) -> None:
        said = self.verdicts.get("policy")
        for name, verdict in said.items() if isinstance(said, dict) else ():
            effect = verdict.get("effect") if isinstance(verdict, dict) else None
            if effect in ("hold", "deny"):
                (self.held if effect == "hold" else self.denied).add(name)

    def _created(self, line: Line, say: Say) -> None:
        self.format = self.asked.get("format", 1)
        self.start_at, self._pinned = self.asked.get("start_at"), self.asked.get("policy_revision")
        self.awaits_slot = self.asked.get("awaits_slot") is True
        if "continues" in self.asked or not self._was_created:
            self.adoption = Adoption(self.asked.get("continues"))
            for name, persons in self.adoption.persons():
                self.carry(name, persons)
            for problem in self.adoption.own_decisions(line.actor):
                say(*problem)
        self._was_created = True
        # A child may run under the slot of its parent; a run that continues another may have nothing left to run.
        exempt = line.actor.startswith("parent:") or "continues" in self.asked
        if self._contract.document.slots is not None and not self.awaits_slot and not exempt:
            said = wrong_field("detail.awaits_slot", None, True, "the definition limits the running runs")
            say(Code.POLICY, f"the run: {said}")

    def carry(self, name: str, persons: object) -> None:
        """A step has the persons of another run: those of its child, or those of the step that it adopts."""
        if is_persons(persons):
            self._people.carry(name, cast(Mapping[str, Any], persons))

    def _check_requesters(self, line: Line, say: Say) -> None:
        """The start of an idle run by another person names those who had asked for it; a timer asks for nothing."""
        before = self.asked.get("asked_before")
        known = self._people.requesters if "start_at" not in self.asked else ()
        expected = sorted(known) if line.actor not in known else None
        if known and self.format > 1 and before != expected:
            why = "the run was asked for by them" if expected else "its actor had asked for the run"
            say(Code.CAUSE, f"the run: {wrong_field('detail.asked_before', before, expected, why)}")

    def _check_asked(self, line: Line, say: Say) -> None:
        """The detail of a cause, as far as its event determines it."""
        for said in check_detail(line, self.asked):
            say(Code.CAUSE, said)
        for _, said in check_pin(self.asked, self._pinned):
            say(Code.POLICY, said)
        if self.asked.get("vouched_by", "") == line.actor:
            said = wrong_field("detail.vouched_by", line.actor, "another name", "a program vouches for others")
            say(Code.CAUSE, said)

    # -- messages --------------------------------------------------------------------------------------------------
    def _message(self, line: Line, say: Say) -> None:
        """A message is recorded once. Only a step with a filter, or that takes several messages, refuses one."""
        cause = line.seq, line.by
        if self._message_ids.setdefault(str(self.asked.get("id")), cause) != cause:
            say(Code.CAUSE, f"message {quoted(self.asked.get('id'))} arrives again; a message is recorded once")
        self._arrived[str(self.asked.get("name"))] += 1
        refused = self.asked.get("refused_by")
        if not isinstance(refused, list):
            return
        places = self._contract.places
        waits = (
            (one.name, one.rule.wait) for one in (*places.values(), *places.calls.values()) if one.rule is not None
        )
        filters = {name for name, wait in waits if wait is not None and _may_refuse(wait)}
        filters |= {step.name for step in self._steps.values() if step.may_refuse}
        for name in refused:
            if name not in filters:
                say(Code.CAUSE, f"{quoted(name)} refuses a message, and the definition gives it no filter")

    def take_messages(self, step: FollowedStep, place: PlannedRule, line: Line, flag: Say) -> None:
        """A wait ends by messages of its name that no step has consumed."""
        wait = place.rule.wait if place.rule else None
        name = wait.event if wait is not None else step.waits_for
        if name is None:
            return
        told = self.asked.get("name", name) if line.event == "message_arrived" else name
        if told != name and step.moved_in not in (None, line.seq):
            # A wait that opens takes a message that came before: the entry is about what opened it.
            flag(Code.CAUSE, wrong_field("detail.name", told, name, "its wait ends by that message"))
        needed = step.count if wait is None else wait.count or 1
        if not self._arrived[name]:
            flag(Code.CAUSE, f"its wait ends by a message {quoted(name)}, but every such message was consumed before")
        elif self._arrived[name] < needed:
            said = f"its wait ends after {self._arrived[name]} messages {quoted(name)}"
            flag(Code.CAUSE, f"{said}, and the definition says that it takes {needed}")
        self._arrived[name] = max(0, self._arrived[name] - needed)


def _follows(line: Line) -> bool:
    """Whether a hop follows from another one of the same cause. Time brings the next element of a loop."""
    ends_pause = line.trigger == "planned" and line.event == "time_came" and is_element_name(line.step)
    return (line.about, line.trigger) in FOLLOWING and line.source not in ("retrying", "running") and not ends_pause


def _may_refuse(wait: WaitRule) -> bool:
    return wait.accepts is not None or wait.count is not None or wait.enough is not None
