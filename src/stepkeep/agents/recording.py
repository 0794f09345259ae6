"""What the adapters share: a recorded call with the caller's context variables, and a gate for a call of a tool.

It knows no framework.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any

from stepkeep.worker.context import Context
from stepkeep.worker.current import numbered, recorder, unrecorded
from stepkeep.worker.flows.calls import CallFailed
from stepkeep.worker.flows.context import FlowContext

Call = Callable[[], Awaitable[Any]]


async def recorded(context: Context, name: str, call: Call) -> Any:
    """The value of a call, recorded under this name; equal names are numbered in their order.

    The call sees the context variables of its caller, also where a flow has the worker's loop make it.
    """
    variables = copy_context()

    async def alone() -> Any:
        with unrecorded():
            return await call()

    return await context.once(
        numbered(context, name), lambda: asyncio.get_running_loop().create_task(alone(), context=variables)
    )


async def recorded_here(name: str, call: Call) -> Any:
    """The same for the step or flow that runs; outside of one the call is made and not recorded."""
    context = recorder()
    return await call() if context is None else await recorded(context, name, call)


async def approved(flow: FlowContext, agent: str, tool: str, arguments: Any, gate: Mapping[str, Any]) -> str | None:
    """Ask people whether an agent may call a tool, with the arguments shown. None, or why not.

    `gate` has options of `ctx.gate`: who decides, how many, until when.
    """
    shown = {"agent": agent, "tool": tool, "arguments": _text(arguments)}
    facts = {name: _literal(value) for name, value in shown.items()}
    try:
        await flow.gate(f"May {agent} call {tool}?", **{"facts": facts, **gate})
    except CallFailed as refused:
        return refused.error
    return None


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def _literal(text: str) -> str:
    """A fact that is this text: a model may have written `${{` into it, which is no expression of the workflow."""
    return f"${{{{ {json.dumps(text, ensure_ascii=False)} }}}}"
