"""Seed 002 on the real engine: start flow, tick flow, the four results and the wake-up, told in its own words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conformance.exploration import refined
from tests.seeds.chained import FLAKY, HOPELESS, accepted, cancel, decide, later, moves, on, path, send, shown, told
from tests.workbench import ACTOR, SECOND, TENANT, Bench, benches

from stepkeep.dialects.linear.machine import JUDGED, RUN, STEP
from stepkeep.engine import AsyncEngine
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import StepClaimed
from stepkeep.kernel.machine.outcomes import Completed, Emitted, Failed, Waiting
from stepkeep.kernel.machine.states import Category
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations.pipeline.start import start_idle

INSTANCE_TABLE = {(None, "RUNNING"), ("RUNNING", "COMPLETED"), ("RUNNING", "FAILED")}

STEP_TABLE = {
    (None, "PENDING"),
    ("PENDING", "READY"),
    ("READY", "RUNNING"),
    ("RUNNING", "DONE"),
    ("RUNNING", "WAITING"),
    ("RUNNING", "READY"),
    ("RUNNING", "DEAD"),
    ("WAITING", "READY"),
    ("WAITING", "RUNNING"),
}

WAITING = Waiting(event="payment.settled", timeout=60 * SECOND, emit=(Emitted("payment.requested", b'{"order":7}'),))


def workflow(*steps: str, **settings: Any) -> str:
    """A linear workflow of these step types."""
    return msgspec.json.encode({"workflowType": "order.process", **settings, "steps": list(steps)}).decode()


ORDER = workflow("VALIDATE", "PAY", "SHIP")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/linear.db"


async def begin(bench: Bench, text: str = ORDER, **options: Any) -> str:
    return await bench.start(accepted("linear", text), **options)


async def rows(bench: Bench, run_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = await shown(bench, run_id, "linear")
    return found["workflow_instance"], found["workflow_step"]


async def do(bench: Bench, outcome: Any = None) -> Any:
    """Claim what is READY, and report."""
    (claim,) = await bench.claim()
    return await bench.report(claim, outcome)


# -- State Sets ------------------------------------------------------------------------------------------------------
def test_the_state_sets_are_the_seeds() -> None:
    """002 Instance States, Step States."""
    assert RUN.states == ("RUNNING", "COMPLETED", "FAILED", "CANCELED")
    assert STEP.states == ("PENDING", "READY", "RUNNING", "WAITING", "DONE", "DEAD")


def test_the_machines_are_the_seeds_writes_and_no_more() -> None:
    assert {(arrow.source, arrow.target) for arrow in RUN.arrows} == INSTANCE_TABLE
    assert {(arrow.source, arrow.target) for arrow in STEP.arrows} == STEP_TABLE


def test_the_engine_refines_the_seed_and_shows_every_one_of_its_arrows() -> None:
    found = refined(JUDGED)
    assert [str(breach) for breach in found.breaches] == []
    assert found.shown["run"] >= INSTANCE_TABLE
    assert found.shown["step"] >= STEP_TABLE


# -- Start Flow ------------------------------------------------------------------------------------------------------
async def test_the_start_inserts_everything_in_one_transaction(url: str) -> None:
    """002 Start Flow (Full Step Pre-insert)."""

    async with on(url) as bench:
        run_id = await begin(bench, given=b'{"order":7}', business_key="o-7")
        instance, steps = await rows(bench, run_id)
        assert (instance["status"], instance["current_step_seq"], instance["current_step_type"]) == (
            "RUNNING",
            0,
            "VALIDATE",
        )
        assert (instance["biz_key"], instance["context_json"]) == ("o-7", '{"order":7}')
        assert [(row["step_seq"], row["step_type"], row["status"]) for row in steps] == [
            (0, "VALIDATE", "READY"),
            (1, "PAY", "PENDING"),
            (2, "SHIP", "PENDING"),
        ]
        assert steps[0]["next_run_at"] == instance["started_at"]
        assert {row["max_attempts"] for row in steps} == {10}
        lines = await told(bench, run_id, "linear")
        assert {line["metadata"]["seq"] for line in lines[1:]} == {1}, "the start took more than one transaction"


async def test_running_needs_no_definition_in_memory(url: str) -> None:
    """002 Scope: runtime progression does not depend on in-memory workflow definitions."""

    async with benches(url, 2) as (first, second):
        run_id = await begin(first)
        assert await second.work_off() == 3
        assert (await rows(second, run_id))[0]["status"] == "COMPLETED"


async def test_an_instance_comes_into_being_when_it_is_started(url: str) -> None:
    """002 Start Flow: a run that is created idle is no instance yet."""

    async with on(url) as bench:
        run_id = await begin(bench, start_now=False)
        assert moves(await told(bench, run_id, "linear")) == []
        assert (await rows(bench, run_id))[0]["status"] is None
        assert await bench.claim() == []
        await start_idle(bench.transactor, run_id, caller=Caller(TENANT, ACTOR))
        lines = await told(bench, run_id, "linear")
        assert moves(lines) == [(None, "RUNNING")]
        assert path(lines, "VALIDATE") == "PENDING READY"


async def test_one_instance_is_live_per_business_key_and_the_highest_version_starts(database_url: str) -> None:
    """002 start: bizKey, context and the highest version."""

    async with AsyncEngine(database_url) as engine:
        for version, last in ((1, "SHIP"), (3, "DELIVER"), (2, "SEND")):
            await engine.publish(accepted("linear", workflow("VALIDATE", last, workflowVersion=version)))
        started = await engine.start("order.process", {"order": 7}, business_key="o-7")
        found = await engine.show(started.run_id, as_="linear")
        assert found["workflow_instance"]["workflow_version"] == 3
        assert found["workflow_step"][1]["step_type"] == "DELIVER"
        with pytest.raises(Conflict, match="only one may be"):
            await engine.start("order.process", {"order": 7}, business_key="o-7")
        await engine.cancel(started.run_id)
        assert (await engine.start("order.process", {"order": 7}, business_key="o-7")).created


# -- Tick Flow -------------------------------------------------------------------------------------------------------
async def test_an_expired_lease_is_released_to_ready(url: str) -> None:
    """002 1) Lease Recovery: attempts + 1, next_run_at = now, LEASE_EXPIRED, lock cleared."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await bench.claim()
        await later(bench, 29 * SECOND)
        assert (await rows(bench, run_id))[1][0]["status"] == "RUNNING"
        await later(bench, 2 * SECOND)
        _, (row, *_) = await rows(bench, run_id)
        assert (row["status"], row["attempts"]) == ("READY", 1)
        assert (row["locked_by"], row["locked_until"]) == (None, None)
        assert row["last_error"] == "LEASE_EXPIRED"
        last = (await told(bench, run_id, "linear"))[-2]
        assert (last["from_state"], last["to_state"], last["trigger"]) == ("RUNNING", "READY", "LEASE_EXPIRED")
        assert last["metadata"]["because"] == "lease_lost"
        assert row["next_run_at"] == last["timestamp"]
        assert len(await bench.claim()) == 1


