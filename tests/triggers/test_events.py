"""Event triggers and triggers on the ends of runs: each event fires once, and chains end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import asked_names
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.triggers import Ending, Overlap, TriggerSpec
from stepkeep.operations.triggers import manage
from stepkeep.operations.triggers.chain import MAX_DEPTH
from stepkeep.operations.triggers.events import consume, emit
from stepkeep.sinks.event import EventSource, OutgoingEvent
from tests.triggers.stage import WORK, Stage, hourly
from tests.workbench import ACTOR, TENANT, chain

RATED = {"riskScore": 0.9, "customer": "c-1"}
SOURCE = chain("source", 1)


def on_event(**given: Any) -> TriggerSpec:
    return hourly(**({"name": "risky", "schedule": None, "event": "risk.*"} | given))


async def emitted(stage: Stage, payload: Any, event_id: str = "e-1", name: str = "risk.rated") -> list[str]:
    told = await emit(stage.firer, name, payload, caller=Caller(TENANT, "ann"), event_id=event_id)
    return [one["state"] for one in told["firings"]]


async def test_an_event_fires_the_triggers_that_it_concerns_once(stage: Stage) -> None:
    await stage.add(on_event(condition="riskScore >= 0.7", inputs={"who": "${{ payload.customer }}"}))
    await stage.add(on_event(name="other", event="order.paid"))
    assert await emitted(stage, RATED) == ["started"]
    assert await emitted(stage, RATED) == ["started"]
    assert await emitted(stage, {**RATED, "riskScore": 0.1}, "e-2") == []
    [run_id] = await stage.runs("risky")
    record = await stage.store.read_run(TENANT, run_id)
    assert record is not None
    assert msgspec.json.decode(record.details.input) == {"who": "c-1"}
    assert await stage.firings("other") == []


@pytest.mark.parametrize(
    ("condition", "payload", "fires"),
    [
        ("riskScore >= 0.7", {"riskScore": 0.7}, True),
        ("riskScore >= 0.7", {"riskScore": 0.69}, False),
        ("feedbackCount >= 50", {"feedbackCount": 50}, True),
        ("payload.riskLevel >= 'high'", {"riskLevel": "high"}, True),
        ("payload.riskLevel >= 'high'", {"riskLevel": "critical"}, False),
    ],
)
async def test_the_conditions_of_seed_000_are_read(stage: Stage, condition: str, payload: Any, fires: bool) -> None:
    await stage.add(on_event(condition=condition))
    assert await emitted(stage, payload) == ["started"] * fires


async def test_a_condition_without_an_answer_skips_the_event_on_record(stage: Stage) -> None:
    await stage.add(on_event(condition="riskScore >= 0.7"))
    assert await emitted(stage, {}) == ["skipped"]
    [firing] = await stage.firings("risky")
    assert "riskScore" in str(firing.reason)


async def test_an_event_that_waits_keeps_its_input_and_its_correlation(stage: Stage) -> None:
    await stage.add(on_event(overlap=Overlap.QUEUE))
    await emit(stage.firer, "risk.rated", {"n": 1}, caller=Caller(TENANT, "ann"), event_id="e-1", correlation_id="c-1")
    await emit(stage.firer, "risk.rated", {"n": 2}, caller=Caller(TENANT, "ann"), event_id="e-2", correlation_id="c-2")
    assert [one.state for one in await stage.firings("risky")] == ["started", "waiting"]
    await stage.bench.work_off()
    stage.store.clock_offset += 5_000_000
    assert await stage.sweep() == 1
    second = (await stage.runs("risky"))[1]
    record = await stage.store.read_run(TENANT, second)
    assert record is not None
    assert (record.details.input, record.details.correlation_id) == (b'{"n":2}', "c-2")


async def test_the_person_whose_trigger_made_an_input_asks_for_its_run_after_another_one_changed_the_trigger(
    stage: Stage,
) -> None:
    given = on_event(overlap=Overlap.QUEUE)
    await stage.bench.publish(WORK)
    await manage.add_trigger(stage.firer, given, WORK.name, caller=Caller(TENANT, "pal"))
    for number in (1, 2):
        await emit(stage.firer, "risk.rated", {"n": number}, caller=Caller(TENANT, "ann"), event_id=f"e-{number}")
    changed = replace(given, condition="payload.n > 0")
    await manage.add_trigger(stage.firer, changed, WORK.name, caller=Caller(TENANT, "ron"))
    await stage.bench.work_off()
    stage.store.clock_offset += 5_000_000
    assert await stage.sweep() == 1
    record = await stage.store.read_run(TENANT, (await stage.runs("risky"))[1])
    assert record is not None
    assert asked_names(record.details.asked_before) == ("ann", "pal", "ron")


async def test_triggers_that_are_added_at_the_same_time_are_all_listened_to(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one is added after the first has read which triggers there are, and before it tells the relay."""
    real, others = manage.add_sink, [on_event(name="other", event="order.paid")]

    async def late(*given: Any, **named: Any) -> None:
        if others:
            await stage.add(others.pop())
        await real(*given, **named)

    monkeypatch.setattr(manage, "add_sink", late)
    await stage.add(on_event())
    [sink] = await stage.store.deliveries.list_sinks(TENANT)
    assert sorted(sink.patterns) == ["order.paid", "risk.*"]


