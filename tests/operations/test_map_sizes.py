"""Maps of many elements on both databases: each way to end, certified in all dialects. `make proof` has 1,000 and
10,000 elements."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects.registry import judged
from stepkeep.kernel.definition import Definition, Effect, Handler, Map, StepDefinition, Undo
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category, OnFailure, RunState
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import canonical_machines, lines_of
from stepkeep.operations.pipeline.expire import sweep
from tests.suites import in_proof
from tests.workbench import SECOND, TENANT, Bench, on

DIALECTS = ("ioa", "run", "linear", "action", "workstream")
IN_FLIGHT = 50


def mapping(count: int, policy: OnFailure = OnFailure.ABORT) -> Definition:
    """A map over the input, each element of which has an undo, within an hour."""
    step = StepDefinition(
        name="each",
        order=0,
        executor=Handler(name="each"),
        effect=Effect.WRITE,
        undo=Undo(executor=Handler(name="back")),
        growth=Map(over="${{ input }}", max=count, in_flight=IN_FLIGHT),
        on_failure=policy,
    )
    return Definition(name="many", version=1, steps=(step,), timeout=3_600 * SECOND, on_failure=policy)


async def half(bench: Bench, count: int) -> None:
    """Finish half of the elements."""
    left = count // 2
    while left > 0:
        claims = await bench.claim(min(left, IN_FLIGHT))
        await bench.report_all(claims, Completed(output=b"1"))
        left -= len(claims)


async def succeeds(bench: Bench, run_id: str, count: int) -> None:
    assert await bench.work_off(IN_FLIGHT) == count


async def fails(bench: Bench, run_id: str, count: int) -> None:
    await half(bench, count)
    [bad, other] = await bench.claim(2)
    await bench.report(bad, Failed(error="no good", category=Category.VALIDATION))
    await bench.report(other, Completed(output=b"1"))


async def is_rolled_back(bench: Bench, run_id: str, count: int) -> None:
    await fails(bench, run_id, count)
    assert await bench.work_off(IN_FLIGHT) == count // 2 + 1


async def is_cancelled(bench: Bench, run_id: str, count: int) -> None:
    await half(bench, count)
    await bench.cancel(run_id)


async def times_out(bench: Bench, run_id: str, count: int) -> None:
    await half(bench, count)
    bench.store.clock_offset = 3_601 * SECOND
    await sweep(bench.transactor)


End = Callable[[Bench, str, int], Awaitable[None]]


@pytest.mark.parametrize("count", [60, in_proof(1_000), in_proof(10_000)])
@pytest.mark.parametrize(
    ("end", "policy", "state"),
    [
        (succeeds, OnFailure.ABORT, RunState.SUCCEEDED),
        (fails, OnFailure.ABORT, RunState.FAILED),
        (is_rolled_back, OnFailure.COMPENSATE, RunState.ROLLED_BACK),
        (is_cancelled, OnFailure.ABORT, RunState.CANCELLED),
        (times_out, OnFailure.ABORT, RunState.FAILED),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_map_of_any_size_ends_in_every_way(
    database_url: str, end: End, policy: OnFailure, state: RunState, count: int
) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(mapping(count, policy))
        run_id = await bench.start(plan, json.dumps(list(range(count))).encode())
        await end(bench, run_id, count)
        assert await bench.state(run_id) is state
        [whole] = await bench.store.read_whole(TENANT, [run_id])
        unsettled = [step.no for step in whole.steps if step.settled is None]
        assert unsettled == []
        for dialect in (None, *DIALECTS):
            assert findings(lines_of(whole, plan, dialect), dialect) == (), dialect


def findings(told: Any, dialect: str | None) -> Any:
    lines = [encode_line(line) for line in told]
    report = verify_lines(lines, canonical_machines()) if dialect is None else replay_lines(lines, judged(dialect))
    return report.findings
