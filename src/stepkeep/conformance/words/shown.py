"""Judges what a dialect's log shows of one run against the definition on its first line.

A dialect hides hops. For each step it keeps every canonical state in which the step can be, so a line is impossible
where no hidden way leads to it. Rules about single hops are those of `enabled.py`. The whole run is judged by its
canonical log alone (`dialect_words.py` compares the two). `replay.py` calls it for sealed logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from stepkeep.conformance.adoption import ADOPTING, Adoption
from stepkeep.conformance.causes import OPENINGS
from stepkeep.conformance.contract import Contract, PlannedRule
from stepkeep.conformance.details import check_detail
from stepkeep.conformance.enabled import NO_CATEGORY, TOLERATED, TRIGGERS, check_enabled
from stepkeep.conformance.encoding import compact
from stepkeep.conformance.growth import is_cancelled_by_owner
from stepkeep.conformance.hop import GuardedHop, wrong_field
from stepkeep.conformance.line import Line, severity_of
from stepkeep.conformance.machines import REFERENCE, RUN, STEP, Say
from stepkeep.conformance.policies import check_pin, gate_rule, terms_of, verdict_in
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import NEW, TIMED, UNDER_LEASE, FollowedStep, ends_attempt
from stepkeep.conformance.words.dialect_line import DialectLine
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.dialects.grounds import STEP_GROUNDS
from stepkeep.dialects.machine import MachineView

ENDED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
RUN_ENDED = frozenset({"succeeded", "failed", "cancelled", "rolled_back"})

ENDINGS = {
    "rules_passed": "succeeded",
    "stopped_failed": "failed",
    "stopped_cancelled": "cancelled",
    "undone": "rolled_back",
    "undo_failed": "failed",
    "cancelled": "cancelled",
}
"""The canonical end of a run, by its trigger."""

BEGINS = {
    "created": ("run_created",),
    "started": ("run_started",),
    "progressed": ("run_started", "slot_granted", "step_claimed", "step_decided"),
    "paused": ("pause_requested",),
    "unpaused": ("unpause_requested",),
    "unpaused_queued": ("unpause_requested",),
}
"""The events that can lead to a trigger of the run; the others follow from the end of a step."""

SETTLING = (
    "run_started", "step_claimed", "step_reported", "time_came", "gate_decided", "gate_reassigned", "hold_decided",
    "step_decided", "completion_signalled", "message_arrived", "child_ended", "slot_granted", "cancel_requested",
    "unpause_requested", "code_changed",
)  # fmt: skip
"""Events that can end or open a step, or go on with a run, and so move whatever follows from that."""

DETAILED = {
    "cancel_requested": {"compensate"},
    "gate_decided": {"decision", "step"},
    "completion_signalled": {"outcome", "step"},
    "message_arrived": {"id", "name"},
    "child_ended": {"step", "child", "state"},
}
"""What an event always brings in its detail, on the first line that shows a hop of its cause."""

FOLLOWING = frozenset(
    {
        "steps_settled", "rules_passed", "step_failed", "steps_failed", "stopped_failed", "stopped_cancelled", "undone",
        "undo_failed",
    }
)  # fmt: skip
"""Triggers of the run that follow from the hop of a step in the same entry, and have its cause."""

NEVER_FIRST = FOLLOWING | {"waiting", "undo_started", "rules_failed"}
"""Triggers of the run that never are the first hop of a cause."""

GOES_ON = frozenset(
    {"claimed", "approved", "hold_approved", "message_arrived", "wait_satisfied", "completion_succeeded", "gate_opened"}
)
"""Hops of a main step in a run that has not stopped."""

RUN_TRIGGERS = frozenset(trigger for trigger, _ in RUN)
STEP_TRIGGERS = frozenset(trigger for trigger, _ in STEP)
OWN_TRIGGERS = RUN_TRIGGERS - STEP_TRIGGERS - {"step_failed"}
FAILING = frozenset(word for word, row in TRIGGERS.items() if row.categories != NO_CATEGORY) | {
    "cancelled",
    "lease_lost",
    "held_unfit",
}
TARGETS = {trigger: target for trigger, target in STEP if (trigger, target) != ("lease_lost", "validating")}
STOPS = frozenset({"stopped_failed", "undo_started", "undone", "undo_failed"})
FAILURES = frozenset({"step_failed", "rejected", "deadline_passed", "operator_failed"})
"""Grounds of a stop that one failed step caused."""

BY_PERSON = ("completion_signalled", "hold_decided", "step_decided")
UNEVALUATED = frozenset({"dependency_unmet", "cancelled", "planned", *ADOPTING})
"""Triggers of a step that needs nothing of the steps it depends on."""

OPENED = OPENINGS | {"dependency_unmet"}

FACTS = ("kind", "order", "depends_on", "max_attempts", "on_failure", "completion")
ECHOES = ("because", "event", "actor", "category", "error")
"""What two lines of one hop have in common."""


DECIDES = frozenset({"gate_decided", "completion_signalled", "message_arrived"})
"""Events that count only before the deadline of what they end."""


TIMED_STATES = frozenset({"awaiting_event", "awaiting_approval", "awaiting_completion", "retrying"})
"""States that a timer ends."""


class At(NamedTuple):
    """Where a step can be: its canonical state, and whether a worker holds it."""

    state: str
    is_held: bool


class HiddenWay(NamedTuple):
    """One way to a hop, through hidden ones: the place that the hop leaves, and the one that it enters."""

    source: At
    target: At


ROWS: dict[str, list[tuple[str, str]]] = {}
for _source, _trigger, _target in sorted(REFERENCE["step"][0], key=str):
    ROWS.setdefault(_source or NEW, []).append((_trigger, _target))


class HopShape(NamedTuple):
    """What a line says of the hidden hops before it: whether there were claims, and whether attempts ended."""

    trigger: str
    target: str
    claims: bool
    retries: bool
    ends_lease: bool
    counts_losses: bool
    never: frozenset[str]


class Ways:
    """The hidden hops of one machine of a dialect."""

    def __init__(self, view: MachineView) -> None:
        self._view = view
        self.to = lru_cache(maxsize=8192)(self._to)

    def _is_hidden(self, shown: str | None, trigger: str, target: str) -> bool:
        view = self._view
        return view.next_shown(shown, target, trigger) == shown and not view.repeated(shown, trigger)

    def _to(self, known: frozenset[At], shown: str | None, shape: HopShape) -> frozenset[HiddenWay]:
        """Every way from one of these places to a hop like this."""
        queue = [(at, False, False) for at in known]
        seen, found = set(queue), set()
        while queue:
            at, claimed, retried = queue.pop()
            for trigger, target in ROWS.get(at.state, ()):
                if trigger in shape.never:
                    continue
                after = At(target, trigger == "claimed" or (at.is_held and trigger == "completed"))
                if (claimed, retried) == (shape.claims, shape.retries) and self._is_wanted(
                    at, shown, target, trigger, shape
                ):
                    found.add(HiddenWay(at, after))
                is_attempt = ends_attempt(trigger, target) and (trigger != "lease_lost" or shape.counts_losses)
                way = after, claimed or trigger == "claimed", retried or is_attempt
                is_within = way not in seen and way[1] <= shape.claims and way[2] <= shape.retries
                if is_within and self._is_hidden(shown, trigger, target):
                    seen.add(way)
                    queue.append(way)
        return frozenset(found)

    def _is_wanted(self, at: At, shown: str | None, target: str, trigger: str, shape: HopShape) -> bool:
        is_like = trigger == shape.trigger and self._view.next_shown(shown, target, trigger) == shape.target
        return is_like and _fits(at, shape)


def _fits(at: At, shape: HopShape) -> bool:
    if shape.trigger in ("claimed", "completed"):
        return at.is_held is (shape.trigger == "completed")
    return at.is_held is shape.ends_lease


class KnownStep:
    """What the lines have shown of one step."""

    def __init__(self, at: int) -> None:
        self.places = frozenset({At(NEW, False)})
        self.shown: str | None = None
        self.fence, self.attempt = 0, 1
        self.seen_at = at
        self.due_at: int | None = None
        self.claim: Line | None = None
        self.last: Line | None = None
        self.settled = 0
        self.is_lost = False
        """Whether the last claim that is shown ended by a lost lease."""

    def may_be(self, *states: str) -> bool:
        return any(at.state in states for at in self.places)

    @property
    def has_ended(self) -> bool:
        return all(at.state in ENDED for at in self.places)


class ShownCauses:
    """The entries and causes of one run, as a dialect's lines show them."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.asked: Mapping[str, Any] = {}
        self.verdicts: Mapping[str, Any] = {}
        self.held: set[str] = set()
        self.adoption = Adoption(None)
        self.format = 1
        self._cause: tuple[object, ...] = ()
        self._before: DialectLine | None = None
        self._once: dict[str, tuple[int, str]] = {}
        self.began_at: int | None = None
        self._pinned: object = None
        self._start_at: object = None

    @property
    def limit(self) -> int | None:
        """When the timeout of the run has ended for certain: its start may be hidden."""
        timeout = self.contract.document.timeout
        return None if timeout is None or self.began_at is None else self.began_at + timeout

    def enter(self, told: DialectLine, said: Mapping[str, Any], say: Say) -> None:
        before, self._before = self._before, told
        if before is None or before.seq != told.seq:
            return
        if before.at != told.at:
            say(Code.TIME, wrong_field("at", told.at, before.at, f"all lines of entry {told.seq} have one time"))
        hop, last = said.get("hop", 0), before.raw["metadata"]["hop"]
        if told.kind != "head" and hop < last:
            say(Code.ORDER, wrong_field("hop", hop, f"at least {last}", "hops of one entry are in their order"))
        if told.kind != "head" and hop == last:
            self._echo(before, told, say)
        if told.kind != "head" and self._follows(told, said, hop == last + 1):
            for name in ("event", "actor"):
                if said[name] != (led := before.raw["metadata"])[name]:
                    why = "the hop before it led to this one"
                    say(Code.CAUSE, wrong_field(name, said[name], led[name], why))

    def _follows(self, told: DialectLine, said: Mapping[str, Any], in_succession: bool) -> bool:
        """Whether the hop of the line before led to this one: its trigger tells, or no hop is hidden between them."""
        trigger = said["because"]
        if said["event"] == "unpause_requested" or (said["event"] == "cancel_requested" and not in_succession):
            return False
        if told.kind == "run":
            is_hidden = in_succession or not self.contract.document.rules
            return (trigger in NEVER_FIRST and in_succession) or (trigger in FOLLOWING and is_hidden)
        return in_succession and trigger in OPENED | {"cancelled"} and "of" in said and "attempt" not in said

    def _echo(self, before: DialectLine, told: DialectLine, say: Say) -> None:
        """Two lines of one hop: first the step's, then the run's."""
        if before.kind == "run" or told.kind != "run":
            hop = before.raw["metadata"]["hop"]
            say(Code.ORDER, wrong_field("hop", hop, f"more than {hop}", "the line before it has that hop"))
            return
        step, run = before.raw["metadata"], told.raw["metadata"]
        expected = {"of": step["step"]} | {name: step.get(name) for name in ECHOES}
        for name, value in expected.items():
            if run.get(name) != value:
                said = wrong_field(name, run.get(name), value, "the line before it is the same hop")
                say(Code.CONTRADICTION, said)

    def consume(self, line: Line, say: Say) -> None:
        """Read the cause of a line: its detail belongs to every hop that it leads to."""
        cause = line.seq, line.event, line.actor
        is_new = line.detail is not None or self._cause[:3] != cause
        if is_new:
            self.asked = self.verdicts = {} if line.detail is None else json.loads(line.detail)
            self._check_cause(line, say)
        elif line.event in ("step_reported", "step_claimed") and self._cause[3] not in (-1, line.no):
            self.asked = {}
        self._cause = (*cause, line.no)

    def _check_cause(self, line: Line, say: Say) -> None:
        asked = self.asked
        for said in check_detail(line, asked) if line.detail is not None else ():
            say(Code.CAUSE, said)
        needed = DETAILED.get(line.event, set())
        if line.trigger == "waited" and (self.format > 1 or line.detail is not None):
            needed = {"takes_timeouts", "waits_for"}
        if missing := sorted(needed - asked.keys()):
            comes = quoted(line.trigger if line.trigger == "waited" else line.event)
            say(Code.CAUSE, wrong_field(f"detail.{missing[0]}", None, "a value", f"{comes} comes with one"))
        for _, said in check_pin(asked, self._pinned):
            say(Code.POLICY, said)
        if line.event in ("run_created", "run_started"):
            self._check_origin(line, say)
        verdicts = asked.get("policy")
        for name, verdict in verdicts.items() if isinstance(verdicts, dict) else ():
            if isinstance(verdict, dict) and verdict.get("effect") == "hold":
                self.held.add(name)

    def _check_origin(self, line: Line, say: Say) -> None:
        """The run is created and started once, and what its creation says holds for the rest of its log."""
        asked, origin = self.asked, (line.seq, line.actor)
        if self._once.setdefault(line.event, origin) != origin:
            did = line.event.removeprefix("run_")
            say(Code.CAUSE, f"the run was {did} in entry {line.seq} by {quoted(line.actor)}, and before that")
        self._check_requesters(line, say)
        exempt = line.actor.startswith("parent:") or "continues" in asked or "awaits_slot" in asked
        if line.event == "run_created" and self.contract.document.slots is not None and not exempt:
            said = wrong_field("detail.awaits_slot", None, True, "the definition limits the running runs")
            say(Code.POLICY, f"the run: {said}")
        if line.event == "run_created" and line.detail is not None:
            self.format, self._pinned = asked.get("format", 1), asked.get("policy_revision")
            self.adoption, self._start_at = Adoption(asked.get("continues")), asked.get("start_at")

    def _check_requesters(self, line: Line, say: Say) -> None:
        """The start of an idle run by another person names the one who had asked for it."""
        if line.event != "run_started" or "run_created" not in self._once:
            return
        due = self.asked.get("start_at")
        if due not in (None, self._start_at):
            say(Code.CAUSE, wrong_field("detail.start_at", due, self._start_at, "its creation names that moment"))
        if self.format > 1 and due is None:
            asked_for = self._once["run_created"][1]
            expected = None if line.actor == asked_for else [asked_for]
            if self.asked.get("asked_before") != expected:
                found = self.asked.get("asked_before")
                say(Code.CAUSE, wrong_field("detail.asked_before", found, expected, "the run was asked for by them"))


