"""The schema refuses what the kernel never writes, whoever tries; finished rows and the record stay as they are."""

from collections.abc import Iterable

import pytest
from tests.store.raw import Raw, RefusedBySchema
from tests.store.test_contract_gates import a_gate, a_vote
from tests.store.test_contract_rows import FULL_ATTEMPT
from tests.store.values import (
    TENANT,
    a_message,
    a_run,
    a_step,
    a_worker,
    an_entry,
    moved,
    new_run,
    run_id,
    save,
    settled,
    want,
    writes,
)

from stepkeep.kernel.machine.rows import rows_of
from stepkeep.kernel.machine.states import (
    ATTEMPT_TERMINAL,
    RUN_TERMINAL,
    STEP_TERMINAL,
    Category,
    OnFailure,
    Rollback,
    RunState,
    StepState,
    StopCause,
    WorkerState,
)
from stepkeep.store.change import Write
from stepkeep.store.listing import TROUBLED
from stepkeep.store.protocol import Store
from stepkeep.store.records import WorkerChange

CLOSED_LISTS: dict[tuple[str, str], Iterable[str]] = {
    ("runs", "run_state"): RunState,
    ("runs", "run_cause"): StopCause,
    ("runs", "run_policy"): OnFailure,
    ("runs", "run_category"): Category,
    ("runs", "run_rollback"): Rollback,
    ("steps", "step_state"): StepState,
    ("steps", "step_category"): Category,
    ("attempts", "attempt_state"): ATTEMPT_TERMINAL,
    ("attempts", "attempt_category"): Category,
    ("workers", "worker_state"): WorkerState,
}


async def test_the_words_of_the_live_schema_are_the_kernels(store: Store, raw: Raw) -> None:
    live = {place: await raw.words(*place) for place in CLOSED_LISTS}
    assert live == {place: set(words) for place, words in CLOSED_LISTS.items()}


LEASE = "worker = 1, claimed_at = 1, due_at = 9, fence = 1"
END = "settled = 5"
LEGAL_STEPS: dict[StepState, str] = {
    StepState.PENDING: "",
    StepState.READY: "ready_at = 1",
    StepState.RUNNING: LEASE,
    StepState.VALIDATING: LEASE,
    StepState.RETRYING: "due_at = 9",
    StepState.AWAITING_APPROVAL: "due_at = 9",
    StepState.AWAITING_EVENT: """due_at = 9, note = '{"event":"paid"}'""",
    StepState.AWAITING_COMPLETION: """due_at = 9, note = '{"token":"ab"}'""",
    StepState.AWAITING_CHILDREN: "due_at = 9",
    StepState.SUCCEEDED: END,
    StepState.FAILED: END,
    StepState.SKIPPED: END,
    StepState.CANCELLED: END,
}


def setting(state: str, *columns: str) -> str:
    changes = ", ".join(filter(None, (f"state = '{state}'", *columns)))
    return f"update steps set {changes} where no = 0"


async def accepted(raw: Raw, statements: dict[str, str]) -> list[str]:
    """Which of the statements the schema let through, though it should have refused each."""
    let_through = []
    for kind, statement in statements.items():
        try:
            await raw.execute(statement)
        except RefusedBySchema:
            continue
        let_through.append(kind)
    return let_through


async def saved(store: Store) -> None:
    await save(store, new_run(1, (a_step(1, 0),)))


async def test_a_legal_step_of_each_state_is_taken(store: Store, raw: Raw) -> None:
    await save(store, new_run(1, [a_step(1, no) for no, _ in enumerate(StepState)]))
    for no, state in enumerate(StepState):
        await raw.execute(setting(state, LEGAL_STEPS[state]).replace("no = 0", f"no = {no}"))
    assert [step.state for step in await store.read_steps(TENANT, run_id(1))] == list(StepState)


async def test_rules_that_anybody_may_run_again_are_claimable(store: Store, raw: Raw) -> None:
    await saved(store)
    await raw.execute(setting("validating", "ready_at = 1", "fence = 1"))


