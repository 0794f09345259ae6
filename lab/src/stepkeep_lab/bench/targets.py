"""The targets, as a table over measurements, and whether each was met. Pure.

A target that names a peer is evaluated only if that peer was measured in the same campaign.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from stepkeep_lab.bench.measurement import PAGES, Measurement
from stepkeep_lab.bench.works import DELIVERED, FLOW, THROUGH_HTTP

PG, LITE = "postgres", "sqlite"
THREE = "3-step runs"
IDLE, EMBEDDED = "one 3-step run, idle", "one 3-step run, embedded"
STEPS, RUNS, STARTS = "steps_per_second", "runs_per_second", "starts_per_second"


class Figure(NamedTuple):
    """One figure of one measurement."""

    work: str
    store: str
    figure: str
    subject: str = "stepkeep"


class Target(NamedTuple):
    """A median, or the ratio of two, and its limit."""

    what: str
    figure: Figure
    limit: float
    at_least: bool = True
    over: Figure | None = None
    unit: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A target and what was found: `met` is None where it was not measured."""

    what: str
    asked: str
    found: float | None
    met: bool | None
    unit: str = ""

    @property
    def word(self) -> str:
        return {True: "met", False: "missed", None: "not measured"}[self.met]


def _times(what: str, mine: Figure, peer: str, limit: float, peer_store: str = "") -> Target:
    theirs = mine._replace(subject=peer, store=peer_store or mine.store)
    return Target(what, mine, limit, over=theirs, unit="×")


def _at_most(what: str, figure: Figure, limit: float, unit: str = "", over: Figure | None = None) -> Target:
    return Target(what, figure, limit, at_least=False, over=over, unit=unit)


_DELIVERED = Figure(DELIVERED, PG, RUNS)

