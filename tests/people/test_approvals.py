"""`engine.approvals` lists what people are asked for, and says to each person what they may decide and why not."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import stepkeep as sk
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.operations.pipeline.expire import sweep
from tests.people.stage import HOUR, PAYOUT, TOKENS, Stage, handlers

TOLD = sk.Workflow("told")
TOLD.approval("sign", prompt="Pay out?", facts={"sum": "${{ input.sum }}"}, roles=["finance"], quorum=2)

STEEP = sk.Workflow("steep")
STEEP.approval(
    "sign", roles=["law"], quorum=2, deadline="1h", on_deadline="escalate", escalate=[{"roles": ["finance"]}]
)

NOTED = sk.Workflow("noted", duties=[{"incompatible": ["sign", "note"]}], registry=handlers())
NOTED.approval("sign", approvers=["bea"])
NOTED.step("note", "people.note", completion="manual", after="sign")

HELD = sk.Workflow("held", duties=[{"incompatible": ["sign", "ship"]}], registry=handlers())
HELD.approval("sign", roles=["finance"])
HELD.step("ship", "people.fail", after="sign", on_exhausted="hold")


async def seen(stage: Stage, by: str, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await stage.engine.approvals(by=by, **asked))["approvals"]
    return found


async def test_a_gate_is_listed_with_what_it_asks_and_what_was_decided(stage: Stage) -> None:
    run = (await stage.engine.run(TOLD, {"sum": 40}, by="ann")).run_id
    await stage.engine.approve(run, by="bea")
    [one] = await seen(stage, "cyd")
    assert (one["run_id"], one["step"], one["workflow"], one["asked_by"]) == (run, "sign", "told", ["ann"])
    assert (one["prompt"], one["facts"], one["level"], one["late"]) == ("Pay out?", {"sum": 40}, 0, False)
    assert (one["needs"], one["counted"]) == (
        {"approved": 1, "of": "role finance"},
        {"approved": 1, "rejected": 0},
    )
    assert [(vote["by"], vote["decision"]) for vote in one["votes"]] == [("bea", "approved")]
    assert (one["may_decide"], one["refusal"]) == (True, None)
    assert one["command"] == f"stepkeep approve {run} sign"


async def test_each_person_is_told_why_they_may_not(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.approve(run, by="bea")
    await stage.engine.users.create("robot", kind="service")
    await stage.engine.users.disable("dan")
    expected = {
        "ann": "maker_checker",
        "bea": "one_decision",
        "zoe": "approvers",
        "robot": "service",
        "dan": "disabled",
    }
    for name, rule in expected.items():
        [one] = await seen(stage, name)
        assert (one["may_decide"], one["command"], one["refusal"]["rule"]) == (False, None, rule), name
        assert await seen(stage, name, mine=True) == []
        # The listing and the decision say the same.
        if name != "bea":
            refused = await stage.refused(rule, run, stage.engine.approve(run, by=name))
            assert str(refused) == one["refusal"]["message"]
    assert [one["run_id"] for one in await seen(stage, "cyd", mine=True)] == [run]


async def test_a_delegate_sees_what_the_delegator_may_decide(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    assert [one["run_id"] for one in await seen(stage, "zoe", mine=True)] == [run]
    await stage.engine.approve(run, by="zoe", for_="bea")
    [one] = await seen(stage, "bea")
    assert one["refusal"]["rule"] == "one_decision"


async def test_a_gate_is_late_after_its_deadline_and_after_an_escalation(stage: Stage) -> None:
    steep, plain = await stage.run(STEEP), await stage.run()
    assert await seen(stage, "bea", late=True) == []
    stage.engine.store.clock_offset += 2 * HOUR
    assert [one["run_id"] for one in await seen(stage, "bea", late=True)] == [steep]
    await sweep(stage.engine.transactor, actor="sweep")
    [one] = await seen(stage, "bea", late=True)
    assert (one["run_id"], one["level"], one["until"], one["may_decide"]) == (steep, 1, None, True)
    assert {one["run_id"] for one in await seen(stage, "bea")} == {steep, plain}


async def test_gates_are_listed_page_by_page_and_closed_ones_not_at_all(stage: Stage) -> None:
    runs = [await stage.run(by="ann" if number % 2 else "bea") for number in range(5)]
    found: list[str] = []
    after = None
    for _ in range(4):
        page = await stage.engine.approvals(limit=2, after=after, by="cyd")
        found += [one["run_id"] for one in page["approvals"]]
        after = page["next"]
        if page["is_complete"]:
            break
    assert (found, after) == (runs, None)
    mine = await stage.engine.approvals(mine=True, by="bea", limit=2)
    assert [one["run_id"] for one in mine["approvals"]] == [runs[1], runs[3]]
    await stage.engine.cancel(runs[0], by="ann")
    await stage.engine.quarantine(runs[1], reason="odd")
    left = await seen(stage, "cyd")
    assert [one["run_id"] for one in left] == runs[1:]
    assert left[0]["refusal"]["rule"] == "quarantined"
    for wrong in ("", "x", f"{runs[0]}/", f"{runs[0]}/x", "\x00"):
        with pytest.raises(InvalidInput):
            await stage.engine.approvals(after=wrong)
    for limit in (0, 10_001, True, "5"):
        with pytest.raises(InvalidInput):
            await stage.engine.approvals(limit=limit)  # type: ignore[arg-type]


async def test_a_key_without_the_scope_decide_sees_gates_that_it_may_not_decide(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("bea", "read")) as bea:
        [one] = (await bea.approvals())["approvals"]
        assert (one["run_id"], one["refusal"]["rule"]) == (run, "scope")
        with pytest.raises(NotAllowed, match="vouch"):
            await bea.approvals(by="cyd")
    async with stage.opened(await stage.key("bea", "decide")) as bea:
        with pytest.raises(NotAllowed, match="scope read"):
            await bea.approvals()


async def test_explain_names_the_people_of_a_gate_and_why_others_may_not(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.approve(run, by="bea")
    await stage.engine.users.revoke("dan", role="finance")
    [cause] = (await stage.engine.explain(run))["causes"]
    people = cause["people"]
    assert (people["of"], people["needs"], people["may"]) == ("role finance", 1, ["cyd"])
    assert {one["person"]: one["rule"] for one in people["may_not"]} == {
        "ann": "maker_checker",
        "bea": "one_decision",
        "dan": "approvers",
    }
    assert "It needs 1 more of 2 decisions." in cause["sentence"]
    assert "cyd may decide it. ann may not: ann asked for the run." in cause["sentence"]
    assert "dan may not: does not have that any more." in cause["sentence"]
    assert (await stage.engine.explain(run, "sign"))["causes"][0]["people"] == people


async def test_explain_names_the_people_of_manual_completions_and_holds(stage: Stage) -> None:
    run = await stage.run(NOTED)
    await stage.engine.approve(run, by="bea")
    await stage.engine.work_on(run)
    [cause] = (await stage.engine.explain(run))["causes"]
    assert [(one["person"], one["rule"]) for one in cause["people"]["may_not"]] == [("bea", "incompatible")]
    assert "Anyone else than bea may complete it. bea may not: bea acted on sign." in cause["sentence"]
    await stage.refused("incompatible", run, stage.engine.complete(run, "note", token=TOKENS[-1], by="bea"))
    held = await stage.run(HELD)
    await stage.engine.approve(held, by="bea")
    await stage.engine.work_on(held)
    [cause] = (await stage.engine.explain(held))["causes"]
    assert (cause["code"], cause["people"]["may_not"][0]["person"]) == ("decision", "bea")
    assert "Anyone else than bea may decide it." in cause["sentence"]


async def test_explain_says_that_nobody_may_decide(stage: Stage) -> None:
    run = await stage.run(STEEP)
    [cause] = (await stage.engine.explain(run))["causes"]
    assert (cause["people"]["may"], cause["people"]["needs"]) == ([], 2)
    assert "No registered person may decide it now." in cause["sentence"]


async def test_a_member_through_a_group_is_named(stage: Stage) -> None:
    await stage.engine.users.grant("auditors", role="finance", to_group=True)
    await stage.engine.users.grant("zoe", group="auditors")
    run = await stage.run(PAYOUT)
    [cause] = (await stage.engine.explain(run))["causes"]
    assert cause["people"]["may"] == ["bea", "cyd", "dan", "zoe"]


SIGNED_CHILD = """
workflow: signed-child
steps: [{name: below, approval: {}}]
"""
EVERYWHERE = """
workflow: everywhere
policy: [{name: big, steps: [paid, each], then: hold, approval: {}}]
steps:
  - {name: plain, approval: {}}
  - {name: paid, uses: approvals.note, with: {text: x}}
  - {name: each, map: {over: '${{ input.n }}'}, uses: approvals.note, with: {text: x}}
  - {name: grown, uses: approvals.plan, then: {max_steps: 2}}
  - {name: child, workflow: signed-child}
  - {name: children, map: {over: '${{ input.n }}'}, workflow: signed-child}
