"""A graph of LangGraph that drafts in parallel, and asks an editor before it answers.

    pip install 'stepkeep[langgraph]'
    python examples/agents/review_graph.py "tides"

Each node is on record before the next one begins. `interrupt` in a node opens a gate that shows its value; the node
goes on with the decision. The graph needs no checkpointer: the run is the record.
"""

from __future__ import annotations

import operator
import sys
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import stepkeep as sk
from stepkeep.agents import langgraph


class Draft(TypedDict):
    topic: str
    parts: Annotated[list[str], operator.add]
    answer: str


def facts(state: Draft) -> dict[str, Any]:
    return {"parts": [f"facts about {state['topic']}"]}


def story(state: Draft) -> dict[str, Any]:
    return {"parts": [f"a story of {state['topic']}"]}


def review(state: Draft) -> dict[str, Any]:
    text = ", and ".join(sorted(state["parts"]))
    decision = interrupt(text)
    return {"answer": text if decision["approved"] else f"withdrawn: {decision['why']}"}


builder = StateGraph(Draft)
for node in (facts, story):
    builder.add_node(node.__name__, node)
    builder.add_edge(START, node.__name__)
builder.add_node("review", review)
builder.add_edge(["facts", "story"], "review")
graph = langgraph.recorded(builder).compile(name="newsroom")


@sk.flow("newsroom", version=1)
async def newsroom(ctx: sk.FlowContext, topic: str) -> str:
    result = await langgraph.run(graph, {"topic": topic}, resume=langgraph.by_gate("the newsroom", deadline="2d"))
    return str(result["answer"])


if __name__ == "__main__":
    with sk.open("sqlite:///newsroom.db") as engine:
        run = engine.run(newsroom, {"topic": sys.argv[1] if len(sys.argv) > 1 else "tides"}, check=False)
        print(run)
        if run.state == "blocked":
            engine.reject(run.id, comment="not today")
            print(engine.work_on(run.id))
