"""A decision after the deadline of its gate does not count, whether a sweep has come or not, on both stores.

The runs are started without a worker, so that no sweep comes but those of the tests.
"""

from __future__ import annotations

import io
import zipfile

import pytest

import stepkeep as sk
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.kernel.errors import Conflict
from stepkeep.operations.pipeline.expire import sweep
from stepkeep_lab.simulation.mutants import MUTANTS
from stepkeep_lab.simulation.mutation import planted
from tests.people.stage import HOUR, Stage

ENDINGS = {"reject": "failed", "approve": "succeeded", "skip": "succeeded"}


def gated(on_deadline: str) -> sk.Workflow:
    workflow = sk.Workflow(f"by-{on_deadline}")
    workflow.approval("sign", roles=["finance"], deadline="1h", on_deadline=on_deadline)
    return workflow


async def late(stage: Stage, workflow: sk.Workflow) -> str:
    """A run whose gate is past its deadline, and no sweep has come."""
    run = (await stage.engine.start(workflow, by="ann")).run_id
    stage.engine.store.clock_offset += HOUR
    return run


async def told_late(stage: Stage, run: str, by: str = "bea") -> None:
    for decide in (stage.engine.approve, stage.engine.reject):
        told = await stage.refused("Conflict", run, decide(run, by=by))
        assert "before its deadline, which has passed" in str(told)
    assert await stage.votes(run) == []


async def test_what_the_gate_says_for_its_deadline_comes_and_no_late_decision(stage: Stage) -> None:
    for on_deadline, state in ENDINGS.items():
        run = await late(stage, gated(on_deadline))
        await told_late(stage, run)
        await sweep(stage.engine.transactor, actor="sweep")
        assert (await stage.engine.show(run))["run"]["state"] == state
        with pytest.raises(Conflict):
            await stage.engine.approve(run, "sign", by="bea")


async def test_a_gate_that_escalates_takes_decisions_again_at_its_next_level(stage: Stage) -> None:
    workflow = sk.Workflow("up")
    workflow.approval(
        "sign",
        roles=["finance"],
        deadline="1h",
        on_deadline="escalate",
        escalate=[{"approvers": ["zoe"], "deadline": "1h"}],
    )
    run = await late(stage, workflow)
    await told_late(stage, run)
    await told_late(stage, run, by="zoe")
    await sweep(stage.engine.transactor, actor="sweep")
    await stage.passes(run, "zoe", step="sign")


async def test_the_first_of_two_decisions_in_time_is_kept_and_the_late_second_is_refused(stage: Stage) -> None:
    workflow = sk.Workflow("two")
    workflow.approval("sign", roles=["finance"], quorum=2, deadline="1h")
    run = (await stage.engine.start(workflow, by="ann")).run_id
    await stage.engine.approve(run, by="bea")
    stage.engine.store.clock_offset += HOUR
    assert (await stage.engine.approve(run, by="bea"))["repeated"], "the same again is told what happened"
    told = await stage.refused("Conflict", run, stage.engine.approve(run, by="cyd"))
    assert "deadline" in str(told)
    shown = await stage.engine.approvals(by="cyd", mine=True)
    assert shown["approvals"] == [], "what may not be decided is not asked of anyone"


async def test_an_evidence_pack_with_a_late_decision_is_refused_by_name(stage: Stage) -> None:
    run = await late(stage, gated("reject"))
    with planted(next(one for one in MUTANTS if one.name == "late-vote")):
        await stage.engine.approve(run, by="bea")
    with zipfile.ZipFile(io.BytesIO(await stage.engine.evidence(run))) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    found = {finding.rule for finding in verify(Pack(files)).findings}
    assert "decision_late" in found
    assert "certificate_refuses" in found, "the judge of the engine finds it too"
