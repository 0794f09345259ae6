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
            if plan.is_undo(step.no) and step.state is StepState.SUCCEEDED:
                undone[_source(key, plan, rows[plan.main_no(step.no)])] += 1
        yield from _of_run(tables, plans, key, plan)
    for (run_id, step_name), times in undone.items():
        if times > 1:
            yield f"adoption: step {step_name} of run {run_id} was undone by {times} runs"
    yield from _owners(tables)


def _of_run(tables: Tables, plans: Mapping[int, Plan], key: RunKey, plan: Plan) -> Iterator[str]:
    rows = tables.steps[key]
    told = (open_entry(tables.journal[key][1].body).causes[0].detail or {}).get("continues", {})
    is_rollback = told.get("as") == "rollback"
    main = (row for row in rows.values() if row.no < plan.size or not (is_rollback or plan.is_undo(row.no)))
    taken = sorted((row for row in main if is_adopted(row)), key=lambda row: row.settled or 0)
    places: dict[str, list[int]] = defaultdict(list)
    for step in taken:
        name, reference = plan.at(step.no).name, _reference(step)
        for edge in plan.at(step.no).definition.depends_on:
            if step.no < plan.size and not is_adopted(rows[plan.numbers[edge.step]]):
                yield f"adoption: {name} of run {key[1]} was adopted, and {edge.step}, which it depends on, was not"
        source = (key[0], reference.run)
        if source not in tables.runs:
            continue
        original = plans[tables.runs[source].definition_id]
        no = original.number(reference.step)
        assert no is not None
        row, hook = tables.steps[source][no], tables.steps[source].get(original.undo_no(no))
        if row.state is not step.state:
            yield f"adoption: {name} of run {key[1]} is {step.state}, and was {row.state} in run {reference.run}"
        # A rollback takes no failures: no flow is given them again.
        if row.category is not step.category and not is_rollback:
            said = f"has the failure {step.category}, and had {row.category} in run {reference.run}"
            yield f"adoption: {name} of run {key[1]} {said}"
        if step.state is StepState.SUCCEEDED and tables.output_of(source, no) != tables.output_of(key, step.no):
            yield f"adoption: {name} of run {key[1]} has another output than in run {reference.run}"
        if hook is not None and hook.fence:
            yield f"adoption: {name} of run {key[1]} was adopted, and run {reference.run} undid it"
        if reference.owned and step.no < plan.size:
            for left, has_undo in _left_by_elements(original, tables.steps[source], no):
                is_told = not has_undo and reference.remains is not None
                if not is_told and ((known := plan.number(left)) is None or known not in rows):
                    yield f"adoption: run {key[1]} owns the undo of {name}, and lacks {left} of run {reference.run}"
        places[reference.run].append(row.settled or 0)
    for run_id, order in places.items():
        if order != sorted(order):
            yield f"adoption: run {key[1]} adopted steps of run {run_id} in another order than they were completed in"
    if not is_rollback and len(taken) != len(told.get("adopted", ())):
        yield f"adoption: the journal of run {key[1]} does not say what it adopted"
    if told and told["as"] not in ("rollback", "migrate"):
        yield from _wrong_calls(tables, plans, key, plan, (key[0], told["run"]))


def _wrong_calls(tables: Tables, plans: Mapping[int, Plan], key: RunKey, plan: Plan, earlier: RunKey) -> Iterator[str]:
    """What is wrong with the calls of flows that a run took from the earlier one, and with the keys of the others."""
    if earlier not in tables.runs:
        return
    before, rows, its = plans[tables.runs[earlier].definition_id], tables.steps[key], tables.steps[earlier]
    for segment in before.segments:
        if not before.steps[segment.owner].kind.is_flow:
            continue
        calls = [its[no] for no in sorted(its) if 0 <= no - segment.first < segment.width]
        numbers = {call.no: plan.number(before.at(call.no).name) for call in calls}
        missing = False
        for call in sorted((call for call in calls if call.settled is not None), key=lambda call: call.settled or 0):
            taken = rows.get(numbers[call.no] or -1)
            missing |= taken is None or not is_adopted(taken)
            if missing and taken is not None and is_adopted(taken):
                yield f"adoption: run {key[1]} took {before.at(call.no).name} beyond a call of run {earlier[1]}"
        for call in calls:
            again = rows.get(numbers[call.no] or -1)
            if again is not None and not is_adopted(again):
                yield from _wrong_key(tables, before, again, call, is_retry=_is_retry(tables, key))


def _wrong_key(tables: Tables, before: Plan, again: Step, call: Step, *, is_retry: bool) -> Iterator[str]:
    """What is wrong with the idempotency key of a call that was made again."""
    new, old = again.note and again.note.call, call.note and call.note.call
    assert new
    assert old
    name = before.at(call.no).name
    hook = tables.steps[call.tenant, call.run_id].get(before.undo_no(call.no))
    if (kept := new.key) is not None and hook is not None and hook.fence:
        yield f"adoption: {name} of run {again.run_id} keeps the key of run {kept}, and its undo was begun"
    is_same = is_retry and (new.kind, new.name, new.digest) == (old.kind, old.name, old.digest) and call.fence > 0
    if is_same and not (hook and hook.fence) and kept is None and not is_adopted(call):
        yield f"adoption: {name} of run {again.run_id} is the call of run {call.run_id} again, under another key"


def _is_retry(tables: Tables, key: RunKey) -> bool:
    told = (open_entry(tables.journal[key][1].body).causes[0].detail or {}).get("continues", {})
    return bool(told.get("as") == "retry")


def _left_by_elements(plan: Plan, rows: Mapping[int, Step], owner: int) -> Iterator[tuple[str, bool]]:
    """The elements of an owner, calls and added steps included, that had an effect which was not undone.

    Each with whether it has an undo. Where it has none, it is enough that the owner tells that something remains.
    """
    segment = plan.steps[owner].segment
    for row in rows.values() if segment is not None else ():
        if segment is None or not segment.first <= row.no < segment.first + segment.width:
            continue
        if is_adopted(row) and not _reference(row).owned:
            continue  # another run answers for it
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
    return (_reference(step).run, _reference(step).step) if is_adopted(step) else (key[1], plan.at(step.no).name)
