"""`ctx.continue_as_new`: a flow ends, and a run of the same workflow goes on in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.worker.flows import keeper
from tests.api.stage import on
from tests.operations.continued_process import count
from tests.operations.test_flow_children import accepted
from tests.suites import first_on, short_and_all
from tests.worker.bed import PAST_THE_LEASE_US


@sk.step("continued.add")
def add(total: int, number: int) -> int:
    return total + number


@pytest.mark.parametrize("kept", [0, 1000])
def test_a_flow_goes_on_in_runs_that_follow_each_other(database_url: str, kept: int) -> None:
    @sk.flow("continued.sum")
    async def summed(ctx: Any, number: int = 0, total: int = 0) -> int:
        under_way = ctx.step(add, total, number)
        if number < 12:
            try:
                ctx.continue_as_new({"number": number + 1, "total": total + number})
            except Exception as problem:
                raise AssertionError("it is no error") from problem
        return int(await under_way)

    before = keeper.MOST_KEPT
    try:
        keeper.FlowKeeper.__init__.__defaults__ = (kept,)
        with sk.Engine(database_url) as engine:
            options = {"business_key": "sums", "correlation_id": "c-1", "labels": {"team": "a"}}
            result = engine.run(summed, {}, **options)
            assert result.output == sum(range(13))
            chain = chain_to(engine, result.id)
            assert len(chain) == 13
            assert not any(map(is_child, chain))
            for run_id in chain:
                accepted(engine, run_id)
            first, last = (engine.show(run_id)["run"] for run_id in (chain[0], chain[-1]))
            assert (first["state"], first["output"]) == ("succeeded", {"continued_as": chain[1]})
            assert first["continued_as"] == {"run_id": chain[1], "state": "succeeded", "error": None}
            assert first["children"] == []
            assert last["continued_from"] == chain[-2]
            assert (last["version"], last["input"]) == (first["version"], {"number": 12, "total": 66})
            assert last["asked_before"] == [first["created_by"]]
            for name in ("business_key", "correlation_id", "labels"):
                assert last[name] == options[name]
            steps = engine.show(chain[0])["steps"]
            assert [(step["call"], step["state"]) for step in steps] == [
                (None, "succeeded"), ("continued.add", "succeeded"), ("continued.sum", "succeeded"),
            ]  # fmt: skip
            waited = engine.wait(chain[0], seconds=30)
            assert (waited.run_id, waited.output) == (result.id, 78)
    finally:
        keeper.FlowKeeper.__init__.__defaults__ = (before,)


def chain_to(engine: sk.Engine, run_id: str) -> list[str]:
    """The runs of a flow that continued as new, the first one first."""
    found = [run_id]
    while (before := engine.show(found[0])["run"].get("continued_from")) is not None:
        found.insert(0, before)
    return found


def test_a_child_of_a_successor_is_of_the_second_generation(database_url: str) -> None:
    """A chain has more runs than a tree may have generations."""
    leaf = sk.Workflow("continued-leaf")
    leaf.step("add", add, inputs={"total": 1, "number": 1})

    @sk.flow("continued.parent")
    async def parent(ctx: Any, number: int = 0) -> int:
        found: int = await ctx.child(leaf, {})
        if number < 9:
            ctx.continue_as_new({"number": number + 1})
        return found + number

    with sk.Engine(database_url) as engine:
        engine.publish(leaf)
        result = engine.run(parent, {}, check=True)
        assert result.output == 11
        accepted(engine, result.id)


def test_a_wait_ends_with_its_time_and_names_the_run_that_is_under_way(database_url: str) -> None:
    @sk.flow("continued.patient")
    async def patient(ctx: Any, again: bool = True) -> Any:
        if again:
            ctx.continue_as_new({"again": False})
        return await ctx.wait_for("paid")

    with sk.Engine(database_url) as engine:
        blocked = engine.run(patient, {})
        assert blocked.state == "blocked"
        [first, last] = chain_to(engine, blocked.id)
        found = engine.wait(first, seconds=0.3)
        assert (found.run_id, found.finished) == (last, False)
        assert engine.wait(first, until_blocked=True).run_id == last
        engine.cancel(last, by="ann")
        ended = engine.wait(first, seconds=30)
        assert (ended.run_id, ended.state) == (last, "cancelled")


@first_on("sqlite")
def test_what_cannot_continue_fails_with_the_reason(database_url: str) -> None:
    @sk.flow("continued.stubborn")
    async def stubborn(ctx: Any) -> str:
        try:
            ctx.continue_as_new({})
        except BaseException:  # noqa: BLE001 - the flow of this test hides its own end
            return "went on"

    @sk.flow("continued.declared", input_schema={"type": "object", "required": ["number"]}, on_exhausted="fail")
    async def declared(ctx: Any, number: int) -> None:
        ctx.continue_as_new({"nomber": number})

    @sk.step("continued.part")
    async def part(ctx: Any) -> None:
        ctx.continue_as_new({})

    several = sk.Workflow("continued-several")
    several.step("first", add, inputs={"total": 1, "number": 1})
    several.step("second", part, flow={"max_calls": 5}, on_exhausted="fail")
    with sk.Engine(database_url) as engine:
        runs = ((stubborn, {}), (declared, {"number": 1}), (several, {}))
        errors = [engine.run(one, given).error for one, given in runs]
    assert "goes on after ctx.continue_as_new" in str(errors[0])
    assert "does not fit its schema" in str(errors[1])
    assert "is one of 2 steps" in str(errors[2])


@first_on("sqlite")
def test_a_cancel_before_the_end_leaves_no_successor(database_url: str) -> None:
    """The flow has asked to continue, and is cancelled while it awaits a call."""

    @sk.step("continued.cancel")
    def cancel(run_id: str) -> None:
        with sk.Engine(database_url) as other:
            other.cancel(run_id, by="ann")

    @sk.flow("continued.cancelled")
    async def cancelled(ctx: Any) -> None:
        under_way = ctx.step(cancel, ctx.run_id)
        assert under_way is not None
        ctx.continue_as_new({})

    with sk.Engine(database_url) as engine:
        result = engine.run(cancelled, {})
        assert result.state == "cancelled"
        assert "continued_as" not in engine.show(result.id)["run"]
        accepted(engine, result.id)


@first_on("sqlite")
def test_a_flow_continues_although_its_version_was_withdrawn(database_url: str) -> None:
    @sk.step("continued.withdraw")
    def withdraw() -> None:
        with sk.Engine(database_url) as other:
            other.versions.withdraw("continued.old", 1, reason="a newer one is there", by="ann")

    @sk.flow("continued.old")
    async def old(ctx: Any, again: bool = True) -> str:
        if again:
            await ctx.step(withdraw)
            ctx.continue_as_new({"again": False})
        return "done"

    with sk.Engine(database_url) as engine:
        assert engine.run(old, {}).output == "done"


@first_on("sqlite")
@pytest.mark.parametrize("commits", short_and_all([3, 6], range(1, 12)))
def test_a_flow_continues_once_whenever_its_worker_dies(database_url: str, commits: int) -> None:
    with sk.Engine(database_url) as engine:
        started = engine.start(count, {"number": 0})
        program = Path(__file__).with_name("continued_process.py")
        ended = []
        # The clock of the second one is past the leases of the first.
        for left, ahead in ((commits, 0), (0, PAST_THE_LEASE_US)):
            given = [sys.executable, str(program), database_url, str(left), str(ahead)]
            ended.append(subprocess.run(given, timeout=60, check=False).returncode)
        assert ended == [-9, 0]
        result = engine.wait(started.run_id, seconds=10)
        assert (result.state, result.output) == ("succeeded", 2)
        chain = chain_to(engine, result.id)
        assert len(chain) == 3
        assert chain[0] == started.run_id
        assert sorted(run["id"] for run in engine.runs()["runs"]) == sorted(chain)
        for run_id in chain:
            accepted(engine, run_id)


async def test_the_loop_is_free_while_a_successor_is_awaited(database_url: str) -> None:
    """A worker elsewhere starts it: `wait` only looks."""

    @sk.flow("continued.elsewhere")
    async def elsewhere(ctx: Any, again: bool = True) -> str:
        if again:
            ctx.continue_as_new({"again": False})
        return "done"

    async with sk.AsyncEngine(database_url) as engine:
        started = await engine.start(elsewhere, {})
        await engine.start_worker()
        assert (await engine.wait(started.run_id, seconds=30)).output == "done"


@first_on("sqlite")
async def test_the_service_answers_with_the_last_run(database_url: str) -> None:
    async with on(database_url) as stage:

        @sk.flow("continued.served", registry=stage.engine.registry)
        async def served(ctx: Any, again: bool = True) -> str:
            if again:
                ctx.continue_as_new({"again": False})
            return "done"

        started = await stage.engine.start(served, {})
        await stage.engine.start_worker()
        async with stage.client(await stage.key("read", tenant=stage.engine.tenant)) as client:
            told = (await client.get(f"/runs/{started.run_id}/result", params={"wait": 20})).json()
            shown = (await client.get(f"/runs/{started.run_id}")).json()["run"]
        assert (told["state"], told["output"]) == ("succeeded", "done")
        assert told["run_id"] == shown["continued_as"]["run_id"] != started.run_id