async def test_a_paused_trigger_is_not_fired_by_events(stage: Stage) -> None:
    await stage.add(on_event())
    await manage.pause_trigger(stage.firer, "risky", caller=Caller(TENANT, ACTOR))
    assert await emitted(stage, RATED) == []


async def test_an_emitted_event_that_is_relayed_twice_fires_once_and_keeps_the_correlation(stage: Stage) -> None:
    await stage.add(on_event())
    source = await stage.bench.start(SOURCE)
    event = OutgoingEvent(
        tenant=TENANT,
        run_id=source,
        seq=4,
        number=0,
        type="risk.rated",
        source=EventSource.EMITTED,
        at=0,
        data=b'{"n":1}',
        workflow="source",
        version=1,
        correlation_id="c-9",
    )
    for _ in range(2):
        await consume(stage.firer, event)
    [firing] = await stage.firings("risky")
    assert (firing.moment, firing.source, firing.depth) == (event.id, source, 1)
    record = await stage.store.read_run(TENANT, str(firing.run_id))
    assert record is not None
    assert record.details.correlation_id == "c-9"


async def test_a_circle_of_triggers_ends_on_record(stage: Stage) -> None:
    await stage.add(on_event())
    run_id = await stage.bench.start(SOURCE)
    for number in range(MAX_DEPTH + 1):
        event = OutgoingEvent(
            tenant=TENANT,
            run_id=run_id,
            seq=number,
            number=0,
            type="risk.again",
            source=EventSource.EMITTED,
            at=0,
            data=b"{}",
            workflow="report",
            version=1,
            correlation_id="c",
        )
        await consume(stage.firer, event)
        [firing] = await stage.store.triggers.read_firings(TENANT, "risky", [event.id])
        run_id = firing.run_id or run_id
    assert (firing.state, firing.depth) == ("skipped", MAX_DEPTH + 1)
    assert str(firing.reason).startswith("chain: 16 triggers")


async def test_the_end_of_a_run_starts_another_once_by_whichever_worker_looks(stages: list[Stage]) -> None:
    stage = stages[0]
    for one in stages:
        # Ids of runs have the time of the machine.
        one.store.clock_offset = 0
    ending = Ending(workflow="source")
    await stage.bench.publish(SOURCE)
    await stage.add(on_event(name="after", event=None, ended=ending))
    source = await stage.bench.start(SOURCE)
    assert await stage.sweep() == 0
    for one in stages:
        one.store.clock_offset += 3_000_000
    assert await stage.sweep() == 0
    assert await stage.firings("after") == []
    await stage.bench.work_off()
    assert [one.state for one in await stage.firings("after")] == ["awaiting"]
    started = 0
    for _ in range(3):
        for one in stages:
            one.store.clock_offset += 3_000_000
            started += await one.sweep()
    assert started == 1
    [run_id] = await stage.runs("after")
    record = await stage.store.read_run(TENANT, run_id)
    assert record is not None
    told = msgspec.json.decode(record.details.input)
    assert told == {"run_id": source, "workflow": "source", "state": "succeeded"}
    assert record.details.correlation_id == source


async def test_an_ending_in_another_state_starts_nothing(stage: Stage) -> None:
    stage.store.clock_offset = 0
    await stage.bench.publish(SOURCE)
    ending = Ending(workflow="source", states=(RunState.FAILED,))
    await stage.add(on_event(name="after", event=None, ended=ending))
    await stage.bench.start(SOURCE)
    await stage.bench.work_off()
    for _ in range(3):
        stage.store.clock_offset += 3_000_000
        assert await stage.sweep() == 0
    [firing] = await stage.firings("after")
    assert (firing.state, "succeeded" in str(firing.reason)) == ("skipped", True)


async def test_an_event_has_a_name_and_an_id(stage: Stage) -> None:
    for name, event_id in (("", "e"), ("x", ""), ("a\nb", "e")):
        with pytest.raises(InvalidInput):
            await emitted(stage, {}, event_id, name)
