"""Everything that workers, people and operators ask of a database, once or a few times each, by the real operations.

Tests of plans watch the database while this goes on. It works on as much, however long the history beside it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.store.people import audited, change, delegation, key, membership, principal, session
from tests.store.test_oracle import DEFINITIONS
from tests.store.values import TENANT as VALUES_TENANT
from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches, chain, gate, report_of, task

from stepkeep.definition.policy import publishable_policy
from stepkeep.kernel.composition.continuation import ContinuationKind
from stepkeep.kernel.decide.limits import LimitRule
from stepkeep.kernel.definition import (
    Approval,
    Budget,
    Definition,
    Handler,
    Limit,
    StepDefinition,
    SubWorkflow,
    Undo,
    Wait,
)
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Outcome, Waiting
from stepkeep.kernel.machine.rows import Checkpoint, Requesters, StreamPart, rows_of
from stepkeep.kernel.machine.states import Category, OnFailure, RunState
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.kernel.triggers import Ending, Overlap, Schedule, TriggerKind, TriggerSpec
from stepkeep.operations.children.children import ChildSweep
from stepkeep.operations.continuation import jobs
from stepkeep.operations.continuation.going_on import ContinuationOptions, continue_run, rerun
from stepkeep.operations.continuation.jobs import JobSweep
from stepkeep.operations.delivery import sinks
from stepkeep.operations.limits.limits import forget_keys, list_limits, set_limit, show_limit
from stepkeep.operations.limits.resources import list_resources
from stepkeep.operations.limits.slots import SlotSweep, list_slots
from stepkeep.operations.logs.log import export_run, export_worker
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.operations.people import people, policies
from stepkeep.operations.people.live_policies import LivePolicies
from stepkeep.operations.pipeline import workers
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.start import StartRequest, start_idle
from stepkeep.operations.pipeline.transact import Claim
from stepkeep.operations.runs import views
from stepkeep.operations.runs.diagnosis import explain
from stepkeep.operations.triggers import manage
from stepkeep.operations.triggers.sweep import TriggerSweep
from stepkeep.schedules.moments import checked
from stepkeep.store.change import Lease, Propose, Want, Write
from stepkeep.store.conversations import ItemRange, SavedItem
from stepkeep.store.deliveries import WHOLE, Action, Report, Takes
from stepkeep.store.principals import SubjectKind, TenantRow, Vouching
from stepkeep.store.quotas import Scope
from stepkeep.store.records import FIRST_ID, Evidence, FinishedFilter, RunFilter, SignedHead, Words
from stepkeep.store.rows import AuditFilter, Delivery, JobAction, Payload
from stepkeep.store.streams import Holder

BACKLOG = 200
WAITING = 50
AGAIN = 7
"""How often each look is repeated: after five, PostgreSQL may choose one plan for all arguments."""

WORK = chain("work", 2)
OLD_WORK = replace(chain("work", 1), version=2)
ASKING = chain("asking", 1)
BREAKING = chain("breaking", 2, on_failure=OnFailure.ABORT)
CHOOSING = Definition(
    name="choosing",
    version=1,
    steps=(task("look"), task("act", 1, ["look"], condition="input.n == 1 && steps['look'].output.n == 1")),
)
UNDOING = Definition(
    name="undoing",
    version=1,
    steps=(
        task("do", undo=Undo(executor=Handler(name="undo"))),
        task("fail", 1, ["do"], on_failure=OnFailure.COMPENSATE),
    ),
)
THRIFTY = chain("thrifty", 2, budget=Budget(limits={"usd": 5.0}))
PEOPLE: Definition = DEFINITIONS[0]
SIGNING = Definition(
    name="signing",
    version=1,
    steps=(
        StepDefinition(
            name="sign", order=0, approval=Approval(quorum=2, excluded=("requester",), deadline=3_600 * SECOND)
        ),
    ),
)
TOKEN = "a token"
DONE = Completed(
    output=b'{"n":1}', token=people.token_hash(TOKEN), emit=(Emitted("told", b'{"to":"you"}'),), cost=b'{"usd":1}'
)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Bench]:
    async with benches(url) as [bench]:
        yield bench


async def make_originals(bench: Bench) -> tuple[str, str]:
    """One run that succeeded and one that failed, each with all that a run can leave behind, to be copied."""
    plan = await bench.publish(OLD_WORK)
    await _add_sink(bench, "old", Takes.EMITTED | Takes.TRANSITIONS)
    good = await bench.start(plan, idempotency_key="original", labels=b'{"a":"b"}')
    await people.send(bench.transactor, good, "noise", b"{}", caller=Caller(TENANT, ACTOR))
    while claims := await bench.claim(10):
        for claim in claims:
            await bench.report(claim, DONE)
    bad = await bench.start(BREAKING, idempotency_key="original-bad")
    [claim] = await bench.claim(1)
    await bench.report(claim, Failed(category=Category.AUTH, error="no"))
    assert await bench.state(good) is RunState.SUCCEEDED
    assert await bench.state(bad) is RunState.FAILED
    await _deliver_all(bench, "old")
    return good, bad


async def live(bench: Bench, folder: Path, at_noon: Callable[[], Awaitable[None]] | None = None) -> None:
    """A day in the life; `at_noon` runs when all work is done, before people look at it and old runs are deleted."""
    runs = await _starts(bench)
    await _work(bench)
    await _people(bench)
    await _trouble(bench)
    await _workers(bench)
    await _principals(bench)
    await _policies(bench)
    await _settings(bench)
    await _signatures(bench)
    await _triggers(bench)
    await _deliveries(bench)
    await _jobs(bench)
    await _children(bench)
    await _slots(bench)
    await _resources(bench)
    await _limits(bench)
    if at_noon is not None:
        await at_noon()
    for _ in range(AGAIN):
        await _looks(bench, runs)
    await _retention(bench, folder)


async def _starts(bench: Bench) -> list[str]:
    plan = await bench.publish(WORK)
    for definition in (ASKING, BREAKING, *DEFINITIONS):
        await bench.publish(definition)
    request = StartRequest(
        plan=plan, caller=Caller(TENANT, ACTOR), input=b"{}", idempotency_key="mine", business_key="order", priority=3
    )
    first = await bench.starter.start(request)
    again = await bench.starter.start(request)
    assert first.run_id == again.run_id
    idle = await bench.start(plan, start_now=False)
    await start_idle(bench.transactor, idle, caller=Caller(TENANT, ACTOR))
    for _ in range(WAITING):
        await bench.start(ASKING)
    runs = [await bench.start(plan) for _ in range(BACKLOG)]
    return [first.run_id, idle, *runs]


async def _each(bench: Bench, claims: Sequence[Claim], outcome: Outcome) -> None:
    events = [report_of(claim, outcome) for claim in claims]
    await bench.transactor.report(events, await bench.claimer(slots=5))


async def _work(bench: Bench) -> None:
    claims = await bench.claim(WAITING + 20)
    asked = [claim for claim in claims if claim.plan.definition.name == "asking"]
    await _each(bench, asked, Waiting(event="paid", timeout=3600 * SECOND, emit=(Emitted("asked", b"{}"),)))
    rest = [claim for claim in claims if claim.plan.definition.name != "asking"]
    leases = [Lease(TENANT, one.run_id, one.step.no, one.step.fence, 30 * SECOND) for one in rest]
    assert len(await bench.store.renew(leases)) == len(leases)
    await _each(bench, rest, DONE)
    for claim in asked[:5]:
        await people.send(bench.transactor, claim.run_id, "paid", b"{}", caller=Caller(TENANT, ACTOR), message_id="m")
        await people.send(bench.transactor, claim.run_id, "paid", b"{}", caller=Caller(TENANT, ACTOR), message_id="m")
        await people.send(bench.transactor, claim.run_id, "early", b"{}", caller=Caller(TENANT, ACTOR))


async def _people(bench: Bench) -> None:
    """A gate, a manual completion, a wait whose message came early: each settled, in a run that has all of them."""
    run = await bench.start(PEOPLE, priority=100)
    await _each(bench, await bench.claim(1), DONE)
    await people.send(bench.transactor, run, "paid", b"{}", caller=Caller(TENANT, ACTOR))
    await people.decide_gate(bench.transactor, run, approve=True, caller=Caller(TENANT, ACTOR))
    await _each(bench, await bench.claim(1), DONE)
    await people.reissue_token(bench.transactor, run, "m", token=TOKEN, reason="lost", caller=Caller(TENANT, ACTOR))
    await people.complete(
        bench.transactor, run, "m", token=TOKEN, outcome="Succeeded", caller=Caller(TENANT, ACTOR), output=b"{}"
    )
    assert await bench.state(run) is RunState.SUCCEEDED
    signed = await bench.start(SIGNING)
    for person in ("bea", "cyd"):
        await people.decide_gate(bench.transactor, signed, approve=True, caller=Caller(TENANT, person))
    assert await bench.state(signed) is RunState.SUCCEEDED


async def _principals(bench: Bench) -> None:
    """Every table of people is written and read."""
    tenant = TenantRow(name=TENANT, vouching=Vouching.ALLOWED, created_at=1, created_by=ACTOR)
    await change(
        bench.store,
        subject="ann",
        tenants=[tenant],
        principals=[principal("ann")],
        memberships=[membership(1, "ann", MembershipKind.GROUP, "finance")],
        delegations=[delegation(1, "bea", "ann")],
        keys=[key("k1", "ann")],
        sessions=[session("s1", "k1", "ann")],
    )
    store = bench.store.people
    for _ in range(AGAIN):
        assert await store.read_authorities([Caller(VALUES_TENANT, "ann", "k1")])
        assert await store.read_journal(VALUES_TENANT)
        assert await store.read_journal(VALUES_TENANT, "ann")
        assert await store.list_tenants()
        assert await store.read_tenant(TENANT)
        assert await store.list_principals(VALUES_TENANT)
        assert await store.find_principal(VALUES_TENANT, "ann")
        assert await store.read_memberships(VALUES_TENANT, SubjectKind.PERSON, "ann")
        assert await store.read_members(VALUES_TENANT, MembershipKind.GROUP, "finance")
        assert await store.read_delegations(VALUES_TENANT, "ann")
        assert await store.list_memberships(VALUES_TENANT)
        assert await store.list_delegations(VALUES_TENANT)
        assert await store.list_delegations(VALUES_TENANT, ended=True)
        assert await store.list_keys(VALUES_TENANT)
        assert await store.find_key("k1")
        assert await store.find_session("s1")
        assert await store.list_sessions(VALUES_TENANT, "k1")
        assert await store.read_journal_before(VALUES_TENANT, 1_000, 0)
    places = [Scope("key k", AGAIN)]
    for number in range(AGAIN):
        run = f"01a1e12c-57d6-75bf-abba-{number:012x}"
        assert await bench.store.quotas.take(VALUES_TENANT, run, places, 1, 1) is None
        await bench.store.quotas.drop(VALUES_TENANT, run, places)
        await bench.store.measure_use(VALUES_TENANT, ("messages", "definitions", "people")[number % 3], 100)
    audit, of = bench.store.audit, AuditFilter(tenant=VALUES_TENANT)
    for number in range(AGAIN):
        await audit.append([audited(f"a{number}", number)])
        assert await audit.read(of)
        assert await audit.read(replace(of, actor="ann"))
        assert await audit.read(replace(of, target="r-1"))
        assert await audit.read_head(VALUES_TENANT)
        assert await audit.read_chain(VALUES_TENANT, number, 10)
        assert await audit.count_unchained(VALUES_TENANT, 0, 10) == 0
    assert await audit.forget(VALUES_TENANT, AGAIN, AGAIN)


async def _policies(bench: Bench) -> None:
    """A policy is published, read, and asked about a run whose budget sums up its costs; then it is off."""
    document = publishable_policy({"policy": "p", "rules": [{"name": "r", "workflows": ["thrifty"], "then": "allow"}]})
    await policies.publish_policy(bench.transactor, document, caller=Caller(TENANT, ACTOR))
    for _ in range(AGAIN):
        await bench.start(THRIFTY, b"{}", priority=100)
        await _each(bench, await bench.claim(1), DONE)
        assert await bench.store.read_policy(TENANT)
        assert await bench.store.list_policies(TENANT)
    await _shared_budget(bench)
    await policies.publish_policy(bench.transactor, policies.OFF, caller=Caller(TENANT, ACTOR))


async def _signatures(bench: Bench) -> None:
    """The heads of finished runs are found, signed and read."""
    for _ in range(AGAIN):
        assert await bench.store.find_oldest_live(TENANT)
        assert await bench.store.find_unfit(TENANT, FIRST_ID, 1) == []
        [found] = await bench.store.find_unsigned(TENANT, "k" * 16, FIRST_ID, 1)
        kept = SignedHead(
            tenant=TENANT,
            run_id=found.run_id,
            key_id="k" * 16,
            entries=found.entries,
            head=found.head,
            public_key="p" * 64,
            signature="s" * 128,
            signed_at=1,
        )
        await bench.store.add_signed_heads([kept])
        assert await bench.store.read_signed_heads(TENANT, found.run_id) == [kept]


async def _settings(bench: Bench) -> None:
    """Settings are saved, read and listed."""
    for revision in range(1, AGAIN + 1):
        await bench.store.save_setting(TENANT, "network", "allow", revision, b"[]", ACTOR)
        assert await bench.store.read_setting(TENANT, "network", "allow")
        assert await bench.store.list_settings(TENANT, "network")


async def _triggers(bench: Bench) -> None:
    """A schedule fires, waits for its run, and is filled; an ending and an event are looked for."""
    spec = TriggerSpec(name="minutely", schedule=checked(Schedule(cron="* * * * *")), overlap=Overlap.QUEUE)
    sweeper = TriggerSweep(bench.transactor, bench.starter)
    await manage.add_trigger(sweeper.firer, spec, "work", caller=Caller(TENANT, ACTOR))
    rare = Ending(workflow="work", states=(RunState.ROLLED_BACK,))
    after = TriggerSpec(name="after", ended=rare)
    await manage.add_trigger(sweeper.firer, after, "work", caller=Caller(TENANT, ACTOR))
    for _ in range(AGAIN):
        bench.store.clock_offset += 60 * SECOND
        await sweeper.sweep()
    now = await bench.store.now()
    bounds = {"since": now - 300 * SECOND, "until": now}
    await manage.backfill(sweeper.firer, "minutely", caller=Caller(TENANT, ACTOR), **bounds)
    for _ in range(AGAIN):
        bench.store.clock_offset += SECOND
        await sweeper.sweep()
        shown = await manage.show_trigger(bench.transactor, "minutely", tenant=TENANT)
        assert shown["firings"]
        await manage.list_triggers(bench.transactor, tenant=TENANT)
        triggers = bench.store.triggers
        await triggers.list_of_workflow(TENANT, "work")
        await triggers.list_of_kind(TENANT, TriggerKind.EVENT)
        await triggers.read_endings(TENANT, "minutely")
        await triggers.find_unseen(TENANT, "minutely", "work", FIRST_ID, limit=1)
        started = next(one["run_id"] for one in shown["firings"] if one["run_id"])
        assert await triggers.find_firings_of(TENANT, [started])
        await triggers.forget_firings(TENANT, await bench.store.now() - 86_400 * SECOND, 10)
    await manage.pause_trigger(sweeper.firer, "minutely", caller=Caller(TENANT, ACTOR))


async def _children(bench: Bench) -> None:
    """Workflows start children, which end, are called back, and are looked at."""
    leaf = Definition(name="leaf", version=1, steps=(task("work"),))
    await bench.publish(leaf)
    call = replace(task("sub"), executor=None, child=SubWorkflow(workflow="leaf", deadline=60_000_000))
    parent = await bench.publish(Definition(name="parent", version=1, steps=(call,)))
    sweeper = ChildSweep(bench.transactor)
    for turn in range(AGAIN):
        run = (await bench.begin(parent, priority=100)).run_id
        await sweeper.sweep()
        [link] = await bench.store.children.read_all(TENANT, run)
        if turn % 2:
            await bench.cancel(run)
        await sweeper.sweep()
        for claim in await bench.claim(5):
            await bench.report(claim)
        await sweeper.sweep()
        await views.describe_run(bench.transactor, run, tenant=TENANT)
        await views.describe_run(bench.transactor, link.child_id, tenant=TENANT)
    sweeper.close()


async def _resources(bench: Bench) -> None:
    """Steps that need resources wait for them, take them in turn, and are looked at."""
    needs = replace(task("work"), resources={"repo": "exclusive", "cpu": 1})
    plan = await bench.publish(Definition(name="needing", version=1, steps=(needs,)))
    claimer = await bench.claimer(slots=2)
    for _ in range(AGAIN):
        runs = [(await bench.begin(plan, priority=100)).run_id for _ in range(2)]
        assert await bench.store.resources.has_waiting()
        assert len(await bench.store.resources.find_waiting(claimer.queues, 100)) == len(runs)
        for run in runs:
            [claim] = await bench.transactor.claim(claimer, limit=2, run=(TENANT, run))
            assert (await list_resources(bench.store, TENANT))["resources"]
            await bench.report(claim)


async def _limits(bench: Bench) -> None:
    """Limited steps fill their keys, wait in line, are woken, and are looked at; unused keys are forgotten."""
    limits = (Limit(name="api", per="${{ input.of }}", running=1), Limit(name="mail", rate=1_000_000))
    plan = await bench.publish(Definition(name="by-key", version=1, steps=(replace(task("work"), limits=limits),)))
    for turn in range(AGAIN):
        runs = [(await bench.begin(plan, priority=100, input=b'{"of": "a"}')).run_id for _ in range(2)]
        for _ in (*runs, "the line is empty"):
            # One of them, which comes first by its priority, and one of the backlog in place of what waits in line.
            claims = await bench.claim(2)
            await explain(bench.transactor, runs[1], None, tenant=TENANT)
            await show_limit(bench.store, TENANT, "api", None, "", 10)
            await bench.report_all(claims)
        await set_limit(bench.store, "api", LimitRule(running=1 + turn), None, "", caller=Caller(TENANT, "ann"))
        await list_limits(bench.store, TENANT)
    await forget_keys(bench.store)


async def _slots(bench: Bench) -> None:
    """Runs of a limited workflow wait for slots, are granted them, end, and are looked at."""
    plan = await bench.publish(Definition(name="limited", version=1, steps=(task("work"),), slots=1))
    sweeper = SlotSweep(bench.transactor)
    for turn in range(AGAIN):
        runs = [(await bench.begin(plan, priority=100)).run_id for _ in range(2)]
        await views.describe_run(bench.transactor, runs[1], tenant=TENANT)
        await list_slots(bench.store, TENANT)
        await bench.store.slots.count_waiting(TENANT, 100)
        if turn % 2:
            await bench.cancel(runs[1])
        for _ in runs:
            for claim in await bench.claim(2):
                await bench.report(claim)
            await sweeper.sweep()
    sweeper.close()


async def _jobs(bench: Bench) -> None:
    """Jobs are added, carried out, looked at and stopped."""
    kept: dict[str, Any] = {"caller": Caller(TENANT, ACTOR), "digest": b"d" * 32}
    sweeper, options = JobSweep(bench.transactor, bench.starter), {"compensate": False, "reason": ""}
    for turn in range(AGAIN):
        run = await bench.start(SIGNING, priority=100)
        for once in (f"key-{turn}", None):
            made = await jobs.add_job(bench.transactor, JobAction.CANCEL, [run], options, idempotency_key=once, **kept)
        await jobs.known_job(bench.transactor, f"key-{turn}", "", b"d" * 32, tenant=TENANT)
        await jobs.stop_job(bench.transactor, made["job"], tenant=TENANT)
        assert await sweeper.sweep("w") == 1
        await jobs.show_job(bench.transactor, made["job"], tenant=TENANT)
        await jobs.list_jobs(bench.transactor, tenant=TENANT)
        await jobs.list_job_runs(bench.transactor, made["job"], tenant=TENANT)
        await bench.store.jobs.forget(TENANT, await bench.store.now() - 86_400 * SECOND, 1)
        assert await bench.store.triggers.read_backfill(TENANT, made["job"]) is None


async def _shared_budget(bench: Bench) -> None:
    """A run is pinned to a revision with a shared budget; a process that has not read that revision decides on it."""
    budget = {"name": "daily", "per": "1m", "attempts": 10**6}
    document = publishable_policy({"policy": "p", "runs": "pinned", "budgets": [budget]})
    await policies.publish_policy(bench.transactor, document, caller=Caller(TENANT, ACTOR))
    bench.store.clock_offset += 5 * SECOND
    for _ in range(AGAIN):
        await bench.start(THRIFTY, b"{}", priority=100)
        bench.transactor.plans.live = LivePolicies()
        await _each(bench, await bench.claim(1), DONE)


async def _trouble(bench: Bench) -> None:
    """Conditions, failures that roll back, cancels, timers, reruns."""
    await bench.start(CHOOSING, b'{"n":1}', priority=100)
    await _each(bench, await bench.claim(1), DONE)
    run = await bench.start(UNDOING, priority=100)
    for outcome in (DONE, Failed(category=Category.AUTH, error="no"), DONE):
        [claim] = await bench.claim(1)
        await bench.report(claim, outcome)
    assert await bench.state(run) is RunState.ROLLED_BACK
    await bench.start(PEOPLE, priority=100)
    await _each(bench, await bench.claim(1), DONE)
    bench.store.clock_offset += 61 * SECOND
    await sweep(bench.transactor)
    await _each(bench, await bench.claim(1), DONE)
    await sweep(bench.transactor)
    run = await bench.start(WORK, business_key="given up")
    await people.cancel(bench.transactor, run, caller=Caller(TENANT, ACTOR))
    await rerun(bench.transactor, bench.starter, run, caller=Caller(TENANT, ACTOR), idempotency_key="again")
    await _continuation(bench)


async def _continuation(bench: Bench) -> None:
    """A run is retried twice, and each retry takes over what was done."""
    run = await bench.start(chain("continued", 2), priority=100)
    [claim] = await bench.claim(1)
    await bench.report(claim, DONE)
    for _ in range(3):
        [claim] = await bench.claim(1)
        await bench.report(claim, Failed(category=Category.AUTH, error="no"))
        wanted = ContinuationOptions(how=ContinuationKind.RETRY)
        started = await continue_run(bench.transactor, bench.starter, run, wanted, caller=Caller(TENANT, ACTOR))
        run = started.run_id
    await people.cancel(bench.transactor, run, caller=Caller(TENANT, ACTOR))


async def _workers(bench: Bench) -> None:
    worker = await workers.register(bench.store, tenant=TENANT, app="plans", capacity=3)
    await bench.store.beat(TENANT, worker.no, worker.incarnation)
    await bench.store.beat(TENANT, worker.no, worker.incarnation + 1)
    await bench.store.report_worker(TENANT, worker.no, b"{}")
    assert await bench.store.list_worker_reports(TENANT)
    assert await bench.store.read_worker_reports(TENANT, [worker.no])
    worker = await workers.shut_down(bench.store, worker)
    await bench.store.list_workers(TENANT, live_only=True)
    await bench.store.silent_workers(0)
    lines = export_worker(bench.transactor, worker.id, tenant=TENANT)
    assert [line async for line in lines]
    queues = [queue for queue, _ in await bench.store.list_queues(TENANT)]
    assert await bench.store.has_ready(queues)
    assert (await bench.store.find_claimable(Propose(queues=tuple(queues), limit=1))).proposed
    bench.transactor._locked_claims_until = inf
    [claimed] = await bench.claim()
    await bench.transactor.claim(await bench.claimer(), limit=1, run=(TENANT, claimed.run_id))
    bench.transactor._locked_claims_until = -inf


async def _add_sink(bench: Bench, name: str, takes: Takes) -> None:
    await sinks.add_sink(
        bench.transactor,
        name,
        "host",
        on=["*"],
        options={},
        events=sinks.sources_of(takes),
        caller=Caller(TENANT, ACTOR),
    )


async def _deliver_all(bench: Bench, sink: str) -> None:
    store = bench.store.deliveries
    while claimed := await store.claim(TENANT, [(sink, 100)], "w", 60 * SECOND):
        for one in claimed:
            await store.report([_delivered(one, one.last, WHOLE)])


def _delivered(one: Delivery, sent: int, number: int, *, is_dead: bool = False) -> Report:
    which = {"tenant": one.tenant, "run_id": one.run_id, "sink": one.sink, "fence": one.fence}
    return Report(**which, sent=sent, sent_number=number, is_dead=is_dead)


async def _deliveries(bench: Bench) -> None:
    """Sinks of both sorts, an address of a run's own, and what relays and people ask of them."""
    store = bench.store.deliveries
    await _deliver_all(bench, "old")
    await _add_sink(bench, "shop", Takes.EMITTED)
    for turn in range(AGAIN):
        run = await bench.start(WORK, webhook_url="https://shop.example/runs", priority=1000 + turn)
        [claim] = await bench.claim(1)
        assert claim.run_id == run
        await bench.report(claim, DONE)
        assert set(await store.find_due_sinks(TENANT)) == {"shop", "old"}
        [one] = await store.claim(TENANT, [("shop", 1)], "w", 60 * SECOND)
        [entry] = await store.read_entries(TENANT, run, (one.sent, one.sent_number), 10)
        await store.report([_delivered(one, one.sent, one.sent_number, is_dead=True)])
        assert await store.list_cursors(TENANT, dead=True)
        assert await store.list_cursors(TENANT)
        assert await store.count_cursors(TENANT)
        assert len(await store.read_cursors(TENANT, run)) == 3
        given = {"tenant": TENANT, "at": 0, "actor": ACTOR, "sink": "shop", "run_id": run, "reason": "so"}
        assert await store.redrive(Action(action="redriven", seq=2, number=0, **given))
        [one] = await store.claim(TENANT, [("shop", 1)], "w", 60 * SECOND)
        await store.report([_delivered(one, one.sent, one.sent_number, is_dead=True)])
        assert await store.drop(Action(action="dropped", seq=entry.seq, number=entry.number, **given))
        assert len(await store.read_actions(TENANT, run)) == 2
        assert await store.read_actions(TENANT)
        await _deliver_all(bench, "shop")
        await _deliver_all(bench, "old")
    await _add_sink(bench, "watch", Takes.WORKERS)
    worker = await workers.register(bench.store, tenant=TENANT, app="watched", capacity=1)
    for _ in range(AGAIN):
        worker = await workers.mark_idle(bench.store, await workers.mark_busy(bench.store, worker))
        assert await store.read_worker_entries(TENANT, worker.id, worker.seq - 1, 10)
    await _deliver_all(bench, "watch")
    await workers.shut_down(bench.store, worker)
    await _deliver_all(bench, "watch")
    for name in ("shop", "old", "watch"):
        await sinks.remove_sink(bench.transactor, name, discard=True, reason="done", caller=Caller(TENANT, ACTOR))


