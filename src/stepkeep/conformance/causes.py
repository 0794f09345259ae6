"""Checks the cause of each line of a dialect log: its event, its actor, and the hop that it repeats for the run.

One hop of a step may give two lines: one of the step and one of the run. Both must tell the same hop. It reads only
lines of one entry and the creation, and must not follow steps. `retell.py` calls it.
"""

from __future__ import annotations

import json

from stepkeep.conformance.adoption import ADOPTING
from stepkeep.conformance.arrows import RUN, STEP
from stepkeep.conformance.contract import is_element_name
from stepkeep.conformance.dialect_line import DialectLine
from stepkeep.conformance.enabled import CATEGORIES, EVENTS, EVENTS_OF_FLOWS, wrong_field
from stepkeep.conformance.line import Line
from stepkeep.conformance.machines import Say
from stepkeep.conformance.reenact import OPENINGS
from stepkeep.conformance.report import Code, quoted
from stepkeep.dialects.machine import MachineView

SETTLING = (
    "run_started", "step_reported", "time_came", "gate_decided", "gate_reassigned", "hold_decided", "step_decided",
    "completion_signalled", "message_arrived", "child_ended", "slot_granted", "cancel_requested", "unpause_requested",
)  # fmt: skip
"""Events that can end or open a step, or go on with a run, and so move whatever follows from that."""

RUN_CAUSES = {
    "created": ("run_created",),
    "started": ("run_started",),
    "progressed": ("run_started", "slot_granted", "step_claimed", "step_decided"),
    "resumed": (*(event for event in SETTLING[1:-1] if event != "slot_granted"), "step_claimed"),
    "paused": ("pause_requested",),
    "unpaused": ("unpause_requested",),
    "unpaused_queued": ("unpause_requested",),
}
"""The events that can lead to a trigger of the run; the others follow from the end of a step."""

FOLLOWING = frozenset(
    {
        "steps_settled", "rules_passed", "step_failed", "steps_failed", "stopped_failed", "stopped_cancelled", "undone",
        "undo_failed",
    }
)  # fmt: skip
"""Triggers of the run that follow from the hop of a step in the same entry, and have its cause."""

NEVER_FIRST = FOLLOWING | {"waiting", "undo_started", "rules_failed"}
"""Triggers of the run that never are the first hop of a cause."""

FOLLOWING_STEPS = OPENINGS | ADOPTING | {"planned", "dependency_unmet"}
"""Triggers of a step that never are the first hop of a cause."""

DETAILED = {
    "cancel_requested": {"compensate"},
    "gate_decided": {"decision", "step"},
    "completion_signalled": {"outcome", "step"},
    "message_arrived": {"id", "name"},
    "child_ended": {"step", "child", "state"},
}
"""What an event always brings in its detail, on the first line that shows a hop of its cause."""

WAITED = {"takes_timeouts", "waits_for"}
"""What the report of a handler that waits brings in its detail; other reports bring nothing for certain."""

ONCE = {"run_created": "created", "run_started": "started"}
"""Events that a run has once, in one entry and by one actor."""

ENDS = frozenset({"rules_passed", "stopped_failed", "stopped_cancelled", "undone", "undo_failed", "cancelled"})
"""Triggers that end a run, where no step is their reason."""

STOPPING = frozenset(
    {
        "cancelled",
        "failed",
        "rules_failed",
        "deadline_passed",
        "rejected",
        "completion_failed",
        "children_failed",
        "condition_broken",
        "denied",
    }
)
"""Ends of a step after which a rollback in the same entry has the same cause."""

OF_OWNERS = frozenset({"children_failed", "children_failed_tolerated"})
"""Ends of a step that may own elements, whatever ended the last of them; the line of the step itself is compared."""

BEGINNINGS = ("created", "started", "progressed")
"""Triggers after which every dialect shows the state of the run itself."""

RUN_TRIGGERS = frozenset(trigger for trigger, _ in RUN)
STEP_TRIGGERS = frozenset(trigger for trigger, _ in STEP)
OWN_TRIGGERS = RUN_TRIGGERS - STEP_TRIGGERS - {"step_failed"}
"""Triggers of the run that name no step."""

