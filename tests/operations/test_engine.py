"""The engine as a host program holds it: odd values, odd names, several threads, Ctrl-C, nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine, Engine
from stepkeep.kernel.errors import InvalidInput, NotFound, StoreUnavailable
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.pipeline.payloads import INLINE_INPUT_BYTES

ODD_IDS = ["nope", "a\x00b", "\ud800", "x" * 5000, "", 5, None, "01A1E12C-57D6-75BF-ABBA-E99E88C4E41F"]


def greet() -> str:
    return "hello"


def workflow(name: str = "odd", handler: Callable[..., Any] = greet) -> tuple[sk.Workflow, Registry]:
    registry = Registry()
    registry.register(HandlerSpec(name=f"{name}.handler", function=handler))
    made = sk.Workflow(name, version=1)
    made.step("only", f"{name}.handler")
    return made, registry


def deep(levels: int) -> list[Any]:
    outermost: list[Any] = []
    inner = outermost
    for _ in range(levels):
        inner.append([])
        inner = inner[0]
    return outermost


def test_what_no_run_is_called_is_not_found_by_anything(database_url: str) -> None:
    with sk.open(database_url) as engine:
        ways: list[Callable[[Any], Any]] = [
            engine.show,
            engine.result,
            engine.log,
            engine.work_on,
            engine.start_idle,
            engine.approve,
            engine.reject,
            engine.cancel,
            engine.rerun,
            lambda run_id: engine.complete(run_id, "only", token="t"),
            lambda run_id: engine.approve(run_id, "only"),
        ]
        for run_id in [*ODD_IDS, "01a1e12c-57d6-75bf-abba-e99e88c4e41f"]:
            for way in ways:
                with pytest.raises(NotFound):
                    way(run_id)
            # Without a run id, a message must name a key.
            with pytest.raises(InvalidInput if run_id is None else NotFound):
                engine.send(run_id, "name")


def test_values_that_cannot_be_stored_are_refused_before_anything_happens(database_url: str) -> None:
    made, registry = workflow()
    with sk.open(database_url, registry=registry) as engine:
        run_id = engine.start(made, start_now=False).run_id
        for odd in (float("nan"), float("inf"), "a\x00b", "\ud800", deep(100_000), 10**5000, {1: 2}, object()):
            for refused in (
                lambda odd=odd: engine.start(made, {"value": odd}),
                lambda odd=odd: engine.start(made, odd),
                lambda odd=odd: engine.start(made, labels={"label": odd}),
                lambda odd=odd: engine.start(made, labels=[odd]),
                lambda odd=odd: engine.start(made, priority=odd),
                lambda odd=odd: engine.start(made, idempotency_key=odd),
                lambda odd=odd: engine.start(made, business_key=odd),
                lambda odd=odd: engine.start(made, correlation_id=odd),
                lambda odd=odd: engine.start(odd),
                lambda odd=odd: engine.send(run_id, odd),
                lambda odd=odd: engine.send(run_id, "name", odd),
                lambda odd=odd: engine.send(run_id, "name", message_id=odd),
                lambda odd=odd: engine.complete(run_id, "only", token=odd),
                lambda odd=odd: engine.complete(run_id, "only", token="t", notes=odd),
                lambda odd=odd: engine.complete(run_id, "only", token="t", evidence=[odd]),
                lambda odd=odd: engine.complete(run_id, "only", token="t", outcome=odd),
                lambda odd=odd: engine.approve(run_id, comment=odd),
                lambda odd=odd: engine.reject(run_id, comment=odd),
                lambda odd=odd: engine.cancel(run_id, reason=odd),
                lambda odd=odd: engine.runs(workflow=odd),
                lambda odd=odd: engine.runs(limit=odd),
            ):
                with pytest.raises(InvalidInput):
                    refused()
        assert [run["id"] for run in engine.runs()["runs"]] == [run_id]
        assert engine.show(run_id)["run"]["state"] == "idle"


def test_an_input_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(database_url: str) -> None:
    made, registry = workflow()
    with sk.open(database_url, registry=registry, max_payload_bytes=INLINE_INPUT_BYTES) as engine:
        just = "x" * (INLINE_INPUT_BYTES - 2)
        run_id = engine.start(made, just).run_id
        assert engine.show(run_id)["run"]["input"] == just
        with pytest.raises(InvalidInput, match="at most 1048576 fit"):
            engine.start(made, just + "x")


@pytest.mark.parametrize("odd", ["", "a\x00b", "\ud800", "x" * 300])
def test_a_tenant_or_actor_that_cannot_be_stored_opens_nothing(tmp_path: object, odd: str) -> None:
    with pytest.raises(InvalidInput, match="the tenant"):
        AsyncEngine(f"sqlite:///{tmp_path}/x.db", tenant=odd)
    if odd:
        with pytest.raises(InvalidInput, match="the actor"):
            AsyncEngine(f"sqlite:///{tmp_path}/x.db", actor=odd)


def test_many_threads_may_use_one_engine(database_url: str) -> None:
    made, registry = workflow()
    results: list[Any] = []
    with sk.open(database_url, registry=registry) as engine:
        threads = [threading.Thread(target=lambda: results.append(engine.run(made).output)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == ["hello"] * 6


def test_ctrl_c_hands_back_what_was_running_and_leaves_no_thread_behind(tmp_path: object) -> None:
    before = set(threading.enumerate())

    async def endless() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(600)

    made, registry = workflow("endless", endless)
    url = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(KeyboardInterrupt), sk.open(url, registry=registry) as engine:
        engine.run(made)
    assert set(threading.enumerate()) == before
    with sk.open(url, registry=registry) as engine:
        [run] = engine.runs()["runs"]
        [step] = engine.show(run["id"])["steps"]
        assert (step["state"], step["attempts"]) == ("ready", 0)


def test_whoever_waits_in_another_thread_hears_that_the_engine_was_closed(tmp_path: object) -> None:
    begun = threading.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(600)

    made, registry = workflow("endless", endless)
    heard: list[BaseException] = []

    def work(engine: Engine) -> None:
        try:
            engine.run(made)
        except StoreUnavailable as problem:
            heard.append(problem)

    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        waiting = threading.Thread(target=work, args=(engine,))
        waiting.start()
        assert begun.wait(30)
    waiting.join(30)
    assert "closed" in str(heard[0])


def test_an_engine_needs_no_with_and_says_when_it_is_closed(tmp_path: object) -> None:
    before = set(threading.enumerate())
    engine = sk.open(f"sqlite:///{tmp_path}/x.db")
    assert set(threading.enumerate()) == before, "opening starts nothing: a program may fork first"
    assert engine.runs()["runs"] == []
    engine.close()
    engine.close()
    assert set(threading.enumerate()) == before
    with pytest.raises(StoreUnavailable, match="closed"):
        engine.runs()


def test_a_program_that_leaves_its_engine_open_ends_and_its_worker_hands_back(tmp_path: object) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEFT_OPEN, f"sqlite:///{tmp_path}/x.db"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    with sk.open(f"sqlite:///{tmp_path}/x.db") as engine:
        [run] = engine.runs()["runs"]
        [step] = engine.show(run["id"])["steps"]
        assert (step["state"], step["attempts"]) == ("ready", 0)


LEFT_OPEN = """
import asyncio, sys, threading
import stepkeep as sk
import stepkeep.engine.engine

