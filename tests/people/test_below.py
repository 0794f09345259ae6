"""Duties and adoption see below a step: elements, calls of flows, added steps, and child runs two levels down.

The cases are those of `ways.py` which name a door that only the step itself guarded; the rest are definitions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.evidence.verifier import Pack, verify
from stepkeep.kernel.errors import DefinitionError
from tests.evidence.test_pack import redigest, rename, rules, unzipped
from tests.people.stage import PAYOUT, Stage, handlers
from tests.people.test_generated_ways import play_all
from tests.people.test_ways_round import EYES
from tests.people.ways.play import Case
from tests.suites import in_proof

ADOPTED = [
    Case("requester", "none", kind, wrapper, "start", course, trick)
    for kind, wrapper in (
        ("gate", "child"),
        ("gate", "grandchild"),
        ("gate", "mapped"),
        ("gate", "called"),
        ("hold", "looped"),
        ("exhausted", "child"),
        ("flow", "top"),
        ("then", "top"),
        ("map", "top"),
        ("gate", "top"),
    )
    for course, trick in (("other_fork", "self"), ("own_retry", "case"), ("own_rerun", "self"))
]
BELOW = [
    Case(duty, deed, "gate", "top", "start", "direct", "self")
    for duty, deed in (
        ("executed", "map"),
        ("executed", "loop"),
        ("executed", "child"),
        ("executes", "child"),
        ("decides", "child"),
        ("decides", "flow"),
        ("decides", "then"),
        ("distinct", "map"),
    )
]


@pytest.mark.parametrize("cases", [ADOPTED[::4], BELOW, in_proof(ADOPTED)], ids=["adopted", "below", "all adopted"])
async def test_no_way_below_a_step_is_open(database_url: str, cases: list[Case]) -> None:
    found = await play_all(database_url, "engine", list(enumerate(cases)))
    assert not found, "\n".join(found)


SIGNOFF = sk.Workflow("signoff")
SIGNOFF.approval("sign", roles=["finance"], not_=["requester"])


def after_child(*terms: str, **options: Any) -> sk.Workflow:
    flow = sk.Workflow("outer", registry=handlers(), **options)
    flow.workflow("sub", "signoff")
    flow.approval("close", roles=["finance"], not_=list(terms), after="sub")
    return flow


async def test_the_end_of_a_child_carries_its_persons_into_the_journal_of_its_parent(stage: Stage) -> None:
    await stage.engine.publish(SIGNOFF)
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    outer = after_child("decided:sub", duties=[{"four_eyes": ["sub", "close"]}])
    run = await stage.run(outer)
    [waiting] = (await stage.engine.approvals())["approvals"]
    await stage.engine.approve(waiting["run_id"], by="zoe", for_="bea")
    await stage.engine.work_on(run)
    for name in ("bea", "zoe"):
        rule = "maker_checker" if name == "bea" else "approvers"
        await stage.refused(rule, run, stage.engine.approve(run, by=name))
    lines = [json.loads(line) for line in await stage.engine.log(run)]
    [told] = [one["metadata"]["detail"] for one in lines if "persons" in (one["metadata"].get("detail") or {})]
    assert told["persons"]["decided"] == ["bea", "zoe"]
    assert told["persons"]["lent"] == [["zoe", "bea"]]
    assert len(told["persons"]["shown"]) == 1
    await stage.passes(run, "cyd")
    assert (await stage.engine.certify(run)).ok
    assert await verified(stage, run) == []
    assert "duty_broken" in await verified(stage, run, "cyd", "bea"), "bea decided below"


async def test_a_pack_tells_who_started_an_idle_run(stage: Stage) -> None:
    run = (await stage.engine.start(PAYOUT, start_now=False, by="zoe")).run_id
    await stage.engine.start_idle(run, by="ann")
    await stage.passes(run, "bea", "cyd")
    assert await verified(stage, run) == []
    assert "duty_broken" in await verified(stage, run, "cyd", "ann")


async def test_a_pack_of_four_eyes_tells_a_delegate_from_two_people(stage: Stage) -> None:
    await stage.engine.users.delegate("cyd", "bea", open_ended=True)
    run = await stage.run(EYES)
    await stage.engine.approve(run, "first", by="bea", for_="cyd")
    await stage.passes(run, "dan", step="second")
    assert await verified(stage, run) == []
    assert "duty_broken" in await verified(stage, run, "dan", "bea")


RENEWED = sk.Workflow("renewed", registry=handlers())
RENEWED.step("ask", "people.renewed", flow={"max_calls": 5}, inputs={"times": "${{ input.times }}"})


async def test_a_flow_that_continues_as_new_keeps_its_requester_whatever_the_name(stage: Stage) -> None:
    """The names that the engine gives to the runs of a chain are left out, and no others."""
    for name in ("ann", "parent:zoe"):
        last = (await stage.engine.run(RENEWED, {"times": 3}, by=name)).run_id
        view = (await stage.engine.show(last))["run"]
        assert (view["state"], view["input"], view["asked_before"]) == ("blocked", {"times": 0}, [name])
        await stage.refused("maker_checker", last, stage.engine.approve(last, by=name))
        await stage.engine.approve(last, by="bea")


async def verified(stage: Stage, run: str, before: str = "", after: str = "") -> list[str]:
    """What `verify.py` finds in the pack of a run in which one name stands for another, with a chain in order."""
    files = unzipped(await stage.engine.evidence(run))
    if before:
        rename(files, before, after)
        redigest(files)
    return rules(verify(Pack(files)))


DETACHED = sk.Workflow("detached", duties=[{"incompatible": ["sub", "close"]}])
DETACHED.workflow("sub", "signoff", detached=True)
DETACHED.approval("close", after="sub")
BESIDE = sk.Workflow("beside", duties=[{"distinct": ["sub", "close"]}])
BESIDE.approval("close")
BESIDE.workflow("sub", "signoff")
BOTH = sk.Workflow("both", duties=[{"four_eyes": ["sub", "again"]}])
BOTH.workflow("sub", "signoff")
BOTH.workflow("again", "signoff", after="sub")
EARLY = sk.Workflow("early")
EARLY.approval("close", not_=["executed:sub"])
EARLY.workflow("sub", "signoff")


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        (DETACHED, "nothing waits for its child run"),
        (BESIDE, "`close` does not wait for `sub`"),
        (BOTH, "both are child runs"),
        (EARLY, "`close` does not wait for `sub`"),
    ],
)
def test_a_duty_that_nothing_could_enforce_is_refused_with_its_definition(flow: sk.Workflow, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        flow.definition()


@pytest.mark.parametrize("duty", ["distinct", "four_eyes", "incompatible"])
def test_a_duty_may_name_a_child_that_comes_first(duty: str) -> None:
    assert after_child("executed:sub", "decided:sub", "completed:sub", duties=[{duty: ["sub", "close"]}]).definition()
