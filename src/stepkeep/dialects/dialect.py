"""A dialect as one value: its machines, front end, shapes, invariants and defaults.

The registry finds a dialect by name, or by the content of a document. Machines and invariants are plain data and plain
functions (`DIALECT.judged`), so the judge can use them without the front ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypedDict

import msgspec

from stepkeep.dialects.machine import MachineView
from stepkeep.dialects.projection import Projection, ShownRunView

Line = Mapping[str, Any]
"""A line of an exported log in the dialect, as it was read."""


class LogLine(TypedDict):
    """A line of a log, canonical or in a dialect. `metadata` depends on the event."""

    timestamp: str
    event_type: str
    severity: str
    entity_id: str
    from_state: str | None
    to_state: str | None
    trigger: str
    metadata: dict[str, Any]


Say = Callable[[str], None]
"""Callback with which an invariant reports a finding on the current line."""


class Invariant(NamedTuple):
    """An invariant of the seed. `check` creates a checker for one run: a function that is called with each line of
    the run's dialect log in order (the closing `journal_head` line included) and reports violations. With `spans`, it
    is checked over all journals of a log that holds workers and runs in the order of time."""

    name: str
    cites: str
    check: Callable[[Say], Callable[[Line], None]]
    spans: bool = False


class Default(NamedTuple):
    """One answer to a question on which the seeds differ, made explicit in the canonical definition."""

    question: str
    answer: str
    cites: str


class JudgedDialect(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the judge needs of a dialect. `run_view` creates the fold that shows the run; `undo` is the
    machine of its compensations, where the seed has any. `final` names the handlers of steps that the dialect adds for
    the end of a run: they are told in the state of the run, and not as steps."""

    name: str
    seed: str
    title: str
    run: MachineView
    step: MachineView
    worker: MachineView | None = None
    undo: MachineView | None = None
    run_view: Callable[[MachineView], ShownRunView] = ShownRunView
    final: frozenset[str] = frozenset()
    invariants: tuple[Invariant, ...] = ()
    defaults: tuple[Default, ...] = ()

    def projection(self) -> Projection:
        return Projection(self.run_view(self.run), self.step, self.worker, self.undo)

    @property
    def views(self) -> Iterable[MachineView]:
        return tuple(view for view in (self.run, self.step, self.worker, self.undo) if view is not None)


class FrontEnd(Protocol):
    """Turns a dialect's own format into the canonical definition, with every default made explicit."""

    def recognises(self, data: Any) -> bool:
        """Whether a document is in this format. Called with plain data; must be cheap and never raise."""
        ...

    def examine(self, data: Any, source: Any, handlers: Any = None) -> Any:
        """The same contract as `stepkeep.definition.native.reader.examine`: a CheckReport, never an exception."""
        ...


Late = Callable[[Mapping[str, Any], Sequence[LogLine]], list[Mapping[str, Any]]]
"""Makes the data of events from the whole run: its canonical view and its lines in the dialect, as `Words.run`."""


class DomainEvent(NamedTuple):
    """An event that a dialect names, for other systems. `seq` is the journal entry that it is derived from; the names
    of `extensions`, which are attributes of its envelope, have lower-case letters and digits alone.

    Events of one entry are numbered by rank, and within it in order. One with `late` needs the whole run: there is one
    event for each data that it makes, and none of them has other data.
    """

    seq: int
    type: str
    data: Mapping[str, Any] = {}
    extensions: Mapping[str, str] = {}
    rank: int = 0
    late: Late | None = None


class CaseTeller(Protocol):
    """Makes the events of one run while its journal grows. It keeps what later entries need, and reads nothing."""

    def entry(self, canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> list[DomainEvent]:
        """The events of the next journal entry, from its canonical lines and its lines in the dialect.

        An event says what was true at its entry, so that it is the same whenever it is made.
        """
        ...


class Silent:
    """Tells nothing."""

    def entry(self, canonical: Sequence[LogLine], lines: Sequence[LogLine]) -> list[DomainEvent]:
        return []


class NoEvents:
    """For a dialect whose specification names no events."""

    def teller(self, about: Mapping[str, Any]) -> CaseTeller:
        return Silent()


class DialectWords(Protocol):
    """A run in the dialect's own shapes, made from the canonical view (`operations.runs.views.describe_run`).

    `canonical` is `{"run": …, "steps": […], "definition": …}`, the definition as plain data; `lines` are the run's log
    in this dialect, oldest first, without the closing line.
    """

    def run(self, canonical: Mapping[str, Any], lines: Sequence[LogLine]) -> Mapping[str, Any]:
        """The whole run as `show --as` prints it."""
        ...

    def summary(self, canonical_run: Mapping[str, Any], shown_state: str) -> Mapping[str, Any]:
        """One row of `runs --as`."""
        ...

    def teller(self, about: Mapping[str, Any]) -> CaseTeller:
        """What makes the events for other systems that this dialect names.

        `about` is `{"run": …, "definition": …}`, of the run only what never changes: id, workflow, version,
        correlation_id, created_by.
        """
        ...


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """A specification that Stepkeep implements."""

    judged: JudgedDialect
    front: FrontEnd
    words: DialectWords
    schema: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.judged.name
