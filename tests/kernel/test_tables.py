"""The four tables, exhaustively: every (state, trigger) pair has its one row or is refused, and every row is wanted.

The rows are spelled out by the design (section 3); here each machine is held to what must be true of any machine.
"""

from __future__ import annotations

import re
from enum import StrEnum
from random import Random
from typing import Any

import pytest
from tests.kernel import audit
from tests.kernel.walks import bring_home, live, world_of
from tests.suites import in_proof

from stepkeep.kernel.errors import IllegalTransition
from stepkeep.kernel.machine.rows import Worker
from stepkeep.kernel.machine.states import (
    ATTEMPT_TERMINAL,
    RUN_TERMINAL,
    STEP_MOVING,
    STEP_TERMINAL,
    STEP_WAITING,
    WORKER_TERMINAL,
    AttemptState,
    RunState,
    StepState,
    WorkerState,
)
from stepkeep.kernel.machine.tables import (
    ATTEMPT,
    MACHINES,
    RUN,
    STEP,
    WORKER,
    Machine,
    Row,
    RunTrigger,
    StepTrigger,
    WorkerTrigger,
)
from stepkeep.kernel.workers import move_worker

TERMINAL: dict[str, frozenset[Any]] = {
    "run": RUN_TERMINAL,
    "step": STEP_TERMINAL,
    "worker": WORKER_TERMINAL,
    "attempt": ATTEMPT_TERMINAL,
}
PAIRS = [
    (machine, state, trigger)
    for machine in MACHINES
    for state in (None, *machine.states)
    for trigger in machine.triggers
]


def _say(value: object) -> str:
    return value.name if isinstance(value, Machine) else str(value)


@pytest.mark.parametrize(("machine", "state", "trigger"), PAIRS, ids=_say)
def test_every_pair_has_its_one_row_or_is_refused(
    machine: Machine[Any, Any], state: StrEnum | None, trigger: StrEnum
) -> None:
    rows = [row for row in machine.rows if row.source is state and row.trigger is trigger]
    assert machine.allows(state, trigger) == bool(rows)
    if rows:
        (row,) = rows
        assert machine.target(state, trigger) is row.target
    else:
        with pytest.raises(IllegalTransition, match=f"a {machine.name} cannot be {trigger} while it is {state}"):
            machine.target(state, trigger)


def test_two_rows_for_one_pair_are_refused() -> None:
    row = Row(RunState.IDLE, RunTrigger.STARTED, RunState.QUEUED, "000 §1")
    with pytest.raises(IllegalTransition, match="two rows"):
        Machine("run", RunState, RunTrigger, [row, row._replace(target=RunState.RUNNING)])


@pytest.mark.parametrize("machine", MACHINES, ids=_say)
def test_what_has_ended_has_no_exits_and_all_else_has_one(machine: Machine[Any, Any]) -> None:
    """000 §1 "completed → any (terminal)"; 004 "terminal states cannot transition to non-terminal states"."""
    assert {row.source for row in machine.rows if row.source is not None} == set(machine.states) - TERMINAL[
        machine.name
    ]


@pytest.mark.parametrize("machine", MACHINES, ids=_say)
def test_every_state_can_be_reached_and_every_state_can_end(machine: Machine[Any, Any]) -> None:
    reached: set[Any] = {None}
    while more := {row.target for row in machine.rows if row.source in reached} - reached:
        reached |= more
    assert reached == {None, *machine.states}
    ending = set(TERMINAL[machine.name])
    while more := {row.source for row in machine.rows if row.target in ending} - ending:
        ending |= more
    assert ending == reached


@pytest.mark.parametrize("machine", MACHINES, ids=_say)
def test_every_trigger_has_a_row_and_things_come_into_being_in_one_way(machine: Machine[Any, Any]) -> None:
    assert {row.trigger for row in machine.rows} == set(machine.triggers)
    created = [row.trigger for row in machine.rows if row.source is None]
    assert len(created) == 1 or created == ["planned", "adopted", "adopted_skipped"]


@pytest.mark.parametrize("machine", MACHINES, ids=_say)
def test_every_row_cites_a_seed_or_the_design(machine: Machine[Any, Any]) -> None:
    for row in machine.rows:
        assert re.match(r"00[0-4] \S|design (?:part [23] )?§[2-6]: \S", row.cites), row


def test_every_step_that_has_not_ended_can_be_cancelled() -> None:
    """001 step transitions; design §3 "any non-terminal → cancelled"."""
    for state in set(StepState) - STEP_TERMINAL:
        assert STEP.target(state, StepTrigger.CANCELLED) is StepState.CANCELLED