async def test_a_step_that_always_loses_its_lease_dies(url: str) -> None:
    """The seed as written tries a poisonous step forever; three losses are enough (design section 4)."""

    async with on(url) as bench:
        run_id = await begin(bench)
        for _ in range(3):
            assert len(await bench.claim()) == 1
            await later(bench, 31 * SECOND)
        assert await bench.claim() == []
        instance, steps = await rows(bench, run_id)
        assert (instance["status"], steps[0]["status"], steps[0]["attempts"]) == ("FAILED", "DEAD", 3)


async def test_a_claim_takes_a_ready_step_under_a_lease(url: str) -> None:
    """002 2) Claim READY Steps: locked_by, locked_until = now + lease."""

    async with on(url) as bench:
        run_id = await begin(bench, workflow("VALIDATE", "SHIP", leaseSeconds=45))
        (claim,) = await bench.claim(50)
        _, (row, following) = await rows(bench, run_id)
        assert bench.registered is not None
        assert (row["status"], row["locked_by"]) == ("RUNNING", bench.registered.id)
        assert claim.step.due_at == claim.claimed_at + 45 * SECOND
        assert row["locked_until"] is not None
        assert following["status"] == "PENDING"
        assert moves(await told(bench, run_id, "linear"), "VALIDATE")[-1] == ("READY", "RUNNING")


