"""The same small agent in each framework, as a step and as a flow, with a ledger of the calls that it made.

`python -m tests.agents.programs URL RUN COMMITS LEDGER AHEAD` is a worker that is killed after so many commits. The
models are the frameworks' own test doubles: the agent asks a model, calls two tools at once, and asks the model again.
Each framework is imported by the call that uses it, so that a worker loads one.
"""

from __future__ import annotations

import asyncio
import operator
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

import stepkeep as sk
from stepkeep.definition.python.registry import default_registry
from tests.operations import flows_process

PATIENT = sk.Retry(max_attempts=10, max_losses=30, initial="1ms")
CITIES = ("Bern", "Rome")
ledger: list[str] = []
"""What was called, in this process."""


def note(said: str) -> None:
    ledger.append(said)
    with flows_process.ledger.open("a") as file:
        file.write(f"{said}\n")


def look(city: str) -> str:
    """What is known of a city."""
    note(city)
    return city.upper()


# -- Pydantic AI -------------------------------------------------------------------------------------------------------
async def by_pydantic_ai(question: str) -> str:
    from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    from stepkeep.agents.pydantic_ai import StepkeepDurability

    def model(messages: Any, info: object) -> ModelResponse:
        known = [one for message in messages for one in message.parts if isinstance(one, ToolReturnPart)]
        note("answer" if known else "question")
        if known:
            return ModelResponse(parts=[TextPart(" ".join(sorted(str(one.content) for one in known)))])
        return ModelResponse(parts=[ToolCallPart("look", {"city": city}, tool_call_id=city) for city in CITIES])

    agent = Agent(FunctionModel(model), name="geo", capabilities=[StepkeepDurability()], tools=[look])
    return (await agent.run(question)).output


# -- OpenAI Agents -----------------------------------------------------------------------------------------------------
async def by_openai_agents(question: str) -> str:
    import agents
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

    from stepkeep.agents import openai_agents

    def respond(call: Any) -> Any:
        known = [one["output"] for one in call.input if one.get("type") == "function_call_output"]
        note("answer" if known else "question")
        if known:
            return [assistant_message(" ".join(sorted(known)))]
        return [function_call("look", {"city": city}, call_id=city) for city in CITIES]

    model = ScriptedModel([ModelStep(responder=respond), ModelStep(responder=respond)])
    agent = agents.Agent(name="geo", model=model, tools=[agents.function_tool(look)])
    output: str = (await openai_agents.run(agent, question)).final_output
    return output


# -- LangGraph ---------------------------------------------------------------------------------------------------------
class Known(TypedDict, total=False):
    question: str
    found: Annotated[list[str], operator.add]
    answer: str
    decision: Any


def _ask(state: Known) -> Known:
    note("question")
    return {}


def _looks(city: str) -> Any:
    async def node(state: Known) -> Known:
        return {"found": [look(city)]}

    return node


def _answer(state: Known) -> Known:
    note("answer")
    return {"answer": " ".join(sorted(state["found"]))}


def _decide(state: Known) -> Known:
    from langgraph.types import interrupt

    return {"decision": interrupt({"answer": state["answer"]})}


def builder() -> Any:
    from langgraph.graph import START, StateGraph

    graph = StateGraph(Known)
    graph.add_node("ask", _ask)
    graph.add_node("answer", _answer)
    graph.add_edge(START, "ask")
    for city in CITIES:
        graph.add_node(city, _looks(city))
        graph.add_edge("ask", city)
    graph.add_edge(list(CITIES), "answer")
    return graph


async def by_langgraph(question: str) -> str:
    from stepkeep.agents import langgraph

    result = await langgraph.run(langgraph.recorded(builder()).compile(), {"question": question})
    answer: str = result["answer"]
    return answer


def interrupted() -> Any:
    """The same graph, which asks before it ends."""
    from stepkeep.agents import langgraph

    graph = builder()
    graph.add_node("decide", _decide)
    graph.add_edge("answer", "decide")
    return langgraph.recorded(graph).compile(name="tour")


# -- steps and flows of them -------------------------------------------------------------------------------------------
FRAMEWORKS = {"pydantic_ai": by_pydantic_ai, "openai_agents": by_openai_agents, "langgraph": by_langgraph}
CALLS = ["question", *CITIES, "answer"]
ANSWER = "BERN ROME"


def _flow(name: str, call: Any) -> sk.Workflow:
    async def body(ctx: Any, question: str) -> str:
        answer: str = await call(question)
        return answer

    return sk.flow(f"flow.{name}", retry=PATIENT)(body)


def _step(name: str, call: Any) -> sk.Workflow:
    async def body(question: str) -> str:
        answer: str = await call(question)
        return answer

    handler = sk.step(f"step.{name}", retry=PATIENT)(body)
    made = sk.Workflow(f"plan.{name}")
    made.step("agent", handler, inputs={"question": "${{ input.question }}"})
    return made


WORKFLOWS = {
    f"{form}-{name}": make(name, call)
    for name, call in FRAMEWORKS.items()
    for form, make in (("step", _step), ("flow", _flow))
}

if __name__ == "__main__":
    flows_process.ledger = Path(sys.argv[4])
    asyncio.run(flows_process.main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[5]), default_registry))
