"""Other versions of a drawn definition, and what must be true of runs that were migrated to them.

The checks read the rows of both runs alone, and share no code with the kernel's refusals. `run_seed` publishes the
versions, `verdict` checks when a simulation has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random

from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, Dependency, Effect, StepDefinition
from stepkeep.kernel.machine.journal import open_entry
from stepkeep.kernel.machine.states import AttemptState, RunState, StepState
from stepkeep.kernel.plan import Plan
from stepkeep.store.change import RunKey
from stepkeep_lab.simulation.adopted import is_adopted
from stepkeep_lab.simulation.tables import Tables

VERSIONS = (2, 3)
ADDED = "zz"
SAME = ("executor", "inputs", "approval", "wait", "hold", "rules", "completion", "effect", "undo", "condition")
"""The fields of a finished step that a migration must leave as they are."""


def other_versions(definition: Definition, random: Random) -> Iterator[Definition]:
    """Version 2 treats steps otherwise and adds one at the end; version 3 changes what a step means, or lacks one."""
    steps = definition.steps
    worked = [step for step in steps if step.executor is not None and not step.growth]
    if not worked or definition.dialect != "native":
        return
    again = [replace(step, retry=replace(step.retry, max_attempts=step.retry.max_attempts + 1)) for step in steps]
    last = max(step.order for step in steps) + 1
    before = (Dependency(step=steps[-1].name),)
    added = StepDefinition(name=ADDED, order=last, executor=worked[0].executor, depends_on=before)
    yield replace(definition, version=2, steps=(*again, added))
    needed = {edge.step for step in steps for edge in step.depends_on}
    loose = [step.name for step in steps if step.name not in needed]
    if len(steps) > 1 and loose and random.random() < 0.5:
        gone = random.choice(loose)
        kept = tuple(step for step in steps if step.name != gone)
    else:
        other = random.choice(worked).name
        effect = {Effect.READ: Effect.IRREVERSIBLE}
        kept = tuple(
            replace(step, effect=effect.get(step.effect, Effect.READ), undo=None) if step.name == other else step
            for step in steps
        )
    yield replace(definition, version=3, steps=kept)


def wrong_migrations(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Everything that is wrong with the migrated runs, and with those that go on in their place."""
    for key in tables.runs:
        told = (open_entry(tables.journal[key][1].body).causes[0].detail or {}).get("continues") or {}
        if told.get("as") == "migrate" and (key[0], told["run"]) in tables.runs:
            for said in _wrong(tables, plans, (key[0], told["run"]), key):
                yield f"migration: run {key[1]} in the place of {told['run']}: {said}"


def _wrong(tables: Tables, plans: Mapping[int, Plan], old_key: RunKey, key: RunKey) -> Iterator[str]:
    run, old, new = (
        tables.runs[old_key],
        plans[tables.runs[old_key].definition_id],
        plans[tables.runs[key].definition_id],
    )
    if run.state is not RunState.CANCELLED:
        yield f"the earlier run is {run.state}"
    if any(message.consumed_by is None for message in tables.messages[old_key].values()):
        yield "messages of the earlier run were lost"
    rows, went_on = tables.steps[old_key], tables.steps[key]
    attempts = tables.attempts[old_key].values()
    for planned in old.steps:
        row, no = rows[planned.no], new.numbers.get(planned.name)
        name, mine = planned.name, None if no is None else went_on[no]
        if any(one.no == row.no and one.state is AttemptState.CANCELLED for one in attempts):
            yield f"{name} was in flight"
        if row.state is StepState.FAILED:
            yield f"{name} had failed, and that was forgotten"
        if row.state in (StepState.SUCCEEDED, StepState.SKIPPED):
            may_reopen = planned.definition.approval is not None and mine is not None
            if mine is None or no is None or not (is_adopted(mine) or may_reopen):
                yield f"{name} was {row.state}, and was not taken over"
                continue
            then = new.steps[no].definition
            for field in SAME:
                if getattr(planned.definition, field) != getattr(then, field):
                    yield f"{name} was {row.state}, and its {field} differs"
            has_undo = planned.definition.undo is not None and row.state is StepState.SUCCEEDED
            taken = None if mine.note is None else mine.note.adopted
            if has_undo and not is_adopted(row) and taken is not None and not taken.owned:
                yield f"nothing undoes {name} any more"
        elif row.fence and planned.definition.effect is not Effect.READ and mine is not None and mine.fence:
            yield f"{name} had begun, and began again"