class ShownRun:
    """One run as a dialect's log shows it."""

    def __init__(self, contract: Contract, judged: JudgedDialect, ways: Mapping[str, Ways]) -> None:
        self.contract, self.judged, self.ways = contract, judged, ways
        self.final = frozenset(no for no, place in contract.places.items() if is_final(place, judged))
        self.steps: dict[int, KnownStep] = {}
        self.causes = ShownCauses(contract)
        self._settled = 0
        self.failures: list[tuple[str | None, str | None]] = []
        self._stopped_in = 0
        """The entry in which a failure of a step must have stopped the run."""
        self._run = ShownState(self)

    def take(self, told: DialectLine, line: Line, say: Say) -> None:
        """Follow one line; `line` is the same as a canonical one."""
        said = told.raw["metadata"]
        self.causes.enter(told, said, say)
        self.causes.consume(line, say)
        if told.kind in self.ways:
            self._step(told, line, said, say)
        else:
            self._run.take(told, line, said, say)

    # -- steps -------------------------------------------------------------------------------------------------------
    def _step(self, told: DialectLine, line: Line, said: Mapping[str, Any], say: Say) -> None:
        place: PlannedRule | None = self.contract.places.get(line.no)
        if place is None or place.name != line.step:
            known = "no step" if place is None else f"step {quoted(place.name)}"
            say(Code.DEFINITION, f"step {quoted(line.step)} has number {line.no}, where the definition has {known}")
            return
        step = self.steps.setdefault(line.no, KnownStep(line.at))
        ways = self._find(step, place, told, line)
        if not ways:
            counts = f"with fence {line.fence or 0} after {step.fence} and attempt {line.attempt} after {step.attempt}"
            states = " or ".join(sorted({quoted(at.state) for at in step.places}))
            text = f"no hops that the dialect hides lead from {states} to {quoted(line.trigger)} {counts}"
            say(Code.DISCONTINUOUS, f"step {quoted(line.step)}: {text}")
        self._check_fields(told, line, place, said, say)
        self._check_time(step, ways, line, say)
        for problem in self._impossible(step, ways, line, place):
            say(problem[0], f"step {quoted(line.step)}: {problem[1]}")
        self._check_order(place, line, say)
        self._check_of(ways, line, place, say)
        if line.trigger == "planned" and place.phase == "main" and place.owner is None and line.event != "run_created":
            said_so = wrong_field("event", line.event, "run_created", "only that plans it")
            say(Code.CAUSE, f"step {quoted(line.step)}: {said_so}")
        if line.trigger in ADOPTING and line.step not in {name for name, _ in self.causes.adoption.persons()}:
            said_so = "it is adopted, but the creation of the run does not name it"
            say(Code.ADOPTION, f"step {quoted(line.step)}: {said_so}")
        self._check_ground(step, line, place, said, say)
        self._remember(step, ways, told, line, place)

    def _find(self, step: KnownStep, place: PlannedRule, told: DialectLine, line: Line) -> frozenset[HiddenWay]:
        claims = (line.fence or 0) - step.fence - (line.trigger == "claimed")
        retries = 0 if line.attempt is None else line.attempt - step.attempt
        held = any(at.is_held for at in step.places) - (line.took is not None or line.trigger == "completed")
        if claims < 0 or retries < 0 or retries > claims + held:
            return frozenset()
        shape = HopShape(
            line.trigger,
            str(told.target),
            claims > 0,
            retries > 0,
            line.took is not None,
            place.retry.counts_losses,
            place.never,
        )
        found = self.ways[told.kind].to(step.places, step.shown, shape)
        if line.trigger == "cancelled" and not place.is_checked:
            # Without rules, a step leaves this state in the entry in which it enters it.
            found = frozenset(way for way in found if way.source.state != "validating")
        return found

    def _impossible(
        self, step: KnownStep, ways: frozenset[HiddenWay], line: Line, place: PlannedRule
    ) -> tuple[tuple[Code, str], ...]:
        """Why no way to this hop is enabled; nothing if one of them is."""
        if place.rule is None and place.owner is not None:
            return ()  # what a flow called, or a handler added, is in the canonical log
        if place.owner is not None:
            place = replace(place, is_tolerant=line.trigger in TOLERATED)
        found: tuple[tuple[Code, str], ...] = ()
        for way in sorted(ways):
            found = tuple(check_enabled(self._hop(step, way, line, place)))
            if not found:
                return ()
        return found

    def _hop(self, step: KnownStep, way: HiddenWay, line: Line, place: PlannedRule) -> GuardedHop:
        past = FollowedStep(place.no, place.name, place.phase)
        past.forget()
        past.forget_claim()
        past.leased, past.fence = way.source.is_held, step.fence
        past.seen_at, past.is_permit_unseen = step.seen_at, True
        past.attempt = line.attempt or step.attempt
        past.is_exhausted, past.tried = line.event == "hold_decided", None
        past.was_held = place.name in self.causes.held
        if step.claim is not None and step.claim.fence == line.fence:
            past.holder = step.claim.actor
        verdict = verdict_in(self.causes.verdicts, place.name)
        if line.trigger == "held":
            past.terms = gate_rule(terms_of(verdict))
        hop = replace(
            line, source=None if way.source.state == NEW else way.source.state, target=way.target.state, of=line.of
        )
        kept = self.causes.adoption.deadlines.get(place.name)
        return GuardedHop(hop, past, place, self.contract, self.causes.asked, verdict, None, kept, self.causes.format)

    def _check_fields(
        self, told: DialectLine, line: Line, place: PlannedRule, said: Mapping[str, Any], say: Say
    ) -> None:
        target = TARGETS.get(line.trigger, "")
        is_retried = target == "retrying" and (line.trigger != "lease_lost" or place.retry.counts_losses)
        expected: dict[str, Any] = {
            "retry_count": None if line.attempt is None else line.attempt - (not is_retried),
            "worker": line.actor if line.trigger == "claimed" else None,
        }
        if told.source is None and place.rule is not None:
            expected |= dict.fromkeys(FACTS) | facts_of(place)
        for name, follows in expected.items():
            if said.get(name) != follows:
                why = "the definition" if name in FACTS else "the rest of the line"
                say(Code.CONTRADICTION, f"step {quoted(line.step)}: {wrong_field(name, said.get(name), follows, why)}")
        severity = severity_of(replace(line, target=target))
        if told.raw["severity"] != severity:
            found = quoted(told.raw["severity"])
            say(Code.CONTRADICTION, f"severity is {found}, expected {quoted(severity)}: its trigger")
        most = place.retry.max_attempts + (place.is_checked or place.phase == "check")
        if line.attempt is not None and line.attempt > most and not place.may_hold and place.rule is not None:
            said_so = f"attempt {line.attempt}, but the definition allows {place.retry.max_attempts}"
            say(Code.ATTEMPT, f"step {quoted(line.step)}: {said_so}")

    def _check_time(self, step: KnownStep, ways: frozenset[HiddenWay], line: Line, say: Say) -> None:
        """Its duration is the time since its claim, and a timer of the line before it has come."""
        name = f"step {quoted(line.step)}"
        claim = step.claim if step.claim is not None and step.claim.fence == line.fence else None
        self._check_lease(name, step, claim, line, say)
        self._check_gate(line, say)
        before = step.last
        if before is not None and before.due_at is not None and step.fence == (line.fence or 0):
            self._check_due(name, before, ways, line, say)

    def _check_lease(self, name: str, step: KnownStep, claim: Line | None, line: Line, say: Say) -> None:
        if line.took is not None:
            if line.took != line.at - claim.at if claim is not None else line.took > line.at - step.seen_at:
                say(Code.OUTCOME, f"{name}: metadata.duration_seconds is not the time since its claim")
        elif line.trigger in UNDER_LEASE - {"completed"} and line.event in ("step_reported", "time_came"):
            rule = self.contract.places[line.no].rule
            if rule is not None and rule.growth is None and rule.child is None:
                say(Code.OUTCOME, f"{name}: {quoted(line.trigger)} without metadata.duration_seconds")
        self._check_lasting(name, claim, line, say)

    def _check_lasting(self, name: str, claim: Line | None, line: Line, say: Say) -> None:
        """A lease lasts beyond its claim, and is not lost before its end."""
        if line.trigger == "claimed" and (line.due_at is None or line.due_at <= line.at):
            say(Code.TIMER, f"{name} is claimed under a lease that does not last")
        is_lost = line.trigger == "lease_lost" or (line.trigger.startswith("failed") and line.event == "time_came")
        if is_lost and claim is not None and claim.due_at is not None and line.at <= claim.due_at:
            say(Code.TIMER, f"{name}: its lease is lost at {line.at}, but it holds until {claim.due_at}")

    def _check_due(self, name: str, before: Line, ways: frozenset[HiddenWay], line: Line, say: Say) -> None:
        """A timer that the line before shows has come, and a decision is not later than its deadline."""
        state, gate, due_at = TARGETS.get(before.trigger), self.contract.places[line.no].gate, before.due_at or 0
        is_plain = gate is not None and not gate.escalate and not gate.remind
        is_plain = is_plain and before.trigger in ("gate_opened", "held")
        if state not in TIMED_STATES or (state == "awaiting_approval" and not is_plain):
            return
        if any(way.source.state != state for way in ways):
            return
        is_timed = line.trigger in TIMED and line.event in ("time_came", "step_reported")
        if is_timed and line.at < due_at:
            say(Code.TIMER, f"{name}: {quoted(line.trigger)} came before it was due at {due_at}")
        is_late = line.event in DECIDES and before.seq != line.seq and line.at >= due_at
        if is_late and state != "retrying" and not (self.causes.format < 2 and state == "awaiting_event"):
            say(Code.TIMER, f"{name}: {quoted(line.event)} counts at {line.at}, but its deadline was {due_at}")

    def _check_gate(self, line: Line, say: Say) -> None:
        """A gate opens when what it depends on has ended, also where the dialect hides that."""
        place = self.contract.places[line.no]
        rule, gate = place.rule, None if place.rule is None else place.rule.approval
        if line.event != "gate_decided" or rule is None or gate is None:
            return
        deadline = None if gate.escalate or self.causes.adoption.deadlines else gate.deadline
        if place.owner is not None or not rule.depends_on or deadline is None:
            return
        needs = [self.steps.get(self.contract.numbers[edge.step]) for edge in rule.depends_on]
        ended = [step.seen_at for step in needs if step is not None and step.has_ended]
        if len(ended) == len(needs) and line.at >= max(ended) + deadline:
            said = f"it is decided at {line.at}, but its deadline was at {max(ended) + deadline}"
            say(Code.TIMER, f"step {quoted(place.name)}: {said}")

    def _check_order(self, place: PlannedRule, line: Line, say: Say) -> None:
        """A step begins after those that it depends on, and a hook after the step that it undoes."""
        if line.trigger in UNEVALUATED or place.rule is None:
            return
        name = f"step {quoted(place.name)}"
        if place.phase == "main":
            for edge in place.rule.depends_on if place.owner is None else ():
                no = self.contract.numbers[edge.step]
                other = self.steps.get(no)
                if no not in self.final and (other is None or not other.may_be(*edge.allow)):
                    said = f"it is {quoted(line.trigger)} before step {quoted(edge.step)}, on which it depends"
                    say(Code.DEPENDENCY, f"{name}: {said}, has ended like that")
            if line.trigger in GOES_ON and (limit := self.causes.limit) is not None and line.at >= limit:
                said = f"{quoted(line.trigger)} at {line.at}, but the timeout of the run ended at {limit}"
                say(Code.TIMER, f"{name}: {said}")

    def _check_of(self, ways: frozenset[HiddenWay], line: Line, place: PlannedRule, say: Say) -> None:
        """A step opens by the last of those that it depends on, and in the entry in which that ended."""
        if place.owner is not None or place.phase != "main" or place.rule is None or not ways:
            return
        if line.trigger == "cancelled":
            self._check_canceller(line, place, say)
        elif line.trigger in OPENED and all(way.source.state == "pending" for way in ways):
            self._check_opener(line, place, [edge.step for edge in place.rule.depends_on], say)

    def _check_canceller(self, line: Line, place: PlannedRule, say: Say) -> None:
        named = self.steps.get(self.contract.numbers.get(line.of or "", -1))
        is_stopped = line.of is None and self._stopped_in == line.seq and line.took is None
        is_stopped = is_stopped and line.event != "cancel_requested" and not place.awaits_child
        if is_stopped or (line.of is not None and (named is None or not named.may_be("failed"))):
            say(Code.DEPENDENCY, wrong_field("of", line.of, "a step that failed", "that is why it is cancelled"))

    def _check_opener(self, line: Line, place: PlannedRule, names: list[str], say: Say) -> None:
        if not names and line.event not in ("run_started", "slot_granted"):
            why = "it depends on no step"
            say(Code.CAUSE, wrong_field("event", line.event, "run_started or slot_granted", why))
        known = [step for name in names if (step := self.steps.get(self.contract.numbers[name])) is not None]
        last = max((step for step in known if step.settled), key=lambda step: step.settled, default=None)
        if line.trigger != "dependency_unmet":
            names = [] if last is None or last.last is None else [str(last.last.step)]
        if (line.of not in names) if names else line.of is not None:
            expected = " or ".join(names) or None
            said = wrong_field("of", line.of, expected, "that is the step that leads to it")
            say(Code.DEPENDENCY, f"step {quoted(place.name)}: {said}")

    def _check_ground(self, step: KnownStep, line: Line, place: PlannedRule, said: Mapping[str, Any], say: Say) -> None:
        allowed = tuple(_grounds(line, place))
        if line.trigger == "claimed" and step.is_lost and line.fence == step.fence + 1:
            allowed = ("reclaimed",)
        if said.get("ground") not in allowed:
            expected = " or ".join(map(str, allowed))
            found = wrong_field("ground", said.get("ground"), expected, "that is why it happened")
            say(Code.CAUSE, f"step {quoted(line.step)}: {found}")

    def _remember(
        self, step: KnownStep, ways: frozenset[HiddenWay], told: DialectLine, line: Line, place: PlannedRule
    ) -> None:
        if ways:
            step.places = frozenset(way.target for way in ways)
        else:
            targets = {target for trigger, target in STEP if trigger == line.trigger}
            step.places = frozenset(At(target, held) for target in targets for held in (False, True)) or step.places
        self._remember_claim(step, told, line, place)
        if line.trigger not in ("planned", *ADOPTING) and place.phase == "main" and line.event != "cancel_requested":
            self.causes.began_at = self.causes.began_at or line.at
        target = TARGETS.get(line.trigger, "")
        if target in ENDED:
            self._settled += 1
            step.settled = self._settled
        if target == "failed" and place.phase != "undo":
            self.failures.append((line.category, line.error))
            if place.owner is None and place.rule is not None and place.rule.on_failure != "continue":
                self._stopped_in = self._stopped_in or line.seq

    @staticmethod
    def _remember_claim(step: KnownStep, told: DialectLine, line: Line, place: PlannedRule) -> None:
        step.shown, step.fence, step.seen_at, step.last = str(told.target), line.fence or 0, line.at, line
        target = TARGETS.get(line.trigger, "")
        is_free = line.trigger == "lease_lost" and not place.retry.counts_losses
        step.attempt = (line.attempt or step.attempt) + (not is_free and ends_attempt(line.trigger, target))
        if line.trigger == "claimed":
            step.claim = line
        if line.trigger in ("claimed", "lease_lost"):
            step.is_lost = line.trigger == "lease_lost"

    def close(self, told: DialectLine, say: Say) -> None:
        """Follow the closing line."""
        self.causes.enter(told, told.raw["metadata"], say)
        self._run.close(told, say)


