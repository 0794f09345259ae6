"""A support agent that lives for weeks: it waits for messages of one customer, answers each, and begins a new history
after a few of them, with the conversation handed on.

    pip install 'stepkeep[openai-agents]'
    python examples/agents/support_agent.py

While it waits it holds no worker and no memory. The model is the SDK's own scripted one.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")

from agents import Agent
from agents.testing import ModelStep, ScriptedModel, assistant_message

import stepkeep as sk
from stepkeep.agents import openai_agents

MESSAGES_PER_HISTORY = 2


def answer(call: Any) -> Any:
    """What stands for a model here counts what the customer has said so far."""
    said = [one for one in call.input if one.get("role") == "user"]
    return [assistant_message(f"answer {len(said)}")]


@sk.flow("support", version=1)
async def support(ctx: sk.FlowContext, customer: str, conversation: list[Any]) -> Any:
    session = openai_agents.RunSession(customer, conversation)
    model = ScriptedModel([ModelStep(responder=answer) for _ in range(MESSAGES_PER_HISTORY)])
    agent: Agent[Any] = Agent(name="support", model=model)
    for _ in range(MESSAGES_PER_HISTORY):
        message = await ctx.wait_for("said")
        if message == "bye":
            return len(session.items)
        result = await openai_agents.run(agent, message, session=session)
        ctx.emit("answered", {"customer": customer, "text": result.final_output})
    return ctx.continue_as_new({"customer": customer, "conversation": session.items})


if __name__ == "__main__":
    with sk.open("sqlite:///support.db") as engine:
        engine.start_worker()
        run = engine.start(support, {"customer": "ada", "conversation": []}, business_key="ada")
        for text in ("hello", "and again"):
            engine.send(run.run_id, "said", text)
        # A customer knows no run: the business key finds the one that goes on.
        engine.wait(run.run_id, until_blocked=True)
        engine.send(key="ada", name="said", payload="bye")
        print(engine.wait(run.run_id))
