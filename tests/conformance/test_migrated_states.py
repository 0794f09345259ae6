"""Every state that a small run can be in, under every kind of other version: migrated with all promises kept, or
refused with a reason.

The walk is breadth first over all actions of workers, people and time. The promises are read from the rows of both
runs, and the judge reads the log of the new run. Planted errors of the mapping show that the checks can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from tests.conformance.tellings import CANONICAL, found_in, log_in
from tests.kernel.driver import World, gate, wait, work
from tests.suites import in_proof

from stepkeep.kernel.composition import migration
from stepkeep.kernel.composition.adoption import Choice, ContinuationRequest, choose, reference_to
from stepkeep.kernel.composition.continuation import Continuation, ContinuationKind
from stepkeep.kernel.decide import progress
from stepkeep.kernel.definition import SECOND, Effect, Handler, Retry, StepDefinition
from stepkeep.kernel.machine.events import HoldChoice
from stepkeep.kernel.machine.outcomes import Completed, Failed
from stepkeep.kernel.machine.rows import Note, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, Category, StepState
from stepkeep.kernel.people import gates

TIMEOUT = 10_000 * SECOND
TWICE = Retry(max_attempts=2, max_losses=2, initial=60 * SECOND)
SAME = ("executor", "inputs", "approval", "wait", "hold", "rules", "completion", "effect", "undo", "condition")
LONGEST = 30
"""How many actions a walk has at most. It ends before: no path of that length reaches another state."""

A = work("a", undo=True, effect=Effect.WRITE, retry=TWICE)
B = work("b", "a", effect=Effect.READ, retry=TWICE)
G = gate("g", deadline=500 * SECOND)
W = wait("w", "paid", deadline=700 * SECOND)
OLD = (A, B, G, W)
VERSIONS: dict[str, tuple[StepDefinition, ...]] = {
    "unchanged": OLD,
    "a setting": (replace(A, retry=Retry(max_attempts=5), timeout=9 * SECOND), B, G, W),
    "a step more": (*OLD, work("c", "b")),
    "a step less": (A, B, G),
    "another meaning": (replace(A, executor=Handler(name="other")), B, G, W),
    "another deadline": (A, B, gate("g", deadline=900 * SECOND), W),
}

Action = Callable[[World], object]


def actions(world: World) -> Iterator[tuple[str, Action]]:
    """Everything that can happen to a run in this state."""
    if world.run.state in RUN_TERMINAL:
        return
    for name in ("a", "b"):
        row = world.row(name)
        if row.worker is not None:
            yield f"complete {name}", lambda w, n=name: w.report(n, Completed(output=b"1"))
            yield f"fail {name}", lambda w, n=name: w.report(n, Failed(category=Category.TRANSIENT, error="no"))
        elif row.ready_at is not None and row.ready_at <= world.now:
            yield f"claim {name}", lambda w, n=name: w.claim(n)
            yield f"skip {name}", lambda w, n=name: w.decide_hold(n, HoldChoice.SKIP, reason="stuck")
        elif row.state is StepState.RETRYING:
            yield f"retry {name}", lambda w, n=name: w.later(61 * SECOND, n)
    if world.state("g") is StepState.AWAITING_APPROVAL:
        yield "approve", lambda w: w.approve("g")
    if not world.messages:
        yield "tell", lambda w: w.tell("paid")
        yield "tell something else", lambda w: w.tell("other")
    if world.run.state == "paused":
        yield "resume", lambda w: w.resume()
    elif world.run.state in ("queued", "running", "blocked"):
        yield "pause", lambda w: w.pause()
        yield "cancel", lambda w: w.cancel(compensate=True)


def key_of(world: World) -> object:
    """What tells two states apart for a migration."""
    rows = [(row.no, row.state, row.fence, row.worker, row.ready_at is not None) for row in world.rows.values()]
    return world.run.state, world.run.inbox, tuple(sorted(rows)), bool(world.messages)


def walk() -> Iterator[World]:
    """One run for each state that can be reached."""
    seen, front = set(), [()]  # type: ignore[var-annotated]
    while front:
        path = front.pop(0)
        world = World(*OLD, timeout=TIMEOUT, watched=False)
        for label in path:
            dict(actions(world))[label](world)
        if key_of(world) in seen:
            continue
        seen.add(key_of(world))
        yield world
        assert len(path) < LONGEST, "the walk does not end"
        front += [(*path, label) for label, _ in actions(world)]


def going_on(old: World, new: World, choices: list[Choice]) -> Continuation:
    """What the run in the place of the old one takes over."""
    rows = sorted((old.row(one.name) for one in choices if one.adopted), key=lambda row: row.settled or 0)
    notes = {}
    for place, row in enumerate(rows):
        name, output = old.plan.steps[row.no].name, old.output_of(row.no)
        reference = reference_to("old", name, row, place, True)
        note = row.note or Note()
        notes[new.plan.numbers[name]] = Note(
            output=None if output is None else output.decode(), record=note.record, adopted=reference
        )
    return Continuation(
        how=ContinuationKind.MIGRATE,
        run_id="old",
        notes=notes,
        began_at=old.run.started_at,
        deadlines=migration.deadlines(old.plan, old.rows, new.plan),
    )


def migrate(old: World, steps: tuple[StepDefinition, ...]) -> tuple[list[str], World | None]:
    """The reasons against a migration; without one, the run that goes on."""
    new = World(*steps, timeout=TIMEOUT, watched=False, start=False)
    choices = choose(old.plan, old.rows, new.plan, ContinuationRequest(how=ContinuationKind.MIGRATE, actor="zoe"))
    reasons = list(migration.refusals(old.run, old.plan, old.rows, new.plan, choices))
    if reasons:
        return reasons, None
    later = old.now + SECOND
    return [], World(*steps, timeout=TIMEOUT, watched=False, now=later, continuation=going_on(old, new, choices))


def broken(old: World, new: World) -> Iterator[str]:
    """Every promise that the migration has broken."""
    if old.run.inbox:
        yield "messages are lost"
    if new.run.state not in RUN_TERMINAL and new.run.due_at != old.run.due_at:
        yield "the timeout begins anew"
    for planned in old.plan.steps:
        row, no = old.rows[planned.no], new.plan.numbers.get(planned.name)
        yield from _broken(planned.name, old, row, new, None if no is None else new.rows[no])


def _broken(name: str, old: World, row: Step, new: World, mine: Step | None) -> Iterator[str]:
    if row.worker is not None:
        yield f"{name} is in flight"
    if row.state in STEP_TERMINAL:
        if mine is None or mine.state is not row.state:
            yield f"{name} had {row.state}, and that is forgotten"
            return
        was, now = old.plan.at(row.no).definition, new.plan.at(mine.no).definition
        yield from (f"{name} means another {field}" for field in SAME if getattr(was, field) != getattr(now, field))
    elif row.fence and old.plan.at(row.no).definition.effect is not Effect.READ:
        yield f"{name} began, and begins again"
    elif mine is not None and mine.state is row.state and row.due_at is not None:
        was, now = old.plan.at(row.no).definition, new.plan.at(mine.no).definition
        if (was.wait, was.approval) == (now.wait, now.approval) and mine.due_at != row.due_at:
            yield f"the deadline of {name} begins anew"


def finish(world: World) -> None:
    """Drive a run to its end."""
    for _ in range(20):
        if world.over:
            return
        for name in world.ready():
            world.finish(name)
        if "g" in world.plan.numbers and world.state("g") is StepState.AWAITING_APPROVAL:
            world.approve("g")
        if "w" in world.plan.numbers and world.state("w") is StepState.AWAITING_EVENT:
            world.tell("paid", id="last")
    raise AssertionError(f"the run does not end: {world.states()}")


@pytest.mark.parametrize("judged", [pytest.param(10, id="some logs"), in_proof(1, name="all logs")])
def test_every_state_is_migrated_with_all_promises_kept_or_refused_with_a_reason(judged: int) -> None:
    outcomes: Counter[tuple[str, bool]] = Counter()
    states = 0
    for old in walk():
        states += 1
        for name, steps in VERSIONS.items():
            reasons, new = migrate(old, steps)
            outcomes[name, new is not None] += 1
            if new is None:
                assert all(reasons), (old.states(), name)
                continue
            assert list(broken(old, new)) == [], (old.states(), name)
            if sum(outcomes.values()) % judged == 0:
                finish(new)
                assert found_in(CANONICAL, log_in(CANONICAL, new)) == (), (old.states(), name)
    assert states > 400
    assert {name for name, allowed in outcomes if allowed} == set(VERSIONS), "each version takes some runs"
    assert {name for name, allowed in outcomes if not allowed} == set(VERSIONS), "and refuses others"
    assert outcomes["another meaning", True] < outcomes["unchanged", True]
    assert outcomes["a step less", True] < outcomes["unchanged", True]


PLANTED: dict[str, tuple[object, str, Callable[..., object]]] = {
    "the meaning of finished steps is not compared": (migration, "obstacles", lambda *_: ()),
    "what is in flight is not looked at": (migration, "_in_flight", lambda *_: None),
    "what may have had its effect runs again": (migration, "_repeated", lambda *_: ()),
    "deadlines begin anew": (progress, "kept_deadline", lambda draft, step, otherwise: otherwise),
    "gates begin anew": (gates, "kept_deadline", lambda draft, step, otherwise: otherwise),
    "no deadline is handed over": (migration, "deadlines", lambda *_: {}),
}


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_of_the_mapping_is_found(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, wrong = PLANTED[error]
    monkeypatch.setattr(module, name, wrong)
    found = []
    for old in walk():
        for steps in VERSIONS.values():
            _, new = migrate(old, steps)
            found += [] if new is None else list(broken(old, new))
        if found:
            return
    raise AssertionError("nothing was found")
