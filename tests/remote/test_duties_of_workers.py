"""Duties hold for the owners of workers: over HTTP, in the log that the judge reads, and in an evidence pack."""

from __future__ import annotations

import io
import zipfile

import pytest

import stepkeep as sk
from stepkeep.evidence.verifier import Pack, verify
from tests.api.stage import Stage, on
from tests.remote.test_remote_worker import Plain, start
from tests.remote.test_work_limits import as_

PAYOUT = sk.Workflow("payout", duties=[{"incompatible": ["prepare", "pay"]}])
PAYOUT.step("prepare", "remote.double")
PAYOUT.step("pay", "remote.double", after="prepare")

MAPPED = sk.Workflow("mapped", duties=[{"incompatible": ["prepare", "each"]}])
MAPPED.step("prepare", "remote.double")
MAPPED.step("each", "remote.double", map="${{ [1, 2] }}", after="prepare")

SIGNED = sk.Workflow("signed")
SIGNED.approval("sign", not_=["executed:pay"])
SIGNED.step("pay", "remote.double", after="sign")


async def test_a_remote_worker_is_given_no_step_that_its_owner_may_not_execute(database_url: str) -> None:
    async with on(database_url) as stage:
        await stage.publish(PAYOUT, MAPPED)
        bea, cyd = [await stage.key("work", owner=name) for name in ("bea", "cyd")]
        async with stage.serving(await stage.key()) as client, as_(client, bea) as hers, as_(client, cyd) as other:
            worker, second = await Plain.registered(hers), await Plain.registered(other, instance="fedcba9876543210")
            for workflow, wanted in (("payout", ["pay"]), ("mapped", ["each[0]", "each[1]"])):
                run = await start(client, workflow)
                [first] = await worker.claim("remote.double")
                chain = {"slots": 4, "handlers": ["remote.double"]}
                answer = await worker.report(first, {"kind": "completed", "output": 1}, claim=chain)
                assert answer["claims"] == []
                assert await worker.claim("remote.double") == []
                why = (await client.get(f"/runs/{run}/explain")).json()["causes"]
                assert "workers of bea are passed over: bea acted on prepare (incompatible)" in str(why)
                claims = await second.claim("remote.double")
                assert [claim["step"] for claim in claims] == wanted
                for claim in claims:
                    await second.report(claim, {"kind": "completed", "output": 1})
                found = (await client.get(f"/runs/{run}/result", params={"wait": 20})).json()
                assert found["state"] == "succeeded"
                assert await certified(stage, run) == []


async def certified(stage: Stage, run: str) -> list[str]:
    """What the judge and the verifier of an evidence pack find."""
    async with stage.host() as host:
        judged = await host.certify(run)
        pack = await host.evidence(run)
    with zipfile.ZipFile(io.BytesIO(pack)) as archive:
        report = verify(Pack({name: archive.read(name) for name in archive.namelist()}))
    return [*map(str, judged.canonical), *map(str, report.findings)]


@pytest.mark.parametrize("workflow", [PAYOUT, MAPPED, SIGNED], ids=lambda one: str(one.name))
async def test_a_log_in_which_one_owner_did_both_is_a_finding(
    workflow: sk.Workflow, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check at the claim is taken out: the judge and the verifier of a pack find it without the kernel."""

    monkeypatch.setattr("stepkeep.kernel.decide.execution.claim_objection", lambda *given: None)
    monkeypatch.setattr("stepkeep.kernel.people.may_act.claim_objection", lambda *given: None)
    async with on(database_url) as stage:
        await stage.publish(workflow)
        async with stage.serving(await stage.key()) as client:
            async with as_(client, await stage.key("work", "decide", owner="bea")) as hers:
                worker = await Plain.registered(hers)
                run = await start(client, str(workflow.name))
                if workflow is SIGNED:
                    assert (await hers.post(f"/runs/{run}/approve", json={})).status_code == 200
                while claims := await worker.claim("remote.double"):
                    for claim in claims:
                        await worker.report(claim, {"kind": "completed", "output": 1})
            assert (await client.get(f"/runs/{run}/result")).json()["state"] == "succeeded"
        said = str(await certified(stage, run))
        assert "bea" in said
        assert "rules out" in said or "against its `not`" in said
        assert "duty_broken" in said
