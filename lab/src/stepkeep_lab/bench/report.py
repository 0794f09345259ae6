"""The report of a campaign, ratios first: one JSON object, tables and bars for people, and a page without local
paths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepkeep_lab.bench.campaign import ONE_RUN, Campaign, Turn
from stepkeep_lab.bench.chart import BOUND as BOUND_COLOUR
from stepkeep_lab.bench.chart import OURS as OUR_COLOUR
from stepkeep_lab.bench.chart import THEIRS, Bar, Panel, as_svg, as_text, number
from stepkeep_lab.bench.measurement import FIGURES, Measurement, spread
from stepkeep_lab.bench.targets import Verdict, judge
from stepkeep_lab.bench.works import BOUND, DELIVERED, OURS, THROUGH_HTTP

SHAPES = ("1-step runs", "3-step runs", "10-step runs")
TITLES = {
    DELIVERED: "3-step runs, results delivered",
    THROUGH_HTTP: "3-step runs, results through HTTP",
    **{shape: f"{shape}, without waiting" for shape in SHAPES},
}
"""The works that are shown side by side. Peers that always deliver their results are in both kinds."""
INSIDE = " inside the server"
DATABASES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "own": "its own"}
COLOURS = {OURS: OUR_COLOUR, BOUND: BOUND_COLOUR}


# -- for programs ------------------------------------------------------------------------------------------------------
def as_json(campaign: Campaign) -> dict[str, Any]:
    """Everything, as plain data, verdicts first."""
    return {
        "targets": [{**msgspec.to_builtins(each), "verdict": each.word} for each in judge(campaign.measurements)],
        "took": campaign.took,
        "ask": msgspec.to_builtins(campaign.ask),
        "machine": campaign.machine,
        "versions": campaign.versions,
        "measurements": [
            {**msgspec.to_builtins(each), "medians": {name: each.median(name) for name in each.figures}}
            for each in campaign.measurements
        ],
    }


# -- for the terminal --------------------------------------------------------------------------------------------------
def line(turn: Turn) -> str:
    """One turn in one line."""
    title = f"{turn.number}. {turn.work} ({turn.subject}, {turn.store}) "
    said = turn.why or ", ".join(shown(name, value) for name, value in turn.figures.items())
    return f"{title:<56}{said}"


def text(campaign: Campaign) -> str:
    """The whole of it for a terminal: targets, bars, every median."""
    verdicts = [each for each in judge(campaign.measurements) if each.met is not None]
    parts = ["\n".join(_verdict_line(each) for each in verdicts)] if verdicts else []
    parts += [as_text(panel) for panel in panels(campaign.measurements) if len(panel.bars) > 1]
    parts.append("\n".join(_measurement_line(each) for each in campaign.measurements))
    parts.append(f"took {campaign.took:g} s")
    return "\n\n".join(parts)


def shown(figure: str, value: float) -> str:
    """A figure with its name and unit."""
    kind = FIGURES[figure]
    return f"{kind.title} {number(value)} {kind.unit}".rstrip()


def _verdict_line(each: Verdict) -> str:
    return f"{each.word:<8}{each.what:<58}{_found(each):>14}   asked {each.asked}"


def _found(each: Verdict) -> str:
    return "–" if each.found is None else f"{number(each.found)} {each.unit}".rstrip()


def _measurement_line(each: Measurement) -> str:
    title = f"{each.work} ({each.subject}, {each.store}) "
    if not each.rounds:
        return f"{title:<56}not measured: {each.why}"
    strays = spread(each.samples(each.figures[0]))
    return f"{title:<56}± {strays:<4.0%} " + ", ".join(shown(name, each.median(name) or 0.0) for name in each.figures)


# -- for readers -------------------------------------------------------------------------------------------------------
def panels(measurements: Sequence[Measurement]) -> list[Panel]:
    """Runs per second of all engines that did the same work, the fastest first."""
    return [
        Panel(f"{title}, by the second", sorted(_bars(measurements, work), key=lambda bar: -bar.value))
        for work, title in TITLES.items()
    ]


def _bars(measurements: Iterable[Measurement], shape: str) -> list[Bar]:
    return [
        Bar(
            f"{each.subject}, {DATABASES[each.store]}",
            each.median("runs_per_second") or 0.0,
            COLOURS.get(each.subject, THEIRS),
        )
        for each in measurements
        if each.rounds and each.work.removesuffix(INSIDE) == shape
    ]


def page(campaign: Campaign) -> str:
    """The report in Markdown."""
    said = ", ".join(f"{name} {value}" for name, value in campaign.versions.items())
    on = ", ".join(campaign.machine.values())
    verdicts = [each for each in judge(campaign.measurements) if each.met is not None or not campaign.ask.only]
    parts = [
        "# Benchmark report",
        f"On {on}. With {said}. It took {campaign.took:,.0f} s.",
        "Figures are medians over rounds. Ratios travel; absolute figures hold for one machine.",
        "## Targets",
        _table(
            ("target", "asked", "found", "verdict"),
            [(each.what, each.asked, _found(each), each.word) for each in verdicts],
        ),
    ]
    if any(panel.bars for panel in panels(campaign.measurements)):
        parts += ["![Runs by the second](bench.svg)", "## Side by side", _side_by_side(campaign.measurements)]
    parts += ["## All medians", _all_medians(campaign.measurements)]
    if missing := [each for each in campaign.measurements if each.why]:
        rows = sorted({(each.subject, DATABASES[each.store], each.work, each.why) for each in missing})
        parts += ["## Not measured", _table(("subject", "database", "work", "why"), rows)]
    return "\n\n".join(parts) + "\n"


def write(campaign: Campaign, folder: Path) -> None:
    """`bench.json`, `bench.md` and `bench.svg` in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(as_json(campaign)), indent=2)
    (folder / "bench.json").write_bytes(encoded + b"\n")
    (folder / "bench.md").write_text(page(campaign), encoding="utf-8")
    (folder / "bench.svg").write_text(as_svg(panels(campaign.measurements)), encoding="utf-8")


