"""Pauses of queues and of a tenant: workers claim nothing of them, and go on when they are resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.workbench import TENANT
from tests.worker.bed import Bed, On, step

from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import NotFound
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.limits.pauses import NONE, PauseNote, Pauses, list_pauses, pause_claims, resume_claims
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.status import read_status

ANN = Caller(TENANT, "ann")


def done() -> str:
    return "done"


async def started(bed: Bed) -> str:
    bed.handler("print", done)
    bed.handler("mail", done)
    return await bed.start(step("print", queue="printers"), step("mail", order=1))


def looks(count: int) -> Callable[[], Awaitable[bool]]:
    """True at this many looks: a worker has polled and swept in between."""
    left = count

    async def look() -> bool:
        nonlocal left
        left -= 1
        return left <= 0

    return look


async def test_a_paused_queue_is_left_out_of_claims_until_it_is_resumed(on_store: On) -> None:
    async with on_store() as bed:
        run_id = await started(bed)
        await pause_claims(bed.store, "printers", "out of paper", caller=ANN)
        await bed.worker().run_until(bed.step_is(run_id, 1, StepState.SUCCEEDED))
        assert await bed.states(run_id) == ["ready", "succeeded"]
        told = await explain(bed.transactor, run_id, "print", tenant=TENANT)
        [cause] = told.causes
        assert "queue printers is paused by ann since" in cause.sentence
        assert "out of paper" in cause.sentence
        assert cause.command == ("resume", "--queue", "printers")
        status = (await read_status(bed.transactor, tenant=TENANT))["status"]
        assert [one["queue"] for one in status["paused"]] == ["printers"]
        assert [one["code"] for one in status["queues"]] == ["paused"]
        await resume_claims(bed.store, "printers", caller=ANN)
        assert await bed.finish(run_id) is RunState.SUCCEEDED


async def test_a_worker_notices_the_end_of_a_pause_while_it_runs(on_store: On) -> None:
    async with on_store() as bed:
        run_id = await started(bed)
        await pause_claims(bed.store, None, "", caller=ANN)
        ended, few = bed.ended(run_id), looks(5)

        async def look() -> bool:
            if await few():
                await resume_claims(bed.store, None, caller=ANN)
            else:
                assert await bed.states(run_id) == ["ready", "ready"]
            return await ended()

        await bed.worker().run_until(look)
        assert (await bed.run(run_id)).state is RunState.SUCCEEDED


async def test_a_pause_keeps_its_first_note_and_an_unknown_queue_is_refused(on_store: On) -> None:
    async with on_store() as bed:
        await started(bed)
        await pause_claims(bed.store, "", "first", caller=ANN)
        await pause_claims(bed.store, "", "second", caller=Caller(TENANT, "bea"))
        [one] = (await list_pauses(bed.store, TENANT))["pauses"]
        assert (one["scope"], one["queue"], one["by"], one["reason"]) == ("queue", "", "ann", "first")
        with pytest.raises(NotFound, match="printers"):
            await pause_claims(bed.store, "printer", "", caller=ANN)
        assert (await list_pauses(bed.store, "other"))["pauses"] == []
        assert (await resume_claims(bed.store, "", caller=ANN))["pauses"] == []


def test_which_queues_are_left_out() -> None:
    note = PauseNote("ann", 1)
    known = [
        (number, QueueSpec(kind="python", name="f", group=group)) for number, group in ((1, ""), (2, "a"), (3, "b"))
    ]
    assert NONE.numbers(known) == frozenset()
    assert Pauses(queues={"a": note}).numbers(known) == {2}
    assert Pauses(queues={"": note, "b": note}).numbers(known) == {1, 3}
    assert Pauses(tenant=note).numbers(known) == {1, 2, 3}
