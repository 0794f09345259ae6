"""A run that ends early ends its handlers in other processes too, long before their leases need a renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import stepkeep as sk
from stepkeep.kernel.decide.stopping import is_in_doubt
from stepkeep.kernel.definition import Command, CompensateWhen, Definition, Effect, Handler, Retry, Undo
from stepkeep.kernel.machine.events import CancelRequested
from stepkeep.kernel.machine.states import RUN_TERMINAL, AttemptState, OnFailure, RunState, StepState
from tests.processes import Fleet
from tests.store.raw import raw_of
from tests.suites import first_on, in_proof
from tests.workbench import SECOND, TENANT, Bench, benches, eventually, task

LEASE = 600 * SECOND
"""Renewed after 200 s: a renewal that nothing asked for comes too late for every test here."""

"""The bench holds the engine to one second; a loaded machine gets a few more here."""

KINDS = ("coroutine", "process", "command")
SLEEP = 'echo $$ >> "$MARKS/begun-command"; exec sleep 120'

Trigger = Callable[[Bench, Fleet, str], Awaitable[None]]


def sleepers(marks: Path, *, fails: bool = False, **options: object) -> Definition:
    """One step of each kind that can be cancelled, and perhaps one that fails when told."""
    long = {"timeout": 600 * SECOND}
    command = Command(argv=("sh", "-c", SLEEP), env={"MARKS": str(marks)})
    steps = [
        task("coroutine", executor=Handler(name="sleep-coroutine"), **long),
        task("process", executor=Handler(name="sleep-process"), **long),
        task("command", executor=command, **long),
    ]
    if fails:
        steps.append(task("fails", executor=Handler(name="fail-when-told"), retry=Retry(max_attempts=1), **long))
    return Definition(name="sleepers", version=1, steps=tuple(steps), lease=LEASE, **options)


async def cancel(bench: Bench, workers: Fleet, run_id: str) -> None:
    await bench.transactor.submit(CancelRequested(tenant=TENANT, run_id=run_id, actor="ada"))


async def cancel_and_undo(bench: Bench, workers: Fleet, run_id: str) -> None:
    await bench.transactor.submit(CancelRequested(tenant=TENANT, run_id=run_id, actor="ada", compensate=True))


async def fail(bench: Bench, workers: Fleet, run_id: str) -> None:
    workers.allow("may-fail")


async def time_out(bench: Bench, workers: Fleet, run_id: str) -> None:
    """The run's own timeout does it; the rows say that it is due now."""
    await raw_of(workers.url).execute(f"update runs set due_at = {await bench.store.now()}")


@pytest.mark.parametrize(
    ("trigger", "options", "state"),
    [
        (cancel, {}, RunState.CANCELLED),
        in_proof(cancel_and_undo, {}, RunState.CANCELLED),
        (fail, {"fails": True}, RunState.FAILED),
        in_proof(time_out, {"timeout": 600 * SECOND}, RunState.FAILED),
    ],
    ids=["cancel", "cancel-and-undo", "fail-fast", "timeout"],
)
@first_on("postgres")
async def test_handlers_in_another_process_end_with_their_run(
    database_url: str, tmp_path: Path, trigger: Trigger, options: dict[str, object], state: RunState
) -> None:
    async with benches(database_url) as (bench,):
        with Fleet(database_url, tmp_path) as workers:
            worker = workers.launch()

            async def up() -> bool:
                return workers.marked("up") == 1

            async def begun() -> bool:
                return all(workers.marked(f"begun-{kind}") for kind in KINDS)

            async def over() -> bool:
                gone = not any(is_alive(workers, kind) for kind in ("process", "command"))
                return gone and workers.marked("ended-coroutine") == 1

            async def settled() -> bool:
                return await bench.state(run_id) in RUN_TERMINAL

            await eventually(up, "the worker to come up")
            run_id = await bench.start(sleepers(workers.marks, **options))
            await eventually(begun, "all three handlers to begin")
            await trigger(bench, workers, run_id)
            await eventually(over, "all three handlers to end")
            await eventually(settled, "the run to end")
            assert worker.poll() is None
        assert await bench.state(run_id) is state
        assert (await bench.step_states(run_id)).count(StepState.CANCELLED) == len(KINDS)


