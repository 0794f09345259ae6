"""What a retry, a rerun and a fork say about effects, whatever did them: calls, added steps, elements and children."""

from __future__ import annotations

import json
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.conformance.adoption import check_originals
from stepkeep.engine import AsyncEngine
from tests.operations.test_continuations import certified, on

DONE: list[str] = []
BROKEN: set[str] = set()


@pytest.fixture(autouse=True)
def clean() -> None:
    DONE.clear()
    BROKEN.clear()


@sk.step("repeated.unwrite")
def unwrite(name: str = "") -> None:
    DONE.append(f"un{name}")


@sk.step("repeated.write", undo="repeated.unwrite")
def write(name: str) -> dict[str, str]:
    DONE.append(name)
    return {"name": name}


@sk.step("repeated.look", effect="read")
def look(name: str) -> dict[str, str]:
    return {"name": name}


@sk.step("repeated.load", effect="write")
def load(name: str) -> dict[str, str]:
    """Has an effect that nothing takes back."""
    return write(name)


WORKS = {"write": write, "look": look, "load": load}


@sk.step("repeated.talk")
async def talk(ctx: sk.FlowContext, handler: str) -> str:
    await ctx.step(WORKS[handler], "called")
    if "talk" in BROKEN:
        raise sk.fail("talk is broken")
    return "talked"


@sk.step("repeated.plan")
def plan(handler: str) -> Any:
    return sk.then({"name": "one", "uses": WORKS[handler], "with": {"name": "added"}})


@sk.step("repeated.last", effect="read")
def last() -> None:
    if "last" in BROKEN:
        raise sk.fail("last is broken")


def child(fails: bool = False, on_failure: Any = "abort") -> sk.Workflow:
    flow = sk.Workflow("repeated-child", on_failure=on_failure)
    done = flow.step("work", write, inputs={"name": "below"})
    if fails:
        flow.step("break", last, after=done, retry=sk.Retry(max_attempts=1))
    return flow


def parent(kind: str, handler: str = "write") -> sk.Workflow:
    """One step of this kind, and a last one that fails."""
    flow = sk.Workflow(f"above-{kind}", on_failure="abort")
    one = {
        "flow": lambda: flow.step("one", talk, inputs={"handler": handler}, flow={"max_calls": 3}),
        "then": lambda: flow.step("one", plan, inputs={"handler": handler}, then={"max_steps": 3}),
        "map": lambda: flow.step("one", WORKS[handler], inputs={"name": flow.item}, map="${{ ['item'] }}"),
        "children": lambda: flow.workflow("one", "repeated-child", map="${{ [1] }}"),
        "case": lambda: flow.switch("one", flow.case("only", workflow="repeated-child")),
        "child": lambda: flow.workflow("one", "repeated-child"),
    }[kind]()
    flow.step("last", last, after=one, retry=sk.Retry(max_attempts=1))
    return flow


OWNERS = ["flow", "then", "map", "children", "case"]


async def failed(engine: AsyncEngine, flow: sk.Workflow) -> str:
    await engine.publish(child())
    BROKEN.add("last")
    first = await engine.run(flow, {}, check=False)
    assert first.state == "failed"
    BROKEN.clear()
    return first.run_id


@pytest.mark.parametrize("kind", OWNERS[1:])
async def test_a_retry_runs_a_step_again_whose_elements_had_effects_and_says_so(database_url: str, kind: str) -> None:
    """It would be responsible for their undo, and has not their rows."""

    async with on(database_url) as engine:
        first = await failed(engine, parent(kind))
        looked = await engine.continuations.preview(first, "retry")
        assert (looked["adopted"], looked["may_repeat"]) == ([], ["one"])
        assert looked["steps"][0]["reason"] == "elements"
        second = (await engine.continuations.retry(first)).run_id
        assert (await engine.work_on(second)).state == "succeeded"
        assert len(DONE) == 2
        await certified(engine, first, second)


async def test_a_retry_takes_the_calls_of_a_flow_that_had_effects_with_their_undo(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, parent("flow"))
        looked = await engine.continuations.preview(first, "retry")
        assert (looked["runs_again"], looked["may_repeat"], looked["owns_undo"]) == (["one", "last"], [], ["one[0]"])
        BROKEN.add("last")
        second = (await engine.continuations.retry(first)).run_id
        assert (await engine.work_on(second)).state == "failed"
        BROKEN.clear()
        third = (await engine.continuations.retry(second)).run_id
        await engine.cancel(third, compensate=True)
        await engine.work_on(third)
        assert DONE == ["called", "uncalled"], "nothing was repeated, and what was done is undone once"
        await certified(engine, first, second, third)


@pytest.mark.parametrize("kind", OWNERS)
@pytest.mark.parametrize("how", ["rerun", "fork"])
async def test_a_rerun_and_a_fork_adopt_it_because_its_undo_stays_with_the_first_run(
    database_url: str, kind: str, how: str
) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, parent(kind))
        looked = await engine.continuations.preview(first, how, start="last")
        assert (looked["adopted"], looked["may_repeat"], looked["owns_undo"]) == (["one"], [], [])
        start = engine.continuations.rerun if how == "rerun" else engine.continuations.fork
        second = (await start(first, "last")).run_id
        assert (await engine.work_on(second)).state == "succeeded"
        assert len(DONE) == 1, "nothing was repeated"
        await certified(engine, first, second)


