"""Child runs, end to end on both stores: a workflow that starts other workflows, and what flows down and up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import stepkeep
from stepkeep.kernel.definition import Definition, Handler, StepDefinition, SubWorkflow, Undo
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.rows import Child, ChildState
from stepkeep.kernel.machine.states import Category, OnFailure, RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.pipeline.expire import sweep_timers
from tests.suites import in_proof
from tests.workbench import SECOND, TENANT, Bench, on, task
from tests.worker.bed import PAST_THE_LEASE_US

ASYNC = Callable[[Bench], Awaitable[None]]


def call(name: str, order: int, workflow: str, after: tuple[str, ...] = (), **options: Any) -> StepDefinition:
    """A step that starts a run of another workflow."""
    child = SubWorkflow(
        workflow=workflow,
        version=options.pop("version", 0),
        deadline=options.pop("deadline", None),
        detached=options.pop("detached", UNSET),
    )
    plain = task(name, order, list(after))
    return replace(plain, executor=None, child=child, **options)


def flow(name: str, *steps: StepDefinition, **options: Any) -> Definition:
    return Definition(name=name, version=options.pop("version", 1), steps=steps, **options)


LEAF = flow("leaf", task("work", 0))
MIDDLE = flow("middle", call("inner", 0, "leaf"))


async def children(bench: Bench, run_id: str) -> list[Child]:
    return await bench.store.children.read_all(TENANT, run_id)


async def only_child(bench: Bench, run_id: str) -> Child:
    [child] = await children(bench, run_id)
    return child


async def look_after(bench: Bench) -> None:
    """Do what is due about children until nothing is."""
    sweep = ChildSweep(bench.transactor)
    while await sweep.sweep():
        pass
    sweep.close()


async def finish(bench: Bench) -> None:
    """Let everything happen that can: work, and what is due about children."""
    while True:
        await look_after(bench)
        if not await bench.work_off():
            return


async def test_a_child_runs_for_its_step_and_brings_its_output(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf"), task("after", 1, ["sub"])))
        assert await bench.step_states(run) == [StepState.AWAITING_CHILDREN, StepState.PENDING]
        assert (await only_child(bench, run)).state is ChildState.REQUESTED
        await look_after(bench)
        child = await only_child(bench, run)
        assert child.state is ChildState.STARTED
        [claim] = await bench.claim(1)
        assert claim.run_id == child.child_id
        await bench.report(claim, Completed(output=b'{"parcel":7}'))
        assert await bench.state(child.child_id) is RunState.SUCCEEDED
        assert await bench.state(run) is RunState.BLOCKED
        await look_after(bench)
        assert await bench.step_states(run) == [StepState.SUCCEEDED, StepState.READY]
        outputs = await bench.store.read_outputs([(TENANT, run, 0)])
        assert outputs[TENANT, run, 0] == b'{"parcel":7}'
        await finish(bench)
        assert await bench.state(run) is RunState.SUCCEEDED


async def test_a_tree_of_three_levels_ends_with_its_leaf(database_url: str) -> None:
    async with on(database_url) as bench:
        for one in (LEAF, MIDDLE):
            await bench.publish(one)
        run = await bench.start(flow("top", call("sub", 0, "middle")), correlation_id="order-7")
        await finish(bench)
        assert await bench.state(run) is RunState.SUCCEEDED
        middle = await only_child(bench, run)
        leaf = await only_child(bench, middle.child_id)
        assert (middle.workflow, leaf.workflow) == ("middle", "leaf")
        assert leaf.state is ChildState.ENDED
        for one in (middle, leaf):
            record = await bench.store.read_run(TENANT, one.child_id)
            assert record is not None
            assert record.details.correlation_id == "order-7"
            assert record.details.created_by == f"parent:{one.run_id}"
        assert await bench.store.children.read_link(TENANT, leaf.child_id) == leaf
        assert await bench.store.children.read_link(TENANT, run) is None


async def test_the_failure_of_a_child_fails_its_step_with_the_childs_words(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf"), task("after", 1, ["sub"])))
        await look_after(bench)
        [claim] = await bench.claim(1)
        await bench.report(claim, Failed(category=Category.VALIDATION, error="no such address", final=True))
        await look_after(bench)
        assert await bench.state(run) is RunState.FAILED
        [step, after] = await bench.store.read_steps(TENANT, run)
        assert step.state is StepState.FAILED
        assert step.category is Category.VALIDATION
        assert (step.error or "").endswith("has ended failed: no such address")
        assert after.state is StepState.CANCELLED


async def test_a_tolerated_child_is_skipped_and_its_run_goes_on(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf", on_failure=OnFailure.SKIP), task("other", 1)))
        await look_after(bench)
        for claim in await bench.claim(2):
            failed = Failed(category=Category.VALIDATION, error="no", final=True)
            await bench.report(claim, failed if claim.run_id != run else None)
        await finish(bench)
        assert await bench.state(run) is RunState.SUCCEEDED
        assert await bench.step_states(run) == [StepState.SKIPPED, StepState.SUCCEEDED]


async def test_a_cancel_before_the_start_keeps_the_child_from_ever_starting(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf")))
        await bench.cancel(run)
        assert await bench.state(run) is RunState.CANCELLED
        assert (await only_child(bench, run)).state is ChildState.WITHDRAWN
        await look_after(bench)
        child = await only_child(bench, run)
        assert await bench.store.read_run(TENANT, child.child_id) is None
        assert child.todo is None


async def test_a_cancel_flows_down_the_tree(database_url: str) -> None:
    async with on(database_url) as bench:
        for one in (LEAF, MIDDLE):
            await bench.publish(one)
        run = await bench.start(flow("top", call("sub", 0, "middle")))
        await look_after(bench)
        middle = await only_child(bench, run)
        leaf = await only_child(bench, middle.child_id)
        await bench.cancel(run)
        await look_after(bench)
        states = [await bench.state(one) for one in (run, middle.child_id, leaf.child_id)]
        assert states == [RunState.CANCELLED] * 3


async def test_a_parent_that_rolls_back_waits_for_its_live_child_to_undo_itself(database_url: str) -> None:
    async with on(database_url) as bench:
        undo = Undo(executor=Handler(name="noop"))
        await bench.publish(flow("leaf", task("first", 0, undo=undo), task("second", 1, ["first"])))
        steps = (call("sub", 0, "leaf"), task("beside", 1, on_failure=OnFailure.COMPENSATE))
        run = await bench.start(flow("parent", *steps, on_failure=OnFailure.COMPENSATE))
        await look_after(bench)
        child = await only_child(bench, run)
        claims = {claim.run_id: claim for claim in await bench.claim(2)}
        await bench.report(claims[child.child_id], Completed(output=b"1"))
        await bench.report(claims[run], Failed(category=Category.VALIDATION, error="no", final=True))
        assert await bench.state(run) is RunState.STOPPING
        assert (await bench.step_states(run))[0] is StepState.AWAITING_CHILDREN
        await finish(bench)
        assert await bench.state(child.child_id) is RunState.ROLLED_BACK
        assert await bench.state(run) is RunState.FAILED
        assert (await bench.step_states(run))[0] is StepState.CANCELLED


async def test_when_the_grace_period_ends_before_the_child_its_effect_is_in_doubt(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        undo = Undo(executor=Handler(name="noop"))
        steps = (
            call("sub", 0, "leaf", undo=undo),
            task("done", 1, undo=undo),
            task("beside", 2, ["done"], on_failure=OnFailure.COMPENSATE),
        )
        run = await bench.start(flow("parent", *steps, on_failure=OnFailure.COMPENSATE, grace=SECOND))
        await bench.report((await bench.claim(1))[0])
        await look_after(bench)
        claims = {claim.run_id: claim for claim in await bench.claim(2)}
        await bench.report(claims[run], Failed(category=Category.VALIDATION, error="no", final=True))
        bench.store.clock_offset = 2 * SECOND
        await sweep_timers(bench.transactor)
        [sub, *_] = await bench.store.read_steps(TENANT, run)
        assert sub.state is StepState.CANCELLED
        assert (sub.error or "").startswith("IN_DOUBT: its child run")
        await finish(bench)
        record = await bench.store.read_run(TENANT, run)
        assert record is not None
        assert (record.run.state, record.run.rollback) == (RunState.FAILED, "partial")


async def test_a_child_that_misses_its_deadline_is_called_back_and_its_step_fails(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf", deadline=SECOND)))
        await look_after(bench)
        bench.store.clock_offset = 2 * SECOND
        await sweep_timers(bench.transactor)
        [step] = await bench.store.read_steps(TENANT, run)
        assert (step.state, step.category) == (StepState.FAILED, Category.TIMEOUT)
        await look_after(bench)
        assert await bench.state((await only_child(bench, run)).child_id) is RunState.CANCELLED


async def test_a_detached_child_is_not_waited_for_and_outlives_its_parent(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf", detached=True)))
        assert await bench.state(run) is RunState.SUCCEEDED
        await look_after(bench)
        child = await only_child(bench, run)
        outputs = await bench.store.read_outputs([(TENANT, run, 0)])
        assert outputs[TENANT, run, 0] == f'{{"run_id":"{child.child_id}"}}'.encode()
        await finish(bench)
        assert await bench.state(child.child_id) is RunState.SUCCEEDED
        assert (await only_child(bench, run)).state is ChildState.ENDED


async def test_two_sweeps_at_once_start_one_child_and_tell_its_end_once(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf")))
        sweeps = [ChildSweep(bench.transactor) for _ in range(3)]
        await asyncio.gather(*(one.sweep() for one in sweeps))
        assert await bench.work_off() == 1
        await asyncio.gather(*(one.sweep() for one in sweeps))
        assert await bench.state(run) is RunState.SUCCEEDED
        causes = [entry.body.count(b'"child_ended"') for entry in await bench.store.read_journal(TENANT, run)]
        assert sum(causes) == 1


async def test_inputs_that_the_child_refuses_fail_the_step_before_any_run_exists(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(replace(LEAF, input_fields=("address",)))
        run = await bench.start(flow("parent", call("sub", 0, "leaf", inputs={"other": 1})))
        await look_after(bench)
        child = await only_child(bench, run)
        assert child.state is ChildState.REFUSED
        [step] = await bench.store.read_steps(TENANT, run)
        assert (step.state, step.category) == (StepState.FAILED, Category.VALIDATION)
        assert "was not started" in (step.error or "")
        assert await bench.store.read_run(TENANT, child.child_id) is None


async def test_the_version_of_a_child_is_pinned_when_its_parent_is_published(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        parent = flow("parent", call("sub", 0, "leaf"))
        plan = await bench.publish(parent)
        await bench.publish(replace(LEAF, version=2))
        assert (await bench.publish(parent)).digest == plan.digest, "a published version keeps its pins"
        later = await bench.publish(replace(parent, version=2))
        assert [one.steps[0].definition.child.version for one in (plan, later)] == [1, 2]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("step", "problem", "words"),
    [
        (call("sub", 0, "nothing"), NotFound, "starts the workflow nothing, which is not published"),
        (call("sub", 0, "leaf", version=9), NotFound, "version 9 of leaf"),
        (call("sub", 0, "parent"), InvalidInput, "starts parent itself"),
    ],
)
async def test_a_workflow_that_is_unknown_or_contains_itself_is_refused(
    database_url: str, step: StepDefinition, problem: type[Exception], words: str
) -> None:
    async with on(database_url) as bench:
        await bench.publish(LEAF)
        with pytest.raises(problem, match=words):
            await bench.publish(flow("parent", step))


async def test_a_tree_that_is_too_deep_or_too_large_is_refused(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.publish(flow("g0", task("work", 0)))
        for depth in range(1, 8):
            await bench.publish(flow(f"g{depth}", call("sub", 0, f"g{depth - 1}")))
        with pytest.raises(InvalidInput, match="9 generations; at most 8"):
            await bench.publish(flow("g8", call("sub", 0, "g7")))
        await bench.publish(flow("wide", *(call(f"c{no}", no, "g0") for no in range(99))))
        with pytest.raises(InvalidInput, match="1001 runs; at most 1000"):
            await bench.publish(flow("wider", *(call(f"c{no}", no, "wide") for no in range(10))))


async def test_a_child_is_kept_while_its_parent_lives(database_url: str) -> None:
    async with on(database_url) as bench:
        from stepkeep.store.records import FinishedFilter

        await bench.publish(LEAF)
        run = await bench.start(flow("parent", call("sub", 0, "leaf"), task("after", 1, ["sub"])))
        await look_after(bench)
        await bench.report((await bench.claim(1))[0])
        everything = FinishedFilter(tenant=TENANT, limit=10)
        assert await bench.store.find_finished(everything) == []
        await finish(bench)
        child = await only_child(bench, run)
        assert sorted(await bench.store.find_finished(everything)) == sorted([run, child.child_id])


async def test_what_is_below_an_adopted_step_is_kept_while_the_adopting_run_lives(database_url: str) -> None:
    """A retry that rolls back past an adopted child rolls that child back, and the children of that child."""

    async with on(database_url) as bench:
        from stepkeep.kernel.composition.continuation import ContinuationKind
        from stepkeep.operations.continuation.going_on import ContinuationOptions, continue_run
        from stepkeep.operations.pipeline.start import Starter
        from stepkeep.store.records import FinishedFilter

        for one in (LEAF, MIDDLE):
            await bench.publish(one)
        run = await bench.start(flow("top", call("sub", 0, "middle"), task("after", 1, ["sub"])))
        for _ in range(4):
            await look_after(bench)
            for claim in await bench.claim(5):
                bad = Failed(category=Category.VALIDATION, error="no", final=True)
                await bench.report(claim, bad if claim.run_id == run else None)
        middle = await only_child(bench, run)
        leaf = await only_child(bench, middle.child_id)
        everything = FinishedFilter(tenant=TENANT, limit=10)
        three = [run, middle.child_id, leaf.child_id]
        assert sorted(await bench.store.find_finished(everything)) == sorted(three)
        wanted = ContinuationOptions(how=ContinuationKind.RETRY)
        started = await continue_run(
            bench.transactor, Starter(bench.transactor), run, wanted, caller=Caller(TENANT, "ann")
        )
        assert await bench.store.find_finished(everything) in ([], [run]), "the run itself is kept when it is deleted"
        assert await bench.store.find_finished(replace(everything, workflow="leaf")) == []
        assert await bench.store.delete_runs(TENANT, three) == []
        await finish(bench)
        assert await bench.state(started.run_id) is RunState.SUCCEEDED
        assert sorted(await bench.store.delete_runs(TENANT, three)) == sorted(three)


DIALECTS = ("native", "ioa", "run", "linear", "action", "workstream")


def certified(database_url: str, *runs: str) -> None:
    """Each run is certified in every dialect."""
    with stepkeep.open(database_url) as engine:
        for run in runs:
            certificate = engine.certify(run)
            assert certificate.ok, certificate.page()


async def test_parents_and_children_are_certified_however_they_end(database_url: str) -> None:
    undo = Undo(executor=Handler(name="noop"))

    async with on(database_url) as bench:
        await bench.publish(flow("leaf", task("first", 0, undo=undo), task("second", 1, ["first"])))
        steps = (call("sub", 0, "leaf", deadline=60 * SECOND), task("beside", 1), task("after", 2, ["sub", "beside"]))
        parent = await bench.publish(flow("parent", *steps, on_failure=OnFailure.COMPENSATE, grace=SECOND))
        detached = await bench.publish(flow("fire", call("sub", 0, "leaf", detached=True), task("after", 1, ["sub"])))
        tolerant = await bench.publish(flow("calm", call("sub", 0, "leaf", on_failure=OnFailure.SKIP)))
        runs: list[str] = []

        async def begun(plan: Plan) -> tuple[str, str]:
            run = (await bench.begin(plan)).run_id
            await look_after(bench)
            child = await only_child(bench, run)
            runs.extend([run, child.child_id])
            return run, child.child_id

        bad = Failed(category=Category.VALIDATION, error="no", final=True)
        for plan in (parent, detached, tolerant):
            await begun(plan)
            await finish(bench)
        for plan in (parent, tolerant):
            _, child = await begun(plan)
            for claim in await bench.claim(5):
                await bench.report(claim, bad if claim.run_id == child else None)
            await finish(bench)
        run, child = await begun(parent)
        claims = {claim.run_id: claim for claim in await bench.claim(5)}
        await bench.report(claims[child], None)
        await bench.report(claims[run], bad)
        await finish(bench)
        run, child = await begun(parent)
        await bench.cancel(run)
        await finish(bench)
        run, child = await begun(parent)
        await bench.cancel(run, compensate=True)
        await finish(bench)
        for offset, plan in ((120, parent), (240, parent)):
            run, child = await begun(plan)
            if offset == 240:
                await bench.cancel(run, compensate=True)
            bench.store.clock_offset = offset * SECOND
            await sweep_timers(bench.transactor)
            await finish(bench)
    assert len(runs) == 20
    certified(database_url, *runs)


PROCESS = Path(__file__).with_name("children_process.py")


@pytest.mark.parametrize("step", [4, in_proof(1)])
async def test_a_tree_survives_workers_that_are_killed_after_their_commits(database_url: str, step: int) -> None:
    """kill -9 after the first commit of a worker, then after a later one, until one comes through."""

    async def begin(bench: Bench) -> str:
        for one in (LEAF, MIDDLE):
            await bench.publish(one)
        return await bench.start(flow("top", call("sub", 0, "middle"), task("last", 1, ["sub"])))

    async def look(bench: Bench) -> tuple[list[str], list[RunState]]:
        runs = [run]
        for one in runs:
            runs.extend(child.child_id for child in await children(bench, one))
        return runs, [await bench.state(one) for one in runs]

    async with on(database_url) as bench:
        run, killed = await begin(bench), 0
    for commits in range(1, 60, step):
        ahead = killed * PAST_THE_LEASE_US
        command = [sys.executable, str(PROCESS), database_url, run, str(commits), str(ahead)]
        ended = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
        assert ended.returncode in (0, -9), ended.stderr
        killed += ended.returncode == -9
        if ended.returncode == 0:
            break
    assert killed > 0
    async with on(database_url) as bench:
        runs, states = await look(bench)
    assert states == [RunState.SUCCEEDED] * 3
    certified(database_url, *runs)
