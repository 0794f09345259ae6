"""Ways to get round separation of duties, each tried and refused on both stores. A refusal changes nothing."""

from __future__ import annotations

import asyncio

import stepkeep as sk
from stepkeep.definition.registry import HandlerSpec
from stepkeep.engine import AsyncEngine
from stepkeep.errors import NotAllowed
from stepkeep.operations import access
from stepkeep.operations.access import parse_key
from stepkeep.operations.expire import sweep
from tests.people.stage import HOUR, PAYOUT, SECOND, TENANT, TOKENS, Stage, handlers, later, on_both_stores

PAID = sk.Workflow("paid", registry=handlers())
PAID.step("pay", "people.pay")
PAID.approval("sign", roles=["finance"], not_=["requester", "executed:pay"])

ANYONE = sk.Workflow("anyone")
ANYONE.approval("sign", quorum=2, not_=["requester"])

NAMED = sk.Workflow("named")
NAMED.approval("sign", approvers=["hal"])

TWICE = sk.Workflow("twice", duties=[{"distinct": ["first", "second"]}])
TWICE.approval("first", roles=["finance"])
TWICE.approval("second", roles=["finance"], after="first")

EYES = sk.Workflow("eyes", duties=[{"four_eyes": ["first", "second"]}])
EYES.approval("first", roles=["finance"])
EYES.approval("second", roles=["finance"], after="first")

NOTED = sk.Workflow("noted", duties=[{"incompatible": ["note", "sign"]}], registry=handlers())
NOTED.step("note", "people.note", completion="manual")
NOTED.approval("sign", roles=["finance"], after="note")

HELD = sk.Workflow("held", duties=[{"incompatible": ["sign", "ship"]}], registry=handlers())
HELD.approval("sign", roles=["finance"])
HELD.step("ship", "people.fail", after="sign", on_exhausted="hold")


# -- keys and names ----------------------------------------------------------------------------------------------------
@on_both_stores
async def test_another_key_of_the_requester_is_still_the_requester(stage: Stage) -> None:
    run = await stage.run()
    for scopes in (("decide",), ("decide", "admin", "vouch")):
        async with stage.opened(await stage.key("ann", *scopes)) as ann:
            await stage.refused("maker_checker", run, ann.approve(run))
    await stage.passes(run, "bea", "cyd")


@on_both_stores
async def test_two_keys_of_one_person_are_one_vote(stage: Stage) -> None:
    run = await stage.run()
    for _ in range(2):
        async with stage.opened(await stage.key("bea", "decide")) as bea:
            told = await bea.approve(run)
            assert told["needs"]["approved"] == 1
    assert told["repeated"]
    assert [vote.person for vote in await stage.votes(run)] == ["bea"]


@on_both_stores
async def test_a_name_of_the_requester_in_other_letters_is_the_requester(stage: Stage) -> None:
    """Case, Unicode form and look-alike letters; at a gate that takes any name, where the host vouches."""
    run = await stage.run(ANYONE)
    for name in ("Ann", "ANN", "ａｎｎ", "аnn", "aｎn"):
        await stage.refused("maker_checker", run, stage.engine.approve(run, by=name))
    accented = await stage.run(ANYONE, by="jos\u00e9")
    await stage.refused("maker_checker", accented, stage.engine.approve(accented, by="jose\u0301"))
    await stage.passes(run, "bea", "cyd")


@on_both_stores
async def test_one_name_in_two_spellings_is_one_vote(stage: Stage) -> None:
    run = await stage.run(ANYONE)
    await stage.engine.approve(run, by="jos\u00e9")
    for name in ("jose\u0301", "JOS\u00c9"):
        await stage.refused("one_decision", run, stage.engine.approve(run, by=name))
    await stage.passes(run, "cyd")


@on_both_stores
async def test_a_name_like_that_of_a_person_with_the_role_has_no_role(stage: Stage) -> None:
    run = await stage.run()
    for name in ("Bea", "bea\u0301", "ｂea"):
        await stage.refused("approvers", run, stage.engine.approve(run, by=name))


@on_both_stores
async def test_a_second_account_under_a_name_that_looks_the_same_is_not_made(stage: Stage) -> None:
    run = await stage.run()
    for name, error in (("Ann", "Conflict"), ("ａｎｎ", "InvalidInput"), ("аnn", "InvalidInput")):
        await stage.refused(error, run, stage.engine.users.create(name))