@pytest.mark.parametrize("kind", ["flow", "then", "map"])
async def test_a_retry_adopts_a_step_whose_elements_have_no_undo_and_tells_a_rollback_that_they_remain(
    database_url: str, kind: str
) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, parent(kind, "load"))
        looked = await engine.continuations.preview(first, "retry")
        assert (looked["adopted"], looked["may_repeat"]) == (["one"], [])
        BROKEN.add("last")
        second = (await engine.continuations.retry(first)).run_id
        assert (await engine.work_on(second)).state == "failed"
        BROKEN.clear()
        third = (await engine.continuations.retry(second)).run_id
        await engine.cancel(third, compensate=True)
        await engine.work_on(third)
        assert (await engine.show(third))["run"]["rollback"] == "partial"
        fork = (await engine.continuations.rerun(second, "last")).run_id
        await engine.cancel(fork, compensate=True)
        await engine.work_on(fork)
        assert (await engine.show(fork))["run"]["rollback"] != "partial", "its first run answers for it"
        assert len(DONE) == 1, "nothing was repeated"
        await certified(engine, first, second, third, fork)


@pytest.mark.parametrize("kind", ["flow", "then", "map"])
async def test_the_judge_finds_a_retry_that_takes_over_elements_in_silence(database_url: str, kind: str) -> None:

    def other(kind: str) -> sk.Workflow:
        flow = parent(kind)
        flow._head["workflow"] = f"above-{kind}-undone"
        return flow

    async with on(database_url) as engine:
        for handler, without, says in (
            ("load", {"remains"}, "does not say that they remain"),
            ("write", set[str](), "are to be undone, which only run"),
        ):
            first = await failed(engine, parent(kind, handler) if handler == "load" else other(kind))
            lines = [json.loads(line) for line in await engine.log(first)]
            moves = [line["metadata"] for line in lines if line["metadata"].get("step") == "one"]
            digest = next((said["digest"] for said in moves[::-1] if "digest" in said), None)
            fence = next((said["fence"] for said in moves[::-1] if "fence" in said), 0)
            told = {"step": "one", "run": first, "fence": fence, "digest": digest, "undo": True, "remains": "no_undo"}
            forged = {name: value for name, value in told.items() if name not in without and value is not None}
            [(_, said)] = check_originals([forged], {first: lines})
            assert said is not None
            assert says in said


@pytest.mark.parametrize("kind", ["flow", "then", "map"])
async def test_a_retry_adopts_a_step_whose_elements_only_read(database_url: str, kind: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, parent(kind, "look"))
        looked = await engine.continuations.preview(first, "retry")
        assert (looked["adopted"], looked["may_repeat"]) == (["one"], [])


async def test_a_flow_that_failed_by_itself_repeats_nothing_in_a_retry_and_all_in_a_rerun(database_url: str) -> None:
    async with on(database_url) as engine:
        BROKEN.add("talk")
        first = await engine.run(parent("flow"), {}, check=False)
        assert first.state == "failed"
        looked = await engine.continuations.preview(first.run_id, "retry")
        assert looked["may_repeat"] == []
        looked = await engine.continuations.preview(first.run_id, "rerun", start="one")
        assert looked["may_repeat"] == ["one"]


@pytest.mark.parametrize(
    ("on_failure", "repeats"), [("abort", ["one"]), ("compensate", [])], ids=["left something", "undid itself"]
)
async def test_a_child_that_failed_may_be_repeated_unless_it_undid_itself(
    database_url: str, on_failure: str, repeats: list[str]
) -> None:
    async with on(database_url) as engine:
        await engine.publish(child(fails=True, on_failure=on_failure))
        BROKEN.add("last")
        first = await engine.run(parent("child"), {}, check=False)
        assert first.state == "failed"
        looked = await engine.continuations.preview(first.run_id, "retry")
        assert looked["may_repeat"] == repeats


async def test_a_skipped_step_that_may_have_had_its_effect_is_not_taken_over(database_url: str) -> None:
    """The new run would own its undo, and its rollback would be called complete."""

    async with on(database_url) as engine:
        await engine.publish(child(fails=True))
        flow = sk.Workflow("repeated-skip")
        one = flow.workflow("one", "repeated-child", on_failure="skip")
        flow.step("last", last, after=one.allow("skipped"), retry=sk.Retry(max_attempts=1))
        BROKEN.add("last")
        first = (await engine.run(flow, {}, check=False)).run_id
        looked = await engine.continuations.preview(first, "retry")
        assert (looked["adopted"], looked["may_repeat"]) == ([], ["one"])
        assert looked["steps"][0]["reason"] == "in_doubt"
        looked = await engine.continuations.preview(first, "rerun", start="last")
        assert looked["adopted"] == ["one"]