stepkeep.engine.engine.GRACE_AT_EXIT_SECONDS = 0.1
begun = threading.Event()

@sk.step
async def endless():
    begun.set()
    await asyncio.sleep(600)

flow = sk.Workflow("left-open")
flow.step("only", endless)
engine = sk.open(sys.argv[1])
engine.start_worker()
engine.start(flow)
assert begun.wait(60)
"""


def test_an_engine_that_is_dropped_says_so_and_ends_its_thread(tmp_path: object) -> None:
    before = set(threading.enumerate())
    engine = sk.open(f"sqlite:///{tmp_path}/x.db")
    engine.runs()
    held = [engine]
    del engine
    with pytest.warns(ResourceWarning, match="never closed"):
        held.clear()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert set(threading.enumerate()) == before


def test_an_engine_may_be_opened_again_but_not_twice(tmp_path: object) -> None:
    engine = sk.open(f"sqlite:///{tmp_path}/x.db")
    with engine:
        with pytest.raises(InvalidInput, match="open already"), engine:
            pass
        assert engine.runs()["runs"] == []
    with engine:
        assert engine.runs()["runs"] == []


async def test_an_engine_opens_works_and_closes_inside_a_running_loop(database_url: str) -> None:
    made, registry = workflow()
    before = set(threading.enumerate())

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an event loop that is not closed says so when it is collected
        with sk.open(database_url, registry=registry) as engine:
            assert (engine.run(made).output) == "hello"
        gc.collect()
    assert set(threading.enumerate()) == before


def test_a_callback_that_stops_the_loop_or_the_program_leaves_the_engine_usable(tmp_path: object) -> None:
    made, registry = workflow()

    def ends_the_program(_: object) -> None:
        raise SystemExit(7)

    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        engine.run(made)
        with pytest.raises(SystemExit):
            engine.prune(archive=None, keep=0, told=ends_the_program)
        engine.prune(archive=None, keep=0, told=lambda _: asyncio.get_running_loop().stop())
        assert engine.run(made).output == "hello"


def test_calls_that_race_with_the_end_of_the_engine_are_all_answered(tmp_path: object) -> None:
    answered: list[bool] = []
    for _ in range(20):
        engine = sk.open(f"sqlite:///{tmp_path}/x.db")
        begun = threading.Barrier(5)

        def hammer(engine: Engine = engine, begun: threading.Barrier = begun) -> None:
            begun.wait(30)
            with suppress(StoreUnavailable, InvalidInput):
                while True:
                    engine.runs()
            answered.append(True)

        with engine:
            threads = [threading.Thread(target=hammer, daemon=True) for _ in range(4)]
            for thread in threads:
                thread.start()
            begun.wait(30)
        for thread in threads:
            thread.join(30)
    assert len(answered) == 80


FORKED = """
import gc, os, signal, sys, warnings
import stepkeep as sk

