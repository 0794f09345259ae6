"""`stepkeep call`, `mcp`, `demo` and `completion`: any operation by its name, tools for agents, a tour, and shells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from stepkeep.cli.answering import ask, open_engine, print_value, read_key
from stepkeep.cli.arguments import Text, Texts, arg, opt
from stepkeep.cli.command import program
from stepkeep.cli.printer import SUCCEEDED, answer, say, warn
from stepkeep.cli.session import json_value
from stepkeep.cli.settings import CommandNeeds, Settings
from stepkeep.cli.streams import install_log
from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from stepkeep.operations.operation import Operation

VARIABLE = "_STEPKEEP_COMPLETE"
"""Set by the scripts when a shell asks for completions."""
SHELLS = ("bash", "zsh", "fish", "powershell")


@program.command("call")
def call(
    settings: Settings,
    name: Annotated[Text, arg("OPERATION", "As in `slots.set`. Without it, all are listed.")] = None,
    given: Annotated[Texts, arg("NAME=VALUE…", "Arguments: JSON, @FILE with JSON, or else a text.")] = None,
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


def _arguments(operation: Operation, given: list[str]) -> Mapping[str, Any]:
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


@program.command("mcp")
def mcp(
    settings: Settings,
    allow_approvals: Annotated[
        bool, opt("--allow-approvals", "Offer tools that decide gates which name the service of the key.")
    ] = False,
    log_level: Annotated[str, opt("--log-level", "LEVEL", "debug, info, warning or error.")] = "warning",
) -> int:
    """Offer tools to agents over the Model Context Protocol. The key bounds what they may do."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise InvalidInput("the MCP server needs more libraries. Install them: pip install 'stepkeep[mcp]'.")
    if settings.json:
        raise InvalidInput("mcp has no --json: standard output belongs to the protocol.")
    if read_key(settings) is None:
        raise InvalidInput("mcp needs a key, which bounds what an agent may do: --key-file FILE, or STEPKEEP_KEY.")
    install_log(log_level)
    asyncio.run(_serve(settings, allow_approvals))
    return SUCCEEDED


async def _serve(settings: Settings, allow_approvals: bool) -> None:
    from stepkeep.mcp.tools import make_server, require_service

    async with open_engine(settings) as face:
        if allow_approvals:
            await require_service(face)
        warn("the MCP server listens on standard input")
        await make_server(face, approvals=allow_approvals).run_stdio_async()


@program.command("demo", CommandNeeds.NOTHING)
def demo(
    settings: Settings,
    directory: Annotated[Text, opt("--directory", "DIR", "Where to work; a temporary one by default.")] = None,
) -> int:
    """Show a rollback, a worker that is killed and replaced, and an approval. Needs no network and no set-up."""
    from stepkeep.cli.demo.tour import tour

    return tour(directory, json=settings.json)


@program.command("completion", CommandNeeds.NOTHING)
def completion(
    settings: Settings,
    shell: Annotated[str, arg("SHELL", "bash, zsh, fish or powershell.")],
) -> int:
    """Print the script that completes commands and options in a shell; load it where the shell starts.

    In bash: source <(stepkeep completion bash).
    """
    if shell not in SHELLS:
        raise InvalidInput(f"completion is known for {', '.join(SHELLS)}, not for {inert_line(shell, 40)}.")
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="stepkeep", complete_var=VARIABLE, shell=shell)
    return print_value(settings, {"completion": {"shell": shell, "script": script}}, script.split("\n"))


def answer_shells() -> None:
    """Make the program answer shells that ask for completions."""
    from typer._completion_classes import completion_init

    completion_init()