async def test_a_batch_is_claimed_once_however_many_workers_ask(database_url: str) -> None:
    """002 2) FOR UPDATE SKIP LOCKED: each row goes to one worker."""

    async with benches(database_url, 2) as (first, second):
        plan = await first.publish(accepted("linear", ORDER))
        run_ids = {await first.start(plan) for _ in range(40)}
        taken = [*await first.claim(1)]
        while any(batches := await asyncio.gather(first.claim(7), second.claim(7))):
            taken += [claim for batch in batches for claim in batch]
        assert sorted(claim.run_id for claim in taken) == sorted(run_ids)


async def test_nothing_but_a_ready_step_that_is_due_is_claimed(url: str) -> None:
    """002 2) status = READY && next_run_at <= now; a worker never executes without claiming."""

    async with on(url) as bench:
        run_id = await begin(bench)
        claimer = await bench.claimer()

        def ask(no: int) -> StepClaimed:
            return StepClaimed(tenant=TENANT, run_id=run_id, actor="w", no=no, worker=claimer.worker, lease=SECOND)

        (pending,) = await bench.transactor.submit_all([ask(1)])
        assert isinstance(pending, Conflict)
        await do(bench, FLAKY)
        (too_early,) = await bench.transactor.submit_all([ask(0)])
        assert isinstance(too_early, Conflict)
        assert await bench.claim() == []
        await later(bench, SECOND)
        assert len(await bench.claim()) == 1


async def test_a_timed_out_wait_is_claimed_as_it_is(url: str) -> None:
    """002 3) WAITING && deadline_at <= now → claim to RUNNING; the handler is told WAITING_TIMEOUT."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await do(bench, WAITING)
        await later(bench, 59 * SECOND)
        assert await bench.claim() == []
        await later(bench, 2 * SECOND)
        assert (await rows(bench, run_id))[1][0]["status"] == "WAITING"
        (claim,) = await bench.claim()
        assert claim.step.note is not None
        assert msgspec.json.decode(claim.step.note.woken_by or "") == {"timeout": {"event": "payment.settled"}}
        await bench.report(claim)
        lines = await told(bench, run_id, "linear")
        assert path(lines, "VALIDATE") == "PENDING READY RUNNING WAITING RUNNING DONE"
        assert (await rows(bench, run_id))[1][0]["attempts"] == 0, "a wait was counted as an attempt"


# -- Execution Result Handling ---------------------------------------------------------------------------------------
async def test_a_late_write_is_refused_before_and_after_somebody_took_over(database_url: str) -> None:
    """002 lease condition: status = RUNNING, locked_by = thisWorkerId, locked_until >= now."""

    async with benches(database_url, 2) as (first, second):
        run_id = await begin(first)
        (mine,) = await first.claim()
        first.store.clock_offset = second.store.clock_offset = 31 * SECOND
        assert isinstance(await first.report(mine, Completed(output=b'"late"')), Fenced)
        await later(second, 0)
        (theirs,) = await second.claim()
        assert isinstance(await first.report(mine, WAITING), Fenced)
        assert isinstance(await second.report(theirs, Completed(output=b'"right"')), Accepted)
        assert isinstance(await first.report(mine, HOPELESS), Fenced)
        instance, steps = await rows(second, run_id)
        assert (instance["status"], steps[0]["status"], steps[1]["status"]) == ("RUNNING", "DONE", "READY")
        assert await second.store.read_outbox(TENANT, run_id) == [], "a refused write left an outbound event"
        outputs = await second.store.read_outputs([(TENANT, run_id, 0)])
        assert outputs[TENANT, run_id, 0] == b'"right"'


async def test_completed_activates_the_next_step_and_moves_the_pointer(url: str) -> None:
    """002 A) Completed, up to the instance's COMPLETED where no next row exists."""

    async with on(url) as bench:
        run_id = await begin(bench)
        for seq, name in enumerate(("VALIDATE", "PAY", "SHIP")):
            instance, steps = await rows(bench, run_id)
            assert (instance["status"], instance["current_step_seq"], instance["current_step_type"]) == (
                "RUNNING",
                seq,
                name,
            )
            assert [row["status"] for row in steps] == ["DONE"] * seq + ["READY"] + ["PENDING"] * (2 - seq)
            assert steps[seq]["next_run_at"] is not None
            await do(bench)
        instance, steps = await rows(bench, run_id)
        assert (instance["status"], instance["current_step_seq"], instance["failed_at"]) == ("COMPLETED", 2, None)
        assert instance["completed_at"] is not None
        assert {row["status"] for row in steps} == {"DONE"}
        lines = await told(bench, run_id, "linear")
        done, ready = (
            next(
                line["metadata"]["seq"]
                for line in lines
                if line["metadata"].get("step") == step and line["to_state"] == to
            )
            for step, to in (("VALIDATE", "DONE"), ("PAY", "READY"))
        )
        assert done == ready, "the next step was activated in another transaction"


