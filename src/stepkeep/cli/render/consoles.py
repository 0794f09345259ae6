"""The console that every picture is printed on, and the text that pictures are made of: neither lets a control pass.

Rich escapes nothing and drops only a few characters. `Text` escapes where a text is made, so that it is measured as it
is shown. `InertConsole` escapes once more whatever is drawn, so that a forgotten plain string is safe as well; the
sequences that Rich itself produces for colours and the cursor are kept. `printer.console` makes the console.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, cast

import rich.text
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from stepkeep.edges.safe_text import inert

ANY_LENGTH = sys.maxsize


class Text(rich.text.Text):
    """A text of whatever origin, escaped and bounded."""

    def __init__(self, text: str = "", style: Any = "", **options: Any) -> None:
        super().__init__(inert(text), style, **options)

    def append(self, text: rich.text.Text | str, style: Any = None) -> Text:
        super().append(inert(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: Any, **options: Any) -> Text:
        return cast(Text, super().assemble(*parts, **options))

    def append_text(self, text: rich.text.Text) -> Text:
        super().append_text(text)
        return self

    def join(self, lines: Iterable[rich.text.Text]) -> Text:
        return cast(Text, super().join(lines))


class InertConsole(Console):
    """A console on which only Rich's own sequences reach the terminal. Markup in texts means nothing."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable():
                yield segment
            else:
                yield Segment(inert(text, ANY_LENGTH), segment.style)
