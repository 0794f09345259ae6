"""Messages by business key: they find the run, start it, or wait for it; each is consumed once and none is lost."""

from __future__ import annotations

import asyncio
import json

import pytest

from stepkeep.kernel.definition import Definition, Wait
from stepkeep.kernel.errors import Conflict, InvalidInput, KeyReused, NotFound
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations.messages import by_key, mailbox
from stepkeep.operations.messages.by_key import Sent
from stepkeep.operations.messages.mailbox import correlated_run
from stepkeep.store.records import RunFilter
from tests.workbench import SECOND, TENANT, Bench, benches, chain, gate, on, task

PAID = Definition(name="paid", version=1, steps=(gate("wait", wait=Wait(event="paid")), task("ship", 1, ["wait"])))
JUST = Definition(name="just", version=1, steps=(gate("wait", wait=Wait(event="paid")),))
ONE = chain("one", 1)
DAY = 86_400 * SECOND


async def consumers(bench: Bench, run_id: str) -> list[tuple[str, int | None]]:
    return [(message.id, message.consumed_by) for message in await bench.store.read_messages(TENANT, run_id)]


async def causes(bench: Bench, run_id: str) -> list[str]:
    """The events of a run's journal, in order."""
    found = []
    for entry in await bench.store.read_journal(TENANT, run_id):
        found += [cause["event"] for cause in json.loads(entry.body)["causes"]]
    return found