async def test_waiting_parks_the_step_and_keeps_its_outbound_events(database_url: str) -> None:
    """002 B) Waiting: event type, deadline, no next_run_at; outbox in the same transaction; the instance stays."""

    async with on(database_url) as bench:
        run_id = await begin(bench)
        await do(bench, WAITING)
        instance, (row, *_) = await rows(bench, run_id)
        assert (instance["status"], instance["current_step_seq"]) == ("RUNNING", 0)
        assert (row["status"], row["waiting_event_type"], row["next_run_at"]) == ("WAITING", "payment.settled", None)
        (step, *_) = await bench.store.read_steps(TENANT, run_id)
        last = (await told(bench, run_id, "linear"))[-2]
        assert last["to_state"] == "WAITING"
        assert step.due_at == last["metadata"]["at"] + 60 * SECOND
        (event,) = await bench.store.read_outbox(TENANT, run_id)
        assert (event.name, msgspec.json.decode(event.payload)) == ("payment.requested", {"order": 7})
        assert event.seq == last["metadata"]["seq"], "the event was written in another transaction"


async def test_the_instance_never_shows_that_it_waits(url: str) -> None:
    """002 B) Instance stays RUNNING."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await do(bench, WAITING)
        assert str(await bench.state(run_id)) == "blocked"
        assert path(await told(bench, run_id, "linear")) == "RUNNING"


async def test_retry_schedules_ready_with_the_backoff_that_was_asked_for(url: str) -> None:
    """002 C) Retry(backoff, lastError)."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await do(bench, Failed(category=Category.TRANSIENT, error="the export is not ready", delay=17 * SECOND))
        last = (await told(bench, run_id, "linear"))[-2]
        assert (last["from_state"], last["to_state"]) == ("RUNNING", "READY")
        assert last["metadata"]["due_at"] - last["metadata"]["at"] == 17 * SECOND
        _, (row, *_) = await rows(bench, run_id)
        assert (row["status"], row["attempts"], row["last_error"]) == ("READY", 1, "the export is not ready")
        assert row["next_run_at"] > last["timestamp"]


