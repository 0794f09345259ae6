"""Flows as code on both databases, with real workers: what they come to, and what the judge says of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.kernel.errors import InvalidInput
from stepkeep.testing import Workbench
from tests.operations.flows_process import buy, crash
from tests.suites import first_on, short_and_all
from tests.worker.bed import PAST_THE_LEASE_US

undone: list[str] = []


@sk.step("flows.double")
def double(n: int) -> int:
    return 2 * n


@sk.step("flows.undouble")
def undouble(output: int = 0) -> None:
    undone.append("double")


@sk.step("flows.join")
async def join(parts: list[Any], between: str = "-") -> str:
    return between.join(map(str, parts))


@sk.step("flows.refuse")
def refuse(why: str) -> None:
    raise sk.fail(why, category="conflict")


@sk.step("flows.book")
def book(room: str) -> dict[str, str]:
    return {"room": room}


@sk.step("flows.unbook")
def unbook(room: str) -> None:
    undone.append(room)


def run(database_url: str, flow: sk.Workflow, given: Any = None) -> sk.Result:
    """The result of a run, whose record every judge accepts."""
    with sk.Engine(database_url) as engine:
        result = engine.run(flow, {} if given is None else given, check=False)
        certificate = engine.certify(result.id)
        assert certificate.ok, [certificate.canonical, *((one.dialect, one.findings) for one in certificate.dialects)]
        return result


def told(database_url: str, run_id: str) -> list[tuple[str, bytes]]:
    """What a run has emitted, in order."""

    async def read() -> list[tuple[str, bytes]]:
        async with sk.AsyncEngine(database_url) as engine:
            found = await engine.transactor.store.read_outbox("default", run_id)
            return [(one.name, one.payload) for one in found]

    return asyncio.run(read())


def test_each_call_of_a_flow_is_a_step(database_url: str) -> None:
    @sk.flow
    async def totals(ctx: Any, numbers: list[int]) -> str:
        found = [await ctx.step(double, number) for number in numbers if number % 2]
        found += await asyncio.gather(*(ctx.step(double, n=number) for number in numbers))
        text: str = await ctx.step(join, found, between="+")
        return text

    result = run(database_url, totals, {"numbers": [1, 2, 3]})
    assert result.output == "2+6+2+4+6"
    with sk.Engine(database_url) as engine:
        steps = engine.show(result.id)["steps"]
    assert [(step["name"], step["state"]) for step in steps] == [
        ("totals", "succeeded"),
        *((f"totals[{place}]", "succeeded") for place in range(6)),
    ]
    assert [step["call"] for step in steps] == [None, *["flows.double"] * 5, "flows.join"]
    assert steps[0]["attempts"] == 1


def test_a_failure_of_a_call_is_an_exception_of_the_flow(database_url: str) -> None:
    @sk.flow
    async def careful(ctx: Any, why: str) -> dict[str, str]:
        try:
            await ctx.step(refuse, why)
        except sk.CallFailed as problem:
            return {"error": problem.error, "category": str(problem.category), "call": problem.call}
        return {}

    result = run(database_url, careful, {"why": "no such account"})
    assert (result.state, result.output) == (
        "succeeded",
        {"error": "no such account", "category": "conflict", "call": "flows.refuse"},
    )


def test_a_flow_that_does_not_catch_a_failure_fails_for_the_same_reason(database_url: str) -> None:
    @sk.flow
    async def careless(ctx: Any) -> None:
        await asyncio.gather(ctx.step(double, 1), ctx.step(refuse, "no"))

    result = run(database_url, careless)
    assert (result.state, result.error) == ("failed", "flows.refuse failed: no")


def test_a_rollback_undoes_the_calls_of_a_flow_last_completed_first(database_url: str) -> None:
    @sk.flow(on_failure="compensate")
    async def trip(ctx: Any) -> None:
        first = await ctx.options(undo=unbook).step(book, "101")
        await ctx.options(undo=unbook).step(book, f"{first['room']}b")
        await ctx.step(refuse, "full")

    undone.clear()
    assert run(database_url, trip).state == "rolled_back"
    assert undone == ["101b", "101"]


def test_a_flow_that_makes_other_calls_than_recorded_holds_and_names_both_lists(database_url: str) -> None:
    turns = iter(range(100))

    @sk.flow
    async def fickle(ctx: Any) -> None:
        await ctx.step(double, next(turns))
        await ctx.step(double, 1)

    from stepkeep.worker.flows import keeper

    kept = keeper.MOST_KEPT
    try:
        keeper.FlowKeeper.__init__.__defaults__ = (0,)
        result = run(database_url, fickle)
    finally:
        keeper.FlowKeeper.__init__.__defaults__ = (kept,)
    assert result.state == "blocked"
    with sk.Engine(database_url) as engine:
        [step, *_] = engine.show(result.id).steps
    assert step.error is not None
    assert "is not deterministic: its call 0 is step flows.double" in step.error
    assert "Recorded by code" in step.error
    assert "Replayed by code" in step.error


@pytest.mark.parametrize("kept", [0, 1000])
def test_a_flow_comes_to_the_same_with_and_without_a_kept_coroutine(database_url: str, kept: int) -> None:
    from stepkeep.worker.flows import keeper

    starts: list[int] = []

    @sk.flow
    async def counted(ctx: Any) -> int:
        starts.append(1)
        total = 0
        for number in range(5):
            total += await ctx.step(double, number)
        return total

    default = keeper.FlowKeeper.__init__.__defaults__
    try:
        keeper.FlowKeeper.__init__.__defaults__ = (kept,)
        assert run(database_url, counted).output == 20
    finally:
        keeper.FlowKeeper.__init__.__defaults__ = default
    assert len(starts) == (6 if kept == 0 else 1)


@pytest.mark.parametrize("kept", [0, 1000])
def test_events_and_costs_between_two_calls_are_recorded_once(database_url: str, kept: int) -> None:
    """Each part reports 600 events, so that a replay which collected all of them would pass the bound of 1,000.

    The fifth attempt fails: what it emitted is dropped and emitted again by the next one, and what it cost counts.
    """
    from stepkeep.worker.flows import keeper

    attempts: list[int] = []

    @sk.flow("flows.telling", retry=sk.Retry(max_attempts=3, initial="1ms"))
    async def telling(ctx: Any) -> None:
        for number in range(3):
            for place in range(600):
                ctx.emit("part", [number, place])
            ctx.cost(tokens=10**number)
            await ctx.step(double, number)
        ctx.emit("both")
        await asyncio.gather(ctx.step(double, 1), ctx.step(refuse, "no"), return_exceptions=True)
        ctx.emit("end")
        ctx.cost(usd=2)
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("no answer")

    default = keeper.FlowKeeper.__init__.__defaults__
    try:
        keeper.FlowKeeper.__init__.__defaults__ = (kept,)
        result = run(database_url, telling)
    finally:
        keeper.FlowKeeper.__init__.__defaults__ = default
    parts = [("part", b"[%d,%d]" % (number, place)) for number in range(3) for place in range(600)]
    assert told(database_url, result.id) == [*parts, ("both", b"null"), ("end", b"null")]
    assert attempts[-2:] == [1, 2]
    with sk.Engine(database_url) as engine:
        assert engine.show(result.id)["run"]["cost"] == {"tokens": 111, "usd": 4}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("asyncio.open_connection('localhost', 1)", "uses a socket, which differs in each replay"),
        ("asyncio.create_subprocess_exec('true')", "uses a program"),
        ("asyncio.Future()", "awaits something that is no call"),
        ("asyncio.to_thread(print)", "uses a thread"),
    ],
)
def test_a_flow_that_awaits_anything_but_calls_fails_clearly(database_url: str, body: str, said: str) -> None:
    @sk.flow
    async def odd(ctx: Any) -> None:
        await eval(body)

    result = run(database_url, odd)
    assert result.state == "failed"
    assert said in (result.error or "")


@pytest.mark.parametrize(
    ("given", "named", "says"),
    [((), {"name": "a"}, r"@flow\("), ((5,), {}, "a name or an `async def` function, not 5")],
)
def test_a_flow_says_how_it_takes_its_name(given: Any, named: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        sk.flow(*given, **named)


@first_on("sqlite")
def test_a_call_with_wrong_options_fails_at_once_without_a_place(database_url: str) -> None:
    @sk.flow("wrong_options")
    async def wrong(ctx: Any) -> None:
        await ctx.child("leaf", deadline="soon", detached=7)

    result = run(database_url, wrong)
    assert result.state == "failed"
    assert (result.error or "").startswith("the call is refused: `deadline`: 'soon' is not a duration.")
    assert "calls.py" not in (result.error or "")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.step(double, m=1), "flows.double has no parameter m. It takes n."),
        (lambda ctx: ctx.step(double, 1, between="-"), "flows.double has no parameter between. It takes n."),
        (lambda ctx: ctx.map(double, 5), "ctx.map: the items are a list, or can be made one; int cannot."),
    ],
    ids=["misspelt", "beside a right one", "no list"],
)
def test_wrong_arguments_of_a_call_hold_the_flow_at_once(database_url: str, call: Any, said: str) -> None:
    """An argument that no parameter takes was dropped, and the handler ran with its default."""

    @sk.flow("flows.wrong", version=1)
    async def wrong(ctx: Any) -> None:
        await call(ctx)

    result = run(database_url, wrong)
    [step] = result.view["steps"]
    assert (result.state, step["name"], step["category"]) == ("blocked", "flows.wrong", "validation")
    assert said in str(step["error"])


def test_a_function_that_is_no_handler_is_refused(database_url: str) -> None:
    def plain(n: int) -> int:
        return n

    @sk.flow(on_exhausted="fail")
    async def hasty(ctx: Any) -> None:
        await ctx.step(plain, 1)

    result = run(database_url, hasty)
    assert result.error == (
        "ctx.step: plain is no handler. Decorate it with @stepkeep.step, so that every worker that loads this module "
        "knows it."
    )


def test_a_flow_makes_no_more_calls_than_its_definition_allows(database_url: str) -> None:
    @sk.flow(max_calls=3)
    async def endless(ctx: Any) -> None:
        while True:
            await ctx.step(double, 1)

    result = run(database_url, endless)
    assert result.error == "it makes more than 3 calls, as its definition allows; end it before by ctx.continue_as_new"


def test_a_flow_sleeps_waits_asks_people_and_maps(database_url: str) -> None:
    @sk.flow
    async def patient(ctx: Any) -> list[Any]:
        await ctx.sleep("10ms")
        paid = await ctx.wait_for("paid", deadline="1h", where="message.cents > 0")
        decided = await ctx.gate("Send it?")
        doubled = await ctx.map(double, range(5), in_flight=2)
        return [paid, decided["decision"], doubled]

    with sk.Engine(database_url) as engine:
        result = engine.run(patient, {})
        assert result.state == "blocked"
        engine.send(result.id, "paid", {"cents": 0})
        engine.send(result.id, "paid", {"cents": 5})
        engine.work_on(result.id)
        engine.approve(result.id, "patient[2]", by="bea")
        result = engine.work_on(result.id)
        assert result.output == [{"cents": 5}, "approved", [0, 2, 4, 6, 8]]
        certificate = engine.certify(result.id)
        assert certificate.ok, [certificate.canonical, *((one.dialect, one.findings) for one in certificate.dialects)]


def test_code_of_a_flow_that_ends_its_worker_is_no_fault_of_the_call_before_it(
    database_url: str, tmp_path: Path
) -> None:
    """The first worker had fed the flow ahead. The call runs once more and is recorded first; then the flow fails."""
    ledger = tmp_path / "ledger"
    with sk.Engine(database_url) as engine:
        started = engine.start(crash, {})
        program = Path(__file__).with_name("flows_process.py")
        ended: list[int] = []
        while ended.count(-9) == len(ended):
            ahead = len(ended) * PAST_THE_LEASE_US
            given = [sys.executable, str(program), database_url, started.run_id, "0", str(ledger), str(ahead)]
            ended.append(subprocess.run(given, timeout=60, check=False).returncode)
        assert ended == [-9, -9, -9, 0]
        view = engine.show(started.run_id)
        certificate = engine.certify(started.run_id)
    assert certificate.ok, certificate
    assert ledger.read_text().count("reserve it") <= len(ended)
    steps = {step["name"]: (step["state"], step["category"]) for step in view["steps"]}
    assert steps["buy.crash"] == ("failed", "poison")
    assert steps["buy.crash[0]"][0] == "succeeded"


@pytest.mark.parametrize("commits", short_and_all([2, 6], range(1, 11)))
def test_a_flow_survives_the_death_of_its_worker_after_a_commit(
    database_url: str, tmp_path: Path, commits: int
) -> None:
    ledger = tmp_path / "ledger"
    with sk.Engine(database_url) as engine:
        started = engine.start(buy, {"items": ["a", "b"]})
        program = Path(__file__).with_name("flows_process.py")
        ended = []
        # The clock of the second one is past the leases of the first.
        for left, ahead in ((commits, 0), (0, PAST_THE_LEASE_US)):
            given = [sys.executable, str(program), database_url, started.run_id, str(left), str(ledger), str(ahead)]
            ended.append(subprocess.run(given, timeout=60, check=False).returncode)
        # Some runs have no tenth commit: ends that come together share one.
        assert ended == [-9, 0] or (commits == 10 and ended == [0, 0])
        result = engine.result(started.run_id)
        assert (result.state, result.output) == ("succeeded", 3)
        certificate = engine.certify(started.run_id)
        assert certificate.ok, certificate
        assert told(database_url, started.run_id) == [("buying", b"2"), ("charged", b"0"), ("charged", b"1")]
        assert engine.show(started.run_id)["run"]["cost"] == {"tokens": 102}
    done = [line.split(" ", 1)[1] for line in ledger.read_text().splitlines()]
    assert sorted(set(done)) == ["charge a", "charge b", "pay a", "pay b", "reserve a", "reserve b"]
    # What was in flight when the worker died, at most both reservations, is done again under the same keys. What a
    # charge had recorded before is not.
    assert len(done) <= 8
    assert [line for line in done if line.startswith("pay")] == ["pay a", "pay b"]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_call_that_a_person_skips_gives_none_whether_or_not_it_failed_before(has_failed: bool) -> None:
    registry = sk.Registry()

    @sk.step("ask", registry=registry)
    def ask(ctx: sk.Context) -> Any:
        if has_failed and ctx.attempt == 1:
            raise ConnectionError("no route")
        return sk.wait_for("answer", timeout="1h")

    @sk.flow("asking", registry=registry)
    async def asking(ctx: sk.FlowContext) -> dict[str, Any]:
        return {"answer": await ctx.step("ask")}

    with Workbench(handlers=registry) as bench:
        run = bench.run(asking, {})
        run.assert_step("asking[0]", "awaiting_event")
        run.decide("asking[0]", "skip", reason="not needed")
        run.assert_succeeded({"answer": None})
        skipped = run.step("asking[0]")
        assert (skipped["state"], skipped["category"]) == ("skipped", None)
        assert skipped["error"] == ("ConnectionError: no route" if has_failed else None)
        assert bench.call(bench.engine.certify(run.id)).ok


@sk.flow("flows.asks", version=1)
async def asks(ctx: sk.FlowContext) -> Any:
    await ctx.step(double, 2)
    return await ctx.gate("go on?")


def test_a_call_that_was_not_made_is_refused_by_the_name_that_was_asked_for(database_url: str) -> None:
    with sk.Engine(database_url) as engine:
        blocked = engine.run(asks)
        assert [step["call"] for step in blocked.view["steps"]] == [None, "flows.double", "gate"]
        with pytest.raises(sk.NotFound, match=rf"run {blocked.id} has no step flows.asks\[8\]$"):
            engine.approve(blocked.id, "flows.asks[8]")
        engine.approve(blocked.id, "flows.asks[1]")
