"""Gates on both stores: roles are read in the deciding transaction, each decision counts once, all is on record."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import datetime

import pytest
from msgspec.structs import replace

import stepkeep as sk
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import SECOND, Approval, Definition, Level, OnDeadline
from stepkeep.kernel.errors import Conflict, NotAllowed, StepkeepError
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller, MembershipKind
from stepkeep.operations.continuation.going_on import rerun
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.expire import sweep
from tests.store import people as rows
from tests.workbench import TENANT, Bench, benches, gate, on, task

FINANCE = ("bea", "cyd", "dan", "eve", "fay")
SIGNED = Definition(
    name="signed",
    version=1,
    steps=(
        task("pay"),
        gate(
            "sign",
            1,
            ["pay"],
            approval=Approval(
                prompt="Release it?",
                facts={"order": "${{ input.id }}", "paid": "${{ steps.pay.output }}"},
                roles=("finance",),
                quorum=3,
                excluded=("requester",),
                deadline=60 * SECOND,
                on_deadline=OnDeadline.ESCALATE,
                escalate=(Level(approvers=("hal",)),),
            ),
        ),
    ),
)


async def register(bench: Bench, *names: str, role: str = "finance") -> None:
    """Register these people with this role."""
    known = [rows.principal(name, TENANT) for name in names]
    held = [
        replace(rows.membership(place, name, MembershipKind.ROLE, role), tenant=TENANT, id=f"{role}-{name}")
        for place, name in enumerate(names, 1)
    ]
    await rows.change(bench.store, tenant=TENANT, principals=known, memberships=held)


async def waiting(bench: Bench, **options: object) -> str:
    run_id = await bench.start(SIGNED, b'{"id":7}', **options)
    await bench.work_off()
    return run_id


async def answer(bench: Bench, run_id: str, by: str, approve: bool = True) -> Accepted | StepkeepError:
    try:
        return await people.decide_gate(
            bench.transactor, run_id, approve=approve, caller=Caller(TENANT, by), step="sign", evidence=("doc:1",)
        )
    except StepkeepError as problem:
        return problem


async def test_a_gate_counts_people_with_the_role_and_refuses_all_others(database_url: str) -> None:
    async with on(database_url) as bench:
        await register(bench, *FINANCE, "ann")
        run_id = await waiting(bench, actor="ann")
        for name, rule in (("zoe", "approvers"), ("ann", "maker_checker")):
            refused = await answer(bench, run_id, name)
            assert isinstance(refused, NotAllowed)
            assert (refused.rule, refused.person) == (rule, name)
        for place, name in enumerate(FINANCE[:3], 1):
            told = await answer(bench, run_id, name)
            assert isinstance(told, Accepted)
            assert told.record.get("counted", {}).get("approved", 3) == place
        assert await bench.state(run_id) is RunState.SUCCEEDED
        late = await answer(bench, run_id, "eve")
        assert isinstance(late, Conflict)
        assert "was approved by dan first" in str(late)
        votes = await bench.store.read_votes(TENANT, run_id)
        assert [(vote.person, vote.held_roles, vote.evidence) for vote in votes] == [
            (name, ("role:finance",), b'["doc:1"]') for name in FINANCE[:3]
        ]


async def test_what_was_shown_is_on_record_with_its_digest(database_url: str) -> None:
    async with on(database_url) as bench:
        await register(bench, *FINANCE)
        run_id = await waiting(bench)
        [opened] = await bench.store.read_gates(TENANT, run_id)
        shown = json.loads(opened.shown)
        assert shown["facts"]["order"] == 7
        assert shown["gate"]["prompt"] == "Release it?"
        assert opened.shown_digest == hashlib.sha256(opened.shown).hexdigest()
        assert [gate.run_id for gate in await bench.store.list_open_gates(TENANT)] == [run_id]
        for name in FINANCE[:3]:
            await answer(bench, run_id, name)
        [closed] = await bench.store.read_gates(TENANT, run_id)
        assert (closed.outcome, closed.shown) == ("approved", opened.shown)
        assert {vote.shown_digest for vote in await bench.store.read_votes(TENANT, run_id)} == {opened.shown_digest}
        lines = [line async for line in export_run(bench.transactor, run_id, tenant=TENANT)]
        digests = [line["metadata"].get("digest") for line in lines if line.get("trigger") == "gate_opened"]
        assert digests == [opened.shown_digest]


async def test_a_role_that_was_granted_after_the_opening_does_not_count(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await waiting(bench)
        now = await bench.store.now()
        await rows.change(
            bench.store,
            tenant=TENANT,
            principals=[rows.principal("bea", TENANT)],
            memberships=[
                replace(
                    rows.membership(1, "bea", MembershipKind.ROLE, "finance"), tenant=TENANT, granted_at=now + SECOND
                )
            ],
        )
        bench.store.clock_offset += 2 * SECOND
        refused = await answer(bench, run_id, "bea")
        assert isinstance(refused, NotAllowed)
        assert "did not have that when the gate opened" in str(refused)


async def test_the_person_who_asked_for_a_run_may_not_decide_its_rerun(database_url: str) -> None:
    async with on(database_url) as bench:
        await register(bench, *FINANCE)
        first = await waiting(bench, actor="bea")
        await bench.cancel(first)
        again = await rerun(bench.transactor, bench.starter, first, caller=Caller(TENANT, "cyd"))
        await bench.work_off()
        for name in ("bea", "cyd"):
            refused = await answer(bench, again.run_id, name)
            assert isinstance(refused, NotAllowed)
            assert refused.rule == "maker_checker"
        assert isinstance(await answer(bench, again.run_id, "dan"), Accepted)


async def test_an_escalated_gate_keeps_its_votes_and_takes_the_next_people(database_url: str) -> None:
    async with on(database_url) as bench:
        await register(bench, *FINANCE)
        run_id = await waiting(bench)
        for name in ("bea", "cyd"):
            await answer(bench, run_id, name)
        assert isinstance(await answer(bench, run_id, "hal"), NotAllowed)
        bench.store.clock_offset += 61 * SECOND
        await sweep(bench.transactor, actor="sweep")
        [opened] = await bench.store.read_gates(TENANT, run_id)
        assert (opened.level, opened.due_at, opened.closed_at) == (1, None, None)
        assert isinstance(await answer(bench, run_id, "hal"), Accepted)
        assert await bench.state(run_id) is RunState.SUCCEEDED
        [told] = [one for one in await bench.store.read_outbox(TENANT, run_id) if one.name == "gate.escalated"]
        assert json.loads(told.payload)["approvers"] == ["hal"]


@pytest.mark.parametrize("processes", [1, 3])
async def test_of_many_decisions_at_once_exactly_the_quorum_counts(database_url: str, processes: int) -> None:
    async with benches(database_url, processes) as opened:
        await register(opened[0], *FINANCE)
        for _ in range(3):
            run_id = await waiting(opened[0], actor="ann")
            asked = [answer(opened[place % processes], run_id, FINANCE[place % 5]) for place in range(25)]
            told = await asyncio.gather(*asked)
            votes = await opened[0].store.read_votes(TENANT, run_id)
            assert len(votes) == len({vote.person for vote in votes}) == 3
            counted = {one.record["by"] for one in told if isinstance(one, Accepted)}
            assert counted == {vote.person for vote in votes}
            assert {type(one) for one in told} <= {Accepted, Conflict}
            assert (await opened[0].step_states(run_id))[1] is StepState.SUCCEEDED


def test_the_time_of_a_decision_is_a_number_in_the_output_and_a_text_for_people(database_url: str) -> None:
    flow = sk.Workflow("when", version=1, timeout="1h")
    signed = flow.approval("sign-off", deadline="1h")
    moment = '${{ string(timestamp(steps["sign-off"].output.at / 1000000)) }}'
    flow.returns({"number": signed.output.at, "text": moment})
    with sk.open(database_url, auto_migrate=True) as engine:
        run = engine.start(flow)
        answered = engine.approve(run.run_id)["at"]
        found = engine.result(run.run_id)
    [step] = found.view["steps"]
    assert step["output"]["at"] == found.output["number"]
    assert step["record"]["at"] == answered
    assert found.output["text"] == f"{answered[:19]}Z"
    assert datetime.fromisoformat(answered).timestamp() == found.output["number"] // 1000 / 1000
