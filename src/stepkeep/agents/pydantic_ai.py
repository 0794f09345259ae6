"""Pydantic AI: agents whose model requests and calls of tools are recorded by the step or flow that runs them.

    agent = Agent("openai:gpt-5", name="geo", capabilities=[StepkeepDurability()])

    @sk.step(retry=sk.Retry(max_attempts=5))
    async def research(question: str) -> str:
        return (await agent.run(question)).output

A later attempt repeats no request and no call that is on record. In a flow, a tool that needs approval opens a gate.
Outside of a step the agent runs as if the capability were not there. Needs the extra `pydantic-ai`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDenied
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetKind,
    conversation_id_from_run_id,
)
from pydantic_ai.tools import AgentDepsT

from stepkeep.agents.recording import approved, recorded, recorded_here
from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.answers import fail
from stepkeep.worker.current import current, recorder
from stepkeep.worker.flows.context import FlowContext

__all__ = ["StepkeepDurability"]


def _unencodable(problem: Exception) -> BaseException:
    return fail(f"a value of the agent cannot be recorded: {problem}", category="validation")


class _Operations(JournalCallableOperationBackend[None]):
    """Each request of a model and each call of a tool is one checkpoint."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: None,
    ) -> object:
        async def call() -> object:
            answer = await body()
            if isinstance(operation_id, ModelRequestId):
                _count_cost(context, answer)
            return answer

        context = current()
        return await recorded(context, name + _call_id(operation_id, cache_key), call)


def _call_id(operation: DurableOperationId, cache_key: tuple[object, ...]) -> str:
    """Calls of tools run at the same time, so their order differs between attempts: the model's id tells them apart."""
    if not isinstance(operation, ToolsetCallToolId):
        return ""
    [call] = [one.tool_call_id for one in cache_key if isinstance(one, RunContext)]
    return f":{call}"


def _count_cost(context: Any, answer: object) -> None:
    """Tokens and money of a request are costs of the run, and count against its budgets."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if isinstance(usage, dict):
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        context.cost(usd=usage.get("cost") or 0, tokens=tokens)


@dataclass(init=False, kw_only=True)
class StepkeepDurability(BaseDurabilityCapability[AgentDepsT]):
    """Records what an agent does in the step or flow that runs it. The agent needs a `name`, which must stay.

    `gates` are options of `ctx.gate` by name of tool, for calls that need approval:
    `{"refund": {"roles": ["finance"]}}`.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Stepkeep",
        durable_unit_noun="checkpoint",
        durable_container_noun="step or flow",
        codec=JSON_CODEC,
        serialization_failure=_unencodable,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key="stepkeep",
    )
    gates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __init__(self, *, gates: Mapping[str, Mapping[str, Any]] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.gates = gates or {}

    @property
    def in_durable_context(self) -> bool:
        return recorder() is not None

    def get_durable_operation_backend(self) -> _Operations:
        if self.name is None:
            raise InvalidInput('StepkeepDurability: give the agent a name, as in Agent(..., name="geo").')
        config = RoleBasedOperationConfig[None](model=None, event=None, capability=None, tool=None)
        return _Operations(agent_name=self.name, config=config)

    def _toolset_base_config(self, kind: ToolsetKind) -> None:
        return None

    def get_default_run_id(self) -> str | None:
        context = recorder()
        return None if context is None else f"{context.idempotency_key}:{context.counted(f'{self.name}.run')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        if not self.in_durable_context:
            return None

        async def now() -> str:
            return datetime.now(UTC).isoformat()

        return datetime.fromisoformat(await recorded_here(f"{self.name}__start", now))

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """In a flow, calls that need approval open one gate each; a refusal goes back to the model with its reason."""
        flow = recorder()
        if not isinstance(flow, FlowContext) or not requests.approvals:
            return None
        agent = str(self.name)
        refusals = await asyncio.gather(
            *(
                approved(flow, agent, one.tool_name, one.args or {}, self.gates.get(one.tool_name, {}))
                for one in requests.approvals
            )
        )
        decided = {
            one.tool_call_id: ToolApproved() if why is None else ToolDenied(f"People refused this call: {why}")
            for one, why in zip(requests.approvals, refusals, strict=True)
        }
        return requests.build_results(approvals=decided)
