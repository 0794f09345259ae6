"""Promise 5 for people: the first committed decision wins, a repeat changes nothing, everybody else learns who won."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.engine import AsyncEngine
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Approval, Completion, Definition
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.people import people
from stepkeep.operations.pipeline.expire import sweep
from tests.workbench import NOBODYS, SECOND, TENANT, Bench, benches, chain, gate, on, task

SIGNED = Definition(name="signed", version=1, steps=(gate("sign", approval=Approval()), task("ship", 1, ["sign"])))
TWO = Definition(
    name="two", version=1, steps=(gate("first", approval=Approval()), gate("second", 1, ["first"], approval=Approval()))
)
PARALLEL = Definition(
    name="parallel", version=1, steps=(gate("left", approval=Approval()), gate("right", 1, approval=Approval()))
)
BY_HAND = Definition(
    name="by-hand", version=1, steps=(task("call", completion=Completion.MANUAL, completion_deadline=60 * SECOND),)
)
TOKEN = "a token that was handed out"


# -- gates -----------------------------------------------------------------------------------------------------------
async def test_an_approval_opens_the_way_and_says_who_gave_it(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(SIGNED)
        reply = await bench.approve(run_id, by="ann", comment="gut so – ✓\nzweite Zeile")
        assert reply.record["step"] == "sign"
        assert (reply.record["decision"], reply.record["by"]) == ("approved", "ann")
        assert await bench.work_off() == 1
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_a_rejection_fails_the_gate_and_the_run(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(SIGNED)
        await bench.reject(run_id, by="ann", comment="not like this")
        assert await bench.step_states(run_id) == [StepState.FAILED, StepState.CANCELLED]
        found = await bench.store.read_run(TENANT, run_id)
        assert found is not None
        assert found.run.error == "rejected by ann: not like this"


async def test_the_same_decision_by_the_same_person_again_changes_nothing(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(SIGNED)
        first = await bench.approve(run_id, "sign", by="ann")
        for again in (await bench.approve(run_id, "sign", by="ann"), await bench.approve(run_id, by="ann")):
            assert again.repeated
            assert again.record == first.record


async def test_any_other_decision_is_a_conflict_that_names_the_winner(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(SIGNED)
        await bench.approve(run_id, "sign", by="ann")
        for loser in (bench.approve(run_id, "sign", by="bob"), bench.reject(run_id, "sign", by="ann")):
            with pytest.raises(Conflict, match="approved by ann first") as refused:
                await loser
            assert refused.value.winner is not None
            assert refused.value.winner["by"] == "ann"


async def test_a_double_click_never_passes_the_next_gate(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(TWO)
        await bench.approve(run_id, by="ann")
        with pytest.raises(Conflict, match="now second is open") as refused:
            await bench.approve(run_id, by="ann")
        assert refused.value.winner is not None
        assert refused.value.winner["step"] == "first"
        assert (await bench.approve(run_id, "first", by="ann")).repeated
        assert await bench.state(run_id) is RunState.BLOCKED
        await bench.approve(run_id, "second", by="ann")
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_with_several_gates_open_the_one_that_is_meant_must_be_named(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(PARALLEL)
        with pytest.raises(Conflict, match="left, right"):
            await bench.approve(run_id)
        await bench.approve(run_id, "left")
        await bench.approve(run_id, "right")
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_of_many_people_at_one_gate_one_wins_and_the_others_hear_who(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        run_id = await opened[0].start(SIGNED)
        replies = await asyncio.gather(
            *(
                (Bench.approve if place % 2 else Bench.reject)(
                    opened[place % len(opened)], run_id, "sign", by=f"person-{place}"
                )
                for place in range(30)
            ),
            return_exceptions=True,
        )
        [winner] = [reply for reply in replies if isinstance(reply, Accepted)]
        losers = [reply for reply in replies if isinstance(reply, Conflict)]
        assert len(losers) == 29
        assert {loser.winner["by"] for loser in losers if loser.winner} == {winner.record["by"]}


async def test_what_is_no_open_gate_cannot_be_decided(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(SIGNED)
        with pytest.raises(Conflict, match="no approval gate"):
            await bench.approve(run_id, "ship")
        with pytest.raises(NotFound, match="Its steps: sign, ship"):
            await bench.approve(run_id, "sing")
        plain = await bench.start(chain("plain", 1))
        with pytest.raises(Conflict, match="no open gate"):
            await bench.approve(plain)
        unopened = await bench.start(TWO)
        with pytest.raises(Conflict, match="not open yet"):
            await bench.approve(unopened, "second")
        await bench.cancel(unopened)
        with pytest.raises(Conflict) as refused:
            await bench.approve(unopened, "first")
        assert refused.value.winner is not None
        assert refused.value.winner["decision"] == "cancelled"


async def test_who_comes_after_the_deadline_learns_that_it_passed(database_url: str) -> None:
    hurried = Definition(name="hurried", version=1, steps=(gate("sign", approval=Approval(deadline=60 * SECOND)),))

    async with on(database_url) as bench:
        run_id = await bench.start(hurried)
        bench.store.clock_offset = 61 * SECOND
        await sweep(bench.transactor)
        with pytest.raises(Conflict) as refused:
            await bench.approve(run_id, "sign")
        assert refused.value.winner is not None
        assert refused.value.winner["decision"] == "expired"


async def test_a_run_that_does_not_exist_has_no_gate(database_url: str) -> None:
    async with on(database_url) as bench:
        for run_id in (NOBODYS, "nothing-like-an-id"):
            with pytest.raises(NotFound):
                await bench.approve(run_id)
            with pytest.raises(NotFound):
                await complete(bench, run_id)


# -- completion by hand ----------------------------------------------------------------------------------------------
async def complete(
    bench: Bench, run_id: str, outcome: str = "Succeeded", token: str = TOKEN, actor: str = "ann", **said: object
) -> Accepted:
    return await people.complete(
        bench.transactor,
        run_id,
        "call",
        token=token,
        outcome=outcome,
        caller=Caller(TENANT, actor),
        **said,  # type: ignore[arg-type]
    )


async def handed_out(bench: Bench, definition: Definition = BY_HAND) -> str:
    run_id = await bench.start(definition)
    [claim] = await bench.claim()
    reply = await bench.report(claim, Completed(output=b"1", token=people.token_hash(TOKEN)))
    assert isinstance(reply, Accepted)
    assert await bench.step_states(run_id) == [StepState.AWAITING_COMPLETION]
    return run_id


async def test_a_step_is_completed_by_hand_with_its_token_and_an_output(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        await complete(bench, run_id, output=b'{"done":true}', notes="by phone", evidence=("call-7",))
        assert await bench.state(run_id) is RunState.SUCCEEDED
        key = (TENANT, run_id, 0)
        assert (await bench.store.read_outputs([key]))[key] == b'{"done":true}'
        [row] = await bench.store.read_steps(TENANT, run_id)
        assert row.note is not None
        assert row.note.record is not None
        assert json.loads(row.note.record)["evidence"] == ["call-7"]
        assert TOKEN not in str(row), "only the hash of a token is kept"


@pytest.mark.parametrize(
    ("outcome", "state"),
    [("Failed", RunState.FAILED), ("cancelled", RunState.SUCCEEDED), ("SUCCEEDED", RunState.SUCCEEDED)],
)
async def test_the_outcome_decides_how_the_run_goes_on(database_url: str, outcome: str, state: RunState) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        await complete(bench, run_id, outcome)
        assert await bench.state(run_id) is state


async def test_an_output_by_hand_that_does_not_fit_is_refused_and_a_corrected_one_counts(
    database_url: str,
) -> None:
    [call] = BY_HAND.steps
    held = replace(BY_HAND, steps=(replace(call, output_schema={"required": ["done"]}),))

    async with on(database_url) as bench:
        run_id = await handed_out(bench, held)
        for wrong in (None, b"{}", b"{"):
            with pytest.raises(InvalidInput, match="output"):
                await complete(bench, run_id, output=wrong)
        assert await bench.step_states(run_id) == [StepState.AWAITING_COMPLETION]
        await complete(bench, run_id, output=b'{"done":true}')
        assert await bench.state(run_id) is RunState.SUCCEEDED
        failed = await handed_out(bench, replace(held, version=2))
        await complete(bench, failed, "Failed")
        assert await bench.state(failed) is RunState.FAILED


async def test_a_lost_token_is_replaced_on_record_and_the_old_one_is_useless(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        by: dict[str, Any] = {"token": "a new one", "caller": Caller(TENANT, "bea")}
        reissue = people.reissue_token
        with pytest.raises(InvalidInput, match="needs a reason"):
            await reissue(bench.transactor, run_id, "call", reason=" ", **by)
        reply = await reissue(bench.transactor, run_id, "call", reason="the mail was lost", **by)
        assert (reply.record["by"], reply.record["reason"]) == ("bea", "the mail was lost")
        assert await bench.state(run_id) is RunState.BLOCKED
        [row] = await bench.store.read_steps(TENANT, run_id)
        assert row.due_at is not None
        with pytest.raises(Conflict, match="does not match"):
            await complete(bench, run_id)
        await complete(bench, run_id, token="a new one")
        assert await bench.state(run_id) is RunState.SUCCEEDED
        with pytest.raises(Conflict, match="is succeeded"):
            await reissue(bench.transactor, run_id, "call", reason="too late", **by)


async def test_a_run_with_a_new_token_conforms_in_every_dialect(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        await people.reissue_token(
            bench.transactor, run_id, "call", token="new", reason="lost", caller=Caller(TENANT, "bea")
        )
        await complete(bench, run_id, token="new")
        async with AsyncEngine(database_url, tenant=TENANT) as engine:
            certificate = await engine.certify(run_id)
        assert certificate.ok, certificate
        assert len(certificate.dialects) == 5


async def test_completing_again_is_recognised_and_another_outcome_is_a_conflict(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        first = await complete(bench, run_id)
        again = await complete(bench, run_id, actor="bob")
        assert again.repeated
        assert again.record == first.record
        with pytest.raises(Conflict, match="completed as Succeeded by ann") as refused:
            await complete(bench, run_id, "Failed")
        assert refused.value.winner is not None
        assert refused.value.winner["outcome"] == "Succeeded"


async def test_of_many_completions_at_once_one_counts(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        run_id = await handed_out(opened[0])
        replies = await asyncio.gather(
            *(
                complete(opened[place % len(opened)], run_id, ("Succeeded", "Failed")[place % 2], actor=f"p{place}")
                for place in range(30)
            ),
            return_exceptions=True,
        )
        accepted = [reply for reply in replies if isinstance(reply, Accepted)]
        assert sum(not reply.repeated for reply in accepted) == 1
        assert len({str(reply.record["outcome"]) for reply in accepted}) == 1
        assert sum(isinstance(reply, Conflict) for reply in replies) == 15


async def test_a_wrong_token_or_outcome_completes_nothing(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        with pytest.raises(Conflict, match="token does not match"):
            await complete(bench, run_id, token="a guess")
        with pytest.raises(InvalidInput, match="no outcome"):
            await complete(bench, run_id, "Perhaps")
        with pytest.raises(InvalidInput, match="at most"):
            await complete(bench, run_id, output=b"x" * (bench.transactor.payloads.max_bytes + 1))
        with pytest.raises(InvalidInput, match="too many"):
            await complete(bench, run_id, evidence=("e",) * 101)
        assert await bench.step_states(run_id) == [StepState.AWAITING_COMPLETION]


async def test_a_completion_after_the_deadline_is_a_conflict(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await handed_out(bench)
        bench.store.clock_offset = 61 * SECOND
        await sweep(bench.transactor)
        assert await bench.state(run_id) is RunState.FAILED
        with pytest.raises(Conflict, match="already failed"):
            await complete(bench, run_id)
