"""`stepkeep lab truth`: compares every search and every count with SQL, beside many runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say
from stepkeep.cli.settings import Settings
from stepkeep_lab.reports import commit, opening, table, write_report

if TYPE_CHECKING:
    from stepkeep_lab.bench.truth import Line

RUNS = {"sqlite": 200_000, "postgres": 1_000_000}


def truth(
    settings: Settings,
    runs: Annotated[
        int | None,
        typer.Option("--runs", min=10, max=LARGEST, help="How many runs each store has."),
    ] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write truth.json and truth.md there.")
    ] = None,
) -> int:
    """Compare searches and counts with plain SQL: each agrees, or says that it is an estimate or a lower bound.

    SQLite has 200,000 runs and PostgreSQL a million, unless `--runs` says otherwise. PostgreSQL runs on a
    server of its own. Exit status 1 when anything said is not so.
    """
    import msgspec

    from stepkeep_lab.bench.ground import fresh_ground
    from stepkeep_lab.bench.truth import compare
    from stepkeep_lab.postgres import PostgresServer

    found: dict[str, list[Line]] = {}
    begun = time.monotonic()
    for name in store or RUNS:
        with PostgresServer() if name == "postgres" else nullcontext() as server, fresh_ground(name, server) as ground:
            found[name] = asyncio.run(compare(ground, runs or RUNS[name], lambda line: _tell(settings, line)))
        if not settings.json:
            wrong = sum(not line.is_true for line in found[name])
            say(f"{name}: {len(found[name])} comparisons, {wrong} wrong")
    if report is not None:
        size = "" if runs is None else f" --runs {runs}"
        _write(found, report, f"stepkeep lab truth{size}", time.monotonic() - begun)
    if settings.json:
        answer({"truth": {name: msgspec.to_builtins(lines) for name, lines in found.items()}})
    return FAILED if any(not line.is_true for lines in found.values() for line in lines) else SUCCEEDED


def _tell(settings: Settings, line: Line) -> None:
    if not settings.json:
        say(f"{line.verdict}: {line.name}: {line.said} ({line.truth:,}), {line.seconds * 1000:,.0f} ms")


def _write(found: dict[str, list[Line]], folder: str, command: str, seconds: float) -> None:
    import msgspec

    version = commit()
    page = [
        *opening("Searches and counts beside SQL", version, command, seconds),
        "Each search was followed to its last part, and compared in its total and its first 50 runs. `ms` is the time",
        "of the first answer.",
        "",
    ]
    for name, lines in found.items():
        rows = [
            (line.name, line.said, f"{line.truth:,}", line.verdict, line.parts, f"{line.seconds * 1000:,.0f}")
            for line in lines
        ]
        page += [f"## {name}", "", *table(("what", "said", "SQL", "verdict", "answers", "ms"), rows), ""]
    content = {
        "commit": version,
        "command": command,
        "seconds": round(seconds, 1),
        "stores": msgspec.to_builtins(found),
    }
    write_report(folder, "truth", content, "\n".join(page).rstrip() + "\n")
