"""Child runs of a step: their ids, how a step asks for one, and how it calls one back.

A child is a run with its own record. The decisions of its parent only write what is to be done, and
`operations/children/children.py` does it. What the end of a child means is in `children.py`.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from stepkeep.kernel.decide.draft import Draft, json_text
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.rows import Child, ChildMode, ChildState, ChildTodo, Note, Recall, Step
from stepkeep.kernel.machine.states import OnFailure, Phase, StepState
from stepkeep.kernel.machine.tables import StepTrigger

VERSION = "8"
"""The version of the UUID of a child; runs that are started have another, and so have successors of flows."""

CONTINUE = "continue"
"""The kind of the call by which a flow continues as new. Its run is no child: nothing waits for it or bounds it."""


def child_run_id(at: int, tenant: str, run_id: str, no: int, activation: int, version: int = int(VERSION)) -> str:
    """The id of a child: a UUID of version 8, in the order of time, from its parent, step and activation.

    >>> child_run_id(0, "t", "r", 1, 2)
    '00000000-0000-8457-9821-06c0f485f987'
    """
    drawn = hashlib.sha256(f"{tenant}\x00{run_id}\x00{no}\x00{activation}".encode()).digest()
    raw = bytearray((at // 1000).to_bytes(6, "big") + drawn[:10])
    raw[6] = version << 4 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_child(run_id: str) -> bool:
    """Whether a run has the id of a child.

    >>> is_child(child_run_id(0, "t", "r", 1, 2)), is_child("0198c0de-0000-7000-8000-000000000000")
    (True, False)
    """
    return run_id[14:15] == VERSION


def open_child(draft: Draft, step: Step, of: int | None) -> bool:
    """Ask for the child of a step, which then waits for it. Returns whether it has succeeded: the child is detached."""
    child = draft.planned(step).kind.child
    assert child is not None
    is_detached = child.detached is True
    continues = step.note is not None and step.note.call is not None and step.note.call.kind == CONTINUE
    version = 7 if continues else int(VERSION)
    asked = Child(
        tenant=step.tenant,
        run_id=step.run_id,
        no=step.no,
        activation=draft.seq,
        child_id=child_run_id(draft.now, step.tenant, step.run_id, step.no, draft.seq, version),
        workflow=child.workflow,
        version=child.version,
        mode=ChildMode.DETACHED if is_detached else ChildMode.AWAITED,
        state=ChildState.REQUESTED,
        requested_at=draft.now,
        todo=ChildTodo.START,
        todo_at=draft.now,
    )
    if not continues:
        draft.rows.add(asked)
    note = replace(step.note or Note(), activation=draft.seq, child=asked.child_id)
    due_at = None if is_detached or child.deadline is None else draft.now + child.deadline
    waiting = draft.move(step, StepTrigger.CHILDREN_STARTED, of=of, due_at=due_at, note=note)
    if not is_detached:
        return False
    output = json_text({"run_id": asked.child_id})
    told = draft.move(waiting, StepTrigger.CHILDREN_SUCCEEDED, note=replace(note, output=output))
    draft.move(told, StepTrigger.RULES_PASSED, digest=payload_digest(output.encode()))
    return True


def ask_for_successor(draft: Draft) -> None:
    """The run has succeeded: ask for the run as which its flow continues, if it does.

    In the decision that ends the run, so that a run which is cancelled or fails before has no successor.
    """
    for segment in draft.plan.segments:
        if not draft.plan.steps[segment.owner].kind.is_flow:
            continue
        draft.require((segment.owner,))
        owner = draft.step(segment.owner)
        grown = None if owner.note is None else owner.note.grown
        if grown is None or not grown.continues or owner.state is not StepState.SUCCEEDED:
            continue
        no = segment.element(grown.count - 1)
        draft.require((no,))
        call = draft.step(no)
        assert call.note is not None
        if call.state is not StepState.SUCCEEDED or call.note.child is None or call.note.activation is None:
            continue
        definition = draft.plan.definition
        draft.rows.add(
            Child(
                tenant=call.tenant,
                run_id=call.run_id,
                no=no,
                activation=call.note.activation,
                child_id=call.note.child,
                workflow=definition.name,
                version=definition.version,
                mode=ChildMode.DETACHED,
                state=ChildState.REQUESTED,
                requested_at=draft.now,
                todo=ChildTodo.START,
                todo_at=draft.now,
            )
        )


def begin_hook(draft: Draft, hook: Step, of: int | None = None) -> None:
    """Begin an undo step: a worker may claim it, or the child that it undoes is rolled back in a run of its own.

    That run is a child of the undo step. It takes the finished steps of the first child by reference and undoes them;
    the first child has ended, and stays as it is.
    """
    if not draft.planned(hook).kind.undoes_child:
        draft.make_ready(hook, StepTrigger.DEPENDENCIES_MET, of=of)
        return
    child = draft.planned(hook).kind.child
    assert child is not None
    asked = Child(
        tenant=hook.tenant,
        run_id=hook.run_id,
        no=hook.no,
        activation=draft.seq,
        child_id=child_run_id(draft.now, hook.tenant, hook.run_id, hook.no, draft.seq),
        workflow=child.workflow,
        version=child.version,
        mode=ChildMode.AWAITED,
        state=ChildState.REQUESTED,
        requested_at=draft.now,
        todo=ChildTodo.START,
        todo_at=draft.now,
        undoes=None if hook.note is None else hook.note.undoes,
    )
    draft.rows.add(asked)
    note = replace(hook.note or Note(), activation=draft.seq, child=asked.child_id)
    draft.move(hook, StepTrigger.CHILDREN_STARTED, of=of, note=note)


def awaits_child(draft: Draft, step: Step) -> bool:
    """Whether the step waits for a child run. The owner of elements does not: each of them waits for its own."""
    return step.state is StepState.AWAITING_CHILDREN and draft.planned(step).kind.child is not None


def recall(draft: Draft, step: Step) -> None:
    """Call the child of a step back: it never starts, or it is cancelled; undone, if its parent is to be undone."""
    note = step.note
    if not awaits_child(draft, step) or note is None or note.activation is None or note.child is None:
        return
    planned, plan = draft.planned(step), draft.plan
    on_failure = planned.on_failure if planned.owner is None else plan.steps[planned.owner].on_failure
    undoes = OnFailure.COMPENSATE in (draft.policy, on_failure) or plan.definition.compensate_always
    draft.rows.add(
        Recall(
            tenant=step.tenant,
            run_id=step.run_id,
            no=step.no,
            activation=note.activation,
            recall="undo" if undoes else "cancel",
            recalled_at=draft.now,
            child_id=note.child,
        )
    )


def has_children_out(draft: Draft) -> bool:
    """Whether a step of the run, or an element, still waits for a child run."""
    numbers = draft.plan.children
    if draft.plan.has_child_elements:
        waiting = draft.waiting_steps(StepState.AWAITING_CHILDREN)
        return any(awaits_child(draft, step) for step in waiting if draft.planned(step).phase is Phase.MAIN)
    if not numbers:
        return False
    draft.require(numbers)
    return any(draft.step(no).state is StepState.AWAITING_CHILDREN for no in numbers)
