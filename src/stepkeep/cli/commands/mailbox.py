"""`stepkeep mailbox`: messages that are kept for a business key that no live run has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.session import open_engine
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import SUCCEEDED

app = typer.Typer(help="Messages that are kept for runs that do not exist yet.", no_args_is_help=True)


def list_(
    settings: Settings,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Only those for this business key.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 100,
) -> int:
    """List the messages that are kept, in the order of business key and arrival."""

    async def go() -> None:
        async with open_engine(settings) as engine:
            found = await engine.mailbox.list(key, limit=limit)
        if settings.json:
            answer(found)
        elif not found["messages"]:
            say("no message is kept")
        else:
            from stepkeep.cli.render.tables import plain_table

            console().print(plain_table([_row(one) for one in found["messages"]]))
            if found["more"]:
                say(f"there are more: {settings.command('mailbox', 'list', '--limit', str(min(limit * 10, 10_000)))}")

    asyncio.run(go())
    return SUCCEEDED


def _row(message: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: message[name] for name in ("key", "id", "name", "sender", "arrived_at")}
    return {**shown, "kept until": "expired" if message["expired"] else message["expires_at"]}


def drop(
    settings: Settings,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The business key.", show_default=False)],
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only this message.", show_default=False)
    ] = None,
) -> int:
    """Drop what is kept for a business key. A duplicate of a dropped message is not kept again."""

    async def go() -> None:
        async with open_engine(settings) as engine:
            found = await engine.mailbox.drop(key, message_id)
        if settings.json:
            answer(found)
        else:
            say(f"dropped for {key}: {', '.join(found['dropped'])}")
            say(f"what is left: {settings.command('mailbox', 'list', key)}")

    asyncio.run(go())
    return SUCCEEDED


app.command("list")(with_settings(list_))
app.command("drop")(with_settings(drop))