ILLEGAL_STEPS = {
    "an unknown state": setting("lost"),
    "no state": "update steps set state = null where no = 0",
    "a category nobody knows": setting("pending", "category = 'weather'"),
    "pending and claimable": setting("pending", "ready_at = 1"),
    "pending with a timer": setting("pending", "due_at = 1"),
    "ready without a time": setting("ready"),
    "ready with a timer": setting("ready", "ready_at = 1", "due_at = 9"),
    "ready and leased": setting("ready", "ready_at = 1", LEASE),
    "a gate that is claimable": setting("ready", "ready_at = 1", "queue = 0"),
    "running without a worker": setting("running", "claimed_at = 1", "due_at = 9", "fence = 1"),
    "running without a fence": setting("running", "worker = 1", "claimed_at = 1", "due_at = 9"),
    "running without a claim": setting("running", "worker = 1", "due_at = 9", "fence = 1"),
    "running without an end of its lease": setting("running", "worker = 1", "claimed_at = 1", "fence = 1"),
    "running and claimable": setting("running", LEASE, "ready_at = 1"),
    "validating with neither lease nor turn": setting("validating", "fence = 1"),
    "validating with both": setting("validating", LEASE, "ready_at = 1"),
    "validating, claimable, with a timer": setting("validating", "ready_at = 1", "due_at = 9"),
    "retrying without a timer": setting("retrying"),
    "retrying and leased": setting("retrying", LEASE),
    "retrying and claimable": setting("retrying", "due_at = 9", "ready_at = 1"),
    "waiting for an event without a name": setting("awaiting_event", "due_at = 9"),
    "waiting for an event that is null": setting("awaiting_event", """note = '{"event":null}'"""),
    "waiting for a completion without a token": setting("awaiting_completion", """note = '{"event":"x"}'"""),
    "waiting for children, yet leased": setting("awaiting_children", LEASE),
    "waiting for children, yet claimable": setting("awaiting_children", "ready_at = 1"),
    "waiting for people, yet leased": setting("awaiting_approval", LEASE),
    "waiting for people, yet claimable": setting("awaiting_approval", "ready_at = 1"),
    "a lease half given back": setting("pending", "worker = 1"),
    "a claim without a worker": setting("pending", "claimed_at = 1"),
    "settled before the end": setting("pending", END),
    "a note that is not JSON": setting("pending", "note = '{half'"),
    "a negative fence": setting("pending", "fence = -1"),
    "negative attempts": setting("pending", "attempts = -1"),
    "negative losses": setting("pending", "losses = -1"),
    "negative dependencies": setting("pending", "unmet = -1"),
    **{f"{state} without its place": setting(state) for state in sorted(STEP_TERMINAL)},
    **{f"{state} and claimable": setting(state, END, "ready_at = 1") for state in sorted(STEP_TERMINAL)},
    **{f"{state} with a timer": setting(state, END, "due_at = 1") for state in sorted(STEP_TERMINAL)},
    **{f"{state} and leased": setting(state, END, LEASE) for state in sorted(STEP_TERMINAL)},
}


async def test_every_illegal_step_is_refused(store: Store, raw: Raw) -> None:
    await saved(store)
    assert await accepted(raw, ILLEGAL_STEPS) == []
    assert await store.read_steps(TENANT, run_id(1)) == [a_step(1, 0)]


def setting_run(state: str, *columns: str) -> str:
    changes = ", ".join((f"state = '{state}'", "seq = seq + 1", *columns))
    return f"update runs set {changes}"


def legal_run(state: RunState) -> str:
    columns = ["ended_at = 9"] if state in RUN_TERMINAL else []
    columns += ["cause = 'failure'"] if state in TROUBLED else []
    return setting_run(state, *columns)


