"""`stepkeep start`: create a run and leave it to the workers, or start one that was created idle."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from stepkeep.cli.arguments import LARGEST, Apps, By, Elsewhere, Input, WrittenAs, label_of, moment_of
from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.session import (
    find_run,
    json_value,
    load_definition,
    load_handlers,
    looks_like_a_file,
    open_engine,
)
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import UNFINISHED, status_of_run
from stepkeep.kernel.errors import InvalidInput


def start(
    settings: Settings,
    what: Annotated[
        str | None, typer.Argument(metavar="FILE_OR_NAME", help="A definition, or the name of a published one.")
    ] = None,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, max=LARGEST, help="Which published version; the highest by default."),
    ] = None,
    idle: Annotated[bool, typer.Option("--idle", help="Create the run and start it later (with --run).")] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Idempotency key: the same key never makes a second run."),
    ] = None,
    business_key: Annotated[
        str | None, typer.Option("--business-key", metavar="KEY", help="At most one live run has this key.")
    ] = None,
    correlation_id: Annotated[
        str | None, typer.Option("--correlation-id", metavar="ID", help="What the run belongs to, for searching.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=TEXT", help="A label of the run, for searching; may be repeated."),
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=-1_000_000, max=1_000_000, help="Higher goes first.")
    ] = None,
    as_: WrittenAs = None,
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Start this run, created idle.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Start the run then, such as 2026-11-03T10:15Z.")
    ] = None,
    in_: Annotated[
        str | None, typer.Option("--in", metavar="DURATION", help="Start the run after this time, such as 2h.")
    ] = None,
    webhook_url: Annotated[
        str | None, typer.Option("--webhook-url", metavar="URL", help="Post the end of the run to this address.")
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option("--webhook-secret", metavar="NAME", help="Name of the workers' secret that signs it."),
    ] = None,
    elsewhere: Elsewhere = False,
    by: By = None,
) -> int:
    """Start a run and return at once; workers do the rest."""
    if (what is None) == (run is None):
        raise InvalidInput("Say what to start: either FILE_OR_NAME for a new run, or --run RUN for an idle one.")
    if run is not None and (at is not None or in_ is not None):
        raise InvalidInput("--run starts an idle run now: leave out --at and --in.")
    if run is not None and (webhook_url is not None or webhook_secret is not None):
        raise InvalidInput("--webhook-url is for a new run: an idle one has the address that it was created with.")
    options = {
        "idempotency_key": key,
        "business_key": business_key,
        "correlation_id": correlation_id,
        "priority": priority,
        "start_now": not idle,
        "labels": dict(label_of(one) for one in label) if label else None,
        "by": by,
        "at": None if at is None else moment_of(at, "--at", is_ago=False),
        "delay": in_,
        "webhook_url": webhook_url,
        "webhook_secret": webhook_secret,
    }
    if run is not None:
        said = asyncio.run(_start_idle(settings, run, by))
    else:
        given = json_value(input, "--input")
        said = asyncio.run(_start(settings, str(what), as_, version, None if elsewhere else app or [], given, options))
    if settings.json:
        answer(said)
    else:
        state = said["run"]["state"]
        made = "" if said["created"] else " (made before under this key)"
        later = f", starts at {said['run']['starts_at']}" if said["run"].get("starts_at") else ""
        say(f"run {said['run']['id']} {state}{later}{made}")
        for warning in said.get("unserved", ()):
            warn(warning)
        if state not in ("succeeded", "failed"):
            say(f"look at it with: {settings.command('show', said['run']['id'])}")
    state = said["run"]["state"]
    return 0 if status_of_run(state) == UNFINISHED else status_of_run(state)


async def _start(
    settings: Settings,
    what: str,
    as_: str | None,
    version: int | None,
    apps: list[str] | None,
    given: Any,
    options: dict[str, Any],
) -> dict[str, Any]:
    from stepkeep.operations.diagnosis import unserved_steps
    from stepkeep.operations.retention import require_kept

    handlers = None if apps is None else load_handlers(apps)
    async with open_engine(settings, creates=True) as engine:
        if looks_like_a_file(what):
            if version is not None:
                raise InvalidInput("--version is for published names; a file says its version itself.")
            workflow: Any = load_definition(what, handlers, as_)
        else:
            from stepkeep.operations.publish import Newest, find_plan

            workflow = await find_plan(engine.transactor, what, version, tenant=engine.tenant)
            workflow = Newest(workflow) if version is None else workflow
        plan = await engine.publish(workflow)
        started = await engine.start(workflow, given, **options)
        await require_kept(engine.store, started, tenant=engine.tenant)
        unserved = await unserved_steps(engine.transactor, plan, tenant=engine.tenant)
        return {**await engine.show(started.run_id), "created": started.created, "unserved": unserved}


async def _start_idle(settings: Settings, run: str, by: str | None) -> dict[str, Any]:
    async with open_engine(settings) as engine:
        run_id = await find_run(engine, run)
        await engine.start_idle(run_id, by=by)
        return {**await engine.show(run_id), "created": True}
