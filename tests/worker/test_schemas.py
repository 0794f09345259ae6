"""Schemas of a step: inputs are checked before its handler runs, and the output before it counts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worker.bed import On, step
from tests.worker.process_handlers import double

from stepkeep.kernel.definition import Retry
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.worker.answers import wait_for

SCHEMA = {"type": "object", "required": ["invoice"], "properties": {"invoice": {"type": "string"}}}
PATIENT = Retry(max_attempts=5, initial=0, on=tuple(Category))
"""A policy that would retry every category."""


async def test_inputs_that_do_not_fit_fail_the_step_once_and_its_handler_is_never_called(on_each: On) -> None:
    called: list[Any] = []

    async with on_each() as bed:
        bed.handler("write", lambda invoice: called.append(invoice))
        bed.handler("none", lambda: called.append(None))
        for number, uses in enumerate(("write", "none")):
            write = step("write", uses=uses, inputs="${{ input }}", input_schema=SCHEMA, retry=PATIENT)
            run_id = await bed.start(write, given={"invoice": 4711}, name=f"flow-{number}")
            assert await bed.finish(run_id) is RunState.FAILED
            row = (await bed.steps(run_id))[0]
            assert (row.state, row.category, row.attempts) == (StepState.FAILED, Category.VALIDATION, 1)
            assert row.error is not None
            assert 'invoice: the value is not of type "string"' in row.error
            assert "(a whole number; schema: properties.invoice.type)" in row.error
            assert "4711" not in row.error
    assert called == []


async def test_an_output_that_does_not_fit_fails_the_step_once_and_does_not_count(on_each: On) -> None:
    async with on_each() as bed:

        async def coroutine() -> dict[str, int]:
            return {"invoice": 4711}

        bed.handler("thread", lambda: {"invoice": 4711})
        bed.handler("coroutine", coroutine)
        bed.handler("nothing", lambda: None)
        for uses in ("thread", "coroutine", "nothing"):
            write = step("write", uses=uses, output_schema=SCHEMA, retry=PATIENT)
            run_id = await bed.start(write, step("after", "write", order=1, uses="nothing"), name=uses)
            assert await bed.finish(run_id) is RunState.FAILED
            row, after = (await bed.steps(run_id))[0], (await bed.steps(run_id))[1]
            assert (row.state, row.category, row.attempts) == (StepState.FAILED, Category.VALIDATION, 1)
            assert row.error is not None
            assert row.error.startswith("the output of write does not fit its schema: ")
            assert "4711" not in row.error
            assert after.state is StepState.CANCELLED
            assert await bed.output(run_id, 0) is None


async def test_what_fits_runs_and_counts(on_each: On) -> None:
    async with on_each() as bed:
        bed.handler("write", lambda invoice: {"invoice": invoice})
        write = step("write", inputs="${{ input }}", input_schema=SCHEMA, output_schema=SCHEMA)
        run_id = await bed.start(write, given={"invoice": "i-1"})
        assert await bed.finish(run_id) is RunState.SUCCEEDED
        assert await bed.output(run_id, 0) == {"invoice": "i-1"}


async def test_the_output_of_a_handler_in_its_own_process_is_checked_too(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("double", double, mode="process")
        run_id = await bed.start(step("double", inputs={"n": 2}, output_schema={"type": "array"}, retry=PATIENT))
        assert await bed.finish(run_id) is RunState.FAILED
        row = (await bed.steps(run_id))[0]
        assert (row.category, row.attempts) == (Category.VALIDATION, 1)


@pytest.mark.parametrize("fits", [True, False])
async def test_a_transactional_step_commits_only_with_an_output_that_fits(on_each: On, fits: bool) -> None:
    async with on_each() as bed:
        bed.handler("write", lambda: 1, transactional=True)
        schema = {"type": "integer" if fits else "string"}
        run_id = await bed.start(step("write", transactional=True, output_schema=schema, retry=PATIENT))
        assert await bed.finish(run_id) is (RunState.SUCCEEDED if fits else RunState.FAILED)
        row = (await bed.steps(run_id))[0]
        assert row.category is (None if fits else Category.VALIDATION)


async def test_a_wait_is_no_output_and_is_not_checked(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("ask", lambda ctx: {"invoice": "i-1"} if ctx.woken_by else wait_for("answer", timeout="50ms"))
        run_id = await bed.start(step("ask", output_schema=SCHEMA))
        assert await bed.finish(run_id) is RunState.SUCCEEDED


async def test_a_value_too_deep_to_be_checked_fails_the_step_and_nothing_else(on_store: On) -> None:
    async with on_store() as bed:

        def deep() -> Any:
            value: Any = 1
            for _ in range(400):
                value = [value]
            return value

        bed.handler("deep", deep)
        schema = {"type": "array", "items": {"$ref": "#"}}
        run_id = await bed.start(step("deep", output_schema=schema, retry=PATIENT))
        assert await bed.finish(run_id) is RunState.FAILED
        assert (await bed.steps(run_id))[0].attempts == 1
