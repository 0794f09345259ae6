"""The timeline of a run in a dialect: the states of the run and its steps, folded from the lines of its log.

It reads lines and nothing else, and judges nothing: a dialect gives its nouns and its invariants, and extends the
timeline by what only these need. The invariants of seeds 000 to 003 use it. Those of seed 004 also read logs that hold
several workstreams and their workers, and have timelines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from stepkeep.dialects.dialect import Invariant, Line, Say


class ShownChange(NamedTuple):
    """One line of a log: of the step with this name, of the run itself, or the closing line (neither)."""

    step: str
    is_run: bool
    source: str | None
    target: str
    facts: Mapping[str, Any]
    entity: str

    @property
    def is_head(self) -> bool:
        return not (self.step or self.is_run)

    def enters(self, *states: str) -> bool:
        """Whether a step comes into one of these states."""
        return bool(self.step) and self.target in states

    def enters_run(self, *states: str) -> bool:
        """Whether the run itself comes into one of these states."""
        return self.is_run and self.target in states


class Timeline:
    """The states before the current line. `facts` has what the first line of each step says about it."""

    def __init__(self) -> None:
        self.run: str | None = None
        self.steps: dict[str, str] = {}
        self.facts: dict[str, Mapping[str, Any]] = {}
        self.last: dict[str, Mapping[str, Any]] = {}
        self.claims: dict[str, Mapping[str, Any]] = {}
        """What the last line of each step, and that of its last claim, say."""

    def take(self, change: ShownChange) -> None:
        """Add a line."""
        if change.step:
            self.facts.setdefault(change.step, change.facts)
            self.last[change.step] = change.facts
            if change.facts.get("because") == "claimed":
                self.claims[change.step] = change.facts
            self.steps[change.step] = change.target
        elif change.is_run:
            self.run = change.target

    def having(self, *states: str) -> list[str]:
        """The steps in these states, in the order of the log."""
        return [name for name, state in self.steps.items() if state in states]

    def lacking(self, *states: str) -> list[str]:
        """The steps in other states, each as `name is STATE`."""
        return [f"{name} is {state}" for name, state in self.steps.items() if state not in states]


# -- what several seeds say of the times on their lines ----------------------------------------------------------------
DEADLINED = frozenset({"gate_opened", "wait_opened", "waited", "completion_requested"})
"""Triggers of a wait whose `due_at` is its deadline."""


def decided_in_time(timeline: Timeline, change: ShownChange, say: Say) -> None:
    """A decision or a signal counts before the deadline that the line of the wait shows."""
    said, before = change.facts, timeline.last.get(change.step, {})
    is_decision = said.get("event") in ("gate_decided", "completion_signalled") and said.get("seq") != before.get("seq")
    due_at = before.get("due_at") if before.get("because") in DEADLINED else None
    # A person may have asked for the next level, which has a deadline of its own.
    if due_at is not None and is_decision and not said.get("detail", {}).get("level") and said["at"] >= due_at:
        say(f"{change.step} is decided at {said['at']}, and its deadline was at {due_at}")


def late_enough(timeline: Timeline, change: ShownChange, say: Say) -> None:
    """A deadline ends a wait at the earliest when it has come."""
    said, before = change.facts, timeline.last.get(change.step, {})
    is_late = str(said.get("because")).startswith("deadline_") and said.get("fence") == before.get("fence")
    due_at = before.get("due_at") if before.get("because") in DEADLINED - {"gate_opened"} else None
    if due_at is not None and is_late and said["at"] < due_at:
        say(f"{change.step} runs out of time at {said['at']}, and its deadline is at {due_at}")


def reclaimed_after_its_lease(timeline: Timeline, change: ShownChange, say: Say) -> None:
    """A lease is lost, and its step reclaimed, after the lease that the line of the claim shows."""
    said, claim = change.facts, timeline.claims.get(change.step, {})
    is_lost = said.get("because") == "lease_lost" or said.get("ground") == "reclaimed"
    due_at = claim.get("due_at")
    if due_at is not None and is_lost and said["at"] <= due_at:
        say(f"{change.step} is taken from its worker at {said['at']}, and its lease lasts until {due_at}")


T = TypeVar("T", bound=Timeline)
Look = Callable[[T, ShownChange, Say], None]
"""One invariant: it sees each line before the timeline takes it, and reports what is wrong."""


def invariants(
    timeline: type[T], nouns: tuple[str, str], looks: Iterable[tuple[str, str, Look[T]]], *, with_head: bool = True
) -> tuple[Invariant, ...]:
    """Invariants of a dialect whose lines are about these nouns (the step's, the run's)."""
    return tuple(
        Invariant(name, cites, _watching(timeline, look, _reader(nouns, with_head))) for name, cites, look in looks
    )


def _reader(nouns: tuple[str, str], with_head: bool) -> Callable[[Line], ShownChange | None]:
    step, run = (f"{noun}_state_transition" for noun in nouns)

    def read(line: Line) -> ShownChange | None:
        kind, facts = line["event_type"], line["metadata"]
        if kind != step and kind != run and not (with_head and kind == "journal_head"):
            return None
        name = str(facts.get("step") or line["entity_id"]) if kind == step else ""
        return ShownChange(name, kind == run, line["from_state"], line["to_state"], facts, line["entity_id"])

    return read


def _watching(
    timeline: type[T], look: Look[T], read: Callable[[Line], ShownChange | None]
) -> Callable[[Say], Callable[[Line], None]]:
    def check(say: Say) -> Callable[[Line], None]:
        kept = timeline()

        def feed(line: Line) -> None:
            change = read(line)
            if change is not None:
                look(kept, change, say)
                kept.take(change)

        return feed

    return check
