"""The progress of a run, folded from its journal: what each step does now, a line for each event, and the screens that
show them.

`RunProgress` is pure: it receives entries and names, and has no clock. `working` feeds it and a screen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from stepkeep.cli.printer import OutputFailed, console, flush, say
from stepkeep.cli.render.lines import clock_of, shorten
from stepkeep.cli.render.look import look, span, words
from stepkeep.operations.instants import instant

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from stepkeep.cli.render.consoles import Text
    from stepkeep.kernel.machine.journal import Entry, Hop


RUN = -1
SETTLED = frozenset({"succeeded", "failed", "skipped", "cancelled"})
UNTOLD = frozenset({"pending", "ready", "validating"})
TOLD_OF_RUNS = frozenset(
    {"blocked", "paused", "stopping", "compensating", "succeeded", "failed", "cancelled", "rolled_back"}
)
MICROS = 1_000_000


class ProgressLine(NamedTuple):
    """One event as text; `lasting` if no later event replaces it."""

    at: int
    who: str
    state: str
    text: str
    lasting: bool

    def line(self, width: int = 0) -> str:
        """`10:15:00.123  create-account  succeeded in 42ms`."""
        clock = datetime.fromtimestamp(self.at / MICROS, UTC).strftime("%H:%M:%S.%f")[:-3]
        return f"{clock}  {self.who:<{width}}  {self.text}"


class StepNow(NamedTuple):
    """What a step does now. Times are microseconds of the database clock."""

    name: str
    state: str
    since: int
    due_at: int | None
    attempt: int
    trouble: str
    sleeps: bool = False
    said: str = ""
    """How far its handler says it is."""


class RunProgress:
    """The fold. `name_of` gives a step's name by its number; `size` is the number of main steps.

    `timeout_us` is the run's timeout: no wait lasts longer than the run. `sleeps` has the numbers of `sleep:` steps.
    """

    def __init__(
        self, name_of: Callable[[int], str], size: int, timeout_us: int | None = None, sleeps: Container[int] = ()
    ) -> None:
        self.name_of, self.size, self._timeout_us, self._sleeps = name_of, size, timeout_us, sleeps
        self._run_ends_at: int | None = None
        self.state = "idle"
        self.seq = 0
        self.now: dict[int, StepNow] = {}
        self.settled = 0

    def take(self, entry: Entry) -> list[ProgressLine]:
        """Process one journal entry; returns the lines to show."""
        self.seq = entry.seq
        told = []
        for hop in entry.hops:
            said = self._run(hop, entry.at) if hop.no == RUN else self._step(hop, entry.at)
            if said is not None:
                told.append(said)
        return told

    def _run(self, hop: Hop, at: int) -> ProgressLine | None:
        self.state = hop.target
        if hop.trigger == "started" and self._timeout_us is not None:
            self._run_ends_at = at + self._timeout_us
        if hop.target not in TOLD_OF_RUNS:
            return None
        text = words(hop.target) + (f": {shorten(hop.error)}" if hop.error else "")
        return ProgressLine(at, "run", hop.target, text, lasting=True)

    def _step(self, hop: Hop, at: int) -> ProgressLine | None:
        name = self.name_of(hop.no)
        if hop.target in SETTLED:
            self.now.pop(hop.no, None)
            self.settled += hop.no < self.size
        elif hop.target != "pending":
            known = self.now.get(hop.no)
            trouble = _trouble(hop) or (known.trouble if known else "")
            self.now[hop.no] = StepNow(
                name, hop.target, at, hop.due_at, hop.attempt or 1, trouble, hop.no in self._sleeps
            )
        if hop.target in UNTOLD and hop.trigger != "released":
            return None
        if hop.target == "cancelled" and hop.source == "pending":
            return None
        return ProgressLine(
            at, name, hop.target, self._words(hop, at), lasting=hop.target in SETTLED or hop.target == "retrying"
        )

    def _words(self, hop: Hop, at: int) -> str:
        """What a hop says about its step."""
        if hop.target == "skipped" and hop.category is None:
            if hop.trigger == "dependency_unmet" and hop.of is not None:
                return f"skipped: it requires {self.name_of(hop.of)}"
            return "skipped: its condition is false"
        if hop.target.startswith("awaiting_"):
            if hop.no in self._sleeps and hop.due_at is not None:
                return sleep_text(hop.due_at, at)
            ends = min((one for one in (hop.due_at, self._run_ends_at) if one is not None), default=None)
            return words(hop.target) + ("" if ends is None else f", {span((ends - at) / MICROS)} at most")
        return _words(hop, at)

    def far(self, no: int, said: str, at: int) -> ProgressLine | None:
        """Note how far the handler of a running step says it is; returns the line to show, if it is new."""
        known = self.now.get(no)
        if known is None or known.state != "running" or known.said == said:
            return None
        self.now[no] = known._replace(said=said)
        return ProgressLine(at, known.name, known.state, said, lasting=False)

    @property
    def is_any_running(self) -> bool:
        return any(step.state == "running" for step in self.now.values())

    def active(self) -> Iterator[StepNow]:
        """Steps that have not settled, runnable ones first."""
        order = (
            "running", "validating", "retrying", "awaiting_approval", "awaiting_event", "awaiting_completion",
            "awaiting_children",
        )  # fmt: skip
        rank = {state: place for place, state in enumerate(order)}
        yield from sorted(self.now.values(), key=lambda step: (rank.get(step.state, len(rank)), step.since))


def sleep_text(due_at: int, now: int) -> str:
    """`sleeps until 10:15:00Z`, with the date if that is another day."""
    return f"sleeps until {clock_of(instant(due_at), datetime.fromtimestamp(now / MICROS, UTC))}"


def _trouble(hop: Hop) -> str:
    return shorten(": ".join(part for part in (hop.category, hop.error) if part))


def _words(hop: Hop, at: int) -> str:
    """What a hop says about its step."""
    text = words(hop.target)
    trouble = _trouble(hop)
    if hop.trigger == "released":
        return "handed back"
    if hop.trigger == "held_exhausted":
        return f"holds: {trouble} (attempt {hop.attempt}, no other is left)"
    if hop.trigger == "held_unfit":
        return f"holds until other code is there: {trouble}"
    if hop.target == "running":
        return text if (hop.attempt or 1) == 1 else f"{text}, attempt {hop.attempt}"
    if hop.target == "retrying":
        pause = max(0, (hop.due_at or at) - at) / MICROS
        when = f"in {span(pause)}" if pause else "at once"
        why = f"{trouble} " if trouble else "its worker was lost " if hop.trigger == "lease_lost" else ""
        return f"{text} {when}: {why}(attempt {hop.attempt})"
    if hop.target in SETTLED:
        took = f" in {span(hop.took / MICROS)}" if hop.took is not None else ""
        why = f": {trouble}" if trouble else ""
        return f"{text}{took}{why}"
    return text


MOST_ACTIVE = 12
WIDEST_NAME = 40


class Screen:
    """A display for progress. This one shows nothing, as `--json` wants it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def begin(self, title: str, progress: RunProgress, clock_offset: int) -> None:
        """Show this run from now on; `clock_offset` is how far the database clock is ahead of ours (µs)."""

    def show(self, told: Sequence[ProgressLine]) -> None: ...

    def note(self, text: str) -> None: ...