async def test_the_policys_backoff_doubles_from_one_second_to_five_minutes(url: str) -> None:
    """002 C) Retry: base × 2^(n-1), at most the cap; the tenth failure is final."""

    async with on(url) as bench:
        run_id = await begin(bench)
        for seconds in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            await do(bench, FLAKY)
            last = (await told(bench, run_id, "linear"))[-2]["metadata"]
            assert last["due_at"] - last["at"] == seconds * SECOND
            await later(bench, seconds * SECOND)
        await do(bench, FLAKY)
        assert (await rows(bench, run_id))[1][0]["status"] == "DEAD"
        capped = await begin(bench, workflow("SLOW", workflowVersion=2, retryPolicy={"baseBackoffMs": 200_000}))
        for seconds in (200, 300, 300):
            await do(bench, FLAKY)
            last = (await told(bench, capped, "linear"))[-2]["metadata"]
            assert last["due_at"] - last["at"] == seconds * SECOND
            await later(bench, seconds * SECOND)


async def test_with_max_attempts_three_there_are_three_executions(url: str) -> None:
    """002 C) If (attempts + 1) >= max_attempts the step is exhausted."""

    async with on(url) as bench:
        run_id = await begin(bench, workflow("VALIDATE", "SHIP", retryPolicy={"maxAttempts": 3}))
        executions = 0
        while claims := await bench.claim():
            executions += 1
            await bench.report(claims[0], FLAKY)
            await later(bench, 10 * SECOND)
        assert executions == 3
        instance, steps = await rows(bench, run_id)
        assert (instance["status"], steps[0]["status"], steps[0]["attempts"]) == ("FAILED", "DEAD", 3)
        lines = await told(bench, run_id, "linear")
        assert path(lines, "VALIDATE") == "PENDING READY RUNNING READY RUNNING READY RUNNING DEAD"


async def test_dead_fails_the_instance_in_the_same_transaction(url: str) -> None:
    """002 D) Dead: attempts + 1, last_error, failed_at."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await do(bench)
        await do(bench, HOPELESS)
        instance, steps = await rows(bench, run_id)
        assert (instance["status"], instance["completed_at"]) == ("FAILED", None)
        assert instance["failed_at"] is not None
        assert (instance["current_step_seq"], instance["current_step_type"]) == (1, "PAY")
        assert (steps[1]["status"], steps[1]["attempts"], steps[1]["last_error"]) == ("DEAD", 1, "no such customer")
        lines = await told(bench, run_id, "linear")
        assert path(lines, "SHIP") == "PENDING CANCELED"
        ends = {line["metadata"]["seq"] for line in lines if line["to_state"] in ("DEAD", "FAILED")}
        assert len(ends) == 1


# -- External Event Wake-up ------------------------------------------------------------------------------------------
async def test_an_event_wakes_the_step_that_waits_for_it(database_url: str) -> None:
    """002 External Event Wake-up: WAITING → READY, next_run_at = now, event and deadline cleared; same step_seq."""

    async with on(database_url) as bench:
        run_id = await begin(bench)
        await do(bench, WAITING)
        await send(bench, run_id, "payment.refused")
        assert (await rows(bench, run_id))[1][0]["status"] == "WAITING", "another event woke the step"
        await send(bench, run_id, "payment.settled", b'{"amount":120}', message_id="m-1")
        instance, (row, *_) = await rows(bench, run_id)
        assert (row["status"], row["waiting_event_type"], row["deadline_at"]) == ("READY", None, None)
        assert row["next_run_at"] is not None
        assert instance["current_step_seq"] == 0
        (claim,) = await bench.claim()
        assert (claim.step.no, claim.step.fence) == (0, 2)
        assert claim.step.note is not None
        woken = msgspec.json.decode(claim.step.note.woken_by or "")["message"]
        assert woken == {"id": "m-1", "name": "payment.settled", "payload": {"amount": 120}}
        await bench.report(claim)
        assert (
            path(await told(bench, run_id, "linear"), "VALIDATE") == "PENDING READY RUNNING WAITING READY RUNNING DONE"
        )


async def test_the_same_event_delivered_again_changes_nothing(url: str) -> None:
    """002: inbox idempotency. The second delivery wakes nobody, not even the next wait for the same event."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await do(bench, WAITING)
        first = await send(bench, run_id, "payment.settled", message_id="m-1")
        again = await send(bench, run_id, "payment.settled", message_id="m-1")
        assert (first.repeated, again.repeated) == (False, True)
        await do(bench)
        await do(bench, WAITING)
        assert (await rows(bench, run_id))[1][1]["status"] == "WAITING"


