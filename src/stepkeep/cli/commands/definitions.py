"""`stepkeep definitions` and `stepkeep publish`: which workflows are published, in which versions; publish one more."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import Apps, WrittenAs
from stepkeep.cli.printer import answer, console, quiet_stdout, say
from stepkeep.cli.session import load_definition, load_handlers, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED


def definitions(
    settings: Settings,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only the versions of this workflow.", show_default=False)
    ] = None,
) -> int:
    """List published workflows with their versions."""
    found = asyncio.run(_list(settings, name))
    if settings.json:
        answer(found)
    elif not found["definitions"]:
        say("no workflow is published" if name is None else f"no workflow {name} is published")
    else:
        from stepkeep.cli.render.tables import plain_table

        console().print(plain_table([{**one, "digest": one["digest"][:12]} for one in found["definitions"]]))
    return SUCCEEDED


def publish(
    settings: Settings,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A definition: YAML, JSON, or FILE.py[:NAME].", show_default=False)
    ],
    app: Apps = None,
    as_: WrittenAs = None,
) -> int:
    """Publish a workflow without starting a run. The same version with other content is refused."""
    with quiet_stdout(settings.json):
        definition = load_definition(file, load_handlers(app) if app else None, as_)

    async def go() -> dict[str, Any]:
        async with open_engine(settings, creates=True) as engine:
            plan = await engine.publish(definition)
            found = await engine.definitions(name=plan.definition.name)
            return next(one for one in found["definitions"] if one["version"] == plan.definition.version)

    one = asyncio.run(go())
    if settings.json:
        answer({"definition": one})
    else:
        say(f"{one['workflow']} version {one['version']} is published, digest {one['digest'][:12]}")
    return SUCCEEDED


async def _list(settings: Settings, name: str | None) -> dict[str, Any]:
    async with open_engine(settings) as engine:
        return await engine.definitions(name=name)