async def test_a_legal_run_of_each_state_is_taken(store: Store, raw: Raw) -> None:
    await save(store, *(new_run(number) for number, _ in enumerate(RunState)))
    for number, state in enumerate(RunState):
        await raw.execute(f"{legal_run(state)} where id = '{run_id(number)}'")
    assert await store.count_runs(TENANT) == dict.fromkeys(RunState, 1)


ILLEGAL_RUNS = {
    "an unknown state": setting_run("lost"),
    "a cause nobody knows": setting_run("stopping", "cause = 'whim'"),
    "a policy nobody knows": setting_run("running", "policy = 'hope'"),
    "a category nobody knows": setting_run("running", "category = 'weather'"),
    "a rollback nobody knows": setting_run("running", "rollback = 'some'"),
    "running with an end": setting_run("running", "ended_at = 9"),
    "stopping without a cause": setting_run("stopping"),
    "compensating without a cause": setting_run("compensating"),
    **{f"{state} without a cause": setting_run(state, "ended_at = 9") for state in sorted(RUN_TERMINAL & TROUBLED)},
    "more leased than moving": setting_run("running", "leased = 1"),
    **{f"negative {name}": setting_run("running", f"{name} = -1") for name in ("open", "moving", "inbox", "failed")},
    **{f"{state} without an end": setting_run(state, "cause = 'failure'") for state in sorted(RUN_TERMINAL)},
    **{
        f"{state} with a timer": setting_run(state, "ended_at = 9", "cause = 'failure'", "due_at = 9")
        for state in sorted(RUN_TERMINAL)
    },
    **{
        f"{state} with something {counter}": setting_run(state, "ended_at = 9", "cause = 'failure'", f"{counter} = 1")
        for state in sorted(RUN_TERMINAL)
        for counter in ("open", "moving", "undoing")
    },
    "a journal that shrinks": "update runs set seq = 0",
}


async def test_every_illegal_run_is_refused(store: Store, raw: Raw) -> None:
    await saved(store)
    assert await accepted(raw, ILLEGAL_RUNS) == []


async def populated(store: Store, state: RunState) -> None:
    """A run with a row in every table that belongs to it."""
    ended = {"ended_at": 5} if state in RUN_TERMINAL else {}
    step = settled(a_step(1, 0, fence=1))
    await save(
        store, new_run(1, (step,), run=a_run(1, state, **ended), messages=(a_message(1, "m", 1, consumed_by=0),))
    )
    await store.change([want(1)], writes(Write(attempts=[FULL_ATTEMPT])))


NEVER_CHANGES = {
    "a finished run": "update runs set error = 'x'",
    "a finished run, back to work": "update runs set state = 'running', ended_at = null",
    "a finished step": "update steps set error = 'x'",
    "a finished step, back to work": "update steps set state = 'pending', settled = null",
    "a consumed message": "update messages set consumed_by = null",
    "a consumed message, again": "update messages set consumed_by = 2",
    "the journal": "update journal set at = 0",
    "an attempt": "update attempts set state = 'succeeded'",
}


async def test_what_is_finished_never_changes(store: Store, raw: Raw) -> None:
    await populated(store, RunState.SUCCEEDED)
    assert await accepted(raw, NEVER_CHANGES) == []


NEVER_STARTS = {
    "an idle run, running": "update runs set state = 'running', moving = 1",
    "an idle run, running with an entry and no start": "update runs set state = 'running', moving = 1, seq = seq + 1",
    "an idle run, queued without an entry": "update runs set state = 'queued', moving = 1, started_at = 5",
}


async def test_an_idle_run_runs_only_after_a_start_that_is_in_the_journal(store: Store, raw: Raw) -> None:
    await save(store, new_run(1, (a_step(1, 0),), run=a_run(1, RunState.IDLE)))
    assert await accepted(raw, NEVER_STARTS) == []
    await raw.execute("update runs set state = 'queued', moving = 1, started_at = 5, seq = seq + 1")


async def test_a_fence_never_falls(store: Store, raw: Raw) -> None:
    await save(store, new_run(1, (a_step(1, 0, fence=3),)))
    await raw.execute("update steps set fence = 4")
    with pytest.raises(RefusedBySchema):
        await raw.execute("update steps set fence = 3")