FAILING = frozenset({trigger for trigger, _ in CATEGORIES} | {"lease_lost"})
"""Triggers of a step that may have a category or an error."""

ECHOED = ("trigger", "event", "actor", "category", "error")


class Causes:
    """The causes of one run's lines so far."""

    def __init__(self, run: MachineView, *, is_checked: bool) -> None:
        """Where a final check may run, its hops are hidden between the last step and the end of the run."""
        self._run, self._is_checked = run, is_checked
        self._origins: dict[str, tuple[int, str]] = {}
        self._before: tuple[str, Line, int] | None = None

    def check(self, told: DialectLine, line: Line, hop: int, say: Say, *, tells_waits: bool = True) -> None:
        """Check the cause of a line. `tells_waits`: the format of the journal has what a handler waits for."""
        before, self._before = self._before, (told.kind, line, hop)
        self._check_origin(line, say)
        if line.detail is not None or not _is_continued(before, line):
            self._check_detail(line, tells_waits, say)
        if line.detail is not None and before is not None and _is_continued(before, line):
            self._check_told(before, line, hop, say)
        if told.kind == "run":
            self._check_run(told, line, say)
            if before is not None and before[1].seq == line.seq and self._follows(before, line, hop):
                self._check_same_cause(before[1], line, say)
        elif line.trigger not in EVENTS:
            self._check_event(line, ("run_created",) if _is_created(line) else SETTLING, say)
        if before is not None and before[1].seq == line.seq and before[2] == hop:
            self._check_echo(before, told, line, say)

    def _follows(self, before: tuple[str, Line, int], line: Line, hop: int) -> bool:
        """Whether the hop of the line before led to this one: its trigger tells, or no hop is hidden between them."""
        if line.event == "unpause_requested":
            return False  # it follows from the end of the pause, which most dialects hide
        if line.event == "cancel_requested" and (before[1].event in ONCE or hop > before[2] + 1):
            return False  # what starts, or was decided about, and is cancelled in one entry: dialects hide the stop
        if line.trigger in NEVER_FIRST and hop == before[2] + 1:
            return True
        if line.trigger in FOLLOWING_STEPS and line.of is not None:
            return hop == before[2] + 1 and not _is_retried(before[1], line)
        if line.trigger == "undo_started":
            return before[1].about == "step" and before[1].trigger in STOPPING
        return line.trigger in FOLLOWING and not self._is_checked

    def _check_origin(self, line: Line, say: Say) -> None:
        done = ONCE.get(line.event)
        if done is None:
            return
        origin = line.seq, line.actor
        if self._origins.setdefault(line.event, origin) != origin:
            say(Code.CAUSE, f"the run was {done} in entry {line.seq} by {quoted(line.actor)}, and before that already")

    def _check_detail(self, line: Line, tells_waits: bool, say: Say) -> None:
        waits = line.trigger == "waited"
        needed = DETAILED.get(line.event, set())
        if waits:
            needed = WAITED if tells_waits or line.detail is not None else set()
        missing = sorted(needed - set(json.loads(line.detail or "{}"))) if needed else []
        if missing:
            comes = quoted(line.trigger if waits else line.event)
            said = wrong_field(f"detail.{missing[0]}", None, "a value", f"{comes} comes with one")
            say(Code.CAUSE, said)

    def _check_told(self, before: tuple[str, Line, int], line: Line, hop: int, say: Say) -> None:
        """A detail is on the first line of its cause; no hop is hidden between two hops in succession."""
        in_succession = hop == before[2] + 1 and line.trigger in FOLLOWING_STEPS and not _is_retried(before[1], line)
        follows = self._follows(before, line, hop) if line.about == "run" else in_succession
        if hop == before[2] or follows:
            say(Code.CAUSE, f"metadata.detail is on {quoted(line.trigger)}, but the line before it has the same cause")

    def _check_event(self, line: Line, allowed: tuple[str, ...], say: Say) -> None:
        if line.event not in allowed:
            why = f"only that leads to {quoted(line.trigger)}"
            say(Code.CAUSE, wrong_field("event", line.event, " or ".join(allowed), why))

    def _check_same_cause(self, before: Line, line: Line, say: Say) -> None:
        if (before.event, before.actor) != (line.event, line.actor):
            said = f"{quoted(line.trigger)} has another event or actor than the hop before it, which led to it"
            say(Code.CAUSE, f"the run: {said}")

    def _check_run(self, told: DialectLine, line: Line, say: Say) -> None:
        if line.trigger not in RUN_TRIGGERS | STEP_TRIGGERS:
            say(Code.ILLEGAL, wrong_field("because", line.trigger, "a canonical trigger", "a line has one"))
            return
        if line.of is not None and line.trigger in OWN_TRIGGERS:
            say(Code.CONTRADICTION, wrong_field("of", line.of, None, f"no step is {quoted(line.trigger)}"))
        fails = line.trigger in ENDS or (line.of is not None and line.trigger in FAILING)
        if not fails and (line.category, line.error) != (None, None):
            found = line.category or line.error
            say(Code.CONTRADICTION, wrong_field("category or error", found, None, "nothing failed here"))
        if told.source is None and line.trigger not in ("created", "started", "cancelled"):
            expected = "created, started or cancelled"
            say(Code.ILLEGAL, wrong_field("because", line.trigger, expected, "the run begins here"))
        if line.trigger not in RUN_TRIGGERS and line.of is None:
            say(Code.CONTRADICTION, wrong_field("of", None, "a step", f"a step is {quoted(line.trigger)}"))
        if line.trigger in BEGINNINGS and told.target not in self._shown_by(told, line.trigger):
            say(
                Code.ILLEGAL, f"the run is shown as {quoted(told.target)}, where {quoted(line.trigger)} leads elsewhere"
            )
        begins = told.source == self._run.shows.get("queued") and told.target == self._run.shows.get("running")
        if line.trigger == "waiting" and begins:
            say(Code.ILLEGAL, wrong_field("because", line.trigger, "progressed", "a run waits after it has begun"))
        if line.trigger in ENDS and line.of is None and told.target not in self._run.terminal:
            said = f"the run is shown as {quoted(told.target)}, where {quoted(line.trigger)} ends it"
            say(Code.ILLEGAL, said)
        of_step = line.of is not None and line.trigger in EVENTS and line.trigger not in OF_OWNERS
        events = EVENTS_OF_FLOWS.get(line.trigger) or EVENTS.get(line.trigger, ()) if of_step else None
        self._check_event(line, events or RUN_CAUSES.get(line.trigger, SETTLING), say)

    def _shown_by(self, told: DialectLine, trigger: str) -> set[str | None]:
        return {self._run.next_shown(told.source, target, trigger) for name, target in RUN if name == trigger}

    def _check_echo(self, before: tuple[str, Line, int], told: DialectLine, line: Line, say: Say) -> None:
        """Two lines of one hop: first the step's, then the run's."""
        kind, step, hop = before
        if kind == "run" or told.kind != "run":
            say(Code.ORDER, wrong_field("hop", hop, f"more than {hop}", "the line before it has that hop"))
            return
        if line.of != step.step:
            say(Code.CONTRADICTION, wrong_field("of", line.of, step.step, "the line before it is the same hop"))
        for name in ECHOED:
            if getattr(line, name) != getattr(step, name):
                shown, found, expected = (
                    "because" if name == "trigger" else name,
                    getattr(line, name),
                    getattr(step, name),
                )
                say(Code.CONTRADICTION, wrong_field(shown, found, expected, "the line before it is the same hop"))


def _is_continued(before: tuple[str, Line, int] | None, line: Line) -> bool:
    """Whether the line before it has the same cause, as far as a dialect's log can tell."""
    return before is not None and (before[1].seq, before[1].event, before[1].actor) == (
        line.seq,
        line.event,
        line.actor,
    )


def _is_retried(before: Line, line: Line) -> bool:
    """Whether policy decides about another attempt whose time came: that is a cause of its own for each step. The step
    that the line before is about may be retried because of that."""
    of_policy = line.trigger in ("held", "denied", "denied_tolerated")
    return of_policy and line.event == "time_came" and line.attempt is not None and before.step != line.step


def _is_created(line: Line) -> bool:
    is_later = (line.step or "").startswith(("undo:", "check:")) or is_element_name(line.step)
    return line.trigger == "planned" and not is_later
