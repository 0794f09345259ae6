"""`stepkeep lab misdeeds`: one worker, many runs with misbehaving handlers, and a check of the worker's resources."""

from __future__ import annotations

import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings

if TYPE_CHECKING:
    from stepkeep_lab.torture.misdeed_soak import Held


def misdeeds(
    settings: Settings,
    runs: Annotated[int, typer.Option("--runs", min=1, max=LARGEST, help="How many runs the worker serves.")] = 2_000,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=LARGEST, help="Draw the same misdeeds again; by lot otherwise.")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write misdeeds.json and misdeeds.md there.")
    ] = None,
) -> int:
    """Let one worker serve runs whose handlers misbehave in every listed way. Exit status 1 when anything was lost.

    Every run must end as its misdeed says, and slots, threads, descriptors, processes and memory must come back. It
    uses a new SQLite file, or the database of --db where that is typed, and there a tenant of its own.
    """
    from stepkeep_lab.torture.misdeed_soak import as_json, run_soak, write

    def told(held: Held) -> None:
        warn(f"{held.runs:,} of {runs:,} runs; {held.threads} threads, {held.memory_kb // 1024} MB")

    with tempfile.TemporaryDirectory(prefix="stepkeep-misdeeds-") as folder:
        url = settings.db if "db" in settings.typed else f"sqlite:///{folder}/misdeeds.db"
        chosen = secrets.randbelow(1_000_000) if seed is None else seed
        soak = run_soak(url, runs=runs, seed=chosen, told=told)
    if report is not None:
        write(soak, Path(report))
    if settings.json:
        answer({"misdeeds": as_json(soak)})
    else:
        for name, held in (("before", soak.before), ("after", soak.after)):
            say(
                f"{name:<7}{held.slots_free} slots free, {held.threads} threads, {held.descriptors} descriptors, "
                f"{held.processes} processes, {held.memory_kb // 1024} MB"
            )
        for finding in soak.findings:
            say(f"FINDING: {finding}")
        verdict = "nothing was lost" if soak.ok else "FAILED"
        say(f"seed {chosen}: {runs:,} runs in {soak.seconds:g} s ({soak.per_second:g}/s): {verdict}")
    return SUCCEEDED if soak.ok else FAILED
