"""The invariants of seed 001, as checkers over the lines of a run's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of a step gives its kind, position and limit.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from stepkeep.dialects.dialect import Invariant, Line, Say

ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELED"})
SETTLED = ENDED | {"SKIPPED"}
BEGUN = frozenset({"RUNNING", "WAITING_APPROVAL", "SUCCEEDED"})

APPROVAL = "001 Approval only from WAITING_APPROVAL"
WORKERS = "001 Worker never executes APPROVAL"
ORDERING = "001 Ordering constraints from templates"
RETRIES = "001 Retries and exponential backoff"

Look = Callable[["Story", Line, Say], None]


class Story:
    """The state of the run and its steps before the current line."""

    def __init__(self) -> None:
        self.run: str | None = None
        self.steps: dict[str, str] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.failed_in: dict[str, int] = {}
        self.cancelled_in: int | None = None
        self.highest = -1
        self._behind: list[tuple[int, str]] = []

    def take(self, line: Line) -> None:
        if is_step(line):
            name = step_of(line)
            if name not in self.facts:
                self.facts[name] = dict(line["metadata"])
                self.highest = max(self.highest, self.position(name))
                heappush(self._behind, (self.position(name), name))
            self.steps[name] = line["to_state"]
            if line["to_state"] == "FAILED":
                self.failed_in[name] = line["metadata"]["seq"]
        elif is_run(line):
            self.run = line["to_state"]
            if line["to_state"] == "CANCELED" and line["metadata"]["because"] == "stopped_cancelled":
                self.cancelled_in = line["metadata"]["seq"]

    def position(self, name: str) -> int:
        return int(self.facts[name]["order"])

    def first_behind(self) -> str | None:
        """The step at the lowest position that has not SUCCEEDED. A heap, so that a claim in a long run needs no
        scan."""
        while self._behind and self.steps[self._behind[0][1]] == "SUCCEEDED":
            heappop(self._behind)
        return self._behind[0][1] if self._behind else None

    def is_gate(self, line: Line) -> bool:
        facts: dict[str, Any] = self.facts.get(step_of(line), {}) or dict(line["metadata"])
        return bool(facts["kind"] == "approval")


def is_step(line: Line) -> bool:
    return bool(line["event_type"] == "step_state_transition")


def is_run(line: Line) -> bool:
    return bool(line["event_type"] == "run_state_transition")


def is_head(line: Line) -> bool:
    return bool(line["event_type"] == "journal_head")


def step_of(line: Line) -> str:
    return str(line["metadata"]["step"])


def _watching(look: Look) -> Callable[[Say], Callable[[Line], None]]:
    """A checker that keeps the timeline and sees each line before it is added."""

    def check(say: Say) -> Callable[[Line], None]:
        story = Story()

        def feed(line: Line) -> None:
            look(story, line, say)
            story.take(line)

        return feed

    return check


def _approved_from_waiting(story: Story, line: Line, say: Say) -> None:
    if not is_step(line) or line["to_state"] != "SUCCEEDED" or not story.is_gate(line):
        return
    name, before = step_of(line), story.steps.get(step_of(line))
    if before != "WAITING_APPROVAL":
        say(f"the gate {name} is approved while it is {before}")


def _approved_by_people(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["to_state"] == "SUCCEEDED" and story.is_gate(line):
        event = line["metadata"]["event"]
        if event != "gate_decided":
            say(f"the gate {step_of(line)} passed by {event}, not by an approval")


def _no_worker_at_a_gate(story: Story, line: Line, say: Say) -> None:
    if not is_step(line) or not story.is_gate(line):
        return
    if line["to_state"] == "RUNNING" or "worker" in line["metadata"] or "fence" in line["metadata"]:
        say(f"a worker executes the gate {step_of(line)}")


def _created_in_position_order(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["from_state"] is None and int(line["metadata"]["order"]) <= story.highest:
        said = f"step {step_of(line)} at position {line['metadata']['order']}"
        say(f"{said} is created after position {story.highest}")


def _after_all_earlier(story: Story, line: Line, say: Say) -> None:
    if not is_step(line) or line["to_state"] not in BEGUN or step_of(line) not in story.facts:
        return
    first = story.first_behind()
    if first is not None and story.position(first) < story.position(step_of(line)):
        say(f"step {step_of(line)} is {line['to_state']} while {first} before it is {story.steps[first]}")


def _succeeded_means_all_did(story: Story, line: Line, say: Say) -> None:
    if is_run(line) and line["to_state"] == "SUCCEEDED":
        rest = [f"{name} is {state}" for name, state in story.steps.items() if state != "SUCCEEDED"]
        if rest:
            say(f"the run is SUCCEEDED while {rest[0]}")


def _within_attempts(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["to_state"] == "RUNNING" and step_of(line) in story.facts:
        attempt, most = line["metadata"]["attempt"], story.facts[step_of(line)]["max_attempts"]
        if attempt > most:
            say(f"step {step_of(line)} is claimed for attempt {attempt} of {most}")


def _failure_fails_the_run(story: Story, line: Line, say: Say) -> None:
    if not is_head(line):
        return
    failed = [name for name, state in story.steps.items() if state == "FAILED"]
    # A cancel that waited for a step came first; it ends the run in the transaction in which the step fails.
    alone = [name for name in failed if story.failed_in[name] != story.cancelled_in]
    if alone and story.run != "FAILED":
        say(f"step {alone[0]} is FAILED and the run is {story.run}")
    if story.run == "FAILED" and not failed:
        say("the run is FAILED and no step is")


def _nothing_after_the_end(story: Story, line: Line, say: Say) -> None:
    if story.run in ENDED and not is_head(line):
        say(f"the run is {story.run}, which is terminal, and {line['entity_id']} moves on")


def _cancel_ends_every_step(story: Story, line: Line, say: Say) -> None:
    if is_head(line) and story.run == "CANCELED":
        left = [f"{name} is {state}" for name, state in story.steps.items() if state not in SETTLED]
        if left:
            say(f"the run is CANCELED while {left[0]}")


INVARIANTS = tuple(
    Invariant(name, cites, _watching(look))
    for name, cites, look in (
        ("approval only from WAITING_APPROVAL", APPROVAL, _approved_from_waiting),
        ("approval is a person's", WORKERS, _approved_by_people),
        ("no worker executes a gate", WORKERS, _no_worker_at_a_gate),
        ("steps are created in position order", ORDERING, _created_in_position_order),
        ("a step begins when all earlier ones SUCCEEDED", ORDERING, _after_all_earlier),
        ("a run succeeds when all its steps did", "001 Run transitions: RUNNING → SUCCEEDED", _succeeded_means_all_did),
        ("attempts stay within max_attempts", RETRIES, _within_attempts),
        ("a run fails when a step does, and only then", RETRIES, _failure_fails_the_run),
        ("nothing moves in a run that has ended", "001 Run transitions: Terminal", _nothing_after_the_end),
        ("a cancel ends every step", "001 Step transitions: Run cancel", _cancel_ends_every_step),
    )
)
