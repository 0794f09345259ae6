"""Whatever a handler does, its attempt ends with an outcome that says so, and its slot comes back."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.workbench import eventually, until
from tests.worker import process_handlers
from tests.worker.bed import QUICK, On, step
from tests.worker.hostile import UNPRINTABLE, UNSTORABLE, OddResponse, OddStepError, SaysNothing, SpoiltStepError
from tests.worker.making import handler_job, is_gone, outcome_of, outcomes

from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.definition import Retry
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, Released, Stopped, TimedOut, Waiting
from stepkeep.kernel.machine.states import Category, ErrorClass, RunState, StepState
from stepkeep.worker import forks
from stepkeep.worker.answers import StepError, WaitFor, fail, retry_in
from stepkeep.worker.attempts.classify import failure_of
from stepkeep.worker.attempts.results import outcome_of_return
from stepkeep.worker.attempts.unexpected import MAX_TRACEBACK, traceback_text
from stepkeep.worker.context import Context
from stepkeep.worker.pools import child, processes
from stepkeep.worker.pools import loop as handlers_loop
from stepkeep.worker.settings import Settings

ONCE = {"retry": Retry(max_attempts=1)}


async def honest() -> int:
    return 1


def failure(outcome: object) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


# -- exceptions --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("which", range(len(UNPRINTABLE)))  # by number: pytest cannot name them
@pytest.mark.parametrize("mode", ["async", "thread"])
def test_an_exception_that_cannot_be_read_fails_its_attempt_by_the_name_of_its_type(which: int, mode: str) -> None:
    problem = UNPRINTABLE[which]()

    async def on_the_loop() -> None:
        raise problem

    def in_a_thread() -> None:
        raise problem

    found = failure(outcome_of(handler_job(on_the_loop if mode == "async" else in_a_thread)))
    assert found.category is Category.UNKNOWN
    assert found.error.startswith(type_name(problem))
    assert len(found.error) <= 4_000
    assert len(traceback_text(problem)) < MAX_TRACEBACK + 100


def test_an_exception_that_cannot_be_read_fails_its_attempt_in_a_process_too() -> None:
    found = failure(outcome_of(handler_job(process_handlers.raise_unprintable, mode="process")))
    assert (found.category, found.error) == (Category.UNKNOWN, "Unprintable (its message cannot be read)")


def test_a_status_is_believed_even_where_the_headers_cannot_be_read() -> None:
    assert failure_of(OddResponse()) == Failed(
        category=Category.TRANSIENT, error="OddResponse", error_class=ErrorClass.SERVER_ERROR
    )


def test_a_step_error_that_lost_its_fields_still_fails_and_says_which() -> None:
    assert failure_of(OddStepError()) == Failed(
        category=Category.UNKNOWN, error="odd (the category and final of this OddStepError cannot be used)"
    )
    spoilt = SpoiltStepError("x")
    spoilt.delay = 1.5  # type: ignore[assignment]
    found = failure_of(spoilt)
    assert (found.category, found.delay, found.final) == (Category.UNKNOWN, None, False)
    assert "the category and delay of this SpoiltStepError cannot be used" in found.error


def test_a_log_handler_that_raises_does_not_change_what_becomes_of_an_attempt() -> None:
    class Spoilt(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit

    def handler() -> None:
        raise ValueError("odd")

    spoilt = Spoilt()
    logging.getLogger("stepkeep.handler").addHandler(spoilt)
    try:
        assert failure(outcome_of(handler_job(handler))).error == "ValueError: odd"
    finally:
        logging.getLogger("stepkeep.handler").removeHandler(spoilt)


async def test_runs_with_unprintable_exceptions_end_at_once_and_give_their_slots_back(on_each: On) -> None:
    async def unprintable() -> None:
        raise SaysNothing("x")

    async with on_each() as bed:
        bed.handler("unprintable", unprintable)
        bed.handler("honest", honest)
        wrong = [await bed.start(step("unprintable", timeout=600_000_000, **ONCE), name=f"wrong-{n}") for n in range(4)]
        right = await bed.start(step("honest"), name="right")
        small = replace(QUICK, concurrency=2, threads=1)
        assert await bed.finish(*wrong, right, settings=small) is RunState.FAILED
        assert (await bed.run(right)).state is RunState.SUCCEEDED
        for run_id in wrong:
            [attempt] = await bed.attempts(run_id)
            assert (attempt.category, attempt.error) == ("unknown", "SaysNothing (its message cannot be read)")


# -- results -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("which", range(len(UNSTORABLE)))
def test_a_result_that_cannot_be_stored_fails_its_attempt_for_good(which: int) -> None:
    found = failure(outcome_of_return(UNSTORABLE[which](), None))
    assert (found.category, found.final) == (Category.VALIDATION, True)
    assert found.error.startswith("the result cannot be stored: ")


@pytest.mark.parametrize(
    "returned",
    [
        Completed(output="text"),  # type: ignore[arg-type]
        Completed(output=b"{}"),
        Failed(error=5, category="x"),  # type: ignore[arg-type]
        Waiting(event=5),  # type: ignore[arg-type]
        Released(),
        Stopped(),
    ],
)
def test_a_handler_cannot_return_an_outcome_of_the_engine(returned: Outcome) -> None:
    async def handler() -> Outcome:
        return returned

    found = failure(outcome_of(handler_job(handler)))
    assert (found.category, found.final) == (Category.VALIDATION, True)
    assert f"{type(returned).__name__} is a record of the engine" in found.error


def test_an_outcome_from_a_process_is_refused_in_the_same_words() -> None:
    found = failure(outcome_of(handler_job(process_handlers.return_an_outcome, mode="process")))
    assert "Completed is a record of the engine" in found.error


@pytest.mark.parametrize(
    "wait",
    [WaitFor(event="x", timeout="soon"), WaitFor(event="x", takes_timeouts=5)],  # type: ignore[arg-type]
)
def test_a_wait_whose_fields_have_other_types_fails_its_attempt(wait: WaitFor) -> None:
    found = failure(outcome_of_return(wait, None))
    assert found.category is Category.VALIDATION
    assert "what the handler answered cannot be stored" in found.error


def test_a_cost_that_cannot_be_stored_leaves_the_one_before() -> None:
    context = Context(run_id="r", workflow="w", version=1, step="s")
    context.cost(usd=2)
    for wrong in (float("nan"), 1e999, "much", object()):
        with pytest.raises((ValueError, TypeError, InvalidInput)):
            context.cost(usd=wrong)  # type: ignore[arg-type]
    assert outcome_of_return(1, context) == Completed(output=b"1", cost=b'{"usd":2}')


# -- constructors ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make",
    [
        lambda: StepError("x", delay="soon"),  # type: ignore[arg-type]
        lambda: StepError("x", delay=1.5),  # type: ignore[arg-type]
        lambda: StepError("x", delay=True),
        lambda: StepError("x", delay=10**30),
        lambda: StepError("x", delay=-1),
        lambda: StepError("x", final="yes"),  # type: ignore[arg-type]
        lambda: StepError("x", category=5),  # type: ignore[arg-type]
        lambda: StepError("x", category=None),  # type: ignore[arg-type]
        lambda: StepError(5),  # type: ignore[arg-type]
        lambda: fail(None),  # type: ignore[arg-type]
        lambda: retry_in(1.5),  # type: ignore[arg-type]
        lambda: retry_in("1s", 5),  # type: ignore[arg-type]
    ],
)
def test_an_error_with_a_field_of_the_wrong_type_is_refused_where_it_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_an_error_made_of_an_unprintable_one_is_named_by_its_type() -> None:
    assert str(StepError(SaysNothing())) == "SaysNothing (its message cannot be read)"
    assert str(pickle.loads(pickle.dumps(StepError("x", delay=1)))) == "x"


@pytest.mark.parametrize("delay", ["soon", 1.5, 10**30])
async def test_a_wrong_delay_fails_the_step_in_clear_words_and_loses_no_lease(on_each: On, delay: Any) -> None:
    async def made() -> None:
        raise StepError("x", delay=delay)

    async def spoilt() -> None:
        error = StepError("x")
        error.delay = delay
        raise error

    async with on_each() as bed:
        bed.handler("made", made)
        bed.handler("spoilt", spoilt)
        runs = [await bed.start(step(name, **ONCE), name=name) for name in ("made", "spoilt")]
        assert await bed.finish(*runs) is RunState.FAILED
        [first], [second] = [await bed.attempts(run_id) for run_id in runs]
        assert first.error is not None
        assert first.error.startswith("StepError: delay is ")
        assert second.error == "x (the delay of this StepError cannot be used)"
        assert {first.state, second.state} == {"failed"}


async def test_a_failure_that_cannot_be_recorded_is_replaced_by_one_that_can(on_each: On) -> None:
    async with on_each() as bed:

        async def wrong() -> None:
            raise ValueError("cursed")

        bed.handler("wrong", wrong)
        run_id, real = await bed.start(step("wrong", **ONCE)), bed.transactor.report

        async def report(events: Any, claimer: Any) -> Any:
            if any(getattr(event.outcome, "error", "") == "ValueError: cursed" for event in events):
                raise InvalidInput("no row can hold this")
            return await real(events, claimer)

        bed.transactor.report = report  # type: ignore[method-assign]
        assert await bed.finish(run_id) is RunState.FAILED
        [attempt] = await bed.attempts(run_id)
        said = "what the handler answered cannot be recorded: InvalidInput: no row can hold this"
        assert (attempt.state, attempt.error) == ("failed", said)


# -- the handlers' loop ------------------------------------------------------------------------------------------------
async def stop_the_loop() -> str:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return "went on"


async def exit_in_a_task() -> None:
    async def leave() -> None:
        raise SystemExit(5)

    await asyncio.create_task(leave())


async def exit_in_a_callback() -> str:
    asyncio.get_running_loop().call_soon(sys.exit, 5)
    await asyncio.sleep(0)
    return "went on"


@pytest.mark.parametrize("misdeed", [stop_the_loop, exit_in_a_task, exit_in_a_callback])
async def test_a_handler_that_ends_the_loop_takes_no_other_attempt_with_it(misdeed: Any, on_each: On) -> None:
    began, over = threading.Event(), threading.Event()

    async def patient() -> str:
        began.set()
        await until(over.is_set)
        return "still here"

    async def after_the_other() -> object:
        await until(began.is_set)
        return await misdeed()

    async with on_each() as bed:
        bed.handler("misdeed", after_the_other)
        bed.handler("patient", patient)
        bed.handler("honest", honest)
        wrong = [await bed.start(step("misdeed", **ONCE), name=f"wrong-{n}") for n in range(3)]
        right = await bed.start(step("patient"), name="right")
        later = await bed.start(step("honest", "patient"), step("patient"), name="later")

        async def all_ended() -> bool:
            if await bed.ended(*wrong)():
                over.set()
            return await bed.ended(right, later)()

        async with asyncio.timeout(60):
            await bed.worker().run_until(all_ended)
        assert (await bed.run(right)).state is RunState.SUCCEEDED
        assert (await bed.run(later)).state is RunState.SUCCEEDED
        state = RunState.FAILED if misdeed is exit_in_a_task else RunState.SUCCEEDED
        assert {(await bed.run(run_id)).state for run_id in wrong} == {state}


async def test_a_loop_that_broke_fails_what_ran_on_it_and_another_one_runs_the_rest(
    on_each: On, caplog: pytest.LogCaptureFixture
) -> None:
    async def close_the_selector() -> None:
        loop: Any = asyncio.get_running_loop()
        os.close(loop._selector.fileno())
        await asyncio.sleep(60)

    async with on_each() as bed:
        bed.handler("wrong", close_the_selector)
        bed.handler("honest", honest)
        wrong = await bed.start(step("wrong", **ONCE), name="wrong")
        assert await bed.finish(wrong) is RunState.FAILED
        [attempt] = await bed.attempts(wrong)
        assert attempt.error is not None
        assert attempt.error.startswith("the handlers' event loop broke while this attempt ran: OSError: ")

        again = [await bed.start(step("wrong", **ONCE), name="again"), await bed.start(step("honest"), name="honest")]
        assert await bed.finish(again[1], again[0]) in (RunState.SUCCEEDED, RunState.FAILED)
        last = await bed.start(step("honest"), name="last")
        assert await bed.finish(last) is RunState.SUCCEEDED
    assert "the handlers' event loop broke" in caplog.text


async def test_a_handler_that_cancels_every_task_loses_no_job() -> None:
    async def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    found = await outcomes([handler_job(cancel_all), *(handler_job(honest) for _ in range(5))])
    assert isinstance(found[0], Completed)
    assert all("cancelled" in failure(outcome).error for outcome in found[1:])


async def test_a_worker_claims_nothing_for_a_blocked_loop_and_reports_the_timeouts_on_it(
    on_store: On, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handlers_loop, "BLOCKED_SECONDS", 0.2)
    free = threading.Event()

    async def blocks() -> int:
        free.wait(60)
        return 1

    async with on_store() as bed:
        bed.handler("blocks", blocks)
        bed.handler("honest", honest)
        bed.handler("threaded", lambda: 2)
        blocked = await bed.start(step("blocks", timeout=1_000_000, **ONCE), name="blocked")
        worker = bed.worker()
        serving = asyncio.create_task(worker.serve())
        await until(lambda: "stops claiming async, HTTP and command steps" in caplog.text)
        assert "test_misdeeds.py" in caplog.text

        waiting = await bed.start(step("honest"), name="waiting")
        threaded = await bed.start(step("threaded"), name="threaded")
        await eventually(bed.ended(threaded, blocked))
        assert (await bed.run(threaded)).state is RunState.SUCCEEDED
        assert (await bed.attempts(blocked))[0].state == "timed_out"
        assert (await bed.steps(waiting))[0].state is StepState.READY
        assert await bed.attempts(waiting) == []

        free.set()
        await eventually(bed.ended(waiting))
        assert (await bed.run(waiting)).state is RunState.SUCCEEDED
        assert "claims async, HTTP and command steps again" in caplog.text
        worker.stop()
        await serving


# -- threads -----------------------------------------------------------------------------------------------------------
def kill_thread(thread: threading.Thread) -> None:
    assert thread.ident is not None
    # A thread that has just ended is not found: nothing is left to kill.
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)) <= 1


async def test_a_thread_that_is_killed_while_it_waits_is_replaced_and_loses_no_job() -> None:
    """One place with one thread: whatever the exception strikes, every job has an outcome."""
    threads: list[threading.Thread] = []

    def note() -> int:
        threads.append(threading.current_thread())
        return 1

    async def kill_now_and_then(runner: object) -> None:
        await until(lambda: bool(threads))
        for _ in range(100):
            if threads[-1].is_alive():
                kill_thread(threads[-1])
            await asyncio.sleep(0)

    jobs = [handler_job(note) for _ in range(400)]
    found = await outcomes(jobs, Settings(concurrency=1), during=kill_now_and_then)
    assert len(found) == 400
    assert all(isinstance(outcome, Completed | Failed) for outcome in found)
    assert sum(isinstance(outcome, Completed) for outcome in found) > 100


async def test_a_killed_thread_gives_its_slot_back(on_store: On) -> None:
    def kill_myself_later() -> int:
        me = threading.current_thread()
        threading.Timer(0.02, kill_thread, (me,)).start()
        return 1

    async with on_store() as bed:
        bed.handler("late", kill_myself_later)
        bed.handler("honest", lambda: 2)
        small = replace(QUICK, concurrency=1)
        worker = bed.worker(small)
        serving = asyncio.create_task(worker.serve())
        for n in range(5):
            run_id = await bed.start(step("late", **ONCE), name=f"late-{n}")
            await eventually(bed.ended(run_id))
            await asyncio.sleep(0.05)
            run_id = await bed.start(step("honest", **ONCE), name=f"honest-{n}")
            await eventually(bed.ended(run_id))
        worker.stop()
        await serving


async def test_steps_are_handed_back_where_no_thread_can_be_started(
    on_store: On, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name.startswith("stepkeep-thread"):
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async with on_store() as bed:
        bed.handler("threaded", lambda: 2)
        bed.handler("honest", honest)
        stuck = await bed.start(step("threaded"), name="stuck")
        worker = bed.worker()
        serving = asyncio.create_task(worker.serve())
        await until(lambda: "stops claiming steps that run in threads: no thread can be started" in caplog.text)
        right = await bed.start(step("honest"), name="right")
        await eventually(bed.ended(right))
        await until(lambda: worker.held == 0)
        await eventually(bed.step_is(stuck, 0, StepState.READY))
        assert (await bed.steps(stuck))[0].attempts == 0
        worker.stop()
        await serving


# -- processes ---------------------------------------------------------------------------------------------------------
async def test_a_worker_stops_claiming_process_steps_when_its_processes_do_not_start(
    on_each: On, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(processes, "_START", "raise SystemExit(3)")

    async with on_each() as bed:
        bed.handler("process", process_handlers.double, mode="process")
        bed.handler("honest", honest)
        stuck = await bed.start(step("process", inputs={"n": 1}), name="stuck")
        worker = bed.worker()
        serving = asyncio.create_task(worker.serve())
        await until(lambda: "stops claiming steps that run in processes" in caplog.text)
        right = await bed.start(step("honest"), name="right")
        await eventually(bed.ended(right))
        await until(lambda: worker.held == 0)
        await eventually(bed.step_is(stuck, 0, StepState.READY))
        assert (await bed.steps(stuck))[0].attempts == 0
        worker.stop()
        await serving


async def test_a_process_handler_that_forks_never_answers_for_another_run() -> None:
    async def in_turn() -> list[Outcome]:
        jobs = []
        for n in range(4):
            jobs.append(handler_job(process_handlers.fork_and_both_return, mode="process"))
            jobs.append(handler_job(process_handlers.double_slowly, mode="process", inputs={"n": n}))
        return await outcomes(jobs, Settings(concurrency=1))

    found = await in_turn()
    said = [msgspec.json.decode(outcome.output) for outcome in found if isinstance(outcome, Completed)]  # type: ignore[arg-type]
    assert said == [answer for n in range(4) for answer in ({"who": "original"}, {"twice": 2 * n})]


async def test_an_answer_to_another_task_is_dropped() -> None:
    async def in_turn() -> list[Outcome]:
        jobs = [handler_job(process_handlers.answer_twice, mode="process", inputs={"n": n}) for n in range(4)]
        return await outcomes(jobs, Settings(concurrency=1))

    assert await in_turn() == [Completed(output=b'{"twice":%d}' % (2 * n)) for n in range(4)]


def test_a_copy_of_a_process_keeps_no_end_of_the_line(tmp_path: Path) -> None:
    """Else the worker would not hear that the process itself has died."""
    marker = tmp_path / "copy"
    found = failure(
        outcome_of(handler_job(process_handlers.fork_and_hold_on, mode="process", inputs={"marker": str(marker)}))
    )
    assert found.error.startswith("killed:9")
    assert is_gone(int(marker.read_text()))


@pytest.mark.parametrize(
    "sent", [b"", b"\xc1", b"garbage", msgspec.msgpack.encode([1, "Completed", {"output": "text"}])]
)
def test_what_is_no_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError, match="no answer"):
        child.unpack(sent)


def test_outcomes_travel_between_processes_as_they_are() -> None:
    for outcome in (Completed(output=b"1", cost=b"{}"), Failed(category=Category.AUTH, error="x", delay=5), TimedOut()):
        assert child.unpack(child.pack(7, outcome)) == (7, outcome)


# -- forks in the worker's own process ---------------------------------------------------------------------------------
def fork_and_return() -> int:
    copy = os.fork()
    if copy == 0:
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])


async def fork_on_the_loop() -> int:
    return fork_and_return()


async def fork_and_wait_on_the_loop() -> int:
    copy = os.fork()
    if copy == 0:
        await asyncio.sleep(0.01)
        return -1
    return await asyncio.to_thread(lambda: os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))


@pytest.mark.parametrize("handler", [fork_and_return, fork_on_the_loop, fork_and_wait_on_the_loop])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_copy_of_the_worker_ends_where_its_handler_returns(handler: Any, on_each: On) -> None:
    async with on_each() as bed:
        bed.handler("fork", handler)
        runs = [await bed.start(step("fork", **ONCE), name=f"fork-{n}") for n in range(3)]
        assert await bed.finish(*runs) is RunState.SUCCEEDED
        assert [await bed.output(run_id, 0) for run_id in runs] == [forks.COPY_STATUS] * 3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
async def test_a_copy_that_does_not_return_obeys_a_signal_that_the_worker_does_not_hear(on_store: On) -> None:
    def fork_and_kill() -> int:
        copy = os.fork()
        if copy == 0:
            signal.pause()
            time.sleep(600)
        time.sleep(0.2)
        os.kill(copy, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])

    async with on_store() as bed:
        bed.handler("fork", fork_and_kill)
        bed.handler("honest", honest)
        worker = bed.worker()
        serving = asyncio.create_task(worker.serve(signals=True))
        for name in ("fork", "honest"):
            run_id = await bed.start(step(name, **ONCE), name=name)
            await eventually(bed.ended(run_id))
            assert await bed.output(run_id, 0) == (-signal.SIGTERM if name == "fork" else 1)
        assert not serving.done()
        worker.stop()
        await serving


# -- what stands between a claim and its report ------------------------------------------------------------------------
async def test_a_callback_on_cancellation_that_raises_does_not_reach_the_worker(on_store: On) -> None:
    async def patient(ctx: Context) -> None:
        ctx.cancelled.add_callback(sys.exit)
        await asyncio.sleep(60)

    async with on_store() as bed:
        bed.handler("patient", patient)
        bed.handler("honest", honest)
        late = [await bed.start(step("patient", timeout=100_000, **ONCE), name=f"late-{n}") for n in range(3)]
        right = await bed.start(step("honest"), name="right")
        assert await bed.finish(right, *late) is RunState.SUCCEEDED
        assert {(await bed.attempts(run_id))[0].state for run_id in late} == {"timed_out"}


async def test_a_step_whose_input_cannot_be_read_fails_and_its_neighbours_run(on_each: On) -> None:
    async def takes(ctx: Context) -> Any:
        return ctx.input

    async with on_each() as bed:
        bed.handler("takes", takes)
        runs = [await bed.start(step("takes", **ONCE), name=f"takes-{n}", given=n) for n in range(4)]
        store: Any = bed.store
        real = store.read_details

        async def read_details(keys: Any) -> Any:
            if any(run_id == runs[1] for _, run_id in keys):
                raise ValueError("a damaged row")
            return await real(keys)

        store.read_details = read_details
        await bed.finish(*runs)
        assert [(await bed.run(run_id)).state for run_id in runs] == ["succeeded", "failed", "succeeded", "succeeded"]
        [attempt] = await bed.attempts(runs[1])
        said = "what this attempt needs cannot be read from the database: ValueError: a damaged row"
        assert attempt.error == said
