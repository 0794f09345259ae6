"""What a handler says and no row can hold fails its step at once, by name, on every store; its neighbours go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.worker.bed import TENANT, On, step

from stepkeep.kernel.definition import Retry
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Waiting
from stepkeep.kernel.machine.states import AttemptState, Category, RunState
from stepkeep.worker.answers import wait_for
from stepkeep.worker.attempts.payloads import Unstorable
from stepkeep.worker.context import Context


def emits(*said: Any) -> Callable[[Any], Any]:
    def handler(ctx: Any) -> None:
        for name in said:
            ctx.emit(name)

    return handler


NO_VALUE = "is a record of the engine"

UNFIT: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a wait for a number": (lambda ctx: wait_for(5), "wait_for: the name of the event must be text"),
    "a wait for nothing": (lambda ctx: wait_for(""), "wait_for: the name of the event must have 1 to 255"),
    "a wait for NUL": (lambda ctx: wait_for("a\x00b"), "wait_for: the name of the event must have 1 to 255"),
    "a wait for a book": (lambda ctx: wait_for("x" * 100_000), "wait_for: the name of the event must have 1 to 255"),
    "an event called 5": (emits(5), "the name of an event to emit must be text"),
    "an event without a name": (emits(""), "the name of an event to emit must have 1 to 255"),
    "an event with NUL": (emits("a\x00b"), "the name of an event to emit must have 1 to 255"),
    "an event with a long name": (emits("x" * 100_000), "the name of an event to emit must have 1 to 255"),
    "a wait that emits a number": (lambda ctx: wait_for("paid", emit=[(5, 1)]), "the name of an event to emit"),
    "a wait that emits NUL": (lambda ctx: wait_for("paid", emit=["\x00"]), "the name of an event to emit"),
    "a wait that emits three": (lambda ctx: wait_for("paid", emit=[("a", 1, 2)]), "an event to emit is a name"),
    "an outcome for a number": (lambda ctx: Waiting(event=5), NO_VALUE),  # type: ignore[arg-type]
    "an outcome without end": (lambda ctx: Waiting(event="x", timeout=10**30), NO_VALUE),
    "an outcome that is no JSON": (lambda ctx: Completed(output=b"{"), NO_VALUE),
    "an outcome with a bad name": (lambda ctx: Completed(output=b"1", emit=(Emitted("\n", b"1"),)), NO_VALUE),
    "a failure forever": (lambda ctx: Failed(category=Category.UNKNOWN, error="x", delay=10**30), NO_VALUE),
    "a failure with NUL": (lambda ctx: Failed(category=Category.UNKNOWN, error="\x00"), NO_VALUE),
}


async def test_a_step_that_says_what_no_row_can_hold_fails_once_with_the_reason(on_each: On) -> None:
    async with on_each() as bed:
        runs = {}
        for number, (what, (handler, _)) in enumerate(UNFIT.items()):
            bed.handler(f"unfit-{number}", handler)
            runs[what] = await bed.start(
                step("say", uses=f"unfit-{number}", retry=Retry(max_attempts=3)), name=f"flow-{number}"
            )
        bed.handler("fine", lambda: 1)
        fine = [await bed.start(step("fine"), name=f"fine-{number}") for number in range(5)]
        assert await bed.finish(*runs.values(), *fine) is RunState.FAILED
        for run_id in fine:
            assert await bed.states(run_id) == ["succeeded"]
        for what, run_id in runs.items():
            [attempt] = await bed.attempts(run_id)
            assert (attempt.state, attempt.category) == (AttemptState.FAILED, Category.VALIDATION), what
            assert UNFIT[what][1] in str(attempt.error), what
            assert await bed.store.read_outbox(TENANT, run_id) == []


def test_events_are_bounded_in_sum_and_in_number_where_they_are_emitted() -> None:
    context = Context(run_id="r1", workflow="orders", version=1, step="charge")
    for _ in range(16):
        context.emit("told", "x" * 250_000)
    with pytest.raises(Unstorable, match="may hold 4194304 bytes of JSON in sum"):
        context.emit("told", "x" * 250_000)
    assert len(context.emitted) == 16
    talkative = Context(run_id="r1", workflow="orders", version=1, step="charge")
    for _ in range(1000):
        talkative.emit("told")
    with pytest.raises(Unstorable, match="at most 1000 events"):
        talkative.emit("told")


async def test_a_handler_that_emits_too_much_fails_and_nothing_of_it_is_written(on_each: On) -> None:
    async with on_each() as bed:

        def shouts(ctx: Any) -> None:
            for _ in range(900):
                ctx.emit("told", "x" * 200_000)

        def waits(ctx: Any) -> Any:
            ctx.emit("told", "x" * 250_000)
            return wait_for("paid", emit=[("told", "x" * 250_000)] * 17)

        bed.handler("shouts", shouts)
        bed.handler("waits", waits)
        runs = [await bed.start(step(name), name=name) for name in ("shouts", "waits")]
        await bed.finish(*runs)
        for run_id in runs:
            [attempt] = await bed.attempts(run_id)
            assert attempt.category is Category.VALIDATION
            assert "bytes of JSON in sum" in str(attempt.error)
            assert await bed.store.read_outbox(TENANT, run_id) == []


async def test_a_handler_may_catch_the_refusal_and_go_on(on_each: On) -> None:
    async with on_each() as bed:

        def careful(ctx: Any) -> str:
            try:
                ctx.emit("a\x00b")
            except InvalidInput:
                ctx.emit("a b", 1)
            return "done"

        bed.handler("careful", careful)
        run_id = await bed.start(step("careful"))
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert [one.name for one in await bed.store.read_outbox(TENANT, run_id)] == ["a b"]
