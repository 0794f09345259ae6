"""What expressions of a decision read: the view of one step's expression, and requests for what it lacks.

It evaluates nothing. `progress.py` and `elements.py` call it before they evaluate a condition, a length, facts or the
list of a map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepkeep.kernel.compiler import ConditionView, Evaluated
from stepkeep.kernel.decide.decision import Need
from stepkeep.kernel.decide.draft import Draft, Missing


def require_read(draft: Draft, numbers: list[int]) -> None:
    """Request everything that conditions, lengths, facts and lists of these steps read, if they are about to open.

    One request for all: each single request would restart the decision and evaluate earlier conditions again.
    """
    turns = [no for no in numbers if draft.plan.at(no).evaluated]
    found = [one for no in turns if draft.step(no).unmet == 1 for one in draft.plan.at(no).evaluated]
    if not found:
        return
    names = {name for one in found for name in one.reads}
    read = sorted(draft.plan.numbers[name] for name in names)
    draft.require(read)
    _require_payloads(draft, read, reads_input=any(one.reads_input for one in found))


def _require_payloads(draft: Draft, numbers: Iterable[int], *, reads_input: bool) -> None:
    snapshot = draft.snapshot
    unread = frozenset(no for no in numbers if no not in snapshot.outputs)
    if unread or (reads_input and snapshot.input is None):
        raise Missing(Need(outputs=unread, input=reads_input))


def view_of(draft: Draft, one: Evaluated, *, index: int | None = None, last: bytes | None = None) -> ConditionView:
    """The view of this expression; `index` and `last` are those of an element."""
    snapshot = draft.snapshot
    numbers = {name: draft.plan.numbers[name] for name in sorted(one.reads)}
    draft.require(numbers.values())
    _require_payloads(draft, numbers.values(), reads_input=one.reads_input)
    return ConditionView(
        run_id=draft.run_id,
        input=snapshot.input or b"null",
        outputs={name: _output(draft, no) for name, no in numbers.items()},
        states={name: draft.step(no).state for name, no in numbers.items()},
        decoded=draft.decoded,
        index=index,
        last=last,
    )


def _output(draft: Draft, no: int) -> bytes | None:
    """A step's output, also if it was accepted earlier in this decision."""
    note = draft.step(no).note
    if note is not None and note.output is not None:
        return note.output.encode()
    found = _accepted(draft, no)
    return draft.snapshot.outputs[no] if found is None else found


def _accepted(draft: Draft, no: int) -> bytes | None:
    return next((one.output for one in reversed(draft.attempts) if one.no == no and one.output is not None), None)


def outputs_of(draft: Draft, numbers: Sequence[int]) -> list[bytes | None]:
    """The outputs of these steps, which workers or child runs brought; those of this decision need not be read."""
    new = {one.no: one.output for one in draft.attempts if one.output is not None}
    changed = ((no, draft.steps[no].note) for no in numbers if no in draft.steps)
    new |= {no: note.output.encode() for no, note in changed if note is not None and note.output is not None}
    known = draft.snapshot.outputs
    if unread := frozenset(no for no in numbers if no not in new and no not in known):
        raise Missing(Need(outputs=unread))
    return [new[no] if no in new else known[no] for no in numbers]
