"""The commands and options that there are, read from the program itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import typer.main


@functools.cache
def commands(app: typer.Typer) -> tuple[tuple[tuple[str, ...], Any], ...]:
    """Every command with the words that lead to it."""
    return tuple(_under((), typer.main.get_command(app)))


def _under(path: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from _under((*path, name), one)


def options(command: Any) -> list[str]:
    """The long names of a command's options, and the names of its arguments."""
    found = []
    for parameter in command.params:
        if parameter.param_type_name == "option":
            found += [name for name in (*parameter.opts, *parameter.secondary_opts) if name.startswith("--")]
        else:
            found.append(parameter.metavar.strip("[].") if parameter.metavar else parameter.name.upper())
    return [name for name in found if name != "--help"]
