"""A parent that rolls back past a finished child rolls the child back: a run of its undo steps, on both stores."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.definition import (
    CompensateWhen,
    Definition,
    Effect,
    Handler,
    HookFailure,
    Map,
    Retry,
    StepDefinition,
    Undo,
    UndoChild,
)
from stepkeep.kernel.errors import Conflict
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.rows import Child
from stepkeep.kernel.machine.states import Category, OnFailure, Rollback, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.continuation.going_on import ContinuationOptions, continue_run
from stepkeep.operations.continuation.previewing import preview
from stepkeep.operations.pipeline.start import Starter
from tests.operations.test_children import PROCESS, call, certified, children, finish, flow, look_after
from tests.suites import in_proof
from tests.workbench import TENANT, Bench, on, task

HOOK = Undo(executor=Handler(name="noop"))
BACK = Undo(executor=UndoChild())
BAD = Failed(category=Category.VALIDATION, error="no", final=True)
LEAF = flow("leaf", task("first", 0, undo=HOOK), task("second", 1, ["first"], undo=HOOK))


def parent(*steps: StepDefinition, **options: Any) -> Definition:
    return flow("parent", *steps, **{"on_failure": OnFailure.COMPENSATE, **options})


def sub(workflow: str = "leaf", name: str = "sub", order: int = 0, **options: Any) -> StepDefinition:
    return call(name, order, workflow, effect=Effect.WRITE, undo=BACK, **options)


PARENT = parent(sub(), task("last", 1, ["sub"], on_failure=OnFailure.COMPENSATE))


async def names(bench: Bench, run: str) -> dict[str, StepState]:
    """The states of the steps of a run, by name."""
    record = await bench.store.read_run(TENANT, run)
    assert record is not None
    from stepkeep.operations.pipeline.plans import plan_for

    plan = await plan_for(bench.transactor, record.run)
    return {plan.at(step.no).name: step.state for step in await bench.store.read_steps(TENANT, run)}


async def ended(bench: Bench, run: str) -> tuple[RunState, Rollback]:
    record = await bench.store.read_run(TENANT, run)
    assert record is not None
    return record.run.state, record.run.rollback


async def links(bench: Bench, run: str) -> dict[str, Child]:
    """The children of a run by what they are: `first`, and `back` for the rollback of it."""
    return {"back" if link.undoes else "first": link for link in await children(bench, run)}


async def fail(bench: Bench, run: str, times: int = 1) -> None:
    """Work until a step of this run is claimed, and let that fail."""
    for _ in range(50):
        await look_after(bench)
        for claim in await bench.claim(10):
            await bench.report(claim, BAD if claim.run_id == run and times else Completed(output=b"1"))
            times -= claim.run_id == run
        if times <= 0:
            return
    raise AssertionError("nothing of the run was claimed")


async def rolled_back(bench: Bench, *definitions: Definition, given: bytes = b"{}") -> str:
    """A run of the last definition, whose last step fails after its child has succeeded."""
    for one in definitions[:-1]:
        await bench.publish(one)
    run = await bench.start(definitions[-1], given)
    await fail(bench, run)
    await finish(bench)
    return run


async def test_a_finished_child_is_rolled_back_by_its_own_hooks(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await rolled_back(bench, LEAF, PARENT)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        found = await links(bench, run)
        first, back = found["first"], found["back"]
        assert await ended(bench, first.child_id) == (RunState.SUCCEEDED, Rollback.NONE), "an end is never left"
        assert back.undoes == first.child_id
        assert await ended(bench, back.child_id) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        assert (await names(bench, run))["undo:sub"] is StepState.SUCCEEDED
        assert await names(bench, back.child_id) == dict.fromkeys(
            ("first", "second", "undo:first", "undo:second"), StepState.SUCCEEDED
        )
        rows = await bench.store.read_adoptions(TENANT, [first.child_id])
        assert {(row.run_id, row.source_step, bool(row.owned)) for row in rows} == {
            (back.child_id, "first", True),
            (back.child_id, "second", True),
        }
        return [run, first.child_id, back.child_id]

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_three_levels_are_undone_from_the_top_down(database_url: str) -> None:
    middle = flow("middle", sub(name="inner"), task("own", 1, ["inner"], undo=HOOK))
    top = parent(
        task("before", 0, undo=HOOK),
        sub("middle", order=1, after=("before",)),
        task("last", 2, ["sub"], on_failure=OnFailure.COMPENSATE),
    )

    async def body(bench: Bench) -> list[str]:
        for one in (LEAF, middle):
            await bench.publish(one)
        run = await bench.start(top)
        await fail(bench, run, times=0)
        for _ in range(6):
            await look_after(bench)
            for claim in await bench.claim(10):
                is_last = claim.run_id == run and claim.step.no == 2
                await bench.report(claim, BAD if is_last else Completed(output=b"1"))
        await finish(bench)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        runs = [run]
        for one in runs:
            runs.extend(link.child_id for link in await children(bench, one))
        assert len(runs) == 5
        backs = [link for one in runs for link in await children(bench, one) if link.undoes]
        assert [await ended(bench, link.child_id) for link in backs] == [(RunState.ROLLED_BACK, Rollback.COMPLETE)] * 2
        inner = next(link for link in backs if link.run_id == backs[0].child_id)
        assert inner.undoes in runs
        return runs

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize("hook_failure", HookFailure)
async def test_a_failed_undo_in_the_child_is_a_failed_undo_of_the_parent(
    database_url: str, hook_failure: HookFailure
) -> None:
    first = task("before", 0, undo=HOOK)
    top = parent(
        first,
        sub(order=1, after=("before",)),
        task("last", 2, ["sub"], on_failure=OnFailure.COMPENSATE),
        hook_failure=hook_failure,
    )

    async def body(bench: Bench) -> list[str]:
        await bench.publish(LEAF)
        run = await bench.start(top)
        for _ in range(5):
            await look_after(bench)
            for claim in await bench.claim(10):
                is_bad = (claim.run_id == run and claim.step.no == 2) or (claim.step.no == 3 and claim.run_id != run)
                await bench.report(claim, BAD if is_bad else Completed(output=b"1"))
        await finish(bench)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)
        found = await links(bench, run)
        assert await ended(bench, found["back"].child_id) == (RunState.FAILED, Rollback.PARTIAL)
        states = await names(bench, run)
        assert states["undo:sub"] is StepState.FAILED
        after = StepState.CANCELLED if hook_failure is HookFailure.STOP else StepState.SUCCEEDED
        assert states["undo:before"] is after
        return [run, found["first"].child_id, found["back"].child_id]

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize(
    ("leaf", "child", "whole"),
    [
        (flow("leaf", task("work", 0)), RunState.CANCELLED, True),
        (flow("leaf", task("work", 0, effect=Effect.WRITE)), RunState.CANCELLED, False),
        (flow("leaf", task("work", 0, effect=Effect.WRITE), task("more", 1, undo=HOOK)), RunState.FAILED, False),
    ],
    ids=["it only read", "it wrote and has no undo", "a part has no undo"],
)
async def test_what_a_child_cannot_undo_makes_the_rollback_of_its_parent_partial(
    database_url: str, leaf: Definition, child: RunState, whole: bool
) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await rolled_back(bench, leaf, PARENT)
        expected = (RunState.ROLLED_BACK, Rollback.COMPLETE) if whole else (RunState.FAILED, Rollback.PARTIAL)
        assert await ended(bench, run) == expected
        found = await links(bench, run)
        assert await bench.state(found["back"].child_id) is child
        return [run, found["first"].child_id, found["back"].child_id]

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_elements_and_tried_steps_of_a_child_are_undone_too(database_url: str) -> None:
    each = replace(task("each", 0, undo=HOOK), growth=Map(over="${{ input.list }}", max=5, in_flight=2, tolerate=1))
    tried = task("tried", 1, ["each"], undo=HOOK, on_failure=OnFailure.SKIP, compensate_when=CompensateWhen.ATTEMPTED)
    leaf = flow("leaf", each, tried, task("end", 2))
    top = parent(replace(sub(), inputs={"list": [1, 2, 3]}), task("last", 1, ["sub"], on_failure=OnFailure.COMPENSATE))

    async def body(bench: Bench) -> list[str]:
        await bench.publish(leaf)
        run = await bench.start(top)
        for _ in range(8):
            await look_after(bench)
            for claim in await bench.claim(10):
                is_bad = claim.step.no == 1
                await bench.report(claim, BAD if is_bad else Completed(output=b"1"))
        await finish(bench)
        found = await links(bench, run)
        assert await bench.state(found["first"].child_id) is RunState.SUCCEEDED
        states = await names(bench, found["back"].child_id)
        hooks = {name for name in states if name.startswith("undo:")}
        assert hooks == {"undo:each[0]", "undo:each[1]", "undo:each[2]", "undo:tried"}
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        return [run, found["first"].child_id, found["back"].child_id]

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_a_retry_rolls_back_the_child_of_the_earlier_run_once(database_url: str) -> None:
    """The first run fails and keeps its child; its retry adopts the child's step and owns its undo."""
    plain = parent(sub(), task("last", 1, ["sub"], on_failure=OnFailure.ABORT), on_failure=OnFailure.ABORT)

    async def body(bench: Bench) -> list[str]:
        run = await rolled_back(bench, LEAF, plain)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.NONE)
        first = (await links(bench, run))["first"].child_id
        wanted = ContinuationOptions(how=ContinuationKind.RETRY)
        again = await continue_run(
            bench.transactor, Starter(bench.transactor), run, wanted, caller=Caller(TENANT, "eva")
        )
        await bench.cancel(again.run_id, compensate=True)
        await finish(bench)
        assert await ended(bench, again.run_id) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        [back] = await children(bench, again.run_id)
        assert back.undoes == first
        told = await preview(bench.transactor, again.run_id, wanted, caller=Caller(TENANT, "eva"))
        assert {step["step"]: step["reason"] for step in told["steps"]}["sub"] == "undone"
        return [run, first, again.run_id, back.child_id]

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize("how", ContinuationKind)
async def test_nobody_goes_on_with_a_run_that_only_rolled_another_back(
    database_url: str, how: ContinuationKind
) -> None:
    if how is ContinuationKind.ROLLBACK:
        return

    async with on(database_url) as bench:
        top = parent(sub(), task("last", 1, ["sub"], on_failure=OnFailure.COMPENSATE), hook_failure=HookFailure.STOP)
        run = await rolled_back(bench, LEAF, top)
        back = (await links(bench, run))["back"].child_id
        wanted = ContinuationOptions(how=how, start=None if how is ContinuationKind.RETRY else "first")
        with pytest.raises(Conflict, match="nothing of it can be repeated"):
            await continue_run(bench.transactor, Starter(bench.transactor), back, wanted, caller=Caller(TENANT, "eva"))