TARGETS: tuple[Target, ...] = (
    Target("64 callers get their results, PostgreSQL", _DELIVERED, 1_200, unit="runs/s"),
    _times("64 callers get their results, PostgreSQL, beside DBOS", _DELIVERED, "DBOS", 20),
    _times("64 callers get their results, PostgreSQL, beside Restate", _DELIVERED, "Restate", 5, "own"),
    Target(
        "1,000 callers get their results, beside the rate without waiting",
        Figure("3-step runs, 1,000 callers", PG, RUNS),
        0.9,
        over=Figure(THREE, PG, RUNS),
    ),
    Target("64 callers get their results, SQLite", Figure(DELIVERED, LITE, RUNS), 1_200, unit="runs/s"),
    *(
        _times(f"64 clients through HTTP, {shown}, beside {peer}", Figure(THROUGH_HTTP, store, RUNS), peer, 3, "own")
        for peer in ("Restate", "Prefect")
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    *(
        _at_most(
            f"CPU of all processes for a run through HTTP, {shown}, beside Restate",
            Figure(THROUGH_HTTP, store, "all_us"),
            1 / 3,
            "×",
            over=Figure(THROUGH_HTTP, "own", "all_us", "Restate"),
        )
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    *(
        _at_most(
            f"one start through HTTP, {shown}, p50, beside a bare FastAPI insert",
            Figure("one start through HTTP", store, "p50_ms"),
            3,
            "×",
            over=Figure("one start through HTTP", store, "bare_p50_ms"),
        )
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    _at_most("one caller, idle, p50", Figure(IDLE, PG, "p50_ms"), 8, "ms"),
    _at_most("one caller, idle, p99", Figure(IDLE, PG, "p99_ms"), 25, "ms"),
    *(
        _at_most(
            f"one caller, idle, {figure.removesuffix('_ms')}, beside {peer}",
            Figure(IDLE, PG, figure),
            1,
            "×",
            over=Figure(IDLE, store, figure, peer),
        )
        for peer, store in (("DBOS", PG), ("Restate", "own"))
        for figure in ("p50_ms", "p99_ms")
    ),
    _at_most("one caller, embedded, SQLite, p50", Figure(EMBEDDED, LITE, "p50_ms"), 5, "ms"),
    _at_most("one caller, embedded, PostgreSQL, p50", Figure(EMBEDDED, PG, "p50_ms"), 8, "ms"),
    _times("without waiting, 3-step runs, PostgreSQL, beside DBOS", Figure(THREE, PG, STEPS), "DBOS", 30),
    _times("without waiting, 3-step runs, PostgreSQL, beside Restate", Figure(THREE, PG, STEPS), "Restate", 8, "own"),
    _times("without waiting, 3-step runs, PostgreSQL, beside Absurd", Figure(THREE, PG, STEPS), "Absurd", 8),
    _times("without waiting, 3-step runs, SQLite, beside DBOS on SQLite", Figure(THREE, LITE, STEPS), "DBOS", 35),
    _times("1-step runs, PostgreSQL, beside PgQueuer's jobs", Figure("1-step runs", PG, RUNS), "PgQueuer", 1),
    Target(
        "3-step runs, share of the bound inside the server",
        Figure(THREE, PG, STEPS),
        0.30,
        over=Figure("3-step runs inside the server", PG, STEPS, "bound"),
    ),
    Target("3-step runs, PostgreSQL, one worker", Figure(THREE, PG, STEPS), 10_000, unit="steps/s"),
    Target("10-step runs, PostgreSQL, one worker", Figure("10-step runs", PG, STEPS), 12_000, unit="steps/s"),
    Target("3-step runs, SQLite, one worker", Figure(THREE, LITE, STEPS), 8_000, unit="steps/s"),
    Target("runs started, PostgreSQL, one client", Figure("starts", PG, STARTS), 5_000, unit="starts/s"),
    _at_most(
        "3-step run end to end at 1,000 runs/s, p99", Figure("one 3-step run at 1,000 runs/s", PG, "p99_ms"), 50, "ms"
    ),
    *(
        _at_most(
            f"handler's end after {what}, {shown}, p99",
            Figure(f"handler's end after {what}", store, "p99_ms"),
            1000,
            "ms",
        )
        for what in ("cancel", "failure", "timeout")
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    *(
        Target(
            f"log verify, {words} lines",
            Figure(f"log verify, 1,000,000 {words} lines", LITE, "lines_per_second"),
            16_667,
            unit="lines/s",
        )
        for words in ("canonical", "workstream")
    ),
    *(
        _at_most(
            f"status at 1,000,000 runs, {shown}, slowest",
            Figure("status at 1,000,000 runs", store, "p99_ms"),
            1000,
            "ms",
        )
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    *(
        _at_most(
            f"first answer of the page {name.replace('_', ' ')} at 1,000,000 runs",
            Figure("pages at 1,000,000 runs", PG, f"page_{name}_ms"),
            300,
            "ms",
        )
        for name in PAGES
    ),
    _at_most(
        "claim of 100 at 3 million ready runs, beside 10 thousand",
        Figure("claim at 3,000,000 ready", PG, "claim_ms"),
        1.5,
        "×",
        over=Figure("claim at 10,000 ready", PG, "claim_ms"),
    ),
    _at_most(
        "cost of a step in a fan of 10,000, beside a 3-step run",
        Figure(THREE, PG, STEPS),
        2,
        "×",
        over=Figure("fan of 10,000", PG, STEPS),
    ),
    *(
        _at_most(
            f"CPU of all processes for an element of a map of 10,000, {shown}, beside a step of a 3-step run",
            Figure("map of 10,000", store, "all_us"),
            2,
            "×",
            over=Figure(THREE, store, "all_us"),
        )
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    *(
        Target(
            f"calls of a flow of ten, {shown}, beside the steps of the same plan",
            Figure(FLOW, store, STEPS),
            0.5,
            over=Figure(FLOW, store, "plan_steps_per_second"),
            unit="×",
        )
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    *(
        Target(
            f"calls of a flow of ten with results delivered, {shown}, beside DBOS",
            Figure(FLOW, store, "delivered_steps_per_second"),
            20,
            over=Figure(FLOW, store, STEPS, "DBOS"),
            unit="×",
        )
        for store, shown in ((PG, "PostgreSQL"), (LITE, "SQLite"))
    ),
    _at_most("idle worker, statements", Figure("idle worker", PG, "statements_per_second"), 2, "/s"),
    _at_most("idle worker, CPU", Figure("idle worker", PG, "worker_cpu_percent"), 1, "%"),
    _at_most("worker's memory at a million ready runs", Figure("worker at 1,000,000 ready", PG, "worker_mb"), 80, "MB"),
    _at_most(
        "CPU of all processes with notifications, beside without",
        Figure(THREE, PG, "all_us"),
        1.05,
        "×",
        over=Figure("3-step runs without notifications", PG, "all_us"),
    ),
)


def judge(measurements: Iterable[Measurement]) -> tuple[Verdict, ...]:
    """Every target with what was found."""
    known = {(each.work, each.store, each.subject): each for each in measurements}

    def median(figure: Figure) -> float | None:
        found = known.get((figure.work, figure.store, figure.subject))
        return None if found is None else found.median(figure.figure)

    return tuple(_verdict(target, median(target.figure), target.over and median(target.over)) for target in TARGETS)


def _verdict(target: Target, value: float | None, over: float | None) -> Verdict:
    found = value if target.over is None else value / over if value is not None and over else None
    met = None if found is None else found >= target.limit if target.at_least else found <= target.limit
    asked = f"{'≥' if target.at_least else '≤'} {target.limit:,g} {target.unit}".rstrip()
    return Verdict(what=target.what, asked=asked, found=found, met=met, unit=target.unit)
