"""What must be true of adopted steps: each was finished in the run that it comes from, and is undone once.

It shares no code with the kernel's choice. `verdict` calls it when a simulation has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from stepkeep.kernel.definition import Effect
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.rows import Adopted, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import RunKey
from stepkeep_lab.simulation.tables import Tables


def wrong_adoptions(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Everything that is wrong with the adopted steps of all runs."""
    undone: Counter[tuple[str, str]] = Counter()
    for key, rows in tables.steps.items():
        plan = plans[tables.runs[key].definition_id]
        for step in rows.values():
            if step.no >= plan.size and step.state is StepState.SUCCEEDED and step.no < 2 * plan.size:
                main = rows[step.no - plan.size]
                undone[_source(key, plan, main)] += 1
        yield from _of_run(tables, plans, key, plan)
    for (run_id, step_name), times in undone.items():
        if times > 1:
            yield f"adoption: step {step_name} of run {run_id} was undone by {times} runs"
    yield from _owners(tables)


def _of_run(tables: Tables, plans: Mapping[int, Plan], key: RunKey, plan: Plan) -> Iterator[str]:
    rows = tables.steps[key]
    taken = sorted(
        (one for one in rows.values() if is_adopted(one) and one.no < plan.size), key=lambda one: one.settled or 0
    )
    places: dict[str, list[int]] = defaultdict(list)
    for step in taken:
        name, reference = plan.steps[step.no].name, _reference(step)
        for edge in plan.steps[step.no].definition.depends_on:
            if not is_adopted(rows[plan.numbers[edge.step]]):
                yield f"adoption: {name} of run {key[1]} was adopted, and {edge.step}, which it depends on, was not"
        source = (key[0], reference.run)
        if source not in tables.runs:
            continue
        original = plans[tables.runs[source].definition_id]
        no = original.numbers[reference.step]
        row, hook = tables.steps[source][no], tables.steps[source].get(no + original.size)
        if row.state is not step.state:
            yield f"adoption: {name} of run {key[1]} is {step.state}, and was {row.state} in run {reference.run}"
        if step.state is StepState.SUCCEEDED and tables.output_of(source, no) != tables.output_of(key, step.no):
            yield f"adoption: {name} of run {key[1]} has another output than in run {reference.run}"
        if hook is not None and hook.fence:
            yield f"adoption: {name} of run {key[1]} was adopted, and run {reference.run} undid it"
        if reference.owned:
            for left, has_undo in _left_by_elements(original, tables.steps[source], no):
                is_told = not has_undo and reference.remains is not None
                if not is_told and ((known := plan.number(left)) is None or known not in rows):
                    yield f"adoption: run {key[1]} owns the undo of {name}, and lacks {left} of run {reference.run}"
        places[reference.run].append(row.settled or 0)
    for run_id, order in places.items():
        if order != sorted(order):
            yield f"adoption: run {key[1]} adopted steps of run {run_id} in another order than they were completed in"
    told = open_entry(tables.journal[key][1].body).causes[0].detail or {}
    if bool(taken) != bool(told.get("continues", {}).get("adopted")):
        yield f"adoption: the journal of run {key[1]} does not say what it adopted"


def _left_by_elements(plan: Plan, rows: Mapping[int, Step], owner: int) -> Iterator[tuple[str, bool]]:
    """The elements of an owner, calls and added steps included, that had an effect which was not undone.

    Each with whether it has an undo. Where it has none, it is enough that the owner tells that something remains.
    """
    segment = plan.steps[owner].segment
    for row in rows.values() if segment is not None else ():
        if segment is None or not segment.first <= row.no < segment.first + segment.width:
            continue
        definition, hook = plan.of(row).definition, rows.get(plan.undo_no(row.no))
        acts = definition.undo is not None or definition.effect is not Effect.READ
        if acts and row.state is StepState.SUCCEEDED and (hook is None or hook.state is not StepState.SUCCEEDED):
            yield plan.at(row.no).name, definition.undo is not None


def _owners(tables: Tables) -> Iterator[str]:
    owners = Counter(
        (row.source_run, row.source_step) for rows in tables.adoptions.values() for row in rows if row.owned
    )
    for (run_id, step), count in owners.items():
        if count > 1:
            yield f"adoption: {count} runs own the undo of {step} of run {run_id}"


def is_adopted(step: Step) -> bool:
    """Whether a step takes the result of an earlier run."""
    return step.note is not None and step.note.adopted is not None


def _reference(step: Step) -> Adopted:
    assert step.note is not None
    assert step.note.adopted is not None
    return step.note.adopted


def _source(key: RunKey, plan: Plan, step: Step) -> tuple[str, str]:
    return (_reference(step).run, _reference(step).step) if is_adopted(step) else (key[1], plan.steps[step.no].name)
