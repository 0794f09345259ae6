"""`stepkeep run`: execute a workflow in this process, with progress; or go on with a run that was interrupted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from stepkeep.cli.arguments import Apps, Capabilities, Concurrency, Input, WrittenAs, arg, opt
from stepkeep.cli.asking import find_run, open_engine
from stepkeep.cli.hints import hints
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import answer, console, quiet_stdout, warn
from stepkeep.cli.screens import screen_for
from stepkeep.cli.session import is_python, json_value, load_definition, load_handlers
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import UNFINISHED, status_of_run
from stepkeep.cli.working import Worked, work_on
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.kernel.definition import Definition


def run(
    settings: Settings,
    policies: Policies,
    file: Annotated[str | None, arg("FILE", "A definition: YAML, JSON, or FILE.py[:NAME].")] = None,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    resume: Annotated[str | None, opt("--resume", "RUN", "Go on with this run instead of starting one.")] = None,
    no_wait: Annotated[bool, opt("--no-wait", "Start the run and leave it to the workers.")] = False,
    key: Annotated[str | None, opt("--key", "KEY", "Idempotency key: the same key never makes a second run.")] = None,
    as_: WrittenAs = None,
    concurrency: Concurrency = 16,
    dev: Annotated[
        bool, opt("--dev", "Publish a changed file under the next version by itself, while you try it.")
    ] = False,
    serve_all: Annotated[bool, opt("--serve-all", "Execute steps of other runs here too, as a worker does.")] = False,
    capability: Capabilities = None,
) -> int:
    """Execute a workflow in this process until it ends, or until only people or messages can move it.

    Steps of other runs are left to their workers, and so are steps that need a capability which was not given.

    Interrupted or killed, the run is still there: `stepkeep run --resume RUN` goes on where it stood.
    """
    if (file is None) == (resume is None):
        raise InvalidInput("Say what to run: either FILE for a new run, or --resume RUN for one that is there.")
    if resume is not None and no_wait:
        raise InvalidInput("--resume works on the run here; it cannot be combined with --no-wait.")
    if settings.server is not None:
        raise InvalidInput(
            "run executes the steps here, beside a database (--db URL). At a service, `stepkeep start` leaves them to "
            "its workers, and `stepkeep wait` waits for the end."
        )
    given = json_value(input, "--input")
    with quiet_stdout(settings.json):
        handlers = load_handlers(app or [])
        if resume is not None:
            worked = asyncio.run(_resume(settings, policies, resume, concurrency, serve_all, capability or []))
        else:
            # Without the code, names of handlers cannot be checked; the worker of the run will check them.
            definition = load_definition(str(file), None if no_wait and not app else handlers, as_)
            starts = _run(
                settings, policies, definition, given, key, no_wait, concurrency, dev, serve_all, capability or []
            )
            worked = asyncio.run(starts)
    return conclude(settings, worked, [*(app or []), *([code] if (code := code_of(file)) else [])])


def code_of(file: str | None) -> str | None:
    """The file with the handlers, where a workflow and its handlers are in one file of Python."""
    return None if file is None or not is_python(file) else f"{file.partition('.py')[0]}.py"


async def _run(
    settings: Settings,
    policies: Policies,
    definition: Definition,
    given: object,
    key: str | None,
    no_wait: bool,
    concurrency: int,
    dev: bool,
    serve_all: bool,
    capabilities: list[str],
) -> Worked:
    from stepkeep.operations.retention import require_kept

    async with open_engine(settings, policies, creates=True, dev=dev, operation=None if no_wait else "run") as engine:
        started = await engine.start(definition, given, idempotency_key=key)
        await require_kept(engine.store, started, tenant=engine.tenant)
        if no_wait:
            return Worked((await engine.show(started.run_id)).as_json(), {}, interrupted=False)
        screen = screen_for(json=settings.json)
        return await work_on(
            engine,
            started.run_id,
            screen,
            concurrency=concurrency,
            resumed=not started.created,
            serve_all=serve_all,
            capabilities=capabilities,
        )


async def _resume(
    settings: Settings, policies: Policies, text: str, concurrency: int, serve_all: bool, capabilities: list[str]
) -> Worked:
    async with open_engine(settings, policies, operation="work_on") as engine:
        run_id = await find_run(engine, text)
        screen = screen_for(json=settings.json)
        return await work_on(
            engine,
            run_id,
            screen,
            concurrency=concurrency,
            resumed=True,
            serve_all=serve_all,
            capabilities=capabilities,
        )


def conclude(settings: Settings, worked: Worked, apps: list[str]) -> int:
    """Say how the run stands and what to type next; the exit status says it, too."""
    run = worked.view["run"]
    status = status_of_run(run["state"])
    for one in worked.lacking:
        warn(f"{one}, and no live worker has it")
    if settings.json:
        answer(worked.view)
        return status
    from stepkeep.cli.render.report import head, tail

    screen = console()
    for part in [*head(run), *tail(run, hints(worked.view, settings, worked.tokens))]:
        screen.print(part, soft_wrap=True)
    if status == UNFINISHED and settings.server is not None:
        warn(f"then, to wait for its end: {settings.command('wait', run['id'])}")
    elif status == UNFINISHED:
        code = [word for app in apps for word in ("--app", app)]
        words = dict.fromkeys(word for one in worked.lacking for word in one.words)
        skills = [part for word in words for part in ("--capability", word)]
        warn(f"then, to go on: {settings.command('run', '--resume', run['id'], *code, *skills)}")
    return status
