"""The invariants of seed 001, as checkers over the lines of a run's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of a step gives its kind, position and limit.
"""

from __future__ import annotations

from heapq import heappop, heappush

from stepkeep.dialects.dialect import Say
from stepkeep.dialects.timeline import ShownChange, Timeline, decided_in_time, invariants, reclaimed_after_its_lease

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})
SETTLED = ENDED | {"SKIPPED"}
BEGUN = frozenset({"RUNNING", "WAITING_APPROVAL", "SUCCEEDED"})
ADOPTED = "adopted", "run_created"
"""The trigger and the event by which a run takes the result of an earlier one."""

APPROVAL = "001 Approval only from WAITING_APPROVAL"
WORKERS = "001 Worker never executes APPROVAL"
RECLAIMING = "001 Reclaiming stale RUNNING steps"
ORDERING = "001 Ordering constraints from templates"
RETRIES = "001 Retries and exponential backoff"


class RunTimeline(Timeline):
    """The run and its steps; the highest position, and when steps failed or the run was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.failed_in: dict[str, int] = {}
        self.cancelled_in: int | None = None
        self.highest = -1
        self.references: frozenset[str] = frozenset()
        self._behind: list[tuple[int, str]] = []

    def take(self, change: ShownChange) -> None:
        name, is_new = change.step, change.step not in self.facts
        super().take(change)
        if name:
            if is_new:
                self.highest = max(self.highest, self.position(name))
                heappush(self._behind, (self.position(name), name))
            if change.target == "FAILED":
                self.failed_in[name] = change.facts["seq"]
        elif change.is_run and change.source is None:
            self.references = _references(change)
        elif change.enters_run("CANCELED") and change.facts["because"] == "stopped_cancelled":
            self.cancelled_in = change.facts["seq"]

    def position(self, name: str) -> int:
        return int(self.facts[name]["order"])

    def first_behind(self) -> str | None:
        """The step at the lowest position that has not SUCCEEDED. A heap, so that a claim in a long run needs no
        scan."""
        while self._behind and self.steps[self._behind[0][1]] == "SUCCEEDED":
            heappop(self._behind)
        return self._behind[0][1] if self._behind else None

    def is_gate(self, change: ShownChange) -> bool:
        facts = self.facts.get(change.step) or change.facts
        return bool(change.step) and bool(facts["kind"] == "approval")

    def passes_gate(self, change: ShownChange) -> bool:
        """Whether a gate is passed in this run: not one that was passed in an earlier run, which the creation of this
        one names."""
        if not change.enters("SUCCEEDED") or not self.is_gate(change):
            return False
        is_adopted = change.source is None and (change.facts["because"], change.facts["event"]) == ADOPTED
        return not (is_adopted and change.step in self.references)


def _references(change: ShownChange) -> frozenset[str]:
    """The steps that a run adopts, as its creation says."""
    continues = change.facts.get("detail", {}).get("continues", {})
    return frozenset(item["step"] for item in continues.get("adopted", ()))


def _approved_from_waiting(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if not timeline.passes_gate(change):
        return
    name, before = change.step, timeline.steps.get(change.step)
    if before != "WAITING_APPROVAL":
        say(f"the gate {name} is approved while it is {before}")


def _approved_by_people(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if timeline.passes_gate(change):
        event = change.facts["event"]
        if event != "gate_decided":
            say(f"the gate {change.step} passed by {event}, not by an approval")


def _no_worker_at_a_gate(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if not timeline.is_gate(change):
        return
    if change.target == "RUNNING" or "worker" in change.facts or "fence" in change.facts:
        say(f"a worker executes the gate {change.step}")


def _created_in_position_order(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if change.step and change.source is None and int(change.facts["order"]) <= timeline.highest:
        said = f"step {change.step} at position {change.facts['order']}"
        say(f"{said} is created after position {timeline.highest}")


def _after_all_earlier(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if not change.enters(*BEGUN) or change.step not in timeline.facts:
        return
    first = timeline.first_behind()
    if first is not None and timeline.position(first) < timeline.position(change.step):
        say(f"step {change.step} is {change.target} while {first} before it is {timeline.steps[first]}")


def _succeeded_means_all_did(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if change.enters_run("SUCCEEDED") and (rest := timeline.lacking("SUCCEEDED")):
        say(f"the run is SUCCEEDED while {rest[0]}")


def _within_attempts(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if change.enters("RUNNING") and change.step in timeline.facts:
        attempt, most = change.facts["attempt"], timeline.facts[change.step]["max_attempts"]
        if attempt > most:
            say(f"step {change.step} is claimed for attempt {attempt} of {most}")


def _failure_fails_the_run(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if not change.is_head:
        return
    failed = timeline.having("FAILED")
    # A cancel that waited for a step came first; it ends the run in the transaction in which the step fails.
    alone = [name for name in failed if timeline.failed_in[name] != timeline.cancelled_in]
    if alone and timeline.run != "FAILED":
        say(f"step {alone[0]} is FAILED and the run is {timeline.run}")
    if timeline.run == "FAILED" and not failed:
        say("the run is FAILED and no step is")


def _nothing_after_the_end(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if timeline.run in ENDED and not change.is_head:
        say(f"the run is {timeline.run}, which is terminal, and {change.entity} moves on")


def _cancel_ends_every_step(timeline: RunTimeline, change: ShownChange, say: Say) -> None:
    if change.is_head and timeline.run == "CANCELED" and (left := timeline.lacking(*SETTLED)):
        say(f"the run is CANCELED while {left[0]}")


INVARIANTS = invariants(
    RunTimeline,
    ("step", "run"),
    (
        ("approval only from WAITING_APPROVAL", APPROVAL, _approved_from_waiting),
        ("approval is a person's", WORKERS, _approved_by_people),
        ("an approval is in time", APPROVAL, decided_in_time),
        ("a step is reclaimed when it is stale", RECLAIMING, reclaimed_after_its_lease),
        ("no worker executes a gate", WORKERS, _no_worker_at_a_gate),
        ("steps are created in position order", ORDERING, _created_in_position_order),
        ("a step begins when all earlier ones SUCCEEDED", ORDERING, _after_all_earlier),
        ("a run succeeds when all its steps did", "001 Run transitions: RUNNING → SUCCEEDED", _succeeded_means_all_did),
        ("attempts stay within max_attempts", RETRIES, _within_attempts),
        ("a run fails when a step does, and only then", RETRIES, _failure_fails_the_run),
        ("nothing moves in a run that has ended", "001 Run transitions: Terminal", _nothing_after_the_end),
        ("a cancel ends every step", "001 Step transitions: Run cancel", _cancel_ends_every_step),
    ),
)
