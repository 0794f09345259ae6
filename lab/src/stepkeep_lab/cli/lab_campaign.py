"""`stepkeep lab campaign`: very many simulated runs, then the planted bugs, and a report of both."""

from __future__ import annotations

import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings
from stepkeep_lab.reports import commit

if TYPE_CHECKING:
    from stepkeep_lab.simulation.long_campaign import Progress

TOLD_EVERY = 30.0


def campaign(
    settings: Settings,
    report: Annotated[str, typer.Option("--report", metavar="DIR", help="Where the report goes, and what to resume.")],
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=LARGEST, help="Play seeds until there were this many runs.")
    ] = 1_000_000,
    first: Annotated[int, typer.Option("--from", metavar="SEED", min=0, max=LARGEST, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work.")] = 1,
    mutants: Annotated[bool, typer.Option("--mutants/--no-mutants", help="Hunt the planted bugs too.")] = True,
) -> int:
    """Play very many simulated runs, then hunt the planted bugs; write simulation.json and simulation.md.

    Interrupted, it goes on where it left off when it is begun again with the same code. Exit status 1 on a violation or
    a planted bug that was not caught.
    """
    from stepkeep_lab.bench.machine import machine
    from stepkeep_lab.simulation.long_campaign import explore
    from stepkeep_lab.simulation.report import as_json

    found = explore(
        Path(report),
        commit=commit(),
        machine={**machine(), "python": f"Python {platform.python_version()}", "jobs": f"{jobs} processes"},
        runs=runs,
        first=first,
        jobs=jobs,
        with_mutants=mutants,
        told=_progress(runs),
    )
    if settings.json:
        answer(as_json(found))
    else:
        played = found.campaign
        say(f"{played.seeds:,} seeds, {played.runs:,} runs, {played.virtual_seconds / 3600:.1f} virtual hours")
        if found.scores:
            say(f"{len(found.scores) - len(found.missed)} of {len(found.scores)} planted bugs were caught")
        say("no violation" if not played.failures else f"{len(played.failures)} seeds FAILED")
    return SUCCEEDED if found.ok else FAILED


class _progress:  # noqa: N801 - reads as a verb where it is used
    """Tells people how far it is, now and then."""

    def __init__(self, runs: int) -> None:
        self._runs, self._at = runs, time.monotonic()

    def __call__(self, progress: Progress) -> None:
        played = progress.campaign
        if time.monotonic() - self._at < TOLD_EVERY:
            return
        self._at = time.monotonic()
        rate = played.runs / played.seconds if played.seconds else 0.0
        told = f"{played.runs:,} of {self._runs:,} runs, {played.seeds:,} seeds, {len(played.failures)} failed"
        warn(f"{told}, {rate:.0f} runs/s, {len(progress.scores)} planted bugs hunted")
        sys.stderr.flush()
