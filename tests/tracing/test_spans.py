"""Spans of runs, steps and attempts: one tree in the trace of the caller, whoever wrote which part of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.operations.runs.spans import Spans, Trace, parse_trace, root_of

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """An engine whose spans are kept in memory."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine, self.kept = engine, InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))
        tracer = self.provider.get_tracer("stepkeep.engine")
        engine.transactor.spans = Spans(tracer, engine.store, engine.transactor.plans)

    async def spans(self) -> Sequence[ReadableSpan]:
        assert self.engine.transactor.spans is not None
        await self.engine.transactor.spans.written()
        return self.kept.get_finished_spans()


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [one for one in spans if one.name == name]


async def test_a_run_is_one_tree_in_the_trace_of_its_caller(database_url: str) -> None:
    seen: dict[str, Any] = {}
    tries: list[int] = []

    def first(ctx: sk.Context) -> None:
        seen["first"] = (trace.get_current_span().get_span_context().span_id, ctx.trace)

    async def second(ctx: sk.Context) -> None:
        await asyncio.sleep(0)
        seen["second"] = (trace.get_current_span().get_span_context().span_id, ctx.trace)
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("once")

    registry = Registry()
    registry.register(HandlerSpec(name="first", function=first))
    registry.register(HandlerSpec(name="second", function=second))
    flow = sk.Workflow("traced")
    flow.step("one", "first")
    flow.step("two", "second", after="one", retry={"max_attempts": 3, "initial": "1ms"})

    async with AsyncEngine(database_url, actor="ann", registry=registry) as engine:
        traced = Traced(engine)
        await engine.start_worker(concurrency=4)
        caller = traced.provider.get_tracer("host").start_span("checkout")
        with trace.use_span(caller, end_on_exit=True):
            run = await engine.start(flow)
        await engine.wait(run.run_id)
        spans = await traced.spans()
    [whole] = named(spans, "run traced")
    assert whole.parent is not None
    assert whole.parent.span_id == caller.get_span_context().span_id
    assert {one.context.trace_id for one in spans if one.context} == {caller.get_span_context().trace_id}
    for step, attempts in (("one", 1), ("two", 2)):
        [of_step] = named(spans, f"step {step}")
        assert of_step.parent is not None
        assert of_step.parent.span_id == span_id(whole)
        own = named(spans, f"attempt {step}")
        assert [one.parent.span_id for one in own if one.parent] == [span_id(of_step)] * attempts
        assert of_step.attributes is not None
        assert of_step.attributes["stepkeep.attempts"] == attempts
    failed, good = named(spans, "attempt two")
    assert not failed.status.is_ok
    assert good.status.status_code is not trace.StatusCode.ERROR
    [only] = named(spans, "attempt one")
    assert seen["first"][0] == span_id(only)
    given = parse_trace(seen["first"][1])
    assert given is not None
    assert given[:2] == (caller.get_span_context().trace_id, span_id(only))
    assert seen["second"][0] == span_id(good)
    assert whole.attributes is not None
    assert whole.attributes["stepkeep.state"] == "succeeded"
    assert whole.start_time is not None
    assert whole.end_time is not None
    assert whole.end_time >= max(one.start_time or 0 for one in named(spans, "step two"))


async def test_a_run_without_a_caller_is_a_trace_of_its_own_and_a_gate_has_a_span(database_url: str) -> None:
    flow = sk.Workflow("signed")
    flow.approval("sign")

    async with AsyncEngine(database_url, actor="ann") as engine:
        traced = Traced(engine)
        run = await engine.start(flow)
        await engine.reject(run.run_id, comment="no")
        spans = await traced.spans()
        labels = (await engine.show(run.run_id))["run"]["labels"]
    assert labels["traceparent"] == str(root_of(run.run_id))
    [whole] = named(spans, "run signed")
    assert whole.parent is None
    assert whole.context is not None
    assert f"{whole.context.trace_id:032x}" == run.run_id.replace("-", "")
    assert not whole.status.is_ok
    [step] = named(spans, "step sign")
    assert step.parent is not None
    assert step.parent.span_id == span_id(whole)


def test_only_a_valid_traceparent_is_one() -> None:
    assert parse_trace(CALLER) == Trace(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
    assert str(parse_trace(CALLER)) == CALLER
    for wrong in (
        None,
        "",
        CALLER.upper(),
        f"{CALLER}-more",
        CALLER.replace("00-0af", "ff-0af"),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "x" * 10_000,
    ):
        assert parse_trace(wrong) is None, wrong
