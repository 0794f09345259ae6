"""LangGraph: graphs whose nodes are recorded by the step or flow that runs them.

    graph = langgraph.recorded(builder).compile()

    @sk.step(retry=sk.Retry(max_attempts=5))
    async def research(question: str) -> str:
        return (await langgraph.run(graph, {"question": question}))["answer"]

A later attempt runs no node again that is on record. In a flow, `interrupt` asks people, or waits for a message.
Outside of a step the graph runs as it is. Needs the extra `langgraph`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt

from stepkeep.agents.langgraph_saver import StepkeepSaver
from stepkeep.agents.recording import approved, recorded_here
from stepkeep.worker.current import recorder
from stepkeep.worker.flows.context import FlowContext

__all__ = ["StepkeepSaver", "by_gate", "by_message", "recorded", "run"]

Resume = Callable[[FlowContext, Interrupt], Awaitable[Any]]
"""What an interrupted node goes on with."""

_serde = JsonPlusSerializer()


def recorded(builder: StateGraph[Any, Any, Any, Any]) -> StateGraph[Any, Any, Any, Any]:
    """The same graph, each of whose nodes is a checkpoint of the step or flow that runs it. `compile` comes after."""
    for name, node in builder.nodes.items():
        # `add_node` has made a Runnable of every function.
        builder.nodes[name] = replace(node, runnable=_Recorded(name, cast(Runnable[Any, Any], node.runnable)))
    return builder


class _Recorded(Runnable[Any, Any]):
    """A node whose result is recorded under its name; an interrupt is none."""

    def __init__(self, name: str, node: Runnable[Any, Any]) -> None:
        self.name, self._node = name, node

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        return self._node.invoke(input, config, **options)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        async def call() -> list[str]:
            kind, value = _serde.dumps_typed(await self._node.ainvoke(input, config, **options))
            return [kind, base64.b64encode(value).decode()]

        kind, value = await recorded_here(f"node {self.name}", call)
        return _serde.loads_typed((kind, base64.b64decode(value)))


def by_gate(agent: str = "the graph", **gate: Any) -> Resume:
    """Answer an interrupt by a gate, with its value shown: `{"approved": True}`, or False and why.

    `gate` has options of `ctx.gate`.
    """

    async def ask(flow: FlowContext, interrupt: Interrupt) -> dict[str, Any]:
        why = await approved(flow, agent, "go on", interrupt.value, gate)
        return {"approved": why is None, "why": why}

    return ask


def by_message(name: str, **options: Any) -> Resume:
    """Answer an interrupt by the payload of a message of this name. `options` are those of `ctx.wait_for`."""

    async def wait(flow: FlowContext, interrupt: Interrupt) -> Any:
        return await flow.wait_for(name, **options)

    return wait


async def run(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    input: Any,  # noqa: A002 - the word people use for it
    config: RunnableConfig | None = None,
    *,
    resume: Resume | None = None,
    **options: Any,
) -> Any:
    """`graph.ainvoke`, and in a flow also what follows an interrupt: `resume` says who answers it, people by default.

    A graph that is compiled without a checkpointer gets one in memory there: the run is the record.
    """
    flow = recorder()
    if not isinstance(flow, FlowContext):
        return await graph.ainvoke(input, config, **options)
    graph = graph if graph.checkpointer else graph.copy(update={"checkpointer": InMemorySaver()})
    config = config or RunnableConfig(configurable={"thread_id": flow.run_id})
    answer = resume or by_gate(graph.name)
    result = await graph.ainvoke(input, config, **options)
    while interrupts := _interrupts(result):
        values = await asyncio.gather(*(answer(flow, one) for one in interrupts))
        told = {one.id: value for one, value in zip(interrupts, values, strict=True)}
        result = await graph.ainvoke(Command(resume=told), config, **options)
    return result


def _interrupts(result: Any) -> Sequence[Interrupt]:
    return result.get("__interrupt__", ()) if isinstance(result, dict) else ()
