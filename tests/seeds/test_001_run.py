"""Seed 001 on the real engine: every row of its tables, every invariant and edge case, told in its own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conformance.exploration import refined
from tests.seeds.chained import FLAKY, HOPELESS, accepted, cancel, decide, later, moves, on, path, shown, told
from tests.workbench import SECOND, TENANT, Bench, report_of

from stepkeep.dialects.run.machine import JUDGED, RUN, STEP
from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import Conflict, Fenced
from stepkeep.kernel.machine.events import StepClaimed
from stepkeep.kernel.machine.outcomes import Completed, TimedOut
from stepkeep.kernel.machine.states import AttemptState, Category, StepState
from stepkeep.kernel.plan import NO_QUEUE

STATUSES = ("PENDING", "RUNNING", "WAITING_APPROVAL", "SUCCEEDED", "FAILED", "CANCELED")

RUN_TABLE = {
    ("PENDING", "RUNNING"),
    ("RUNNING", "WAITING_APPROVAL"),
    ("WAITING_APPROVAL", "RUNNING"),
    ("RUNNING", "SUCCEEDED"),
    ("WAITING_APPROVAL", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
    ("WAITING_APPROVAL", "FAILED"),
    ("PENDING", "CANCELED"),
    ("RUNNING", "CANCELED"),
    ("WAITING_APPROVAL", "CANCELED"),
}

STEP_TABLE = {
    ("PENDING", "RUNNING"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "PENDING"),
    ("RUNNING", "FAILED"),
    ("PENDING", "WAITING_APPROVAL"),
    ("WAITING_APPROVAL", "SUCCEEDED"),
    ("PENDING", "CANCELED"),
    ("RUNNING", "CANCELED"),
    ("WAITING_APPROVAL", "CANCELED"),
    ("RUNNING", "RUNNING"),
}


def template(*names: str, **settings: Any) -> str:
    """A template of these steps, in this order."""
    rows = "".join(f"  - {{position: {no}, name: {name}}}\n" for no, name in enumerate(names, 1))
    return (
        "".join(f"{key}: {value}\n" for key, value in {"template": "default", **settings}.items()) + f"steps:\n{rows}"
    )


DEFAULT = template("LLM", "TOOL", "APPROVAL")
"""The seed's own default template."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/run.db"


async def begin(bench: Bench, text: str = DEFAULT, **options: Any) -> str:
    return await bench.start(accepted("run", text), **options)


# -- Enums, Run transitions, Step transitions ------------------------------------------------------------------------
def test_the_enums_are_the_seeds_with_one_l_in_canceled() -> None:
    """001 RunStatus, StepStatus."""
    assert RUN.states == STATUSES
    assert STEP.states == STATUSES


def test_the_machines_are_the_seeds_tables_and_no_more() -> None:
    """001 Run transitions, Step transitions."""
    assert {(arrow.source, arrow.target) for arrow in RUN.arrows} == RUN_TABLE | {(None, "PENDING")}
    assert {(arrow.source, arrow.target) for arrow in STEP.arrows} == STEP_TABLE | {(None, "PENDING")}


def test_the_picture_that_leads_out_of_failed_does_not_count() -> None:
    """001 State overview draws FAILED → SUCCEEDED; the table calls FAILED terminal, and the table counts."""
    assert "FAILED" in RUN.terminal
    assert not RUN.legal("FAILED", "SUCCEEDED")
    assert any(ruled.source == "FAILED" for ruled in RUN.forbidden)


def test_the_engine_refines_the_seed_and_shows_every_row_of_its_tables() -> None:
    found = refined(JUDGED)
    assert [str(breach) for breach in found.breaches] == []
    assert found.shown["run"] >= RUN_TABLE
    assert found.shown["step"] >= STEP_TABLE - {("RUNNING", "RUNNING")}


