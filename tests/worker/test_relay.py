"""The relay on both stores: events reach sinks in order, again after a failure, and never again once acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches, chain, on

from stepkeep.kernel.errors import StoreUnavailable
from stepkeep.kernel.machine.outcomes import Completed, Emitted
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.delivery import outbox, sinks
from stepkeep.operations.logs.retention import Policy, prune
from stepkeep.sinks import registry
from stepkeep.sinks.event import OutgoingEvent
from stepkeep.sinks.interface import SinkContext, SinkFailed, SinkKind
from stepkeep.store.deliveries import DeliveryState
from stepkeep.worker.chores.relay import LEASE_US, MAX_ATTEMPTS, Relay, backoff_us

Answer = Callable[[OutgoingEvent], Awaitable[None]]


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None."""


class Receiver:
    """A sink in this process: what arrived, in order, and how it answers."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.got: list[str] = []
        self.answer = answer
        self.closed = 0

    async def send(self, event: OutgoingEvent) -> None:
        if self.answer is not None:
            await self.answer(event)
        self.got.append(event.id.partition("/")[2])

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def receivers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Receiver]:
    """Sinks of the kind `here`, by name."""
    found: dict[str, Receiver] = {}

    async def opened(options: Options, context: SinkContext) -> Receiver:
        return found.setdefault(context.name, Receiver())

    kind = SinkKind(name="here", summary="this process", options=Options, open=opened)
    real = registry.kind_of
    for module in ("stepkeep.worker.chores.relay", "stepkeep.operations.delivery.sinks"):
        monkeypatch.setattr(f"{module}.kind_of", lambda name: kind if name == "here" else real(name))
    return found


def relay_of(bench: Bench, **given: Any) -> Relay:
    return Relay(
        bench.transactor,
        TENANT,
        holder=lambda: "w-1",
        context=lambda name: SinkContext(name=name, tenant=TENANT),
        **given,
    )


async def add(bench: Bench, name: str = "shop", on: str = "*", **given: Any) -> None:
    await sinks.add_sink(
        bench.transactor, name, "here", **{"on": [on], "options": {}, "caller": Caller(TENANT, ACTOR), **given}
    )


TWO = Completed(output=b"1", emit=(Emitted("order.paid", b'{"n":1}'), Emitted("mail.sent", b'{"n":2}')))


async def emitting(bench: Bench, steps: int = 2) -> str:
    """A run whose steps each emit two events."""
    run = await bench.start(chain("emitting", steps))
    for _ in range(steps):
        [claim] = await bench.claim(1)
        await bench.report(claim, TWO)
    return run


async def turns(relay: Relay, count: int = 1) -> None:
    for _ in range(count):
        await relay.turn()
        await relay.settle()


async def test_events_of_a_run_arrive_in_order_and_once(database_url: str, receivers: dict[str, Receiver]) -> None:
    async with on(database_url) as bench:
        await add(bench)
        await emitting(bench)
        relay = relay_of(bench)
        await turns(relay, 3)
        assert receivers["shop"].got == ["3/0", "3/1", "5/0", "5/1"]
        assert (await outbox.list_deliveries(bench.transactor, tenant=TENANT))["deliveries"] == []
        await relay.stop()
        assert receivers["shop"].closed == 1
        await turns(relay_of(bench), 2)
        assert len(receivers["shop"].got) == 4, "what was acknowledged is not sent again after a clean stop"


async def test_a_sink_gets_only_what_its_patterns_match(database_url: str, receivers: dict[str, Receiver]) -> None:
    async with on(database_url) as bench:
        await add(bench, on="order.*")
        await emitting(bench)
        await turns(relay_of(bench), 2)
        assert receivers["shop"].got == ["3/0", "5/0"]


async def test_a_pattern_that_was_added_a_moment_ago_loses_no_event(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    async with on(database_url) as bench:
        await add(bench, on="order.*")
        await emitting(bench)
        relay = relay_of(bench)
        await turns(relay, 2)
        await add(bench, on="mail.*", replace=True)
        await emitting(bench)
        await turns(relay, 2)
        assert receivers["shop"].got == ["3/0", "5/0", "3/1", "5/1"]


async def test_a_failure_is_tried_again_with_doubled_pauses_and_holds_its_run(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    tried: list[str] = []

    async def refuse(event: OutgoingEvent) -> None:
        tried.append(event.id.partition("/")[2])
        if len(tried) <= 3:
            raise SinkFailed("the receiver answered 500")

    async with on(database_url) as bench:
        receivers["shop"] = Receiver(refuse)
        await add(bench)
        run = await emitting(bench, 1)
        relay = relay_of(bench)
        for failed in (1, 2, 3):
            await turns(relay, 2)
            assert len(tried) == failed, "it is not tried before its pause is over"
            [one] = await bench.store.deliveries.read_cursors(TENANT, run)
            assert (one.attempts, one.error) == (failed, "the receiver answered 500")
            bench.store.clock_offset += backoff_us(failed) + SECOND // 10
        await turns(relay, 1)
        assert tried == ["3/0", "3/0", "3/0", "3/0", "3/1"]
        [one] = await bench.store.deliveries.read_cursors(TENANT, run)
        assert (one.attempts, one.error, one.ready_at) == (0, None, None)


async def test_after_ten_attempts_an_event_is_dead_and_holds_its_run_alone(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    async with on(database_url) as bench:
        await add(bench)
        bad = await emitting(bench)

        async def refuse(event: OutgoingEvent) -> None:
            if event.run_id == bad:
                raise RuntimeError("boom\nand more")

        receivers["shop"] = Receiver(refuse)
        relay = relay_of(bench)
        for _ in range(MAX_ATTEMPTS):
            await turns(relay)
            bench.store.clock_offset += 301 * SECOND
        assert relay.tally.dead == 1
        await emitting(bench)
        await turns(relay, 3)
        assert len(receivers["shop"].got) == 4, "another run goes on"
        shown = await outbox.show_delivery(bench.transactor, bad, "shop", tenant=TENANT)
        assert shown["delivery"]["state"] == "dead"
        assert "\n" not in shown["delivery"]["error"]
        assert [event["state"] for event in shown["events"]] == ["dead", "ready", "ready", "ready"]
        status = await outbox.status(bench.transactor, tenant=TENANT)
        assert status["sinks"] == [{"sink": "shop", "waiting": 0, "dead": 1, "lag_seconds": 0.0}]

        receivers["shop"].answer = None
        by = {"caller": Caller(TENANT, "bea"), "reason": "the receiver cannot take it"}
        await outbox.drop(bench.transactor, bad, "shop", shown["events"][0]["id"], **by)
        await turns(relay, 2)
        assert receivers["shop"].got[4:] == ["3/1", "5/0", "5/1"], "the dropped one is passed over, no other"
        shown = await outbox.show_delivery(bench.transactor, bad, "shop", tenant=TENANT)
        assert [(one["actor"], one["action"], one["reason"]) for one in shown["actions"]] == [
            ("bea", "dropped", "the receiver cannot take it")
        ]


async def test_a_redrive_sends_a_dead_event_again_and_those_after_it(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    async def final(event: OutgoingEvent) -> None:
        raise SinkFailed("gone", is_final=True)

    async with on(database_url) as bench:
        receivers["shop"] = Receiver(final)
        await add(bench)
        await emitting(bench)
        relay = relay_of(bench)
        await turns(relay, 2)
        assert (relay.tally.dead, relay.tally.failed) == (1, 1), "a final refusal is dead at once"
        receivers["shop"].answer = None
        by = {"caller": Caller(TENANT, "bea"), "reason": "it is back"}
        found = await outbox.redrive(bench.transactor, sink="shop", **by)
        assert len(found["redriven"]) == 1
        await turns(relay, 2)
        assert receivers["shop"].got == ["3/0", "3/1", "5/0", "5/1"]


async def test_a_slow_sink_holds_up_only_its_own_runs(database_url: str, receivers: dict[str, Receiver]) -> None:
    async with on(database_url) as bench:
        never = asyncio.Event()

        async def hang(event: OutgoingEvent) -> None:
            await never.wait()

        receivers["slow"] = Receiver(hang)
        await add(bench, "slow")
        await add(bench, "shop")
        relay = relay_of(bench, places=2)
        for _ in range(4):
            await emitting(bench, 1)
        for _ in range(4):
            await relay.turn()
            done = [task for task in relay._tasks if "shop" in task.get_name()]
            if done:
                await asyncio.wait(done)
        assert len(receivers["shop"].got) == 8
        assert relay.in_flight == 2, "the slow sink has its places and no more"
        await relay.stop(0.0)
        found = await outbox.list_deliveries(bench.transactor, tenant=TENANT, sink="slow")
        assert [one["state"] for one in found["deliveries"]] == ["ready"] * 4, "what was held is given back"


async def test_a_relay_that_dies_after_the_send_is_followed_by_another_that_sends_again(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    async with benches(database_url, 2) as opened:
        dying, other = opened
        await add(dying)
        run = await emitting(dying, 1)
        lost = relay_of(dying)

        cut_off = asyncio.Event()

        async def cut(reports: Any) -> list[bool]:
            cut_off.set()
            raise StoreUnavailable("the machine is gone")

        dying.store.deliveries.report = cut  # type: ignore[method-assign]
        await lost.turn()
        await cut_off.wait()
        for task in list(lost._tasks):
            task.cancel()
        [held] = await other.store.deliveries.read_cursors(TENANT, run)
        assert held.lease_until is not None
        relay = relay_of(other)
        await turns(relay)
        assert len(receivers["shop"].got) == 2, "the lease protects what may still be sent"
        other.store.clock_offset += LEASE_US + SECOND
        await turns(relay)
        assert receivers["shop"].got == ["3/0", "3/1", "3/0", "3/1"], "at least once, in order"
        del dying.store.deliveries.report
        dying.store.clock_offset = other.store.clock_offset


async def test_a_report_that_comes_too_late_changes_nothing(database_url: str, receivers: dict[str, Receiver]) -> None:
    async with on(database_url) as bench:

        async def slow(event: OutgoingEvent) -> None:
            bench.store.clock_offset += LEASE_US + SECOND
            if event.seq == 3 and event.number == 0 and not again:
                again.append(True)
                await turns(relay_of(bench))

        again: list[bool] = []
        receivers["shop"] = Receiver(slow)
        await add(bench)
        run = await emitting(bench, 1)
        late = relay_of(bench)
        await turns(late)
        assert late.tally.refused >= 1
        [one] = await bench.store.deliveries.read_cursors(TENANT, run)
        assert (one.sent, one.ready_at, one.fence) == (3, None, 2)


async def test_the_course_of_a_run_is_derived_from_its_journal(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    seen: list[tuple[str, Any]] = []

    async def note(event: OutgoingEvent) -> None:
        seen.append((event.type, event.payload))

    async with on(database_url) as bench:
        receivers["course"] = Receiver(note)
        await add(bench, "course", events=["transitions", "emitted"])
        await add(bench, "ends", events=["endings"])
        run = await emitting(bench, 1)
        await turns(relay_of(bench), 2)
        types = [name for name, _ in seen]
        assert types[0] == "run.idle"
        assert types[-1] == "run.succeeded"
        assert types.index("order.paid") < types.index("step.succeeded")
        ended = await bench.store.read_run(TENANT, run)
        assert ended is not None
        assert receivers["ends"].got == [f"{ended.run.seq}/300000"]
        assert len(set(receivers["course"].got)) == len(seen), "each has an id of its own"


async def test_retention_does_not_lose_what_was_not_delivered(
    database_url: str, receivers: dict[str, Receiver], tmp_path: Path
) -> None:
    async with on(database_url) as bench:
        await add(bench)
        run = await emitting(bench)
        policy = Policy(older_than=0)
        bench.store.clock_offset += 10 * SECOND
        pruned = await prune(bench.transactor, policy, tenant=TENANT, folder=None)
        assert pruned.deleted == 0
        await turns(relay_of(bench))
        pruned = await prune(bench.transactor, policy, tenant=TENANT, folder=None)
        assert pruned.deleted == 1
        assert await bench.store.deliveries.read_cursors(TENANT, run) == []


async def test_a_store_that_does_not_answer_delays_the_report_and_sends_nothing_twice(
    database_url: str, receivers: dict[str, Receiver]
) -> None:
    async with on(database_url) as bench:
        await add(bench)
        await emitting(bench, 1)
        real, failures = bench.store.deliveries.report, [StoreUnavailable("busy"), StoreUnavailable("busy")]

        async def sometimes(reports: Any) -> list[bool]:
            if failures:
                raise failures.pop()
            return await real(reports)

        bench.store.deliveries.report = sometimes  # type: ignore[method-assign]
        relay = relay_of(bench)
        await turns(relay, 2)
        assert (receivers["shop"].got, failures) == (["3/0", "3/1"], [])


async def test_a_secret_that_is_missing_here_is_left_to_other_workers(database_url: str) -> None:
    async with on(database_url) as bench:
        await sinks.add_sink(
            bench.transactor,
            "hook",
            "webhook",
            on=["*"],
            options={"url": "https://shop.example/", "secrets": ["HOOK"]},
            caller=Caller(TENANT, ACTOR),
        )
        run = await emitting(bench, 1)
        await turns(relay_of(bench, has_secret=lambda name: False))
        [one] = await bench.store.deliveries.read_cursors(TENANT, run)
        assert (one.fence, one.attempts) == (0, 0)


def test_states_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "outbox.md").read_text(encoding="utf-8")
    for state in DeliveryState:
        assert f"`{state}`" in page
