"""What a campaign found, for programs and for people: one object, one line per turn, one table."""

from __future__ import annotations

from typing import Any

import msgspec

from stepkeep.bench.campaign import Campaign, Turn
from stepkeep.bench.measurement import FIGURES, Measurement, spread


def as_json(campaign: Campaign) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "took": campaign.took,
        "ask": msgspec.to_builtins(campaign.ask),
        "measurements": [
            {**msgspec.to_builtins(each), "medians": {name: each.median(name) for name in each.figures}}
            for each in campaign.measurements
        ],
    }


def line(turn: Turn) -> str:
    """One turn in one line, for whoever watches."""
    title = f"{turn.number}. {turn.work} ({turn.subject}, {turn.store})"
    said = turn.why or ", ".join(shown(name, value) for name, value in turn.figures.items())
    return f"{title:<48}{said}"


def table(campaign: Campaign) -> str:
    """Every measurement in one line: medians, and how far the first figure strays."""
    lines = [_row(each) for each in campaign.measurements]
    return "\n".join([*lines, f"took {campaign.took:g} s"])


def shown(figure: str, value: float) -> str:
    """A figure with its unit, in no more digits than it is good for."""
    kind = FIGURES[figure]
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{kind.title} {value:,.{digits}f} {kind.unit}".rstrip()


def _row(each: Measurement) -> str:
    title = f"{each.work} ({each.subject}, {each.store})"
    if not each.rounds:
        return f"{title:<48}not measured: {each.why}"
    strays = spread(each.samples(each.figures[0]))
    medians = ", ".join(shown(name, each.median(name) or 0.0) for name in each.figures)
    return f"{title:<48}± {strays:<4.0%} {medians}"
