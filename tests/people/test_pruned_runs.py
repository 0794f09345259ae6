"""Retention deletes runs that a later run goes on with. What people did in them still counts in the later run."""

from __future__ import annotations

import stepkeep as sk
from tests.people.stage import Stage, handlers

PREPARED = sk.Workflow("prepared", registry=handlers(), duties=[{"incompatible": ["prepare", "sign"]}])
PREPARED.step("prepare", "people.pay")
PREPARED.approval("sign", roles=["finance"], not_=["requester", "executed:prepare"])

TWO = sk.Workflow("two", duties=[{"distinct": ["first", "second"]}])
TWO.approval("first", roles=["finance"])
TWO.approval("second", roles=["finance"], after="first")


async def gone_on(stage: Stage, run: str, start: str, by: str) -> str:
    """A run that goes on with this one, which is deleted as soon as nothing that lives refers to it."""
    await stage.engine.reject(run, start, by="dan")
    again = (await stage.engine.continuations.rerun(run, start, by=by)).run_id
    await stage.engine.work_on(again)
    return again


async def deleted(stage: Stage, *runs: str) -> None:
    await stage.engine.prune(archive=None, keep=0)
    for run in runs:
        assert [one for one in (await stage.engine.runs())["runs"] if one["id"] == run] == []


async def test_who_executed_a_step_counts_after_the_run_that_executed_it_is_deleted(stage: Stage) -> None:
    first = (await stage.engine.start(PREPARED, by="ann")).run_id
    async with stage.opened(await stage.key("bea", "work", "read")) as bea:
        await bea.work_on(first)
    second = await gone_on(stage, first, "sign", "zoe")
    third = await gone_on(stage, second, "sign", "zoe")
    await stage.engine.reject(third, "sign", by="dan")
    await stage.engine.prune(archive=None, keep=1)
    fourth = (await stage.engine.continuations.rerun(third, "sign", by="zoe")).run_id
    await stage.engine.work_on(fourth)
    await deleted(stage, first, second)
    for name in ("ann", "bea"):
        await stage.refused("maker_checker", fourth, stage.engine.approve(fourth, by=name))
    await stage.passes(fourth, "cyd")


async def test_who_decided_a_gate_counts_after_the_run_in_which_they_did_is_deleted(stage: Stage) -> None:
    await stage.engine.users.delegate("cyd", "bea", open_ended=True)
    first = await stage.run(TWO)
    await stage.engine.approve(first, "first", by="bea", for_="cyd")
    second = await gone_on(stage, first, "second", "zoe")
    third = await gone_on(stage, second, "second", "zoe")
    await stage.engine.reject(third, "second", by="dan")
    await stage.engine.prune(archive=None, keep=1)
    fourth = (await stage.engine.continuations.rerun(third, "second", by="zoe")).run_id
    await deleted(stage, first, second)
    for name in ("bea", "cyd"):
        await stage.refused("distinct", fourth, stage.engine.approve(fourth, "second", by=name))
    await stage.passes(fourth, "ann", step="second")
