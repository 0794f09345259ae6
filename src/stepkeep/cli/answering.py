"""Asks the engine of the settings, and prints the answer: most commands are one call of `print_answer`.

The engine is at a database, or is a client of a service with the same methods; commands that call operations know of no
difference. It decides nothing: an operation answers, and the command says it in words. Commands call it.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, console, say, warn
from stepkeep.cli.session import read_file
from stepkeep.cli.settings import Settings
from stepkeep.edges.own_process import variables
from stepkeep.kernel.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from stepkeep.cli.policies import StepPolicies
    from stepkeep.engine import AsyncEngine
    from stepkeep.operations.answers import Answer
    from stepkeep.worker.executors.command import CommandPolicy

T = TypeVar("T")
FULL_ID = 36
SHORTEST_ID = 4
LOOK_BACK = 1000
MAX_KEY_BYTES = 1024
Words = str | Iterable[str] | None
"""A line, or several; None if they are printed already."""


@asynccontextmanager
async def open_engine(
    settings: Settings,
    policies: StepPolicies | None = None,
    *,
    wait_for_database: bool = False,
    creates: bool = False,
    dev: bool = False,
    operation: str | None = None,
) -> AsyncIterator[AsyncEngine]:
    """The engine for the given database, acting as the owner of the key, else as the user of this process; or a client
    of the given service, which has the same methods.

    Only with `creates` is a missing SQLite file made. An older one is migrated with `creates` and where steps are run
    (with `policies`): looking changes no schema. `operation` is what the command does beside the methods of the engine:
    a key that may not is refused at once."""
    if settings.server is not None:
        async with _client(settings, settings.server) as client:
            yield client
        return
    from stepkeep.engine import AsyncEngine

    options = {
        **({} if policies is None else policies.options()),
        "wait_for_database": wait_for_database,
        "dev": dev,
        "auto_migrate": None if creates or policies is not None else False,
    }
    key = read_key(settings)
    named = actor() if key is None else None
    opened = AsyncEngine(settings.db, tenant=settings.tenant, actor=named, key=key, **options)
    if not creates:
        require_database(settings)
    async with opened as engine:
        if "commands" in options:
            refuse_readable(settings, options["commands"])
        if operation is not None:
            await engine.access.admit(operation)
        yield engine


@asynccontextmanager
async def _client(settings: Settings, server: str) -> AsyncIterator[AsyncEngine]:
    from stepkeep.client.async_client import AsyncClient

    client = AsyncClient(service_address(server), key=required_key(settings))
    try:
        # It has the methods that commands call; those that need the database refuse with a reason.
        yield cast("AsyncEngine", client)
    finally:
        await client.close()


def service_address(server: str) -> str:
    """The address of a service, with a warning where the key travels in plain text."""
    from urllib.parse import urlsplit

    from stepkeep.network.service import service_url

    address = service_url(server)
    host = urlsplit(address).hostname or ""
    if address.startswith("http://") and not (host in ("localhost", "::1") or host.startswith("127.")):
        warn("warning: the key travels in plain text over http. Use https outside of a trusted network.")
    return address


def required_key(settings: Settings) -> str:
    """The key for a service."""
    key = read_key(settings)
    if key is None:
        raise InvalidInput("a service needs a key: --key-file FILE, STEPKEEP_KEY, or a profile that has one.")
    return key


def read_key(settings: Settings) -> str | None:
    """The API key: from a file, from a profile, else from STEPKEEP_KEY. It is no argument, which others could read."""
    if settings.key_file is not None:
        content = read_file(settings.key_file, "--key-file", MAX_KEY_BYTES)
        return content.decode("utf-8", "replace").strip()
    return settings.key or variables().get("STEPKEEP_KEY") or None


def require_database(settings: Settings) -> None:
    """Refuse an SQLite file that is missing: a command that looks must not make one."""
    path = settings.db.removeprefix("sqlite:///")
    if path != settings.db and path and not Path(path).exists():
        raise NotFound(
            f"there is no database {settings.db}. `stepkeep run`, `start`, `publish` and `worker` make one, as does "
            f"{settings.command('db', 'migrate')}."
        )


def refuse_readable(settings: Settings, commands: CommandPolicy) -> None:
    """Refuse an SQLite file that the user of commands could read: it holds the runs of every tenant."""
    path = Path(settings.db.removeprefix("sqlite:///"))
    if (user := commands.identity) is not None and settings.db.startswith("sqlite:///") and user.may_read(path):
        raise InvalidInput(
            f"commands as {user.name} could read the database {path}. Take that right away: chmod 600 {path}"
        )


def actor() -> str:
    """The operating system's name of the current user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may have no entry for its user
        return f"uid:{os.getuid()}"


