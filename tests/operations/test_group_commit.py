"""Group commit: many events share a transaction, and one bad event is refused alone, never with its batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.definition import Approval, Definition, digest_of, encode_definition
from stepkeep.kernel.errors import Broken, Conflict, InvalidInput, InvariantBroken, NotFound, Unreadable
from stepkeep.kernel.machine.events import CancelRequested, Event, GateDecided, MessageArrived, StepReported, TimeCame
from stepkeep.kernel.machine.outcomes import Completed
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import queue_specs
from stepkeep.operations.pipeline import batch
from stepkeep.operations.pipeline.expire import sweep
from stepkeep.operations.pipeline.group_commit import DIVIDED, LARGE_BYTES, Submissions
from stepkeep.operations.pipeline.start import StartRequest, input_bytes
from stepkeep.store.rows import Payload
from tests.workbench import ACTOR, NOBODYS, SECOND, TENANT, chain, gate, on, task, until
from tests.worker.making import a_plan

SIGNED = Definition(name="signed", version=1, steps=(gate("sign", approval=Approval(deadline=60 * SECOND)),))


def approval(run_id: str, actor: str = ACTOR, comment: str = "") -> GateDecided:
    return GateDecided(tenant=TENANT, run_id=run_id, actor=actor, approve=True, no=0, comment=comment)


def half_a_character(run_id: str) -> Event:
    """No encoder takes it."""
    return approval(run_id, comment="half \ud800")


def a_name_too_long(run_id: str) -> Event:
    """No index of PostgreSQL takes its row: the whole write would fail there."""
    return MessageArrived(
        tenant=TENANT, run_id=run_id, actor=ACTOR, id="".join(map(chr, range(0x4E00, 0x9000))), name="n", payload=b"1"
    )


def a_nul(run_id: str) -> Event:
    """No text column of PostgreSQL holds it."""
    return CancelRequested(tenant=TENANT, run_id=run_id, actor=ACTOR, reason="a\x00b")


def a_clock_beyond_all_clocks(run_id: str) -> Event:
    """Not an event of a person at all: there is no such step."""
    return TimeCame(tenant=TENANT, run_id=run_id, actor=ACTOR, no=99)


@pytest.mark.parametrize("bad", [half_a_character, a_name_too_long, a_nul, a_clock_beyond_all_clocks])
async def test_one_bad_event_harms_none_of_its_neighbours(database_url: str, bad: Any) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(20)]
        events = [approval(run_id) for run_id in runs]
        events[7] = bad(runs[7])
        replies = await bench.transactor.submit_all(events)
        good = [reply for place, reply in enumerate(replies) if place != 7]
        assert all(isinstance(reply, Accepted) and not reply.repeated for reply in good)
        states = [await bench.state(run_id) for run_id in runs]
        assert states[:7] + states[8:] == [RunState.SUCCEEDED] * 19
        if isinstance(replies[7], Exception):
            assert states[7] is RunState.BLOCKED, "what was refused left no trace"


async def test_callers_who_share_a_transaction_hear_only_of_their_own_events(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(12)]
        events: list[Event] = [approval(run_id) for run_id in runs]
        events[3], events[8] = half_a_character(runs[3]), approval(NOBODYS)
        replies = await asyncio.gather(*map(bench.transactor.submit, events), return_exceptions=True)
        assert isinstance(replies[3], InvalidInput)
        assert isinstance(replies[8], NotFound)
        assert sum(isinstance(reply, Accepted) for reply in replies) == 10


async def test_a_bad_event_harms_no_other_event_of_its_own_run(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(SIGNED)
        replies = await bench.transactor.submit_all(
            [
                MessageArrived(tenant=TENANT, run_id=run_id, actor=ACTOR, id="m1", name="n", payload=b"1"),
                half_a_character(run_id),
                approval(run_id),
                approval(run_id, actor="somebody else"),
            ]
        )
        assert [type(reply) for reply in replies] == [Accepted, InvalidInput, Accepted, Conflict]
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_an_event_whose_decision_breaks_an_invariant_is_answered_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(8)]
        real = batch.decide

        def decide(snapshot: Any, events: Any, now: int, claimer: Any = None) -> Any:
            if snapshot.run.id == runs[5]:
                raise InvariantBroken("a defect that only this run meets")
            return real(snapshot, events, now, claimer)

        monkeypatch.setattr(batch, "decide", decide)
        replies = await asyncio.gather(
            *(bench.transactor.submit(approval(run_id)) for run_id in runs), return_exceptions=True
        )
        assert isinstance(replies[5], InvariantBroken)
        assert sum(isinstance(reply, Accepted) for reply in replies) == 7


async def test_rows_that_the_schema_refuses_are_refused_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel is made to lie about one run; the schema is the second to say no, and only to that run."""

    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(8)]
        real = batch.decide

        def decide(snapshot: Any, events: Any, now: int, claimer: Any = None) -> Any:
            decision = real(snapshot, events, now, claimer)
            if snapshot.run.id == runs[2]:
                lie = [replace(step, state=StepState.RUNNING, settled=None) for step in decision.changed]
                return replace(decision, changed=tuple(lie))
            return decision

        monkeypatch.setattr(batch, "decide", decide)
        replies = await bench.transactor.submit_all([approval(run_id) for run_id in runs])
        assert isinstance(replies[2], InvariantBroken)
        assert sum(isinstance(reply, Accepted) for reply in replies) == 7
        assert await bench.state(runs[2]) is RunState.BLOCKED


