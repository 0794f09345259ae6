"""A completion token completes one activation of one step once, in time; each other use is refused by its own error."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import Conflict, Refused, TokenExpired, TokenUsed, WrongToken
from stepkeep.operations.people.people import Completed
from stepkeep.operations.pipeline.expire import sweep
from tests.people.stage import HOUR, TENANT, TOKENS, Stage, handlers

TWO = sk.Workflow("two", registry=handlers())
TWO.step("note", "people.note", completion={"mode": "manual", "deadline": "1h"})
TWO.step("other", "people.note", completion="manual", after="note")

TRIES: list[str] = []


def second_try(ctx: sk.Context) -> str:
    TRIES.append(str(ctx.completion_token))
    if ctx.attempt == 1:
        raise RuntimeError("not yet")
    return "noted"


def own_handlers() -> Registry:
    registry = handlers()
    registry.register(HandlerSpec(name="people.second", function=second_try))
    return registry


AGAIN = sk.Workflow("again", registry=own_handlers())
AGAIN.step("note", "people.second", completion="manual", retry=sk.Retry(max_attempts=2, initial="1ms"))


async def opened(stage: Stage) -> tuple[str, str]:
    """A run whose manual step is open, and the token of that step."""
    run = await stage.run(TWO)
    return run, TOKENS[-1]


async def refused(kind: type[Refused], stage: Stage, run: str, token: str, step: str = "note", **more: Any) -> Refused:
    """Present a token that must be refused by exactly this error, and change nothing."""
    before = (await stage.engine.store.read_run(TENANT, run)).run.seq  # type: ignore[union-attr]
    with pytest.raises(Refused) as told:
        await stage.engine.complete(run, step, token=token, by="bea", **more)
    assert type(told.value) is kind, told.value
    assert token not in str(told.value) or not token
    assert (await stage.engine.store.read_run(TENANT, run)).run.seq == before  # type: ignore[union-attr]
    return told.value


async def test_a_token_is_useless_twice(stage: Stage) -> None:
    run, token = await opened(stage)
    assert not (await stage.engine.complete(run, "note", token=token, by="bea"))["repeated"]
    again = await stage.engine.complete(run, "note", token=token, by="bea")
    assert (again["repeated"], again["by"]) == (True, "bea"), "the same again is told what happened"
    for outcome in ("Failed", "Cancelled"):
        told = await refused(TokenUsed, stage, run, token, outcome=outcome)
        assert isinstance(told, Conflict)
        assert (told.winner or {})["by"] == "bea"


async def test_a_token_is_useless_late_also_before_a_sweep(stage: Stage) -> None:
    run, token = await opened(stage)
    stage.engine.store.clock_offset += 2 * HOUR
    await refused(TokenExpired, stage, run, token)
    await sweep(stage.engine.transactor, actor="sweep")
    told = await refused(TokenExpired, stage, run, token)
    assert "not completed before its deadline" in str(told)


async def test_a_token_is_useless_for_another_step_and_another_run(stage: Stage) -> None:
    run, token = await opened(stage)
    other, _ = await opened(stage)
    await refused(WrongToken, stage, other, token)
    await stage.engine.complete(run, "note", token=token, by="bea")
    await stage.engine.work_on(run)
    assert TOKENS[-1] != token
    await refused(WrongToken, stage, run, token, "other")
    await stage.engine.complete(run, "other", token=TOKENS[-1], by="bea")


async def test_a_token_is_useless_for_another_activation(stage: Stage) -> None:
    """The token of the attempt before, and the one before a new one was issued."""
    first = (await stage.engine.start(AGAIN, by="ann")).run_id
    async with AsyncEngine(stage.url, tenant=TENANT, actor="root", registry=own_handlers()) as engine:
        await engine.work_on(first)
    old, new = TRIES[-2:]
    assert old != new
    await refused(WrongToken, stage, first, old)
    latest = (await stage.engine.reissue_token(first, "note", reason="lost", by="bea"))["token"]
    await refused(WrongToken, stage, first, new)
    assert (await stage.engine.complete(first, "note", token=latest, by="bea"))["outcome"] == "Succeeded"


async def test_what_the_database_has_of_a_token_completes_nothing(stage: Stage) -> None:
    run, token = await opened(stage)
    [step, *_] = await stage.engine.store.read_steps(TENANT, run)
    assert step.note is not None
    stored = step.note.token
    assert stored == hashlib.sha256(token.encode()).hexdigest()
    await refused(WrongToken, stage, run, stored)
    await refused(WrongToken, stage, run, "")
    whole = await stage.engine.store.read_whole(TENANT, [run])
    assert token not in repr(whole), "neither rows nor journal have it"
    assert token.encode() not in b"".join(await stage.engine.log(run))


async def test_of_fifty_parallel_uses_of_a_token_one_wins(stage: Stage) -> None:
    run, token = await opened(stage)
    outcomes = ["Succeeded", "Failed", "Cancelled", "Succeeded", "Failed"] * 10
    async with AsyncEngine(stage.url, tenant=TENANT, actor="root") as second:
        told = await asyncio.gather(
            *(
                engine.complete(run, "note", token=token, outcome=outcome, by=f"p{place}")
                for place, outcome in enumerate(outcomes)
                for engine in ((stage.engine, second)[place % 2],)
            ),
            return_exceptions=True,
        )
    [winner] = [one for one in told if isinstance(one, Completed) and not one.repeated]
    for outcome, one in zip(outcomes, told, strict=True):
        if isinstance(one, Completed):
            assert (outcome, one["outcome"], one["by"]) == (winner["outcome"], winner["outcome"], winner["by"])
        else:
            assert type(one) is TokenUsed, one
            assert (one.winner or {})["by"] == winner["by"]
    signalled = [
        entry for entry in await stage.engine.store.read_journal(TENANT, run) if b'"completion_signalled"' in entry.body
    ]
    assert len(signalled) == 1
