"""The timeline of a run in a dialect: the states of the run and its steps, folded from the lines of its log.

It reads lines and nothing else, and judges nothing: a dialect gives its nouns and its invariants, and extends the
timeline by what only these need. The invariants of seeds 000 to 003 use it. Those of seed 004 also read logs that hold
several workstreams and their workers, and have timelines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from stepkeep.dialects.dialect import Invariant, Line, Say


class Change(NamedTuple):
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

    def take(self, change: Change) -> None:
        """Add a line."""
        if change.step:
            self.facts.setdefault(change.step, change.facts)
            self.steps[change.step] = change.target
        elif change.is_run:
            self.run = change.target

    def having(self, *states: str) -> list[str]:
        """The steps in these states, in the order of the log."""
        return [name for name, state in self.steps.items() if state in states]

    def lacking(self, *states: str) -> list[str]:
        """The steps in other states, each as `name is STATE`."""
        return [f"{name} is {state}" for name, state in self.steps.items() if state not in states]


T = TypeVar("T", bound=Timeline)
Look = Callable[[T, Change, Say], None]
"""One invariant: it sees each line before the timeline takes it, and reports what is wrong."""


def invariants(
    timeline: type[T], nouns: tuple[str, str], looks: Iterable[tuple[str, str, Look[T]]], *, with_head: bool = True
) -> tuple[Invariant, ...]:
    """Invariants of a dialect whose lines are about these nouns (the step's, the run's)."""
    return tuple(
        Invariant(name, cites, _watching(timeline, look, _reader(nouns, with_head))) for name, cites, look in looks
    )


def _reader(nouns: tuple[str, str], with_head: bool) -> Callable[[Line], Change | None]:
    step, run = (f"{noun}_state_transition" for noun in nouns)

    def read(line: Line) -> Change | None:
        kind, facts = line["event_type"], line["metadata"]
        if kind != step and kind != run and not (with_head and kind == "journal_head"):
            return None
        name = str(facts["step"]) if kind == step else ""
        return Change(name, kind == run, line["from_state"], line["to_state"], facts, line["entity_id"])

    return read


def _watching(
    timeline: type[T], look: Look[T], read: Callable[[Line], Change | None]
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