async def test_a_run_is_running_from_its_first_claim_and_waits_at_its_gate(url: str) -> None:
    """001 PENDING → RUNNING, RUNNING → WAITING_APPROVAL, WAITING_APPROVAL → SUCCEEDED."""

    async with on(url) as bench:
        run_id = await begin(bench)
        assert path(await told(bench, run_id, "run")) == "PENDING"
        (claim,) = await bench.claim()
        assert path(await told(bench, run_id, "run")) == "PENDING RUNNING"
        await bench.report(claim)
        await bench.work_off()
        assert path(await told(bench, run_id, "run")) == "PENDING RUNNING WAITING_APPROVAL"
        await decide(bench, run_id, approve=True)
        lines = await told(bench, run_id, "run")
        assert path(lines) == "PENDING RUNNING WAITING_APPROVAL SUCCEEDED"
        assert path(lines, "LLM") == "PENDING RUNNING SUCCEEDED"
        assert path(lines, "APPROVAL") == "PENDING WAITING_APPROVAL SUCCEEDED"
        assert not any("extension" in line["metadata"] for line in lines)


async def test_an_approval_in_the_middle_resumes_the_run(url: str) -> None:
    """001 WAITING_APPROVAL → RUNNING, RUNNING → SUCCEEDED."""

    async with on(url) as bench:
        run_id = await begin(bench, template("TOOL", "APPROVAL", "LLM"))
        await bench.work_off()
        await decide(bench, run_id, approve=True)
        await bench.work_off()
        assert path(await told(bench, run_id, "run")) == "PENDING RUNNING WAITING_APPROVAL RUNNING SUCCEEDED"


async def test_two_gates_in_a_row_are_one_wait(url: str) -> None:
    """001 WAITING_APPROVAL: nothing ran in between, so nothing is shown in between."""

    async with on(url) as bench:
        run_id = await begin(bench, template("TOOL", "APPROVAL", "APPROVAL"))
        await bench.work_off()
        await decide(bench, run_id, approve=True, step="APPROVAL")
        assert path(await told(bench, run_id, "run")) == "PENDING RUNNING WAITING_APPROVAL"
        await decide(bench, run_id, approve=True, step="APPROVAL-2")
        assert path(await told(bench, run_id, "run")) == "PENDING RUNNING WAITING_APPROVAL SUCCEEDED"


async def test_a_template_that_begins_with_a_gate_opens_it(url: str) -> None:
    """The seed's own service opens gates after TOOL only and would hang here (001 PENDING → WAITING_APPROVAL)."""

    async with on(url) as bench:
        run_id = await begin(bench, template("APPROVAL", "LLM"))
        assert path(await told(bench, run_id, "run"), "APPROVAL") == "PENDING WAITING_APPROVAL"
        await decide(bench, run_id, approve=True)
        assert await bench.work_off() == 1


async def test_a_step_that_exhausts_its_attempts_fails_the_run(url: str) -> None:
    """001 RUNNING → FAILED, for step and run, and after an approval."""

    async with on(url) as bench:
        run_id = await begin(bench, template("APPROVAL", "LLM", max_attempts=1))
        await decide(bench, run_id, approve=True)
        (claim,) = await bench.claim()
        await bench.report(claim, FLAKY)
        lines = await told(bench, run_id, "run")
        assert path(lines) == "PENDING RUNNING WAITING_APPROVAL RUNNING FAILED"
        assert path(lines, "LLM") == "PENDING RUNNING FAILED"


async def test_a_rejected_gate_fails_the_run_by_an_extension(url: str) -> None:
    """001 has no reject: nothing failed after an approval, no worker claimed a step, and no cancel was asked for."""

    async with on(url) as bench:
        run_id = await begin(bench, template("APPROVAL", "LLM"))
        await decide(bench, run_id, approve=False)
        lines = await told(bench, run_id, "run")
        assert path(lines) == "PENDING RUNNING WAITING_APPROVAL FAILED"
        assert path(lines, "APPROVAL") == "PENDING WAITING_APPROVAL FAILED"
        assert path(lines, "LLM") == "PENDING CANCELED"
        marked = [(line["to_state"], line["trigger"]) for line in lines if "extension" in line["metadata"]]
        assert marked == [
            ("RUNNING", "progressed"),
            ("FAILED", "rejected"),
            ("CANCELED", "Run stopped"),
            ("FAILED", "Gate refused"),
        ]


