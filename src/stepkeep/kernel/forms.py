"""Decisions with blanks: what `decide` says of a plain step in a toy run, its names, numbers and times left out."""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.decide import decide
from stepkeep.kernel.decision import Claimer, Decision, Snapshot
from stepkeep.kernel.definition import Definition, Dependency, Handler, StepDefinition
from stepkeep.kernel.draft import HOP_BITS
from stepkeep.kernel.events import Event, StepClaimed, StepReported
from stepkeep.kernel.journal import RUN_ENTITY, open_entry
from stepkeep.kernel.outcomes import Completed
from stepkeep.kernel.plan import Condition, build_plan
from stepkeep.kernel.rows import Run, Step
from stepkeep.kernel.states import STEP_MOVING, RunState, StepState

_encode = msgspec.json.Encoder().encode


class Form(msgspec.Struct, frozen=True):
    """A decision with blanks: what its entry says, what it adds to the run's counters, and which states follow.

    `state` is that of the step which it hands to a worker or makes ready; `place` that of the last hop of the step
    which is done.
    """

    text: bytes
    open: int
    moving: int
    leased: int
    run_state: RunState
    state: StepState
    place: int


BLANK = 7_000_000_000_000
"""Numbers of the toy that stand for any number have as many digits as this one; no others do."""

NAME = "?"


def _no_condition(text: str, definition: Definition) -> Condition:
    raise AssertionError(f"nothing in {definition.name} depends on {text}")


_toy = build_plan(
    Definition(
        name="toy",
        version=1,
        steps=(
            StepDefinition(name="a", order=0, executor=Handler(name="a")),
            StepDefinition(name="b", order=1, executor=Handler(name="b"), depends_on=(Dependency(step="a"),)),
        ),
    ),
    definition_id=0,
    digest="",
    queues=(1, 1, 0, 0, 0),
    compile_condition=_no_condition,
)
_born = Step(NAME, NAME, 0, 1)
_ready = replace(_born, state=StepState.READY, ready_at=0, fence=BLANK, attempts=BLANK)
_held = replace(_born, state=StepState.RUNNING, due_at=BLANK, fence=BLANK, worker=1, claimed_at=0, attempts=BLANK)
_follower = replace(_born, no=1, unmet=1)
_worker = Claimer(actor=NAME, worker=1, lease=1, room=1, queues=frozenset({1}))


def _form(event: Event, *steps: Step, state: RunState = RunState.RUNNING, claimer: Claimer | None = None) -> Form:
    """What `decide` says of this event in a run of these steps."""
    moving = len([step for step in steps if step.state in STEP_MOVING])
    leased = len([step for step in steps if step.worker is not None])
    run = Run(NAME, NAME, 0, state, seq=BLANK, open=len(steps), moving=moving, leased=leased)
    snapshot = Snapshot(plan=_toy, run=run, steps={step.no: step for step in steps}, whole=True)
    made = decide(snapshot, (event,), BLANK, claimer)
    assert isinstance(made, Decision)
    assert made.entry is not None
    entry = open_entry(made.entry.body)
    numbered = [replace(hop, no=_blank(hop.no), of=_blank(hop.of)) for hop in entry.hops]
    text = _encode(replace(entry, hops=tuple(numbered)))
    first, last = made.changed[0], made.changed[-1]
    return Form(
        text=re.sub(rb"\b7\d{12}\b", b"%d", text.replace(b'"?"', b"%b")),
        open=made.run.open - run.open,
        moving=made.run.moving - run.moving,
        leased=made.run.leased - run.leased,
        run_state=made.run.state,
        state=last.state,
        place=(first.settled or 0) & ((1 << HOP_BITS) - 1),
    )


def _blank(no: int | None) -> int | None:
    return no if no is None or no == RUN_ENTITY else BLANK + no


_claims = StepClaimed(tenant=NAME, run_id=NAME, actor=NAME, no=0, worker=1, lease=1)
_reports = StepReported(tenant=NAME, run_id=NAME, actor=NAME, no=0, fence=BLANK, worker=1, outcome=Completed())

CLAIMS = {state: _form(_claims, _ready, state=state) for state in (RunState.QUEUED, RunState.RUNNING)}
OPENS = _form(_reports, _held, _follower)
HANDS_OVER = _form(_reports, _held, _follower, claimer=_worker)
LEAVES = _form(replace(_reports, no=1), replace(_held, no=1), _held)
"""Nothing follows, or nothing yet: others of the run go on."""
ENDS = _form(replace(_reports, no=1), replace(_held, no=1))
