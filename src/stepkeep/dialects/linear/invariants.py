"""The invariants of seed 002, as checkers over the lines of an instance's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of a step gives its sequence number and its limit.
"""

from __future__ import annotations

from stepkeep.dialects.dialect import Say
from stepkeep.dialects.timeline import (
    ShownChange,
    Timeline,
    decided_in_time,
    invariants,
    late_enough,
    reclaimed_after_its_lease,
)

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELED"})
ACTIVE = frozenset({"READY", "RUNNING", "WAITING"})

START = "002 Start Flow"
SCOPE = "002 Scope"
RECOVERY = "002 Tick Flow 1) Lease Recovery: locked_until < now"
TIMEOUT = "002 Tick Flow 3) Claim Timed-out WAITING Steps: deadline_at <= now"
CLAIM = "002 Tick Flow 2) Claim READY Steps"
GUARD = "002 Execution Result Handling: the lease condition"
COMPLETED = "002 A) Completed"
RETRY = "002 C) Retry"
DEAD = "002 D) Dead"


class LinearTimeline(Timeline):
    """The instance and its steps; which of these are active, how far it got, and under which fence each runs."""

    def __init__(self) -> None:
        super().__init__()
        self.by_seq: dict[int, str] = {}
        self.active: dict[str, None] = {}
        self.reached = -1
        self.fences: dict[str, int] = {}
        self.died: tuple[str, int] | None = None
        self.cancelled_in: int | None = None
        self.awaits_slot = False
        """Whether the engine made the instance wait for an execution slot before its first step."""

    def take(self, change: ShownChange) -> None:
        super().take(change)
        name, said = change.step, change.facts
        self.awaits_slot = self.awaits_slot or "awaits_slot" in (said.get("detail") or ())
        if name:
            self.by_seq.setdefault(self.seq(name), name)
            self.active.pop(name, None)
            if change.target in ACTIVE:
                self.active[name] = None
            if change.target != "PENDING":
                self.reached = max(self.reached, self.seq(name))
            if change.target == "RUNNING":
                self.fences[name] = said["fence"]
            if change.target == "DEAD":
                self.died = name, said["seq"]
        elif change.enters_run("CANCELED") and said["because"] == "stopped_cancelled":
            self.cancelled_in = said["seq"]

    def seq(self, name: str) -> int:
        return int(self.facts[name]["order"])

    def before(self, name: str) -> str | None:
        """The step whose sequence number is one less."""
        return self.by_seq.get(self.seq(name) - 1)

    def activates(self, change: ShownChange) -> bool:
        """Whether a step becomes active for the first time."""
        return change.enters(*ACTIVE) and self.steps.get(change.step) == "PENDING"