"""
sk.step("approvals.note")(lambda text: text)
sk.step("approvals.plan")(lambda: sk.then({"name": "added", "approval": {"prompt": "Added?"}}))


@sk.flow
async def asking(ctx: Any) -> Any:
    return await ctx.gate("Send it?", facts={"sum": "7"})


def test_every_open_gate_is_listed_wherever_it_stands(database_url: str, tmp_path: Path) -> None:
    """Of plans, flows, steps that a handler added, policies and children; each by the command that is shown."""
    with sk.Engine(database_url) as engine:
        for name, text in (("child", SIGNED_CHILD), ("parent", EVERYWHERE)):
            (tmp_path / f"{name}.yaml").write_text(text)
            engine.publish(tmp_path / f"{name}.yaml")
        parent = engine.run("everywhere", {"n": [1, 2]}, check=False).id
        engine.run(asking, {}, check=False)
        seen: dict[tuple[str, str], Any] = {}
        while (found := engine.approvals(by="bea", limit=1000))["approvals"]:
            assert found["is_complete"]
            for one in found["approvals"]:
                assert one["command"] == f"stepkeep approve {one['run_id']} {shlex.quote(one['step'])}"
                engine.approve(one["run_id"], one["step"], by="bea")
                seen[one["workflow"], one["step"]] = one
            for run in {one["run_id"] for one in found["approvals"]} | {parent}:
                engine.work_on(run)
        assert sorted(seen) == [
            ("asking", "asking[0]"),
            *(("everywhere", name) for name in ("each", "grown[0]", "paid", "plain")),
            ("signed-child", "below"),
        ]
        assert seen["asking", "asking[0]"]["prompt"] == "Send it?"
        assert engine.result(parent).state == "succeeded"
