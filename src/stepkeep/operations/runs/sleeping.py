"""Which blocked runs go on by themselves: those that wait for time, or for a child that goes on by itself.

A run that waits for a child is blocked by what the child waits for: a gate or a message below it needs people as one of
its own does. Reads only. The waiter and the engine's own work on a run call it, to tell when only people, messages or
other programs can move a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from stepkeep.kernel.machine.rows import Run, Step
from stepkeep.kernel.machine.states import STEP_WAITING, RunState, StepState
from stepkeep.kernel.plan import Plan
from stepkeep.operations.pipeline.plans import known_plans
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.views import is_sleep
from stepkeep.store.change import RunKey
from stepkeep.store.records import RunStatus

Combine = Callable[[Iterable[bool]], bool]


class _Way(Enum):
    """What moves a wait on: a worker now, time, or nothing but people and messages."""

    MOVES = "moves"
    SLEEPS = "sleeps"
    STANDS = "stands"


CHILD = {RunState.PAUSED: _Way.STANDS, RunState.IDLE: _Way.STANDS}
"""What moves a child by its state; a blocked one is looked into, and every other moves."""


async def is_asleep(transactor: Transactor, run: Run) -> bool:
    """Whether something moves a blocked run without people and messages, whatever else it waits for."""
    status = RunStatus(state=run.state, definition_id=run.definition_id, seq=run.seq)
    return await _goes_on(transactor, (run.tenant, run.id), status, any)


async def only_sleeps(transactor: Transactor, key: RunKey, status: RunStatus) -> bool:
    """Whether a run is blocked, and either a worker moves it now, or no person and no message is waited for. True as
    well of one that is not blocked any more."""
    return await _goes_on(transactor, key, status, all)


async def _goes_on(transactor: Transactor, key: RunKey, status: RunStatus, combine: Combine) -> bool:
    return status.state is RunState.BLOCKED and await _way(transactor, key, status, combine) is not _Way.STANDS


async def _way(transactor: Transactor, key: RunKey, status: RunStatus, combine: Combine) -> _Way:
    """What moves a blocked run on. Where both time and people do, `combine` says which counts."""
    plan = (await known_plans(transactor, {status.definition_id})).get(status.definition_id)
    if plan is None or not _may_sleep(plan):
        return _Way.STANDS
    waits = await _waits(transactor, plan, key, combine)
    if not waits:
        # Its steps were read after its state: it may have moved on, and is not blocked any more.
        now = (await transactor.store.read_states([key])).get(key)
        return _Way.STANDS if now is None or now.state is RunState.BLOCKED else _Way.MOVES
    if _Way.MOVES in waits:
        return _Way.MOVES
    return _Way.SLEEPS if combine(one is _Way.SLEEPS for one in waits) else _Way.STANDS


async def _waits(transactor: Transactor, plan: Plan, key: RunKey, combine: Combine) -> list[_Way]:
    """For each step that waits for something of its own, what moves it on."""
    steps = await transactor.store.read_steps(*key)
    waiting = [step for step in steps if step.state in STEP_WAITING and not _awaits_elements(plan, step)]
    children = {step.no: (key[0], run_id) for step in waiting if (run_id := _child_of(step)) is not None}
    below = await _below(transactor, key, set(children.values()), combine) if children else {}
    return [
        below[children[step.no]] if step.no in children else _Way.SLEEPS if is_sleep(plan, step) else _Way.STANDS
        for step in waiting
    ]


async def _below(transactor: Transactor, key: RunKey, children: set[RunKey], combine: Combine) -> dict[RunKey, _Way]:
    """What moves each child of a run on. A worker starts it, calls it back and tells its end."""
    links = await transactor.store.children.read_all(*key)
    due = {(key[0], link.child_id) for link in links if link.todo is not None}
    found = dict.fromkeys(children, _Way.MOVES)
    for child, status in (await transactor.store.read_states(sorted(children - due))).items():
        is_blocked = status.state is RunState.BLOCKED
        found[child] = (
            await _way(transactor, child, status, combine) if is_blocked else CHILD.get(status.state, _Way.MOVES)
        )
    return found


def _may_sleep(plan: Plan) -> bool:
    """Whether a run of this plan may be blocked and go on by itself."""
    kinds = [planned.kind for planned in plan.steps]
    return bool(plan.children) or any(kind.sleeps or kind.pauses or kind.grows_by_report for kind in kinds)


def _awaits_elements(plan: Plan, step: Step) -> bool:
    """Whether a step waits for other steps of its run, and for nothing of its own."""
    kind = plan.of(step).kind
    is_owner = step.state is StepState.AWAITING_CHILDREN and kind.growth is not None
    return is_owner and not (kind.pauses and step.unmet == 0)


def _child_of(step: Step) -> str | None:
    return step.note.child if step.state is StepState.AWAITING_CHILDREN and step.note is not None else None
