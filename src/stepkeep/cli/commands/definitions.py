"""`stepkeep definitions`, `publish`, `withdraw` and `restore`: published versions of workflows, and which may start."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import LARGEST, Apps, By, Elsewhere, WrittenAs
from stepkeep.cli.commands.users import ask
from stepkeep.cli.printer import answer, console, quiet_stdout, say
from stepkeep.cli.session import load_definition, load_handlers, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED

Workflow = Annotated[str, typer.Argument(metavar="WORKFLOW", help="The name of a workflow.", show_default=False)]
Version = Annotated[int, typer.Argument(metavar="VERSION", min=1, max=LARGEST, help="Its number.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stays on record.", show_default=False)]


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

        console().print(plain_table([_line(one) for one in found["definitions"]]))
    return SUCCEEDED


def _line(one: dict[str, Any]) -> dict[str, Any]:
    gone = one["withdrawn"]
    return {**one, "digest": one["digest"][:12], "withdrawn": "" if gone is None else f"{gone['by']}: {gone['reason']}"}


def publish(
    settings: Settings,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A definition: YAML, JSON, or FILE.py[:NAME].", show_default=False)
    ],
    app: Apps = None,
    as_: WrittenAs = None,
    elsewhere: Elsewhere = False,
) -> int:
    """Publish a workflow without starting a run. The same version with other content is refused."""
    with quiet_stdout(settings.json):
        definition = load_definition(file, None if elsewhere else load_handlers(app or []), as_, advises=True)

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


def withdraw(settings: Settings, workflow: Workflow, version: Version, reason: Reason, by: By = None) -> int:
    """Let no run of a published version start any more. Its live runs go on; `stepkeep restore` takes it back."""

    one = ask(settings, lambda engine: engine.versions.withdraw(workflow, version, reason=reason, by=by))
    if settings.json:
        answer({"withdrawn": one})
    else:
        say(f"version {version} of {workflow} is withdrawn: no run of it starts; its live runs go on")
        for name in one.triggers:
            say(f"the trigger {name} would start it: its firings are refused until you pause it, or publish a version")
    return SUCCEEDED


def restore(settings: Settings, workflow: Workflow, version: Version, by: By = None) -> int:
    """Let runs of a withdrawn version start again."""

    one = ask(settings, lambda engine: engine.versions.restore(workflow, version, by=by))
    if settings.json:
        answer({"restored": one})
    else:
        say(f"version {version} of {workflow} is restored: its runs start again")
    return SUCCEEDED


async def _list(settings: Settings, name: str | None) -> dict[str, Any]:
    async with open_engine(settings) as engine:
        return await engine.definitions(name=name)
