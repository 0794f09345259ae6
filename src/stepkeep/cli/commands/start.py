"""`stepkeep start`: create a run and leave it to the workers, or start one that was created idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import ask, of_run
from stepkeep.cli.arguments import (
    Apps,
    By,
    Elsewhere,
    IdempotencyKey,
    Input,
    Text,
    Texts,
    WrittenAs,
    arg,
    label_of,
    moment_of,
    opt,
)
from stepkeep.cli.command import program
from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.session import json_value, load_handlers, load_workflow, looks_like_a_file, published_version
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED, UNFINISHED, status_of_run
from stepkeep.kernel.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import Registry
    from stepkeep.engine import AsyncEngine


@program.command("start")
def start(
    settings: Settings,
    what: Annotated[Text, arg("FILE_OR_NAME", "A definition, or the name of a published one.")] = None,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    version: Annotated[
        int | None, opt("--version", "Which published version; the highest by default.", bounds_of="unserved version")
    ] = None,
    idle: Annotated[bool, opt("--idle", "Create the run and start it later (with --run).")] = False,
    key: IdempotencyKey = None,
    business_key: Annotated[Text, opt("--business-key", "KEY", "At most one live run has this key.")] = None,
    correlation_id: Annotated[Text, opt("--correlation-id", "ID", "What the run belongs to, for searching.")] = None,
    label: Annotated[Texts, opt("--label", "NAME=TEXT", "A label of the run, for searching; may be repeated.")] = None,
    priority: Annotated[int | None, opt("--priority", "Higher goes first.", min=-1_000_000, max=1_000_000)] = None,
    as_: WrittenAs = None,
    run: Annotated[Text, opt("--run", "RUN", "Start this run, created idle.")] = None,
    at: Annotated[Text, opt("--at", "TIME", "Start the run then, such as 2026-11-03T10:15Z.")] = None,
    in_: Annotated[Text, opt("--in", "DURATION", "Start the run after this time, such as 2h.")] = None,
    webhook_url: Annotated[Text, opt("--webhook-url", "URL", "Post the end of the run to this address.")] = None,
    webhook_secret: Annotated[
        Text, opt("--webhook-secret", "NAME", "Name of the workers' secret that signs it.")
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
    options: dict[str, Any] = {
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
    given = json_value(input, "--input")
    handlers = None if elsewhere or run is not None else load_handlers(app or [])

    async def begin(engine: AsyncEngine) -> dict[str, Any]:
        from stepkeep.operations.logs.retention import gone

        workflow = await _workflow(settings, engine, str(what), version, handlers, as_)
        started = await engine.start(workflow, given, **options)
        try:
            view = await engine.show(started.run_id)
        except NotFound:
            if started.created:
                raise
            raise gone(started.run_id) from None
        told = await engine.unserved(view["run"]["workflow"], view["run"]["version"])
        return {**view, "created": started.created, "unserved": told.unserved}

    async def begin_idle(engine: AsyncEngine, run_id: str) -> dict[str, Any]:
        await engine.start_idle(run_id, by=by)
        return {**await engine.show(run_id), "created": True}

    said = ask(settings, begin if run is None else of_run(run, begin_idle), creates=run is None)
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
    status = status_of_run(said["run"]["state"])
    return SUCCEEDED if status == UNFINISHED else status


async def _workflow(
    settings: Settings, engine: AsyncEngine, what: str, version: int | None, handlers: Registry | None, as_: str | None
) -> Any:
    """What to start: the definition in a file, or a published version. A name alone stands for the newest one."""
    if looks_like_a_file(what):
        if version is not None:
            raise InvalidInput("--version is for published names; a file says its version itself.")
        return load_workflow(settings, what, handlers, as_)
    return what if version is None else await published_version(settings, engine, what, version)
