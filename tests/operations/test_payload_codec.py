"""Payloads sealed by a codec: nothing of them is in the database, and everything still works with the key."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from tests.operations.codecs import KeyringCodec
from tests.rows import every_row, raw_bytes
from tests.store.raw import PostgresRaw, SqliteRaw
from tests.workbench import eventually

CANARY = "CANARY-4711"
KEYS = {"k1": b"first key", "k2": b"second key"}
TOKENS: list[str] = []


def double(text: str) -> dict[str, Any]:
    return {"text": text * 2, "size": len(text)}


def grow(text: str) -> str:
    return text * 50_000


async def listen(ctx: sk.Context, text: str) -> Any:
    if ctx.woken_by is None:
        return sk.wait_for("paid", emit=[("asked", {"for": text})])
    ctx.emit("heard", ctx.woken_by.payload)
    return [ctx.woken_by.payload, ctx.input["text"], ctx.outputs["double"]["size"]]


def hand_out(ctx: sk.Context) -> None:
    TOKENS.append(str(ctx.completion_token))


def fail_once(ctx: sk.Context, text: str) -> str:
    if ctx.attempt == 1:
        raise RuntimeError("no")
    return text


def handlers() -> Registry:
    registry = Registry()
    for function in (double, grow, listen, hand_out, fail_once):
        registry.register(HandlerSpec(name=function.__name__, function=function))
    return registry


def workflow() -> sk.Workflow:
    flow = sk.Workflow("sealed", timeout="1h", registry=handlers())
    first = flow.step("double", "double", inputs={"text": flow.input.text}, if_=flow.input.amount > 10)
    flow.step("listen", "listen", inputs={"text": flow.input.text}, if_=first.output["size"] > 3)
    flow.step("fail", "fail_once", inputs={"text": first.output.text}, retry=sk.Retry(max_attempts=2, initial="1ms"))
    flow.step("by-hand", "hand_out", completion={"mode": "manual", "deadline": "1h"}, rules=["output.ok"])
    flow.returns(
        {"heard": "${{ steps.listen.output }}", "by_hand": '${{ steps["by-hand"].output }}', "all": flow.input}
    )
    return flow


def engine_on(url: str, codec: Any = None, **options: Any) -> AsyncEngine:
    return AsyncEngine(url, registry=handlers(), actor="tests", payload_codec=codec, **options)


@asynccontextmanager
async def on(url: str, codec: Any = None, **options: Any) -> AsyncIterator[AsyncEngine]:
    async with engine_on(url, codec, **options) as engine:
        yield engine


async def run_through(engine: AsyncEngine) -> sk.Result:
    TOKENS.clear()
    given = {"text": CANARY, "amount": 11}
    started = await engine.start(workflow(), given, idempotency_key="one")
    again = await engine.start(workflow(), given, idempotency_key="one")
    assert again.run_id == started.run_id
    await engine.send(started.run_id, "paid", {"by": CANARY})
    worker = await engine.start_worker()
    await engine.wait(started.run_id, seconds=60, until_blocked=True)
    await engine.complete(
        started.run_id, "by-hand", token=TOKENS[0], output={"ok": True, "x": CANARY}, claim={"c": CANARY}
    )
    result = await engine.wait(started.run_id, seconds=60)
    await worker.stop(0)
    assert result.state == "succeeded", await engine.show(started.run_id)
    return result


async def test_nothing_of_a_payload_is_in_the_database_and_everything_works_with_the_key(
    database_url: str, tmp_path: Path
) -> None:
    runs: list[str] = []

    async def body(engine: AsyncEngine) -> None:
        result = await run_through(engine)
        assert result.output == {
            "heard": [{"by": CANARY}, CANARY, len(CANARY)],
            "by_hand": {"ok": True, "x": CANARY},
            "all": {"text": CANARY, "amount": 11},
        }
        view = await engine.show(result.run_id)
        assert view["run"]["input"]["text"] == CANARY
        outputs = {step["name"]: step for step in view["steps"]}
        assert outputs["double"]["output"]["text"] == CANARY * 2
        assert outputs["by-hand"]["record"]["claim"] == {"c": CANARY}
        failed = await engine.show(result.run_id, step="fail")
        assert failed["step"]["history"][0]["evidence"]["inputs"] == {"text": CANARY * 2}
        assert (await engine.certify(result.run_id)).ok
        rerun = await engine.rerun(result.run_id)
        assert (await engine.show(rerun.run_id))["run"]["input"]["text"] == CANARY
        await engine.cancel(rerun.run_id)
        runs.append(result.run_id)

    async with on(database_url, KeyringCodec(KEYS)) as engine:
        await body(engine)
    stored = str([row.columns for row in await asyncio.to_thread(every_row, database_url)]) + raw_bytes(
        database_url
    ).decode("latin-1")
    assert CANARY not in stored
    assert '"key":"k2"' in stored

    async with on(database_url) as engine:
        view = await engine.show(runs[0])
        assert (view["run"]["input"], view["run"]["output"]) == ("[encrypted]", "[encrypted]")
        assert {str(step["output"]) for step in view["steps"]} <= {"[encrypted]", "None"}
        assert (await engine.show(runs[0], step="fail"))["step"]["history"][0]["evidence"] == "[encrypted]"
        assert (await engine.certify(runs[0])).ok
        await engine.prune(archive=tmp_path / "archive", keep=0)
    [rest] = (tmp_path / "archive").glob("*.rest.jsonl.gz")
    assert CANARY.encode() not in gzip.decompress(rest.read_bytes())


async def test_a_key_that_is_replaced_still_opens_what_it_sealed(database_url: str) -> None:
    runs: list[str] = []

    async def before(engine: AsyncEngine) -> None:
        runs.append((await run_through(engine)).run_id)

    async def after(engine: AsyncEngine) -> None:
        assert (await engine.show(runs[0]))["run"]["input"]["text"] == CANARY

    async with on(database_url, KeyringCodec({"k1": KEYS["k1"]})) as engine:
        await before(engine)
    async with on(database_url, KeyringCodec(KEYS)) as engine:
        await after(engine)
    async with on(database_url, KeyringCodec({"k2": KEYS["k2"]})) as engine:
        with pytest.raises(sk.PayloadSealed, match="sealed under the key k1"):
            await engine.rerun(runs[0])
        assert (await engine.show(runs[0]))["run"]["input"] == "[encrypted]"


async def test_large_payloads_are_sealed_too_and_a_changed_one_is_found(database_url: str) -> None:
    async with on(database_url, KeyringCodec(KEYS)) as engine:
        flow = sk.Workflow("grow", timeout="1h", registry=handlers())
        first = flow.step("grow", "grow", inputs={"text": flow.input.text})
        flow.step("double", "double", inputs={"text": first.output})
        result = await engine.run(flow, {"text": CANARY})
        assert result.output["size"] == len(CANARY) * 50_000
        raw = SqliteRaw(database_url) if database_url.startswith("sqlite") else PostgresRaw(database_url)
        assert await raw.execute("select 1 from payload_chunks limit 1")
        await raw.execute("delete from payload_chunks")
        with pytest.raises(sk.StepkeepError, match="that it refers to is missing"):
            await engine.show(result.run_id)
    assert CANARY not in str([row.columns for row in await asyncio.to_thread(every_row, database_url)])


async def test_operations_that_need_no_payload_work_without_the_codec(database_url: str) -> None:
    runs: dict[str, str] = {}
    flow = sk.Workflow("gated", timeout="1h", registry=handlers())
    flow.approval("sign-off", deadline="1h")
    flow.step("double", "double", inputs={"text": flow.input.text})
    asking = sk.Workflow("asking", timeout="1h", registry=handlers())
    asking.approval("sign-off", deadline="1h")
    asking.step("double", "double", inputs={"text": "x"}, if_=asking.input.amount > 10)

    async def body(engine: AsyncEngine) -> None:
        for name, one in (("gated", flow), ("asking", asking), ("cancelled", flow)):
            runs[name] = (await engine.start(one, {"text": CANARY, "amount": 11})).run_id

    async def closed(engine: AsyncEngine) -> None:
        await engine.approve(runs["gated"])
        await engine.cancel(runs["cancelled"])
        assert [run["id"] for run in (await engine.runs())["runs"]]
        with pytest.raises(sk.PayloadSealed, match="open the engine with payload_codec="):
            await engine.approve(runs["asking"])  # what follows depends on the input
        assert (await engine.show(runs["asking"]))["run"]["state"] == "blocked"

    async with on(database_url, KeyringCodec(KEYS)) as engine:
        await body(engine)
    async with on(database_url) as engine:
        await closed(engine)
    async with on(database_url, KeyringCodec(KEYS)) as engine:
        await engine.approve(runs["asking"])
        worker = await engine.start_worker()
        for name in ("gated", "asking"):
            assert (await engine.wait(runs[name], seconds=60)).state == "succeeded"
        await worker.stop(0)


async def test_a_worker_without_the_codec_hands_back_and_one_that_has_it_goes_on(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[str] = []
    flow = sk.Workflow("handed", timeout="1h", registry=handlers())
    flow.step("double", "double", inputs={"text": flow.input.text}, retry=sk.Retry(max_attempts=1))

    async def begin(engine: AsyncEngine) -> None:
        runs.append((await engine.start(flow, {"text": CANARY})).run_id)

    async def without(engine: AsyncEngine) -> None:
        async def explained() -> bool:
            return (await engine.explain(runs[0]))["causes"][0]["code"] == "misfit"

        worker = await engine.start_worker()
        await eventually(explained)
        [cause] = (await engine.explain(runs[0]))["causes"]
        assert "hands it back: step double of handed v1: a payload is sealed under the key k2" in cause["sentence"]
        [step] = (await engine.show(runs[0]))["steps"]
        assert (step["state"], step["attempts"], step["history"][0]["state"]) == ("ready", 0, "released")
        await worker.stop(0)

    async with on(database_url, KeyringCodec(KEYS)) as engine:
        await begin(engine)
    async with on(database_url) as engine:
        await without(engine)
    assert "handed back: a payload is sealed under the key k2" in caplog.text
    async with on(database_url, KeyringCodec(KEYS)) as engine:
        assert (await engine.work_on(runs[0])).state == "succeeded"
        assert (await engine.certify(runs[0])).ok


async def test_a_worker_without_the_codec_runs_no_step_of_a_sealed_run_even_if_it_reads_nothing_sealed(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs: dict[str, str] = {}
    flow = sk.Workflow("unread", timeout="1h", registry=handlers())
    flow.step("double", "double", inputs={"text": "x"})

    async def begin(engine: AsyncEngine) -> None:
        runs["sealed"] = (await engine.start(flow, {"text": CANARY})).run_id

    async def without(engine: AsyncEngine) -> None:
        async def explained() -> bool:
            return (await engine.explain(runs["sealed"]))["causes"][0]["code"] == "misfit"

        worker = await engine.start_worker()
        await eventually(explained)
        [cause] = (await engine.explain(runs["sealed"]))["causes"]
        assert "hands it back: step double of unread v1: a payload is sealed under the key k2" in cause["sentence"]
        [step] = (await engine.show(runs["sealed"]))["steps"]
        assert (step["state"], step["attempts"], step["output"]) == ("ready", 0, None)
        await worker.stop(0)

    async def plain(engine: AsyncEngine) -> None:
        """A run that was started without the codec is served as ever."""
        assert (await engine.run(flow, {"text": "plain"})).state == "succeeded"

    async with on(database_url) as engine:
        await plain(engine)
    async with on(database_url, KeyringCodec(KEYS)) as engine:
        await begin(engine)
    async with on(database_url) as engine:
        await plain(engine)
    async with on(database_url) as engine:
        await without(engine)
    assert "step double of unread v1 is handed back: a payload is sealed under the key k2" in caplog.text
    async with on(database_url, KeyringCodec(KEYS)) as engine:
        assert (await engine.work_on(runs["sealed"])).state == "succeeded"


class Broken(KeyringCodec):
    def encode(self, payload: bytes) -> bytes:
        raise RuntimeError(payload.decode())


async def test_a_codec_that_fails_stores_nothing_and_quotes_nothing(database_url: str) -> None:
    async with on(database_url, Broken(KEYS)) as engine:
        with pytest.raises(sk.InvalidInput, match="it raised RuntimeError") as told:
            await engine.start(workflow(), {"text": CANARY, "amount": 1})
        assert CANARY not in str(told.value)


@pytest.mark.parametrize("wrong", [5, KeyringCodec({"a key": b""}), KeyringCodec({"k" * 101: b""})])
def test_what_is_no_codec_is_refused_at_once(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(sk.InvalidInput, match="payload_codec"):
        engine_on(f"sqlite:///{tmp_path}/x.db", wrong)