warnings.simplefilter("ignore")  # Python warns of threads at a fork, which is what this is about
signal.alarm(60)
with sk.open(sys.argv[1]) as engine:
    engine.runs()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        for name, _, needs in (one.partition(" ") for one in sys.argv[2].split(",")):
            try:
                getattr(engine, name)(**dict.fromkeys(filter(None, needs.split(" ")), "x"))
            except sk.StoreUnavailable as refusal:
                assert "fork" in str(refusal), refusal
            else:
                raise SystemExit(f"{name} was not refused")
    else:
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        print(engine.runs().as_json())
if child == 0:
    del engine
    gc.collect()
    sys.exit(0)
"""


def _needs(name: str) -> str:
    """The parameters that a method must be given."""
    parameters = list(inspect.signature(getattr(AsyncEngine, name)).parameters.values())[1:]
    required = [one for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    return " ".join(parameter.name for parameter in required)


def test_an_engine_refuses_every_call_in_the_child_of_a_fork_and_the_child_ends(database_url: str) -> None:
    methods = [name for name, found in vars(AsyncEngine).items() if inspect.iscoroutinefunction(found)]
    calls = [f"{name} {_needs(name)}" for name in methods if not name.startswith("_") and name not in ("open", "close")]
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, database_url, ",".join(calls)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "{'runs': [], 'total': 0, 'is_complete': True, 'next': None}\n"), (
        ran.stderr
    )


def test_a_program_without_a_loop_hosts_a_worker(database_url: str) -> None:
    made, registry = workflow()
    with sk.open(database_url, registry=registry) as engine:
        with engine.start_worker(concurrency=4, app="hosted") as worker:
            assert worker.id is not None
            assert worker.is_running
            assert engine.wait(engine.start(made).run_id, seconds=60).output == "hello"
        assert not worker.is_running
        worker.stop()
        second = engine.start_worker()
    assert not second.is_running, "closing the engine stops its workers"


def test_a_worker_that_cannot_start_says_so_at_once(tmp_path: object) -> None:
    with sk.open(f"sqlite:///{tmp_path}/x.db") as engine:
        with pytest.raises(InvalidInput, match="concurrency"):
            engine.start_worker(concurrency=-1)
        with pytest.raises(InvalidInput, match="main thread"):
            in_another_thread(engine.serve)


def in_another_thread(call: Callable[[], Any]) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(60)


SERVING = """
import sys, threading, os, signal
import stepkeep as sk

