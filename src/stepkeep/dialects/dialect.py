"""What a dialect is: its machines, its front end, its words, its invariants and its defaults, as one value.

The registry finds a dialect by name, or by what a document looks like. Machines and invariants are plain data and
plain functions (`DIALECT.judged`), so the judge can use them without the front ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from stepkeep.dialects.machine import MachineView
from stepkeep.dialects.projection import Projection, RunView

Line = Mapping[str, Any]
"""A line of an exported log in the dialect's words."""

Say = Callable[[str], None]
"""How an invariant reports what it found on the line at hand."""


class Invariant(NamedTuple):
    """Something the seed says always holds. `check` makes a checker for one run: a function called with each line of
    the run's dialect log in order (the closing `journal_head` line included), which says what is broken, where."""

    name: str
    cites: str
    check: Callable[[Say], Callable[[Line], None]]


class Default(NamedTuple):
    """One answer to a question on which the seeds differ, made explicit in the canonical definition."""

    question: str
    answer: str
    cites: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """All that a judge needs of a dialect. `run_view` makes the fold that shows the run."""

    name: str
    seed: str
    title: str
    run: MachineView
    step: MachineView
    worker: MachineView | None = None
    run_view: Callable[[MachineView], RunView] = RunView
    invariants: tuple[Invariant, ...] = ()
    defaults: tuple[Default, ...] = ()

    def projection(self) -> Projection:
        return Projection(self.run_view(self.run), self.step, self.worker)

    @property
    def views(self) -> Iterable[MachineView]:
        return (self.run, self.step, *([self.worker] if self.worker is not None else []))


class FrontEnd(Protocol):
    """Turns a dialect's own format into the canonical definition, with every default made explicit."""

    def recognises(self, data: Any) -> bool:
        """Does this document look like ours? Called with plain data; must be cheap and never raise."""
        ...

    def examine(self, data: Any, source: Any, handlers: Any = None) -> Any:
        """The same contract as `stepkeep.definition.native.examine`: a CheckReport, never an exception."""
        ...


class Words(Protocol):
    """A run in the dialect's own shapes, made from the canonical view (`operations.views.describe_run`).

    `canonical` is `{"run": …, "steps": […], "definition": …}`, the definition as plain data; `lines` are the run's log
    in this dialect's words, oldest first, without the closing line.
    """

    def run(self, canonical: Mapping[str, Any], lines: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole run as `show --as` prints it."""
        ...

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> dict[str, Any]:
        """One row of `runs --as`."""
        ...


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A specification that Stepkeep speaks."""

    judged: Judged
    front: FrontEnd
    words: Words
    schema: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.judged.name
