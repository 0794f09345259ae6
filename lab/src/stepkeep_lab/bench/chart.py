"""Draws bars on a logarithmic scale: as text for a terminal and as SVG for a page. Pure.

Engines differ by factors of a hundred; on a linear scale most bars would be invisible.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, LABEL, VALUE, BAR, GAP, TITLE = 760, 190, 70, 18, 6, 34
OURS, THEIRS, BOUND = "#2563eb", "#94a3b8", "#d97706"
FONT = "font-family='system-ui, sans-serif' font-size='12'"


class Bar(NamedTuple):
    """One bar: whose it is, how much, and its colour where there are colours."""

    label: str
    value: float
    colour: str = THEIRS


class Panel(NamedTuple):
    """Bars that are compared with each other."""

    title: str
    bars: Sequence[Bar]


def share(value: float, bars: Sequence[Bar]) -> float:
    """How long a bar is, between a little and all of the width: a decade below the smallest is nothing."""
    low = math.floor(math.log10(min(bar.value for bar in bars)))
    high = math.log10(max(bar.value for bar in bars))
    return (math.log10(value) - low) / (high - low) if high > low else 1.0


def as_text(panel: Panel, width: int = 40) -> str:
    """Bars for a terminal."""
    bars = [bar for bar in panel.bars if bar.value > 0]
    if not bars:
        return f"{panel.title}: nothing was measured"
    longest = max(len(bar.label) for bar in bars)
    lines = [
        f"  {bar.label:<{longest}} {'█' * max(1, round(share(bar.value, bars) * width)):<{width}} {number(bar.value)}"
        for bar in bars
    ]
    return "\n".join([f"{panel.title} (logarithmic)", *lines])


def as_svg(panels: Sequence[Panel]) -> str:
    """Bars for a page, one panel under the other."""
    drawn: list[str] = []
    top = 8
    for panel in panels:
        bars = [bar for bar in panel.bars if bar.value > 0]
        if bars:
            drawn += _panel(panel.title, bars, top)
            top += TITLE + len(bars) * (BAR + GAP)
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {top + 8}' {FONT}>"
    return "\n".join([head, f"<rect width='{WIDTH}' height='{top + 8}' fill='#ffffff'/>", *drawn, "</svg>", ""])


def _panel(title: str, bars: Sequence[Bar], top: int) -> list[str]:
    lines = [f"<text x='8' y='{top + 16}' font-weight='600' fill='#0f172a'>{escape(title)} (logarithmic)</text>"]
    room = WIDTH - LABEL - VALUE - 16
    for place, bar in enumerate(bars):
        y = top + TITLE - GAP + place * (BAR + GAP)
        length = max(2.0, share(bar.value, bars) * room)
        middle = y + BAR - 5
        lines += [
            f"<text x='{LABEL}' y='{middle}' text-anchor='end' fill='#334155'>{escape(bar.label)}</text>",
            f"<rect x='{LABEL + 8}' y='{y}' width='{length:.1f}' height='{BAR}' rx='2' fill='{bar.colour}'/>",
            f"<text x='{LABEL + 14 + length:.1f}' y='{middle}' fill='#0f172a'>{number(bar.value)}</text>",
        ]
    return lines


def number(value: float) -> str:
    """A number in no more digits than it is good for."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
