"""Translates values of the command line: code and definitions in files, JSON, texts of files.

All heavy imports of the command line happen behind these functions. They open no database and no service.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Settings
from stepkeep.kernel.errors import DefinitionError, InvalidInput

if TYPE_CHECKING:
    from stepkeep.definition.python.registry import Registry
    from stepkeep.definition.python.workflow import Workflow
    from stepkeep.engine import AsyncEngine
    from stepkeep.kernel.definition import Definition

MAX_JSON_BYTES = 4 * 1024 * 1024
"""Limit on a file or pipe that holds JSON. The engine limits the value itself; this limits the read."""
DEFINITION_FILES = (".yaml", ".yml", ".json")


def load_handlers(apps: Sequence[str]) -> Registry:
    """Import the user's code and that of installed packages; returns the registry with its handlers."""
    from stepkeep.definition.python.handlers import load_app, load_entry_points
    from stepkeep.definition.python.registry import default_registry

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


def load_workflow(
    settings: Settings, target: str, handlers: Registry | None, as_: str | None = None, *, advises: bool = False
) -> Any:
    """The workflow in a file, as an engine takes it: a definition, or for a service what it reads."""
    definition = load_definition(target, handlers, as_, advises=advises)
    if settings.server is None:
        return definition
    from stepkeep.client.async_client import PublishedVersion, WrittenWorkflow, written

    content = written(workflow_in(target) if is_python(target) else Path(target), elsewhere=handlers is None)
    return WrittenWorkflow(content, PublishedVersion(definition.name, definition.version, definition.dialect), as_)


async def published_version(settings: Settings, engine: AsyncEngine, name: str, version: int) -> Any:
    """A published version of a workflow, as an engine starts it."""
    if settings.server is not None:
        from stepkeep.client.async_client import PublishedVersion, PublishedWorkflow

        return PublishedWorkflow(PublishedVersion(name, version, ""), "")
    from stepkeep.operations.definitions.publish import find_plan

    return await find_plan(engine.transactor, name, version, tenant=engine.tenant)


def is_python(target: str) -> bool:
    return target.endswith(".py") or ".py:" in target


def workflow_in(target: str) -> Workflow:
    """The workflow that a Python file makes; `file.py:name` chooses one of several."""
    from stepkeep.definition.python.handlers import load_app
    from stepkeep.definition.python.workflow import Workflow

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
