"""A flow and a plan of the same shape give the same lines of their steps, in every dialect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import stepkeep as sk
from tests.suites import first_on

WORDS = ("event_type", "from_state", "to_state", "trigger", "severity")
FACTS = ("because", "ground", "attempt", "retry_count", "kind", "max_attempts", "category", "error", "extension")


@sk.step("shape.work")
def work(n: int) -> int:
    return n


def shape(lines: list[bytes], names: dict[str, str]) -> dict[str, list[Any]]:
    """What the log says of each step, without times, numbers and names."""
    found: dict[str, list[Any]] = {}
    for line in map(json.loads, lines):
        step = line["metadata"].get("step")
        if step in names:
            facts = {fact: line["metadata"].get(fact) for fact in FACTS}
            found.setdefault(names[step], []).append([*(line[word] for word in WORDS), facts])
    return found


@first_on("sqlite")
@pytest.mark.parametrize("dialect", ["ioa", "run", "linear", "action", "workstream"])
def test_a_flow_and_a_plan_of_the_same_shape_have_the_same_step_lines(database_url: str, dialect: str) -> None:
    @sk.flow("as-code", on_failure="compensate")
    async def flow(ctx: Any) -> None:
        await ctx.step(work, 1)
        await asyncio.gather(ctx.step(work, 2), ctx.options(retry=sk.Retry(max_attempts=2)).step(work, 3))

    plan = sk.Workflow("as-plan")
    first = plan.step("a", work, inputs={"n": 1}, on_failure="continue")
    plan.step("b", work, inputs={"n": 2}, after=first, on_failure="continue")
    plan.step("c", work, inputs={"n": 3}, after=first, on_failure="continue", retry=sk.Retry(max_attempts=2))
    with sk.Engine(database_url) as engine:
        logs = [engine.log(engine.run(one, {}).id, as_=dialect) for one in (flow, plan)]
    names = {f"as-code[{index}]": letter for index, letter in enumerate("abc")}
    assert shape(logs[0], names) == shape(logs[1], {letter: letter for letter in "abc"})
    assert len(shape(logs[0], names)) == 3