async def test_an_unfinished_run_loses_nothing(store: Store, raw: Raw) -> None:
    await populated(store, RunState.RUNNING)
    deletes = {table: f"delete from {table}" for table in ("runs", "steps", "attempts", "journal")}
    assert await accepted(raw, deletes) == []


TABLES = ["runs", "run_details", "steps", "attempts", "journal", "messages", "outbox"]


@pytest.mark.parametrize("order", [TABLES, TABLES[::-1]], ids=["run first", "run last"])
async def test_a_finished_run_can_be_deleted_for_good(store: Store, raw: Raw, order: list[str]) -> None:
    await populated(store, RunState.CANCELLED)
    for table in order:
        await raw.execute(f"delete from {table}")
        assert await raw.execute(f"select * from {table}") == []


async def test_the_journal_of_a_worker_is_kept_while_it_lives(store: Store, raw: Raw) -> None:
    worker = await store.add_worker(a_worker("w-1"), an_entry("w-1", 1))
    for statement in ("update worker_journal set at = 0", "delete from worker_journal"):
        with pytest.raises(RefusedBySchema):
            await raw.execute(statement)
    with pytest.raises(RefusedBySchema):
        await raw.execute("update workers set state = 'asleep'")
    gone = a_worker("w-1", WorkerState.SHUTDOWN, no=worker.no, seq=2)
    await store.change_workers([WorkerChange(was=1, worker=gone, entry=an_entry("w-1", 2))])
    await raw.execute("delete from worker_journal")


ATTEMPT = "tenant, run_id, no, number, worker, started_at, ended_at"
COPY = f"insert into attempts ({ATTEMPT}, fence, state, category) select {ATTEMPT}"
ENTRY = "insert into journal (tenant, run_id, seq, at, body, hash) select tenant, run_id"
ILLEGAL_RECORDS = {
    "an open attempt": f"{COPY}, 8, 'open', null from attempts",
    "an attempt in no state": f"{COPY}, 8, 'x', null from attempts",
    "an attempt without a fence": f"{COPY}, 0, 'lost', null from attempts",
    "an attempt for no known reason": f"{COPY}, 8, 'failed', 'weather' from attempts",
    "an entry before the first": f"{ENTRY}, 0, at, body, hash from journal",
    "an entry without a seal": f"{ENTRY}, 2, at, body, body from journal",
}


async def test_every_illegal_record_is_refused(store: Store, raw: Raw) -> None:
    await populated(store, RunState.RUNNING)
    assert await accepted(raw, ILLEGAL_RECORDS) == []


async def test_a_gate_keeps_what_it_showed_and_closes_once_and_a_decision_never_changes(store: Store, raw: Raw) -> None:
    gate = a_gate(1)
    await save(store, new_run(1, (a_step(1),), gates=(gate,)))
    change, entry = moved(a_run(1))
    what = Write(runs=[change], entries=[entry], rows=rows_of([a_vote(1, "bea")]))
    await store.change([want(1)], writes(what))
    for wrong in ("shown_digest = opened_at || shown_digest", "opened_at = 6", "level = -1"):
        with pytest.raises(RefusedBySchema):
            await raw.execute(f"update gates set {wrong}")
    await raw.execute("update gates set closed_at = 21, outcome = 'approved', level = 1")
    for again in ("closed_at = 22", "closed_at = null, outcome = null", "level = 2"):
        with pytest.raises(RefusedBySchema, match="closed once"):
            await raw.execute(f"update gates set {again}")
    with pytest.raises(RefusedBySchema, match="never changes"):
        await raw.execute("update decisions set decision = 'rejected'")
    for table in ("gates", "decisions"):
        with pytest.raises(RefusedBySchema, match="finished run"):
            await raw.execute(f"delete from {table}")
    with pytest.raises(RefusedBySchema):
        await raw.execute("update decisions set on_behalf_of = person")
