"""A coding agent of the OpenAI Agents SDK with a budget: when its tokens are spent, people decide whether it goes on.

    pip install 'stepkeep[openai-agents]'
    python examples/agents/coding_agent.py

Each turn is a step, so the budget is asked before each of them, and a turn that failed is tried again without repeating
what it had done. The model is the SDK's own scripted one: put the name of a model in its place.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

from agents import Agent, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage

import stepkeep as sk
from stepkeep.agents import openai_agents

written: list[str] = []


@function_tool
def write_test(name: str) -> str:
    """Write a test of this name."""
    written.append(name)
    return f"{name} passes"


def coder(number: int) -> Agent[Any]:
    """The agent of one turn. Each of its responses costs 400 tokens."""
    usage = Usage(requests=1, input_tokens=300, output_tokens=100, total_tokens=400)
    name = f"test_{number}"
    script = [
        ModelStep(output=[function_call("write_test", {"name": name}, call_id=name)], usage=usage),
        ModelStep(output=[assistant_message(f"{name} is written")], usage=usage),
    ]
    return Agent(name="coder", model=ScriptedModel(script), tools=[write_test])


@sk.step("coding.turn", retry=sk.Retry(max_attempts=5))
async def turn(number: int) -> str:
    result = await openai_agents.run(coder(number), f"Write test {number}.")
    return str(result.final_output)


BUDGET = {"tokens": 2_000, "on_exceeded": "hold", "approval": {"prompt": "The tokens are spent. Go on?"}}


@sk.flow("coding", version=1, budget=BUDGET)
async def coding(ctx: sk.FlowContext, tests: int) -> list[str]:
    return [await ctx.step(turn, number) for number in range(tests)]


if __name__ == "__main__":
    with sk.open("sqlite:///coding.db") as engine:
        run = engine.run(coding, {"tests": 4}, check=False)
        print(run)
        while run.state == "blocked":
            [gate] = engine.approvals().approvals
            engine.approve(run.id, gate.step, comment="one more turn")
            run = engine.work_on(run.id)
            print(run)
