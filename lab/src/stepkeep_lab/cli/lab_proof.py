"""`stepkeep lab proof`: runs the long checks part by part, and keeps each result with the commit it is of."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED


def proof(
    settings: Settings,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="Only this part (repeatable).")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0, max=10_000, help="Begin no part after this many minutes.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Run nothing; say what is proved of this code.")] = False,
) -> int:
    """Run the long checks, each part of at most 25 minutes. Exit status 1 unless all have passed on this code.

    Results are in docs/reports/proof.json. A part that passed on the same code is not run again; commits that differ in
    documents alone are the same code.
    """
    from stepkeep_lab import proof as work

    if not show:
        work.run(only or (), told=warn, minutes=minutes)
    left = list(work.unproved(work.chosen(only or ()), work.results(), work.code()))
    if settings.json:
        answer({"proved": not left, "left": left})
    else:
        for one in left:
            say(one)
        say("every part has passed on this code" if not left else f"{len(left)} parts are left")
    return FAILED if left else SUCCEEDED
