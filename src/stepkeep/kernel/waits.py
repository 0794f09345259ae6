"""Waits of `wait:` steps: which messages a wait accepts, and when it has enough of them.

A filter and `until` are expressions over messages and the input of the run. One that cannot be evaluated does not hold.
A message that a filter refuses stays in the inbox, and the journal names the step. `decide` and `progress` call it.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stepkeep.errors import ExpressionError
from stepkeep.kernel.decision import Need
from stepkeep.kernel.definition import Wait
from stepkeep.kernel.draft import Draft, Missing, json_text
from stepkeep.kernel.failure import Settled
from stepkeep.kernel.journal import payload_digest
from stepkeep.kernel.plan import ConditionView, MessageTest
from stepkeep.kernel.rows import Message, Note, Step
from stepkeep.kernel.states import StepState
from stepkeep.kernel.tables import StepTrigger

MAX_GATHERED = 100
"""How many messages one wait takes at most, and how many bytes. Others stay in the inbox."""
MAX_GATHERED_BYTES = 1024 * 1024


def accepts(draft: Draft, step: Step, message: Message) -> bool:
    """Whether this waiting step takes this message, which has the name that it waits for."""
    planned = draft.planned(step)
    wait = planned.definition.wait
    if wait is None:
        return True
    gathered = () if step.note is None else step.note.gathered
    if is_several(wait) and sum(map(len, gathered)) + len(message.payload) > MAX_GATHERED_BYTES:
        return False
    if len(gathered) >= MAX_GATHERED:
        return False
    return planned.accepts is None or _holds(draft, planned.accepts, (message.payload,))


def is_several(wait: Wait) -> bool:
    """Whether this wait takes several messages: its output is a list."""
    return wait.count is not msgspec.UNSET or wait.enough is not msgspec.UNSET


def take(draft: Draft, step: Step, message: Message) -> Settled | None:
    """A `wait:` step takes a message. With enough of them it has succeeded, and their payloads are its output."""
    planned, note = draft.planned(step), step.note or Note()
    wait = planned.definition.wait
    assert wait is not None
    if not is_several(wait):
        return _satisfied(draft, step, note, message.payload, message_record(message))
    gathered = (*note.gathered, message.payload.decode())
    payloads = tuple(one.encode() for one in gathered)
    if wait.count is not msgspec.UNSET:
        enough = len(gathered) >= wait.count
    else:
        enough = planned.enough is not None and _holds(draft, planned.enough, payloads)
    if enough:
        output = b"[" + b",".join(payloads) + b"]"
        record = json_text({"messages": len(gathered), "last": msgspec.Raw(message_record(message).encode())})
        return _satisfied(draft, step, replace(note, gathered=()), output, record)
    draft.put(replace(step, note=replace(note, gathered=gathered)))
    draft.only_hot = False
    return None


def message_record(message: Message) -> str:
    """A message as notes keep it."""
    return json_text({"message": {"id": message.id, "name": message.name, "payload": msgspec.Raw(message.payload)}})


def _satisfied(draft: Draft, step: Step, note: Note, output: bytes, record: str) -> Settled:
    note = replace(note, output=output.decode(), record=record)
    draft.move(step, StepTrigger.WAIT_SATISFIED, digest=payload_digest(output), note=note)
    return Settled(step.no, StepState.SUCCEEDED)


def _holds(draft: Draft, test: MessageTest, payloads: tuple[bytes, ...]) -> bool:
    if test.reads_input and draft.snapshot.input is None:
        raise Missing(Need(input=True))
    view = ConditionView(run_id=draft.run_id, input=draft.snapshot.input or b"null", outputs={}, states={})
    try:
        return test.holds(view, payloads)
    except ExpressionError:
        return False
