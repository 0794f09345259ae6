"""`ctx.once`: what an attempt has recorded is given to later attempts of the step, and to no other step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.operations.codecs import KeyringCodec

import stepkeep as sk
from stepkeep.kernel.decide.decision import Accepted, Claimer
from stepkeep.kernel.errors import Fenced
from stepkeep.kernel.machine.events import StepCheckpointed, StepReported
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.operations.pipeline import workers
from stepkeep.operations.remote.recorded_checkpoints import PAGE_CHECKPOINTS

AGAIN = sk.Retry(max_attempts=3, initial="1ms", max="1ms")


@sk.step("once.nothing")
def nothing() -> None:
    """Is claimed by hand."""


def run(engine: sk.Engine, workflow: sk.Workflow, given: Any = None) -> sk.Result:
    """The result of a run, whose record every judge accepts."""
    result = engine.run(workflow, given, check=False)
    certificate = engine.certify(result.id)
    assert certificate.ok, [certificate.canonical, certificate.payloads]
    return result


def checkpoints(engine: sk.Engine, run_id: str) -> dict[str, list[tuple[str, Any, int]]]:
    steps = engine.show(run_id)["steps"]
    return {step["name"]: [(one["name"], one["value"], one["fence"]) for one in step["checkpoints"]] for step in steps}


def test_a_retry_gets_what_the_first_attempt_recorded(database_url: str) -> None:
    calls: list[str] = []
    workflow = sk.Workflow("pay")

    async def charge(cents: int) -> dict[str, int]:
        calls.append("charge")
        return {"cents": cents, "call": len(calls)}

    async def on_the_loop(ctx: sk.Context) -> Any:
        paid = await ctx.once("charge", charge, cents=3)
        if ctx.attempt < 3:
            raise ConnectionError("later")
        return paid

    def in_a_thread(ctx: sk.Context) -> Any:
        # The same name in another step is another checkpoint. A tuple is a list from the first attempt on.
        size = ctx.once("charge", lambda: calls.append("size") or ("x" * 20_000, 1))
        if ctx.attempt < 2:
            raise ConnectionError("later")
        return [type(size).__name__, len(size[0])]

    first = workflow.step("first", on_the_loop, retry=AGAIN)
    workflow.step("second", in_a_thread, retry=AGAIN, after=first)
    with sk.Engine(database_url) as engine:
        result = run(engine, workflow)
        assert (result.state, result.output) == ("succeeded", ["list", 20_000])
        assert calls == ["charge", "size"]
        shown = checkpoints(engine, result.id)
        assert shown["first"] == [("charge", {"cents": 3, "call": 1}, 1)]
        # A large value stands beside the row.
        [(_, reference, _)] = shown["second"]
        assert "sha256" in str(reference)
        assert [step["attempts"] for step in engine.show(result.id)["steps"]] == [3, 2]


def test_a_function_that_raises_records_nothing(database_url: str) -> None:
    turns: list[int] = []
    workflow = sk.Workflow("unsure")

    def unsure() -> int:
        turns.append(1)
        if len(turns) == 1:
            raise ConnectionError("no answer")
        return len(turns)

    async def pay(ctx: sk.Context) -> Any:
        return await ctx.once("pay", unsure)

    workflow.step("pay", pay, retry=AGAIN)
    with sk.Engine(database_url) as engine:
        result = run(engine, workflow)
        assert (result.output, checkpoints(engine, result.id)) == (2, {"pay": [("pay", 2, 2)]})


def test_a_flow_records_in_its_own_body_and_a_replay_gets_the_same(database_url: str) -> None:
    from stepkeep.worker.flows import keeper

    drawn: list[int] = []

    def draw() -> int:
        drawn.append(len(drawn))
        return drawn[-1]

    async def slowly() -> int:
        await asyncio.sleep(0)
        return draw()

    @sk.step("once.double")
    def double(n: int) -> int:
        return 2 * n

    @sk.flow
    async def lucky(ctx: Any) -> list[int]:
        first = await ctx.once("first", draw)
        found = await asyncio.gather(ctx.step(double, first), ctx.once("second", slowly), ctx.step(double, 10))
        again = await ctx.once("first", draw)
        return [first, *found, again, await ctx.step(double, found[1])]

    kept = keeper.MOST_KEPT
    with sk.Engine(database_url) as engine:
        try:
            keeper.FlowKeeper.__init__.__defaults__ = (0,)
            result = run(engine, lucky)
        finally:
            keeper.FlowKeeper.__init__.__defaults__ = (kept,)
        assert (result.state, result.output) == ("succeeded", [0, 0, 1, 20, 0, 2])
        assert drawn == [0, 1]
        assert checkpoints(engine, result.id)["lucky"] == [("first", 0, 1), ("second", 1, 1)]


def test_a_sealed_checkpoint_is_opened_for_the_next_attempt(database_url: str) -> None:
    workflow = sk.Workflow("sealed")

    async def pay(ctx: sk.Context) -> Any:
        secret = await ctx.once("pay", lambda: {"card": "4111"})
        if ctx.attempt == 1:
            raise ConnectionError("later")
        return secret

    workflow.step("pay", pay, retry=AGAIN)
    with sk.Engine(database_url, payload_codec=KeyringCodec({"k1": b"0" * 32})) as engine:
        result = run(engine, workflow)
        assert result.output == {"card": "4111"}
    with sk.Engine(database_url) as engine:
        assert checkpoints(engine, result.id) == {"pay": [("pay", "[encrypted]", 1)]}


async def test_a_late_worker_records_nothing(database_url: str) -> None:
    workflow = sk.Workflow("late")
    workflow.step("pay", nothing)
    async with sk.AsyncEngine(database_url) as engine:
        transactor, store = engine.transactor, engine.store
        row = await workers.register(store, tenant="default", app="late", capacity=1)

        async def held(lease_us: int) -> StepCheckpointed:
            run = await engine.start(workflow)
            queues = frozenset(number for number, _ in await store.list_queues("default"))
            claimer = Claimer(actor=row.id, worker=row.no, lease=lease_us, slots=1, queues=queues)
            [claim] = await transactor.claim(claimer, limit=1, run=("default", run.run_id))
            return StepCheckpointed(
                tenant="default", run_id=run.run_id, actor=row.id, no=0, fence=claim.step.fence, worker=row.no,
                name="pay", value=b"1",
            )  # fmt: skip

        event, expired = await held(60_000_000), await held(1)
        for late in (replace(event, fence=2), replace(event, worker=row.no + 1), expired):
            with pytest.raises(Fenced, match="came too late"):
                await transactor.checkpoint(late)
        assert not (await transactor.checkpoint(event)).repeated
        assert (await transactor.checkpoint(replace(event, value=b"2"))).repeated
        [stored] = await store.read_checkpoints("default", event.run_id, 0)
        assert (stored.name, stored.value, stored.fence) == ("pay", b"1", 1)
        # What the process remembered of the run is out of date, and the report is decided on what is stored.
        report = StepReported(
            tenant="default", run_id=event.run_id, actor=row.id, no=0, fence=1, worker=row.no, outcome=Completed()
        )
        [answer], _ = await transactor.report([report], None)
        assert isinstance(answer, Accepted)
        assert (await engine.result(event.run_id)).state == "succeeded"


def refused(path: Path, workflow: sk.Workflow) -> str:
    with sk.Engine(f"sqlite:///{path}/once.db", max_payload_bytes=100_000) as engine:
        result = run(engine, workflow)
        assert result.state == "failed"
        return str(result.error)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.once("", lambda: 1), "the name of a checkpoint"),
        (lambda ctx: ctx.once("x" * 101, lambda: 1), "the name of a checkpoint"),
        (lambda ctx: ctx.once("pay", 7), "ctx.once takes a name and a function, not a value of type int"),
        (lambda ctx: ctx.once("pay", lambda: object()), "the value of the checkpoint pay cannot be stored"),
        (lambda ctx: ctx.once("pay", lambda: "x" * 300_000), "100000 are the limit"),
        (lambda ctx: ctx.once("pay", asyncio.sleep, 0), "pay is a coroutine: make the handler `async def` too"),
        (lambda ctx: ctx.once("pay", lambda: ctx.once("pay", lambda: 1)), "pay is being called already"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_words(tmp_path: Path, call: Any, said: str) -> None:
    workflow = sk.Workflow("refused")

    def pay(ctx: sk.Context) -> Any:
        return call(ctx)

    workflow.step("pay", pay, retry=sk.Retry(max_attempts=1))
    assert said in refused(tmp_path, workflow)


def test_an_attempt_is_given_many_and_large_checkpoints_in_pages(database_url: str) -> None:
    """More than two pages, and one value of 300 kB, which is kept apart."""
    called: list[int] = []
    workflow = sk.Workflow("many")
    names = [*range(2 * PAGE_CHECKPOINTS), -1]

    async def agent(ctx: sk.Context) -> Any:
        values = [await ctx.once(str(name), call, name) for name in names]
        if ctx.attempt == 1:
            raise ConnectionError("later")
        # A later attempt may ask in another order, for several at once, and for what is not on record.
        last, first, new = await asyncio.gather(*[ctx.once(name, called.append, 7) for name in ("-1", "0", "new")])
        return [len(last), first, new, sum(map(len, values))]

    def call(name: int) -> str:
        called.append(name)
        return "x" * (300_000 if name < 0 else 3)

    workflow.step("agent", agent, retry=AGAIN)
    with sk.Engine(database_url) as engine:
        result = run(engine, workflow)
        assert result.output == [300_000, "xxx", None, 300_000 + 600]
        assert called == [*names, 7]
        shown = checkpoints(engine, result.id)["agent"]
        assert [name for name, _, _ in shown[-3:]] == ["199", "-1", "new"]
        assert len(shown) == 100


def test_a_transactional_step_needs_no_checkpoint(tmp_path: Path) -> None:
    workflow = sk.Workflow("exact")

    @sk.step("once.exact", transactional=True)
    def pay(ctx: sk.Context) -> Any:
        return ctx.once("pay", lambda: 1)

    workflow.step("pay", pay, retry=sk.Retry(max_attempts=1))
    assert "a transactional step needs none" in refused(tmp_path, workflow)


@sk.step("once.apart", mode="process")
def apart(ctx: sk.Context) -> Any:
    return ctx.once("pay", lambda: 1)


def test_a_handler_in_a_process_of_its_own_records_none(tmp_path: Path) -> None:
    workflow = sk.Workflow("apart")
    workflow.step("pay", apart, retry=sk.Retry(max_attempts=1))
    assert "a handler in a process of its own has no database" in refused(tmp_path, workflow)