class ShownState:
    """The lines of the run itself, among those of its steps."""

    def __init__(self, run: ShownRun) -> None:
        self.contract, self._judged, self._ways = run.contract, run.judged, run.ways
        self._final, self._steps, self._failures, self._causes = run.final, run.steps, run.failures, run.causes
        self._ended: str | None = None

    def take(self, told: DialectLine, line: Line, said: Mapping[str, Any], say: Say) -> None:
        trigger = line.trigger
        self._check_run_fields(told, line, said, say)
        if trigger not in RUN_TRIGGERS | STEP_TRIGGERS:
            say(Code.ILLEGAL, wrong_field("because", trigger, "a canonical trigger", "a line has one"))
            return
        self._check_run_cause(told, line, say)
        if trigger == "started":
            began = self._causes.adoption.began_at
            self._causes.began_at = line.at if began is None else min(began, line.at)
        ground = said.get("ground")
        if trigger not in STOPS and ground not in (allowed := tuple(self._grounds(line))):
            expected = " or ".join(map(str, allowed))
            say(Code.CAUSE, f"the run: {wrong_field('ground', ground, expected, 'that is why it happened')}")
        if trigger in STOPS and not self._is_possible(line, str(ground or "").removesuffix("+compensate")):
            say(Code.ENDING, f"the run stopped, but nothing in this log allows the ground {quoted(ground)}")
        if trigger in STOPS - {"stopped_failed"} and ground != "undo_requested" and not self._may_undo:
            say(Code.POLICY, f"the run: trigger is {quoted(trigger)}, but its definition undoes nothing")
        if trigger in ENDINGS and not (trigger in ("rules_passed", "cancelled") and line.of is not None):
            self._end(line, ground, say)

    def _check_run_fields(self, told: DialectLine, line: Line, said: Mapping[str, Any], say: Say) -> None:
        document = self.contract.document
        if told.source is None:
            facts = {"workflow": document.name, "version": document.version, "steps": self._size}
            for name, follows in facts.items():
                if said.get(name) != follows:
                    say(Code.CONTRADICTION, f"the run: {wrong_field(name, said.get(name), follows, 'the definition')}")
        severity = "critical" if told.target == self._judged.run.shows.get("failed") else "info"
        if told.raw["severity"] != severity:
            found = quoted(told.raw["severity"])
            say(Code.CONTRADICTION, f"severity is {found}, expected {quoted(severity)}: its state")

    def _check_run_cause(self, told: DialectLine, line: Line, say: Say) -> None:
        self._check_blamed(line, say)
        self._check_target(told, line, say)
        is_end = line.trigger in ENDINGS and line.of is None
        fails = is_end or (line.of is not None and line.trigger in FAILING)
        if not fails and (line.category, line.error) != (None, None):
            found = line.category or line.error
            say(Code.CONTRADICTION, wrong_field("category or error", found, None, "nothing failed here"))
        row = None if line.of is None or line.trigger.startswith("children_failed") else TRIGGERS.get(line.trigger)
        of_step = row is not None and bool(row.events)
        events = row.events if row is not None and row.events else BEGINS.get(line.trigger, SETTLING)
        if line.event not in events and not (of_step and line.trigger.startswith("deadline")):
            said = wrong_field("event", line.event, " or ".join(events), f"only that leads to {quoted(line.trigger)}")
            say(Code.CAUSE, said)

    def _check_blamed(self, line: Line, say: Say) -> None:
        """The step that a line of the run names."""
        trigger, numbers = line.trigger, self.contract.numbers
        no = numbers.get(line.of or "")
        wrong = {
            f"no step is {quoted(trigger)}": line.of is not None and trigger in OWN_TRIGGERS,
            f"a step is {quoted(trigger)}": line.of is None and trigger not in RUN_TRIGGERS,
            "the definition has no such step": line.of is not None and no is None,
        }
        failed = self._steps.get(-1 if no is None else no)
        if trigger == "step_failed" and not self._final:
            wrong["the run stops because of a step that failed"] = failed is None or not failed.may_be("failed")
        for why, is_wrong in wrong.items():
            if is_wrong:
                say(Code.CONTRADICTION, wrong_field("of", line.of, "another", why))

    def _check_target(self, told: DialectLine, line: Line, say: Say) -> None:
        """The state that a line of the run shows is the one that its trigger leads to."""
        trigger, view = line.trigger, self._judged.run
        shown = {view.next_shown(told.source, target, trigger) for name, target in RUN if name == trigger}
        begins = told.source == view.shows.get("queued") and told.target == view.shows.get("running")
        wrong = {
            "where the run begins": told.source is None and trigger not in ("created", "started", "cancelled"),
            "which leads elsewhere": trigger in ("created", "started", "progressed") and told.target not in shown,
            "and a run waits after it has begun": trigger == "waiting" and begins,
            "which ends it": trigger in ENDINGS and line.of is None and told.target not in view.terminal,
        }
        for why, is_wrong in wrong.items():
            if is_wrong:
                say(Code.ILLEGAL, f"the run is shown as {quoted(told.target)} by {quoted(trigger)}, {why}")

    @property
    def _may_undo(self) -> bool:
        """Whether the definition asks for compensation after some failure."""
        document = self.contract.document
        policies = {document.on_failure, *(step.on_failure for step in document.steps)}
        return document.compensate_always or "compensate" in policies

    @property
    def _size(self) -> int:
        """How many steps of the definition the dialect shows."""
        return self.contract.size - len(self._final)

    def _is_possible(self, line: Line, stop: str) -> bool:
        """Whether the run can have stopped for this reason."""
        document = self.contract.document
        if stop == "timed_out":
            began = self._causes.adoption.began_at or 0
            return document.timeout is not None and line.at >= began + document.timeout
        if stop in FAILURES or stop == "steps_failed":
            return bool(self._final) or bool(self._failures)
        return stop == "undo_requested" or (stop == "rules_failed" and bool(document.rules))

    def _grounds(self, line: Line) -> Iterator[str | None]:
        """The grounds that a line of the run may have which does not follow from its stop."""
        states = [step for no, step in self._steps.items() if self.contract.places[no].phase == "main"]
        settled = "some_left_out" if any(step.may_be("skipped", "cancelled") for step in states) else "all_succeeded"
        named = self.contract.numbers.get(line.of or "", -1)
        place = self.contract.places.get(named)
        if line.trigger == "progressed":
            yield "first_claim" if line.event == "step_claimed" else None
        elif line.trigger == "step_failed":
            rule = None if place is None else place.rule
            yield "compensate" if rule is not None and rule.on_failure == "compensate" else None
        elif line.of is None and line.trigger in ("steps_settled", "rules_passed"):
            yield settled
        elif line.of is None or (place is not None and place.phase != "main"):
            yield None
        elif named in self._final:
            yield "first_claim" if line.trigger == "claimed" else settled
        else:
            yield from (None, "approved", "deadline", "input")
            if line.trigger == "claimed":
                yield "first_claim"

    def _end(self, line: Line, ground: str | None, say: Say) -> None:
        self._ended = target = ENDINGS[line.trigger]
        for no, place in self.contract.places.items():
            step = self._steps.get(no)
            if place.phase == "main" and no not in self._final and (step is None or not step.has_ended):
                said = f"step {quoted(place.name)} has not ended in this log"
                say(Code.ENDING, f"the run ends {quoted(target)}, but {said}")
                break
        if target == "succeeded":
            failed = [no for no, step in self._steps.items() if not step.may_be(*(ENDED - {"failed"}))]
            if any(self.contract.places[no].owner is None for no in failed):
                say(Code.ENDING, "the run succeeds, but a step in it failed")
            if (limit := self._causes.limit) is not None and line.at >= limit and line.event != "time_came":
                say(Code.TIMER, f"the run succeeds at {line.at}, but its timeout ended at {limit}")
        if line.trigger in ("undone", "undo_failed"):
            self._check_undone(line, say)
        self._check_blame(line, ground, say)

    def _check_undone(self, line: Line, say: Say) -> None:
        """Every step that succeeded is undone, the last first.

        Where a failed undo stops the rollback, the undo steps that are left end together, after those that ran.
        """
        if "undo" not in self._ways:
            return
        order: list[float] = []
        for no, step in sorted(self._steps.items(), key=lambda one: -one[1].settled):
            place = self.contract.places[no]
            hook = self._steps.get(self.contract.places.undo_no(no)) if place.phase == "main" else None
            if hook is not None:
                order.append(inf if hook.may_be("cancelled") else hook.settled)
            if _must_undo(place, step) and (hook is None or not hook.has_ended):
                say(Code.UNDO, f"the rollback ends, but 'undo:{place.name}' has not run")
        if order != sorted(order):
            say(Code.UNDO, "steps are undone in another order than the reverse of their completion")

    def _check_blame(self, line: Line, ground: str | None, say: Say) -> None:
        """The end of a run repeats a failure in it."""
        stop = (ground or "").removesuffix("+compensate")
        allowed = set(self._failures)
        if line.trigger in ("rules_passed", "cancelled"):
            allowed.clear()
        if stop == "timed_out":
            allowed.add(("timeout", line.error or ""))
        elif stop == "rules_failed" or self._final:
            return
        is_cancel = line.trigger in ("cancelled", "stopped_cancelled") or stop == "undo_requested"
        is_cancel = is_cancel and line.error is not None and line.category in (None, *dict(self._failures))
        is_clean = line.trigger == "rules_passed" and line.category is line.error is None
        if not is_cancel and not is_clean and (line.category, line.error) not in allowed:
            said = f"metadata.category is {quoted(line.category)} and metadata.error is {quoted(line.error)}"
            say(Code.ENDING, f"the run: {said}, which is no failure in this log")

    def close(self, told: DialectLine, say: Say) -> None:
        """Follow the closing line."""
        said = told.raw["metadata"]
        canonical = said["canonical"]
        if (self._ended or canonical in RUN_ENDED) and canonical != self._ended:
            expected = self._ended or "a state that is no end"
            say(Code.HEAD, wrong_field("canonical", canonical, expected, "the lines before it"))
        if told.raw["severity"] != "info":
            say(Code.CONTRADICTION, f"severity is {quoted(told.raw['severity'])}, expected 'info': a closing line")
        planned = sum(no < self.contract.size for no in self._steps)
        if planned != self._size:
            said_so = f"{planned} of {self._size} steps of the definition are in this log"
            say(Code.DEFINITION, f"steps are missing: {said_so}")


