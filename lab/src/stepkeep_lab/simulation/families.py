"""Trees of runs in the simulator: which steps start children, and what must be true of every tree in the end.

It shares no code with the engine's sweep of children. `run_seed` draws with it, `verdict` calls its check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.definition import (
    SECOND,
    Case,
    Definition,
    Effect,
    Handler,
    Loop,
    Map,
    Retry,
    StepDefinition,
    SubWorkflow,
    Switch,
    Undo,
    UndoChild,
)
from stepkeep.kernel.machine.rows import Child, ChildMode, ChildState, Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, Phase, Rollback, RunState, StepState
from stepkeep.kernel.plan import Plan
from stepkeep_lab.simulation.definitions import HANDLERS
from stepkeep_lab.simulation.successors import is_successor
from stepkeep_lab.simulation.tables import Tables

DEEPEST = 2
"""How many generations may be below a run."""

GROWN = 0.25
"""The share of steps with a child that start one for each element of a map or a loop."""

CHOSEN = 0.4
"""The share of the other steps with a child that start it as a case of a choice."""

MOST_RUNS = 120
"""How many runs a tree with such steps may come to; a larger one would take most of the time of a campaign."""


def with_children(drawn: Definition, plans: Sequence[Plan], random: Random, share: float) -> Definition:
    """The definition with some of its steps replaced by steps that start an earlier workflow."""
    targets = [plan.definition for plan in plans if _depth(plan.definition, plans) < DEEPEST]
    if drawn.dialect != "native" or not targets:
        return drawn
    steps = [_child(step, random.choice(targets), random) if random.random() < share else step for step in drawn.steps]
    many = replace(drawn, steps=tuple(_grown(step, random) for step in steps))
    found = many if _size(many, plans) < MOST_RUNS else replace(drawn, steps=tuple(steps))
    # Drawn last: what was drawn before there were such choices stays as it was.
    return replace(found, steps=tuple(_choosing(step, random) for step in found.steps))


def _choosing(step: StepDefinition, random: Random) -> StepDefinition:
    """The same step, or a choice with its child as a case: beside one that a handler undoes, or a plain handler."""
    child = step.child
    if child is msgspec.UNSET or child.detached is True or step.growth or random.random() > CHOSEN:
        return step
    case = replace(step, depends_on=(), condition=None)
    by_hand = Undo(executor=Handler(name="undo"), retry=Retry(max_attempts=3, initial=SECOND))
    others = (
        replace(case, undo=None if random.random() < 0.5 else by_hand),
        replace(case, child=msgspec.UNSET, executor=Handler(name=random.choice(HANDLERS)), undo=by_hand),
    )
    variants = (case, random.choice(others))
    conditions = random.choice((("true", "true"), ("false", "true"), ("false", None), (None,), ("false",)))
    cases = tuple(Case(name=f"c{place}", when=when, step=variants[place]) for place, when in enumerate(conditions))
    return StepDefinition(
        name=step.name,
        order=step.order,
        depends_on=step.depends_on,
        condition=step.condition,
        on_failure=step.on_failure,
        growth=Switch(max=len(cases), cases=cases),
    )


def _grown(step: StepDefinition, random: Random) -> StepDefinition:
    """The same step, or one that starts a child for each element of a map or a loop."""
    if step.child is msgspec.UNSET or step.child.detached is True or random.random() > GROWN:
        return step
    deadline = random.choice((None, None, 30 * SECOND))
    growth: Map | Loop = Map(
        over=f"${{{{ {list(range(random.choice((0, 1, 2, 3))))} }}}}",
        max=3,
        in_flight=random.choice((1, 2, 3)),
        tolerate=random.choice((0, 0, 1)),
        early_stop=random.random() < 0.7,
        deadline=deadline,
    )
    if random.random() < 0.35:
        growth = Loop(max=2, until="index >= 1", pause=random.choice((0, 2)) * SECOND, deadline=deadline)
    return replace(step, growth=growth)


def _size(definition: Definition, plans: Sequence[Plan]) -> int:
    """How many runs a run of this definition may come to."""
    by_name = {plan.definition.name: plan.definition for plan in plans}
    size = 1
    for step in definition.work:
        if step.child is not msgspec.UNSET:
            size += (step.growth.max if step.growth else 1) * _size(by_name[step.child.workflow], plans)
    return size


def _depth(definition: Definition, plans: Sequence[Plan]) -> int:
    by_name = {plan.definition.name: plan.definition for plan in plans}
    below = [by_name[step.child.workflow] for step in definition.work if step.child is not msgspec.UNSET]
    return max((1 + _depth(one, plans) for one in below), default=0)


def _child(step: StepDefinition, target: Definition, random: Random) -> StepDefinition:
    detached = True if random.random() < 0.15 else msgspec.UNSET
    undo: Undo | None = None
    if detached is msgspec.UNSET and random.random() < 0.7:
        undo = Undo(executor=UndoChild())
    elif random.random() < 0.5:
        undo = Undo(executor=Handler(name="undo"), retry=Retry(max_attempts=3, initial=SECOND))
    return StepDefinition(
        name=step.name,
        order=step.order,
        depends_on=step.depends_on,
        on_failure=step.on_failure,
        condition=step.condition,
        child=SubWorkflow(
            workflow=target.name,
            version=target.version,
            deadline=random.choice((None, None, 20 * SECOND)),
            detached=detached,
        ),
        undo=undo,
        effect=Effect.UNKNOWN if undo is None else Effect.WRITE,
        inputs="${{ input }}",
    )


def is_anything_left(tables: Tables) -> bool:
    """Whether something is left to do about a child."""
    return any(child.todo is not None for child in tables.children.links.values())


def wrong_families(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Everything that is wrong with the trees of all runs, after everything has ended."""
    for child in tables.children.links.values():
        parent = tables.runs[child.tenant, child.run_id]
        plan = plans[parent.definition_id]
        name, step = plan.at(child.no).name, tables.steps[child.tenant, child.run_id][child.no]
        run = tables.runs.get((child.tenant, child.child_id))
        yield from _undoes(tables, plan, child, step)
        if child.todo is not None:
            yield f"families: {child.todo} is left to be done about the child of {name} of run {child.run_id}"
        if (run is not None) != (child.state in (ChildState.STARTED, ChildState.ENDED)):
            yield f"families: the child of {name} of run {child.run_id} is {child.state}, and its run says otherwise"
        if run is None:
            continue
        if is_successor(child):
            continue  # nothing waits for its end
        if run.state in RUN_TERMINAL and run.state is not child.outcome:
            yield f"families: run {run.id} ended {run.state}, and its link says {child.outcome}"
        if tables.details[child.tenant, run.id].created_by != f"parent:{child.run_id}":
            yield f"families: run {run.id} does not name its parent"
        if child.mode is ChildMode.AWAITED and (step.note or Note()).activation == child.activation:
            yield from _told(plan, child, step, run.state, run.rollback)
    yield from _left_untold(tables, plans)
    yield from _undone_once(tables)
    yield from _undone_whole(tables, plans)