async def _looks(bench: Bench, runs: list[str]) -> None:
    store, run = bench.store, runs[1]
    states = [(), (RunState.FAILED,), (RunState.QUEUED, RunState.BLOCKED), (RunState.SUCCEEDED,)]
    filters = [{"workflow": "work"}, {"workflow": "none"}, {"business_key": "order"}, {"correlation_id": run}, {}]
    for some in states:
        for given in filters:
            await store.list_runs(RunFilter(tenant=TENANT, states=some, **given))
    await views.describe_run(bench.transactor, run, tenant=TENANT)
    await store.read_attempts(TENANT, run)
    assert await store.read_steps(TENANT, run)
    assert [line async for line in export_run(bench.transactor, run, tenant=TENANT)]
    await store.read_messages(TENANT, run)
    await store.read_outbox(TENANT, run)
    await store.read_gates(TENANT, run)
    await store.read_adoptions(TENANT, [run])
    await store.find_reruns(TENANT, run)
    await store.read_votes(TENANT, run)
    await store.conversations.save(TENANT, "ada", [SavedItem("turn", b"1"), SavedItem("turn", b"2", 0, True)])
    await store.conversations.read(TENANT, "ada")
    await store.conversations.read(TENANT, "ada", newest=True)
    await store.conversations.find(TENANT, "ada", ["turn"])
    await store.conversations.remove(TENANT, "ada", [ItemRange("turn", "turo")])
    await store.conversations.show(TENANT, "ada")
    await store.conversations.list_all(TENANT)
    await store.conversations.find_old(TENANT, 1, 10)
    await store.conversations.delete(TENANT, "ada")
    name = str(len(await store.read_checkpoints(TENANT, run, 0)))
    recorded = Checkpoint(tenant=TENANT, run_id=run, no=0, name=name, fence=1, seq=2, at=1, value=b"null")
    named = Want(tenant=TENANT, run_id=run, checkpoints=((0, name),))
    await store.change([named], lambda loaded: Write(rows=rows_of([recorded])))
    await store.newest_checkpoints(TENANT, run)
    await store.list_open_gates(TENANT)
    await store.read_outputs([(TENANT, run, 0)])
    await store.read_details([(TENANT, run)])
    await store.read_involved([(TENANT, run)])
    await store.change([], lambda loaded: Write(rows=rows_of([Payload(TENANT, run, "0" * 64, b"null")])))
    await store.change(
        [], lambda loaded: Write(rows=rows_of([Requesters(tenant=TENANT, run_id=run, asked_before=b"[]")]))
    )
    assert await store.read_payload(TENANT, run, "0" * 64) == b"null"
    await write_streams(store, run)
    await store.add_evidence([Evidence(TENANT, run, 0, 1, b"{}")])
    assert await store.read_evidence(TENANT, run)
    await store.tally(TENANT, after=FIRST_ID, late_by=await store.now(), limit=1_000)
    await store.list_runs(RunFilter(tenant=TENANT, erred=True))
    assert (await store.search_runs(RunFilter(tenant=TENANT), Words(text=run[:8]), 1_000)).records
    await store.search_runs(RunFilter(tenant=TENANT, states=(RunState.FAILED,)), Words(text="x"), 100)
    await store.search_runs(RunFilter(tenant=TENANT), Words(roots=True), 100)
    await store.count_unfinished(TENANT, 1_000)
    await store.sample_live(TENANT, share=1, limit=1_000)
    await store.sample_recent(TENANT, after=FIRST_ID, share=1, limit=100)
    assert await store.read_recent_runs(TENANT, after=FIRST_ID, limit=1_000)
    assert await store.read_recent_attempts(TENANT, [run], limit=500)
    await store.read_failures(TENANT, after=FIRST_ID, limit=500)
    assert await store.read_backlog([queue for queue, _ in await store.list_queues(TENANT)], 1_000)
    await store.read_states([(TENANT, run)])
    await store.list_definitions(TENANT)
    await store.has_other_tenants(TENANT)
    await store.read_definitions([1])
    await store.publish_schema(TENANT, "invoice/v1", "0" * 64, b"{}", "ann")
    assert await store.read_schema(TENANT, "invoice/v1") is not None
    assert len(await store.list_schemas(TENANT)) == 1
    assert await store.quarantine(TENANT, run, "ann", "a look at what setting it aside costs") is not None
    assert len(await store.list_quarantined(TENANT)) == 1
    assert await store.stuck_runs() == []
    assert await store.release(TENANT, run, "ann", "seen") is not None
    assert await store.read_quarantines(TENANT)
    assert await store.stuck_runs() == []
    plan = await bench.publish(Definition(name="noted", version=1, steps=(gate("wait", wait=Wait(event="note")),)))
    kept = await bench.send_by_key("order-m", "other")
    assert len(await store.list_mailbox(TENANT)) == len(await store.list_mailbox(TENANT, "order-m")) == 1
    assert (await bench.send_by_key("order-m", "note", message_id=kept.id, plan=plan)).started
    assert (await bench.send_by_key("order-m", "note")).consumed_by == 0
    assert (await bench.send_by_key("order-n", "note")).kept_until is not None
    assert len(await store.drop_mailbox(TENANT, "order-n")) == 1
    await store.status()
    await sweep(bench.transactor)
    await store.now()


