"""Conditions are evaluated while a transaction holds locks: one that is too much work fails its step, and no more."""

from __future__ import annotations

import pytest
from tests.worker.bed import On, step

from stepkeep.kernel.machine.states import Category, RunState, StepState

GIVEN = {"a": "a" * 460_000, "b": "a" * 230_000 + "b"}
HEAVY = " || ".join(["input.a.contains(input.b)"] * 13)


@pytest.mark.parametrize("store", ["on_store", "on_postgres"])
async def test_a_condition_that_is_too_much_work_fails_its_step(store: str, request: pytest.FixtureRequest) -> None:
    on: On = request.getfixturevalue(store)

    async with on() as bed:
        bed.handler("work", lambda: 1)
        run_id = await bed.start(
            step("first", uses="work"),
            step("second", "first", order=1, uses="work", condition=HEAVY),
            given=GIVEN,
        )
        at_once = await bed.start(step("only", uses="work", condition=HEAVY), given=GIVEN, name="other")
        await bed.finish(run_id, at_once)
        for each, no in ((run_id, 1), (at_once, 0)):
            assert (await bed.run(each)).state is RunState.FAILED
            row = (await bed.steps(each))[no]
            assert (row.state, row.category) == (StepState.FAILED, Category.VALIDATION)
            assert "too much work for a condition" in (row.error or "")
        light = await bed.start(step("light", uses="work", condition="size(input.a) > 3"), given=GIVEN, name="third")
        await bed.finish(light)
        assert (await bed.run(light)).state is RunState.SUCCEEDED


async def test_inputs_that_are_too_much_work_fail_their_attempt_for_good(on_store: On) -> None:
    async with on_store() as bed:
        bed.handler("work", lambda found: found)
        run_id = await bed.start(step("a", uses="work", inputs={"found": f"${{{{ {HEAVY} }}}}"}), given=GIVEN)
        await bed.finish(run_id)
        (attempt,) = await bed.attempts(run_id)
        assert "too much work" in (attempt.error or "")
        assert (await bed.run(run_id)).category is Category.VALIDATION