def _fully_inserted(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.step and change.source is None:
        if change.facts["order"] != len(timeline.facts):
            say(f"step {change.step} has stepSeq {change.facts['order']} where {len(timeline.facts)} is next")
        if timeline.run is not None:
            say(f"step {change.step} is inserted after the instance was started")
    elif change.enters_run("RUNNING") and change.facts["steps"] != len(timeline.facts):
        say(f"the instance is started with {len(timeline.facts)} of its {change.facts['steps']} steps")


def _first_step_is_ready(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.is_head and timeline.run not in (None, "CANCELED") and not timeline.awaits_slot:
        waiting = [name for name in timeline.having("PENDING") if timeline.seq(name) == 0]
        if waiting:
            say(f"the instance was started and its first step {waiting[0]} is still PENDING")


def _one_step_at_a_time(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.enters(*ACTIVE):
        name = change.step
        other = next((one for one in timeline.active if one != name), None)
        if other is not None:
            say(f"step {name} becomes {change.target} while {other} is {timeline.steps[other]}")


def _activated_by_its_predecessor(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if not timeline.activates(change):
        return
    before = timeline.before(change.step)
    if before is not None and timeline.steps[before] != "DONE":
        say(f"step {change.step} is activated while {before} before it is {timeline.steps[before]}")
    if before is None and timeline.seq(change.step) != 0:
        say(f"step {change.step} is activated, and there is no step before it")


def _pointer_moves_by_one(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    """`current_step_seq` is the step that was activated last: it never goes back and never jumps."""
    if not timeline.activates(change):
        return
    if timeline.seq(change.step) != timeline.reached + 1:
        say(f"current_step_seq goes from {timeline.reached} to {timeline.seq(change.step)}")


def _running_by_a_claim(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.enters("RUNNING"):
        said = change.facts
        if said["because"] != "claimed" or not said.get("worker"):
            say(f"step {change.step} is RUNNING without a claim")
        elif said["fence"] <= timeline.fences.get(change.step, 0):
            say(f"step {change.step} is claimed under fence {said['fence']} a second time")


def _timed_out_at_its_deadline(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    late_enough(timeline, change, say)
    if change.enters("RUNNING") and timeline.steps.get(change.step) == "WAITING":
        deadline, at = timeline.last[change.step].get("due_at"), change.facts["at"]
        if deadline is None or at < deadline:
            say(f"step {change.step} is claimed at {at} while it waits, and its deadline_at is {deadline}")


def _only_the_holder_writes(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.step and timeline.steps.get(change.step) == "RUNNING" and change.target != "RUNNING":
        held, written = timeline.fences[change.step], change.facts["fence"]
        if held != written:
            say(f"step {change.step} is held under fence {held} and was written under {written}")


def _completed_means_all_done(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("COMPLETED") and (rest := timeline.lacking("DONE")):
        say(f"the instance is COMPLETED while {rest[0]}")


def _retries_within_the_limit(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.enters("READY") and timeline.steps.get(change.step) == "RUNNING":
        attempt, most = change.facts["attempt"], timeline.facts[change.step]["max_attempts"]
        counted = change.facts["because"] in {"retry_scheduled", "lease_lost"}
        if counted and attempt >= most:
            say(f"step {change.step} is tried again after attempt {attempt} of {most}")


def _dead_fails_the_instance(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("FAILED") and (timeline.died or ("", 0))[1] != change.facts["seq"]:
        say("the instance is FAILED, and no step died in that transaction")
    # A cancel that waited for the step came first; it ends the instance in the transaction in which the step fails.
    if (
        change.is_head
        and timeline.died is not None
        and timeline.run != "FAILED"
        and timeline.died[1] != timeline.cancelled_in
    ):
        say(f"step {timeline.died[0]} is DEAD and the instance is {timeline.run}")


def _nothing_after_the_end(timeline: LinearTimeline, change: ShownChange, say: Say) -> None:
    if timeline.run in ENDED and not change.is_head:
        say(f"the instance is {timeline.run}, and {change.entity} moves on")


INVARIANTS = invariants(
    LinearTimeline,
    ("step", "instance"),
    (
        ("all steps are inserted before the start", START, _fully_inserted),
        ("the first step is activated by the start", START, _first_step_is_ready),
        ("one step is active at a time", SCOPE, _one_step_at_a_time),
        ("a step is activated when the one before is DONE", COMPLETED, _activated_by_its_predecessor),
        ("current_step_seq moves by one", COMPLETED, _pointer_moves_by_one),
        ("RUNNING is reached by a claim alone", CLAIM, _running_by_a_claim),
        ("a lease is recovered when it has expired", RECOVERY, reclaimed_after_its_lease),
        ("a wait times out at its deadline", TIMEOUT, _timed_out_at_its_deadline),
        ("what comes after the deadline does not count", TIMEOUT, decided_in_time),
        ("only the holder of the lease writes", GUARD, _only_the_holder_writes),
        ("COMPLETED means that all steps are DONE", COMPLETED, _completed_means_all_done),
        ("retries respect max_attempts", RETRY, _retries_within_the_limit),
        ("a DEAD step fails its instance at once", DEAD, _dead_fails_the_instance),
        ("nothing moves in an instance that has ended", "002 Summary of Full Lifecycle", _nothing_after_the_end),
    ),
)
