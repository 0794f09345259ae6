"""Structured concurrency in flows: live, replayed at every suspension, and with workers that are killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepkeep as sk
from tests.operations.idioms import CANCELLED, FLOWS, OUTPUTS, double, registry, sleeper
from tests.suites import short_and_all
from tests.worker.bed import PAST_THE_LEASE_US

ROOT = Path(__file__).parents[2]
WORK = """
import asyncio, sys
from tests.operations.flows_process import main
from tests.operations.idioms import registry
asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), registry))
"""


def check(engine: sk.Engine, run_id: str, name: str) -> list[tuple[str, str | None, str]]:
    """Check what a run came to; returns its calls with their ends."""
    result = engine.result(run_id)
    assert (result.state, result.output) == ("succeeded", OUTPUTS[name]), result
    certificate = engine.certify(run_id)
    assert certificate.ok, [certificate.canonical, *((one.dialect, one.findings) for one in certificate.dialects)]
    steps = engine.show(run_id).steps
    ends = [(one.name, one.call, str(one.state)) for one in steps[1:]]
    assert sum(state == "cancelled" for _, _, state in ends) == CANCELLED[name]
    return ends


@pytest.mark.parametrize("name", FLOWS)
def test_an_idiom_comes_to_the_same_live_and_replayed(
    database_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepkeep.worker.flows import keeper

    ends = []
    for kept in (1000, 0):
        monkeypatch.setattr(keeper.FlowKeeper.__init__, "__defaults__", (kept,))
        with sk.Engine(database_url, registry=registry) as engine:
            engine.publish(sleeper)
            run = engine.start(FLOWS[name], {}).run_id
            worker = engine.start_worker()
            assert engine.wait(run, seconds=60).finished
            worker.stop()
            ends.append(check(engine, run, name))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "case",
    short_and_all([("race", 3), ("timeouts", 5)], [(name, commits) for name in FLOWS for commits in range(1, 15)]),
)
def test_an_idiom_survives_the_death_of_its_worker_after_a_commit(database_url: str, case: tuple[str, int]) -> None:
    name, commits = case
    with sk.Engine(database_url, registry=registry) as engine:
        engine.publish(sleeper)
        run = engine.start(FLOWS[name], {}).run_id
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        for left, ahead in ((commits, 0), (0, PAST_THE_LEASE_US)):
            command = [sys.executable, "-c", WORK, database_url, run, str(left), str(ahead)]
            subprocess.run(command, cwd=ROOT, env=environment, timeout=120, check=False)
        check(engine, run, name)


def test_a_cancel_that_finds_its_call_settled_changes_nothing_on_record(database_url: str) -> None:
    """Both gates are decided before the flow goes on: it is given the first decision, and cancels the other gate."""

    @sk.flow("idioms.late", registry=registry)
    async def late(ctx: sk.FlowContext) -> str:
        gates = [ctx.gate("one?"), ctx.gate("two?")]
        done, left = await asyncio.wait(gates, return_when=asyncio.FIRST_COMPLETED)
        for one in left:
            one.cancel()
        await ctx.step(double, 1)
        return str(done.pop().result()["by"])

    with sk.Engine(database_url, registry=registry) as engine:
        run = engine.run(late, check=False).id
        engine.approve(run, "idioms.late[0]", by="ann")
        engine.approve(run, "idioms.late[1]", by="bea")
        result = engine.work_on(run)
        assert (result.state, result.output) == ("succeeded", "ann")
        assert [str(one.state) for one in engine.show(run).steps] == ["succeeded"] * 4
        certificate = engine.certify(run)
        assert certificate.ok, [certificate.canonical, *((one.dialect, one.findings) for one in certificate.dialects)]


def test_what_is_refused_is_refused_before_a_call_runs(database_url: str) -> None:
    @sk.flow("idioms.threaded", registry=registry)
    async def threaded(ctx: sk.FlowContext) -> None:
        await asyncio.gather(ctx.step(double, 1), asyncio.to_thread(print))

    with sk.Engine(database_url, registry=registry) as engine:
        result = engine.run(threaded, check=False)
        assert result.state == "failed"
        assert "uses a thread. Make the call in a step" in (result.error or "")
        assert [str(one.state) for one in engine.show(result.id).steps] == ["failed", "cancelled"]
