"""Payloads over the inline limit are kept in chunks outside their rows, and are the same values everywhere."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.machine.payloads import PREFIX
from stepkeep.store.rows import CHUNK_BYTES
from tests.rows import every_row
from tests.store.raw import PostgresRaw, SqliteRaw
from tests.suites import in_proof

LARGE = "Grüße " * 500_000
DIGEST = hashlib.sha256(json.dumps({"text": LARGE}, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()
DISGUISED = {"$stepkeep.payload": {"sha256": "0" * 64, "bytes": 5, "kept": "rows"}}


def grow(text: str, times: int = 1) -> dict[str, Any]:
    return {"text": text * times}


def measure(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def look_back(ctx: sk.Context) -> int:
    return len(ctx.outputs["grow"]["text"]) + len(ctx.input["text"])


def in_transaction(ctx: sk.Context, text: str) -> dict[str, Any]:
    return {"text": text}


def handlers() -> Registry:
    registry = Registry()
    for function in (grow, measure, look_back):
        registry.register(HandlerSpec(name=function.__name__, function=function))
    registry.register(HandlerSpec(name="grow_apart", function=grow, mode="process"))
    registry.register(HandlerSpec(name="in_transaction", function=in_transaction, transactional=True))
    return registry


def flow(name: str = "large", **options: Any) -> sk.Workflow:
    return sk.Workflow(name, timeout="1h", registry=handlers(), **options)


@asynccontextmanager
async def on(url: str, **options: Any) -> AsyncIterator[AsyncEngine]:
    async with AsyncEngine(url, registry=handlers(), actor="tests", **options) as engine:
        yield engine


def chunks(url: str) -> list[dict[str, str]]:
    return [row.columns for row in every_row(url) if row.table.endswith("payload_chunks")]


def payload_columns(url: str) -> list[str]:
    return [row.columns[name] for row in every_row(url) for name in ("input", "output", "note") if name in row.columns]


@pytest.mark.parametrize("uses", ["grow", in_proof("grow_apart"), "in_transaction"])
async def test_large_inputs_and_outputs_are_the_same_values_and_stay_out_of_the_rows(
    database_url: str, uses: str
) -> None:
    async with on(database_url) as engine:
        work = flow()
        first = work.step("grow", uses, inputs={"text": work.input.text}, transactional=uses == "in_transaction")
        work.step("measure", "measure", inputs={"value": first.output})
        work.step("back", "look_back")
        work.returns({"whole": first.output, "measured": "${{ steps.measure.output }}", "given": work.input.text})
        result = await engine.run(work, {"text": LARGE})
        assert result.state == "succeeded", result
        assert result.output["whole"] == {"text": LARGE}
        assert result.output["measured"] == measure({"text": LARGE})
        assert result.output["given"] == LARGE
        view = await engine.show(result.run_id)
        told = {
            "sha256": hashlib.sha256(
                json.dumps({"text": LARGE}, ensure_ascii=False, separators=(",", ":")).encode()
            ).hexdigest()
        }
        assert view["run"]["input"]["$stepkeep.payload"].items() >= told.items()
        assert view["steps"][0]["output"]["$stepkeep.payload"].items() >= told.items()
        certificate = await engine.certify(result.run_id)
        assert certificate.payloads is not None
        assert certificate.payloads.ok
    assert max(map(len, await asyncio.to_thread(payload_columns, database_url))) < 1000
    kept = await asyncio.to_thread(chunks, database_url)
    assert len(kept) == -(-len(LARGE.encode()) // CHUNK_BYTES), "the same value of a run is kept once"


async def test_a_result_may_be_larger_than_what_one_transaction_gathers(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.step("grow", "grow", inputs={"text": "x" * 1000, "times": 20_000})
        result = await engine.run(work, {})
        assert len(result.output["text"]) == 20_000_000
    assert len(await asyncio.to_thread(chunks, database_url)) == 20


async def test_a_value_that_looks_like_a_reference_is_not_taken_for_one(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.step("measure", "measure", inputs={"value": "${{ input }}"})
        work.returns({"given": work.input})
        result = await engine.run(work, DISGUISED)
        assert result.output == {"given": DISGUISED}


async def test_a_condition_that_reads_a_large_value_is_refused_with_the_reason(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        first = work.step("grow", "grow", inputs={"text": "x" * 300, "times": 1000})
        work.step("next", "measure", inputs={"value": 1}, if_=first.output.text.size() > 5)
        result = await engine.run(work, {})
        assert result.state == "failed"
        said = "".join(str(step.error) for step in (await engine.show(result.run_id)).steps)
        assert "`steps.grow.output` has 300011 bytes, which are kept outside its row: no condition reads them" in said


async def test_a_rerun_has_the_large_input_of_the_run_before(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.step("measure", "measure", inputs={"value": work.input.text})
        first = await engine.run(work, {"text": LARGE})
        again = await engine.rerun(first.run_id)
        worker = await engine.start_worker()
        second = await engine.wait(again.run_id, seconds=60)
        await worker.stop(0)
        assert (second.state, second.output) == ("succeeded", first.output)


async def test_an_archive_has_the_values_and_pruning_deletes_the_chunks(database_url: str, tmp_path: Path) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.step("grow", "grow", inputs={"text": work.input.text})
        await engine.run(work, {"text": LARGE})
        pruned = await engine.prune(archive=tmp_path / "archive", keep=0)
        assert pruned.deleted == 1
    assert await asyncio.to_thread(chunks, database_url) == []
    [rest] = (tmp_path / "archive").glob("*.rest.jsonl.gz")
    kept = json.loads(gzip.decompress(rest.read_bytes()))
    assert kept["run"]["input"] == {"text": LARGE}
    assert kept["attempts"][0]["output"] == {"text": LARGE}


async def test_a_damaged_or_missing_payload_is_told_with_its_digest(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.step("grow", "grow", inputs={"text": work.input.text})
        result = await engine.run(work, {"text": LARGE})
        raw = SqliteRaw(database_url) if database_url.startswith("sqlite") else PostgresRaw(database_url)
        other = "x'00'" if database_url.startswith("sqlite") else "'x'"
        await raw.execute(f"update payload_chunks set body = {other} where no = 1")
        with pytest.raises(sk.StepkeepError, match="does not have the digest that was recorded"):
            await engine.show(result.run_id)
        await raw.execute("delete from payload_chunks")
        with pytest.raises(sk.StepkeepError, match="that it refers to is missing"):
            await engine.show(result.run_id)


async def test_a_manual_completion_may_bring_a_large_output(database_url: str) -> None:
    tokens: list[str] = []

    def ask(ctx: sk.Context) -> None:
        tokens.append(str(ctx.completion_token))

    async with on(database_url) as engine:
        engine.registry.register(HandlerSpec(name="ask", function=ask))
        work = sk.Workflow("manual", timeout="1h", registry=engine.registry)
        asked = work.step("ask", "ask", completion="manual")
        work.step("measure", "measure", inputs={"value": asked.output})
        started = await engine.start(work)
        worker = await engine.start_worker()
        await engine.wait(started.run_id, seconds=60, until_blocked=True)
        await engine.complete(started.run_id, "ask", token=tokens[0], output={"text": LARGE})
        result = await engine.wait(started.run_id, seconds=60)
        await worker.stop(0)
        assert result.output == measure({"text": LARGE})
    assert max(map(len, await asyncio.to_thread(payload_columns, database_url))) < 1000


async def test_what_is_refused_leaves_no_chunk(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.step("grow", "grow", inputs={"text": work.input.text})
        first = await engine.start(work, {"text": LARGE}, idempotency_key="one")
        again = await engine.start(work, {"text": LARGE}, idempotency_key="one")
        assert (first.run_id, again.created) == (again.run_id, False)
        with pytest.raises(sk.KeyReused):
            await engine.start(work, {"text": LARGE + "!"}, idempotency_key="one")
    assert {chunk["digest"] for chunk in await asyncio.to_thread(chunks, database_url)} == {DIGEST}


async def test_the_bound_is_told_for_inputs_and_for_results(database_url: str) -> None:
    async with on(database_url, max_payload_bytes=1_500_000) as engine:
        work = flow()
        work.step("grow", "grow", inputs={"text": work.input.text, "times": 10})
        with pytest.raises(sk.InvalidInput, match="the input is 2000011 bytes; at most 1500000 fit"):
            await engine.start(work, {"text": "x" * 2_000_000})
        result = await engine.run(work, {"text": "x" * 200_000})
        assert "2000011 bytes of JSON, and 1500000 are the limit" in str(result.error)


async def test_a_message_is_bounded_and_one_that_is_too_large_is_refused_with_the_bound(database_url: str) -> None:
    async with on(database_url) as engine:
        work = flow()
        work.wait("paid", "paid", deadline="1h")
        run_id = (await engine.start(work, {"text": ""})).run_id
        said = "the payload of the message is 262145 bytes; at most 262144 fit. Keep it elsewhere and pass its name"
        with pytest.raises(sk.InvalidInput, match=said):
            await engine.send(run_id, "paid", "x" * (262_145 - len('""')))
        assert (await engine.show(run_id))["run"]["state"] == "blocked"
        await engine.send(run_id, "paid", "x" * (262_144 - len('""')))
        assert (await engine.show(run_id))["run"]["state"] == "succeeded"


async def test_a_store_of_the_users_keeps_payloads_by_digest(database_url: str, tmp_path: Path) -> None:
    runs: list[str] = []

    async def body(engine: AsyncEngine) -> None:
        work = flow()
        first = work.step("grow", "grow", inputs={"text": work.input.text, "times": 2})
        work.step("measure", "measure", inputs={"value": first.output})
        work.returns(first.output)
        result = await engine.run(work, {"text": LARGE})
        assert result.output == {"text": LARGE * 2}
        runs.append(result.run_id)

    async with on(database_url, payload_store=sk.DirectoryStore(tmp_path / "payloads")) as engine:
        await body(engine)
    assert await asyncio.to_thread(chunks, database_url) == []
    files = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == sorted(
        hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    )
    assert len(files) == 2

    async with on(database_url) as engine:
        with pytest.raises(sk.InvalidInput, match="open the engine with payload_store="):
            await engine.show(runs[0])


@pytest.mark.parametrize("wrong", [{"payload_store": 5}, {"max_payload_bytes": 0}, {"max_payload_bytes": "1 MiB"}])
def test_options_that_make_no_sense_are_refused_at_once(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(sk.InvalidInput):
        AsyncEngine(f"sqlite:///{tmp_path}/x.db", **wrong)


def test_references_begin_as_the_kernel_says() -> None:
    assert json.dumps(DISGUISED, separators=(",", ":")).encode().startswith(PREFIX)
