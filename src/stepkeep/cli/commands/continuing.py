"""`stepkeep retry` and `stepkeep fork`: a new run that goes on with a finished one, and the preview of it.

`rerun --from` uses the same functions. It calls the engine and prints; it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from stepkeep.cli.arguments import LARGEST, Apps, By, Capabilities, Concurrency, Input, RunId, opt
from stepkeep.cli.asking import find_run, open_engine, tell
from stepkeep.cli.commands.run import conclude
from stepkeep.cli.policies import Policies
from stepkeep.cli.printer import quiet_stdout
from stepkeep.cli.screens import screen_for
from stepkeep.cli.session import json_value, load_handlers
from stepkeep.cli.settings import Settings
from stepkeep.cli.working import Worked, require_code_to_go_on, work_on
from stepkeep.kernel.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.going_on import ContinuationPreview

DryRun = Annotated[bool, opt("--dry-run", "Say what would run again and what would be adopted.")]
Version = Annotated[
    int | None, opt("--version", "N", "Another version of the workflow, where it is safe.", min=1, max=LARGEST)
]
Wait = Annotated[
    bool | None,
    opt("--wait/--no-wait", "Execute it here, as is the default at a database, or leave it to the workers."),
]
Key = Annotated[str | None, opt("--key", "KEY", "Idempotency key: the same key never makes a second run.")]


class Asked(NamedTuple):
    """How to go on, with which run and from which step."""

    how: str
    run: str
    start: str | None = None
    given: Any = None
    input: str | None = None
    """`given` as it was typed."""
    version: int | None = None
    key: str | None = None
    by: str | None = None

    @property
    def runs_all(self) -> bool:
        """Whether every step runs again."""
        return self.how == "rerun" and self.start is None

    @property
    def options(self) -> list[str]:
        """The options that were typed and decide what the new run is."""
        typed = {
            {"rerun": "--from", "fork": "--at"}.get(self.how, ""): self.start,
            "--input": self.input,
            "--version": None if self.version is None else str(self.version),
            "--key": self.key,
            "--by": self.by,
        }
        return [word for name, value in typed.items() if value is not None for word in (name, value)]


class Place(NamedTuple):
    """Where the new run is executed: here, with this code, or by workers elsewhere."""

    apps: list[str]
    wait: bool
    concurrency: int
    capabilities: list[str]


def place_of(
    settings: Settings, apps: list[str] | None, wait: bool | None, concurrency: int, capabilities: list[str] | None
) -> Place:
    """Where the new run is executed. That of a service is left to its workers."""
    if wait:
        settings.require_database("--wait")
    return Place(apps or [], settings.server is None if wait is None else wait, concurrency, capabilities or [])


def retry(
    settings: Settings,
    policies: Policies,
    run: RunId,
    app: Apps = None,
    version: Version = None,
    dry_run: DryRun = False,
    wait: Wait = None,
    key: Key = None,
    concurrency: Concurrency = 16,
    by: By = None,
    capability: Capabilities = None,
) -> int:
    """Continue a run that did not succeed: adopt its finished steps in a new run, and run the others."""
    asked = Asked(how="retry", run=run, version=version, key=key, by=by)
    place = place_of(settings, app, wait, concurrency, capability)
    return preview(settings, asked) if dry_run else go_on(settings, policies, asked, place)


def fork(
    settings: Settings,
    policies: Policies,
    run: RunId,
    at: Annotated[str, opt("--at", "STEP", "The step from which the new run takes its course.")],
    app: Apps = None,
    input: Input = None,  # noqa: A002 - the option's name
    version: Version = None,
    dry_run: DryRun = False,
    wait: Wait = None,
    key: Key = None,
    concurrency: Concurrency = 16,
    by: By = None,
    capability: Capabilities = None,
) -> int:
    """Take another course from a step of a finished run, with another input if one is given."""
    given = json_value(input, "--input")
    asked = Asked(how="fork", run=run, start=at, given=given, input=input, version=version, key=key, by=by)
    place = place_of(settings, app, wait, concurrency, capability)
    return preview(settings, asked) if dry_run else go_on(settings, policies, asked, place)


def go_on(settings: Settings, policies: Policies, asked: Asked, place: Place) -> int:
    """Start the new run, and execute it here or leave it to the workers."""
    with quiet_stdout(settings.json):
        load_handlers(place.apps)
        worked = asyncio.run(_go_on(settings, policies, asked, place))
    return conclude(settings, worked, place.apps)


async def _go_on(settings: Settings, policies: Policies, asked: Asked, place: Place) -> Worked:
    async with open_engine(settings, policies, operation="run" if place.wait else None) as engine:
        if place.wait:
            await _require_code(engine, asked, place)
        run_id = await _started(engine, asked)
        if not place.wait:
            return Worked((await engine.show(run_id)).as_json(), {}, interrupted=False)
        screen = screen_for(json=settings.json)
        return await work_on(engine, run_id, screen, concurrency=place.concurrency, capabilities=place.capabilities)


async def _require_code(engine: AsyncEngine, asked: Asked, place: Place) -> None:
    """Refuse to make a run that cannot be executed here."""
    from stepkeep.operations.plans import plan_of
    from stepkeep.operations.publish import find_plan

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
    require_code_to_go_on(engine, run_id, plan, left, place.capabilities)


async def _started(engine: AsyncEngine, asked: Asked) -> str:
    run_id = await find_run(engine, asked.run)
    common: dict[str, Any] = {"version": asked.version, "idempotency_key": asked.key, "by": asked.by}
    if asked.runs_all:
        again = await engine.rerun(run_id, input=asked.given, idempotency_key=asked.key, by=asked.by)
        return again.run_id
    if asked.start is None:
        return (await engine.continuations.retry(run_id, **common)).run_id
    method = engine.continuations.rerun if asked.how == "rerun" else engine.continuations.fork
    return (await method(run_id, asked.start, input=asked.given, **common)).run_id


def preview(settings: Settings, asked: Asked) -> int:
    """Say what would happen, and write nothing."""
    if asked.runs_all:
        raise InvalidInput("--dry-run goes with --from: without it every step runs again.")
    return tell(
        settings,
        lambda engine: _preview(engine, asked),
        lambda found: _lines(found, settings, asked),
        under="continuation",
    )


async def _preview(engine: AsyncEngine, asked: Asked) -> ContinuationPreview:
    how: Any = asked.how
    return await engine.continuations.preview(
        await find_run(engine, asked.run), how, start=asked.start, input=asked.given, version=asked.version, by=asked.by
    )


def _lines(found: ContinuationPreview, settings: Settings, asked: Asked) -> Iterator[str]:
    for step in found.steps:
        said = f"{step.step} is adopted: " if step.adopted else f"{step.step} runs again: "
        repeat = f"; its effect ({step.effect}) may happen twice" if step.may_repeat else ""
        yield said + step.says + repeat
    if found.reopens:
        yield f"people are asked anew: {', '.join(found.reopens)}"
    if found.owns_undo:
        yield f"a rollback of the new run would also undo {', '.join(found.owns_undo)}"
    if found.child_of:
        yield f"the new run is no child: run {found.child_of} does not wait for it"
    if found.continued_by:
        yield f"it is repeated or continued already by {', '.join(found.continued_by)}"
    yield f"Do it: {settings.command(asked.how, found.run_id, *asked.options)}"