async def test_a_message_reaches_the_live_run_that_has_the_key(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(PAID, business_key="order-1")
        sent = await bench.send_by_key("order-1", "paid", b"7", message_id="m-1")
        assert sent == Sent(id="m-1", key="order-1", run_id=run_id, consumed_by=0)
        again = await bench.send_by_key("order-1", "paid", b"7", message_id="m-1")
        assert (again.repeated, again.run_id) == (True, run_id)
        assert await consumers(bench, run_id) == [("m-1", 0)]
        assert await bench.store.list_mailbox(TENANT) == []


async def test_messages_before_the_run_are_kept_in_order_and_delivered_when_it_starts(database_url: str) -> None:
    async with on(database_url) as bench:
        for number in range(3):
            sent = await bench.send_by_key("order-1", "paid", str(number).encode(), message_id=f"m-{number}")
            assert sent.run_id is None
            assert sent.kept_until is not None
        assert (await bench.send_by_key("order-1", "paid", b"0", message_id="m-0")).repeated
        run_id = await bench.start(PAID, business_key="order-1")
        assert await consumers(bench, run_id) == [("m-0", 0), ("m-1", None), ("m-2", None)]
        assert await causes(bench, run_id) == ["run_created", "run_started", *["message_arrived"] * 3]
        assert await bench.store.list_mailbox(TENANT) == []
        await bench.work_off()
        assert await bench.state(run_id) is RunState.SUCCEEDED


async def test_a_kept_message_may_end_the_run_that_it_waited_for_and_the_rest_waits_for_the_next(
    database_url: str,
) -> None:
    async with on(database_url) as bench:
        for number in range(2):
            await bench.send_by_key("order-1", "paid", str(number).encode(), message_id=f"m-{number}")
        first = await bench.start(JUST, business_key="order-1")
        assert await bench.state(first) is RunState.SUCCEEDED
        assert [one.id for one in await bench.store.list_mailbox(TENANT)] == ["m-1"]
        second = await bench.start(JUST, business_key="order-1")
        assert await consumers(bench, second) == [("m-1", 0)]


async def test_a_duplicate_of_a_delivered_message_does_not_reach_the_next_run(database_url: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(JUST, business_key="order-1")
        await bench.send_by_key("order-1", "paid", message_id="m-1", ttl=SECOND)
        assert await bench.state(first) is RunState.SUCCEEDED
        bench.store.clock_offset = 2 * SECOND
        assert (await bench.send_by_key("order-1", "paid", message_id="m-1")).run_id == first
        second = await bench.start(JUST, business_key="order-1")
        again = await bench.send_by_key("order-1", "paid", message_id="m-1")
        assert (again.repeated, again.run_id) == (True, first)
        assert await bench.state(second) is RunState.BLOCKED
        assert await mailbox.forget(bench.store) == 0
        bench.store.clock_offset = 8 * DAY
        assert await mailbox.forget(bench.store) == 1, "7 days after the delivery its id is forgotten"
        assert not (await bench.send_by_key("order-1", "paid", message_id="m-1")).repeated


async def test_an_expired_message_is_not_delivered_and_its_duplicate_is_not_kept(database_url: str) -> None:
    async with on(database_url) as bench:
        await bench.send_by_key("order-1", "paid", message_id="m-1", ttl=60 * SECOND)
        bench.store.clock_offset = 61 * SECOND
        again = await bench.send_by_key("order-1", "paid", message_id="m-1")
        assert (again.repeated, again.dropped, again.run_id) == (True, True, None)
        run_id = await bench.start(PAID, business_key="order-1")
        assert await consumers(bench, run_id) == []
        assert await bench.state(run_id) is RunState.BLOCKED


async def test_a_dropped_message_is_not_delivered(database_url: str) -> None:
    async with on(database_url) as bench:
        for number in range(3):
            await bench.send_by_key("order-1", "paid", message_id=f"m-{number}")
        assert (await mailbox.drop(bench.store, "order-1", "m-1", tenant=TENANT))["dropped"] == ["m-1"]
        listed = await mailbox.list_mailbox(bench.transactor, tenant=TENANT, key=None, limit=1)
        assert ([one["id"] for one in listed["messages"]], listed["more"]) == (["m-0"], True)
        assert (await bench.send_by_key("order-1", "paid", message_id="m-1")).dropped
        with pytest.raises(NotFound, match="mailbox list"):
            await mailbox.drop(bench.store, "order-1", "m-1", tenant=TENANT)
        run_id = await bench.start(PAID, business_key="order-1")
        assert [one for one, _ in await consumers(bench, run_id)] == ["m-0", "m-2"]


async def test_fifty_parallel_sends_with_a_start_make_one_run_and_deliver_the_message_once(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        plan = await opened[0].publish(PAID)
        replies = await asyncio.gather(
            *(
                opened[place % len(opened)].send_by_key("order-1", "paid", b"1", message_id="m-1", plan=plan)
                for place in range(50)
            )
        )
        assert sum(reply.started for reply in replies) == 1
        assert sum(not reply.repeated for reply in replies) == 1
        [run_id] = {reply.run_id for reply in replies}
        assert run_id is not None
        assert await consumers(opened[0], run_id) == [("m-1", 0)]
        assert sum((await opened[0].store.count_runs(TENANT)).values()) == 1


async def test_a_send_with_a_start_also_delivers_what_was_kept_and_finds_a_live_run(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(PAID)
        await bench.send_by_key("order-1", "noted", message_id="m-1")
        await bench.send_by_key("order-1", "paid", message_id="m-2")
        sent = await bench.send_by_key("order-1", "paid", message_id="m-3", plan=plan)
        assert (sent.started, sent.consumed_by) == (True, None)
        assert sent.run_id is not None
        assert await consumers(bench, sent.run_id) == [("m-1", None), ("m-2", 0), ("m-3", None)]
        live = await bench.send_by_key("order-1", "paid", message_id="m-4", plan=plan)
        assert (live.started, live.run_id) == (False, sent.run_id)
        other = await bench.publish(ONE)
        with pytest.raises(Conflict, match="of paid is live under the business key"):
            await bench.send_by_key("order-1", "paid", message_id="m-5", plan=other)


async def test_a_kept_message_that_is_sent_again_with_a_start_is_delivered_once(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(PAID)
        await bench.send_by_key("order-1", "paid", message_id="m-1")
        sent = await bench.send_by_key("order-1", "paid", message_id="m-1", plan=plan)
        assert (sent.started, sent.consumed_by) == (True, 0)
        assert sent.run_id is not None
        assert await consumers(bench, sent.run_id) == [("m-1", 0)]


async def test_a_send_whose_run_is_ended_by_a_kept_message_starts_another(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(JUST)
        for number in range(2):
            await bench.send_by_key("order-1", "paid", message_id=f"m-{number}")
        sent = await bench.send_by_key("order-1", "paid", b'"own"', message_id="own", plan=plan)
        assert (sent.started, sent.consumed_by) == (True, 0)
        assert await bench.store.count_runs(TENANT) == {RunState.SUCCEEDED: 3}, "one run for each message, in order"
        assert await bench.store.list_mailbox(TENANT) == []


async def test_a_run_that_ends_at_once_takes_no_message_and_the_sender_is_told(database_url: str) -> None:
    never = Definition(name="never", version=1, steps=(task("not", condition="false"),))

    async with on(database_url) as bench:
        plan = await bench.publish(never)
        with pytest.raises(Conflict, match="ended at once"):
            await bench.send_by_key("order-1", "paid", plan=plan)
        assert sum((await bench.store.count_runs(TENANT)).values()) == 1


async def test_a_send_with_a_start_follows_the_rules_of_idempotency_keys(database_url: str) -> None:
    async with on(database_url) as bench:
        plan = await bench.publish(JUST)
        request = {"idempotency_key": "i-1"}
        first = await bench.send_by_key("order-1", "paid", message_id="m-1", plan=plan, request=request)
        assert first.started
        with pytest.raises(Conflict, match=r"started run .* which has ended"):
            await bench.send_by_key("order-1", "paid", message_id="m-2", plan=plan, request=request)
        with pytest.raises(KeyReused):
            await bench.send_by_key("order-2", "paid", message_id="m-3", plan=plan, request=request)
        assert (await bench.send_by_key("order-1", "paid", message_id="m-1", plan=plan, request=request)).repeated


async def test_starts_race_sends_and_no_message_is_lost(database_url: str) -> None:
    async with benches(database_url, 3) as opened:
        plan = await opened[0].publish(PAID)
        for turn in range(12):
            key = f"order-{turn}"
            run, *_ = await asyncio.gather(
                opened[0].begin(plan, business_key=key),
                *(opened[1 + place % 2].send_by_key(key, "paid", message_id=f"m-{place}") for place in range(4)),
            )
            assert sorted(one for one, _ in await consumers(opened[0], run.run_id)) == ["m-0", "m-1", "m-2", "m-3"]
            assert sum(no is not None for _, no in await consumers(opened[0], run.run_id)) == 1


async def test_messages_that_end_runs_race_and_each_starts_or_ends_exactly_one(database_url: str) -> None:
    """Every message is consumed by the run that it started, or by the live one: one run for each message."""

    async with benches(database_url, 3) as opened:
        plan = await opened[0].publish(JUST)
        replies = await asyncio.gather(
            *(opened[n % 3].send_by_key("k", "paid", message_id=f"m-{n}", plan=plan) for n in range(30))
        )
        assert len({reply.run_id for reply in replies}) == 30
        assert all(reply.consumed_by == 0 for reply in replies)
        assert await opened[0].store.count_runs(TENANT) == {RunState.SUCCEEDED: 30}


async def test_a_message_for_a_run_whose_timeout_has_passed_is_kept_for_the_next(database_url: str) -> None:
    slow = Definition(name="slow", version=1, timeout=60 * SECOND, steps=(gate("wait", wait=Wait(event="paid")),))

    async with on(database_url) as bench:
        first = await bench.start(slow, business_key="order-1")
        bench.store.clock_offset = 61 * SECOND
        sent = await bench.send_by_key("order-1", "paid", message_id="m-1")
        assert sent.kept_until is not None
        assert await bench.state(first) is RunState.FAILED
        second = await bench.start(slow, business_key="order-1")
        assert await consumers(bench, second) == [("m-1", 0)]


async def test_what_is_kept_for_one_key_is_bounded(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_key, "MAX_KEPT", 2)
    monkeypatch.setattr(by_key, "MAX_KEPT_BYTES", 10)

    async with on(database_url) as bench:
        await bench.send_by_key("order-1", "paid", b'"aaaa"')
        with pytest.raises(Conflict, match="no run has it"):
            await bench.send_by_key("order-1", "paid", b'"aaaa"')
        await bench.send_by_key("order-1", "paid", b"1")
        with pytest.raises(Conflict, match="mailbox drop"):
            await bench.send_by_key("order-1", "paid", b"1")
        assert (await bench.send_by_key("order-2", "paid", b"1")).kept_until is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"message_id": "a\x00b"}, "the message id must have"),
        ({"ttl": 0}, "time to live"),
        ({"ttl": 366 * DAY}, "time to live"),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_written(
    database_url: str, options: dict[str, object], said: str
) -> None:
    async with on(database_url) as bench:
        with pytest.raises(InvalidInput, match=said):
            await bench.send_by_key("order-1", "paid", **options)
        for key, name, payload in (("", "paid", b"1"), ("k", "", b"1"), ("k", "paid", b"1e999"), ("k\n", "paid", b"1")):
            with pytest.raises(InvalidInput):
                await bench.send_by_key(key, name, payload)
        assert await bench.store.list_mailbox(TENANT) == []


async def test_a_quarantined_run_takes_no_message_by_key_and_the_sender_is_told(database_url: str) -> None:
    async with on(database_url) as bench:
        run_id = await bench.start(PAID, business_key="order-1")
        await bench.store.quarantine(TENANT, run_id, "ann", "odd")
        with pytest.raises(Exception, match="quarantined"):
            await bench.send_by_key("order-1", "paid")
        assert await bench.store.list_mailbox(TENANT) == []


async def test_a_correlation_id_must_name_exactly_one_live_run(database_url: str) -> None:
    async with on(database_url) as bench:
        first = await bench.start(PAID, correlation_id="case-7")
        assert await correlated_run(bench.store, "case-7", tenant=TENANT) == first
        second = await bench.start(PAID, correlation_id="case-7")
        with pytest.raises(Conflict, match="2 live runs have the correlation id") as told:
            await correlated_run(bench.store, "case-7", tenant=TENANT)
        assert told.value.winner is not None
        assert sorted(told.value.winner["run_ids"]) == sorted([first, second])
        await bench.cancel(first)
        assert await correlated_run(bench.store, "case-7", tenant=TENANT) == second
        await bench.cancel(second)
        with pytest.raises(NotFound, match="no live run"):
            await correlated_run(bench.store, "case-7", tenant=TENANT)
        assert len(await bench.store.list_runs(RunFilter(tenant=TENANT, correlation_id="case-7"))) == 2