async def test_a_cancel_ends_a_run_and_its_steps_wherever_they_are(url: str) -> None:
    """001 PENDING / RUNNING / WAITING_APPROVAL → CANCELED, for runs and for steps."""

    async with on(url) as bench:
        pending = await begin(bench)
        await cancel(bench, pending)
        assert path(await told(bench, pending, "run")) == "PENDING CANCELED"

        running = await begin(bench)
        (claim,) = await bench.claim()
        await cancel(bench, running)
        lines = await told(bench, running, "run")
        assert path(lines) == "PENDING RUNNING CANCELED"
        assert (path(lines, "LLM"), path(lines, "TOOL")) == ("PENDING RUNNING CANCELED", "PENDING CANCELED")
        assert isinstance(await bench.report(claim), Fenced), "a canceled step became SUCCEEDED"

        waiting = await begin(bench)
        await bench.work_off()
        await cancel(bench, waiting)
        lines = await told(bench, waiting, "run")
        assert path(lines) == "PENDING RUNNING WAITING_APPROVAL CANCELED"
        assert path(lines, "APPROVAL") == "PENDING WAITING_APPROVAL CANCELED"


async def test_terminal_runs_stay_as_they_are(url: str) -> None:
    """001 Run transitions: Terminal."""

    async with on(url) as bench:
        canceled = await begin(bench)
        await cancel(bench, canceled)
        before = await told(bench, canceled, "run")
        await cancel(bench, canceled)
        assert await told(bench, canceled, "run") == before
        succeeded = await begin(bench, template("LLM", version=2))
        await bench.work_off()
        with pytest.raises(Conflict, match="already ended"):
            await cancel(bench, succeeded)
        assert path(await told(bench, succeeded, "run")) == "PENDING RUNNING SUCCEEDED"


async def test_output_and_cost_of_a_success_are_stored(url: str) -> None:
    """001 RUNNING → SUCCEEDED: stores output and cost."""

    async with on(url) as bench:
        run_id = await begin(bench, template("LLM"))
        (claim,) = await bench.claim()
        await bench.report(claim, Completed(output=b'{"text":"hello"}', cost=b'{"usd":0.000504}'))
        (attempt,) = await bench.store.read_attempts(TENANT, run_id)
        assert (attempt.output, attempt.cost) == (b'{"text":"hello"}', b'{"usd":0.000504}')
        assert (await shown(bench, run_id, "run"))["cost"]["total_cost_usd"] == 0.000504


# -- Invariants ------------------------------------------------------------------------------------------------------
async def test_approve_moves_only_a_gate_that_waits(url: str) -> None:
    """001 Approval only from WAITING_APPROVAL."""

    async with on(url) as bench:
        run_id = await begin(bench)
        for step in ("APPROVAL", None):
            with pytest.raises(Conflict):
                await decide(bench, run_id, approve=True, step=step)
        with pytest.raises(Conflict, match="no approval gate"):
            await decide(bench, run_id, approve=True, step="LLM")
        assert path(await told(bench, run_id, "run"), "APPROVAL") == "PENDING"
        await cancel(bench, run_id)
        with pytest.raises(Conflict):
            await decide(bench, run_id, approve=True)
        assert path(await told(bench, run_id, "run"), "APPROVAL") == "PENDING CANCELED"


async def test_approve_is_idempotent(url: str) -> None:
    """001 Approval only from WAITING_APPROVAL: the second approval advances nothing, not even the next gate."""

    async with on(url) as bench:
        run_id = await begin(bench, template("TOOL", "APPROVAL", "LLM", "APPROVAL"))
        await bench.work_off()
        first = await decide(bench, run_id, approve=True)
        again = await decide(bench, run_id, approve=True)
        assert (first.repeated, again.repeated) == (False, True)
        await bench.work_off()
        with pytest.raises(Conflict, match="APPROVAL-2 is open"):
            await decide(bench, run_id, approve=True)
        assert path(await told(bench, run_id, "run"), "APPROVAL-2") == "PENDING WAITING_APPROVAL"