@on_both_stores
async def test_a_key_without_the_scope_vouch_names_no_other_person(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("ann", "decide", "start", "operate")) as ann:
        await stage.refused("key_owner", run, ann.approve(run, by="bea"))
        await stage.refused("key_owner", run, ann.start(PAYOUT, by="bea"))


@on_both_stores
async def test_a_key_without_the_scope_decide_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("bea", "read", "start", "complete", "operate", "work", "admin")) as bea:
        await stage.refused("scope", run, bea.approve(run))
        await stage.refused("scope", run, bea.decide(run, "sign", "skip"))


@on_both_stores
async def test_a_revoked_key_of_an_open_program_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    key = await stage.key("bea", "decide", "read")
    async with stage.opened(key) as bea:
        await bea.show(run)
        await stage.engine.keys.revoke(parse_key(key).id)
        await stage.refused("key_revoked", run, bea.approve(run))


@on_both_stores
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


@on_both_stores
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


@on_both_stores
async def test_an_expired_key_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("bea", "decide", expires_in="1h")) as bea:
        bea.store.clock_offset = 2 * HOUR
        await stage.refused("key_expired", run, bea.approve(run))


@on_both_stores
async def test_a_name_without_a_key_does_not_count_where_vouching_is_refused(stage: Stage) -> None:
    run, named = await stage.run(), await stage.run(NAMED)
    portal_key = await stage.key("zoe", "decide", "vouch", "admin")
    await stage.engine.tenants.create(TENANT, vouching="refused")
    await stage.refused("vouching_refused", run, stage.engine.approve(run, by="bea"))
    await stage.refused("vouching_refused", named, stage.engine.approve(named, by="hal"))
    async with stage.opened(portal_key) as portal:
        await stage.refused("approvers", named, portal.approve(named, by="hal"))


# -- delegation --------------------------------------------------------------------------------------------------------
@on_both_stores
async def test_nobody_delegates_to_themselves_in_any_spelling(stage: Stage) -> None:
    run = await stage.run()
    for name in ("bea", "Bea", "ｂｅａ"):
        work = stage.engine.users.delegate("bea", name, open_ended=True)
        await stage.refused("delegation_to_oneself", run, work)
    await stage.refused("delegation", run, stage.engine.approve(run, by="cyd", for_="bea"))


@on_both_stores
async def test_the_requester_cannot_decide_through_a_friend(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("ann", "zoe", open_ended=True)
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="zoe", for_="ann"))
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


@on_both_stores
async def test_the_requester_cannot_decide_on_behalf_of_a_friend(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("bea", "ann", open_ended=True)
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann", for_="bea"))
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann"))


@on_both_stores
async def test_delegations_do_not_chain(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.create("yan")
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    await stage.engine.users.delegate("zoe", "yan", open_ended=True)
    await stage.refused("delegation", run, stage.engine.approve(run, by="yan", for_="bea"))
    await stage.refused("approvers", run, stage.engine.approve(run, by="yan", for_="zoe"))
    await stage.refused("approvers", run, stage.engine.approve(run, by="yan"))


@on_both_stores
async def test_a_delegate_votes_once_for_themselves_and_the_delegator_together(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("cyd", "bea", open_ended=True)
    await stage.engine.approve(run, by="bea")
    await stage.refused("Conflict", run, stage.engine.approve(run, by="bea", for_="cyd"))
    await stage.passes(run, "cyd")


@on_both_stores
async def test_a_delegator_whose_delegate_has_voted_votes_no_more(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    await stage.engine.users.delegate("cyd", "dan", open_ended=True)
    await stage.engine.approve(run, by="zoe")
    await stage.refused("one_decision", run, stage.engine.approve(run, by="cyd"))
    await stage.refused("one_decision", run, stage.engine.approve(run, by="dan", for_="cyd"))
    await stage.passes(run, "dan")


@on_both_stores
async def test_one_delegate_of_two_people_is_one_vote(stage: Stage) -> None:
    run = await stage.run()
    for name in ("bea", "cyd"):
        await stage.engine.users.delegate(name, "zoe", open_ended=True)
    await stage.engine.approve(run, by="zoe", for_="bea")
    await stage.refused("Conflict", run, stage.engine.approve(run, by="zoe", for_="cyd"))


@on_both_stores
async def test_a_delegation_that_has_ended_or_was_taken_back_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("bea", "zoe", valid_to=later(1))
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    await stage.engine.users.undelegate("cyd", "zoe")
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="cyd"))
    stage.engine.store.clock_offset += 2 * HOUR
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="bea"))