def ask(settings: Settings, work: Callable[[AsyncEngine], Awaitable[T]], *, creates: bool = False) -> T:
    """Do this with the engine of the settings."""

    async def go() -> T:
        async with open_engine(settings, creates=creates) as engine:
            return await work(engine)

    return asyncio.run(go())


def print_answer(
    settings: Settings,
    work: Callable[[AsyncEngine], Awaitable[T]],
    words: Callable[[T], Words],
    *,
    under: str | None = None,
    fails: Callable[[T], Any] | None = None,
    creates: bool = False,
) -> int:
    """Do this with the engine of the settings and print its answer: in words, or with --json as it is, `under` a key.

    The exit status is 1 if the answer `fails`.

        return tell(settings, lambda engine: engine.hooks.remove(name, by=by), lambda _: f"hook {name} is removed")
    """
    found = ask(settings, work, creates=creates)
    said = () if settings.json else words(found)
    failed = fails is not None and fails(found)
    return print_value(settings, found if under is None else {under: found}, said, failed=failed)


def print_value(settings: Settings, value: Any, words: Words, *, failed: object = False) -> int:
    """Print what a command came to: with --json the value, else the words. The exit status is 1 if it `failed`."""
    if settings.json:
        answer(value)
    else:
        for line in (words,) if isinstance(words, str) else words or ():
            say(line)
    return FAILED if failed else SUCCEEDED


def of_run(text: str, work: Callable[[AsyncEngine, str], Awaitable[T]]) -> Callable[[AsyncEngine], Awaitable[T]]:
    """What is done to a run that is named by a part of its id.

    return tell(settings, of_run(run, lambda engine, found: engine.resume(found, by=by)), …)
    """

    async def go(engine: AsyncEngine) -> T:
        return await work(engine, await find_run(engine, text))

    return go


async def find_run(engine: AsyncEngine, text: str) -> str:
    """A run's id from the whole of it, its beginning or its end."""
    if len(text) >= FULL_ID:
        return text
    if len(text) < SHORTEST_ID:
        raise InvalidInput(f"{text!r} is too short for a run: give at least {SHORTEST_ID} characters of its id.")
    listed = await engine.runs(limit=LOOK_BACK)
    recent = [*listed["runs"], *listed.get("unreadable", [])]
    found = [run["id"] for run in recent if run["id"].startswith(text) or run["id"].endswith(text)]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise InvalidInput(f"{len(found)} runs match {text!r}: {', '.join(found[:5])}. Give more of the id.")
    raise NotFound(f"there is no run {text}")


def table(
    rows: Sequence[Mapping[str, Any] | Answer], nothing: str, shown: str = "", **made: Callable[[Any], Any]
) -> None:
    """Print rows as a table, or say that there are none. `shown` names the columns; one that is no field is `made`."""
    if not rows:
        say(nothing)
        return
    from stepkeep.cli.render.tables import plain_table

    columns = shown.split()
    views = [{name: made[name](row) if name in made else row[name] for name in columns or row} for row in rows]
    console().print(plain_table(views))