def is_alive(workers: Fleet, kind: str) -> bool:
    """Whether the process that left this mark still runs."""
    pid = int((workers.marks / f"begun-{kind}").read_text(encoding="utf-8").split()[0])
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"


@first_on("postgres")
async def test_a_thread_that_outlives_the_grace_period_is_in_doubt_and_undone_where_an_attempt_counts(
    database_url: str, tmp_path: Path
) -> None:
    """003 §1.3: the effect of a blocking handler may come after its run has stopped; it leaves a trace."""

    async with benches(database_url) as (bench,):
        with Fleet(database_url, tmp_path) as workers:
            run_id = await bench.start(blocking_and_failing(grace=SECOND))
            workers.launch()

            async def begun() -> bool:
                return workers.marked(f"begun-{run_id}") == 1

            async def settled() -> bool:
                return await bench.state(run_id) in RUN_TERMINAL

            await eventually(begun, "the blocking handler to begin")
            workers.allow("may-fail")
            await eventually(settled, "the run to end without it")
            assert workers.marked("undone") == 1
            assert workers.marked(f"ended-{run_id}") == 0
            workers.allow("may-end")
        blocking = (await bench.store.read_steps(TENANT, run_id))[0]
        [attempt] = [each for each in await bench.store.read_attempts(TENANT, run_id) if each.no == 0]
        assert (blocking.state, attempt.state) == (StepState.CANCELLED, AttemptState.CANCELLED)
        assert is_in_doubt(blocking.error)
        assert is_in_doubt(attempt.error)


@first_on("sqlite")
async def test_a_thread_that_ends_within_the_grace_period_is_believed(database_url: str, tmp_path: Path) -> None:
    async with benches(database_url) as (bench,):
        with Fleet(database_url, tmp_path) as workers:
            run_id = await bench.start(blocking_and_failing(grace=120 * SECOND))
            workers.launch()

            async def begun() -> bool:
                return workers.marked(f"begun-{run_id}") == 1

            async def stopping() -> bool:
                return await bench.state(run_id) is RunState.STOPPING

            async def settled() -> bool:
                return await bench.state(run_id) in RUN_TERMINAL

            await eventually(begun, "the blocking handler to begin")
            workers.allow("may-fail")
            await eventually(stopping, "the run to begin to stop")
            workers.allow("may-end")
            await eventually(settled, "the run to end")
        blocking = (await bench.store.read_steps(TENANT, run_id))[0]
        assert blocking.state is StepState.SUCCEEDED
        assert await bench.state(run_id) is RunState.ROLLED_BACK


def blocking_and_failing(*, grace: int) -> Definition:
    undo = Undo(executor=Handler(name="undo"))
    blocking = task(
        "blocking",
        executor=Handler(name="linger-thread"),
        timeout=600 * SECOND,
        undo=undo,
        compensate_when=CompensateWhen.ATTEMPTED,
    )
    fails = task(
        "fails",
        executor=Handler(name="fail-when-told"),
        timeout=600 * SECOND,
        effect=Effect.READ,
        retry=Retry(max_attempts=1),
        on_failure=OnFailure.COMPENSATE,
    )
    return Definition(name="blocking", version=1, steps=(blocking, fails), lease=LEASE, grace=grace)


ENDED: list[str] = []


@sk.step
async def sleep_long(seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        ENDED.append("cancelled")
        raise
    ENDED.append("slept")


def test_engine_run_returns_as_soon_as_the_timeout_of_its_run_has_passed(database_url: str) -> None:
    """000 §3.4, review D3: a handler that sleeps an hour does not keep the caller beyond the run's timeout."""
    ENDED.clear()
    workflow = sk.Workflow("sleeper", timeout="1s")
    workflow.step("sleep", sleep_long, inputs={"seconds": 3600.0}, timeout="2h")
    with sk.open(database_url, auto_migrate=True) as engine:
        run = engine.run(workflow, input={})
        assert (run.state, ENDED) == ("failed", ["cancelled"])