async def test_what_a_withdrawn_version_did_is_still_undone(database_url: str) -> None:
    async def body(bench: Bench) -> tuple[str, str]:
        await bench.publish(LEAF)
        run = await bench.start(PARENT)
        await look_after(bench)
        for _ in range(2):
            for claim in await bench.claim(1):
                await bench.report(claim)
        await look_after(bench)
        return run, (await links(bench, run))["first"].child_id

    async with on(database_url) as bench:
        run, _ = await body(bench)
    with stepkeep.open(database_url) as engine:
        engine.versions.withdraw("leaf", 1, reason="it books twice")
    async with on(database_url) as bench:
        await bench.cancel(run, compensate=True)
        await finish(bench)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)


@pytest.mark.parametrize("step", [5, in_proof(1)])
@pytest.mark.proof
async def test_the_rollback_of_a_tree_survives_workers_that_are_killed(database_url: str, step: int) -> None:
    """kill -9 of a worker after the first commit, then after a later one, until one comes through."""
    hook = Undo(executor=Handler(name="noop"), retry=Retry(max_attempts=100, max_losses=100))
    leaf = flow("leaf", task("first", 0, undo=hook), task("second", 1, ["first"], undo=hook))
    middle = flow("middle", sub(name="inner"), task("own", 1, ["inner"], undo=hook))
    top = parent(sub("middle"), task("last", 1, ["sub"], on_failure=OnFailure.COMPENSATE))

    async def begin(bench: Bench) -> str:
        for one in (leaf, middle):
            await bench.publish(one)
        run = await bench.start(top)
        await fail(bench, run)
        assert await bench.state(run) is RunState.COMPENSATING
        return run

    async def look(bench: Bench) -> list[str]:
        runs = [run]
        for one in runs:
            runs.extend(child.child_id for child in await children(bench, one))
        found = [await bench.state(one) for one in runs]
        assert found[0] is RunState.ROLLED_BACK
        assert sorted(found[1:]) == ["rolled_back", "rolled_back", "succeeded", "succeeded"]
        return runs

    async with on(database_url) as bench:
        run, killed = await begin(bench), 0
    for commits in range(1, 60, step):
        command = [sys.executable, str(PROCESS), database_url, run, str(commits)]
        done = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
        assert done.returncode in (0, -9), done.stderr
        killed += done.returncode == -9
        if done.returncode == 0:
            break
    assert killed > 0
    async with on(database_url) as bench:
        certified(database_url, *await look(bench))
