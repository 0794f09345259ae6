"""`stepkeep complete`: completes a manual step, with the token that was issued for it."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.arguments import By, RunId
from stepkeep.cli.commands.decide import decided
from stepkeep.cli.session import json_value, read_file
from stepkeep.cli.settings import Settings
from stepkeep.errors import InvalidInput

MAX_TOKEN_BYTES = 4096


def complete(
    settings: Settings,
    run: RunId,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step to complete.", show_default=False)],
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="STEPKEEP_TOKEN",
            metavar="TOKEN",
            help="The token that its handler was given; also STEPKEEP_TOKEN, which the process list does not show.",
        ),
    ] = None,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="A file that holds the token; - reads a pipe.")
    ] = None,
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
    by: By = None,
) -> int:
    """Complete a manual step by hand."""
    value = json_value(output, "--output")
    presented = _token(token, token_file)
    return decided(
        settings,
        run,
        lambda engine, found: engine.complete(
            found, step, token=presented, outcome=outcome, output=value, notes=notes, evidence=evidence or (), by=by
        ),
    )


def _token(token: str | None, file: str | None) -> str:
    if file is not None:
        return read_file(file, "--token-file", MAX_TOKEN_BYTES).decode(errors="replace").strip()
    if token is None:
        raise InvalidInput("Give the token that the step's handler was given: STEPKEEP_TOKEN, --token-file or --token.")
    return token
