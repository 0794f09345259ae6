"""`stepkeep start`, `run`, `rerun`, `retry` and `fork`: new runs, left to workers or executed here with progress.

A new run that goes on with a finished one may be left to the workers, and has a preview. It calls the engine and
prints; it decides nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from stepkeep.cli.answering import ask, find_run, of_run, open_engine, print_answer
from stepkeep.cli.arguments import (
    Apps,
    By,
    Capabilities,
    Concurrency,
    Elsewhere,
    IdempotencyKey,
    Input,
    RunId,
    Text,
    Texts,
    WrittenAs,
    arg,
    label_of,
    moment_of,
    opt,
    options_of,
)
from stepkeep.cli.command import program
from stepkeep.cli.policies import StepPolicies
from stepkeep.cli.printer import SUCCEEDED, UNFINISHED, answer, console, quiet_stdout, say, status_of_run, warn
from stepkeep.cli.progress import screen_for
from stepkeep.cli.session import (
    is_python,
    json_value,
    load_definition,
    load_handlers,
    load_workflow,
    looks_like_a_file,
    published_version,
)
from stepkeep.cli.settings import Settings
from stepkeep.cli.working import Worked, require_code_to_go_on, work_on
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.operations.runs.causes import listed

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import Registry
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.continuation.previewing import CallsFate, ContinuationPreview


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
    if run is not None:
        if (at, in_) != (None, None):
            raise InvalidInput("--run starts an idle run now: leave out --at and --in.")
        if (webhook_url, webhook_secret) != (None, None):
            raise InvalidInput("--webhook-url is for a new run: an idle one has the address that it was created with.")

        async def begin_idle(engine: AsyncEngine, run_id: str) -> Mapping[str, Any]:
            await engine.start_idle(run_id, by=by)
            return {**await engine.show(run_id), "created": True}

        return _print_started(settings, ask(settings, of_run(run, begin_idle)))
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
    handlers = None if elsewhere else load_handlers(app or [])

    async def begin(engine: AsyncEngine) -> Mapping[str, Any]:
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

    return _print_started(settings, ask(settings, begin, creates=True))


def _print_started(settings: Settings, said: Mapping[str, Any]) -> int:
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


@program.command("run", policies=True)
def run(
    settings: Settings,
    policies: StepPolicies,
    file: Annotated[Text, arg("FILE", "A definition: YAML, JSON, or FILE.py[:NAME].")] = None,
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    resume: Annotated[Text, opt("--resume", "RUN", "Go on with this run instead of starting one.")] = None,
    no_wait: Annotated[bool, opt("--no-wait", "Start the run and leave it to the workers.")] = False,
    key: IdempotencyKey = None,
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
    working: dict[str, Any] = {"concurrency": concurrency, "serve_all": serve_all, "capabilities": capability or []}
    with quiet_stdout(settings.json):
        handlers = load_handlers(app or [])
        # Without the code, names of handlers cannot be checked; the worker of the run will check them.
        checked = None if no_wait and not app else handlers
        definition = None if resume is not None else load_definition(str(file), checked, as_)

        async def work() -> Worked:
            if definition is None:
                async with open_engine(settings, policies, operation="work_on") as engine:
                    found = await find_run(engine, str(resume))
                    return await work_on(engine, found, screen_for(json=settings.json), resumed=True, **working)
            from stepkeep.operations.logs.retention import require_kept

            needs = None if no_wait else "run"
            async with open_engine(settings, policies, creates=True, dev=dev, operation=needs) as engine:
                started = await engine.start(definition, given, idempotency_key=key)
                await require_kept(engine.store, started, tenant=engine.tenant)
                if no_wait:
                    return Worked((await engine.show(started.run_id)).as_json(), {}, interrupted=False)
                screen, was_there = screen_for(json=settings.json), not started.created
                return await work_on(engine, started.run_id, screen, resumed=was_there, **working)

        worked = asyncio.run(work())
    return conclude(settings, worked, [*(app or []), *([code] if (code := code_of(file)) else [])])


def code_of(file: str | None) -> str | None:
    """The file with the handlers, where a workflow and its handlers are in one file of Python."""
    return None if file is None or not is_python(file) else f"{file.partition('.py')[0]}.py"


def conclude(settings: Settings, worked: Worked, apps: list[str]) -> int:
    """Say how the run stands and what to type next; the exit status says it, too."""
    run = worked.view["run"]
    status = status_of_run(run["state"])
    for one in worked.lacking:
        warn(f"{one}, and no live worker has it")
    if settings.json:
        answer(worked.view)
        return status
    from stepkeep.cli.render.report import head, tail, what_next

    screen = console()
    for part in [*head(run), *tail(run, what_next(worked.view, settings, worked.tokens))]:
        screen.print(part, soft_wrap=True)
    if status == UNFINISHED and settings.server is not None:
        warn(f"then, to wait for its end: {settings.command('wait', run['id'])}")
    elif status == UNFINISHED:
        code = [word for app in apps for word in ("--app", app)]
        words = dict.fromkeys(word for one in worked.lacking for word in one.words)
        skills = [part for word in words for part in ("--capability", word)]
        warn(f"then, to go on: {settings.command('run', '--resume', run['id'], *code, *skills)}")
    return status


class ContinueOptions(NamedTuple):
    """How to go on with a finished run, as it was typed; where: here, with this code, or by workers elsewhere."""

    run: RunId
    start: Annotated[Text, opt("--from", "STEP", "The step; it and what depends on it run again.")] = None
    app: Apps = None
    input: Input = None
    version: Annotated[
        int | None,
        opt("--version", "N", "Another version, where that is safe.", bounds_of="continuations.retry version"),
    ] = None
    dry_run: Annotated[bool, opt("--dry-run", "Say what would run again and what would be adopted.")] = False
    wait: Annotated[
        bool | None,
        opt("--wait/--no-wait", "Execute it here, as is the default at a database, or leave it to the workers."),
    ] = None
    key: IdempotencyKey = None
    concurrency: Concurrency = 16
    by: By = None
    capability: Capabilities = None
    how: str = ""

    @property
    def given(self) -> Any:
        """The input."""
        return json_value(self.input, "--input")

    @property
    def runs_all(self) -> bool:
        """Whether every step runs again."""
        return self.how == "rerun" and self.start is None

    @property
    def words(self) -> list[str]:
        """The options that were typed and decide what the new run is."""
        typed = {
            "--from": self.start,
            "--input": self.input,
            "--version": None if self.version is None else str(self.version),
            "--idempotency-key": self.key,
            "--by": self.by,
        }
        return [word for name, value in typed.items() if value is not None for word in (name, value)]


def _continuing(how: str, says: str, *without: str, needs: Sequence[str] = ()) -> None:
    """Add the command that continues a run in this way: `without` some of the options, and with some that it needs."""

    def command(settings: Settings, policies: StepPolicies, **typed: Any) -> int:
        return _continue(settings, policies, ContinueOptions(**typed, how=how))

    parameters = [*inspect.signature(command).parameters.values()][:2]
    for one in options_of(ContinueOptions):
        if one.name not in ("how", *without):
            parameters.append(one.replace(default=inspect.Parameter.empty) if one.name in needs else one)
    shown: Any = command
    shown.__signature__, shown.__doc__ = inspect.Signature(parameters), says
    program.command(how, policies=True)(command)


_continuing(
    "retry",
    "Continue a run that did not succeed: adopt its finished steps in a new run, and run the others.",
    "start",
    "input",
)
_continuing(
    "fork", "Take another course from a step of a finished run, with another input if one is given.", needs=["start"]
)
_continuing("rerun", "Run a finished run again, or from a step, as a new run that names the old one.")


def _continue(settings: Settings, policies: StepPolicies, asked: ContinueOptions) -> int:
    """Preview the new run; or start it, and execute it here or leave it to the workers, as at a service."""
    if asked.runs_all and asked.version is not None:
        raise InvalidInput("--version goes with --from: without it, start a run of that version with `stepkeep start`.")
    if asked.wait:
        settings.require_database("--wait")
    asked = asked._replace(wait=settings.server is None if asked.wait is None else asked.wait)
    if asked.dry_run:
        return preview(settings, asked)
    apps = asked.app or []
    with quiet_stdout(settings.json):
        load_handlers(apps)
        worked = asyncio.run(_continue_run(settings, policies, asked))
    return conclude(settings, worked, apps)


async def _continue_run(settings: Settings, policies: StepPolicies, asked: ContinueOptions) -> Worked:
    async with open_engine(settings, policies, operation="run" if asked.wait else None) as engine:
        if asked.wait:
            await _require_code(engine, asked)
        run_id = await _started(engine, asked)
        if not asked.wait:
            return Worked((await engine.show(run_id)).as_json(), {}, interrupted=False)
        working: dict[str, Any] = {"concurrency": asked.concurrency, "capabilities": asked.capability or []}
        return await work_on(engine, run_id, screen_for(json=settings.json), **working)


async def _require_code(engine: AsyncEngine, asked: ContinueOptions) -> None:
    """Refuse to make a run that cannot be executed here."""
    from stepkeep.operations.definitions.publish import find_plan
    from stepkeep.operations.pipeline.plans import plan_of

    run_id = await find_run(engine, asked.run)
    plan = await plan_of(engine.transactor, engine.tenant, run_id)
    left: Any = plan.numbers
    if not asked.runs_all:
        try:
            found = await _preview(engine, asked)
        except Conflict:
            # The start says so, too, unless its idempotency key made the run before.
            return
        plan = await find_plan(engine.transactor, plan.definition.name, found.version, tenant=engine.tenant)
        left = found.runs_again
    require_code_to_go_on(engine, run_id, plan, left, asked.capability or [])


async def _started(engine: AsyncEngine, asked: ContinueOptions) -> str:
    run_id = await find_run(engine, asked.run)
    common: dict[str, Any] = {"version": asked.version, "idempotency_key": asked.key, "by": asked.by}
    if asked.runs_all:
        again = await engine.rerun(run_id, input=asked.given, idempotency_key=asked.key, by=asked.by)
        return again.run_id
    if asked.start is None:
        return (await engine.continuations.retry(run_id, **common)).run_id
    method = engine.continuations.rerun if asked.how == "rerun" else engine.continuations.fork
    return (await method(run_id, asked.start, input=asked.given, **common)).run_id


def preview(settings: Settings, asked: ContinueOptions) -> int:
    """Say what would happen, and write nothing."""
    if asked.runs_all:
        raise InvalidInput("--dry-run goes with --from: without it every step runs again.")
    return print_answer(
        settings,
        lambda engine: _preview(engine, asked),
        lambda found: _lines(found, settings, asked),
        under="continuation",
    )


async def _preview(engine: AsyncEngine, asked: ContinueOptions) -> ContinuationPreview:
    how: Any = asked.how
    return await engine.continuations.preview(
        await find_run(engine, asked.run), how, start=asked.start, input=asked.given, version=asked.version, by=asked.by
    )


MOST_CALLS = 20
"""How many calls of a flow are told; JSON has all of them."""


def _call_lines(flow: CallsFate) -> Iterator[str]:
    yield f"{flow.flow} is given {flow.adopted} of its calls as they ended"
    for one in flow.again[:MOST_CALLS]:
        key = "with a new key" if one.key is None else f"with the key {one.key} if its arguments are equal"
        repeat = "; its effect may happen twice" if one.may_repeat else ""
        yield f"{one.step} ({one.call}) runs again, {key}: {one.says}{repeat}"
    if (more := len(flow.again) - MOST_CALLS) > 0:
        yield f"and {more} more calls of {flow.flow}"


def _lines(found: ContinuationPreview, settings: Settings, asked: ContinueOptions) -> Iterator[str]:
    for step in found.steps:
        said = f"{step.step} is adopted: " if step.adopted else f"{step.step} runs again: "
        repeat = f"; its effect ({step.effect}) may happen twice" if step.may_repeat else ""
        yield said + step.says + repeat
    for flow in found.calls:
        yield from _call_lines(flow)
    if found.reopens:
        yield f"people are asked anew: {', '.join(found.reopens)}"
    if found.owns_undo:
        yield f"a rollback of the new run would also undo {listed(found.owns_undo)}"
    if found.child_of:
        yield f"the new run is no child: run {found.child_of} does not wait for it"
    if found.continued_by:
        yield f"it is repeated or continued already by {', '.join(found.continued_by)}"
    yield f"Do it: {settings.command(asked.how, found.run_id, *asked.words)}"
