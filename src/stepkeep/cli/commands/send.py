"""`stepkeep send`: put a message into a run's inbox, where it is kept until a step waits for it."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.arguments import RunId
from stepkeep.cli.commands.decide import decided
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings


def send(
    settings: Settings,
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The event's name.", show_default=False)],
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON|@FILE", help="What the message says.")
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The sender's id: the same one again changes nothing."),
    ] = None,
) -> int:
    """Send a message to a run."""
    value = json_value(payload, "--payload")
    return decided(settings, run, lambda engine, found: engine.send(found, name, value, message_id=message_id))
