"""Handlers that add steps, in the simulator: which steps have `then`, what their handler returns, what must be true.

The list is drawn from an argument of the step. `run_seed` draws with it, `handlers` registers the handler, `verdict`
calls its check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.native.added import output_of
from stepkeep.kernel.definition import SECOND, Definition, Handler, StepDefinition, Then
from stepkeep.kernel.machine.rows import Called, Step
from stepkeep.kernel.machine.states import STEP_TERMINAL, OnFailure, StepState
from stepkeep.kernel.plan import Plan, template_of
from stepkeep_lab.invariants.rows import was_skipped_by_person
from stepkeep_lab.simulation.definitions import HANDLERS, PATIENT
from stepkeep_lab.simulation.tables import Tables

PLANNER = "planner"
MOST_ADDED = 9

decode = msgspec.json.decode


def with_then(drawn: Definition, random: Random, share: float) -> Definition:
    """The definition with some of its steps replaced by steps that add others."""
    if drawn.dialect != "native":
        return drawn
    steps = [_planner(step, random) if not step.growth and random.random() < share else step for step in drawn.steps]
    return replace(drawn, steps=tuple(steps))


def _planner(step: StepDefinition, random: Random) -> StepDefinition:
    return StepDefinition(
        name=step.name,
        order=step.order,
        depends_on=step.depends_on,
        on_failure=step.on_failure,
        condition=step.condition,
        executor=Handler(name=PLANNER),
        growth=Then(max=MOST_ADDED, deadline=random.choice((None, None, None, 30 * SECOND))),
        inputs={"drawn": random.randrange(1000)},
        retry=PATIENT,
        timeout=30 * SECOND,
    )


def steps_of(drawn: int) -> list[dict[str, Any]]:
    """A few steps, some of which wait for others, are undone, may be skipped, or add further steps."""
    random = Random(drawn)  # noqa: S311 - chance that must come out the same again
    names = [f"{drawn}-{place}" for place in range(random.randint(0, 4))]
    return [_step(random, names[:place], name, place) for place, name in enumerate(names)]


def _step(random: Random, before: list[str], name: str, place: int) -> dict[str, Any]:
    step: dict[str, Any] = {"name": name, "timeout": f"{random.choice((3, 8, 30))}s", "depends_on": []}
    if place == 1 and random.random() < 0.2:
        return {"name": name, "sleep": "2s", "depends_on": []}
    if random.random() < 0.2:
        step |= {"uses": PLANNER, "with": {"drawn": random.randrange(1000, 2000)}}
    else:
        step |= {"uses": random.choice(HANDLERS), "with": {"note": place}}
    for other in before:
        if random.random() < 0.5:
            step["depends_on"].append({"step": other, "allow": ["skipped"]} if random.random() < 0.5 else other)
            if random.random() < 0.5 and "note" in step["with"]:
                step["with"]["of"] = output_of(other)
    if random.random() < 0.6:
        step["retry"] = {"max_attempts": 5, "initial": "500ms", "max": "1s"}
    if random.random() < 0.5:
        step["undo"] = "undo"
    if random.random() < 0.4:
        step["on_failure"] = "skip"
    return step


def wrong_added(tables: Tables, plans: Mapping[int, Plan]) -> Iterator[str]:
    """Everything that is wrong with the steps that handlers added, after everything has ended."""
    for key, rows in tables.steps.items():
        plan = plans[tables.runs[key].definition_id]
        for segment in plan.segments:
            owner = rows[segment.owner]
            if isinstance(plan.steps[segment.owner].kind.growth, Then):
                added = [row for no, row in sorted(rows.items()) if 0 <= no - segment.first < segment.width]
                if owner.note is not None and owner.note.adopted is not None:
                    continue
                for said in _wrong(tables, owner, segment.first, added):
                    yield f"then: {plan.at(owner.no).name} of run {key[1]} {said}"


def _wrong(tables: Tables, owner: Step, first: int, added: list[Step]) -> Iterator[str]:
    key = (owner.tenant, owner.run_id)
    if [row.no for row in added] != list(range(first, first + len(added))):
        yield f"has steps with the numbers {[row.no for row in added]}"
    names = [_call(row).name for row in added]
    if len(set(names)) != len(names):
        yield f"has added a step twice: {names}"
    for row in added:
        yield from _wrong_order(row, added)
    output = tables.output_of(key, owner.no)
    if owner.state is not StepState.SUCCEEDED or not added or output is None:
        return
    ends = {row.no: row.state for row in added}
    if any(state not in (StepState.SUCCEEDED, StepState.SKIPPED) for state in ends.values()):
        yield f"has succeeded, and its steps ended {ends}"
    for row in added:
        is_borne = template_of(_call(row).step).on_failure is OnFailure.SKIP or row.category is None
        if row.state is not StepState.SUCCEEDED and not is_borne and not was_skipped_by_person(row):
            yield f"has succeeded, and {row.no} failed: {row.error}"
    told = decode(output)["steps"]
    expected = {_call(row).name: _result(row, tables.output_of(key, row.no)) for row in added}
    if told != expected:
        yield f"was told {told}, and its steps came to {expected}"


def _wrong_order(row: Step, added: list[Step]) -> Iterator[str]:
    for edge in _call(row).followers:
        follower = added[edge.place]
        if follower.fence and (row.state not in edge.allow or row.state not in STEP_TERMINAL):
            yield f"has run {follower.no}, and {row.no} before it ended {row.state}"
        if follower.fence and (follower.settled or 0) < (row.settled or 0):
            yield f"has run {follower.no} before {row.no} ended"


def _result(row: Step, output: bytes | None) -> Any:
    return decode(output) if row.state is StepState.SUCCEEDED and output is not None else None


def _call(row: Step) -> Called:
    assert row.note is not None
    assert row.note.call is not None
    return row.note.call