async def _retention(bench: Bench, folder: Path) -> None:
    """Two archives' worth by age, of all runs and of one workflow; the newest spared; old keys forgotten."""
    oldest = await bench.store.find_finished(FinishedFilter(tenant=TENANT, limit=30))
    await bench.store.delete_runs(TENANT, oldest[:10])
    await bench.store.forget_keys(TENANT, oldest[20], 10)
    await bench.store.forget_mailbox(10)
    wholes = await bench.store.read_whole(TENANT, oldest[10:])
    assert len(wholes) == len(oldest[10:])
    for policy in (
        Policy(older_than=0, keep=5, workflow="breaking"),
        Policy(older_than=3650 * 86_400 * SECOND, keep=40),
    ):
        await prune(bench.transactor, policy, tenant=TENANT, folder=folder, batch=20, dry_run=True)
    await bench.store.maintain()


async def write_streams(store: Any, run: str) -> None:
    """Write to streams of a run, and read them in every way."""
    fence = 1 + len(await store.streams.read(TENANT, run))
    own = {"tenant": TENANT, "run_id": run, "no": 0, "name": "tokens", "fence": fence, "count": 1, "at": 1}
    part = StreamPart(**own, start=0, body=b'["a"]')
    await store.change([], lambda loaded: Write(rows=rows_of([part])))
    await store.streams.append(Holder(TENANT, run, 0, 1, 1), [StreamPart(**own, start=1, body=b'["b"]')], 1_000)
    assert await store.streams.read(TENANT, run)
    assert await store.streams.read_new(TENANT, {run: 0}, 10)
    assert await store.streams.read_attempt(TENANT, run, 0, 1)
    assert await store.streams.list_sizes(TENANT, run)
    assert await store.streams.measure(TENANT, run)
