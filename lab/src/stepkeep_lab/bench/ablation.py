"""Measures the gain of each shortcut of the hot path: the engine with all of them and without one, in alternation.

A shortcut is switched off by replacing one attribute, in this process and in the workers. Run as a program it is a
worker like any other, without the shortcuts that `STEPKEEP_BENCH_WITHOUT` names. `stepkeep lab ablation` calls it.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput
from stepkeep.operations.pipeline.batch import DecisionBatch
from stepkeep.operations.pipeline.memory import Memory
from stepkeep.operations.pipeline.start import Starter
from stepkeep.store.change import Write
from stepkeep.store.notifications import NOTHING, CoalescingNotifier
from stepkeep.store.postgres.store import PostgresStore
from stepkeep.store.protocol import Notification
from stepkeep_lab.bench.ground import STORES, Ground, fresh_ground
from stepkeep_lab.bench.measurement import Figures
from stepkeep_lab.bench.works import WORKS, Work
from stepkeep_lab.postgres import PostgresServer

WITHOUT = "STEPKEEP_BENCH_WITHOUT"

HIGHER_IS_BETTER = ("steps_per_second", "starts_per_second")
LOWER_IS_BETTER = ("p50_ms", "all_us")


class Shortcut(msgspec.Struct, frozen=True):
    """One way to do less work: where it is, and what takes its place when it is switched off."""

    name: str
    what: str
    owner: Any
    attribute: str
    instead: Any


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_topics(*_: Any, **__: Any) -> Notification:
    return NOTHING


_write: Callable[[DecisionBatch], Write] = DecisionBatch._write


def _whole_rows(batch: DecisionBatch) -> Write:
    write = _write(batch)
    write.only_hot = False
    return write


SHORTCUTS: tuple[Shortcut, ...] = (
    Shortcut("start-templates", "starts of one plan are copied from a template", Starter, "template", _nothing),
    Shortcut("unread-starts", "starts without keys are written without a read", Starter, "_unread", _nothing),
    Shortcut(
        "optimistic-claims",
        "claims read without locks, then write if unchanged",
        PostgresStore,
        "prefers_optimistic_claims",
        False,
    ),
    Shortcut("remembered-rows", "reports are decided on rows that the worker wrote last", Memory, "recall", _nothing),
    Shortcut(
        "hot-columns", "only columns that change while all goes well are written", DecisionBatch, "_write", _whole_rows
    ),
    Shortcut(
        "carried-hints", "notifications ride on the commit they speak of", CoalescingNotifier, "take_due", _no_topics
    ),
)


@contextmanager
def without(names: Sequence[str]) -> Iterator[None]:
    """Switch these shortcuts off in this process as long as the block runs."""
    by_name = {shortcut.name: shortcut for shortcut in SHORTCUTS}
    _known("shortcut", names, list(by_name))
    with ExitStack() as stack:
        for name in names:
            shortcut = by_name[name]
            before = getattr(shortcut.owner, shortcut.attribute)
            setattr(shortcut.owner, shortcut.attribute, shortcut.instead)
            stack.callback(setattr, shortcut.owner, shortcut.attribute, before)
        yield


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """What a shortcut gains on one figure: the medians with and without it, and their ratio (above 1: it gains)."""

    shortcut: str
    work: str
    store: str
    figure: str
    with_it: float
    without_it: float
    ratio: float


def measure(
    works: Sequence[str],
    stores: Sequence[str],
    *,
    only: Sequence[str] = (),
    rounds: int = 5,
    told: Callable[[str], None],
) -> list[Gain]:
    """Measure these works with and without each shortcut, in turns on fresh databases."""
    _known("work", works, [work.name for work in WORKS])
    _known("store", stores, STORES)
    _known("shortcut", only, [shortcut.name for shortcut in SHORTCUTS])
    chosen = [work for work in WORKS if work.name in works]
    shortcuts = [shortcut for shortcut in SHORTCUTS if not only or shortcut.name in only]
    gains: list[Gain] = []
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer()) if "postgres" in stores else None
        for work in chosen:
            for store in [store for store in stores if store in work.stores]:
                gains += _compare(work, store, server, shortcuts, rounds, told)
    return gains


def _known(what: str, asked: Sequence[str], there: Sequence[str]) -> None:
    unknown = [name for name in asked if name not in there]
    if unknown:
        raise InvalidInput(f"there is no {what} {unknown[0]!r}; there are: {', '.join(there)}")


def _compare(
    work: Work,
    store: str,
    server: PostgresServer | None,
    shortcuts: Sequence[Shortcut],
    rounds: int,
    told: Callable[[str], None],
) -> list[Gain]:
    taken: dict[str, list[Figures]] = {"": [], **{shortcut.name: [] for shortcut in shortcuts}}
    for turn in range(rounds):
        # Each round begins with another variant, so that a slow minute of the machine strikes all alike.
        names = list(taken)
        names = names[turn % len(names) :] + names[: turn % len(names)]
        for name in names:
            with fresh_ground(store, server) as ground:
                taken[name].append(_once(work, ground, name))
            variant = f"{work.name}, {store}, round {turn + 1} of {rounds}, without {name or 'nothing'}"
            told(f"{variant}: {_line(taken[name][-1])}")
    return [
        _gain(work, store, shortcut.name, figure, taken)
        for shortcut in shortcuts
        for figure in (*HIGHER_IS_BETTER, *LOWER_IS_BETTER)
        if figure in taken[""][0] and (figure != "starts_per_second" or work.name == "starts")
    ]


def _once(work: Work, ground: Ground, name: str) -> Figures:
    with without([name] if name else []):
        os.environ[WITHOUT] = name
        try:
            worker = replace(ground, worker=__name__)
            return asyncio.run(work.measure(worker, **(work.quick or work.size)))
        finally:
            del os.environ[WITHOUT]


def _gain(work: Work, store: str, shortcut: str, figure: str, taken: dict[str, list[Figures]]) -> Gain:
    with_it = statistics.median(figures[figure] for figures in taken[""])
    without_it = statistics.median(figures[figure] for figures in taken[shortcut])
    ratio = with_it / without_it if figure in HIGHER_IS_BETTER else without_it / with_it
    return Gain(
        shortcut=shortcut,
        work=work.name,
        store=store,
        figure=figure,
        with_it=with_it,
        without_it=without_it,
        ratio=ratio,
    )


def _line(figures: Figures) -> str:
    shown = [name for name in (*HIGHER_IS_BETTER, *LOWER_IS_BETTER) if name in figures]
    return ", ".join(f"{name} {figures[name]:,.1f}" for name in shown)


def as_markdown(gains: Sequence[Gain], rounds: int) -> str:
    """The gains as a table; a ratio above 1 means that the shortcut gains."""
    rows = [
        f"| {gain.shortcut} | {gain.work} | {gain.store} | {gain.figure} "
        f"| {gain.with_it:,.1f} | {gain.without_it:,.1f} | {gain.ratio:.2f} |"
        for gain in gains
    ]
    head = ["| shortcut | work | store | figure | with it | without it | ratio |", "|---|---|---|---|---|---|---|"]
    return "\n".join([f"Medians of {rounds} rounds in turns.", "", *head, *rows, ""])


if __name__ == "__main__":
    with without([name for name in os.environ.get(WITHOUT, "").split(",") if name]):
        runpy.run_module("stepkeep.cli.main", run_name="__main__")