def _must_undo(place: PlannedRule, step: KnownStep) -> bool:
    """Whether a rollback undoes this step: it succeeded in this run, and the definition has an undo for it."""
    rule = place.rule if place.phase == "main" and place.owner is None else None
    has_undo = rule is not None and rule.undo is not None and rule.growth is None
    is_own = step.last is not None and step.last.trigger not in ADOPTING
    return has_undo and is_own and not step.may_be(*(ENDED - {"succeeded"}))


def _grounds(line: Line, place: PlannedRule) -> Iterator[str | None]:
    """The grounds that the line of a step may have; None stands for no ground besides its trigger."""
    if line.trigger == "failed" and place.rule is None and place.owner is not None:
        yield from STEP_GROUNDS["failed"]  # its limit is in the canonical log
    elif line.trigger == "failed":
        is_last = line.attempt is not None and line.attempt >= place.retry.max_attempts
        yield "attempts_exhausted" if is_last else "lost_too_often" if line.category == "poison" else "not_retryable"
    elif line.trigger == "rules_passed":
        if line.event in BY_PERSON:
            yield "completed_by_hand"
        if place.rule is None or place.kind.waits_for in ("elements", "added", "child"):
            yield "children_succeeded"
        if line.event not in BY_PERSON:
            yield "executed"
    elif line.trigger == "claimed":
        yield from (None, "reclaimed")
    elif line.trigger == "cancelled":
        yield from ("owner_stopped",) if is_cancelled_by_owner(line, place) else STEP_GROUNDS["cancelled"][:3]
    else:
        yield None


