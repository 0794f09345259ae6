"""The invariants of seed 002, as checkers over the lines of an instance's log.

Plain functions over plain data: the judge calls them with each line in order. They share nothing with the engine. The
first line of a step gives its sequence number and its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepkeep.dialects.dialect import Invariant, Line, Say

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELED"})
ACTIVE = frozenset({"READY", "RUNNING", "WAITING"})

START = "002 Start Flow"
SCOPE = "002 Scope"
CLAIM = "002 Tick Flow 2) Claim READY Steps"
GUARD = "002 Execution Result Handling: the lease condition"
COMPLETED = "002 A) Completed"
RETRY = "002 C) Retry"
DEAD = "002 D) Dead"

Look = Callable[["Story", Line, Say], None]


class Story:
    """The state of the instance and its steps before the current line."""

    def __init__(self) -> None:
        self.instance: str | None = None
        self.announced: int | None = None
        self.steps: dict[str, str] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.by_seq: dict[int, str] = {}
        self.active: dict[str, None] = {}
        self.reached = -1
        self.fences: dict[str, int] = {}
        self.died: tuple[str, int] | None = None
        self.cancelled_in: int | None = None

    def take(self, line: Line) -> None:
        if is_step(line):
            name, said = step_of(line), line["metadata"]
            self.facts.setdefault(name, dict(said))
            self.by_seq.setdefault(self.seq(name), name)
            self.steps[name] = line["to_state"]
            self.active.pop(name, None)
            if line["to_state"] in ACTIVE:
                self.active[name] = None
            if line["to_state"] != "PENDING":
                self.reached = max(self.reached, self.seq(name))
            if line["to_state"] == "RUNNING":
                self.fences[name] = said["fence"]
            if line["to_state"] == "DEAD":
                self.died = name, said["seq"]
        elif is_instance(line):
            self.instance = line["to_state"]
            self.announced = line["metadata"].get("steps", self.announced)
            if line["to_state"] == "CANCELED" and line["metadata"]["because"] == "stopped_cancelled":
                self.cancelled_in = line["metadata"]["seq"]

    def seq(self, name: str) -> int:
        return int(self.facts[name]["order"])

    def before(self, name: str) -> str | None:
        """The step whose sequence number is one less."""
        return self.by_seq.get(self.seq(name) - 1)


def is_step(line: Line) -> bool:
    return bool(line["event_type"] == "step_state_transition")


def is_instance(line: Line) -> bool:
    return bool(line["event_type"] == "instance_state_transition")


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


def _becomes(line: Line, *states: str) -> bool:
    return is_step(line) and line["to_state"] in states


def _fully_inserted(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and line["from_state"] is None:
        if line["metadata"]["order"] != len(story.facts):
            say(f"step {step_of(line)} has stepSeq {line['metadata']['order']} where {len(story.facts)} is next")
        if story.instance is not None:
            say(f"step {step_of(line)} is inserted after the instance was started")
    elif is_instance(line) and line["to_state"] == "RUNNING" and line["metadata"]["steps"] != len(story.facts):
        say(f"the instance is started with {len(story.facts)} of its {line['metadata']['steps']} steps")


def _first_step_is_ready(story: Story, line: Line, say: Say) -> None:
    if is_head(line) and story.instance is not None and story.instance != "CANCELED":
        waiting = [name for name, state in story.steps.items() if story.seq(name) == 0 and state == "PENDING"]
        if waiting:
            say(f"the instance was started and its first step {waiting[0]} is still PENDING")


def _one_step_at_a_time(story: Story, line: Line, say: Say) -> None:
    if _becomes(line, *ACTIVE):
        name = step_of(line)
        other = next((one for one in story.active if one != name), None)
        if other is not None:
            say(f"step {name} becomes {line['to_state']} while {other} is {story.steps[other]}")


def _activated_by_its_predecessor(story: Story, line: Line, say: Say) -> None:
    if not _becomes(line, *ACTIVE) or story.steps.get(step_of(line)) != "PENDING":
        return
    before = story.before(step_of(line))
    if before is not None and story.steps[before] != "DONE":
        say(f"step {step_of(line)} is activated while {before} before it is {story.steps[before]}")
    if before is None and story.seq(step_of(line)) != 0:
        say(f"step {step_of(line)} is activated, and there is no step before it")


def _pointer_moves_by_one(story: Story, line: Line, say: Say) -> None:
    """`current_step_seq` is the step that was activated last: it never goes back and never jumps."""
    if not _becomes(line, *ACTIVE) or story.steps.get(step_of(line)) != "PENDING":
        return
    if story.seq(step_of(line)) != story.reached + 1:
        say(f"current_step_seq goes from {story.reached} to {story.seq(step_of(line))}")


def _running_by_a_claim(story: Story, line: Line, say: Say) -> None:
    if _becomes(line, "RUNNING"):
        said = line["metadata"]
        if said["because"] != "claimed" or not said.get("worker"):
            say(f"step {step_of(line)} is RUNNING without a claim")
        elif said["fence"] <= story.fences.get(step_of(line), 0):
            say(f"step {step_of(line)} is claimed under fence {said['fence']} a second time")


def _only_the_holder_writes(story: Story, line: Line, say: Say) -> None:
    if is_step(line) and story.steps.get(step_of(line)) == "RUNNING" and line["to_state"] != "RUNNING":
        held, written = story.fences[step_of(line)], line["metadata"]["fence"]
        if held != written:
            say(f"step {step_of(line)} is held under fence {held} and was written under {written}")


def _completed_means_all_done(story: Story, line: Line, say: Say) -> None:
    if is_instance(line) and line["to_state"] == "COMPLETED":
        rest = [f"{name} is {state}" for name, state in story.steps.items() if state != "DONE"]
        if rest:
            say(f"the instance is COMPLETED while {rest[0]}")


def _retries_within_the_limit(story: Story, line: Line, say: Say) -> None:
    if _becomes(line, "READY") and story.steps.get(step_of(line)) == "RUNNING":
        attempt, most = line["metadata"]["attempt"], story.facts[step_of(line)]["max_attempts"]
        counted = line["metadata"]["because"] in {"retry_scheduled", "lease_lost"}
        if counted and attempt >= most:
            say(f"step {step_of(line)} is tried again after attempt {attempt} of {most}")


def _dead_fails_the_instance(story: Story, line: Line, say: Say) -> None:
    if is_instance(line) and line["to_state"] == "FAILED" and (story.died or ("", 0))[1] != line["metadata"]["seq"]:
        say("the instance is FAILED, and no step died in that transaction")
    # A cancel that waited for the step came first; it ends the instance in the transaction in which the step fails.
    if is_head(line) and story.died is not None and story.instance != "FAILED" and story.died[1] != story.cancelled_in:
        say(f"step {story.died[0]} is DEAD and the instance is {story.instance}")


def _nothing_after_the_end(story: Story, line: Line, say: Say) -> None:
    if story.instance in ENDED and not is_head(line):
        say(f"the instance is {story.instance}, and {line['entity_id']} moves on")


INVARIANTS = tuple(
    Invariant(name, cites, _watching(look))
    for name, cites, look in (
        ("all steps are inserted before the start", START, _fully_inserted),
        ("the first step is activated by the start", START, _first_step_is_ready),
        ("one step is active at a time", SCOPE, _one_step_at_a_time),
        ("a step is activated when the one before is DONE", COMPLETED, _activated_by_its_predecessor),
        ("current_step_seq moves by one", COMPLETED, _pointer_moves_by_one),
        ("RUNNING is reached by a claim alone", CLAIM, _running_by_a_claim),
        ("only the holder of the lease writes", GUARD, _only_the_holder_writes),
        ("COMPLETED means that all steps are DONE", COMPLETED, _completed_means_all_done),
        ("retries respect max_attempts", RETRY, _retries_within_the_limit),
        ("a DEAD step fails its instance at once", DEAD, _dead_fails_the_instance),
        ("nothing moves in an instance that has ended", "002 Summary of Full Lifecycle", _nothing_after_the_end),
    )
)