async def test_no_worker_executes_approval(url: str) -> None:
    """001 Worker never executes APPROVAL: it is in no queue, and a claim of it is refused."""

    async with on(url) as bench:
        definition = accepted("run", DEFAULT)
        gate = definition.steps[2]
        assert gate.executor is None
        assert gate.approval is not None
        run_id = await bench.start(definition)
        await bench.work_off()
        assert await bench.claim(10) == []
        row = (await bench.store.read_steps(TENANT, run_id))[2]
        assert (row.state, row.queue) == (StepState.AWAITING_APPROVAL, NO_QUEUE)
        claimer = await bench.claimer()
        event = StepClaimed(tenant=TENANT, run_id=run_id, actor="w", no=2, worker=claimer.worker, lease=SECOND)
        (reply,) = await bench.transactor.submit_all([event])
        assert isinstance(reply, Conflict)
        assert path(await told(bench, run_id, "run"), "APPROVAL") == "PENDING WAITING_APPROVAL"


async def test_steps_are_claimed_strictly_by_position(url: str) -> None:
    """001 Ordering constraints: the seed's own service could claim LLM and TOOL at once."""
    text = """
        template: default
        steps:
          - {position: 3, name: TOOL}
          - {position: 1, name: ZEBRA}
          - {position: 2, name: LLM}
    """

    async with on(url) as bench:
        run_id = await begin(bench, text)
        for name in ("ZEBRA", "LLM", "TOOL"):
            claims = await bench.claim(10)
            assert [claim.planned.name for claim in claims] == [name]
            assert await bench.claim(10) == []
            await bench.report(claims[0])
        lines = await told(bench, run_id, "run")
        created = [
            line["metadata"]["step"] for line in lines if line["from_state"] is None and "step" in line["metadata"]
        ]
        assert created == ["ZEBRA", "LLM", "TOOL"]


async def test_a_claim_increments_attempts(url: str) -> None:
    """001 PENDING → RUNNING: increments `attempts`."""

    async with on(url) as bench:
        run_id = await begin(bench, template("LLM"))
        for pause in (4, 8):
            (claim,) = await bench.claim()
            await bench.report(claim, FLAKY)
            await later(bench, pause * SECOND)
        await bench.claim()
        lines = await told(bench, run_id, "run")
        claims = [line["metadata"]["attempt"] for line in lines if line["metadata"].get("because") == "claimed"]
        assert claims == [1, 2, 3]


# -- Edge cases and behavior -----------------------------------------------------------------------------------------
async def test_a_stale_running_step_is_reclaimed_as_running(url: str) -> None:
    """001 Reclaiming stale RUNNING steps; RUNNING (stale) → RUNNING (reclaimed)."""

    async with on(url) as bench:
        run_id = await begin(bench, template("LLM", reclaim_after="5m"))
        (stale,) = await bench.claim()
        await later(bench, 299 * SECOND)
        assert await bench.claim() == [], "it was reclaimed before it was stale"
        await later(bench, 2 * SECOND)
        (reclaimed,) = await bench.claim()
        assert reclaimed.step.fence == stale.step.fence + 1
        assert isinstance(await bench.report(stale, Completed(output=b'"late"')), Fenced)
        assert isinstance(await bench.report(reclaimed), Accepted)
        lines = await told(bench, run_id, "run")
        assert moves(lines, "LLM")[1:] == [("PENDING", "RUNNING"), ("RUNNING", "RUNNING"), ("RUNNING", "SUCCEEDED")]
        events = (await shown(bench, run_id, "run"))["events"]
        claims = [event["payload"] for event in events if event["type"] == "STEP_CLAIMED"]
        assert [(claim["reclaimed"], claim["previous"]) for claim in claims] == [(False, "PENDING"), (True, "RUNNING")]
        states = [attempt.state for attempt in await bench.store.read_attempts(TENANT, run_id)]
        assert states == [AttemptState.LOST, AttemptState.SUCCEEDED]


