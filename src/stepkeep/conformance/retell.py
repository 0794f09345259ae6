"""Re-enacts a run from its log in a dialect: infers the canonical hops that the dialect does not show.

Each line names its canonical trigger. Fence and attempt tell how many claims and retries were hidden since the last
line of the step, so that a hidden path exists or the line is impossible. What a hidden hop would determine is marked
unknown and not checked. The run's own hidden hops follow from its steps. `replay.py` calls it for sealed logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec.structs import replace

from stepkeep.conformance.arrows import REFERENCE
from stepkeep.conformance.causes import Causes
from stepkeep.conformance.contract import OPERATED, Contract, Place
from stepkeep.conformance.dialect_line import DialectLine
from stepkeep.conformance.elements import is_cancelled_by_owner
from stepkeep.conformance.enabled import JOURNAL_FORMAT, wrong_field
from stepkeep.conformance.encoding import compact
from stepkeep.conformance.ends import GROUNDED, HIDEABLE, check_ground, check_hidden_blame, stop_of
from stepkeep.conformance.grounds import cancelled_after, grounds_of_run, grounds_of_step
from stepkeep.conformance.history import CREATING
from stepkeep.conformance.line import Line, severity_of
from stepkeep.conformance.machines import Say
from stepkeep.conformance.reenact import ENDED, LOST_OR_NOT, OPENINGS, RUN_ENDED, STOPS, Reenactment
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.steps import BY_HAND, NEW, TIMED, Step, check_step, ends_attempt
from stepkeep.conformance.texts import CHILD_IN_DOUBT, IN_DOUBT, left_by
from stepkeep.dialects.dialect import Judged
from stepkeep.dialects.machine import MachineView

Row = tuple[str, str, str]
Path = tuple[Row, ...]

ENDINGS = {
    "rules_passed": "succeeded",
    "stopped_failed": "failed",
    "stopped_cancelled": "cancelled",
    "undone": "rolled_back",
    "undo_failed": "failed",
    "cancelled": "cancelled",
}
"""The canonical end of a run, by its trigger."""

LONGEST_PATH = 400
"""More hidden hops than are searched between two lines of a step, apart from plain retries."""

RETRY_CYCLE = (("claimed", "running"), ("retry_scheduled", "retrying"), ("retry_due", "ready"))
"""One retry: a claim, a failure and the end of the pause. Where a dialect hides all of it, any number may be hidden."""

LOSS_CYCLE = (("claimed", "running"), ("lease_lost", "retrying"), ("retry_due", "ready"))
"""The same after a lost lease, which is no attempt of an undo."""

SEARCHED = 4
"""How many claims and retries of a hidden path are searched; further pairs of them are retries of that cycle."""


def _rows_by_source() -> dict[str, tuple[Row, ...]]:
    rows: dict[str, list[Row]] = {}
    # Of two hidden ways of one length, the one that needs no decision of a person is taken.
    for source, trigger, target in sorted(
        REFERENCE["step"][0], key=lambda row: (row[1].startswith("operator_"), *row[1:])
    ):
        rows.setdefault(source or NEW, []).append((source or NEW, trigger, target))
    return {source: tuple(found) for source, found in rows.items()}


STEP_ROWS = _rows_by_source()


ENDS_HOLD = dict.fromkeys(OPERATED | {"operator_retried"}, True) | dict.fromkeys(
    ("approved", "hold_approved", "rejected", "rejected_tolerated", "decision_recorded"), False
)
"""Triggers that end, or count a vote in, one kind of hold only: whether the step holds for want of attempts."""


class Wanted(NamedTuple):
    """A line of a step, and what is known of the step before it. `target` is the state that the dialect shows.

    `is_stuck`: a person decided about it, and it did not wait for an approval.
    """

    shown: str | None
    state: str
    is_leased: bool
    trigger: str
    target: str
    claims: int
    retries: int
    ends_lease: bool
    leaves: str | None
    never: frozenset[str]
    counts_losses: bool
    is_exhausted: bool
    is_stuck: bool = False


class Views:
    """Looks up hidden paths in one dialect's step machine, and remembers them."""

    def __init__(self, view: MachineView) -> None:
        self._view = view
        self.path = lru_cache(maxsize=4096)(self._path)
        self.is_hidden = lru_cache(maxsize=1024)(self._is_hidden)

    def _is_hidden(self, shown: str | None, trigger: str, target: str) -> bool:
        view = self._view
        return view.next_shown(shown, target, trigger) == shown and not view.repeated(shown, trigger)

    def _path(self, wanted: Wanted) -> Path | None:
        """The shortest hidden way to a hop like this one, with its claims and retries; the hop comes last."""
        shown = wanted.shown
        start = (wanted.state, 0, 0, wanted.is_leased, wanted.is_exhausted)
        ways: dict[tuple[str, int, int, bool, bool], Path] = {start: ()}
        queue = deque([start])
        while queue and len(ways) < LONGEST_PATH * 24:
            now = queue.popleft()
            here, claimed, retried, leased, exhausted = now
            for row in STEP_ROWS.get(here, ()):
                _, trigger, target = row
                if trigger in wanted.never:
                    continue
                if self._is_wanted(row, wanted) and (claimed, retried, leased) == (
                    wanted.claims,
                    wanted.retries,
                    _was_leased(trigger, wanted),
                ):
                    if here == "awaiting_approval" and ENDS_HOLD.get(trigger) not in (None, exhausted):
                        continue
                    return (*ways[now], row)
                is_loss = trigger == "lease_lost" and not wanted.counts_losses
                counts = claimed + (trigger == "claimed"), retried + (not is_loss and ends_attempt(trigger, target))
                is_held = trigger == "claimed" or (leased and trigger == "completed")
                after = (target, *counts, is_held, trigger == "held_exhausted")
                if counts[0] > wanted.claims or counts[1] > wanted.retries or after in ways:
                    continue
                if self.is_hidden(shown, trigger, target):
                    ways[after] = (*ways[now], row)
                    queue.append(after)
        return None

    def hides_retries(self, shown: str | None, cycle: Sequence[tuple[str, str]] = RETRY_CYCLE) -> bool:
        """Whether a retry from its claim on shows nothing in the dialect."""
        return all(self.is_hidden(shown, trigger, target) for trigger, target in cycle)

    def _is_wanted(self, row: Row, wanted: Wanted) -> bool:
        if wanted.leaves not in (None, row[0]) or (wanted.is_stuck and row[0] == "awaiting_approval"):
            return False
        return row[1] == wanted.trigger and self._view.next_shown(wanted.shown, row[2], row[1]) == wanted.target


