"""Which blocked runs go on by themselves: those that wait for time, or for a child that goes on by itself.

A run that waits for a child is blocked by what the child waits for: a gate or a message below it needs people as one of
its own does. Reads only. The waiter and the engine's own work on a run call it, to tell when only people, messages or
other programs can move a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepkeep.kernel.definition import Flow, Loop, Then
from stepkeep.kernel.plan import Plan
from stepkeep.kernel.rows import Run, Step
from stepkeep.kernel.states import STEP_WAITING, RunState, StepState
from stepkeep.operations.plans import known_plans
from stepkeep.operations.transact import Transactor
from stepkeep.operations.views import is_sleep
from stepkeep.store.change import RunKey
from stepkeep.store.records import RunStatus

Combine = Callable[[Iterable[bool]], bool]
STANDS = frozenset({RunState.PAUSED, RunState.IDLE})
"""States of a child that only people end."""


async def is_asleep(transactor: Transactor, run: Run) -> bool:
    """Whether something moves a blocked run without people and messages, whatever else it waits for."""
    status = RunStatus(state=run.state, definition_id=run.definition_id, seq=run.seq)
    return await _goes_on(transactor, (run.tenant, run.id), status, any)


async def only_sleeps(transactor: Transactor, key: RunKey, status: RunStatus) -> bool:
    """Whether a run is blocked, and no person or message is waited for. True as well of one that is not blocked any
    more."""
    return await _goes_on(transactor, key, status, all)


async def _goes_on(transactor: Transactor, key: RunKey, status: RunStatus, combine: Combine) -> bool:
    if status.state is not RunState.BLOCKED:
        return False
    plan = (await known_plans(transactor, {status.definition_id})).get(status.definition_id)
    if plan is None or not _may_sleep(plan):
        return False
    if waits := await _waits(transactor, plan, key, combine):
        return combine(waits)
    # Its steps were read after its state: it may have moved on, and is not blocked any more.
    now = (await transactor.store.read_states([key])).get(key)
    return now is not None and now.state is not RunState.BLOCKED


async def _waits(transactor: Transactor, plan: Plan, key: RunKey, combine: Combine) -> list[bool]:
    """For each step that waits for something of its own, whether its wait ends by itself."""
    steps = await transactor.store.read_steps(*key)
    waiting = [step for step in steps if step.state in STEP_WAITING and not _awaits_elements(plan, step)]
    children = {step.no: (key[0], run_id) for step in waiting if (run_id := _child_of(step)) is not None}
    # A child that is not there yet is started by a worker, and the end of one that has ended is told by a worker.
    below = dict.fromkeys(children.values(), True)
    for child, status in (await transactor.store.read_states(list(below))).items() if below else ():
        if status.state is RunState.BLOCKED:
            below[child] = await _goes_on(transactor, child, status, combine)
        else:
            below[child] = status.state not in STANDS
    return [below[children[step.no]] if step.no in children else is_sleep(plan, step) for step in waiting]


def _may_sleep(plan: Plan) -> bool:
    """Whether a run of this plan may be blocked and go on by itself."""
    return bool(plan.children) or any(
        planned.sleeps or isinstance(planned.growth, Loop | Flow | Then) for planned in plan.steps
    )


def _awaits_elements(plan: Plan, step: Step) -> bool:
    """Whether a step waits for other steps of its run, and for nothing of its own."""
    growth = plan.of(step).growth
    if step.state is not StepState.AWAITING_CHILDREN or growth is None:
        return False
    return not (isinstance(growth, Loop) and step.unmet == 0)


def _child_of(step: Step) -> str | None:
    return step.note.child if step.state is StepState.AWAITING_CHILDREN and step.note is not None else None
