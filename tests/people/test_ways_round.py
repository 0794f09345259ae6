"""Ways to get round separation of duties, each tried and refused on both stores. A refusal changes nothing.

Those that vary a way to start, a place of the gate, a way to go on or an identity are tables in `ways`.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import stepkeep as sk
from stepkeep.definition.python.registry import HandlerSpec
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.decide.decision import MOST_REQUESTERS, asked_json, asked_names, check_requesters, requesters_of
from stepkeep.kernel.errors import InvalidInput, NotAllowed
from stepkeep.operations import access
from stepkeep.operations.access import parse_key
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.triggers.sweep import TriggerSweep
from tests.people.stage import HOUR, PAYOUT, SECOND, TENANT, Stage, handlers, later

ANYONE = sk.Workflow("anyone")
ANYONE.approval("sign", quorum=2, not_=["requester"])

NAMED = sk.Workflow("named")
NAMED.approval("sign", approvers=["hal"])


EYES = sk.Workflow("eyes", duties=[{"four_eyes": ["first", "second"]}])
EYES.approval("first", roles=["finance"])
EYES.approval("second", roles=["finance"], after="first")


# -- keys and names ----------------------------------------------------------------------------------------------------
async def test_a_name_of_the_requester_in_other_letters_is_the_requester(stage: Stage) -> None:
    """Case, Unicode form and look-alike letters; at a gate that takes any name, where the host vouches."""
    run = await stage.run(ANYONE)
    unseen = ("ann\ufe0f", "ann\u034f", "ann\u3164", "ann\u115f", "ann ", "a nn", "ann\u0307")
    for name in ("Ann", "ANN", "ａｎｎ", "аnn", "aｎn", "ɑnn", "ánn", *unseen):
        await stage.refused("maker_checker", run, stage.engine.approve(run, by=name))
    accented = await stage.run(ANYONE, by="jos\u00e9")
    await stage.refused("maker_checker", accented, stage.engine.approve(accented, by="jose\u0301"))
    await stage.passes(run, "bea", "cyd")


async def test_one_name_in_two_spellings_is_one_vote(stage: Stage) -> None:
    run = await stage.run(ANYONE)
    await stage.engine.approve(run, by="jos\u00e9")
    for name in ("jose\u0301", "JOS\u00c9"):
        await stage.refused("one_decision", run, stage.engine.approve(run, by=name))
    await stage.passes(run, "cyd")


async def test_a_name_like_that_of_a_person_with_the_role_has_no_role(stage: Stage) -> None:
    run = await stage.run()
    for name in ("Bea", "bea\u0301", "ｂea"):
        await stage.refused("approvers", run, stage.engine.approve(run, by=name))


async def test_a_second_account_under_a_name_that_looks_the_same_is_not_made(stage: Stage) -> None:
    run = await stage.run()
    for name, error in (("Ann", "Conflict"), ("ａｎｎ", "InvalidInput"), ("аnn", "InvalidInput")):
        await stage.refused(error, run, stage.engine.users.create(name))


async def test_a_key_without_the_scope_vouch_names_no_other_person(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("ann", "decide", "start", "operate")) as ann:
        await stage.refused("key_owner", run, ann.approve(run, by="bea"))
        await stage.refused("key_owner", run, ann.start(PAYOUT, by="bea"))


async def test_a_key_without_the_scope_decide_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("bea", "read", "start", "complete", "operate", "work", "admin")) as bea:
        await stage.refused("scope", run, bea.approve(run))
        await stage.refused("scope", run, bea.decide(run, "sign", "skip"))


async def test_a_revoked_key_of_an_open_program_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    key = await stage.key("bea", "decide", "read")
    async with stage.opened(key) as bea:
        await bea.show(run)
        await stage.engine.keys.revoke(parse_key(key).id)
        await stage.refused("key_revoked", run, bea.approve(run))


async def test_a_revoked_key_starts_no_run_a_second_later(stage: Stage) -> None:
    """Also while another call reads the state of the key at that moment."""
    await stage.engine.publish(PAYOUT)
    key = await stage.key("bea", "start", "read")
    async with stage.opened(key) as bea:
        clock = [bea.access._read_at]
        bea.access._monotonic = lambda: clock[0]
        run = (await bea.start(PAYOUT)).run_id
        await stage.engine.keys.revoke(parse_key(key).id)
        clock[0] += 0.99
        calls = (bea.start(PAYOUT), bea.rerun(run), bea.start(PAYOUT), bea.show(run))
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert [getattr(one, "rule", one) for one in told] == ["key_revoked"] * 4
    assert len((await stage.engine.runs())["runs"]) == 1


async def test_calls_within_the_grace_of_a_read_go_on_and_none_goes_on_for_a_second(stage: Stage) -> None:
    assert access.FRESH_SECONDS + access.GRACE_SECONDS < 1
    async with stage.opened(await stage.key("bea", "start", "read")) as bea:
        began = bea.access._read_at
        clock = [began]
        bea.access._monotonic = lambda: clock[0]
        bea.access._is_reading = True
        for passed, reads in ((0.1, False), (0.6, False), (0.76, True)):
            before = bea.access._read_at
            clock[0] = began + passed
            await bea.access.check()
            assert (bea.access._read_at != before) is reads, passed


async def test_an_expired_key_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("bea", "decide", expires_in="1h")) as bea:
        bea.store.clock_offset = 2 * HOUR
        await stage.refused("key_expired", run, bea.approve(run))


async def test_a_name_without_a_key_does_not_count_where_vouching_is_refused(stage: Stage) -> None:
    run, named = await stage.run(), await stage.run(NAMED)
    portal_key = await stage.key("zoe", "decide", "vouch", "admin")
    await stage.engine.tenants.create(TENANT, vouching="refused")
    await stage.refused("vouching_refused", run, stage.engine.approve(run, by="bea"))
    await stage.refused("vouching_refused", named, stage.engine.approve(named, by="hal"))
    async with stage.opened(portal_key) as portal:
        await stage.refused("approvers", named, portal.approve(named, by="hal"))


# -- delegation --------------------------------------------------------------------------------------------------------
async def test_nobody_delegates_to_themselves_in_any_spelling(stage: Stage) -> None:
    run = await stage.run()
    for name in ("bea", "Bea", "ｂｅａ"):
        work = stage.engine.users.delegate("bea", name, open_ended=True)
        await stage.refused("delegation_to_oneself", run, work)
    await stage.refused("delegation", run, stage.engine.approve(run, by="cyd", for_="bea"))


async def test_delegations_do_not_chain(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.create("yan")
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    await stage.engine.users.delegate("zoe", "yan", open_ended=True)
    await stage.refused("delegation", run, stage.engine.approve(run, by="yan", for_="bea"))
    await stage.refused("approvers", run, stage.engine.approve(run, by="yan", for_="zoe"))
    await stage.refused("approvers", run, stage.engine.approve(run, by="yan"))


async def test_a_delegator_whose_delegate_has_voted_votes_no_more(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    await stage.engine.users.delegate("cyd", "dan", open_ended=True)
    await stage.engine.approve(run, by="zoe")
    await stage.refused("one_decision", run, stage.engine.approve(run, by="cyd"))
    await stage.refused("one_decision", run, stage.engine.approve(run, by="dan", for_="cyd"))
    await stage.passes(run, "dan")


async def test_a_delegation_that_has_ended_or_was_taken_back_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("bea", "zoe", valid_to=later(1))
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    await stage.engine.users.undelegate("cyd", "zoe")
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="cyd"))
    stage.engine.store.clock_offset += 2 * HOUR
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="bea"))


async def test_a_delegation_of_a_disabled_person_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    await stage.engine.users.disable("bea")
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="bea"))


async def test_a_person_without_admin_delegates_no_authority_of_others(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("zoe", "decide", "read")) as zoe:
        await stage.refused("scope", run, zoe.users.delegate("bea", "zoe", open_ended=True))


# -- roles -------------------------------------------------------------------------------------------------------------
async def test_a_role_that_is_granted_after_the_opening_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    stage.engine.store.clock_offset += SECOND
    await stage.engine.users.grant("zoe", role="finance")
    told = await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))
    assert "when the gate opened" in str(told)


async def test_a_role_that_was_revoked_before_the_decision_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.revoke("bea", role="finance")
    told = await stage.refused("approvers", run, stage.engine.approve(run, by="bea"))
    assert "any more" in str(told)


async def test_a_role_that_was_revoked_and_granted_again_since_the_opening_counts_for_its_times_only(
    stage: Stage,
) -> None:
    """The role held at the opening and holds now, which is what `both` asks; a role in between alone does not."""
    await stage.engine.users.revoke("bea", role="finance")
    stage.engine.store.clock_offset += SECOND
    run = await stage.run()
    stage.engine.store.clock_offset += SECOND
    await stage.engine.users.grant("bea", role="finance")
    await stage.refused("approvers", run, stage.engine.approve(run, by="bea"))


async def test_a_membership_whose_dates_have_ended_does_not_count(stage: Stage) -> None:
    await stage.engine.users.grant("zoe", role="finance", valid_to=later(1))
    run = await stage.run()
    stage.engine.store.clock_offset += 2 * HOUR
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


async def test_the_role_of_a_group_ends_when_the_person_leaves_the_group(stage: Stage) -> None:
    await stage.engine.users.grant("auditors", role="finance", to_group=True)
    await stage.engine.users.grant("zoe", group="auditors")
    run = await stage.run()
    await stage.engine.users.revoke("zoe", group="auditors")
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


async def test_a_group_that_loses_the_role_takes_it_from_its_members(stage: Stage) -> None:
    await stage.engine.users.grant("auditors", role="finance", to_group=True)
    await stage.engine.users.grant("zoe", group="auditors")
    run = await stage.run()
    await stage.engine.users.revoke("auditors", role="finance", from_group=True)
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


async def test_a_disabled_person_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.disable("bea")
    await stage.refused("disabled", run, stage.engine.approve(run, by="bea"))


async def test_a_name_that_is_not_registered_has_no_role(stage: Stage) -> None:
    run = await stage.run()
    await stage.refused("approvers", run, stage.engine.approve(run, by="stranger"))


async def test_a_service_is_no_person_and_decides_only_where_the_gate_names_it(stage: Stage) -> None:
    """A person who has the key of a service would vote twice; so a role does not make a service an approver."""
    await stage.engine.users.create("robot", kind="service")
    await stage.engine.users.grant("robot", role="finance")
    run, anyone = await stage.run(), await stage.run(ANYONE)
    async with stage.opened(await stage.key("robot", "decide")) as robot:
        await stage.refused("service", run, robot.approve(run))
        await stage.refused("service", anyone, robot.approve(anyone))
    for pair in (("bea", "robot"), ("robot", "zoe")):
        await stage.refused("delegation_of_service", run, stage.engine.users.delegate(*pair, open_ended=True))
    named = sk.Workflow("robots")
    named.approval("sign", approvers=["robot"])
    await stage.passes(await stage.run(named), "robot")


# -- other doors -------------------------------------------------------------------------------------------------------
async def test_a_message_approves_nothing(stage: Stage) -> None:
    run = await stage.run()
    for name in ("sign", "approve", "approved", "gate_decided"):
        await stage.engine.send(run, name, {"decision": "approved", "by": "bea"}, by="ann")
    assert (await stage.engine.show(run))["run"]["state"] == "blocked"
    assert await stage.votes(run) == []


async def test_a_completion_token_approves_nothing(stage: Stage) -> None:
    run = await stage.run()
    for token in ("", "x" * 43):
        await stage.refused("WrongToken", run, stage.engine.complete(run, "sign", token=token, by="ann"))
    await stage.refused("Conflict", run, stage.engine.reissue_token(run, "sign", reason="mine", by="ann"))


async def test_the_person_whose_worker_executes_a_step_now_does_not_sign_it_meanwhile(stage: Stage) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        began.set()
        await may_end.wait()
        return "paid"

    registry = handlers()
    registry.register(HandlerSpec(name="people.slow", function=pay))
    beside = sk.Workflow("beside", registry=registry)
    beside.step("pay", "people.slow")
    beside.approval("sign", after=[], roles=["finance"], not_=["executed:pay"])
    run = (await stage.engine.start(beside, by="ann")).run_id
    key = await stage.key("bea", "work", "read", "decide")
    async with AsyncEngine(stage.url, key=key, registry=registry, loop="mine") as bea:
        working = asyncio.create_task(bea.work_on(run))
        await began.wait()
        await stage.refused("maker_checker", run, bea.approve(run, "sign"))
        may_end.set()
        await working
        await stage.refused("maker_checker", run, bea.approve(run, "sign"))
    await stage.passes(run, "cyd")


async def test_one_person_is_no_four_eyes_by_acting_for_another(stage: Stage) -> None:
    """In any order, for one delegator or for two: the person who acts is one person."""
    for delegate in ("bea", "zoe"):
        for name in ("cyd", "dan"):
            await stage.engine.users.delegate(name, delegate, open_ended=True)
    for first, second in (
        (("bea", "cyd"), ("bea", None)),
        (("bea", None), ("bea", "cyd")),
        (("zoe", "cyd"), ("zoe", "dan")),
        (("zoe", "cyd"), ("cyd", None)),
    ):
        run = await stage.run(EYES)
        await stage.engine.approve(run, "first", by=first[0], for_=first[1])
        again = stage.engine.approve(run, "second", by=second[0], for_=second[1] or second[0])
        await stage.refused("four_eyes", run, again)
        await stage.passes(run, "ann", step="second")
        assert (await stage.engine.certify(run)).ok


async def test_the_person_who_starts_an_idle_run_is_its_requester(stage: Stage) -> None:
    run = (await stage.engine.start(PAYOUT, start_now=False, by="zoe")).run_id
    await stage.engine.start_idle(run, by="ann")
    for name in ("ann", "Ann"):
        rule = "approvers" if name == "Ann" else "maker_checker"
        await stage.refused(rule, run, stage.engine.approve(run, by=name))
    assert (await stage.engine.show(run))["run"]["asked_before"] == ["ann", "zoe"]
    await stage.passes(run, "bea", "cyd")
    assert (await stage.engine.certify(run)).ok
    again = (await stage.engine.rerun(run, by="dan")).run_id
    await stage.refused("maker_checker", again, stage.engine.approve(again, by="ann"))


async def test_an_idle_run_that_its_requester_starts_has_no_other_requester(stage: Stage) -> None:
    run = (await stage.engine.start(PAYOUT, start_now=False, by="ann")).run_id
    await stage.engine.start_idle(run, by="ann")
    assert (await stage.engine.show(run))["run"]["asked_before"] == []
    await stage.passes(run, "bea", "cyd")


async def test_a_run_of_too_many_requesters_is_refused_and_loses_none(stage: Stage) -> None:
    run = await stage.run()
    details = (await stage.engine.store.read_run(TENANT, run)).details  # type: ignore[union-attr]
    full = [f"person-{number:03}" for number in range(MOST_REQUESTERS)]
    many = msgspec.structs.replace(details, created_by="root", asked_before=asked_json(full))
    with pytest.raises(InvalidInput, match="people asked for run"):
        check_requesters(run, requesters_of(many))
    assert asked_names(requesters_of(many)) == (*full, "root")


# -- events and triggers -----------------------------------------------------------------------------------------------
async def fired_later(stage: Stage) -> int:
    """How many runs the triggers start that are due in some seconds."""
    stage.engine.store.clock_offset += 5 * SECOND
    return await TriggerSweep(stage.engine.transactor).sweep()


async def test_the_person_who_hands_in_an_event_is_the_requester_of_the_run_that_it_starts(stage: Stage) -> None:
    await stage.engine.publish(PAYOUT)
    await stage.engine.triggers.add("asked", "payout", event="pay.requested", by="zoe")
    [fired] = (await stage.engine.triggers.emit("pay.requested", {}, by="bea"))["firings"]
    run = fired["run_id"]
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="bea"))
    assert (await stage.engine.show(run))["run"]["asked_before"] == ["bea", "zoe"]
    await stage.passes(run, "ann", "cyd")
    assert (await stage.engine.certify(run)).ok


async def test_the_person_who_adds_or_changes_a_trigger_is_the_requester_of_the_runs_that_it_starts(
    stage: Stage,
) -> None:
    await stage.engine.publish(PAYOUT)
    for name, every in (("zoe", "1h"), ("ann", "1s")):
        await stage.engine.triggers.add("tick", "payout", every=every, by=name)
    assert await fired_later(stage)
    [run, *_] = [one["run_id"] for one in (await stage.engine.triggers.show("tick"))["firings"] if one["run_id"]]
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann"))
    await stage.passes(run, "bea", "cyd")


async def test_the_requesters_of_a_run_ask_for_those_that_its_end_starts(stage: Stage) -> None:
    quick = sk.Workflow("quick", registry=handlers())
    quick.approval("sign", approvers=["zoe"])
    await stage.engine.publish(PAYOUT)
    await stage.engine.publish(quick)
    await stage.engine.triggers.add("then", "payout", ended="quick", by="zoe")
    first = (await stage.engine.start(quick, start_now=False, by="bea")).run_id
    await stage.engine.start_idle(first, by="cyd")
    await stage.engine.approve(first, by="zoe")
    assert await fired_later(stage)
    [run] = [one["run_id"] for one in (await stage.engine.triggers.show("then"))["firings"] if one["run_id"]]
    for name in ("bea", "cyd"):
        await stage.refused("maker_checker", run, stage.engine.approve(run, by=name))
    await stage.passes(run, "ann", "dan")


async def test_a_rerun_keeps_the_requesters_of_runs_that_were_deleted(stage: Stage) -> None:
    """A chain of reruns by three people; retention deletes each run before the next one is made, or after it."""
    run = await stage.run()
    for name in ("bea", "zoe"):
        await stage.engine.cancel(run, by="ann")
        again = (await stage.engine.rerun(run, by=name)).run_id
        assert (await stage.engine.prune(archive=None, keep=0)).deleted == 1
        run = again
    assert (await stage.engine.show(run))["run"]["asked_before"] == ["ann", "bea"]
    for name in ("ann", "bea", "Ann"):
        rule = "approvers" if name == "Ann" else "maker_checker"
        await stage.refused(rule, run, stage.engine.approve(run, by=name))
    await stage.passes(run, "cyd", "dan")
    assert (await stage.engine.certify(run)).ok


async def test_a_service_is_no_person_of_a_quorum_and_no_pair_of_eyes(stage: Stage) -> None:
    """Named approvers may be services; whoever has the key of one would decide twice."""
    await stage.engine.users.create("robot", kind="service")
    two = sk.Workflow("two")
    two.approval("sign", approvers=["robot", "bea", "cyd"], quorum=2)
    run = await stage.run(two)
    told = await stage.refused("service", run, stage.engine.approve(run, by="robot"))
    assert "it takes 2 people" in str(told)
    await stage.passes(run, "bea", "cyd")
    eyes = sk.Workflow("robot-eyes", duties=[{"four_eyes": ["first", "second"]}])
    eyes.approval("first", approvers=["robot", "bea"])
    eyes.approval("second", roles=["finance"], after="first")
    run = await stage.run(eyes)
    await stage.refused("four_eyes", run, stage.engine.approve(run, "first", by="robot"))


async def test_another_start_with_the_same_key_does_not_change_the_requester(stage: Stage) -> None:
    run = (await stage.engine.start(PAYOUT, idempotency_key="k", by="ann")).run_id
    assert (await stage.engine.start(PAYOUT, idempotency_key="k", by="zoe")).run_id == run
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann"))


async def test_another_tenant_reaches_no_gate(stage: Stage) -> None:
    run = await stage.run()
    async with AsyncEngine(stage.url, tenant="other", actor="bea") as other:
        await other.users.create("bea")
        await other.users.grant("bea", role="finance")
        key = (await other.keys.create("bea", scopes=["decide"])).secret
        await stage.refused("NotFound", run, other.approve(run, by="bea"))
        await stage.refused("NotFound", run, other.approve(run, "sign", by="bea"))
    async with stage.opened(key) as foreign:
        await stage.refused("NotFound", run, foreign.approve(run))
    await stage.refused("key_tenant", run, stage.opened(key, tenant=TENANT).open())


async def test_a_new_version_of_the_definition_changes_no_open_gate(stage: Stage) -> None:
    run = await stage.run()
    weak = sk.Workflow("payout", version=2)
    weak.approval("sign")
    await stage.engine.publish(weak)
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann"))
    same = sk.Workflow("payout")
    same.approval("sign")
    await stage.refused("Conflict", run, stage.engine.publish(same))
    await stage.engine.cancel(run, by="ann")
    again = (await stage.engine.rerun(run, by="zoe")).run_id
    await stage.refused("maker_checker", again, stage.engine.approve(again, by="ann"))


async def test_an_escalated_gate_takes_no_second_decision_of_one_person(stage: Stage) -> None:
    steep = sk.Workflow("steep")
    steep.approval(
        "sign",
        roles=["finance"],
        quorum=2,
        deadline="1h",
        on_deadline="escalate",
        escalate=[{"approvers": ["bea", "zoe"]}],
    )
    run = await stage.run(steep)
    await stage.engine.approve(run, by="bea")
    stage.engine.store.clock_offset += 2 * HOUR
    await sweep(stage.engine.transactor, actor="sweep")
    assert (await stage.engine.approve(run, by="bea"))["repeated"]
    assert len(await stage.votes(run)) == 1
    await stage.passes(run, "zoe")


async def test_a_final_decision_is_not_turned_round(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.approve(run, by="bea")
    await stage.refused("Conflict", run, stage.engine.reject(run, by="bea"))


async def test_a_race_of_two_devices_is_one_vote(stage: Stage) -> None:
    key = await stage.key("bea", "decide")
    async with stage.opened(key) as phone, stage.opened(key) as laptop:
        for _ in range(5):
            run = await stage.run()
            told = await asyncio.gather(*(device.approve(run) for device in (phone, laptop, phone, laptop)))
            assert sorted(one["repeated"] for one in told) == [False, True, True, True]
            assert [vote.person for vote in await stage.votes(run)] == ["bea"]


async def test_a_race_of_delegator_and_delegate_is_one_vote(stage: Stage) -> None:
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    async with stage.opened(await stage.key("bea", "decide")) as bea, stage.opened(await stage.key("zoe")) as zoe:
        for _ in range(5):
            run = await stage.run()
            told = await asyncio.gather(bea.approve(run), zoe.approve(run, for_="bea"), return_exceptions=True)
            [refused] = [one for one in told if isinstance(one, Exception)]
            assert isinstance(refused, NotAllowed)
            assert refused.rule == "one_decision"
            assert len(await stage.votes(run)) == 1
