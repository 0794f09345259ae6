"""Waits of `wait:` steps and of handlers: which messages a wait accepts, and when it has enough of them.

A filter and `until` are expressions over messages and the input of the run. One that cannot be evaluated does not hold.
A message that a filter refuses stays in the inbox, and the journal names the step. `decide`, `progress`, `execution`
and `timers` call it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.decide.decision import Need
from stepkeep.kernel.decide.draft import Draft, Missing, json_text
from stepkeep.kernel.decide.failure import Settled
from stepkeep.kernel.definition import Wait
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.kinds import WaitStep
from stepkeep.kernel.machine.journal import payload_digest
from stepkeep.kernel.machine.outcomes import Waiting
from stepkeep.kernel.machine.rows import Message, Note, Step
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.machine.tables import StepTrigger

MAX_GATHERED = 100
"""How many messages one wait takes at most, and how many bytes. Others stay in the inbox."""
MAX_GATHERED_BYTES = 1024 * 1024


def accepts(draft: Draft, step: Step, message: Message) -> bool:
    """Whether this waiting step takes this message, which has the name that it waits for."""
    wait = _wait_of(draft, step)
    if wait is None:
        return True
    gathered = () if step.note is None else step.note.gathered
    if is_several(wait) and sum(map(len, gathered)) + len(message.payload) > MAX_GATHERED_BYTES:
        return False
    if len(gathered) >= MAX_GATHERED:
        return False
    return wait.accepts is msgspec.UNSET or _holds(draft, step, wait.accepts, (message.payload,), several=False)


def is_past_wait(step: Step, now: int) -> bool:
    """Whether time has ended this wait, also where no sweep has come yet."""
    return step.state is StepState.AWAITING_EVENT and step.due_at is not None and step.due_at <= now


def is_several(wait: Wait) -> bool:
    """Whether this wait takes several messages: its output is a list."""
    return wait.count is not msgspec.UNSET or wait.enough is not msgspec.UNSET


def asked_by(outcome: Waiting) -> Wait | None:
    """Which messages a handler asks for; None: any message of this name."""
    if outcome.accepts is None and outcome.count is None and outcome.enough is None:
        return None
    return Wait(
        event=outcome.event,
        accepts=msgspec.UNSET if outcome.accepts is None else outcome.accepts,
        count=msgspec.UNSET if outcome.count is None else outcome.count,
        enough=msgspec.UNSET if outcome.enough is None else outcome.enough,
    )


def misfit_of_wait(draft: Draft, wait: Wait | None) -> str | None:
    """Why a handler cannot wait like this; None if it can."""
    if wait is None:
        return None
    if wait.count is not msgspec.UNSET and not 1 <= wait.count <= MAX_GATHERED:
        return f"a wait takes 1 to {MAX_GATHERED} messages, not {wait.count}"
    if wait.count is not msgspec.UNSET and wait.enough is not msgspec.UNSET:
        return "a wait has either a count or an until"
    for text, several in ((wait.accepts, False), (wait.enough, True)):
        if text is not msgspec.UNSET:
            try:
                draft.plan.compiler.message_test(text, several)
            except ExpressionError as error:
                return f"its wait cannot be evaluated: {error}"
    return None


def take(draft: Draft, step: Step, message: Message) -> Settled | None:
    """A `wait:` step takes a message. With enough of them it has succeeded, and their payloads are its output."""
    note = step.note or Note()
    wait = draft.planned(step).kind.wait
    assert wait is not None
    if not is_several(wait):
        return _satisfied(draft, step, note, message.payload, message_record(message))
    gathered = (*note.gathered, message.payload.decode())
    if not _is_enough(draft, step, wait, gathered):
        _keep_gathering(draft, step, note, gathered)
        return None
    output = b"[" + b",".join(one.encode() for one in gathered) + b"]"
    record = json_text({"messages": len(gathered), "last": msgspec.Raw(message_record(message).encode())})
    return _satisfied(draft, step, replace(note, gathered=()), output, record)


def deliver(draft: Draft, step: Step, message: Message) -> None:
    """A waiting handler takes a message. With enough of them the step runs again and learns what it took."""
    note, record = step.note or Note(), message_record(message)
    if note.takes is not None and is_several(note.takes):
        gathered = (*note.gathered, message.payload.decode())
        if not _is_enough(draft, step, note.takes, gathered):
            _keep_gathering(draft, step, note, gathered)
            return
        record = json_text({"last": msgspec.Raw(record.encode()), "messages": _raw(gathered)})
    woken = replace(note, event=None, takes=None, gathered=(), woken_by=record)
    draft.make_ready(step, StepTrigger.MESSAGE_ARRIVED, note=woken)


def out_of_time(note: Note) -> Note:
    """The note of a handler whose wait reached its deadline: it learns what it took until then."""
    told: dict[str, Any] = {"event": note.event}
    if note.takes is not None and is_several(note.takes):
        told["messages"] = _raw(note.gathered)
    return replace(note, event=None, takes=None, gathered=(), woken_by=json_text({"timeout": told}))


def _raw(gathered: tuple[str, ...]) -> list[msgspec.Raw]:
    return [msgspec.Raw(one.encode()) for one in gathered]


def _keep_gathering(draft: Draft, step: Step, note: Note, gathered: tuple[str, ...]) -> None:
    draft.put(replace(step, note=replace(note, gathered=gathered)))
    draft.only_hot = False


def _is_enough(draft: Draft, step: Step, wait: Wait, gathered: tuple[str, ...]) -> bool:
    if wait.count is not msgspec.UNSET:
        return len(gathered) >= wait.count
    assert wait.enough is not msgspec.UNSET
    return _holds(draft, step, wait.enough, tuple(one.encode() for one in gathered), several=True)


def _wait_of(draft: Draft, step: Step) -> Wait | None:
    """What the step waits for beyond the name of an event: by its definition, or as its handler asked."""
    wait = draft.planned(step).kind.wait
    return wait if wait is not None or step.note is None else step.note.takes


def message_record(message: Message) -> str:
    """A message as notes keep it."""
    return json_text({"message": {"id": message.id, "name": message.name, "payload": msgspec.Raw(message.payload)}})


def _satisfied(draft: Draft, step: Step, note: Note, output: bytes, record: str) -> Settled:
    note = replace(note, output=output.decode(), record=record)
    draft.move(step, StepTrigger.WAIT_SATISFIED, digest=payload_digest(output), note=note)
    return Settled(step.no, StepState.SUCCEEDED)


def _holds(draft: Draft, step: Step, text: str, payloads: tuple[bytes, ...], *, several: bool) -> bool:
    planned = draft.planned(step)
    kind = planned.kind
    test = None if not isinstance(kind, WaitStep) else kind.enough if several else kind.accepts
    try:
        if test is None:
            test = draft.plan.compiler.message_test(text, several)
        if test.reads_input and draft.snapshot.input is None:
            raise Missing(Need(input=True))
        view = ConditionView(run_id=draft.run_id, input=draft.snapshot.input or b"null", outputs={}, states={})
        return test.holds(view, payloads)
    except ExpressionError:
        return False
