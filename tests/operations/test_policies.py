"""Live policies on both databases: revisions, what they do to runs, how soon they count, and their replay."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stepkeep.definition.policy import load_policy, publishable_policy
from stepkeep.kernel.definition import Budget, Definition, OnExceeded, PolicyEffect, PolicyRule, Retry, digest_of
from stepkeep.kernel.errors import InvalidInput, NotFound
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.states import Category, RunState, StepState
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.operations.people import live_policies, policies
from stepkeep.operations.people.approvals import GateReader, list_approvals
from stepkeep.operations.people.live_policies import FRESH_US, LivePolicies
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.runs.views import describe_run
from stepkeep.store.change import Loaded, StoredPolicy
from tests.store.people import change, membership, principal
from tests.workbench import ACTOR, TENANT, Bench, benches, chain, on, task

S = StepState
HOUR_US = 3_600_000_000
TWO = chain("two", 2)
HOLD_PAY = {"name": "big", "steps": ["s00001"], "when": "input.n > 5", "then": "hold", "approval": {"quorum": 1}}


async def publish(bench: Bench, *rules: dict[str, Any]) -> int:
    document = publishable_policy({"policy": "p", "rules": list(rules)})
    stored = await policies.publish_policy(bench.transactor, document, caller=Caller(TENANT, ACTOR))
    return int(stored["revision"])


async def replayed(bench: Bench, run_id: str) -> list[tuple[str, str, str | None]]:
    """The verdicts of a run; each must have the same answer again."""
    found = await policies.replay_policy(bench.transactor, run_id, tenant=TENANT)
    assert found["ok"], found
    return [(one["step"], one["effect"], one["rule"]) for one in found["verdicts"]]


async def test_a_published_rule_denies_the_first_step_of_a_run(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish(bench, {"name": "never", "workflows": ["two"], "then": "deny", "reason": "closed"})
        run_id = await bench.start(TWO)
        assert await bench.state(run_id) is RunState.FAILED
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert view["run"]["error"] == "denied by the rule never of policy revision 1: closed"
        assert view["run"]["category"] == "governance"
        assert await replayed(bench, run_id) == [("s00000", "deny", "never")]


async def test_a_published_rule_holds_a_later_step_and_people_release_it(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish(bench, {**HOLD_PAY, "reason": "Large payouts need a second look."})
        run_id = await bench.start(TWO, b'{"n":9}')
        assert await bench.work_off() == 1
        assert await bench.step_states(run_id) == [S.SUCCEEDED, S.AWAITING_APPROVAL]
        await publish(bench, {**HOLD_PAY, "reason": "another reason of a later revision"})
        [gate] = (await list_approvals(bench.transactor, GateReader(caller=Caller(TENANT, ACTOR)))).approvals
        assert (gate.rule, gate.reason) == (
            "the rule big of policy revision 1",
            "Large payouts need a second look.",
        )
        told = await explain(bench.transactor, run_id, None, tenant=TENANT)
        assert "It is held by the rule big of policy revision 1." in told.causes[0].sentence
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert view["run"]["waiting_for"][0]["rule"] == "the rule big of policy revision 1"
        await bench.approve(run_id, "s00001")
        await bench.work_off()
        assert await bench.state(run_id) is RunState.SUCCEEDED
        assert await replayed(bench, run_id) == [("s00001", "hold", "big")]


async def test_runs_that_no_rule_concerns_have_no_verdict(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish(bench, {"name": "others", "workflows": ["other*"], "then": "deny"})
        run_id = await bench.start(TWO)
        await bench.work_off()
        assert await bench.state(run_id) is RunState.SUCCEEDED
        assert await replayed(bench, run_id) == []


async def test_another_process_decides_by_a_new_revision_after_two_seconds(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour stands for the two seconds: on a busy machine these may pass between two calls."""
    assert live_policies.FRESH_US == 2_000_000
    monkeypatch.setattr(live_policies, "FRESH_US", HOUR_US)

    async with benches(database_url, 2) as opened:
        here, there = opened
        await there.start(TWO)
        await publish(here, {"name": "stop", "then": "deny"})
        run_id = await there.start(TWO)
        assert await there.state(run_id) is not RunState.FAILED, "it was read a short while ago"
        there.store.clock_offset += HOUR_US
        run_id = await there.start(TWO)
        assert await there.state(run_id) is RunState.FAILED
        assert await replayed(here, run_id) == [("s00000", "deny", "stop")]