def is_final(place: PlannedRule, judged: JudgedDialect) -> bool:
    """Whether the dialect tells this step in the state of the run."""
    executor = None if place.rule is None or place.phase != "main" else place.rule.executor
    return executor is not None and executor.kind == "python" and executor.name in judged.final


def facts_of(place: PlannedRule) -> dict[str, Any]:
    """What the first line of a step says of it, by the definition."""
    rule = place.rule
    assert rule is not None
    if place.phase == "undo" and rule.undo is not None:
        kind = "none" if place.undoes_child else rule.undo.executor.kind
        return {"kind": kind, "max_attempts": place.retry.max_attempts}
    kind = "approval" if rule.approval else "wait" if rule.wait else rule.executor.kind if rule.executor else "none"
    return {
        "kind": kind,
        "order": rule.order,
        "depends_on": [edge.step for edge in rule.depends_on],
        "max_attempts": place.retry.max_attempts,
        "on_failure": rule.on_failure,
        "completion": rule.completion,
    }


def as_canonical(told: DialectLine, metadata: Mapping[str, Any]) -> Line:
    """A dialect's line as a canonical one; its canonical states are unknown."""
    detail, lasted = metadata.get("detail"), metadata.get("duration_seconds")
    return Line(
        journal=told.owner[0],
        about="step" if told.kind == "undo" else told.kind,
        owner=told.owner[1],
        tenant=metadata["tenant"],
        correlation_id=metadata.get("correlation_id"),
        seq=told.seq,
        at=told.at,
        source=None,
        target="",
        trigger=metadata["because"],
        event=metadata["event"],
        actor=metadata["actor"],
        detail=None if detail is None else compact(detail),
        step=metadata.get("step"),
        no=metadata.get("no", -1),
        of=metadata.get("of"),
        fence=metadata.get("fence"),
        attempt=metadata.get("attempt"),
        took=None if lasted is None else round(lasted * 1_000_000),
        due_at=metadata.get("due_at"),
        category=metadata.get("category"),
        error=metadata.get("error"),
        digest=metadata.get("digest"),
    )
