"""Which code ran an attempt: the digest of the handler's source, in the record of each attempt."""

from __future__ import annotations

from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.errors import NotFound
from stepkeep.operations.runs.run_differences import compare_attempts
from stepkeep.worker.code import code_of


async def first(ctx: sk.Context) -> int:
    return 1


async def second(ctx: sk.Context) -> int:
    return 2


def test_the_digest_is_that_of_the_source_and_differs_where_it_does() -> None:
    one, other = code_of(first), code_of(second)
    assert (len(one.digest), one.module) == (16, "tests.worker.test_code")
    assert one.digest != other.digest
    assert code_of(first) is one


def test_a_function_without_a_source_file_has_the_digest_of_its_code() -> None:
    def made(text: str) -> Any:
        scope: dict[str, Any] = {}
        exec(text, scope)
        return scope["f"]

    same = [code_of(made("def f():\n    return 1")).digest for _ in range(2)]
    assert same[0] == same[1] != ""
    assert code_of(made("def f():\n    return 2")).digest != same[0]


async def test_each_attempt_says_which_code_ran_it(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        flow = sk.Workflow("coded")
        flow.step("one", first)
        run = (await engine.run(flow)).run_id
    async with AsyncEngine(database_url) as engine:
        [step] = (await engine.show(run))["steps"]
        [attempt] = step["history"]
        assert attempt["code"]["digest"] == code_of(first).digest
        assert attempt["code"]["module"] == "tests.worker.test_code"


async def test_two_attempts_of_a_step_are_compared(database_url: str) -> None:
    async with AsyncEngine(database_url) as engine:
        flow, tries = sk.Workflow("tried"), []

        async def fails(ctx: sk.Context) -> int:
            tries.append(ctx.attempt)
            if len(tries) < 3:
                raise ConnectionError(f"no route {len(tries)}")
            return 3

        flow.step("call", fails, retry=sk.Retry(max_attempts=3, initial="1ms"))
        run = (await engine.run(flow)).run_id
    async with AsyncEngine(database_url) as engine:
        view = await engine.show(run, step="call")
        told = compare_attempts(view, (1, 2))
        assert (told["same"], told["same_code"]) == (False, True)
        differing = {one["field"]: one for one in told["differences"]}
        assert differing["error"]["first"].endswith("no route 1")
        assert differing["error"]["second"].endswith("no route 2")
        assert compare_attempts(view)["attempts"] == [2, 3]
        with pytest.raises(NotFound, match="It has: 1, 2, 3"):
            compare_attempts(view, (1, 9))
