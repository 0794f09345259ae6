"""`stepkeep rerun`: a new run of a finished one's definition and input, executed here or left to the workers."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from stepkeep.cli.arguments import Apps, By, Capabilities, Concurrency, Input, RunId
from stepkeep.cli.commands.run import conclude
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import quiet_stdout
from stepkeep.cli.screens import screen_for
from stepkeep.cli.session import find_run, json_value, load_handlers, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.working import Worked, work_on


def rerun(
    settings: Settings,
    policies: Policies,
    run: RunId,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Execute it here, or leave it to the workers.")] = True,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Idempotency key: the same key never makes a second run."),
    ] = None,
    concurrency: Concurrency = 16,
    by: By = None,
    capability: Capabilities = None,
) -> int:
    """Run a finished run again, as a new run that names the old one."""
    given = json_value(input, "--input")
    with quiet_stdout(settings.json):
        load_handlers(app or [])
        worked = asyncio.run(_rerun(settings, policies, run, given, key, wait, concurrency, by, capability or []))
    return conclude(settings, worked, app or [])


async def _rerun(
    settings: Settings,
    policies: Policies,
    text: str,
    given: object,
    key: str | None,
    wait: bool,
    concurrency: int,
    by: str | None,
    capabilities: list[str],
) -> Worked:
    async with open_engine(settings, policies, operation="run" if wait else None) as engine:
        started = await engine.rerun(await find_run(engine, text), input=given, idempotency_key=key, by=by)
        if not wait:
            return Worked(await engine.show(started.run_id), {}, interrupted=False)
        screen = screen_for(json=settings.json)
        return await work_on(engine, started.run_id, screen, concurrency=concurrency, capabilities=capabilities)
