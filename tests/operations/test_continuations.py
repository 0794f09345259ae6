"""Retry, rerun from a step, fork: finished steps are adopted by reference, and nothing is undone twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.conformance.adoption import check_originals
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.operations.continuation.continued import continues_of
from stepkeep.operations.logs.retention import Policy, prune
from tests.suites import first_on

DONE: list[tuple[str, str]] = []
BROKEN: set[str] = set()
LARGE = "x" * 400_000
SAID = (
    b'{"tenant":"default","run_id":"new","seq":1,"at":0,"hops":[],'
    b'"causes":[{"event":"run_created","actor":"ann","detail":{"continues":%b}}]}'
)


def act(ctx: sk.Context, name: str) -> str:
    DONE.append((name, ctx.idempotency_key))
    if name in BROKEN:
        raise sk.fail(f"{name} is broken")
    return f"{name} done"


async def book(ctx: sk.Context) -> str:
    return act(ctx, "book")


async def pay(ctx: sk.Context) -> str:
    return f"{act(ctx, 'pay')} after {ctx.outputs['book']}"


async def ship(ctx: sk.Context, amount: int = 0, said: str = "") -> str:
    return f"{act(ctx, 'ship')}: {said} {amount}"


async def unbook(ctx: sk.Context) -> None:
    act(ctx, "unbook")


async def refund(ctx: sk.Context) -> None:
    act(ctx, "refund")


async def pay_nothing() -> None: ...


async def asks_plan(ctx: Any) -> None:
    await ctx.gate("Pay?")


async def asks_shown(ctx: Any) -> None:
    await ctx.gate("Pay?", covers="shown")


async def adds_plan() -> Any:
    return sk.then({"name": "sign", "approval": {}})


async def adds_shown() -> Any:
    return sk.then({"name": "sign", "approval": {"covers": "shown"}})


async def large(ctx: sk.Context) -> str:
    return LARGE


def shop(name: str = "shop", version: int = 1, **options: Any) -> sk.Workflow:
    flow = sk.Workflow(name, version=version, **options)
    booked = flow.step("book", book, effect="write", undo=unbook)
    paid = flow.step("pay", pay, after=booked, effect="write", undo=refund)
    given = {"said": "${{ steps.pay.output }}", "amount": "${{ input.amount }}"}
    flow.step("ship", ship, after=paid, inputs=given, retry=sk.Retry(max_attempts=version))
    return flow


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    DONE.clear()
    BROKEN.clear()
    yield
    DONE.clear()
    BROKEN.clear()


@asynccontextmanager
async def on(url: str) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, actor="ann") as engine:
        yield engine


def did() -> list[str]:
    names = [name for name, _ in DONE]
    DONE.clear()
    return names


async def failed(engine: AsyncEngine, *broken: str, **options: Any) -> str:
    BROKEN.update(broken)
    result = await engine.run(shop(**options), {"amount": 7})
    BROKEN.clear()
    DONE.clear()
    return result.run_id


async def certified(engine: AsyncEngine, *runs: str) -> None:
    for run in runs:
        certificate = await engine.certify(run)
        assert certificate.ok, certificate.page()


# -- retry -----------------------------------------------------------------------------------------------------------
async def test_a_retry_adopts_what_was_finished_and_runs_the_rest(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, "ship")
        looked = await engine.continuations.preview(first, "retry")
        assert (looked["adopted"], looked["runs_again"]) == (["book", "pay"], ["ship"])
        assert (looked["owns_undo"], looked["continued_by"]) == (["book", "pay"], [])
        again = await engine.continuations.retry(first)
        fork = await engine.continuations.preview(first, "fork", start="ship")
        assert fork["continued_by"] == [again.run_id]
        result = await engine.work_on(again.run_id)
        assert (result.state, result.output) == ("succeeded", "ship done: pay done after book done 7")
        assert did() == ["ship"]
        view = await engine.show(again.run_id)
        assert view["run"]["rerun_of"] == first
        told = {"run": first, "as": "retry", "from": None, "adopted": ["book", "pay"]}
        assert (view["run"]["continues"], view["run"]["continued_by"]) == (told, [])
        taken = [{"run": first, "step": name, "undo": True} for name in ("book", "pay")]
        assert [step["adopted"] for step in view["steps"]] == [*taken, None]
        assert [step["state"] for step in view["steps"]] == ["succeeded"] * 3
        await certified(engine, first, again.run_id)
        certificate = await engine.certify(again.run_id)
        assert certificate.adopted is not None
        assert (certificate.adopted.compared, certificate.adopted.missing) == (2, ())


async def test_a_retry_undoes_what_it_adopted_once_and_under_the_key_of_the_first_run(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, "ship")
        second = (await engine.continuations.retry(first)).run_id
        await engine.cancel(second, compensate=True)
        result = await engine.work_on(second)
        assert result.state == "rolled_back"
        assert [("refund", f"{first}:pay:compensate"), ("unbook", f"{first}:book:compensate")] == DONE
        looked = await engine.continuations.preview(second, "retry")
        assert looked["adopted"] == []
        assert {step["reason"] for step in looked["steps"]} == {"undone", "follows"}
        # What the retry undid is not there any more for a fork of the first run either.
        looked = await engine.continuations.preview(first, "fork", start="ship")
        assert (looked["adopted"], looked["steps"][0]["reason"]) == ([], "undone")
        await certified(engine, first, second)


@first_on("sqlite")
async def test_a_step_whose_elements_were_undone_runs_again(database_url: str) -> None:
    flow = sk.Workflow("many", input=["items"], on_failure="compensate")
    each = flow.step("each", book, map={"over": flow.input.items}, inputs={}, undo=unbook)
    one = flow.switch("one", flow.case("only", book, undo=refund))
    flow.step("ship", ship, after=[each, one], inputs={"said": "so", "amount": 1}, retry=sk.Retry(max_attempts=1))

    async with on(database_url) as engine:
        BROKEN.add("ship")
        first = (await engine.run(flow, {"items": [1, 2]})).run_id
        assert (await engine.show(first))["run"]["state"] == "rolled_back"
        BROKEN.clear()
        assert sorted(did()) == ["book", "book", "book", "refund", "ship", "unbook", "unbook"]
        for how, start in (("retry", None), ("rerun", "ship")):
            looked = await engine.continuations.preview(first, how, start=start)
            assert (looked["adopted"], looked["runs_again"]) == ([], ["each", "one", "ship"])
        second = (await engine.continuations.retry(first)).run_id
        assert (await engine.work_on(second)).state == "succeeded"
        assert sorted(did()) == ["book", "book", "book", "ship"]
        await certified(engine, first, second)
        lines = [json.loads(line) for line in await engine.log(first)][1:-1]
        moves = [line["metadata"] for line in lines if line["metadata"].get("step") == "each"]
        digest = next((said["digest"] for said in moves[::-1] if "digest" in said), None)
        forged = {"step": "each", "run": first, "fence": 0, "undo": False} | ({"digest": digest} if digest else {})
        assert list(check_originals([forged], {first: lines})) == [("each", f"run {first} undid elements of it")]
        for part in ("each[0]", "undo:each[1]", "one[0]"):
            with pytest.raises(InvalidInput, match=r"is repeated as a whole\. Name (each|one)"):
                await engine.continuations.rerun(first, part)
        for nothing in ("eac", "each[100000]", "check:run"):
            with pytest.raises(NotFound, match="Its steps: each, one, ship"):
                await engine.continuations.fork(first, nothing)


async def test_a_run_has_one_retry_and_the_next_one_continues_that(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, "ship")
        BROKEN.add("ship")
        second = (await engine.continuations.retry(first)).run_id
        with pytest.raises(sk.Conflict, match=f"continued by run {second}"):
            await engine.continuations.retry(first)
        assert (await engine.work_on(second)).state == "failed"
        BROKEN.clear()
        third = (await engine.continuations.retry(second)).run_id
        with pytest.raises(sk.Conflict, match=f"continued by run {third}"):
            await engine.continuations.preview(second, "retry")
        rows = await engine.store.read_adoptions("default", [first])
        assert {(row.run_id, row.owned) for row in rows} == {(second, 0), (third, 1)}
        assert (await engine.work_on(third)).state == "succeeded"
        await certified(engine, second, third)


async def test_show_and_explain_name_how_a_run_goes_on_and_with_which(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, "ship")
        fork = (await engine.continuations.fork(first, "pay", input={"amount": 9})).run_id
        plain = (await engine.rerun(first)).run_id
        told = {"run": first, "as": "fork", "from": "pay", "adopted": ["book"]}
        old, new, whole = [await engine.explain(run) for run in (first, fork, plain)]
        assert (old["continues"], old["continued_by"]) == (None, [plain, fork])
        assert (new["continues"], new["continued_by"]) == (told, [])
        assert whole["continues"] == {"run": first, "as": "rerun", "from": None, "adopted": []}
        [cause] = (await engine.explain(fork, "book"))["causes"]
        assert cause["sentence"] == f"book has ended as succeeded. It was adopted: run {first} executed it."
        for run, said in ((first, old), (fork, new), (plain, whole)):
            shown = (await engine.show(run))["run"]
            assert {name: shown[name] for name in ("continues", "continued_by")} == {
                name: said[name] for name in ("continues", "continued_by")
            }
        [book, *_] = (await engine.show(fork))["steps"]
        assert book["adopted"] == {"run": first, "step": "book", "undo": False}


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[1]", SAID % b'"x"', SAID % b'{"as":"theft"}', SAID % b'{"adopted":[1]}']
)
def test_a_first_entry_that_cannot_be_read_names_the_earlier_run_all_the_same(body: bytes) -> None:
    told = continues_of("old", [SealedEntry("default", "new", 1, 0, body, b"")])
    assert told == {"run": "old", "as": "rerun", "from": None, "adopted": []}


async def test_two_retries_at_once_make_one_run(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, "ship")
        tries = [engine.continuations.retry(first) for _ in range(5)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(one).__name__ for one in found) == ["Conflict"] * 4 + ["Started"]
        other = await failed(engine, "ship")
        once = [await engine.continuations.retry(other, idempotency_key="once") for _ in range(2)]
        assert [one.created for one in once] == [True, False]
        same = [engine.continuations.fork(first, "ship", idempotency_key="k") for _ in range(3)]
        assert len({one.run_id for one in await asyncio.gather(*same)}) == 1


async def test_a_run_that_succeeded_or_goes_on_has_no_retry(database_url: str) -> None:
    async with on(database_url) as engine:
        done = await failed(engine)
        with pytest.raises(sk.Conflict, match="has succeeded"):
            await engine.continuations.retry(done)
        live = await engine.start(shop(), {"amount": 1})
        with pytest.raises(sk.Conflict, match="is still queued"):
            await engine.continuations.fork(live.run_id, "ship")
        with pytest.raises(sk.NotFound, match="has no step boat"):
            await engine.continuations.fork(done, "boat")


async def test_a_run_whose_steps_are_all_finished_ends_at_once(database_url: str) -> None:
    async with on(database_url) as engine:
        flow = sk.Workflow("signed")
        flow.step("book", book, effect="write", undo=unbook)
        flow.approval("sign", after="book")
        run = await engine.start(flow)
        waiting = await engine.work_on(run.run_id)
        assert waiting.state == "blocked"
        await engine.approve(run.run_id, by="bea")
        done = await engine.work_on(run.run_id)
        assert done.state == "succeeded"
        fork = await engine.continuations.fork(run.run_id, "sign")
        assert (await engine.show(fork.run_id))["run"]["state"] == "blocked"
        await engine.cancel(fork.run_id)
        again = await engine.continuations.retry(fork.run_id)
        assert (await engine.show(again.run_id))["run"]["state"] == "blocked"
        await certified(engine, fork.run_id, again.run_id)


async def test_a_newer_version_takes_over_where_every_finished_step_means_the_same(database_url: str) -> None:
    async with on(database_url) as engine:
        first = await failed(engine, "ship")
        await engine.publish(shop(version=2))
        other = sk.Workflow("shop", version=3)
        other.step("book", ship)
        await engine.publish(other)
        with pytest.raises(sk.Conflict, match="step book began, and its executor differs"):
            await engine.continuations.retry(first, version=3)
        again = await engine.continuations.retry(first, version=2)
        assert (await engine.work_on(again.run_id)).state == "succeeded"
        assert (await engine.show(again.run_id))["run"]["version"] == 2
        assert did() == ["ship"]
        await certified(engine, again.run_id)


# -- rerun and fork --------------------------------------------------------------------------------------------------
async def test_a_rerun_from_a_step_repeats_it_and_what_follows(database_url: str) -> None:
    async with on(database_url) as engine:
        done = await failed(engine)
        looked = await engine.continuations.preview(done, "rerun", start="pay")
        assert (looked["adopted"], looked["may_repeat"]) == (["book"], ["pay", "ship"])
        again = await engine.continuations.rerun(done, "pay")
        assert (await engine.work_on(again.run_id)).state == "succeeded"
        assert did() == ["pay", "ship"]
        await certified(engine, again.run_id)


async def test_a_fork_has_another_input_and_undoes_nothing_of_the_first_run(database_url: str) -> None:
    async with on(database_url) as engine:
        done = await failed(engine)
        fork = (await engine.continuations.fork(done, "ship", input={"amount": 9})).run_id
        assert (await engine.work_on(fork)).output == "ship done: pay done after book done 9"
        other = (await engine.continuations.fork(done, "pay")).run_id
        BROKEN.add("ship")
        did()
        await engine.cancel(other, compensate=True)
        assert (await engine.work_on(other)).state == "cancelled"
        assert did() == []
        await certified(engine, fork, other)


async def test_a_gate_is_adopted_only_where_it_was_decided_on_the_same_input_by_another_person(
    database_url: str,
) -> None:
    flow = sk.Workflow("gated", on_failure="abort")
    flow.approval("sign")
    flow.step("book", book, after="sign", effect="write")

    async with on(database_url) as engine:
        BROKEN.add("book")
        run = (await engine.start(flow, {"n": 1})).run_id
        await engine.approve(run, by="bea")
        assert (await engine.work_on(run)).state == "failed"

        async def adopted(**options: Any) -> tuple[list[str], str]:
            found = await engine.continuations.preview(run, "fork", start="book", **options)
            return found["adopted"], found["steps"][0]["reason"]

        assert await adopted() == (["sign"], "succeeded")
        assert await adopted(input={"n": 2}) == ([], "input_differs")
        assert await adopted(by="bea") == ([], "own_decision")
        BROKEN.clear()
        again = (await engine.continuations.retry(run)).run_id
        assert (await engine.work_on(again)).state == "succeeded"
        await certified(engine, again)


@pytest.mark.parametrize("covers", ["plan", "shown"])
@pytest.mark.parametrize("kind", ["gate", "hold", "policy", "flow", "added", "child"])
async def test_an_approval_of_the_plan_does_not_outlive_a_change_of_the_steps_behind_it(
    database_url: str, kind: str, covers: Any
) -> None:
    """Retry and fork under another version, also after a retry under the same one; with `shown` it is kept."""
    below = sk.Workflow("covered-child")
    below.approval("sign", covers=covers)

    async with on(database_url) as engine:
        await engine.publish(below)
        BROKEN.add("book")
        run = (await engine.start(covered(kind, covers, 1, book))).run_id
        await engine.publish(covered(kind, covers, 2, ship))
        await engine.work_on(run)
        [gate] = (await engine.approvals(by="bea"))["approvals"]
        await engine.approve(gate["run_id"], gate["step"], by="bea")
        assert (await engine.work_on(gate["run_id"])).state in ("succeeded", "failed")
        assert (await engine.work_on(run)).state == "failed"
        # What a child declares is not known to its parent, and neither is what an adopted step had below it.
        keeps = covers == "shown" and kind != "child"
        for way in ({"how": "retry"}, {"how": "fork", "start": "pay"}):
            seen = await engine.continuations.preview(run, **way, version=2)  # type: ignore[arg-type]
            assert seen["reopens"] == ([] if keeps else ["first"]), way
        same = (await engine.continuations.retry(run)).run_id
        assert (await engine.work_on(same)).state == "failed"
        keeps = keeps and kind in ("gate", "hold", "policy")
        again = (await engine.continuations.retry(same, version=2)).run_id
        result = await engine.work_on(again)
        assert result.state == ("succeeded" if keeps else "blocked"), result.error
        await certified(engine, same, again)


def covered(kind: str, covers: Any, version: int, handler: Any) -> sk.Workflow:
    """A step `first` that people decide about, and `pay` behind it with this handler."""
    rule = {"name": "big", "steps": ["first"], "then": "hold", "approval": {"covers": covers}}
    made = sk.Workflow("covered", version=version, on_failure="abort", policy=[rule] if kind == "policy" else [])
    match kind:
        case "gate":
            made.approval("first", covers=covers)
        case "hold":
            made.step("first", pay_nothing, hold={"covers": covers})
        case "policy":
            made.step("first", pay_nothing)
        case "flow":
            made.step("first", asks_plan if covers == "plan" else asks_shown, flow={"max_calls": 3})
        case "added":
            made.step("first", adds_plan if covers == "plan" else adds_shown, then={"max_steps": 1})
        case "child":
            made.workflow("first", "covered-child")
    made.step("pay", handler, after="first", effect="write")
    return made


async def test_a_large_output_is_there_for_the_new_run_also_when_the_old_one_is_gone(database_url: str) -> None:
    flow = sk.Workflow("heavy")
    flow.step("large", large)
    flow.step("ship", ship, after="large", inputs={"amount": "${{ size(steps.large.output) }}"})

    async with on(database_url) as engine:
        BROKEN.add("ship")
        run = (await engine.run(flow)).run_id
        again = (await engine.continuations.retry(run)).run_id
        pruned = await prune(engine.transactor, Policy(older_than=0), tenant="default", folder=None)
        assert pruned.deleted == 0, "a live run refers to it"
        BROKEN.clear()
        assert (await engine.work_on(again)).output == "ship done:  400000"
        await certified(engine, again)
        pruned = await prune(engine.transactor, Policy(older_than=0, keep=1), tenant="default", folder=None)
        assert pruned.deleted == 1
        certificate = await engine.certify(again)
        assert certificate.ok
        assert certificate.adopted is not None
        assert certificate.adopted.missing == (run,)
        fork = await engine.continuations.fork(again, "ship")
        assert (await engine.work_on(fork.run_id)).output == "ship done:  400000"