def _was_leased(trigger: str, wanted: Wanted) -> bool:
    """Whether a worker held the step before this hop: only then does the hop say how long."""
    return trigger == "completed" or (trigger != "claimed" and wanted.ends_lease)


class Retelling:
    """One run in a dialect's words, and the canonical run behind it."""

    def __init__(self, contract: Contract, judged: Judged, views: Mapping[str, Views]) -> None:
        self._judged, self._views = judged, views
        self.steps: dict[int, Step] = {}
        self.run = Reenactment(contract, self.steps, derives=True)
        self.contract = self.run.contract
        self._causes = Causes(judged.run, is_checked=bool(contract.document.rules))
        self.run.final = frozenset(no for no, place in self.contract.places.items() if _is_final(place, judged))
        self.shown: dict[int, str] = {}
        self.state = "idle"
        self.settled = 0
        self.may_have_stopped = False
        self._cancelled_as: set[str | None] = set()
        self._in_doubt: dict[str, bool] = {}
        """Steps that a request cancelled while their child was in flight, and whether they say so."""
        self._entry, self._hop = (0, 0), 0
        self._created_at: int | None = None
        self._is_start_seen = False

    def take(self, told: DialectLine, line: Line, say: Say) -> None:
        """Follow one line; `line` is the same as a canonical one."""
        metadata = told.raw["metadata"]
        self._begin(told, metadata, say)
        self.run.hear(line, say)
        self._causes.check(told, line, self._hop, say, tells_waits=self.run.format >= JOURNAL_FORMAT)
        if told.kind in self._views:
            self._step(told, line, metadata, say)
        else:
            self._run(told, line, metadata, say)

    # -- entries -----------------------------------------------------------------------------------------------------
    def _begin(self, told: DialectLine, metadata: Mapping[str, Any], say: Say) -> None:
        seq, at = self._entry
        if told.seq == seq and told.at != at:
            say(Code.TIME, wrong_field("at", told.at, at, f"all lines of entry {seq} have one time"))
        if told.seq != seq and seq:
            self._end_entry(say)
        hop = metadata.get("hop", 0)
        if told.seq == seq and told.kind != "head" and hop < self._hop:
            say(Code.ORDER, wrong_field("hop", hop, f"at least {self._hop}", "hops of one entry are in their order"))
        self._entry, self._hop = (told.seq, told.at), hop

    def _end_entry(self, say: Say) -> None:
        for problem in self.run.additions.entry_ended():
            say(*problem)
        # A dialect may hide that the run stops, and show at once that it compensates.
        if self.run.must_cancel and self.state not in ("compensating", *RUN_ENDED):
            say(Code.POLICY, "steps are cancelled, but the run neither stops nor is cancelled")
        self.run.must_cancel = False
        if self.state in RUN_ENDED:
            return
        for no in self.run.final:
            self.run.to_skip.pop(no, None)
        for no in [*self.run.to_skip, *(no for no in self.run.to_open if self._opens_visibly(no))]:
            name = self.contract.places[no].name
            say(Code.DEPENDENCY, f"step {quoted(name)} must move on before this line: what it depends on has ended")
            self.run.to_skip.pop(no, None)
            self.run.to_open.pop(no, None)

    def _opens_visibly(self, no: int) -> bool:
        place = self.contract.places[no]
        if place.phase != "main" or (place.rule is not None and place.rule.condition is not None):
            return False
        if place.is_length_open or no in self.run.final:
            return False
        row = next((row for row in STEP_ROWS["pending"] if row[1] == place.opens_by), None)
        if row is None or no not in self.shown:
            return False
        if "held" not in place.never and self._views["step"].is_hidden(self.shown[no], "held", "awaiting_approval"):
            return False
        return not self._views["step"].is_hidden(self.shown[no], row[1], row[2])

    # -- steps -------------------------------------------------------------------------------------------------------
    def _step(self, told: DialectLine, line: Line, metadata: Mapping[str, Any], say: Say) -> None:
        place = self.run.place(line.no)
        if place is None or place.name != line.step:
            known = "no step" if place is None else f"step {quoted(place.name)}"
            say(Code.DEFINITION, f"step {quoted(line.step)} has number {line.no}, where the definition has {known}")
            return
        step = self.steps.get(line.no)
        if step is None:
            step = self.steps[line.no] = Step(line.no, place.name, place.phase)
        if "held" not in place.never and self._views[told.kind].is_hidden(
            self.shown.get(line.no), "held", "awaiting_approval"
        ):
            step.is_permit_unseen = True
        has_child = step.state == "awaiting_children" or place.no in self.run.to_open
        path = self._find(step, told, line)
        if path is None:
            said = f"no hops that the dialect hides lead from {quoted(step.state)} to {quoted(line.trigger)}"
            counts = f"with fence {line.fence or 0} after {step.fence} and attempt {line.attempt} after {step.attempt}"
            say(Code.DISCONTINUOUS, f"{step.title}: {said} {counts}")
            self._resume(step, line, told)
            return
        for row in path[:-1]:
            self._hide(step, place, row, line, say)
        source, _, target = path[-1]
        hop = _replaced(line, source, target)
        self._check_shape(told, hop, place, metadata, say)
        self._derive_before(step, place, hop, say)
        state = self._state_for(place)
        self._check_ground(metadata, grounds_of_step(hop, place, step, self._stop_for(state)), step.title, say)
        if hop.trigger == "cancelled" and not is_cancelled_by_owner(hop, place):
            self._cancelled_as.add(metadata.get("ground"))
            is_sure = place.name not in self.run.held or hop.error == CHILD_IN_DOUBT
            in_flight = has_child or source == "awaiting_children"
            if hop.event == "cancel_requested" and place.awaits_child and in_flight and is_sure:
                self._in_doubt[place.name] = hop.error == CHILD_IN_DOUBT
        gate = step.terms or place.gate
        if source == "awaiting_approval" and hop.trigger in TIMED and gate is not None and gate.escalate:
            # A person may have asked for a level with a deadline of its own, unless the dialect shows that.
            step.is_timer_known &= not self._views[told.kind].is_hidden(self.shown.get(line.no), "escalated", source)
        self.run.step_hop(step, hop, state, say)
        check_step(step, hop, False, say)
        step.state = target
        self.shown[line.no] = str(told.target)
        if target in ENDED:
            self.settled += 1
            step.settled = self.settled
        self._derive_after(hop, say)

    def _find(self, step: Step, told: DialectLine, line: Line) -> Path | None:
        claims = (line.fence or 0) - step.fence - (line.trigger == "claimed")
        retries = 0 if line.attempt is None else line.attempt - step.attempt
        cycles = min(claims, retries) - SEARCHED
        if cycles > 0 and self._views[told.kind].hides_retries(self.shown.get(step.no)):
            claims, retries = claims - cycles, retries - cycles
            step.fence, step.attempt = step.fence + cycles, step.attempt + cycles
        place = self.contract.places[step.no]
        is_surplus = place.rule is not None and place.rule.is_flow
        if not place.retry.counts_losses:
            is_surplus = self._views[told.kind].hides_retries(self.shown.get(step.no), LOSS_CYCLE)
        if is_surplus and (waits := claims - retries - SEARCHED) > 0:
            # A flow is claimed again after each suspension, and an undo after each loss, which no dialect shows.
            claims, step.fence = claims - waits, step.fence + waits
        leaves = "awaiting_children" if self._leaves_its_child(step, place, line) else _leaves(line, self.run.format)
        if claims < 0 or retries < 0 or max(claims, retries) > LONGEST_PATH:
            return None
        if leaves == "validating" and not place.is_checked:
            return None
        wanted = Wanted(
            shown=self.shown.get(step.no),
            state=step.state,
            is_leased=step.leased,
            trigger=line.trigger,
            target=str(told.target),
            claims=claims,
            retries=retries,
            ends_lease=line.took is not None,
            leaves=leaves,
            never=place.never | self._other_ways(place, line),
            counts_losses=place.retry.counts_losses,
            is_exhausted=step.is_exhausted,
            is_stuck=line.event == "step_decided" and self.run.asked.get("step") == place.name,
        )
        find = self._views[told.kind].path
        # A hidden completion by a person is rare; a way through it would shorten many ways that have none.
        return find(wanted._replace(never=wanted.never | {"operator_completed"})) or find(wanted)

    def _other_ways(self, place: Place, line: Line) -> frozenset[str]:
        """How this step did not come to its rules: a decision completed it, or it has awaited steps that it added."""
        asked = self.run.asked
        if _is_completed_by_person(line) and asked.get("step", place.name) == place.name:
            return OTHER_WAYS
        grown = asked.get("plan_grown")
        grows = place.no in self.run.elements.owners or (isinstance(grown, dict) and place.name in grown)
        added = place.rule is not None and place.rule.is_then and grows
        return WITHOUT_ADDED if added and line.trigger == "rules_passed" else frozenset()

    def _leaves_its_child(self, step: Step, place: Place, line: Line) -> bool:
        """Whether a step that is cancelled had a child: the end of that child, or of the time that a stopped run
        waits for it, cancels nothing else."""
        if line.trigger != "cancelled" or step.state != "pending" or not place.awaits_child:
            return False
        if line.event == "child_ended":
            return self.run.asked.get("step") == place.name
        if place.no in self.run.left_open:
            return line.event in ("time_came", "cancel_requested")
        return place.no in self.run.to_open and line.event == "time_came"

    def _resume(self, step: Step, line: Line, told: DialectLine) -> None:
        """Accept the line's values after a finding."""
        targets = {row[2] for rows in STEP_ROWS.values() for row in rows if row[1] == line.trigger}
        step.state = min(targets) if targets else step.state
        step.fence, step.attempt = line.fence or 0, line.attempt or step.attempt
        step.attempt += step.state == "retrying"
        step.forget()
        step.forget_claim()
        step.leased = step.state == "running"
        self.shown[step.no] = str(told.target)

    def _hide(self, step: Step, place: Place, row: Row, line: Line, say: Say) -> None:
        """Record a hop that the dialect does not show."""
        source, trigger, target = row
        if trigger in OPENINGS and source not in ("retrying", "running", "ready") and place.phase != "check":
            self._derive_start(line)
            if not self._has_opened(place):
                said = f"it is {quoted(line.trigger)} before the steps it depends on allow that"
                say(Code.DEPENDENCY, f"{step.title}: {said}")
        step.forget()
        if trigger == "claimed":
            step.forget_claim()
        if trigger in BY_HAND:
            step.completed_by_hand = line.seq
        if trigger == "children_succeeded":
            step.children_succeeded = line.seq
        step.fence += trigger == "claimed"
        is_free_loss = trigger == "lease_lost" and not place.retry.counts_losses
        step.attempt += not is_free_loss and ends_attempt(trigger, target)
        step.is_exhausted = trigger == "held_exhausted"
        if trigger in LOST_OR_NOT or ends_attempt(trigger, target):
            # Of two hidden ways, one may pass through a lost lease.
            step.was_lost = False if trigger == "claimed" else None
        was_leased, step.leased = step.leased, trigger == "claimed" or (step.leased and trigger == "completed")
        if was_leased and not step.leased:
            step.is_unsure = step.last_error = None  # the hidden end of an attempt may have been a lost lease
        if trigger == "completed":
            step.is_unsure = None  # one of two hidden ways: the handler may have been stopped before it completed
        step.state = target

    def _has_opened(self, place: Place) -> bool:
        """Whether a step may have opened unseen: what it depends on has ended, and its run did not stop before that.
        Only a step with a child is still in flight when its run has stopped."""
        if place.no in self.run.left_open:
            self.run.left_open.remove(place.no)
            return True
        return self.run.to_open.pop(place.no, self.run) is not self.run

    # -- the run behind the steps ------------------------------------------------------------------------------------
    def _state_for(self, place: Place) -> str:
        """The state of the run as far as a step of this phase can tell."""
        if self.state == "idle" and place.phase == "main":
            return "idle"
        if self.state in ("stopping", *RUN_ENDED):
            return self.state
        return {"undo": "compensating", "check": "validating"}.get(place.phase, "running")

    def _stop_for(self, state: str) -> str | None:
        """Why the run stopped, as far as its lines tell; empty if it goes on."""
        if self.run.is_stop_unseen or self.may_have_stopped:
            return None
        return self.run.ground if state in ("stopping", "compensating") else ""

    def _derive_start(self, line: Line, *, begins: bool = True) -> None:
        """The run was started before this line. If something in it `begins`, it also has the slot that it waited
        for."""
        if self.state == "idle":
            self.state = "running"
            if self.run.started_at is None:
                self.run.begin(self._created_at)
        if begins:
            self.run.grant(None)

    def _derive_before(self, step: Step, place: Place, hop: Line, say: Say) -> None:
        if hop.trigger in CREATING and place.phase == "main":
            if place.owner is not None and hop.trigger == "planned":
                self._derive_start(hop)
            return
        if hop.trigger != "cancelled":
            self._derive_start(hop)
            if place.phase == "undo" and self.state != "compensating":
                self._derive_undo(hop, say)
            return
        if self.state in ("stopping", "compensating", *RUN_ENDED) or is_cancelled_by_owner(hop, place):
            return
        if self.run.adoption.is_used:
            # A run that continues another one starts in the entry that creates it, also where the dialect hides that.
            self._derive_start(hop, begins=False)
        asks = self.run.asked.get("compensate") is True and self.state != "idle"
        if hop.event == "cancel_requested" and not asks:
            return
        if hop.event == "cancel_requested" and hop.source == "awaiting_children":
            # A run that stopped unseen waits for its child, and a cancel ends that wait; the ground names the stop.
            self.run.stop_unseen()
        elif hop.error == CHILD_IN_DOUBT:
            # The grace period of a run that stopped unseen ended before its child did.
            self.run.stop_unseen()
        elif step.leased or hop.event not in ("cancel_requested", "time_came"):
            # A worker's step is cancelled only in a run that stops already, for a reason that the dialect hid.
            self.run.stop_unseen()
        else:
            self._derive_run("timed_out" if hop.event == "time_came" else "undo_requested", hop, None, say)
        self.state = "stopping"

    def _derive_undo(self, hop: Line, say: Say) -> None:
        """The run began to undo its steps; why it stopped may be hidden."""
        if self.state != "stopping":
            self.run.stop_unseen()
        self.run.is_stop_unseen |= self.may_have_stopped
        if self.run.is_stop_unseen:
            self.run.policy, self.run.are_hooks_unseen = "compensate", True
        self._derive_run("undo_started", hop, None, say)
        self.state = "compensating"

    def _derive_after(self, hop: Line, say: Say) -> None:
        if self.run.must_stop is not None and self.state != "stopping":
            self.may_have_stopped = not any(self._is_idle(no) for no in range(self.contract.size))
            self._derive_run("step_failed", hop, self.contract.places[self.run.must_stop].name, say)
            self.state = "stopping"
        self.run.must_stop = None

    def _is_idle(self, no: int) -> bool:
        """Whether a step would have been cancelled if the run had stopped before: no worker holds it, and no child is
        in flight for it."""
        step = self.steps.get(no)
        if step is None or step.state in ENDED or step.leased:
            return False
        has_begun = step.state == "awaiting_children" or no in self.run.to_open
        return not (has_begun and self.contract.places[no].awaits_child)

    def _derive_run(self, trigger: str, hop: Line, of: str | None, say: Say) -> None:
        derived = Line(
            journal="run",
            about="run",
            owner=hop.owner,
            tenant=hop.tenant,
            correlation_id=hop.correlation_id,
            seq=hop.seq,
            at=hop.at,
            source=self.state,
            target="compensating" if trigger == "undo_started" else "stopping",
            trigger=trigger,
            event=hop.event,
            actor=hop.actor,
            of=of,
        )
        self.run.run_hop(derived, say)

    def _run(self, told: DialectLine, line: Line, metadata: Mapping[str, Any], say: Say) -> None:
        self._check_run_shape(told, line, metadata, say)
        trigger = line.trigger
        if trigger not in GROUNDED:
            self._check_ground(metadata, grounds_of_run(line, self.run), "the run", say)
        if trigger == "created":
            self._created_at = line.at
            self.run.run_hop(_replaced(line, None, "idle"), say)
        elif trigger == "started":
            self.run.run_hop(_replaced(line, "idle", "queued"), say)
            self._is_start_seen = True
            self.state = "running" if self.state == "idle" else self.state
        elif trigger == "progressed":
            self._derive_start(line)
        elif trigger in STOPS and self.state != "stopping":
            self.run.run_hop(_replaced(line, self.state, "stopping"), say)
            self.state = "stopping"
        elif trigger == "step_failed" and self.run.stopped_in == line.seq and self.run.blamed is not None:
            if line.of != (expected := self.contract.places[self.run.blamed].name):
                said = wrong_field("of", line.of, expected, "the run stops because of that step")
                say(Code.CONTRADICTION, f"the run: {said}")
        elif trigger == "undo_started":
            self._notice_stop(line, metadata.get("ground"))
            check_ground(self.run, line, metadata.get("ground"), say)
        elif trigger in ENDINGS and self._is_own(line):
            self._end(line, metadata.get("ground"), say)
        elif self.run.is_final(line.of):
            self.run.may_fail_unseen = True

    @property
    def _size(self) -> int:
        """How many steps of the definition the dialect shows."""
        return self.contract.size - len(self.run.final)

    def _is_own(self, line: Line) -> bool:
        """Whether a line about the run was caused by the run's own hop, not by one of a step."""
        return not (line.trigger in ("rules_passed", "cancelled") and line.of is not None)

    def _end(self, line: Line, ground: str | None, say: Say) -> None:
        target = ENDINGS[line.trigger]
        missing = [place.name for place in self.contract.places.values() if self._is_missing(place)]
        if missing:
            say(Code.ENDING, f"the run ends {quoted(target)}, but step {quoted(missing[0])} has not ended in this log")
        if self.run.tolerated_failures and target == "succeeded":
            say(Code.ENDING, "the run succeeds, but a step in it failed")
        self.may_have_stopped |= self.state not in ("stopping", "compensating")
        self._notice_stop(line, ground)
        if line.trigger.startswith(("stopped", "undo")):
            self._before_end(line, say)
            check_ground(self.run, line, ground, say)
            if self.run.is_stop_unseen:
                check_hidden_blame(self.run, line, ground, say)
        self._check_cancelled(line, ground, say)
        self._check_doubts(line, say)
        if target == "succeeded" and self._is_start_seen:
            # A dialect hides that a run stops, after which reports still count; one that succeeds has not stopped.
            self.run.check_in_time(line, say)
        if line.trigger == "rules_passed" and (line.category, line.error) != (None, None):
            said = wrong_field("category or error", line.category or line.error, None, "it succeeded")
            say(Code.ENDING, f"the run: {said}")
        if line.trigger == "cancelled":
            self.run.run_hop(_replaced(line, "idle" if self.state == "idle" else "running", target), say)
        elif line.trigger != "rules_passed":
            self.run.run_hop(_replaced(line, self.state, target), say)
        self.state = target

    def _check_cancelled(self, line: Line, ground: str | None, say: Say) -> None:
        """Every step that was cancelled names the stop that the end names."""
        if line.trigger == "rules_passed":
            return
        expected = "run_cancelled" if line.trigger == "cancelled" else cancelled_after(stop_of(line, ground))
        if self._cancelled_as - {expected}:
            said = f"steps were cancelled as {', '.join(sorted(map(str, self._cancelled_as)))}"
            say(Code.ENDING, f"the run ends by {quoted(line.trigger)}, but {said}, expected {quoted(expected)}")

    def _check_doubts(self, line: Line, say: Say) -> None:
        """A run that is cancelled at once calls its children back; one that stopped before that leaves them."""
        for name, in_doubt in self._in_doubt.items():
            if in_doubt is (line.trigger == "cancelled"):
                said = "in doubt about its child" if in_doubt else "not in doubt about its child"
                say(Code.ENDING, f"the run ends by {quoted(line.trigger)}, but step {quoted(name)} is {said}")

    def _notice_stop(self, line: Line, ground: str | None) -> None:
        """The run had stopped before the failure that seemed to stop it: for its timeout, or to be undone."""
        self.run.is_stop_unseen |= self.may_have_stopped and stop_of(line, ground) in HIDEABLE

    def _before_end(self, line: Line, say: Say) -> None:
        """The hops between the last step and the end that no dialect shows."""
        if self.state not in ("stopping", "compensating"):
            if self.run.tolerated_failures:
                self._derive_run("steps_failed", line, None, say)
            else:
                self.run.stop_unseen()
            self.state = "stopping"
        if self.state == "stopping" and line.trigger.startswith("undo"):
            self._derive_undo(line, say)
            if "undo" not in self._views:
                self.run.hooks, self.run.are_hooks_unseen = [], True

    def _is_missing(self, place: Place) -> bool:
        step = self.steps.get(place.no)
        if place.phase != "main" or place.no in self.run.final:
            return False
        return step is None or step.state not in ENDED

    # -- fields that only dialect lines have -------------------------------------------------------------------------
    def _check_shape(self, told: DialectLine, hop: Line, place: Place, said: Mapping[str, Any], say: Say) -> None:
        is_retried = hop.target == "retrying" and (hop.trigger != "lease_lost" or place.retry.counts_losses)
        retries = None if hop.attempt is None else hop.attempt - (not is_retried)
        expected: dict[str, Any] = {
            "retry_count": retries,
            "worker": hop.actor if hop.trigger == "claimed" else None,
        }
        if told.source is None and place.rule is not None:
            expected |= dict.fromkeys(FACTS) | _facts(place)
        for name, follows in expected.items():
            if said.get(name) != follows:
                why = "the definition" if name in FACTS else "the rest of the line"
                say(Code.CONTRADICTION, f"step {quoted(hop.step)}: {wrong_field(name, said.get(name), follows, why)}")
        if told.raw["severity"] != severity_of(hop):
            found = told.raw["severity"]
            say(Code.CONTRADICTION, f"severity is {quoted(found)}, expected {quoted(severity_of(hop))}: its trigger")

    def _check_ground(self, said: Mapping[str, Any], allowed: tuple[str | None, ...], title: str, say: Say) -> None:
        if said.get("ground") not in allowed:
            expected = " or ".join(map(str, allowed))
            found = wrong_field("ground", said.get("ground"), expected, "that is why it happened")
            say(Code.CAUSE, f"{title}: {found}")

    def _check_run_shape(self, told: DialectLine, line: Line, said: Mapping[str, Any], say: Say) -> None:
        document = self.contract.document
        if told.source is None:
            facts = {"workflow": document.name, "version": document.version, "steps": self._size}
            for name, follows in facts.items():
                if said.get(name) != follows:
                    say(Code.CONTRADICTION, f"the run: {wrong_field(name, said.get(name), follows, 'the definition')}")
        critical = told.target == self._judged.run.shows.get("failed")
        severity = "critical" if critical else "info"
        if told.raw["severity"] != severity:
            found = told.raw["severity"]
            say(Code.CONTRADICTION, f"severity is {quoted(found)}, expected {quoted(severity)}: its state")

    def close(self, told: DialectLine, say: Say) -> None:
        """Follow the closing line."""
        said = told.raw["metadata"]
        self._begin(told, said, say)
        self._end_entry(say)
        canonical = said["canonical"]
        if (self.state in RUN_ENDED or canonical in RUN_ENDED) and canonical != self.state:
            expected = self.state if self.state in RUN_ENDED else "a state that is no end"
            say(Code.HEAD, wrong_field("canonical", canonical, expected, "the lines before it"))
        if told.raw["severity"] != "info":
            say(Code.CONTRADICTION, f"severity is {quoted(told.raw['severity'])}, expected 'info': a closing line")
        planned = sum(step.phase == "main" and no < self.contract.size for no, step in self.steps.items())
        if planned != self._size:
            said_so = f"{planned} of {self._size} steps of the definition are in this log"
            say(Code.DEFINITION, f"steps are missing: {said_so}")