def test_every_run_that_has_not_ended_can_be_cancelled_or_is_ending_already() -> None:
    for state in set(RunState) - RUN_TERMINAL - {RunState.STOPPING, RunState.COMPENSATING}:
        assert RUN.target(state, RunTrigger.CANCELLED) is RunState.CANCELLED


def test_the_transitions_that_seed_000_forbids_have_no_row() -> None:
    """000 §1 "Invalid transitions (MUST NOT occur)"."""
    arrows = {(row.source, row.target) for row in RUN.rows}
    assert (RunState.IDLE, RunState.RUNNING) not in arrows
    assert (RunState.FAILED, RunState.RUNNING) not in arrows
    assert not {target for source, target in arrows if source is RunState.COMPENSATING} & {
        RunState.RUNNING,
        RunState.QUEUED,
        RunState.STOPPING,
    }


def test_workers_claim_only_what_is_ready_or_has_rules_to_run_again() -> None:
    """001 "Worker never executes APPROVAL"; 002 "only claimed steps may be executed"."""
    assert {row.source for row in STEP.rows if row.trigger is StepTrigger.CLAIMED} == {
        StepState.READY,
        StepState.VALIDATING,
    }
    assert {row.source for row in STEP.rows if row.target is StepState.RUNNING} == {StepState.READY}


def test_each_step_state_is_moved_by_the_engine_or_waits_for_somebody_or_has_ended_or_has_not_begun() -> None:
    groups = [STEP_MOVING, STEP_WAITING, STEP_TERMINAL, {StepState.PENDING}]
    assert sorted(state for group in groups for state in group) == sorted(StepState)


def test_an_attempt_ends_once() -> None:
    """003 §2 "single-shot and terminal"."""
    assert {row.source for row in ATTEMPT.rows} == {None, AttemptState.OPEN}
    assert {row.target for row in ATTEMPT.rows if row.source is AttemptState.OPEN} == ATTEMPT_TERMINAL


@pytest.mark.parametrize(("lives", "least"), [(60, 0.6), in_proof(6_000, 1.0)])
def test_every_row_of_runs_and_steps_is_produced_by_some_life(lives: int, least: float) -> None:
    """A row that nothing leads to is a promise that is not kept.

    A few lives produce most rows; all of them take thousands.
    """
    wanted = {(machine.name, row.source, row.trigger) for machine in (RUN, STEP) for row in machine.rows}
    audit.produced.clear()
    for seed in range(lives):
        random = Random(seed)
        world = world_of(random)
        live(world, random, 60)
        bring_home(world)
        if seed > 500 and audit.produced == wanted:
            return
    assert audit.produced <= wanted
    assert len(audit.produced) >= least * len(wanted), (
        "let KINDS of tests/kernel/walks.py draw an event that leads to the missing rows"
    )


# -- workers ---------------------------------------------------------------------------------------------------------
def worker(state: WorkerState) -> Worker:
    return Worker(
        tenant="t",
        id="host:1",
        no=1,
        state=state,
        incarnation=1,
        capacity=4,
        capabilities=(),
        queues=(),
        heard_at=0,
        started_at=0,
    )


@pytest.mark.parametrize("row", WORKER.rows, ids=lambda row: f"{row.source}-{row.trigger}")
def test_a_worker_moves_along_its_table_and_writes_it_down(row: Row[WorkerState, WorkerTrigger]) -> None:
    """004 worker state machine: every transition emits an event."""
    moved, entry = move_worker(worker(row.source or WorkerState.INITIALIZING), (row.trigger,), now=5, actor="a")
    assert moved.state is row.target
    assert (moved.seq, moved.head) == (1, entry.hash)
    assert str(row.trigger).encode() in entry.body


def test_a_worker_that_is_heard_again_is_a_new_incarnation() -> None:
    """004 unresponsive → idle; design §3 "same id, incarnation +1, old claims fenced"."""
    back, _ = move_worker(worker(WorkerState.UNRESPONSIVE), (WorkerTrigger.HEARD_AGAIN,), now=5, actor="a")
    assert (back.id, back.incarnation) == ("host:1", 2)
    busy, _ = move_worker(back, (WorkerTrigger.TASK_ASSIGNED,), now=6, actor="a")
    assert busy.incarnation == 2


def test_a_worker_starts_and_registers_in_one_entry() -> None:
    """004 initializing → idle."""
    started = (WorkerTrigger.STARTED, WorkerTrigger.REGISTERED)
    moved, entry = move_worker(worker(WorkerState.INITIALIZING), started, now=5, actor="a")
    assert moved.state is WorkerState.IDLE
    assert entry.seq == 1


def test_a_worker_makes_no_forbidden_move() -> None:
    with pytest.raises(IllegalTransition):
        move_worker(worker(WorkerState.SHUTDOWN), (WorkerTrigger.TASK_ASSIGNED,), now=5, actor="a")
