"""What handlers write to streams of their run, on every kind of handler, and what is recorded of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import partial
from typing import Any

import pytest
from tests.operations.codecs import KeyringCodec
from tests.workbench import wait_until

import stepkeep as sk
from stepkeep.store.rows import StreamRow


def rows_of(engine: sk.Engine, run_id: str) -> list[StreamRow]:
    return engine._call(engine._core.store.streams.read("default", run_id))


def ends_of(engine: sk.Engine, run_id: str) -> list[dict[str, Any]]:
    """The ends of streams in the log, in order."""
    lines = [json.loads(line) for line in engine.log(run_id)]
    told = [
        line["metadata"]["detail"]["streams"]
        for line in lines
        if "streams" in line.get("metadata", {}).get("detail", {})
    ]
    return [one for place, one in enumerate(told) if not place or one != told[place - 1]]


def digest(rows: list[StreamRow]) -> str:
    return hashlib.sha256(b"".join(one.body.encode() + b"\n" for one in rows)).hexdigest()


def test_the_chunks_of_a_handler_are_stored_in_order_and_the_report_has_their_digest(database_url: str) -> None:
    workflow = sk.Workflow("talk")

    async def on_the_loop(ctx: sk.Context) -> None:
        tokens = ctx.stream("tokens")
        for text in ("Hel", "lo", " ✓"):
            tokens.write(text)
        ctx.stream("facts").write({"n": 1})

    def in_a_thread(ctx: sk.Context) -> str | None:
        ctx.stream("tokens").write("from a thread")
        return ctx.stream("tokens").position

    first = workflow.step("first", on_the_loop)
    workflow.step("second", in_a_thread, after=first)
    with sk.Engine(database_url) as engine:
        result = engine.run(workflow)
        assert result.output == "1.0"
        rows = rows_of(engine, result.id)
        assert [(one.no, one.name, one.fence, one.start, json.loads(one.body)) for one in rows] == [
            (0, "facts", 1, 0, [{"n": 1}]),
            (0, "tokens", 1, 0, ["Hel", "lo", " ✓"]),
            (1, "tokens", 1, 0, ["from a thread"]),
        ]
        first_ends, second_ends = ends_of(engine, result.id)
        assert first_ends["tokens"] == {"chunks": 3, "bytes": len(rows[1].body.encode()), "sha256": digest(rows[1:2])}
        assert list(second_ends) == ["tokens"]
        assert engine.certify(result.id).ok


def test_an_attempt_replaces_what_earlier_ones_wrote_or_goes_on_after_a_chunk(database_url: str) -> None:
    workflow = sk.Workflow("again")

    async def talk(ctx: sk.Context) -> None:
        after = {1: None, 2: None, 3: "2.0", 4: "last"}[ctx.attempt]
        tokens = ctx.stream("tokens", after=after)
        for number in range(3):
            tokens.write(f"{ctx.attempt}{number}")
        if ctx.attempt < 4:
            raise ConnectionError("later")

    workflow.step("talk", talk, retry=sk.Retry(max_attempts=4, initial="1ms", max="1ms"))
    with sk.Engine(database_url) as engine:
        result = engine.run(workflow)
        rows = rows_of(engine, result.id)
        assert [(one.fence, one.after_fence, one.after_place) for one in rows] == [
            (1, None, None),
            (2, None, None),
            (3, 2, 0),
            (4, 3, 2),
        ]
        assert len(ends_of(engine, result.id)) == 4
        assert engine.certify(result.id).ok


def test_chunks_of_a_long_attempt_are_stored_while_it_runs(database_url: str) -> None:
    workflow, seen = sk.Workflow("long"), list[int]()

    def talk(ctx: sk.Context) -> None:
        tokens = ctx.stream("tokens")
        for number in range(3):
            tokens.write(number)
            wait_until(partial(is_stored, ctx.run_id, number))
            seen.append(number)
        tokens.write("end")

    def is_stored(run_id: str, number: int) -> bool:
        return len(rows_of(engine, run_id)) > number

    workflow.step("talk", talk)
    with sk.Engine(database_url) as engine:
        result = engine.run(workflow)
        rows = rows_of(engine, result.id)
        assert (seen, [(one.start, json.loads(one.body)) for one in rows]) == (
            [0, 1, 2],
            [(0, [0]), (1, [1]), (2, [2]), (3, ["end"])],
        )
        [ends] = ends_of(engine, result.id)
        assert ends["tokens"] == {"chunks": 4, "bytes": sum(len(one.body) for one in rows), "sha256": digest(rows)}


def test_what_a_flow_writes_is_stored_once_however_often_it_is_replayed(database_url: str, monkeypatch: Any) -> None:
    from stepkeep.worker.flows import keeper

    @sk.step("streams.double")
    def double(n: int) -> int:
        return 2 * n

    @sk.flow("streams.flow")
    async def talk(ctx: sk.FlowContext) -> int:
        tokens, total = ctx.stream("tokens"), 0
        for number in range(4):
            tokens.write(f"asks {number}")
            total += await ctx.step(double, number)
        tokens.write("done")
        return total

    for kept in (keeper.MOST_KEPT, 0):
        monkeypatch.setattr(keeper.FlowKeeper.__init__, "__defaults__", (kept,))
        with sk.Engine(database_url) as engine:
            result = engine.run(talk)
            rows = rows_of(engine, result.id)
            written = [chunk for one in rows for chunk in json.loads(one.body)]
            assert (result.output, written) == (12, ["asks 0", "asks 1", "asks 2", "asks 3", "done"])
            assert all(one.after_fence for one in rows[1:]), "each part goes on where the one before ended"
            assert engine.certify(result.id).ok


def test_a_transactional_step_writes_with_its_report(database_url: str) -> None:
    workflow = sk.Workflow("writes")

    async def write(ctx: sk.Context) -> None:
        ctx.stream("tokens").write("a")
        await asyncio.sleep(0.2)
        ctx.stream("tokens").write("b")

    workflow.step("write", sk.step("streams.write", transactional=True)(write))
    with sk.Engine(database_url) as engine:
        result = engine.run(workflow)
        assert [json.loads(one.body) for one in rows_of(engine, result.id)] == [["a", "b"]]


def test_chunks_are_sealed_and_their_digest_is_that_of_the_sealed_ones(database_url: str) -> None:
    workflow = sk.Workflow("secretly")

    async def talk(ctx: sk.Context) -> None:
        ctx.stream("tokens").write("CANARY")

    workflow.step("talk", talk)
    with sk.Engine(database_url, payload_codec=KeyringCodec({"k1": b"key"})) as engine:
        result = engine.run(workflow)
        [row] = rows_of(engine, result.id)
        assert "CANARY" not in row.body
        assert ends_of(engine, result.id)[0]["tokens"]["sha256"] == digest([row])


@pytest.mark.parametrize(
    ("name", "after", "chunk", "said"),
    [
        ("", None, "a", "the name of a stream"),
        ("a/b", None, "a", "the name of a stream"),
        ("log", None, "a", "is the stream of ctx.logger"),
        ("a", "1.0", "a", "no position of an earlier attempt"),
        ("a", "x", "a", "such as"),
        ("a", None, "x" * 70_000, "65536 are the limit"),
        ("a", None, float("nan"), "cannot be stored"),
        ("a", None, object(), "cannot be stored"),
        (7, None, "a", "the name of a stream"),
    ],
)
def test_hostile_writes_are_refused_in_words(name: Any, after: Any, chunk: Any, said: str) -> None:
    ctx = sk.Context(run_id="r1", workflow="w", version=1, step="s")
    with pytest.raises((sk.InvalidInput, ValueError), match=said):
        ctx.stream(name, after=after).write(chunk)


def test_what_handlers_log_is_a_stream_that_is_kept_by_default(database_url: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "hunter-of-secrets")
    workflow = sk.Workflow("logs")

    def talk(ctx: sk.Context) -> None:
        ctx.logger.warning("attempt %d with hunter-of-secrets", ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionError("later")
        for number in range(300):
            ctx.logger.warning("line %d", number)

    workflow.step("talk", talk, retry=sk.Retry(max_attempts=2, initial="1ms", max="1ms"))
    with sk.Engine(database_url) as engine:
        result = engine.run(workflow)
        lines = [chunk for piece in engine.tail(result.id, "log") for chunk in piece.chunks]
        assert lines[0].keys() == {"at", "level", "text"}
        texts = [line["text"] for line in lines]
        assert (texts[0], texts[1]) == ("attempt 1 with ***", "attempt 2 with ***"), (
            "what earlier attempts logged stays"
        )
        assert (len(texts), texts[-1]) == (1 + 201, "(further lines are not kept: an attempt keeps 200)")
        assert lines[0]["level"] == "WARNING"
        first, _ = engine.show(result.id, step="talk").step.attempts
        assert first.evidence["log"] == [f"WARNING {text}" for text in texts[:1]]
        assert engine.certify(result.id).ok


def test_a_flow_logs_once_however_often_it_is_replayed(database_url: str, monkeypatch: Any) -> None:
    from stepkeep.worker.flows import keeper

    @sk.step("streams.again")
    def again(n: int) -> int:
        return n

    @sk.flow("streams.logging")
    async def talk(ctx: sk.FlowContext) -> None:
        for number in range(3):
            ctx.logger.warning("asks %d", number)
            await ctx.step(again, number)

    monkeypatch.setattr(keeper.FlowKeeper.__init__, "__defaults__", (0,))
    with sk.Engine(database_url) as engine:
        run = engine.run(talk).id
        lines = [chunk["text"] for piece in engine.streams.read(run, "log").pieces for chunk in piece.chunks]
        assert lines == ["asks 0", "asks 1", "asks 2"]


def test_a_tenant_without_room_writes_no_more_and_the_handler_is_told(database_url: str) -> None:
    workflow, met = sk.Workflow("full"), list[str]()

    def talk(ctx: sk.Context) -> None:
        tokens = ctx.stream("tokens")
        for number in range(2_000):
            try:
                tokens.write("x" * 1_000)
                if number % 20 == 0:
                    wait_until(lambda: ctx.streams.size_bytes == 0)
            except sk.QuotaExceeded as problem:
                met.append(str(problem))
                return

    workflow.step("talk", talk)
    with sk.Engine(database_url) as engine:
        engine.tenants.set_quotas("default", max_stream_bytes=100_000)
        result = engine.run(workflow)
        assert result.state == "succeeded"
        assert "max_stream_bytes" in met[0]
        [one] = engine.streams.list(result.id).streams
        assert one.bytes <= 100_000
        assert engine.certify(result.id).ok, "the journal has what is stored"


def test_a_run_writes_no_more_than_it_may(database_url: str, monkeypatch: Any) -> None:
    from stepkeep.operations.streams import writing

    monkeypatch.setattr(writing, "MOST_RUN_BYTES", 5_000)
    workflow, met = sk.Workflow("large"), list[str]()

    def talk(ctx: sk.Context) -> None:
        for _ in range(100):
            try:
                ctx.stream("tokens").write("x" * 1_000)
                wait_until(lambda: ctx.streams.size_bytes == 0)
            except sk.InvalidInput as problem:
                met.append(str(problem))
                return

    workflow.step("talk", talk)
    with sk.Engine(database_url) as engine:
        result = engine.run(workflow)
        assert "no room" in met[0]
        assert engine.streams.list(result.id).streams[0].bytes <= 5_000
        assert engine.certify(result.id).ok
