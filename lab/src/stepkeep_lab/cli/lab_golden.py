"""`stepkeep lab golden`: records today's behaviour, and shows where it has changed since."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import CommandNeeds, Settings, with_settings
from stepkeep.kernel.errors import InvalidInput

golden = typer.Typer(help="Record what the engine does, and see where it has changed.", no_args_is_help=True)

Folder = Annotated[str, typer.Option("--folder", metavar="DIR", help="Where the record is.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="PART", help="Only documents, lives or statements (repeatable)."),
]
Long = Annotated[bool, typer.Option("--long", help="30,000 lives instead of 5,000.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work.")]
FOLDER = "tests/golden"


def record(settings: Settings, folder: Folder = FOLDER, only: Only = None, long: Long = False, jobs: Jobs = 2) -> int:
    """Write the record anew: documents, simulated lives, logs of statements.

    It refuses lives that do not reach every row of the state tables and every event. Commit it alone, with the reason.
    """
    from stepkeep_lab.golden import record as work

    work.record(Path(folder), _parts(only), long=long, jobs=jobs, told=warn)
    if settings.json:
        answer({"recorded": list(_parts(only))})
    else:
        say(f"recorded in {folder}: {', '.join(_parts(only))}")
    return SUCCEEDED


def check(
    settings: Settings,
    folder: Folder = FOLDER,
    only: Only = None,
    long: Long = False,
    jobs: Jobs = 2,
    most: Annotated[
        int | None,
        typer.Option("--most", min=1, max=LARGEST, help="At most N lives of a profile, and N logs of a store."),
    ] = None,
) -> int:
    """Compare with the record, and name each seed or document that differs, with its place. Exit status 1 then."""
    from stepkeep_lab.golden import record as work

    found = work.check(Path(folder), _parts(only), long=long, jobs=jobs, most=most, told=warn)
    if settings.json:
        answer({"differences": found})
    else:
        for line in "\n".join(found).splitlines():
            say(line)
        say(f"{len(found)} differences" if found else "nothing differs")
    return FAILED if found else SUCCEEDED


def _parts(only: list[str] | None) -> tuple[str, ...]:
    from stepkeep_lab.golden.record import PARTS

    for part in only or ():
        if part not in PARTS:
            raise InvalidInput(f"there is no part {part!r}. Choose from: {', '.join(PARTS)}.")
    return tuple(only or PARTS)


golden.command("record")(with_settings(record, CommandNeeds.NOTHING))
golden.command("check")(with_settings(check, CommandNeeds.NOTHING))