def _side_by_side(measurements: Sequence[Measurement]) -> str:
    known = {(each.subject, each.store, each.work): each for each in measurements if each.rounds}
    who = dict.fromkeys((subject, store) for subject, store, work in known if work in TITLES)
    rows = []
    for subject, store in who:
        cells = [_beside(known, subject, store, work) for work in TITLES]
        one = known.get((subject, store, ONE_RUN))
        times = " / ".join(number(one.median(name) or 0.0) for name in ("p50_ms", "p99_ms")) if one else "–"
        rows.append((subject, DATABASES[store], *cells, times))
    titles = (f"{title} (runs/s)" for title in TITLES.values())
    return _table(("engine", "database", *titles, "one 3-step run p50 / p99 ms"), rows)


def _beside(known: dict[tuple[str, str, str], Measurement], subject: str, store: str, shape: str) -> str:
    """Runs by the second and, for a peer, how many times as many ours are on the same kind of database."""
    theirs = known.get((subject, store, shape))
    value = theirs.median("runs_per_second") if theirs else None
    if value is None:
        return "–"
    ours = known.get((OURS, store if store != "own" else "postgres", shape))
    mine = ours.median("runs_per_second") if ours else None
    return number(value) if subject == OURS or not mine else f"{number(value)} (ours {number(mine / value)} ×)"


def _all_medians(measurements: Iterable[Measurement]) -> str:
    rows = [
        (
            each.work,
            each.subject,
            DATABASES[each.store],
            f"{FIGURES[name].title} {FIGURES[name].unit}".rstrip(),
            number(each.median(name) or 0.0),
            f"± {spread(each.samples(name)):.0%}" if len(each.samples(name)) > 1 else "–",
            str(len(each.samples(name))),
        )
        for each in measurements
        for name in each.figures
    ]
    return _table(("work", "subject", "database", "figure", "median", "spread", "rounds"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