def _undoes(tables: Tables, plan: Plan, child: Child, step: Step) -> Iterator[str]:
    """A run that an undo step starts rolls the child of the step back that it undoes; no other run rolls one back."""
    name = plan.of(step).name
    if (plan.of(step).phase is Phase.UNDO) != (child.undoes is not None):
        yield f"families: {name} of run {child.run_id} started run {child.child_id}, which rolls {child.undoes} back"
    first = None if child.undoes is None else tables.children.link_of(child.tenant, child.undoes)
    if first is not None and first.run_id == child.run_id and plan.undo_no(first.no) != child.no:
        yield f"families: {name} of run {child.run_id} rolls run {child.undoes} back, which another step started"


def _told(plan: Plan, child: Child, step: Step, ended: RunState, rollback: Rollback) -> Iterator[str]:
    """A step that its child settled ends as the child did."""
    name = plan.at(child.no).name
    if plan.at(child.no).phase is Phase.UNDO:
        is_undone = ended in (RunState.ROLLED_BACK, RunState.CANCELLED) and rollback is not Rollback.PARTIAL
        if (step.state is StepState.SUCCEEDED) != is_undone:
            yield f"families: {name} of run {child.run_id} is {step.state}, and its rollback ended {ended}, {rollback}"
    elif step.state is StepState.SUCCEEDED and ended is not RunState.SUCCEEDED:
        yield f"families: {name} of run {child.run_id} succeeded, and its child ended {ended}"


