"""`stepkeep rerun`: a new run of a finished one's definition and input, executed here or left to the workers."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from stepkeep.cli.arguments import Apps, By, Capabilities, Concurrency, Input, RunId
from stepkeep.cli.commands.continuing import Asked, DryRun, Place, Version, go_on, preview
from stepkeep.cli.commands.run import conclude
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import quiet_stdout
from stepkeep.cli.screens import screen_for
from stepkeep.cli.session import find_run, json_value, load_handlers, open_engine
from stepkeep.cli.settings import Settings
from stepkeep.cli.working import Worked, require_code_to_go_on, work_on
from stepkeep.kernel.errors import InvalidInput


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
    from_step: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="Run only this step and what depends on it; adopt the rest."),
    ] = None,
    version: Version = None,
    dry_run: DryRun = False,
) -> int:
    """Run a finished run again, as a new run that names the old one."""
    given = json_value(input, "--input")
    if version is not None and from_step is None:
        raise InvalidInput("--version goes with --from: without it, start a run of that version with `stepkeep start`.")
    if dry_run or from_step is not None:
        asked = Asked(how="rerun", run=run, start=from_step, given=given, input=input, version=version, key=key, by=by)
        place = Place(apps=app or [], wait=wait, concurrency=concurrency, capabilities=capability or [])
        return preview(settings, asked) if dry_run else go_on(settings, policies, asked, place)
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
    from stepkeep.operations.plans import plan_of

    async with open_engine(settings, policies, operation="run" if wait else None) as engine:
        run_id = await find_run(engine, text)
        if wait:
            plan = await plan_of(engine.transactor, engine.tenant, run_id)
            require_code_to_go_on(engine, run_id, plan, plan.numbers, capabilities)
        started = await engine.rerun(run_id, input=given, idempotency_key=key, by=by)
        if not wait:
            return Worked(await engine.show(started.run_id), {}, interrupted=False)
        screen = screen_for(json=settings.json)
        return await work_on(engine, started.run_id, screen, concurrency=concurrency, capabilities=capabilities)
