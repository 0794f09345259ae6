"""`stepkeep call`: any operation by its name, with the arguments of its row. Its answer is the JSON of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.arguments import arg
from stepkeep.cli.asking import ask
from stepkeep.cli.printer import answer, say
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.operation import Operation


def call(
    settings: Settings,
    name: Annotated[str | None, arg("OPERATION", "As in `slots.set`. Without it, all are listed.")] = None,
    given: Annotated[list[str] | None, arg("NAME=VALUE…", "Arguments: JSON, @FILE with JSON, or else a text.")] = None,
) -> int:
    """Call an operation by its name, and print its answer as JSON."""
    from stepkeep.operations.operation import CATALOGUE, routed

    known = {one.name: CATALOGUE[one.name] for one in routed()}
    if name is None:
        for one in sorted(known):
            say(f"{one}: {known[one].row.summary}")
        return SUCCEEDED
    if name not in known:
        raise InvalidInput(f"there is no operation {name!r}. `stepkeep call` lists them.")
    values = _arguments(known[name], given or [])
    answer(ask(settings, lambda engine: known[name].called_on(engine, values)))
    return SUCCEEDED


def _arguments(operation: Operation, given: list[str]) -> dict[str, Any]:
    """The arguments by their names in Python. They are written with the names that requests have."""
    known = {one.wire: one.name for one in operation.parameters.values() if one.place}
    found: dict[str, Any] = {}
    for one in given:
        name, sign, text = one.partition("=")
        if not sign or name not in known:
            raise InvalidInput(f"{one!r} is no argument of {operation.name}. It takes: {', '.join(known) or 'none'}.")
        found[known[name]] = _value(text, name)
    return found


def _value(text: str, name: str) -> Any:
    if text.startswith("@"):
        return json_value(text, name)
    try:
        return json_value(text, name)
    except InvalidInput:
        return text
