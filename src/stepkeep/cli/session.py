"""Opens the engine from settings, and translates command line values for it.

All heavy imports of the command line happen behind these functions. Nothing here prints.
"""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Settings
from stepkeep.edges.own_process import variables
from stepkeep.kernel.errors import DefinitionError, InvalidInput, NotFound

if TYPE_CHECKING:
    from stepkeep.cli.policies import Policies
    from stepkeep.definition.python import Workflow
    from stepkeep.definition.registry import Registry
    from stepkeep.engine import AsyncEngine
    from stepkeep.kernel.definition import Definition
    from stepkeep.worker.executors.command import CommandPolicy

FULL_ID = 36
SHORTEST_ID = 4
LOOK_BACK = 1000
MAX_JSON_BYTES = 4 * 1024 * 1024
"""Limit on a file or pipe that holds JSON. The engine limits the value itself; this limits the read."""
MAX_KEY_BYTES = 1024
DEFINITION_FILES = (".yaml", ".yml", ".json")


@asynccontextmanager
async def open_engine(
    settings: Settings,
    policies: Policies | None = None,
    *,
    wait_for_database: bool = False,
    creates: bool = False,
    dev: bool = False,
    operation: str | None = None,
) -> AsyncIterator[AsyncEngine]:
    """The engine for the given database, acting as the owner of the key, else as the user of this process. Only with
    `creates` is a missing SQLite file made. An older one is migrated with `creates` and where steps are run (with
    `policies`): looking changes no schema. `operation` is what the command does beside the methods of the engine: a
    key that may not is refused at once."""
    from stepkeep.engine import AsyncEngine

    options = {} if policies is None else policies.options()
    options |= {"wait_for_database": wait_for_database, "dev": dev}
    options["auto_migrate"] = None if creates or policies is not None else False
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


def read_key(settings: Settings) -> str | None:
    """The API key: from the file of --key-file, else from STEPKEEP_KEY. It is no argument, which others could read."""
    if settings.key_file is not None:
        content = read_file(settings.key_file, "--key-file", MAX_KEY_BYTES)
        return content.decode("utf-8", "replace").strip()
    return variables().get("STEPKEEP_KEY") or None


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


def load_handlers(apps: Sequence[str]) -> Registry:
    """Import the user's code and that of installed packages; returns the registry with its handlers."""
    from stepkeep.definition.apps import load_app, load_entry_points
    from stepkeep.definition.registry import default_registry

    load_entry_points()
    for app in apps:
        load_app(app)
    return default_registry


def load_definition(
    target: str, handlers: Registry | None, as_: str | None = None, *, advises: bool = False
) -> Definition:
    """The definition in a file: YAML or JSON in any dialect, or Python that makes one workflow (`file.py:name`).

    `advises`: all advice is printed, not only that on fields without effect.
    """
    from stepkeep.dialects.registry import check_file

    report = workflow_in(target).check() if is_python(target) else check_file(Path(target), handlers, as_)
    if report.definition is None:
        raise DefinitionError(report.problems)
    for problem in report.warnings if advises else report.ignored:
        warn(str(replace(problem, message=f"warning: {problem.message}")))
    return report.definition


def is_python(target: str) -> bool:
    return target.endswith(".py") or ".py:" in target


def workflow_in(target: str) -> Workflow:
    """The workflow that a Python file makes; `file.py:name` chooses one of several."""
    from stepkeep.definition.apps import load_app
    from stepkeep.definition.python import Workflow

    path, _, name = target.partition(".py:")
    file = f"{path.removesuffix('.py')}.py"
    module = load_app(file)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Workflow)}
    if name:
        found = {key: value for key, value in found.items() if key == name}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise InvalidInput(f"{file} makes several workflows: {', '.join(found)}. Name one: {file}:{next(iter(found))}.")
    raise InvalidInput(f"{file} makes no workflow" + (f" named {name}." if name else "."))


def looks_like_a_file(target: str) -> bool:
    return target.endswith(DEFINITION_FILES) or is_python(target) or "/" in target


def json_value(text: str | None, option: str) -> Any:
    """The value of an option that takes JSON, `@FILE` or `@-` (standard input); None when it was not given."""
    import msgspec

    if text is None:
        return None
    content: str | bytes = text
    if text.startswith("@"):
        content = read_file(text[1:], option, MAX_JSON_BYTES)
    try:
        value = msgspec.json.decode(content)
        _refuse_repeated_keys(content, option)
    except RecursionError:
        raise InvalidInput(f"{option} is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        hint = " Texts need quotes of their own: '\"text\"'." if not text.startswith("@") else ""
        raise InvalidInput(f"{option} is not JSON: {error}.{hint}") from None
    return value


def read_file(name: str, option: str, limit: int) -> bytes:
    """The content of a file that an option names, or of standard input where it is `-`."""
    from stepkeep.edges.input_files import read_bounded, read_input

    try:
        return read_bounded(sys.stdin.buffer, limit) if name == "-" else read_input(name, limit)
    except OSError as error:
        raise InvalidInput(f"{option}: {name} cannot be read: {error.strerror or error}.") from None


def _refuse_repeated_keys(content: str | bytes, option: str) -> None:
    """Refuse an object with a duplicate key: a decoder would silently keep the last value."""
    import json

    def pairs(items: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in items:
            if key in seen:
                raise InvalidInput(f"{option} has the key {key!r} twice in one object. Remove one of them.")
            seen.add(key)

    json.loads(content, object_pairs_hook=pairs)


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