@sk.step
def greet():
    os.kill(os.getpid(), signal.SIGTERM)
    return "hello"

flow = sk.Workflow("serving")
flow.step("only", greet)
engine = sk.open(sys.argv[1])
run = engine.start(flow)
engine.serve()
print(engine.result(run.run_id))
engine.close()
"""


def test_serving_ends_with_a_signal_and_drains(tmp_path: object) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SERVING, f"sqlite:///{tmp_path}/x.db"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.rstrip().endswith('succeeded: "hello"')


def test_the_record_names_the_person_that_the_program_names(database_url: str) -> None:
    flow = sk.Workflow("asked", version=1)
    first = flow.approval("first")
    flow.wait("second", "paid", after=first)
    with sk.open(database_url, actor="portal") as engine:
        run_id = engine.start(flow, by="ada", start_now=False).run_id
        engine.start_idle(run_id, by="bo")
        engine.work_on(run_id)
        assert engine.approve(run_id, by="cy")["by"] == "cy"
        with pytest.raises(sk.Conflict, match="cy"):
            engine.approve(run_id, "first", by="di")
        engine.send(run_id, "other", by="ed")
        engine.cancel(run_id, by="flo")
        again = engine.rerun(run_id, by="gus").run_id
        rejected = engine.work_on(again)
        assert engine.reject(rejected.run_id, by="hal")["by"] == "hal"
        assert engine.show(run_id)["run"]["created_by"] == "ada"
        assert engine.show(again)["run"]["created_by"] == "gus"
        log = b"".join(engine.log(run_id)).decode()
        for name in ("ada", "bo", "cy", "flo"):
            assert f'"actor":"{name}"' in log, name
        assert log.count('"vouched_by":"portal"') == log.count('"vouched_by"') == 5
        assert '"actor":"portal"' not in log
        assert engine.certify(run_id).verdict == "conforms"
        mine = engine.start(flow, by="portal").run_id
        engine.approve(mine)
        assert "vouched_by" not in b"".join(engine.log(mine)).decode()
        for odd in ("", "a\x00b", "x" * 300, 5):
            with pytest.raises(InvalidInput, match="by"):
                engine.cancel(again, by=odd)  # type: ignore[arg-type]


def test_a_message_names_the_step_that_it_went_to(database_url: str) -> None:
    flow = sk.Workflow("waits", version=1)
    flow.wait("payment", "paid")
    with sk.open(database_url) as engine:
        waiting = engine.run(flow)
        assert str(waiting) == f"run {waiting.run_id} blocked: payment waits for the message paid"
        assert engine.send(waiting.run_id, "paid")["consumed_by"] == "payment"


def test_every_time_in_an_answer_is_text_and_runs_are_found_by_state(database_url: str) -> None:
    flow = sk.Workflow("timed", version=1)
    flow.approval("gate")
    with sk.open(database_url) as engine:
        started = engine.start(flow)
        assert engine.wait(started.run_id, seconds=60, until_blocked=True).run_id == started.run_id
        for state in ("blocked", ["blocked", "failed"]):
            assert [run["id"] for run in engine.runs(state=state)["runs"]] == [started.run_id]  # type: ignore[arg-type]
        assert engine.runs(state="failed")["runs"] == []  # type: ignore[arg-type]
        approved = engine.approve(started.run_id, "gate", by="ada")
        [gate] = engine.show(started.run_id)["steps"]
        assert gate["record"]["at"] == approved["at"] == gate["ended_at"]
        with pytest.raises(sk.Conflict) as refused:
            engine.reject(started.run_id, "gate", by="bea")
        assert refused.value.winner is not None
        assert refused.value.winner["at"] == approved["at"]
        assert engine.approve(started.run_id, "gate", by="ada") == {**approved, "repeated": True}


def test_a_program_may_ask_for_success(database_url: str) -> None:
    def broken() -> None:
        raise sk.StepError("no stock", category="validation")

    made, registry = workflow("fails", broken)
    flow = sk.Workflow("waits", version=1)
    flow.approval("sign-off", roles=["finance"])
    with sk.open(database_url, registry=registry) as engine:
        assert engine.run(made).state == "failed"
        with pytest.raises(sk.RunNotSucceeded, match="no stock") as raised:
            engine.run(made, check=True)
        assert raised.value.result.state == "failed"
        assert raised.value.result.id == raised.value.result.run_id
        with pytest.raises(sk.RunNotSucceeded, match="blocked: sign-off waits for approval by finance"):
            engine.run(flow).raise_for_state()


async def test_a_run_executes_its_own_steps_and_those_of_no_other_run(database_url: str) -> None:
    """A program that runs one workflow must not execute, with its own code, what production has started."""
    registry, seen = Registry(), list[str]()

    @sk.step("own.note", registry=registry)
    async def note(ctx: sk.Context) -> None:
        seen.append(ctx.run_id)

    flow = sk.Workflow("own", version=1, timeout="1m")
    flow.step("first", "own.note", inputs={})
    flow.step("second", "own.note", inputs={})

    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        other = (await engine.start(flow)).run_id
        mine = await engine.run(flow)
        assert mine.state is RunState.SUCCEEDED
        assert seen == [mine.run_id] * 2
        assert (await engine.show(other))["run"]["state"] == RunState.QUEUED
        third = (await engine.start(flow)).run_id
        assert (await engine.work_on(third, serve_all=True)).state is RunState.SUCCEEDED
        assert other in seen


async def test_a_run_grants_itself_no_capability_and_says_which_one_it_lacks(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A definition that asks for a capability does not make this machine one that has it."""
    registry = Registry()

    @sk.step("own.train", registry=registry, capabilities=["gpu"])
    async def train() -> str:
        return "trained"

    @sk.step("own.read", registry=registry)
    async def read() -> str:
        return "read"

    flow = sk.Workflow("skilled", version=1, timeout="1h", registry=registry)
    flow.step("read", read, inputs={})
    flow.step("train", train, inputs={})
    flow.approval("sign-off", after=[])
    said = "train needs the capability gpu, which this program was not given"

    async with AsyncEngine(database_url, registry=registry, auto_migrate=True) as engine:
        with pytest.raises(sk.InvalidInput, match="capabilities"):
            await engine.run(flow, capabilities="gpu")
        assert (await engine.runs())["runs"] == []
        left = await engine.run(flow)
        assert (left.state, left.lacking) == (RunState.RUNNING, (said,))
        assert [step["state"] for step in left.view["steps"]] == ["succeeded", "ready", "awaiting_approval"]
        assert f"run {left.run_id} running: {said}; sign-off waits for approval" in str(left)
        assert f"run {left.run_id}: {said}. Pass capabilities=, or start a worker that has it" in caplog.text
        done = await engine.work_on(left.run_id, capabilities=["gpu"])
        assert (done.state, done.lacking) == (RunState.BLOCKED, ())
        assert [step["state"] for step in done.view["steps"]] == ["succeeded", "succeeded", "awaiting_approval"]
        async with await engine.start_worker(capabilities=["gpu"]):
            served = await engine.run(flow)
            assert served.view["steps"][1]["state"] == "succeeded", "a live worker has the capability"
