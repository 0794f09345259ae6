"""A research agent of Pydantic AI that may publish what it found only if people agree.

    pip install 'stepkeep[pydantic-ai]'
    python examples/agents/research_agent.py "tides"

The model is the framework's own `FunctionModel`, so that the example needs no network: put "openai:gpt-5" there.
Each request of the model and each use of a tool is on record before the next one begins. The run waits for an approval
without holding a worker; `stepkeep approve RUN` or the page of the run answers it, today or in three weeks.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import stepkeep as sk
from stepkeep.agents.pydantic_ai import StepkeepDurability


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look the topic up in two places at once, then publish, then say what came of it."""
    used = {part.tool_name: part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)}
    if not used:
        places = ("library", "archive")
        return ModelResponse(parts=[ToolCallPart(place, {}, tool_call_id=place) for place in places])
    if "publish" not in used:
        text = f"{used['library']} and {used['archive']}"
        return ModelResponse(parts=[ToolCallPart("publish", {"text": text}, tool_call_id="publish")])
    return ModelResponse(parts=[TextPart(str(used["publish"]))])


people: dict[str, Any] = {"publish": {"deadline": "14d", "on_deadline": "reject"}}
researcher = Agent(FunctionModel(model), name="researcher", capabilities=[StepkeepDurability(gates=people)])


@researcher.tool_plain
def library() -> str:
    return "three books"


@researcher.tool_plain
async def archive() -> str:
    sk.current().progress(0.5, "reading the archive")
    return "one letter"


@researcher.tool_plain(requires_approval=True)
def publish(text: str) -> str:
    return f"published: {text}"


@sk.flow("research", version=1, deadline="30d")
async def research(ctx: sk.FlowContext, topic: str) -> str:
    return (await researcher.run(f"Find out about {topic}, and publish it.")).output


if __name__ == "__main__":
    with sk.open("sqlite:///research.db") as engine:
        run = engine.run(research, {"topic": sys.argv[1] if len(sys.argv) > 1 else "tides"}, check=False)
        print(run)
        if run.state == "blocked":
            [gate] = engine.approvals().approvals
            print(gate.prompt, gate.shown)
            engine.approve(run.id, comment="read and agreed")
            print(engine.work_on(run.id))
