"""Writes the reference part of docs/cli.md from the program itself, so that the two cannot differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from tests.cli.surface import commands

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
MARK = "<!-- what follows is written by tests/cli/reference.py -->\n"
SHARED = frozenset({"db", "server", "profile", "tenant", "key-file", "json", "traceback"})


def reference(app: typer.Typer) -> str:
    """One section per command, with a table of what it takes."""
    return "".join(line + "\n" for path, command in commands(app) for line in _section(path, command))


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    yield ""
    yield f"### `stepkeep {' '.join(path)}`"
    yield ""
    yield command.help
    rows = [_row(parameter) for parameter in command.params if parameter.name.replace("_", "-") not in SHARED]
    if rows:
        yield ""
        yield "| | |"
        yield "|---|---|"
        yield from rows


def _row(parameter: Any) -> str:
    metavar = (parameter.metavar or "").replace("|", "\\|")
    if parameter.param_type_name == "argument":
        return f"| `{metavar}` | {parameter.help} |"
    names = [f"`{name} {metavar}`" if metavar else f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
    plain = parameter.default is None or parameter.default == "" or isinstance(parameter.default, bool)
    default = "" if plain else f" Default: {parameter.default}."
    return f"| {', '.join(names)} | {parameter.help}{default} |"