async def test_reclaims_use_up_attempts(url: str) -> None:
    """The seed's own service reclaims forever; here max_attempts holds (001 When attempts exceed max)."""

    async with on(url) as bench:
        run_id = await begin(bench, template("LLM", max_attempts=2))
        for _ in range(2):
            assert len(await bench.claim()) == 1
            await later(bench, 31 * SECOND)
        assert await bench.claim() == []
        lines = await told(bench, run_id, "run")
        assert path(lines, "LLM") == "PENDING RUNNING RUNNING FAILED"
        assert path(lines) == "PENDING RUNNING FAILED"
        (step,) = await bench.store.read_steps(TENANT, run_id)
        assert step.category is Category.POISON


async def test_retries_wait_exactly_two_to_the_attempts_times_the_base(url: str) -> None:
    """001 next_run_at = now + (2^attempts * base_delay): 4 s and 8 s, then FAILED."""

    async with on(url) as bench:
        run_id = await begin(bench)
        for seconds in (4, 8):
            (claim,) = await bench.claim()
            await bench.report(claim, FLAKY)
            last = (await told(bench, run_id, "run"))[-2]
            assert (last["from_state"], last["to_state"]) == ("RUNNING", "PENDING")
            assert last["metadata"]["due_at"] - last["metadata"]["at"] == seconds * SECOND
            await later(bench, seconds * SECOND - SECOND // 2)
            assert await bench.claim() == [], "it was tried again too early"
            await later(bench, SECOND // 2)
        (claim,) = await bench.claim()
        await bench.report(claim, FLAKY)
        lines = await told(bench, run_id, "run")
        assert path(lines, "LLM") == "PENDING RUNNING PENDING RUNNING PENDING RUNNING FAILED"
        assert path(lines) == "PENDING RUNNING FAILED"


async def test_the_backoff_has_no_cap_of_its_own(url: str) -> None:
    """001 Retries and exponential backoff: ten attempts of a one-hour base reach 2^9 hours."""

    async with on(url) as bench:
        run_id = await begin(bench, template("LLM", max_attempts=10, retry_base_delay="1h"))
        for attempt in range(1, 10):
            (claim,) = await bench.claim()
            await bench.report(claim, FLAKY)
            (step,) = await bench.store.read_steps(TENANT, run_id)
            last = (await told(bench, run_id, "run"))[-2]["metadata"]
            assert last["due_at"] - last["at"] == 2**attempt * 3600 * SECOND
            assert step.attempts == attempt
            await later(bench, 2**attempt * 3600 * SECOND)


@pytest.mark.parametrize("outcome", [FLAKY, TimedOut()], ids=["error", "timeout"])
async def test_every_error_and_every_timeout_is_retried(url: str, outcome: Any) -> None:
    """001 RUNNING → PENDING."""

    async with on(url) as bench:
        run_id = await begin(bench, template("LLM"))
        (claim,) = await bench.claim()
        await bench.report(claim, outcome)
        assert path(await told(bench, run_id, "run"), "LLM") == "PENDING RUNNING PENDING"


async def test_what_is_never_retried_fails_at_once(url: str) -> None:
    """001 RUNNING → FAILED: terminal failure."""

    async with on(url) as bench:
        run_id = await begin(bench)
        (claim,) = await bench.claim()
        await bench.report(claim, HOPELESS)
        lines = await told(bench, run_id, "run")
        assert path(lines, "LLM") == "PENDING RUNNING FAILED"
        assert path(lines, "TOOL") == "PENDING CANCELED"
        assert path(lines) == "PENDING RUNNING FAILED"


async def test_there_is_no_rollback(url: str) -> None:
    """001 knows none: a cancel that asks for it has nothing to undo."""

    async with on(url) as bench:
        run_id = await begin(bench)
        (claim,) = await bench.claim()
        await bench.transactor.report([report_of(claim)], None)
        (claim,) = await bench.claim()
        await bench.report(claim, HOPELESS)
        record = await bench.store.read_run(TENANT, run_id)
        assert record is not None
        assert (record.run.rollback, record.run.undoing) == ("none", 0)
        assert len(await bench.store.read_steps(TENANT, run_id)) == 3
