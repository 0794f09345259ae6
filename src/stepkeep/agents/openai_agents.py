"""OpenAI Agents SDK: runs of agents whose model responses and calls of tools are recorded by the step or flow.

    @sk.step(retry=sk.Retry(max_attempts=5))
    async def answer(question: str) -> str:
        return (await openai_agents.run(support, question)).final_output

A later attempt repeats no response and no call that is on record, over handoffs, too. In a flow, a tool that needs
approval opens a gate. Outside of a step it is `Runner.run`. Needs the extra `openai-agents`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, cast

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    Tool,
    TResponseInputItem,
)
from agents.items import TResponseStreamEvent
from agents.memory import SessionABC
from agents.tool_context import ToolContext
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from stepkeep.agents.conversing import Conversing
from stepkeep.agents.recording import approved, recorded_here
from stepkeep.worker.current import recorder
from stepkeep.worker.flows.context import FlowContext

__all__ = ["RunSession", "StoredSession", "run"]

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_EVENTS: TypeAdapter[list[TResponseStreamEvent]] = TypeAdapter(list[TResponseStreamEvent])


async def run(
    agent: Agent[Any],
    input: str | list[TResponseInputItem],  # noqa: A002 - the SDK's own word
    *,
    gates: Mapping[str, Mapping[str, Any]] | None = None,
    run_config: RunConfig | None = None,
    **options: Any,
) -> RunResult:
    """`Runner.run` with the same arguments, recorded by the step or flow that runs.

    `gates` are options of `ctx.gate` by name of tool, for calls that need approval:
    `{"refund": {"roles": ["finance"]}}`.
    A refusal goes back to the model with its reason. In a step, where no gate can open, the result has the
    `interruptions`.
    """
    flow = recorder()
    if flow is None:
        return await Runner.run(agent, input, run_config=run_config, **options)
    config = run_config or RunConfig()
    config = replace(config, model=_model("run", config.model), model_provider=_Provider(config.model_provider))
    known = _Recorded().agent(agent)
    result = await Runner.run(known, input, run_config=config, **options)
    while result.interruptions and isinstance(flow, FlowContext):
        state = result.to_state()
        await _decide(flow, state, result, gates or {})
        result = await Runner.run(known, state, run_config=config, **options)
    return result


async def _decide(flow: FlowContext, state: RunState[Any], result: RunResult, gates: Mapping[str, Any]) -> None:
    """Open one gate for each call that waits for approval, and put the decisions into the state."""
    asked = [
        approved(flow, one.agent.name, str(one.tool_name), one.arguments or "{}", gates.get(str(one.tool_name), {}))
        for one in result.interruptions
    ]
    for one, why in zip(result.interruptions, await asyncio.gather(*asked), strict=True):
        if why is None:
            state.approve(one)
        else:
            state.reject(one, rejection_message=f"People refused this call: {why}")


class _Recorded:
    """Copies of agents that record what they do, each made once, because handoffs lead in circles."""

    def __init__(self) -> None:
        self._known: dict[int, Agent[Any]] = {}

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        known = self._known.get(id(agent))
        if known is None:
            tools = [_tool(agent.name, one) for one in agent.tools]
            known = agent.clone(model=_model(agent.name, agent.model), tools=tools, handoffs=[])
            self._known[id(agent)] = known
            known.handoffs = [self._handoff(one) for one in agent.handoffs]
        return known

    def _handoff(self, to: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(to, Agent):
            return self.agent(to)

        async def invoke(context: Any, arguments: str) -> Agent[Any]:
            return self.agent(await to.on_invoke_handoff(context, arguments))

        return replace(to, on_invoke_handoff=invoke)


def _tool(agent: str, tool: Tool) -> Tool:
    """The tool, each of whose calls is a checkpoint. Tools that the provider runs are part of the response."""
    if not isinstance(tool, FunctionTool):
        return tool

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        async def call() -> Any:
            return to_jsonable_python(await tool.on_invoke_tool(context, arguments), fallback=str)

        return await recorded_here(f"{agent}.{tool.name}:{context.tool_call_id}", call)

    return replace(tool, on_invoke_tool=invoke)


def _model(owner: str, model: str | Model | None) -> str | Model | None:
    """The model, recorded; a name is looked up by the provider later."""
    return _Model(owner, model) if isinstance(model, Model) else model


class _Provider(ModelProvider):
    """Records the models that it finds by name."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider

    def get_model(self, model_name: str | None) -> Model:
        return _Model(model_name or "model", self._provider.get_model(model_name))

    async def aclose(self) -> None:
        await self._provider.aclose()


