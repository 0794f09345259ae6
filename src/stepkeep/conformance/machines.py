"""State machines as the judge knows them: its own tables, and the check of one hop.

The tables are arguments, so a dialect's machine is checked by the same code as the canonical one. A test compares them
with the engine's; a row that only one side has is an error. `validate.py` must judge a log without the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from stepkeep.conformance.line import Line
from stepkeep.conformance.report import Code, quoted

MachineData = tuple[Collection[tuple[str | None, str, str]], Collection[str]]
"""The (from, trigger, to) arrows of a machine, and its terminal states."""

Machines = Mapping[str, MachineData]
"""By name: run, step and worker."""

Say = Callable[[Code, str], None]
"""Callback with which a check reports a finding on the current line."""

UNKNOWN = "?"
"""The state of an entity after missing lines: the next line is accepted."""


def check_hop(machine: MachineData, step: str | None, before: str | None, line: Line, say: Say) -> None:
    """Check that a hop is an arrow from the last known state of its entity."""
    arrows, terminal = machine
    legal = (line.source, line.trigger, line.target) in arrows
    if legal and before in (UNKNOWN, line.source):
        return
    name = f"the {line.about}" if step is None else f"step {quoted(step)}"
    hop = f"{name} goes from {quoted(line.source)} by {quoted(line.trigger)} to {quoted(line.target)}"
    if not legal:
        say(Code.ILLEGAL, f"{hop}: there is no such arrow")
    if before in (UNKNOWN, line.source):
        return
    if before is None:
        say(Code.CREATION, f"{hop}, but was never created")
    elif line.source is None:
        say(Code.CREATION, f"{name} is created again")
    elif before in terminal:
        say(Code.TERMINAL, f"{hop}, but had ended {quoted(before)}")
    else:
        say(Code.DISCONTINUOUS, f"{hop}, but was {quoted(before)}")


# -- arrows --------------------------------------------------------------------------------------------------------
NEW = "new"
"""Stands for the state before creation."""

RUN: Mapping[tuple[str, str], str] = {
    ("cancelled", "cancelled"): "blocked idle paused queued running validating",
    ("created", "idle"): "new",
    ("paused", "paused"): "blocked queued running",
    ("progressed", "running"): "queued",
    ("resumed", "running"): "blocked",
    ("rules_failed", "stopping"): "validating",
    ("rules_passed", "succeeded"): "validating",
    ("started", "queued"): "idle",
    ("step_failed", "stopping"): "paused running",
    ("steps_failed", "stopping"): "running",
    ("steps_settled", "validating"): "running",
    ("stopped_cancelled", "cancelled"): "stopping",
    ("stopped_failed", "failed"): "stopping",
    ("timed_out", "stopping"): "blocked paused queued running validating",
    ("undo_failed", "failed"): "compensating",
    ("undo_requested", "stopping"): "blocked paused queued running validating",
    ("undo_started", "compensating"): "stopping",
    ("undone", "rolled_back"): "compensating",
    ("unpaused", "running"): "paused",
    ("unpaused_queued", "queued"): "paused",
    ("waiting", "blocked"): "running",
}
STEP: Mapping[tuple[str, str], str] = {
    ("adopted", "succeeded"): "new",
    ("adopted_skipped", "skipped"): "new",
    ("approved", "succeeded"): "awaiting_approval",
    ("cancelled", "cancelled"): (
        "awaiting_approval awaiting_children awaiting_completion awaiting_event "
        "pending ready retrying running validating"
    ),
    ("children_failed", "failed"): "awaiting_children",
    ("children_failed_tolerated", "skipped"): "awaiting_children",
    ("children_settled", "ready"): "awaiting_children",
    ("children_started", "awaiting_children"): "pending ready running",
    ("children_succeeded", "validating"): "awaiting_children",
    ("claimed", "running"): "ready",
    ("claimed", "validating"): "validating",
    ("code_changed", "ready"): "awaiting_approval",
    ("completed", "validating"): "running",
    ("completion_cancelled", "cancelled"): "awaiting_completion",
    ("completion_failed", "failed"): "awaiting_completion",
    ("completion_failed_tolerated", "skipped"): "awaiting_completion",
    ("completion_requested", "awaiting_completion"): "running",
    ("completion_succeeded", "validating"): "awaiting_completion",
    ("condition_broken", "failed"): "pending",
    ("condition_false", "skipped"): "pending",
    ("deadline_approved", "succeeded"): "awaiting_approval",
    ("deadline_handed_over", "ready"): "awaiting_event",
    ("deadline_passed", "failed"): "awaiting_approval awaiting_children awaiting_completion awaiting_event",
    ("deadline_skipped", "skipped"): "awaiting_approval",
    ("deadline_tolerated", "skipped"): "awaiting_approval awaiting_children awaiting_completion awaiting_event",
    ("decision_recorded", "awaiting_approval"): "awaiting_approval",
    ("changes_requested", "awaiting_approval"): "awaiting_approval",
    ("denied", "failed"): "pending retrying",
    ("denied_tolerated", "skipped"): "pending retrying",
    ("dependencies_met", "ready"): "pending",
    ("dependency_unmet", "skipped"): "pending",
    ("escalated", "awaiting_approval"): "awaiting_approval",
    ("reassigned", "awaiting_approval"): "awaiting_approval",
    ("failed", "failed"): "running validating",
    ("failed_tolerated", "skipped"): "running validating",
    ("gate_opened", "awaiting_approval"): "pending",
    ("held", "awaiting_approval"): "pending retrying running",
    ("held_exhausted", "awaiting_approval"): "running",
    ("held_unfit", "awaiting_approval"): "running",
    ("hold_approved", "ready"): "awaiting_approval",
    ("hold_deadline_approved", "ready"): "awaiting_approval",
    ("lease_lost", "retrying"): "running",
    ("lease_lost", "validating"): "validating",
    ("message_arrived", "ready"): "awaiting_event",
    ("operator_completed", "validating"): "awaiting_approval awaiting_event retrying",
    ("operator_failed", "failed"): "awaiting_approval awaiting_event ready retrying",
    ("operator_failed_tolerated", "skipped"): "awaiting_approval awaiting_event ready retrying",
    ("operator_retried", "ready"): "awaiting_approval",
    ("operator_skipped", "skipped"): "awaiting_approval awaiting_event ready retrying",
    ("planned", "pending"): "new",
    ("rejected", "failed"): "awaiting_approval",
    ("rejected_tolerated", "skipped"): "awaiting_approval",
    ("released", "ready"): "running",
    ("released", "validating"): "validating",
    ("reminded", "awaiting_approval"): "awaiting_approval",
    ("retry_due", "ready"): "retrying",
    ("retry_scheduled", "retrying"): "running",
    ("rules_failed", "failed"): "validating",
    ("rules_failed_tolerated", "skipped"): "validating",
    ("rules_passed", "succeeded"): "validating",
    ("token_reissued", "awaiting_completion"): "awaiting_completion",
    ("slept", "succeeded"): "awaiting_event",
    ("wait_opened", "awaiting_event"): "pending",
    ("wait_satisfied", "succeeded"): "awaiting_event",
    ("waited", "awaiting_event"): "running",
}
WORKER: Mapping[tuple[str, str], str] = {
    ("drain_requested", "draining"): "busy idle",
    ("drained", "shutdown"): "draining",
    ("given_up", "shutdown"): "unresponsive",
    ("heard_again", "idle"): "unresponsive",
    ("heartbeats_missed", "unresponsive"): "busy draining idle",
    ("registered", "idle"): "initializing",
    ("start_failed", "shutdown"): "initializing",
    ("started", "initializing"): "new",
    ("task_assigned", "busy"): "idle",
    ("tasks_finished", "idle"): "busy",
}
"""(trigger, target): the states that the arrow leaves."""


def _machine(rows: Mapping[tuple[str, str], str], *ended: str) -> MachineData:
    arrows = {
        (None if source == NEW else source, trigger, target)
        for (trigger, target), sources in rows.items()
        for source in sources.split()
    }
    return frozenset(arrows), frozenset(ended)


REFERENCE: Machines = {
    "run": _machine(RUN, "succeeded", "failed", "cancelled", "rolled_back"),
    "step": _machine(STEP, "succeeded", "failed", "skipped", "cancelled"),
    "worker": _machine(WORKER, "shutdown"),
}
