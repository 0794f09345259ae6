"""`stepkeep send`: put a message into a run's inbox, where it is kept until a step waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import By, RunId
from stepkeep.cli.commands.decide import ask, stands
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED


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
    by: By = None,
) -> int:
    """Send a message to a run."""
    value = json_value(payload, "--payload")
    said = asyncio.run(
        ask(settings, run, lambda engine, found: engine.send(found, name, value, message_id=message_id, by=by))
    )
    if settings.json:
        answer(said)
        return SUCCEEDED
    say(f"{name} {_fate(said['decision'])}; {stands(said['run'])}")
    return SUCCEEDED


def _fate(record: Mapping[str, Any]) -> str:
    """What became of a message: people who mistype an event's name should see that no step waited for it."""
    if record["repeated"]:
        return f"was sent before as {record['id']}, and nothing changed"
    if record.get("consumed_by") is None:
        return "is kept: no step waits for it yet"
    return f"went to {record['consumed_by']}"
