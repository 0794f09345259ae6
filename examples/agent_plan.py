"""An agent that plans: a handler returns the next steps, and the last of them thinks again.

Each search, approval and draft is a step of the run, with attempts, retries and an undo of its own. `think` stands for
a call of a language model. Run it with `python examples/agent_plan.py`; after a crash, run it again: the run goes on.
"""

from __future__ import annotations

from typing import Any

import stepkeep as sk

MOST = 20
"""How many steps the agent may add to one run."""


@sk.step("writer.search", retry=sk.Retry(max_attempts=3), effect="read")
def search(topic: str) -> dict[str, Any]:
    return {"topic": topic, "facts": [f"{topic} is old", f"{topic} is loved"]}


@sk.step("writer.unpublish")
def unpublish(page: str) -> dict[str, Any]:
    return {"removed": page}


@sk.step("writer.publish", undo=unpublish, effect="write")
def publish(facts: list[str]) -> dict[str, Any]:
    return {"page": "/pages/1", "text": "; ".join(facts)}


@sk.step("writer.think", timeout="2m", effect="read")
def think(topics: list[str], facts: list[str]) -> Any:
    """Search for the next topic and think again, or publish what was found."""
    if topics:
        name = f"search-{topics[0]}"
        found = sk.output_of(name).facts
        return sk.then(
            {"name": name, "uses": search, "with": {"topic": topics[0]}},
            {"name": f"think-{len(topics)}", "uses": think, "with": {"topics": topics[1:], "facts": found + facts}},
        )
    return sk.then({"name": "publish", "uses": publish, "with": {"facts": facts}}, output={"facts": len(facts)})


writer = sk.Workflow("writer", version=1, timeout="1d", on_failure="compensate")
agent = writer.step(
    "agent",
    think,
    inputs={"topics": writer.input.topics, "facts": []},
    then={"max_steps": MOST, "deadline": "1h"},
)
writer.returns(agent.output.steps.publish)


def main(database: str, topics: list[str]) -> Any:
    """Work on the run of these topics until it has ended."""
    with sk.Engine(database) as engine:
        return engine.run(writer, {"topics": topics}, idempotency_key="writer-1").output


if __name__ == "__main__":
    print(main("sqlite:///writer.db", ["tea", "cup"])["text"])  # noqa: T201
