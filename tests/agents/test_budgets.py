"""Tokens and money of agents stop their run or hold it for people, whichever framework spends them."""

from __future__ import annotations

from typing import Any, TypedDict

import agents
import pytest
from agents.testing import ModelStep, ScriptedModel, assistant_message
from agents.usage import Usage
from langgraph.graph import START, StateGraph
from pydantic_ai import Agent, ModelResponse, RequestUsage, TextPart
from pydantic_ai.models.function import FunctionModel

import stepkeep as sk
from stepkeep.agents import langgraph, openai_agents
from stepkeep.agents.pydantic_ai import StepkeepDurability


async def by_pydantic_ai() -> str:
    def model(messages: Any, info: object) -> ModelResponse:
        return ModelResponse(parts=[TextPart("done")], usage=RequestUsage(input_tokens=300, output_tokens=100))

    agent = Agent(FunctionModel(model), name="geo", capabilities=[StepkeepDurability()])
    return (await agent.run("Go on.")).output


async def by_openai_agents() -> str:
    usage = Usage(requests=1, input_tokens=300, output_tokens=100, total_tokens=400)
    model = ScriptedModel([ModelStep(output=[assistant_message("done")], usage=usage)])
    return str((await openai_agents.run(agents.Agent(name="geo", model=model), "Go on.")).final_output)


class Answer(TypedDict, total=False):
    answer: str


async def by_langgraph() -> str:
    async def ask(state: Answer) -> Answer:
        sk.current().cost(tokens=400)
        return {"answer": "done"}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(Answer)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    return str((await langgraph.run(langgraph.recorded(builder).compile(), {}))["answer"])


async def by_durable() -> str:
    async def ask() -> str:
        sk.current().cost(tokens=400, usd=0.25)
        return "done"

    return await sk.durable(ask)


PROGRAMS = {program.__name__: program for program in (by_pydantic_ai, by_openai_agents, by_langgraph, by_durable)}


def turns(name: str, **budget: Any) -> sk.Workflow:
    """Two turns of an agent, one after the other."""
    workflow = sk.Workflow(f"agent-{budget.get('on_exceeded', 'money')}", budget=budget)
    first = workflow.step("first", PROGRAMS[name])
    workflow.step("second", PROGRAMS[name], after=first)
    return workflow


@pytest.mark.parametrize("name", PROGRAMS)
def test_spent_tokens_deny_the_next_turn_or_hold_it_for_people(database_url: str, name: str) -> None:
    with sk.Engine(database_url) as engine:
        stopped = engine.run(turns(name, tokens=400, on_exceeded="stop"), check=False)
        assert (stopped.state, "budget:tokens" in str(stopped.error)) == ("failed", True)
        assert engine.show(stopped.id).run.cost["tokens"] == 400
    with sk.Engine(database_url) as engine:
        approval = {"prompt": "Go on?", "approvers": ["ann"]}
        held = engine.run(turns(name, tokens=400, on_exceeded="hold", approval=approval), check=False)
        assert held.state == "blocked"
        [gate] = engine.approvals().approvals
        engine.approve(held.id, gate.step, by="ann")
        assert engine.work_on(held.id).output == "done"
        assert engine.show(held.id).run.cost["tokens"] == 800
        assert engine.certify(held.id).ok


def test_spent_money_denies_the_next_turn(database_url: str) -> None:
    with sk.Engine(database_url) as engine:
        stopped = engine.run(turns("by_durable", usd=0.2), check=False)
        assert (stopped.state, "budget:usd" in str(stopped.error)) == ("failed", True)
