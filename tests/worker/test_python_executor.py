"""Python handlers: how inputs become arguments, and where they run (faults B28, B33, B35, B40)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from tests.workbench import until
from tests.worker import process_handlers
from tests.worker.making import RUN, a_job, handler_job, is_gone, outcome_of, outcomes

from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.kernel.definition import Agent, Completion, Handler, Undo
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Released, Stopped, TimedOut, Waiting
from stepkeep.kernel.machine.rows import Note
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.payloads import Unstorable
from stepkeep.worker.attempts.results import token_digest
from stepkeep.worker.cancellation import Why
from stepkeep.worker.pools import processes
from stepkeep.worker.settings import Settings


def said(outcome: object) -> object:
    assert isinstance(outcome, Completed), outcome
    return None if outcome.output is None else msgspec.json.decode(outcome.output)


def failure(outcome: object) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome


# -- binding -----------------------------------------------------------------------------------------------------------
def test_inputs_are_passed_by_name_and_the_rest_is_left_out() -> None:
    async def handler(email: str, plan: str = "free") -> list[str]:
        return [email, plan]

    job = handler_job(handler, inputs="${{ input }}", given={"email": "a@b.c", "nobody": "asked"})
    assert said(outcome_of(job)) == ["a@b.c", "free"]


def test_a_first_parameter_named_ctx_gets_the_context_and_the_rest_goes_into_kwargs() -> None:
    def handler(ctx, a, **rest):
        return [ctx.run_id, ctx.workflow, ctx.version, a, rest]

    job = handler_job(handler, inputs={"a": 1, "b": 2, "c": 3})
    assert said(outcome_of(job)) == [RUN, "orders", 3, 1, {"b": 2, "c": 3}]


def test_a_value_that_is_no_object_goes_to_the_one_parameter() -> None:
    assert said(outcome_of(handler_job(lambda numbers: sum(numbers), inputs=[1, 2, 3]))) == 6


def test_a_step_without_with_is_given_the_runs_input() -> None:
    def handler(email):
        return email

    job = handler_job(handler, inputs="${{ input }}", given={"email": "a@b.c", "other": 1})
    assert said(outcome_of(job)) == "a@b.c"


@pytest.mark.parametrize(
    ("handler", "inputs", "text"),
    [
        (lambda email, name: None, "${{ input }}", "needs email, and its inputs have name"),
        (lambda email: None, None, "needs email, and its inputs have nothing"),
        (lambda a, b: None, [1], "was given a single value of type list"),
    ],
)
def test_inputs_that_do_not_fit_fail_for_good_and_say_which_parameter(handler, inputs, text) -> None:
    outcome = failure(outcome_of(handler_job(handler, inputs=inputs, given={"name": "Ada"})))
    assert (outcome.category, outcome.final) == (Category.VALIDATION, True)
    assert text in outcome.error


def test_a_type_error_inside_the_handler_is_not_mistaken_for_a_bad_binding() -> None:
    def handler(n):
        return n + "x"

    outcome = failure(outcome_of(handler_job(handler, inputs={"n": 1})))
    assert (outcome.category, outcome.final) == (Category.UNKNOWN, False)


def test_the_context_tells_the_attempt_the_keys_and_what_woke_it() -> None:
    seen = {}

    async def handler(ctx):
        seen.update(
            key=ctx.idempotency_key, attempt=ctx.attempt, input=ctx.input, corr=ctx.correlation_id,
            business=ctx.business_key, woken=ctx.woken_by, deadline_at=ctx.deadline_at, undoing=ctx.undoing,
        )  # fmt: skip

    woken = msgspec.Raw(b'{"message":{"id":"m1","name":"paid","payload":{"n":1}}}')
    job = handler_job(handler, given={"x": 1}, claim={"attempts": 2, "note": Note(woken_by=woken)})
    assert outcome_of(job) == Completed(output=b"null")
    woken_by = seen.pop("woken")
    assert (woken_by.id, woken_by.name, woken_by.payload, woken_by.timed_out) == ("m1", "paid", {"n": 1}, False)
    assert seen == {
        "key": f"{RUN}:charge", "attempt": 3, "input": {"x": 1}, "corr": "corr-1", "business": "order-7",
        "deadline_at": 301_000_000, "undoing": False,
    }  # fmt: skip


def test_a_deadline_that_woke_the_step_is_told_as_such() -> None:
    seen = []
    job = handler_job(
        lambda ctx: seen.append(ctx.woken_by.timed_out),
        claim={"note": Note(woken_by=msgspec.Raw(b'{"timeout":{"event":"paid"}}'))},
    )
    outcome_of(job)
    assert seen == [True]


def test_an_undo_hook_has_a_key_of_its_own_and_its_own_inputs() -> None:
    registry = Registry()
    registry.register(HandlerSpec(name="undo", function=lambda ctx, why: [ctx.idempotency_key, ctx.undoing, why]))
    undo = Undo(executor=Handler(name="undo"), inputs={"why": "rollback"})
    job = a_job(Handler(name="do"), registry, undo=undo, no=1)
    assert said(outcome_of(job)) == [f"{RUN}:charge:compensate", True, "rollback"]


def test_a_step_completed_by_hand_hands_out_a_token_and_stores_only_its_digest() -> None:
    seen = []
    job = handler_job(lambda ctx: seen.append(ctx.completion_token), completion=Completion.MANUAL)
    job.completion_token = "secret"
    outcome = outcome_of(job)
    assert isinstance(outcome, Completed)
    assert (seen, outcome.token) == (["secret"], token_digest("secret"))
    assert "secret" not in repr(outcome)


def test_an_agent_is_told_its_action_and_its_unknown_errors_are_agent_errors() -> None:
    async def agent(ctx, action, inputs):
        if inputs.get("fail"):
            raise ValueError("confused")
        return {"did": action, "with": inputs, "key": ctx.idempotency_key}

    registry = Registry()
    registry.register(HandlerSpec(name="pipeline", function=agent, kind="agent"))
    job = a_job(Agent(name="pipeline", action="load"), registry, inputs={"n": 1})
    assert said(outcome_of(job)) == {"did": "load", "with": {"n": 1}, "key": f"{RUN}:charge"}
    job = a_job(Agent(name="pipeline", action="load"), registry, inputs={"fail": True})
    assert failure(outcome_of(job)).category is Category.AGENT


# -- places ------------------------------------------------------------------------------------------------------------
async def test_async_handlers_share_one_loop_in_a_thread_that_is_not_the_workers() -> None:
    names = []

    async def handler() -> None:
        names.append((threading.current_thread().name, id(asyncio.get_running_loop())))

    await outcomes([handler_job(handler) for _ in range(5)])
    assert len(set(names)) == 1
    assert names[0][0] == "stepkeep-handlers"


async def test_blocking_handlers_run_side_by_side_in_threads() -> None:
    together = threading.Barrier(4, timeout=10)

    def handler() -> None:
        together.wait()

    results = await outcomes([handler_job(handler) for _ in range(4)])
    assert results == [Completed(output=b"null")] * 4


async def test_a_handler_that_blocks_its_loop_does_not_block_the_workers() -> None:
    started, release = threading.Event(), threading.Event()

    async def rude() -> bool:
        started.set()
        return release.wait(20)

    async def beats(runner: object) -> None:
        await asyncio.to_thread(started.wait, 10)
        for _ in range(20):
            await asyncio.sleep(0.001)
        release.set()

    assert await outcomes([handler_job(rude)], during=beats) == [Completed(output=b"true")], "it was released"


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError()])
async def test_whatever_a_handler_raises_ends_its_attempt_and_nothing_else(raised: BaseException) -> None:
    async def on_loop() -> None:
        raise raised

    def in_thread() -> None:
        raise raised

    async def fine() -> str:
        return "fine"

    found = await outcomes([handler_job(on_loop), handler_job(in_thread), handler_job(fine)])
    assert [isinstance(outcome, Failed) for outcome in found] == [True, True, False]
    assert isinstance(found[-1], Completed)


async def test_a_stopped_coroutine_is_cancelled() -> None:
    started = threading.Event()

    async def handler() -> None:
        started.set()
        await asyncio.sleep(3600)

    job = handler_job(handler)

    async def stop(runner) -> None:
        await asyncio.to_thread(started.wait, 10)
        job.cancelled.set(Why.TIMED_OUT)
        runner.stop(job)

    assert await outcomes([job], during=stop) == [TimedOut()]


async def test_a_handler_may_wait_for_its_cancellation_on_either_side() -> None:
    began = threading.Barrier(3)

    async def on_loop(ctx) -> None:
        await asyncio.to_thread(began.wait, 20)
        await ctx.cancelled
        ctx.check_cancelled()

    def in_thread(ctx) -> None:
        began.wait(20)
        assert ctx.cancelled.wait(20)
        ctx.check_cancelled()

    jobs = [handler_job(on_loop), handler_job(in_thread)]

    async def cancel(runner: object) -> None:
        await asyncio.to_thread(began.wait, 20)
        for job in jobs:
            job.cancelled.set(Why.RUN_STOPPING)

    assert await outcomes(jobs, during=cancel) == [Stopped(), Stopped()]


def test_outputs_that_were_not_loaded_are_fetched_when_asked_for() -> None:
    asked = []

    def handler(ctx):
        return [ctx.outputs["before"], ctx.outputs["before"]]

    job = handler_job(handler)
    job.prepared._upstream = ("before",)  # type: ignore[attr-defined]

    def fetch(job: object, name: str) -> bytes:
        asked.append(name)
        return b'{"n":1}'

    job.fetch = fetch
    assert said(outcome_of(job)) == [{"n": 1}, {"n": 1}]
    assert asked == ["before"]


def test_an_output_of_a_step_that_does_not_come_before_is_refused_by_name() -> None:
    outcome = failure(outcome_of(handler_job(lambda ctx: ctx.outputs["after"])))
    assert "after does not come before this step" in outcome.error


# -- processes ----------------------------------------------------------------------------------------------------
def process_job(function, **fields):
    return handler_job(function, mode="process", **fields)


async def test_a_process_computes_elsewhere_and_is_used_again() -> None:
    settings = Settings(concurrency=1)
    first, second = (
        said(outcome)
        for outcome in (
            await outcomes([process_job(process_handlers.double, inputs={"n": n}) for n in (1, 2)], settings)
        )
    )
    assert (first["twice"], second["twice"]) == (2, 4)
    assert first["pid"] == second["pid"] != os.getpid()


async def test_a_step_whose_process_cannot_be_had_is_handed_back_and_those_that_follow_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = processes.Child
    refusals = iter([True])

    def child(memory_limit: int | None) -> processes.Child:
        if next(refusals, False):
            raise BlockingIOError("no more processes")
        return made(memory_limit)

    monkeypatch.setattr(processes, "Child", child)

    first, second = await outcomes(
        [process_job(process_handlers.double, inputs={"n": n}) for n in (1, 2)], Settings(concurrency=1)
    )
    assert first == Released()
    assert "stops claiming steps that run in processes: no process can be started" in caplog.text
    assert "no more processes" in caplog.text
    assert isinstance(second, Completed)


def test_a_process_has_the_context_and_its_costs_and_events_come_back() -> None:
    job = process_job(process_handlers.about, inputs={"a": 1}, given={"i": 2}, claim={"attempts": 1})
    assert outcome_of(job) == Completed(
        output=msgspec.json.encode([RUN, "charge", 2, f"{RUN}:charge", {"i": 2}]),
        cost=b'{"tokens":3}',
        emit=(Emitted("seen", b'{"a":1}'),),
    )


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (process_handlers.die_by_signal, "killed:9"),
        (process_handlers.leave, "exited:3"),
        (process_handlers.exit_politely, "SystemExit: 4"),
    ],
)
async def test_a_process_that_dies_takes_only_its_attempt_with_it(function, text: str) -> None:
    dying, fine = process_job(function), process_job(process_handlers.double, inputs={"n": 1})
    dead, alive = await outcomes([dying, fine], Settings(concurrency=1))
    assert text in failure(dead).error
    assert failure(dead).category is Category.UNKNOWN
    assert isinstance(alive, Completed)


def test_categories_and_waits_cross_from_the_process() -> None:
    assert failure(outcome_of(process_job(process_handlers.complain))).category is Category.AUTH
    assert isinstance(outcome_of(process_job(process_handlers.wait)), Waiting)
    assert "cannot be stored" in failure(outcome_of(process_job(process_handlers.unsendable))).error


def test_a_process_cannot_take_more_memory_than_it_was_allowed() -> None:
    outcome = outcome_of(process_job(process_handlers.eat_memory), Settings(process_memory_bytes=1024**3))
    assert "MemoryError" in failure(outcome).error


async def test_a_stopped_process_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    marker = tmp_path / "pids"
    job = process_job(process_handlers.never_end, inputs={"marker": str(marker)})

    async def kill(runner) -> None:
        await until(lambda: marker.exists() and bool(marker.read_text()))
        job.cancelled.set(Why.TIMED_OUT)
        runner.stop(job)

    assert await outcomes([job], during=kill) == [TimedOut()]
    for pid in marker.read_text().split():
        assert is_gone(int(pid))


async def test_a_process_hears_that_its_run_is_stopping(tmp_path: Path) -> None:
    marker = tmp_path / "started"
    job = process_job(process_handlers.wait_for_cancel, inputs={"marker": str(marker)})

    async def cancel(runner: object) -> None:
        await until(marker.exists)
        job.cancelled.set(Why.RUN_STOPPING)

    assert await outcomes([job], during=cancel) == [Stopped()]


def test_a_handler_that_no_other_process_could_find_is_refused() -> None:
    def local() -> None: ...

    outcome = failure(outcome_of(process_job(local)))
    assert outcome.final
    assert "top level of a module" in outcome.error


def test_a_process_finds_handlers_of_a_file_that_was_loaded_as_an_app(tmp_path: Path) -> None:
    app = tmp_path / "json.py"  # a name that another module has already
    app.write_text("def tell():\n    return 'from the file'\n")
    module = load_app(str(app))
    assert said(outcome_of(process_job(module.tell))) == "from the file"


def test_a_process_finds_handlers_of_the_main_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "def tell():\n"
        "    return __name__\n"
        "if __name__ == '__main__':\n"
        "    from tests.worker.making import handler_job, outcome_of\n"
        "    print(outcome_of(handler_job(tell, mode='process')).output.decode())\n"
    )
    root = str(Path(__file__).parents[2])
    found = subprocess.run([sys.executable, script], env={**os.environ, "PYTHONPATH": root}, capture_output=True)
    assert found.stdout.decode().strip() == '"__stepkeep_main__"', found.stderr.decode()


async def test_a_handlers_process_ends_when_its_worker_is_killed(tmp_path: Path) -> None:
    marker = tmp_path / "pids"
    code = (
        "import asyncio\n"
        "from tests.worker import process_handlers\n"
        "from tests.worker.making import handler_job, outcomes\n"
        f"job = handler_job(process_handlers.never_end, mode='process', inputs={{'marker': {str(marker)!r}}})\n"
        "asyncio.run(outcomes([job]))\n"
    )
    root = str(Path(__file__).parents[2])
    worker = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root})
    await until(lambda: marker.exists() and bool(marker.read_text()))
    worker.kill()
    worker.wait()
    assert is_gone(int(marker.read_text().split()[0]))
    os.kill(int(marker.read_text().split()[1]), signal.SIGKILL)


# -- surprises ---------------------------------------------------------------------------------------------------------
def test_an_exception_that_nothing_explains_leaves_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def looks_up() -> object:
        return {}["email"]

    async def awaits() -> object:
        return looks_up()

    for handler in (looks_up, awaits):
        caplog.clear()
        outcome_of(handler_job(handler, inputs={}))
        [record] = caplog.records
        assert (record.name, record.levelname) == ("stepkeep.handler", "WARNING")
        assert re.fullmatch(rf"attempt 1 of step \S+ of run {RUN} raised KeyError", record.getMessage())
        # Text already: a formatter that is handed the exception would run its code.
        assert record.exc_info is None
        assert record.exc_text is not None
        assert re.findall(r'File "(.+)", line \d+, in (\w+)', record.exc_text)[-1] == (__file__, "looks_up")
        assert set(re.findall(r'File "(.+)",', record.exc_text)) == {__file__}
        assert record.exc_text.endswith("KeyError: 'email'")


@pytest.mark.parametrize(
    "problem",
    [StepError("told so", category="auth"), ConnectionError("refused"), TimeoutError("slow"), Unstorable("x")],
)
def test_what_explains_itself_leaves_no_traceback(problem: Exception, caplog: pytest.LogCaptureFixture) -> None:
    def handler() -> None:
        raise problem

    failure(outcome_of(handler_job(handler, inputs={})))
    assert not caplog.records