async def test_the_process_that_publishes_decides_by_the_new_revision_at_once(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(TWO)
        await publish(bench, {"name": "stop", "then": "deny"})
        await bench.work_off()
        assert await bench.state(run_id) is RunState.FAILED
        assert await bench.step_states(run_id) == [S.SUCCEEDED, S.FAILED]


async def test_a_policy_that_is_off_allows_and_old_verdicts_replay_by_their_own_revision(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish(bench, {"name": "stop", "then": "deny"})
        denied = await bench.start(TWO)
        await policies.publish_policy(bench.transactor, policies.OFF, caller=Caller(TENANT, "bea"))
        allowed = await bench.start(TWO)
        await bench.work_off()
        assert await bench.state(allowed) is RunState.SUCCEEDED
        assert await replayed(bench, denied) == [("s00000", "deny", "stop")]
        listed = await policies.list_policies(bench.transactor, tenant=TENANT)
        assert [(one["revision"], one["policy"], one["published_by"]) for one in listed["policies"]] == [
            (2, "off", "bea"),
            (1, "p", ACTOR),
        ]


async def test_roles_of_the_requester_are_read_in_the_deciding_transaction(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish(bench, {"name": "staff", "when": "!('staff' in principal.roles)", "then": "deny"})
        denied = await bench.start(TWO)
        assert await bench.state(denied) is RunState.FAILED
        await change(
            bench.store,
            tenant=TENANT,
            principals=[principal(ACTOR, TENANT)],
            memberships=[replace(membership(1, ACTOR, MembershipKind.ROLE, "staff"), tenant=TENANT)],
        )
        allowed = await bench.start(TWO)
        await bench.work_off()
        assert await bench.state(allowed) is RunState.SUCCEEDED
        assert [effect for _, effect, _ in await replayed(bench, allowed)] == ["allow", "allow"]


async def test_a_budget_stops_a_run_by_what_its_attempts_reported(database_url: str) -> None:
    spending = replace(TWO, name="spending", budget=Budget(limits={"usd": 1.0}, on_exceeded=OnExceeded.STOP))

    async with on(database_url) as bench:
        run_id = await bench.start(spending)
        [claim] = await bench.claim(1)
        await bench.report(claim, Completed(cost=b'{"usd":1.5}'))
        assert await bench.state(run_id) is RunState.FAILED
        assert [rule for _, _, rule in await replayed(bench, run_id)] == [None, "budget:usd"]


async def test_rules_of_the_definition_judge_retries_from_the_stored_attempts(database_url: str) -> None:
    rule = PolicyRule(name="once", then=PolicyEffect.DENY, when="cost.attempts >= 1.0")
    step = task("call", retry=Retry(max_attempts=5, initial=0))
    once = Definition(name="once", version=1, steps=(step,), policy=(rule,))

    async with on(database_url) as bench:
        run_id = await bench.start(once)
        [claim] = await bench.claim(1)
        await bench.report(claim, Failed(category=Category.TRANSIENT, error="no"))
        assert await bench.state(run_id) is RunState.FAILED
        assert [effect for _, effect, _ in await replayed(bench, run_id)] == ["allow", "deny"]


async def test_a_revision_that_was_changed_in_the_database_denies_and_says_so(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.store.publish_policy(TENANT, 1, "p", "0" * 64, b'{"name":"p","rules":[]}', ACTOR)
        run_id = await bench.start(TWO)
        view = await describe_run(bench.transactor, run_id, tenant=TENANT)
        assert "was changed in the database after it was published" in view["run"]["error"]
        assert await replayed(bench, run_id) == [("s00000", "deny", "cannot_evaluate")]


async def test_what_is_not_there_or_makes_no_sense_is_refused(database_url: str) -> None:
    async with on(database_url) as bench:
        with pytest.raises(NotFound, match=r"tenant .* has no policy"):
            await policies.show_policy(bench.transactor, tenant=TENANT)
        with pytest.raises(NotFound, match="has no revision 7 of a policy"):
            await policies.show_policy(bench.transactor, 7, tenant=TENANT)
        with pytest.raises(InvalidInput, match="is a whole number"):
            await policies.show_policy(bench.transactor, 0, tenant=TENANT)
        with pytest.raises(NotFound):
            await policies.replay_policy(bench.transactor, "01a1e12c-57d6-75bf-abba-e99e88c4e41f", tenant=TENANT)


def test_a_policy_whose_cases_fail_is_not_published() -> None:
    case = {"name": "it allows", "given": {}, "expect": "allow"}
    with pytest.raises(InvalidInput, match="1 of 1 cases of policy p have another verdict: it allows"):
        publishable_policy({"policy": "p", "rules": [{"name": "r", "then": "deny"}], "cases": [case]})
    with pytest.raises(InvalidInput, match="not plain data"):
        load_policy({"policy": object()})


def test_a_policy_that_was_read_before_a_wait_for_a_lock_is_read_again_after_it() -> None:
    """A transaction may wait for seconds between the read and the decision; another one has read a newer revision."""
    live, document = LivePolicies(), publishable_policy({"policy": "p", "rules": [{"name": "a", "then": "deny"}]})
    body = msgspec.json.encode(document)
    first = StoredPolicy(
        tenant=TENANT,
        revision=1,
        name="p",
        digest=digest_of(body),
        document=body,
        published_at=0,
        published_by=ACTOR,
    )
    second = replace(first, revision=2)
    waiting = Loaded(now=0, policies={TENANT: first})
    assert live.stale([TENANT], waiting) == ()
    assert live.stale([TENANT], Loaded(now=FRESH_US, policies={TENANT: second})) == ()
    waiting.now = 3 * FRESH_US
    assert live.stale([TENANT], waiting) == (TENANT,)
    late = Loaded(now=FRESH_US - 1, policies={TENANT: first})
    assert live.stale([TENANT], late) == ()
    policy = live.get(TENANT)
    assert policy is not None
    assert policy.revision == 2


# -- shared budgets ----------------------------------------------------------------------------------------------------
MINUTE = 60_000_000


async def publish_budget(bench: Bench, **budget: Any) -> None:
    document = publishable_policy({"policy": "p", "budgets": [{"name": "hourly", "per": "1h", **budget}]})
    await policies.publish_policy(bench.transactor, document, caller=Caller(TENANT, ACTOR))


async def spend_once(bench: Bench, workflow: Definition, cost: bytes | None) -> str:
    """Run the first step of a workflow, which reports this cost; the second step is judged then."""
    run_id = await bench.start(workflow)
    [claim] = await bench.claim()
    bench.store.clock_offset += FRESH_US
    await bench.report(claim, Completed(output=b"1", cost=cost))
    return run_id


@pytest.mark.parametrize(
    ("limit", "of", "own", "others"),
    [
        ({"usd": 5}, "tenant", "denied", "denied"),
        ({"usd": 5}, "workflow", "denied", "goes on"),
        ({"tokens": 100}, "workflow", "denied", "goes on"),
        ({"attempts": 1}, "tenant", "denied", "denied"),
    ],
)
async def test_a_shared_budget_stops_the_runs_that_it_is_for(
    database_url: str, limit: dict[str, int], of: str, own: str, others: str
) -> None:
    async with on(database_url) as bench:
        await publish_budget(bench, of=of, **limit)
        first = await spend_once(bench, TWO, b'{"usd":5.0,"tokens":100}')
        bench.store.clock_offset += FRESH_US
        second, other = await bench.start(TWO), await bench.start(chain("other", 1))
        states = {RunState.FAILED: "denied", RunState.QUEUED: "goes on"}
        assert states[await bench.state(second)] == own
        assert states[await bench.state(other)] == others
        [(step, effect, rule)] = await replayed(bench, second)
        assert (step, effect, rule) == ("s00000", "deny", f"budget:hourly:{next(iter(limit))}")
        view = await describe_run(bench.transactor, second, tenant=TENANT)
        assert "spent" in view["run"]["error"]
        assert next(one[1:] for one in await replayed(bench, first)) == ("allow", None)


async def test_what_was_spent_before_the_window_counts_no_more(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish_budget(bench, usd=5)
        await spend_once(bench, TWO, b'{"usd":5.0}')
        bench.store.clock_offset += 61 * MINUTE
        assert await bench.state(await bench.start(TWO)) is RunState.QUEUED


@pytest.mark.parametrize(("ending", "effect"), [("hold", "hold"), ("warn", "allow")])
async def test_a_spent_budget_asks_people_or_warns(database_url: str, ending: str, effect: str) -> None:
    async with on(database_url) as bench:
        await publish_budget(bench, usd=5, on_exceeded=ending)
        await spend_once(bench, TWO, b'{"usd":6.5}')
        bench.store.clock_offset += FRESH_US
        run_id = await bench.start(TWO)
        assert await replayed(bench, run_id) == [("s00000", effect, "budget:hourly:usd")]
        held = await bench.step_states(run_id)
        assert held[0] is (S.AWAITING_APPROVAL if ending == "hold" else S.READY)
        facts = await first_verdict(bench, run_id)
        assert facts["facts"]["spend"] == {"hourly": {"usd": 6.5, "tokens": 0.0, "attempts": 1.0}}


async def first_verdict(bench: Bench, run_id: str) -> dict[str, Any]:
    entries = await bench.store.read_journal(TENANT, run_id, 0)
    causes = [cause for one in entries for cause in open_entry(one.body).causes]
    found = [cause.detail["policy"] for cause in causes if cause.detail and "policy" in cause.detail]
    return dict(next(iter(found[0].values())))


async def test_a_rule_of_a_tenant_reads_a_budget_before_it_is_spent(database_url: str) -> None:
    async with on(database_url) as bench:
        warn = {"name": "soon", "when": "spend.hourly.usd > 3.0", "then": "hold", "approval": {"quorum": 1}}
        document = publishable_policy(
            {"policy": "p", "rules": [warn], "budgets": [{"name": "hourly", "per": "1h", "usd": 5}]}
        )
        await policies.publish_policy(bench.transactor, document, caller=Caller(TENANT, ACTOR))
        await spend_once(bench, TWO, b'{"usd":4.0}')
        bench.store.clock_offset += FRESH_US
        run_id = await bench.start(TWO)
        assert await replayed(bench, run_id) == [("s00000", "hold", "soon")]


async def pin_of(bench: Bench, run_id: str) -> int | None:
    found = await bench.store.read_run(TENANT, run_id)
    assert found is not None
    return found.details.policy_revision


# -- pinned revisions --------------------------------------------------------------------------------------------------
async def test_a_run_keeps_the_revision_that_it_started_under_if_that_says_so(database_url: str) -> None:
    async with on(database_url) as bench:
        pinned = {"policy": "p", "runs": "pinned", "rules": [{"name": "watch", "then": "allow"}]}
        await policies.publish_policy(bench.transactor, publishable_policy(pinned), caller=Caller(TENANT, ACTOR))
        early = await bench.start(TWO)
        bench.store.clock_offset += 2 * FRESH_US
        old = await bench.start(TWO)
        assert (await pin_of(bench, early), await pin_of(bench, old)) == (None, 1), "all processes know of pins by then"
        await bench.cancel(early)
        await publish(bench, {"name": "never", "then": "deny"})
        bench.store.clock_offset += FRESH_US
        young = await bench.start(TWO)
        assert await bench.state(young) is RunState.FAILED
        assert await bench.work_off() == 2
        assert await bench.state(old) is RunState.SUCCEEDED
        assert await replayed(bench, old) == [("s00000", "allow", "watch"), ("s00001", "allow", "watch")]
        verdict = await first_verdict(bench, old)
        assert verdict["revision"] == 1
        entries = await bench.store.read_journal(TENANT, old, 0)
        created = open_entry(entries[0].body).causes[0]
        assert (created.event, (created.detail or {})["policy_revision"]) == ("run_created", 1)


async def test_a_live_revision_after_a_pinned_one_counts_for_runs_that_are_not_pinned(database_url: str) -> None:
    async with on(database_url) as bench:
        await publish(bench, {"name": "watch", "then": "allow"})
        old = await bench.start(TWO)
        pinned = {"policy": "p", "runs": "pinned", "rules": [{"name": "never", "steps": ["s00001"], "then": "deny"}]}
        await policies.publish_policy(bench.transactor, publishable_policy(pinned), caller=Caller(TENANT, ACTOR))
        bench.store.clock_offset += FRESH_US
        assert await bench.work_off() == 1
        assert await bench.state(old) is RunState.FAILED
        assert await replayed(bench, old) == [("s00000", "allow", "watch"), ("s00001", "deny", "never")]
        bench.store.clock_offset += FRESH_US
        kept = await bench.start(TWO)
        await policies.publish_policy(bench.transactor, policies.OFF, caller=Caller(TENANT, ACTOR))
        bench.store.clock_offset += FRESH_US
        await bench.work_off()
        assert await bench.state(kept) is RunState.FAILED