async def test_a_message_that_comes_early_is_kept(url: str) -> None:
    """The seed's own wake-up would lose it; here it waits for the step (design section 4)."""

    async with on(url) as bench:
        run_id = await begin(bench)
        await send(bench, run_id, "payment.settled")
        await do(bench, WAITING)
        lines = await told(bench, run_id, "linear")
        assert path(lines, "VALIDATE") == "PENDING READY RUNNING WAITING READY"
        await do(bench)
        await do(bench, WAITING)
        assert (await rows(bench, run_id))[1][1]["status"] == "WAITING", "one message woke two steps"


# -- CANCELED (reserved; optional behavior) --------------------------------------------------------------------------
async def test_a_cancel_ends_the_instance_and_every_step_by_extensions(url: str) -> None:
    """002 Instance States: CANCELED is reserved, so each of these arrows is a listed extension."""

    async with on(url) as bench:
        ready = await begin(bench)
        await cancel(bench, ready)
        running = await begin(bench)
        (claim,) = await bench.claim()
        await cancel(bench, running)
        assert isinstance(await bench.report(claim), Fenced)
        waiting = await begin(bench)
        await do(bench, WAITING)
        await cancel(bench, waiting)
        for run_id, before in ((ready, "READY"), (running, "RUNNING"), (waiting, "WAITING")):
            lines = await told(bench, run_id, "linear")
            assert moves(lines)[-1] == ("RUNNING", "CANCELED")
            assert moves(lines, "VALIDATE")[-1] == (before, "CANCELED")
            assert moves(lines, "SHIP")[-1] == ("PENDING", "CANCELED")
            marked = [line for line in lines if "extension" in line["metadata"]]
            assert len(marked) == 4
            instance, _ = await rows(bench, run_id)
            assert (instance["status"], instance["completed_at"], instance["failed_at"]) == ("CANCELED", None, None)


async def test_a_run_that_is_cancelled_before_its_start_is_first_seen_canceled(url: str) -> None:
    async with on(url) as bench:
        run_id = await begin(bench, start_now=False)
        await cancel(bench, run_id)
        lines = await told(bench, run_id, "linear")
        assert moves(lines) == [(None, "CANCELED")]
        assert path(lines, "VALIDATE") == "PENDING CANCELED"


async def test_gates_and_skips_of_other_formats_are_extensions(url: str) -> None:
    """What a linear workflow cannot say, it can still be shown."""
    from stepkeep.definition.native.reader import load_text

    text = """
        {"workflow": "mixed", "steps": [
          {"name": "look", "uses": "noop", "if": "${{ input.go }}"},
          {"name": "sign", "approval": "May it?"},
          {"name": "act", "uses": "noop"}]}
    """

    async with on(url) as bench:
        run_id = await bench.start(load_text(text, "m.json"), b'{"go": false}')
        await decide(bench, run_id, approve=True)
        await bench.work_off()
        lines = await told(bench, run_id, "linear")
        assert path(lines, "look") == "PENDING SKIPPED"
        assert path(lines, "sign") == "PENDING WAITING DONE"
        assert path(lines) == "RUNNING COMPLETED"
        marked = [(line["from_state"], line["to_state"]) for line in lines if "extension" in line["metadata"]]
        assert marked == [("PENDING", "SKIPPED"), ("PENDING", "WAITING"), ("WAITING", "DONE")]
