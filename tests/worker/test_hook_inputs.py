"""A hook whose inputs are declared is called with inputs that fit, or not at all (003 §4: before dispatch)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worker.bed import Bed, On, step

from stepkeep.kernel.definition import Effect, Handler, Retry, Undo
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.worker.answers import fail

SCHEMA = {"type": "object", "required": ["invoice"], "properties": {"invoice": {"type": "string"}}}
ONCE = Retry(max_attempts=1)


def undo_of(inputs: Any) -> Undo:
    return Undo(executor=Handler(name="reverse"), inputs=inputs, input_schema=SCHEMA, retry=ONCE)


async def roll_back(bed: Bed, hook: Any, inputs: Any) -> str:
    """A run that wrote an invoice and then failed, so that the invoice is reversed."""
    bed.handler("write", lambda: {"invoice": 42})
    bed.handler("break", lambda: fail("no"))
    bed.handler("reverse", hook)
    steps = (step("write", undo=undo_of(inputs), effect=Effect.WRITE), step("break", "write", order=1, retry=ONCE))
    run_id = await bed.start(*steps, compensate_always=True)
    await bed.finish(run_id)
    return run_id


@pytest.mark.parametrize("takes_inputs", [True, False], ids=["with parameters", "without parameters"])
async def test_inputs_that_do_not_fit_fail_the_hook_for_good_and_it_is_never_called(
    on_store: On, takes_inputs: bool
) -> None:
    called: list[Any] = []

    def hook(invoice: Any = None) -> None:
        called.append(invoice)

    async with on_store() as bed:
        reverse = hook if takes_inputs else lambda: called.append(None)
        run_id = await roll_back(bed, reverse, '${{ steps["write"].output }}')
        row = (await bed.steps(run_id))[2]
        assert (row.state, row.category) == (StepState.FAILED, Category.VALIDATION)
        assert row.error is not None
        assert "invoice: the value is not of type" in row.error
        assert "42" not in row.error
        assert (await bed.run(run_id)).state is RunState.FAILED
    assert called == []


async def test_inputs_that_fit_reach_the_hook(on_store: On) -> None:
    called: list[str] = []

    async with on_store() as bed:
        inputs = {"invoice": '${{ string(steps["write"].output.invoice) }}'}
        run_id = await roll_back(bed, lambda invoice: called.append(invoice), inputs)
        assert (await bed.run(run_id)).state is RunState.ROLLED_BACK
    assert called == ["42"]


async def test_a_schema_that_cannot_be_used_fails_the_hook_and_nothing_else(on_store: On) -> None:
    """Front ends refuse such a schema; a definition made by hand may still hold one."""

    async with on_store() as bed:
        bed.handler("write", lambda: 1)
        bed.handler("break", lambda: fail("no"))
        bed.handler("reverse", lambda: None)
        hook = Undo(executor=Handler(name="reverse"), input_schema={"$ref": "file:///etc/hostname"}, retry=ONCE)
        run_id = await bed.start(
            step("write", undo=hook), step("break", "write", order=1, retry=ONCE), compensate_always=True
        )
        await bed.finish(run_id)
        row = (await bed.steps(run_id))[2]
        assert row.state is StepState.FAILED
        assert row.error is not None
        assert "Retrieval is disabled" in row.error
