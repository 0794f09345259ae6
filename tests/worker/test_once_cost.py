"""What a checkpoint costs: the same for each call, however many there are before it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.suites import in_proof

import stepkeep as sk
from stepkeep.operations.remote.recorded_checkpoints import PAGE_CHECKPOINTS
from stepkeep.store.statements import load_statements
from stepkeep_lab.golden.statements import WATCHES

WINDOW = 100
OF_RUNS = ("checkpoint", "journal", "load_steps", "update_runs", "write_hot")
"""Parts of the names of statements that the calls of the agent send; the worker's heartbeat and sweeps send others."""


@pytest.mark.parametrize("calls", [600, in_proof(5_000)])
def test_the_last_call_of_a_long_agent_costs_what_an_early_one_does(database_url: str, calls: int) -> None:
    """Statements and bytes of parameters are counted. A later attempt reads what is on record in pages."""
    store = database_url.split(":")[0].replace("postgresql", "postgres")
    named = {text: name for name, text in vars(load_statements(f"stepkeep.store.{store}")).items()}
    sent: list[tuple[str, int]] = []
    marks: list[int] = []
    made: list[int] = []

    def take(text: str, parameters: Any) -> None:
        name = named.get(text.strip(), "")
        if any(part in name for part in OF_RUNS):
            sent.append((name, len(repr(parameters))))

    async def agent(ctx: sk.Context) -> int:
        marks.append(len(sent))
        for place in range(calls):
            await ctx.once(f"call#{place:05}", answer, place)
            marks.append(len(sent))
        if ctx.attempt == 1:
            raise ConnectionError("later")
        return len(made)

    def answer(place: int) -> str:
        made.append(place)
        return "x" * 500

    workflow = sk.Workflow("agent")
    workflow.step("agent", agent, retry=sk.Retry(max_attempts=2, initial="1ms", max="1ms"))
    with WATCHES[store](take), sk.Engine(database_url) as engine:
        assert engine.run(workflow).output == calls
    early, last = (sent[marks[at] : marks[at + WINDOW]] for at in (WINDOW, calls - WINDOW))
    assert Counter(name for name, _ in early) == Counter(name for name, _ in last)
    assert sum(size for _, size in last) < 1.02 * sum(size for _, size in early)
    again = Counter(name for name, _ in sent[marks[calls + 1] : marks[-1]])
    assert again["read_checkpoints"] == calls // PAGE_CHECKPOINTS
    assert not again["load_checkpoints"]
