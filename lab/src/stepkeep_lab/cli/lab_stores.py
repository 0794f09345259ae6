"""`stepkeep lab stores`: plants bugs in the stores' SQL, one at a time, and checks that a real database shows each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings


def stores(
    settings: Settings,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this bug (repeatable).")
    ] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    first: Annotated[
        int, typer.Option("--from", metavar="SEED", min=0, max=LARGEST, help="The seed of the first life.")
    ] = 0,
    most: Annotated[int, typer.Option("--most", min=1, max=LARGEST, help="Give up on a bug after N lives.")] = 40,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work.")] = 1,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write planted-sql.json and planted-sql.md there.")
    ] = None,
) -> int:
    """Plant bugs in the SQL of the real stores, in memory, and see that each is caught. Exit status 1 on a miss.

    Each store is first tried without a bug, by the same hunters: seeded lives that the model lives too, and on a
    PostgreSQL server of its own rivals that hold locks. What is caught counts only where that finds nothing.
    """
    from stepkeep_lab.storecheck.hunt import STORES, Catch, Score, hunt
    from stepkeep_lab.storecheck.report import as_json, clean, line, verdict, write

    tell = warn if settings.json else say

    def told(name: str, found: Catch | Score) -> None:
        tell(line(found) if isinstance(found, Score) else f"{name} with nothing planted: {clean(found)}")

    found = hunt(tuple(only or ()), stores=tuple(store or STORES), first=first, most=most, jobs=jobs, told=told)
    if report is not None:
        write(found, Path(report))
    if settings.json:
        answer({"planted_sql": as_json(found)})
    else:
        say(verdict(found))
    return SUCCEEDED if found.ok else FAILED
