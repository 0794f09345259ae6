"""`stepkeep complete`: somebody finishes a manual step, with the token that was issued for it."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.arguments import RunId
from stepkeep.cli.commands.decide import decided
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings


def complete(
    settings: Settings,
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step to complete.", show_default=False)],
    token: Annotated[
        str, typer.Option("--token", metavar="TOKEN", help="The token that its handler was given.", show_default=False)
    ],
    outcome: Annotated[
        str, typer.Option("--outcome", metavar="OUTCOME", help="Succeeded, Failed or Cancelled.")
    ] = "Succeeded",
    output: Annotated[
        str | None, typer.Option("--output", metavar="JSON|@FILE", help="What the step comes to.")
    ] = None,
    notes: Annotated[str, typer.Option("--notes", metavar="TEXT", help="Kept with the completion.")] = "",
    evidence: Annotated[
        list[str] | None,
        typer.Option("--evidence", metavar="REFERENCE", help="Where the proof is; may be repeated."),
    ] = None,
) -> int:
    """Complete a manual step by hand."""
    value = json_value(output, "--output")
    return decided(
        settings,
        run,
        lambda engine, found: engine.complete(
            found, step, token=token, outcome=outcome, output=value, notes=notes, evidence=evidence or ()
        ),
    )