def _left_untold(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Where a run says that its rollback is complete, nothing remains of what a child did that did not succeed."""
    for child in tables.children.links.values():
        parent = tables.runs[child.tenant, child.run_id]
        step = tables.steps[child.tenant, child.run_id][child.no]
        is_whole = parent.rollback is Rollback.COMPLETE and child.undoes is None and child.mode is ChildMode.AWAITED
        if not is_whole or step.state is StepState.SUCCEEDED or not _acts(plans[parent.definition_id], step):
            continue
        for name in _left_in(tables, plans, child.tenant, child.child_id):
            yield f"families: the rollback of run {parent.id} is complete, and {name} of run {child.child_id} remains"


def _acts(plan: Plan, step: Step) -> bool:
    definition = plan.of(step).definition
    return definition.undo is not None or definition.effect is not Effect.READ


def _left_in(tables: Tables, plans: Mapping[int, Plan], tenant: str, run_id: str) -> Iterator[str]:
    """The steps of a run, and of the runs below it, that succeeded with an effect and were not undone."""
    run = tables.runs.get((tenant, run_id))
    if run is None:
        return
    plan, rows = plans[run.definition_id], tables.steps[tenant, run_id]
    for no, row in rows.items():
        planned = plan.of(row)
        if planned.phase is not Phase.MAIN or planned.segment is not None or not _acts(plan, row):
            continue
        if row.state is StepState.SUCCEEDED:
            hook = rows.get(plan.undo_no(no))
            if hook is None or hook.state is not StepState.SUCCEEDED:
                yield planned.name
        elif row.note is not None and row.note.child is not None:
            yield from _left_in(tables, plans, tenant, row.note.child)


def _undone_once(tables: Tables) -> Iterator[str]:
    backs = [child for child in tables.children.links.values() if child.undoes is not None and child.outcome]
    for child in backs:
        twins = [one for one in backs if one.undoes == child.undoes]
        if len(twins) > 1 and child is twins[0]:
            yield f"families: run {child.undoes} is rolled back by {len(twins)} runs"
        first = tables.runs.get((child.tenant, child.undoes or ""))
        if first is None or first.state is not RunState.SUCCEEDED:
            yield f"families: run {child.child_id} rolls run {child.undoes} back, which did not succeed"


def _undone_whole(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """A rollback run that leaves nothing has undone every step of its child that succeeded and has an undo."""
    for child in tables.children.links.values():
        back = tables.runs.get((child.tenant, child.child_id))
        if child.undoes is None or back is None or back.rollback is Rollback.PARTIAL:
            continue
        plan, hooks = plans[back.definition_id], tables.steps[child.tenant, back.id]
        for step in tables.steps.get((child.tenant, child.undoes), {}).values():
            if not _is_to_undo(plan, step):
                continue
            hook = hooks.get(plan.undo_no(step.no))
            if hook is None or hook.state is not StepState.SUCCEEDED:
                name, state = plan.at(step.no).name, "missing" if hook is None else hook.state
                yield f"families: run {back.id} leaves nothing of run {child.undoes}, and the undo of {name} is {state}"


def _is_to_undo(plan: Plan, step: Step) -> bool:
    """Whether a step of a child succeeded, in the child itself, and has an undo."""
    is_adopted = step.note is not None and step.note.adopted is not None
    if step.state is not StepState.SUCCEEDED or is_adopted or step.no >= plan.size:
        return False
    return plan.steps[step.no].segment is None and plan.at(step.no).definition.undo is not None