OTHER_WAYS = frozenset({"completed", "completion_succeeded", "children_succeeded"})
"""How a step comes to its rules without a decision about it."""


WITHOUT_ADDED = OTHER_WAYS - {"children_succeeded"} | {"wait_satisfied", "operator_completed"}
"""How a step comes to its rules without awaiting the steps that its handler added."""


def _is_completed_by_person(line: Line) -> bool:
    """Whether a decision about a stuck step completed it: it passes its rules in the same entry."""
    return line.trigger == "rules_passed" and line.event in ("step_decided", "hold_decided")


def _leaves(line: Line, format_: int) -> str | None:
    """The canonical state that a hop must leave, where its fields tell."""
    if line.trigger == "cancelled" and line.took is not None and (line.event != "step_reported" or line.of is not None):
        # An attempt that is closed while its handler runs is in doubt and says so; rules have no effect to doubt.
        if line.error is None:
            return "validating" if format_ >= JOURNAL_FORMAT else None
        return "running" if line.error == IN_DOUBT else None
    if line.trigger == "cancelled" and line.error == CHILD_IN_DOUBT:
        return "awaiting_children"
    if line.trigger == "cancelled":
        return "running" if line.category is not None else None
    if line.trigger in ("deadline_passed", "deadline_tolerated"):
        return left_by(line.error)
    if line.event == "hold_decided" and line.trigger in OPERATED:
        return "awaiting_approval"
    reports = line.trigger in ("failed", "failed_tolerated") and line.event == "step_reported"
    return "running" if reports else None


def _is_final(place: Place, judged: Judged) -> bool:
    """Whether the dialect tells this step in the state of the run."""
    executor = None if place.rule is None or place.phase != "main" else place.rule.executor
    return executor is not None and executor.kind == "python" and executor.name in judged.final


FACTS = ("kind", "order", "depends_on", "max_attempts", "on_failure", "completion")


def _facts(place: Place) -> dict[str, Any]:
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
    """A dialect's line as a canonical one; its canonical states are filled in later."""
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


def _replaced(line: Line, source: str | None, target: str) -> Line:
    return replace(line, source=None if source == NEW else source, target=target)
