"""Interventions of people in a run besides decisions: request changes, escalate a gate, freeze a run, add a note.

Each is one event of the run; the kernel decides. It checks what was given and changes nothing itself. The engine calls
it.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Accepted
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.events import (
    Annotated,
    ChangesRequested,
    EscalationRequested,
    GateReassigned,
    PauseRequested,
)
from stepkeep.kernel.machine.states import RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer
from stepkeep.operations.people.cases import MOST_PEOPLE, people_asked, read_case
from stepkeep.operations.people.people import delegator, requested, step_number, submit
from stepkeep.operations.pipeline.transact import Transactor


class NoteKept(Answer, kw_only=True):
    """A note in the journal of a run, and how the run stands."""

    step: str | UnsetType = UNSET
    note: str
    by: str
    at: str
    state: RunState
    repeated: bool


async def request_changes(
    transactor: Transactor, run_id: str, step: str | None, comment: str, on_behalf_of: str | None, caller: Caller
) -> Accepted:
    """Ask for changes at the gate `step`, or at the only open one."""
    event = ChangesRequested(
        **requested(caller, run_id),
        comment=said("the comment", comment, "Say what is to change."),
        on_behalf_of=delegator(on_behalf_of),
        no=None if step is None else await step_number(transactor, caller.tenant, run_id, step),
    )
    return await submit(transactor, event)


async def escalate(
    transactor: Transactor, run_id: str, step: str | None, reason: str, on_behalf_of: str | None, caller: Caller
) -> Accepted:
    """Open the next level of the gate `step`, or of the only open one."""
    event = EscalationRequested(
        **requested(caller, run_id),
        reason=said("the reason", reason, "Say why the next level is asked."),
        on_behalf_of=delegator(on_behalf_of),
        no=None if step is None else await step_number(transactor, caller.tenant, run_id, step),
    )
    return await submit(transactor, event)


async def reassign(
    transactor: Transactor, run_id: str, step: str, to: object, fail: bool, reason: str, caller: Caller
) -> Accepted:
    """Name other approvers for a gate that nobody may decide, or fail it."""
    names = tuple(dict.fromkeys(validate.names("the approvers", to)))
    if bool(names) is bool(fail):
        raise InvalidInput("a gate that nobody may decide is given other approvers (`to`), or fails (`fail`): say one.")
    if len(names) > MOST_PEOPLE:
        raise InvalidInput(f"at most {MOST_PEOPLE} approvers are named at once.")
    event = GateReassigned(
        **requested(caller, run_id),
        no=await step_number(transactor, caller.tenant, run_id, step),
        reason=said("the reason", reason, "Say why nobody else may decide it."),
        to=names,
    )
    record = await transactor.store.read_run(caller.tenant, run_id)
    if record is not None:
        case = await read_case(transactor, record, await transactor.store.now())
        row = case.steps.get(event.no)
        event = event if row is None else replace(event, asked=await people_asked(transactor.store, case, row))
    return await submit(transactor, event)


async def annotate(transactor: Transactor, run_id: str, note: str, step: str | None, caller: Caller) -> Accepted:
    """Keep a note in the journal of a run."""
    event = Annotated(
        **requested(caller, run_id),
        note=said("the note", note, "Say what is to be kept."),
        no=None if step is None else await step_number(transactor, caller.tenant, run_id, step),
    )
    return await submit(transactor, event)


async def freeze(transactor: Transactor, run_id: str, reason: str, caller: Caller) -> Accepted:
    """Pause a run under the name of a freeze; `resume` ends it."""
    event = PauseRequested(**requested(caller, run_id), reason=said("the reason", reason, "Say why."), freeze=True)
    return await submit(transactor, event)


def said(what: str, value: object, advice: str) -> str:
    """A text that stays on record and must say something."""
    text = validate.words(what, value)
    if not text.strip():
        raise InvalidInput(f"{what} is empty; it stays on record. {advice}")
    return text