async def test_a_sweep_moves_everything_that_is_due_past_what_cannot_be_moved(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(SIGNED)
        runs = [await bench.start(plan) for _ in range(6)]
        real = batch.decide

        def decide(snapshot: Any, events: Any, now: int, claimer: Any = None) -> Any:
            if snapshot.run.id == runs[0]:
                raise Broken("stuck in the first place of every sweep")
            return real(snapshot, events, now, claimer)

        monkeypatch.setattr(batch, "decide", decide)
        bench.store.clock_offset = 61 * SECOND
        await sweep(bench.transactor)
        states = [await bench.state(run_id) for run_id in runs]
        assert states == [RunState.BLOCKED] + [RunState.FAILED] * 5
    assert "cannot be moved" in caplog.text


async def test_a_definition_that_cannot_be_read_stops_no_claim_of_the_others(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer program published it, or it was damaged; a worker that cannot read it still works on everything else."""

    async with on(database_url) as bench:
        good = [await bench.start(chain("good", 1)) for _ in range(3)]
        odd = Definition(name="odd", version=1, steps=(task("s"),))
        future = b'{"from":"the future"}'
        stored = await bench.store.publish(
            TENANT, "odd", 1, "native", digest_of(future), future, queue_specs(odd), ACTOR
        )
        known = encode_definition(odd)
        plan = bench.transactor.plans.add(replace(stored, document=known, digest=digest_of(known)))
        bad = await bench.start(plan)
        bench.transactor.plans._plans.clear()
        claims = await bench.claim(limit=10)
        assert sorted(claim.run_id for claim in claims) == sorted(good)
        with pytest.raises(Unreadable, match="its definition is unreadable"):
            await bench.transactor.submit(CancelRequested(tenant=TENANT, run_id=bad, actor=ACTOR))
    assert "cannot be read by this program" in caplog.text


async def test_an_event_for_a_run_that_has_ended_leaves_the_lane_alive(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("one", 1))
        ended = await bench.start(plan)
        [claim] = await bench.claim()
        await bench.report(claim)
        late: list[Event] = [
            approval(ended),
            TimeCame(tenant=TENANT, run_id=ended, actor=ACTOR),
            TimeCame(tenant=TENANT, run_id=ended, actor=ACTOR, no=0),
            StepReported(
                tenant=TENANT,
                run_id=ended,
                actor=ACTOR,
                no=0,
                fence=1,
                worker=claim.step.worker or 0,
                outcome=Completed(),
            ),
            CancelRequested(tenant=TENANT, run_id=ended, actor=ACTOR),
        ]
        replies = await asyncio.gather(*map(bench.transactor.submit, late), return_exceptions=True)
        assert not any(isinstance(reply, Accepted) and not reply.repeated for reply in replies)
        live = await bench.start(plan)
        reply = await bench.transactor.submit(CancelRequested(tenant=TENANT, run_id=live, actor=ACTOR))
        assert reply.record["state"] is RunState.CANCELLED


async def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    flushed: list[list[int]] = []
    gate_open = asyncio.Event()

    async def flush(items: list[int]) -> list[int]:
        await gate_open.wait()
        flushed.append(items)
        return items

    lane: Submissions[int, int] = Submissions(flush)
    first = asyncio.create_task(lane.put(1))
    await asyncio.wait([first], timeout=0)
    left, stays = asyncio.create_task(lane.put(2)), asyncio.create_task(lane.put(3))
    await asyncio.wait([left], timeout=0)
    left.cancel()
    await asyncio.wait([left])
    gate_open.set()
    assert [await first, await stays] == [1, 3]
    assert flushed == [[1], [3]]


async def test_a_batch_is_bounded_by_the_bytes_of_its_payloads_too() -> None:
    flushed: list[list[int]] = []
    gate_open = asyncio.Event()

    async def flush(items: list[int]) -> list[int]:
        await gate_open.wait()
        flushed.append(items)
        return items

    lane: Submissions[int, int] = Submissions(flush, limit=4, size_bytes=lambda item: item * 1024 * 1024)
    asked = [asyncio.create_task(lane.put(item)) for item in (1, 9, 8, 7, 1, 40, 2, 1, 1, 1, 1)]
    await asyncio.wait(asked[:1], timeout=0)
    gate_open.set()
    await asyncio.gather(*asked)
    assert [item for batch in flushed for item in batch] == [1, 9, 8, 7, 1, 40, 2, 1, 1, 1, 1]
    assert all(len(batch) <= 4 and (sum(batch) <= 16 or len(batch) == 1) for batch in flushed), flushed
    assert len(flushed) < 8, flushed


async def test_a_small_item_does_not_wait_for_a_large_one() -> None:
    written = asyncio.Event()

    async def flush(items: list[int]) -> list[int]:
        if max(items) >= LARGE_BYTES:
            await written.wait()
        return items

    lane: Submissions[int, int] = Submissions(flush, size_bytes=lambda item: item)
    large = asyncio.create_task(lane.put(LARGE_BYTES))
    await asyncio.wait([large], timeout=0)
    assert await lane.put(LARGE_BYTES - 1) == LARGE_BYTES - 1
    assert not large.done()
    written.set()
    assert await large == LARGE_BYTES


def test_an_input_counts_wherever_it_is_kept() -> None:
    body = b"x" * 3_000_000
    request = StartRequest(plan=a_plan(*SIGNED.steps), input=body, caller=Caller(TENANT, ACTOR))
    assert input_bytes(request) == len(body)
    apart = Payload(tenant=TENANT, run_id="r", digest="d", body=body)
    assert input_bytes(replace(request, input=b"reference", payload=apart)) == len(body)


async def test_reports_that_are_large_together_are_recorded_in_several_transactions(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(chain("large", 1))
        runs = [await bench.start(plan) for _ in range(8)]
        payload = b'"' + b"x" * (3 * 1024 * 1024) + b'"'
        events = [
            MessageArrived(tenant=TENANT, run_id=run_id, actor=ACTOR, id="m", name="n", payload=payload)
            for run_id in runs
        ]
        sizes: list[int] = []
        real = bench.transactor.submit_all

        async def counted(batch: Any) -> Any:
            sizes.append(len(batch))
            return await real(batch)

        bench.transactor.submit_all = counted  # type: ignore[method-assign]
        replies = await asyncio.gather(*map(bench.transactor.submit, events))
        assert all(isinstance(reply, Accepted) for reply in replies)
        assert sum(sizes) == 8
        assert max(sizes) <= 5, sizes


async def test_a_large_batch_is_divided_where_two_can_be_under_way() -> None:
    sizes: list[int] = []
    may_end = asyncio.Event()

    async def flush(items: list[int]) -> list[int]:
        sizes.append(len(items))
        await may_end.wait()
        return items

    lane: Submissions[int, int] = Submissions(flush, abreast=2)
    asked = [asyncio.create_task(lane.put(each)) for each in range(DIVIDED + 1)]
    await until(lambda: sum(sizes) == DIVIDED + 1)
    assert sizes == [DIVIDED // 2 + 1, DIVIDED // 2]
    late = [asyncio.create_task(lane.put(each)) for each in range(DIVIDED)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(sizes) == 2, "a third batch is under way"
    may_end.set()
    assert await asyncio.gather(*asked, *late) == [*range(DIVIDED + 1), *range(DIVIDED)]


async def test_few_items_are_gathered_by_the_batch_under_way() -> None:
    sizes: list[int] = []
    may_end = asyncio.Event()

    async def flush(items: list[int]) -> list[int]:
        sizes.append(len(items))
        await may_end.wait()
        return items

    lane: Submissions[int, int] = Submissions(flush, abreast=2)
    asked = [asyncio.create_task(lane.put(0))]
    await until(lambda: len(sizes) == 1)
    asked += [asyncio.create_task(lane.put(each)) for each in range(1, DIVIDED // 2)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert sizes == [1]
    may_end.set()
    await asyncio.gather(*asked)
    assert sizes == [1, DIVIDED // 2 - 1]