class Lines(Screen):
    """For logs and pipes: one plain line per event."""

    def begin(self, title: str, progress: RunProgress, clock_offset: int) -> None:
        self.note(title)

    def show(self, told: Sequence[ProgressLine]) -> None:
        for one in told:
            say(one.line())
        if told:
            # A pipe would get the lines only when its buffer is full, or at the end.
            flush()

    def note(self, text: str) -> None:
        say(text)
        flush()


class Moving(Screen):
    """For terminals: finished events scroll away, current steps stay below, with running clocks."""

    def __init__(self, screen: Console) -> None:
        from rich.live import Live

        self._console = screen
        self._progress: RunProgress | None = None
        self._title, self._offset, self._width = "", 0, 12
        self._live: Live = Live(get_renderable=self._draw, console=screen, refresh_per_second=10, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, title: str, progress: RunProgress, clock_offset: int) -> None:
        self._title, self._progress, self._offset = title, progress, clock_offset
        self._width = min(WIDEST_NAME, max((len(progress.name_of(no)) for no in range(progress.size)), default=0))

    def show(self, told: Sequence[ProgressLine]) -> None:
        from stepkeep.cli.render.consoles import Text

        for one in told:
            if one.lasting:
                self._width = max(self._width, min(len(one.who), WIDEST_NAME))
                mark = Text(f"{look(one.state).mark} ", look(one.state).style)
                self._console.print(mark.append(f"{one.who:<{self._width}}  ", "default").append(one.text))

    def note(self, text: str) -> None:
        from stepkeep.cli.render.consoles import Text

        self._console.print(Text(text))

    def _draw(self) -> Group:
        return self.draw(at=time.time_ns() // 1000 + self._offset)

    def draw(self, at: int) -> Group:
        """What goes on at this moment of the database's clock."""
        from rich.console import Group

        from stepkeep.cli.render.consoles import Text

        progress = self._progress
        if progress is None:
            return Group()
        active = list(progress.active())
        lines = [self._line(step, at) for step in active[:MOST_ACTIVE]]
        if len(active) > MOST_ACTIVE:
            lines.append(Text(f"  … and {len(active) - MOST_ACTIVE:,} more", "dim"))
        state = look(progress.state)
        count = f"  {progress.settled:,}/{progress.size:,} steps  "
        foot = Text.assemble((f"{state.mark} {state.words}", state.style), count, (self._title, "dim"))
        return Group(*lines, foot)

    def _line(self, step: StepNow, now: int) -> Text:
        from stepkeep.cli.render.consoles import Text

        shown = look(step.state)
        mark = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[now // 100_000 % 10] if step.state in ("running", "validating") else shown.mark
        name = f"{step.name:<{self._width}}  "
        sleeps_until = step.due_at if step.sleeps and step.state == "awaiting_event" else None
        said = words(step.state) if sleeps_until is None else sleep_text(sleeps_until, now)
        text = Text.assemble((f"{mark} ", shown.style), name, (said, shown.style))
        if step.state == "retrying" and step.due_at is not None:
            text.append(f" in {span(max(0, step.due_at - now) / MICROS)}")
        else:
            text.append(f" {span(max(0, now - step.since) / MICROS)}", "dim")
        if step.attempt > 1:
            text.append(f"  attempt {step.attempt}", "yellow")
        if step.said:
            text.append(f"  {step.said}")
        if step.trouble:
            text.append(f"  {step.trouble}", "dim")
        text.truncate(max(20, self._console.width - 1), overflow="ellipsis")
        return text


class Unheard(Screen):
    """A screen that may lose its reader: from then on nothing is shown, and the work goes on.

    It is drawn from tasks and from signal handlers, where an error of the output would keep them from their work. The
    command finds the output closed when it prints how the run stands.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __enter__(self) -> Self:
        with self._heard():
            self._screen.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._heard():
            self._screen.__exit__(kind, error, trace)

    def begin(self, title: str, progress: RunProgress, clock_offset: int) -> None:
        with self._heard():
            self._screen.begin(title, progress, clock_offset)

    def show(self, told: Sequence[ProgressLine]) -> None:
        with self._heard():
            self._screen.show(told)

    def note(self, text: str) -> None:
        with self._heard():
            self._screen.note(text)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        try:
            yield
        except OutputFailed:
            self._screen = Screen()


def screen_for(*, json: bool) -> Screen:
    """The screen that fits where the output goes."""
    if json:
        return Screen()
    target = console()
    return Unheard(Moving(target) if target.is_terminal else Lines())
