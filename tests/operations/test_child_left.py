"""What a child did that did not succeed: the step says so, and a rollback is complete only if nothing remains."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.conformance.tree import TreeRun, judge_tree
from stepkeep.kernel.definition import Definition, Dependency, Effect
from stepkeep.kernel.machine.states import OnFailure, Rollback, RunState, StepState
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.operations.test_child_maps import BAD, tree
from tests.operations.test_child_rollback import BACK, HOOK, ended, names
from tests.operations.test_children import call, certified, children, finish, flow, look_after
from tests.workbench import SECOND, TENANT, Bench, on, task

S = StepState
LATE = "IN_DOUBT: its child run had not ended when the deadline passed; it may have had its effect"


def leaf(on_failure: OnFailure, **first: Any) -> Definition:
    """Two steps: the first has an effect, the second fails."""
    work = task("work", 0, **{"undo": HOOK, **first})
    return flow("leaf", work, task("then", 1, ["work"], on_failure=on_failure), on_failure=on_failure)


def parent(**options: Any) -> Definition:
    """A step with an undo, then a child."""
    options = {"undo": BACK, "on_failure": OnFailure.COMPENSATE, **options}
    first, second = task("first", 0, undo=HOOK), call("sub", 1, "leaf", ("first",), **options)
    return flow("parent", first, second, on_failure=OnFailure.COMPENSATE, grace=5 * SECOND)


async def begun(bench: Bench, below: Definition, above: Definition) -> str:
    """The parent with its child, whose first step is done."""
    await bench.publish(below)
    run = await bench.start(above)
    for _ in range(2):
        await look_after(bench)
        [claim] = await bench.claim(1)
        await bench.report(claim)
    await look_after(bench)
    return run


async def error_of(bench: Bench, run: str, no: int = 1) -> str | None:
    return next(row.error for row in await bench.store.read_steps(TENANT, run) if row.no == no)


async def test_a_child_that_is_late_is_in_doubt_and_a_rollback_is_partial(database_url: str) -> None:
    async with on(database_url) as bench:
        run = await begun(bench, leaf(OnFailure.COMPENSATE), parent(deadline=10 * SECOND))
        [held] = await bench.claim(1)
        bench.store.clock_offset += 11 * SECOND
        await sweep_timers(bench.transactor)
        assert (await names(bench, run))["sub"] is S.FAILED
        assert await error_of(bench, run) == LATE
        await look_after(bench)
        await bench.report(held)
        await finish(bench)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)
        runs = await tree(bench, run)
    certified(database_url, *runs)
    with sk.open(database_url) as engine:
        [sub] = [step for step in engine.show(runs[0])["steps"] if step["name"] == "sub"]
        assert sub["in_doubt"] is True


async def test_a_late_child_that_only_reads_leaves_nothing_in_doubt(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        above = parent(deadline=10 * SECOND, undo=None, effect=Effect.READ)
        run = await begun(bench, leaf(OnFailure.COMPENSATE), above)
        bench.store.clock_offset += 11 * SECOND
        await sweep_timers(bench.transactor)
        await finish(bench)
        assert await ended(bench, run) == (RunState.ROLLED_BACK, Rollback.COMPLETE)
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize(
    ("below", "remains"),
    [
        (leaf(OnFailure.ABORT), True),
        (leaf(OnFailure.COMPENSATE), False),
        (leaf(OnFailure.COMPENSATE, undo=None, effect=Effect.IRREVERSIBLE), True),
        (leaf(OnFailure.ABORT, undo=None, effect=Effect.READ), False),
    ],
    ids=["not undone", "undone", "cannot be undone", "only reads"],
)
async def test_a_rollback_is_complete_only_if_a_failed_child_left_nothing(
    database_url: str, below: Definition, remains: bool
) -> None:
    async def body(bench: Bench) -> list[str]:
        run = await begun(bench, below, parent())
        [claim] = await bench.claim(1)
        await bench.report(claim, BAD)
        await finish(bench)
        wanted = (RunState.FAILED, Rollback.PARTIAL) if remains else (RunState.ROLLED_BACK, Rollback.COMPLETE)
        assert await ended(bench, run) == wanted
        error = await error_of(bench, run) or ""
        assert error.startswith("EFFECTS_LEFT: child run " if remains else "child run "), error
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


@pytest.mark.parametrize("can_undo", [True, False])
async def test_a_child_that_is_called_back_says_what_it_could_not_undo(database_url: str, can_undo: bool) -> None:
    async def body(bench: Bench) -> list[str]:
        first = {} if can_undo else {"undo": None, "effect": Effect.IRREVERSIBLE}
        run = await begun(bench, leaf(OnFailure.COMPENSATE, **first), parent())
        await bench.cancel(run, compensate=True)
        await finish(bench)
        wanted = (RunState.ROLLED_BACK, Rollback.COMPLETE) if can_undo else (RunState.FAILED, Rollback.PARTIAL)
        assert await ended(bench, run) == wanted
        assert (await names(bench, run))["sub"] is S.CANCELLED
        error = await error_of(bench, run)
        assert error is None if can_undo else (error or "").startswith("EFFECTS_LEFT: child run ")
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_what_a_grandchild_left_is_told_up_to_the_top(database_url: str) -> None:
    async def body(bench: Bench) -> list[str]:
        await bench.publish(leaf(OnFailure.ABORT))
        await bench.publish(flow("middle", call("inner", 0, "leaf", undo=BACK)))
        first = task("first", 0, undo=HOOK)
        second = call("sub", 1, "middle", ("first",), undo=BACK, on_failure=OnFailure.COMPENSATE)
        run = await bench.start(flow("parent", first, second, on_failure=OnFailure.COMPENSATE))
        for outcome in (None, None, BAD):
            await look_after(bench)
            [claim] = await bench.claim(1)
            await bench.report(claim, outcome)
        await finish(bench)
        assert await ended(bench, run) == (RunState.FAILED, Rollback.PARTIAL)
        [middle] = await children(bench, run)
        for one, no in ((middle.child_id, 0), (run, 1)):
            assert (await error_of(bench, one, no) or "").startswith("EFFECTS_LEFT: child run ")
        return await tree(bench, run)

    async with on(database_url) as bench:
        certified(database_url, *await body(bench))


async def test_the_preview_of_a_rollback_names_the_child_that_left_something(database_url: str) -> None:
    async with on(database_url) as bench:
        above = parent(on_failure=OnFailure.SKIP)
        after = replace(task("after", 2), depends_on=(Dependency(step="sub", allow=(S.SUCCEEDED, S.SKIPPED)),))
        run = await begun(bench, leaf(OnFailure.ABORT), replace(above, steps=(*above.steps, after)))
        [claim] = await bench.claim(1)
        await bench.report(claim, BAD)
        await look_after(bench)
    with sk.open(database_url) as engine:
        found = engine.rollback_preview(run)
    assert [(one["step"], one["reason"]) for one in found["cannot_undo"]] == [("sub", "child")]


def test_a_parent_that_does_not_hear_of_a_partial_rollback_is_found() -> None:
    """The judge of a tree compares what the parent heard with how the journal of its child ends."""

    def line(kind: str, **told: Any) -> dict[str, Any]:
        metadata = {name: told.pop(name) for name in ("actor", "event", "detail", "at") if name in told}
        return {"event_type": kind, "metadata": metadata, **told}

    heard = {"step": "sub", "child": "c", "state": "failed"}
    logs = {
        "p": [line("step_state_transition", event="child_ended", detail=heard, to_state="failed", at=5)],
        "c": [
            line("run_state_transition", actor="parent:p", to_state="idle", at=1),
            line("run_state_transition", trigger="undo_failed", to_state="failed", at=4),
        ],
    }
    one = TreeRun(run="c", parent="p", step="sub", state="failed", head="", entries=2, ok=True, findings=0)
    [finding] = judge_tree([one], logs, []).findings
    assert "does not hear that something of what it did remains" in finding.message
    heard["partial"] = True
    assert judge_tree([one], logs, []).ok
