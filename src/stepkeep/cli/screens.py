"""Shows progress: animated on a terminal, plain lines elsewhere, nothing with `--json`.

Screens draw a `Progress` and know nothing of databases or workers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stepkeep.cli.printer import OutputFailed, console, flush, say
from stepkeep.cli.progress import MICROS, Progress, ProgressLine, StepNow, sleep_text
from stepkeep.cli.render.look import look, words
from stepkeep.cli.render.times import span

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from stepkeep.cli.render.consoles import Text

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

    def begin(self, title: str, progress: Progress, clock_offset: int) -> None:
        """Show this run from now on; `clock_offset` is how far the database clock is ahead of ours (µs)."""

    def show(self, told: Sequence[ProgressLine]) -> None: ...

    def note(self, text: str) -> None: ...


class Lines(Screen):
    """For logs and pipes: one plain line per event."""

    def begin(self, title: str, progress: Progress, clock_offset: int) -> None:
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
        self._progress: Progress | None = None
        self._title, self._offset, self._width = "", 0, 12
        self._live: Live = Live(get_renderable=self._draw, console=screen, refresh_per_second=10, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, title: str, progress: Progress, clock_offset: int) -> None:
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

    def begin(self, title: str, progress: Progress, clock_offset: int) -> None:
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
