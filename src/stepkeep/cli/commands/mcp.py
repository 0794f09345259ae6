"""`stepkeep mcp`: an MCP server on standard input and output, over a database or a service."""

from __future__ import annotations

import asyncio
from typing import Annotated

from stepkeep.cli.arguments import opt
from stepkeep.cli.asking import open_engine, read_key
from stepkeep.cli.inert_log import install_log
from stepkeep.cli.printer import warn
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import SUCCEEDED
from stepkeep.kernel.errors import InvalidInput


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
