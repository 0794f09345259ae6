"""`stepkeep lab proof`: runs the long checks part by part, and keeps each result with the commit it is of."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings


def proof(
    settings: Settings,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="Only this part (repeatable).")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0, max=10_000, help="Begin no part after this many minutes.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Run nothing; show each part with its minutes, and whether it is proved.")
    ] = False,
) -> int:
    """Run the long checks, each part of at most 25 minutes. Exit status 1 unless all have passed on this code.

    Results are in docs/reports/proof.json, and what a part printed is in build/proof. A part that passed on the same
    code is not run again: its code is that of the folders it depends on, and documents are in none.
    """
    from stepkeep_lab import proof as work

    if not show:
        work.run(only or (), told=warn, minutes=minutes)
    there, kept = work.chosen(only or ()), work.results()
    problems = {part.name: work.problem(part, kept, work.code(part)) for part in there}
    left = [name for name, problem in problems.items() if problem]
    if settings.json:
        parts = [{"name": part.name, "minutes": part.minutes, "problem": problems[part.name]} for part in there]
        answer({"proved": not left, "parts": parts})
        return FAILED if left else SUCCEEDED
    for part in there:
        if show or problems[part.name]:
            say(f"{part.name:<18}{part.minutes:>3} min  {problems[part.name] or 'passed on this code'}")
    minutes_left = sum(part.minutes for part in there if problems[part.name])
    say("every part has passed on this code" if not left else f"{len(left)} parts are left, about {minutes_left} min")
    return FAILED if left else SUCCEEDED
