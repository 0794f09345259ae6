"""A gate that nobody may decide is given other approvers or fails, on record; and explain names no refused command."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.engine import AsyncEngine
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.operations.access import Scope
from tests.evidence.test_pack import unzipped
from tests.people.stage import TOKENS, Stage, handlers

LONE = sk.Workflow("lone", registry=handlers())
LONE.approval("sign", roles=["law"], not_=["requester"])
LONE.step("pay", "people.pay", after="sign")

RULE = {"name": "big", "steps": ["pay"], "then": "hold", "approval": {"roles": ["law"], "not": ["requester"]}}
HELD = sk.Workflow("lone-hold", registry=handlers(), policy=[RULE])
HELD.step("pay", "people.pay")


async def proved(stage: Stage, run: str) -> None:
    """The judge and the verifier of an evidence pack have nothing to say against the record."""
    certificate = await stage.engine.certify(run)
    assert certificate.ok, certificate.page()
    report = verify(Pack(unzipped(await stage.engine.evidence(run))), [])
    assert report.ok, report.findings


@pytest.mark.parametrize(("workflow", "step"), [(LONE, "sign"), (HELD, "pay")])
@pytest.mark.parametrize("fails", [False, True])
async def test_an_operator_unblocks_a_gate_that_nobody_may_decide(
    stage: Stage, workflow: sk.Workflow, step: str, fails: bool
) -> None:
    run = await stage.run(workflow)
    [cause] = (await stage.engine.explain(run))["causes"]
    assert cause["code"] == "nobody"
    assert cause["command"] == f"stepkeep reassign {run} {step} --to NAME --reason TEXT"
    reassign = stage.engine.interventions.reassign
    for name in ("ann", "bea", "zoe"):
        with pytest.raises(sk.NotAllowed):
            await stage.engine.approve(run, step, by=name)
    for by in ("ann", "ANN", "аnn"):
        await stage.refused("maker_checker", run, reassign(run, step, to=["zoe"], reason="away", by=by))
        await stage.refused("maker_checker", run, reassign(run, step, fail=True, reason="away", by=by))
    await stage.refused("maker_checker", run, reassign(run, step, to=["ann"], reason="away", by="bea"))
    await stage.refused("maker_checker", run, reassign(run, step, to=["Bea"], reason="away", by="bea"))
    async with stage.opened(await stage.key("bea", "read", "decide", "start")) as bea:
        await stage.refused("scope", run, bea.interventions.reassign(run, step, to=["zoe"], reason="away"))
    async with stage.opened(await stage.key("bea", "read", "operate")) as bea:
        said = await bea.interventions.reassign(
            run, step, reason="law has left", **({"fail": True} if fails else {"to": ["zoe"]})
        )
        assert said["by"] == "bea"
    if not fails:
        await stage.refused("Conflict", run, reassign(run, step, to=["cyd"], reason="again", by="dan"))
        assert [one["step"] for one in (await stage.engine.approvals(by="zoe", mine=True))["approvals"]] == [step]
        await stage.refused("approvers", run, stage.engine.approve(run, step, by="bea"))
        await stage.engine.approve(run, step, by="zoe")
    result = await stage.engine.work_on(run)
    assert result.state == ("failed" if fails else "succeeded")
    await proved(stage, run)


async def test_a_gate_that_a_person_may_decide_with_a_key_is_not_taken_from_them(stage: Stage) -> None:
    """Also where the tenant refuses names without a key."""
    run = await stage.run()
    key = await stage.key("zoe", "read", "operate", "admin")
    await stage.engine.tenants.create("acme", vouching="refused")
    async with stage.opened(key) as zoe:
        told = await stage.refused("Conflict", run, zoe.interventions.reassign(run, "sign", fail=True, reason="x"))
        assert "may decide the gate" in str(told)
        assert [one["code"] for one in (await zoe.explain(run))["causes"]] == ["approval"]


# -- commands that explain prints --------------------------------------------------------------------------------------
NOTED = sk.Workflow("noted-by-hand", registry=handlers())
NOTED.step("note", "people.note", completion="manual")
STUCK = sk.Workflow("stuck-hold", registry=handlers(), duties=[{"incompatible": ["sign", "ship"]}])
STUCK.approval("sign", approvers=["bea"])
STUCK.step("ship", "people.fail", after="sign", on_exhausted="hold", retry=sk.Retry(max_attempts=1))
SIGNED = sk.Workflow("signed", registry=handlers())
SIGNED.approval("sign", roles=["finance"], not_=["requester"])
WAITS = sk.Workflow("waits", registry=handlers())
WAITS.wait("paid", "paid")
PLAIN = sk.Workflow("plain-pay", registry=handlers())
PLAIN.step("pay", "people.pay")


async def idle(stage: Stage) -> str:
    return (await stage.engine.start(PLAIN, by="ann", start_now=False)).run_id


async def paused(stage: Stage) -> str:
    run = (await stage.engine.start(PLAIN, by="ann")).run_id
    await stage.engine.pause(run)
    return run


async def aside(stage: Stage) -> str:
    run = (await stage.engine.start(PLAIN, by="ann")).run_id
    await stage.engine.quarantine(run, reason="look at it")
    return run


async def holding(stage: Stage) -> str:
    run = await stage.run(STUCK)
    await stage.engine.approve(run, by="bea")
    await stage.engine.work_on(run)
    return run


async def unclaimed(stage: Stage) -> str:
    return (await stage.engine.start(PLAIN, by="ann")).run_id


async def queue_paused(stage: Stage) -> str:
    await stage.engine.pauses.pause_tenant(reason="a holiday")
    return (await stage.engine.start(PLAIN, by="ann")).run_id


SCENES: dict[str, tuple[Callable[[Stage], Awaitable[str]], str]] = {
    "not_started": (idle, "start"),
    "paused": (paused, "resume"),
    "quarantined": (aside, "quarantine"),
    "decision": (holding, "decide"),
    "no_worker": (unclaimed, "worker"),
    "tenant_paused": (queue_paused, "resume"),
    "approval": (lambda stage: stage.run(SIGNED), "approve"),
    "nobody": (lambda stage: stage.run(LONE), "reassign"),
    "completion": (lambda stage: stage.run(NOTED), "complete"),
    "event": (lambda stage: stage.run(WAITS), "send"),
}
READERS = ("ann", "bea", "zoe", *(f"{name}:{scope}" for name in ("ann", "bea", "zoe") for scope in Scope))


async def obey(engine: AsyncEngine, command: str) -> None:
    """Do what a printed command does, with the words that a reader fills in."""
    words = shlex.split(command)[1:]
    by = words[words.index("--by") + 1] if "--by" in words else None
    match words:
        case ["approve", run, step, *_]:
            await engine.approve(run, step, by=by)
        case ["decide", run, step, choice, *_]:
            await engine.decide(run, step, choice, by=by)
        case ["complete", run, step, *_]:
            await engine.complete(run, step, token=TOKENS[-1], by=by)
        case ["reassign", run, step, *_]:
            await engine.interventions.reassign(run, step, to=["dan"], reason="TEXT")
        case ["cancel", run]:
            await engine.cancel(run)
        case ["send", run, event, *_]:
            await engine.send(run, event, {})
        case ["start", "--run", run]:
            await engine.start_idle(run)
        case ["quarantine", "--release", run, *_]:
            await engine.release(run, reason="TEXT")
        case ["resume", "--all"]:
            await engine.pauses.resume_tenant()
        case ["resume", run]:
            await engine.resume(run)
        case ["worker", *_]:
            await engine.access.admit("start_worker")
        case _:
            raise AssertionError(command)


@pytest.mark.parametrize("scene", SCENES)
async def test_explain_prints_no_command_that_would_be_refused(stage: Stage, scene: str) -> None:
    """For each cause, by each person without a key and with a key of each scope: it works, or there is none."""
    make, verb = SCENES[scene]

    printed, run = set(), None
    for reader in READERS:
        run = run or await make(stage)
        name, _, scope = reader.partition(":")
        scopes = {"read", *([scope] if scope else [])}
        engine: Any = (
            stage.opened(await stage.key(name, *scopes))
            if scope
            else AsyncEngine(stage.url, tenant="acme", actor=name, registry=handlers())
        )
        async with engine:
            commands = [one["command"] for one in (await engine.explain(run))["causes"] if one["command"]]
            for command in commands:
                await obey(engine, command)
                printed.add(shlex.split(command)[1])
        run = None if commands else run
    assert verb in printed
