"""`stepkeep schemas`: the registry of JSON Schemas that definitions refer to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from stepkeep.cli.printer import answer, console, say
from stepkeep.cli.session import open_engine
from stepkeep.cli.settings import Settings, with_settings
from stepkeep.cli.status import SUCCEEDED

app = typer.Typer(help="JSON Schemas that definitions refer to by name.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="REF", help="The reference of a published schema.", show_default=False)]


def publish(
    settings: Settings,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON Schema: JSON or YAML.", show_default=False)],
    ref: Annotated[
        str, typer.Option("--ref", metavar="REF", help="The name by which definitions refer to it.", show_default=False)
    ],
) -> int:
    """Publish a JSON Schema under a reference. A published schema never changes."""
    from stepkeep.definition.document import read_document

    schema: Any = read_document(file).data

    async def go() -> None:
        async with open_engine(settings, creates=True) as engine:
            found = await engine.publish_schema(ref, schema)
        if settings.json:
            answer(found)
        else:
            one = found["schema"]
            say(f"schema {one['ref']} is published, digest {one['digest'][:12]}")

    asyncio.run(go())
    return SUCCEEDED


def list_(settings: Settings) -> int:
    """List published schemas by reference."""

    async def go() -> None:
        async with open_engine(settings) as engine:
            found = await engine.schemas()
        if settings.json:
            answer(found)
        elif not found["schemas"]:
            say("no schema is published")
        else:
            from stepkeep.cli.render.tables import plain_table

            console().print(plain_table([{**one, "digest": one["digest"][:12]} for one in found["schemas"]]))

    asyncio.run(go())
    return SUCCEEDED


def show(settings: Settings, ref: Ref) -> int:
    """Print a published schema."""
    import msgspec

    async def go() -> None:
        async with open_engine(settings) as engine:
            found = await engine.schema(ref)
        if settings.json:
            answer(found)
        else:
            for line in msgspec.json.format(msgspec.json.encode(found["schema"]["document"])).decode().splitlines():
                say(line)

    asyncio.run(go())
    return SUCCEEDED


app.command("publish")(with_settings(publish))
app.command("list")(with_settings(list_))
app.command("show")(with_settings(show))
