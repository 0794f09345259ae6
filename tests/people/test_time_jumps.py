"""The clock of the database jumps: rights and deadlines follow the clock, nothing that was decided is decided anew, and
the evidence of a true run is never refused."""

from __future__ import annotations

import io
import zipfile

import stepkeep as sk
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.operations.pipeline.expire import sweep
from tests.people.stage import HOUR, SECOND, Stage, later

ONE = sk.Workflow("one")
ONE.approval("sign", roles=["finance"], not_=["requester"], deadline="6h")


async def in_order(stage: Stage, run: str) -> None:
    """The certificate and the evidence of a run have no findings."""
    assert (await stage.engine.certify(run)).ok
    with zipfile.ZipFile(io.BytesIO(await stage.engine.evidence(run))) as pack:
        assert verify(Pack({name: pack.read(name) for name in pack.namelist()})).findings == []


async def test_a_clock_that_goes_back_reopens_no_gate_that_time_has_settled(stage: Stage) -> None:
    run = await stage.run(ONE)
    stage.engine.store.clock_offset += 7 * HOUR
    await sweep(stage.engine.transactor, actor="sweep")
    assert (await stage.engine.show(run))["run"]["state"] == "failed"
    stage.engine.store.clock_offset -= 7 * HOUR
    await stage.refused("Conflict", run, stage.engine.approve(run, "sign", by="bea"))
    await in_order(stage, run)


async def test_a_jump_past_the_deadline_is_a_late_decision_although_no_sweep_has_come(stage: Stage) -> None:
    run = await stage.run(ONE)
    stage.engine.store.clock_offset += 7 * HOUR
    await stage.refused("Conflict", run, stage.engine.approve(run, by="bea"))
    stage.engine.store.clock_offset -= 2 * HOUR
    await stage.passes(run, "bea")
    await in_order(stage, run)


async def test_rights_with_dates_follow_the_clock_over_a_jump_and_back(stage: Stage) -> None:
    await stage.engine.users.create("yan")
    await stage.engine.users.grant("yan", role="finance", valid_to=later(2))
    await stage.engine.users.delegate("bea", "zoe", valid_to=later(2))
    run = await stage.run(ONE)
    stage.engine.store.clock_offset += 3 * HOUR
    await stage.refused("approvers", run, stage.engine.approve(run, by="yan"))
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="bea"))
    stage.engine.store.clock_offset -= 2 * HOUR
    await stage.passes(run, "yan")
    await in_order(stage, run)


async def test_a_right_that_was_taken_away_stays_away_when_the_clock_goes_back(stage: Stage) -> None:
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    run = await stage.run(ONE)
    stage.engine.store.clock_offset += HOUR
    await stage.engine.users.revoke("bea", role="finance")
    await stage.engine.users.disable("dan")
    await stage.engine.users.undelegate("cyd", "zoe")
    stage.engine.store.clock_offset -= 2 * HOUR
    await stage.refused("approvers", run, stage.engine.approve(run, by="bea"))
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="cyd"))
    await stage.refused("disabled", run, stage.engine.approve(run, by="dan"))
    stage.engine.store.clock_offset += 2 * HOUR + SECOND
    await stage.refused("approvers", run, stage.engine.approve(run, by="bea"))
    await stage.passes(run, "cyd")
    await in_order(stage, run)
