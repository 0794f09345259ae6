"""The examples of agents come to their ends, with people who decide, budgets and long lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.handlers import load_app

EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"


@pytest.fixture
def engine(empty_registry: None, tmp_path: Path) -> Iterator[sk.Engine]:
    with sk.open(f"sqlite:///{tmp_path / 'examples.db'}") as engine:
        yield engine


def example(name: str, flow: str) -> Any:
    return getattr(load_app(str(EXAMPLES / f"{name}.py")), flow)


def test_what_the_research_agent_found_is_published_once_people_agree(engine: sk.Engine) -> None:
    blocked = engine.run(example("research_agent", "research"), {"topic": "tides"}, check=False)
    [gate] = engine.approvals().approvals
    assert (gate.shown["tool"], gate.until is not None) == ("publish", True)
    engine.approve(blocked.id)
    assert engine.work_on(blocked.id).output == "published: three books and one letter"


def test_the_coding_agent_asks_when_its_tokens_are_spent(engine: sk.Engine) -> None:
    run = engine.run(example("coding_agent", "coding"), {"tests": 4}, check=False)
    assert run.state == "blocked"
    assert engine.show(run.id).run.cost["tokens"] >= 2_000
    while run.state == "blocked":
        [gate] = engine.approvals().approvals
        assert gate.rule is not None
        engine.approve(run.id, gate.step)
        run = engine.work_on(run.id)
    assert run.output == [f"test_{number} is written" for number in range(4)]


@pytest.mark.parametrize("agrees", [True, False])
def test_the_newsroom_answers_as_its_editor_decides(engine: sk.Engine, agrees: bool) -> None:
    blocked = engine.run(example("review_graph", "newsroom"), {"topic": "tides"}, check=False)
    decide = engine.approve if agrees else engine.reject
    decide(blocked.id, comment="not today")
    output = engine.work_on(blocked.id).output
    assert output == "a story of tides, and facts about tides" if agrees else "withdrawn" in output


def test_the_support_agent_hands_its_conversation_on(engine: sk.Engine) -> None:
    """What is sent by the customer's key reaches the run that goes on."""
    support = example("support_agent", "support")
    run = engine.run(support, {"customer": "ada", "conversation": []}, business_key="ada", check=False)
    for text in ("hello", "and again"):
        engine.send(run.id, "said", text)
        first = engine.work_on(run.id)
    assert "continued_as" in first.output
    worker = engine.start_worker()
    engine.send(key="ada", name="said", payload="bye")
    last = engine.wait(run.id, seconds=60)
    worker.stop()
    assert (last.output, last.id) == (4, first.output["continued_as"])