@on_both_stores
async def test_a_delegation_of_a_disabled_person_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.delegate("bea", "zoe", open_ended=True)
    await stage.engine.users.disable("bea")
    await stage.refused("delegation", run, stage.engine.approve(run, by="zoe", for_="bea"))


@on_both_stores
async def test_a_person_without_admin_delegates_no_authority_of_others(stage: Stage) -> None:
    run = await stage.run()
    async with stage.opened(await stage.key("zoe", "decide", "read")) as zoe:
        await stage.refused("scope", run, zoe.users.delegate("bea", "zoe", open_ended=True))


# -- roles -------------------------------------------------------------------------------------------------------------
@on_both_stores
async def test_a_role_that_is_granted_after_the_opening_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    stage.engine.store.clock_offset += SECOND
    await stage.engine.users.grant("zoe", role="finance")
    told = await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))
    assert "when the gate opened" in str(told)


@on_both_stores
async def test_a_role_that_was_revoked_before_the_decision_does_not_count(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.revoke("bea", role="finance")
    told = await stage.refused("approvers", run, stage.engine.approve(run, by="bea"))
    assert "any more" in str(told)


@on_both_stores
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


@on_both_stores
async def test_a_membership_whose_dates_have_ended_does_not_count(stage: Stage) -> None:
    await stage.engine.users.grant("zoe", role="finance", valid_to=later(1))
    run = await stage.run()
    stage.engine.store.clock_offset += 2 * HOUR
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


@on_both_stores
async def test_the_role_of_a_group_ends_when_the_person_leaves_the_group(stage: Stage) -> None:
    await stage.engine.users.grant("auditors", role="finance", to_group=True)
    await stage.engine.users.grant("zoe", group="auditors")
    run = await stage.run()
    await stage.engine.users.revoke("zoe", group="auditors")
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


@on_both_stores
async def test_a_group_that_loses_the_role_takes_it_from_its_members(stage: Stage) -> None:
    await stage.engine.users.grant("auditors", role="finance", to_group=True)
    await stage.engine.users.grant("zoe", group="auditors")
    run = await stage.run()
    await stage.engine.users.revoke("auditors", role="finance", from_group=True)
    await stage.refused("approvers", run, stage.engine.approve(run, by="zoe"))


@on_both_stores
async def test_a_disabled_person_decides_nothing(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.users.disable("bea")
    await stage.refused("disabled", run, stage.engine.approve(run, by="bea"))


@on_both_stores
async def test_a_name_that_is_not_registered_has_no_role(stage: Stage) -> None:
    run = await stage.run()
    await stage.refused("approvers", run, stage.engine.approve(run, by="stranger"))


@on_both_stores
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
@on_both_stores
async def test_a_message_approves_nothing(stage: Stage) -> None:
    run = await stage.run()
    for name in ("sign", "approve", "approved", "gate_decided"):
        await stage.engine.send(run, name, {"decision": "approved", "by": "bea"}, by="ann")
    assert (await stage.engine.show(run))["run"]["state"] == "blocked"
    assert await stage.votes(run) == []


@on_both_stores
async def test_a_completion_token_approves_nothing(stage: Stage) -> None:
    run = await stage.run()
    for token in ("", "x" * 43):
        await stage.refused("WrongToken", run, stage.engine.complete(run, "sign", token=token, by="ann"))
    await stage.refused("Conflict", run, stage.engine.reissue_token(run, "sign", reason="mine", by="ann"))


@on_both_stores
async def test_the_decision_about_a_hold_passes_no_gate(stage: Stage) -> None:
    run = await stage.run()
    for choice in ("retry", "skip", "fail"):
        await stage.refused("Conflict", run, stage.engine.decide(run, "sign", choice, by="ann"))


@on_both_stores
async def test_a_hold_without_attempts_left_is_not_decided_by_a_person_with_an_incompatible_duty(stage: Stage) -> None:
    run = await stage.run(HELD)
    await stage.engine.approve(run, "sign", by="bea")
    await stage.engine.work_on(run)
    for choice in ("retry", "skip", "fail"):
        await stage.refused("incompatible", run, stage.engine.decide(run, "ship", choice, by="bea"))
    assert (await stage.engine.decide(run, "ship", "skip", by="cyd"))["decision"] == "skipped"


@on_both_stores
async def test_the_person_who_completed_a_step_by_hand_does_not_sign_it(stage: Stage) -> None:
    run = await stage.run(NOTED)
    await stage.engine.complete(run, "note", token=TOKENS[-1], by="bea")
    await stage.refused("incompatible", run, stage.engine.approve(run, by="bea"))
    await stage.passes(run, "cyd")


@on_both_stores
async def test_the_person_whose_worker_executed_a_step_does_not_sign_it(stage: Stage) -> None:
    run = (await stage.engine.start(PAID, by="ann")).run_id
    async with stage.opened(await stage.key("bea", "work", "read")) as bea:
        await bea.work_on(run)
    async with stage.opened(await stage.key("bea", "decide")) as bea:
        await stage.refused("maker_checker", run, bea.approve(run))
    await stage.passes(run, "cyd")


@on_both_stores
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


@on_both_stores
async def test_one_person_does_not_decide_two_distinct_gates_for_themselves_and_for_another(stage: Stage) -> None:
    run = await stage.run(TWICE)
    await stage.engine.users.delegate("cyd", "bea", open_ended=True)
    await stage.engine.approve(run, "first", by="bea", for_="cyd")
    for name in ("bea", "cyd"):
        await stage.refused("distinct", run, stage.engine.approve(run, "second", by=name))
    await stage.passes(run, "dan", step="second")


@on_both_stores
async def test_four_eyes_are_not_those_of_a_delegate_and_the_delegator(stage: Stage) -> None:
    run = await stage.run(EYES)
    await stage.engine.users.delegate("cyd", "zoe", open_ended=True)
    await stage.engine.approve(run, "first", by="cyd")
    await stage.refused("four_eyes", run, stage.engine.approve(run, "second", by="zoe", for_="cyd"))
    await stage.refused("four_eyes", run, stage.engine.approve(run, "second", by="cyd"))
    await stage.passes(run, "dan", step="second")


@on_both_stores
async def test_a_rerun_has_the_requesters_of_both_runs(stage: Stage) -> None:
    first = await stage.run()
    await stage.engine.cancel(first, by="ann")
    run = (await stage.engine.rerun(first, by="bea")).run_id
    await stage.engine.cancel(run, by="ann")
    again = (await stage.engine.rerun(run, by="zoe")).run_id
    for name in ("ann", "bea"):
        await stage.refused("maker_checker", again, stage.engine.approve(again, by=name))
    await stage.passes(again, "cyd", "dan")


@on_both_stores
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


@on_both_stores
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


@on_both_stores
async def test_an_idle_run_that_another_person_starts_keeps_its_requester(stage: Stage) -> None:
    run = (await stage.engine.start(PAYOUT, start_now=False, by="ann")).run_id
    await stage.engine.start_idle(run, by="zoe")
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann"))


@on_both_stores
async def test_another_start_with_the_same_key_does_not_change_the_requester(stage: Stage) -> None:
    run = (await stage.engine.start(PAYOUT, idempotency_key="k", by="ann")).run_id
    assert (await stage.engine.start(PAYOUT, idempotency_key="k", by="zoe")).run_id == run
    await stage.refused("maker_checker", run, stage.engine.approve(run, by="ann"))


@on_both_stores
async def test_another_tenant_reaches_no_gate(stage: Stage) -> None:
    run = await stage.run()
    async with AsyncEngine(stage.url, tenant="other", actor="bea") as other:
        await other.users.create("bea")
        await other.users.grant("bea", role="finance")
        key = (await other.keys.create("bea", scopes=["decide"]))["secret"]
        await stage.refused("NotFound", run, other.approve(run, by="bea"))
        await stage.refused("NotFound", run, other.approve(run, "sign", by="bea"))
    async with stage.opened(key) as foreign:
        await stage.refused("NotFound", run, foreign.approve(run))
    await stage.refused("key_tenant", run, stage.opened(key, tenant=TENANT).open())


@on_both_stores
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


@on_both_stores
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


@on_both_stores
async def test_a_final_decision_is_not_turned_round(stage: Stage) -> None:
    run = await stage.run()
    await stage.engine.approve(run, by="bea")
    await stage.refused("Conflict", run, stage.engine.reject(run, by="bea"))


@on_both_stores
async def test_a_race_of_two_devices_is_one_vote(stage: Stage) -> None:
    key = await stage.key("bea", "decide")
    async with stage.opened(key) as phone, stage.opened(key) as laptop:
        for _ in range(5):
            run = await stage.run()
            told = await asyncio.gather(*(device.approve(run) for device in (phone, laptop, phone, laptop)))
            assert sorted(one["repeated"] for one in told) == [False, True, True, True]
            assert [vote.person for vote in await stage.votes(run)] == ["bea"]


@on_both_stores
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