class _Model(Model):
    """A model each of whose responses is a checkpoint. A streamed response is recorded whole, with its events."""

    def __init__(self, owner: str, model: Model) -> None:
        self._owner, self._model = owner, model

    async def close(self) -> None:
        await self._model.close()

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        async def call() -> Any:
            response = await self._model.get_response(*args, **kwargs)
            _count_cost(context, response.usage.input_tokens + response.usage.output_tokens)
            return _RESPONSE.dump_python(response, mode="json")

        context = recorder()
        return _RESPONSE.validate_python(await recorded_here(f"{self._owner}.response", call))

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        live: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()

        async def call() -> Any:
            events = []
            async for event in self._model.stream_response(*args, **kwargs):
                events.append(event)
                live.put_nowait(event)
            _count_cost(context, sum(map(_tokens_of, events)))
            return _EVENTS.dump_python(events, mode="json")

        context, shown = recorder(), 0
        recording = asyncio.ensure_future(recorded_here(f"{self._owner}.stream", call))
        if not isinstance(context, FlowContext):
            # A flow gets the events when they are on record: what it does must not depend on when each one came.
            recording.add_done_callback(lambda _: live.put_nowait(None))
            while (event := await live.get()) is not None:
                shown += 1
                yield event
        for event in _EVENTS.validate_python(await recording)[shown:]:
            yield event


def _tokens_of(event: Any) -> int:
    usage = getattr(getattr(event, "response", None), "usage", None)
    return 0 if event.type != "response.completed" or usage is None else usage.total_tokens


def _count_cost(context: Any, tokens: int) -> None:
    """Tokens of a response are costs of the run, and count against its budgets."""
    if context is not None:
        context.cost(tokens=tokens)


class RunSession(SessionABC):
    """A conversation that lives as long as a run: a replay makes the same one again.

    `items` is what a flow hands on when it continues as new: `ctx.continue_as_new({"items": session.items})`.
    """

    session_settings = None

    def __init__(self, session_id: str, items: list[TResponseInputItem] | None = None) -> None:
        self.session_id, self.items = session_id, list(items or [])

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        return list(self.items if limit is None else self.items[-limit:] if limit else [])

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self.items += cast(list[TResponseInputItem], [to_jsonable_python(one) for one in items])

    async def pop_item(self) -> TResponseInputItem | None:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


SESSION, ITEM = "session:", "item"


class StoredSession(SessionABC):
    """A conversation that is kept in `engine.conversations`, for runs that come one after the other.

    `engine` is an `Engine`, an `AsyncEngine` or a client of either form. In a step or flow, what is read and added is
    recorded, so that a later attempt adds nothing twice.
    """

    session_settings = None

    def __init__(self, session_id: str, engine: Any) -> None:
        self.session_id, self._name, self._kept = session_id, SESSION + session_id, Conversing(engine)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        async def read() -> list[Any]:
            return [one.value for one in (await self._last(limit))[::-1]]

        found: list[TResponseInputItem] = await recorded_here("session.get", lambda: self._kept.run(read()))
        return found

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        async def next_ordinal() -> int:
            last = await self._last(1)
            return last[0].ordinal + 1 if last else 0

        # The place is recorded first: a call that is made again after a loss replaces what it had added.
        first = await recorded_here("session.place", lambda: self._kept.run(next_ordinal()))
        values = [to_jsonable_python(one) for one in items]
        told = [{"key": ITEM, "ordinal": at, "value": one} for at, one in enumerate(values, first)]

        async def add() -> None:
            for start in range(0, len(told), 100):
                await self._kept.ask("save", self._name, told[start : start + 100])

        await recorded_here("session.add", lambda: self._kept.run(add()))

    async def pop_item(self) -> TResponseInputItem | None:
        async def pop() -> Any:
            while last := await self._last(1):
                place = {"key": ITEM, "ordinal": last[0].ordinal}
                if (await self._kept.ask("remove", self._name, place=place)).removed:
                    return last[0].value
            return None

        found: TResponseInputItem | None = await recorded_here("session.pop", lambda: self._kept.run(pop()))
        return found

    async def clear_session(self) -> None:
        clear = self._kept.ask
        await recorded_here("session.clear", lambda: self._kept.run(clear("remove", self._name, prefixes=[ITEM])))

    async def _last(self, limit: int | None) -> list[Any]:
        """The last items, the newest first."""
        found: list[Any] = []
        async for one in self._kept.items(self._name, prefix=ITEM, newest=True):
            if len(found) == limit:
                break
            found.append(one)
        return found
