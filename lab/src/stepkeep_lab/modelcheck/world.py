"""A run as a state of the model checker: the kernel's own rows, with everything normalised that no decision depends on.

Times become "due" or "not due", fences are renumbered from the oldest in a row, and the journal has no head. The result
is finite and is packed into a few bytes without loss: two states are equal only if their rows are equal. Of workers, a
state only records which leases belong to a live one. A late worker can only report, and `actions.probes` tries that in
every state, for every step that was ever claimed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.kernel.decide.create import create_run
from stepkeep.kernel.decide.decision import Decision, Involved, Snapshot
from stepkeep.kernel.decide.draft import HELD_BACK
from stepkeep.kernel.decide.resources import AWAITS_RESOURCES, awaits_resources
from stepkeep.kernel.decide.stopping import IN_DOUBT, NOT_RUN, leaves_effect
from stepkeep.kernel.definition import CompensateWhen, Effect
from stepkeep.kernel.machine.rows import Checkpoint, Consumed, Message, Note, Opening, Origin, Run, Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, STEP_TERMINAL, Phase, StepState
from stepkeep.kernel.people.authority import Caller, OnlyVouched
from stepkeep.kernel.plan import Plan

NOW = 1_000_000_000
LATER = NOW + 1_000_000_000
"""The end of every timer of a step that has not run out."""
DUE = LATER + 1
"""When a timer of a step is let run out, this is the time."""
FAR = LATER + 1_000_000_000
"""The end of the timer of a run, and the time when it is let run out: those of steps come before it."""
RAN_OUT = NOW - 1
"""The end of a lease that has run out and that no sweep has found yet."""
SEQ = 50
ONCE = "once"
"""The name of the only checkpoint that a handler records."""
TOKEN = "sha-256 of a token"  # noqa: S105 - nobody's
NEW_TOKEN = "sha-256 of the token in its place"  # noqa: S105 - nobody's
WORKER = 1
"""All workers go by one number, as restarts of one do: nothing but the fence tells a holder from a zombie."""

OLDEST = 2
"""Where fences are counted from, so that there is always an older one for a zombie to come with."""

_AT = re.compile(r'"at":\d+')


class State(NamedTuple):
    """One state of the model: rows by step number, kept messages by name, the steps whose worker still lives, and those
    that have recorded their checkpoint, each with whether the claim that holds it did."""

    run: Run
    rows: dict[int, Step]
    inbox: tuple[str, ...] = ()
    alive: tuple[int, ...] = ()
    recorded: tuple[tuple[int, bool], ...] = ()

    @property
    def ended(self) -> bool:
        return self.run.state in RUN_TERMINAL

    def snapshot(self, plan: Plan) -> Snapshot:
        """Everything there is to know, as a store would load it."""
        return Snapshot(
            plan=plan,
            run=self.run,
            steps=self.rows,
            whole=True,
            waiting=True,
            recorded={(no, ONCE): self.rows[no].fence - (not mine) for no, mine in self.recorded},
            inbox=tuple(_message(place, name) for place, name in enumerate(self.inbox)),
            outputs=dict.fromkeys((*range(plan.size), *_elements(plan))),
            input=b"null",
            authorities=OnlyVouched(),
            involved=Involved(frozenset({"ann"})),
            origin=Origin("ann"),
            costs=(None,) * sum(row.attempts for row in self.rows.values()),
        )


def _message(place: int, name: str) -> Message:
    return Message(
        tenant="t", run_id="r", id=f"kept{place}", number=place, name=name, payload=b"{}", sender="", arrived_at=NOW
    )


def _elements(plan: Plan) -> list[int]:
    """The numbers of all elements that a run may have, and of their undo steps."""
    return [no for segment in plan.segments for no in range(segment.first, segment.end)]


class Codec:
    """Packs states: equal rows get equal numbers, and a state is the bytes of its numbers."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        last = (plan.check.no,) if plan.check else ()
        self.places = (*range(plan.size), *sorted(plan.undos), *last, *_elements(plan))
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}
        self._things: list[Any] = []
        self._format = struct.Struct(f"<{len(self.places) + 4}H")
        self._number(None)

    def pack(self, state: State) -> bytes:
        number, rows = self._number, state.rows
        return self._format.pack(
            number(state.run),
            number(state.inbox),
            number(state.alive),
            number(state.recorded),
            *[number(rows.get(no)) for no in self.places],
        )

    def unpack(self, packed: bytes) -> State:
        run, inbox, alive, recorded, *rows = (self._things[number] for number in self._format.unpack(packed))
        return State(run, {row.no: row for row in rows if row is not None}, inbox, alive, recorded)

    def _number(self, thing: Any) -> int:
        # Most rows are those that were unpacked, and need not be compared by value again. They are kept, so that no
        # other thing can have come to live where one of them does.
        found = self._known.get(id(thing))
        if found is None:
            found = self._numbers.get(thing)
        if found is None:
            found = self._numbers[thing] = self._known[id(thing)] = len(self._things)
            self._things.append(thing)
        return found


def born(plan: Plan, *, start: bool) -> State:
    """A run that was just created."""
    decision = create_run(
        plan,
        run_id="r",
        priority=0,
        business_key=None,
        given=b"null",
        caller=Caller("t", "ann"),
        now=NOW,
        start=start,
        awaits_slot=plan.definition.slots is not UNSET,
    )
    blank = State(Run(tenant="t", id="r", definition_id=plan.definition_id), {})
    return after(plan, blank, decision)


def after(plan: Plan, state: State, decision: Decision) -> State:
    """The state that this decision leads to."""
    changed = {row.no: row for row in (*decision.changed, *decision.added)}
    kept = _kept(state, decision) if state.inbox or decision.rows.of(Message) else ()
    rows = _spelled(plan, {**state.rows, **changed}, changed)
    holding = {*state.alive, *(row.no for row in decision.claimed)}
    alive = tuple(sorted(no for no in holding if rows[no].worker is not None))
    return State(_canonical_run(decision.run), rows, kept, alive, _recorded(state, decision, rows))


def _recorded(state: State, decision: Decision, rows: Mapping[int, Step]) -> tuple[tuple[int, bool], ...]:
    """The checkpoints afterwards. A claim of before is over once another one, or none, holds its step."""
    known = dict(state.recorded)
    claimed = {step.no for step in decision.claimed}
    stays = {no: mine and no not in claimed and rows[no].worker is not None for no, mine in known.items()}
    return tuple(sorted({**stays, **{one.no: True for one in decision.rows.of(Checkpoint)}}.items()))


def _kept(state: State, decision: Decision) -> tuple[str, ...]:
    """The names of the messages that lie in the inbox afterwards."""
    inbox = [*(_message(place, name) for place, name in enumerate(state.inbox)), *decision.rows.of(Message)]
    gone = {message.id for message in decision.rows.of(Consumed)}
    return tuple(one.name for one in inbox if one.id not in gone and one.consumed_by is None)


def _spelled(plan: Plan, rows: dict[int, Step], changed: Container[int]) -> dict[int, Step]:
    """The one spelling of the rows: fences counted from the oldest known, places of completion from the first.

    Where a step completed among the others matters only if it can be undone.
    """
    places = sorted(row.settled for row in rows.values() if row.settled and plan.undo_for(row) is not None)
    ranks = {value: rank for rank, value in enumerate(places, 1)}
    spelled = dict(rows)
    for no, row in rows.items():
        place = None if row.settled is None else ranks.get(row.settled, 0)
        if no in changed:
            counts_first = _counts_first_claim(plan, row)
            error = IN_DOUBT if _is_unknown(plan, row) else None
            if counts_first and row.fence == 1 and (row.error or "").startswith(NOT_RUN):
                error = NOT_RUN
            spelled[no] = _canonical_step(row, _fences(row, counts_first), place, error)
        elif place != row.settled:
            spelled[no] = replace(row, settled=place)
    return spelled


def crashed(state: State, no: int) -> State:
    """The worker that holds this step is gone, and no sweep has found it yet."""
    return state._replace(alive=tuple(one for one in state.alive if one != no))


def run_out(state: State, no: int) -> State:
    """A lease ends, and no sweep has come by yet. Its worker is a zombie from now on."""
    late = replace(state.rows[no], due_at=RAN_OUT)
    return crashed(state, no)._replace(rows={**state.rows, no: late})


def holds(row: Step, fence: int) -> bool:
    """Whether a worker with this fence really holds the step, with time left."""
    return row.worker is not None and row.fence == fence and row.due_at != RAN_OUT


def _counts_first_claim(plan: Plan, row: Step) -> bool:
    """Whether it matters that a step was claimed once only: then its handler may never have run."""
    if plan.of(row).phase is not Phase.MAIN or not plan.of(row).has_pre:
        return False
    return plan.of(row).definition.compensate_when is CompensateWhen.ATTEMPTED


def _fences(row: Step, counts_first: bool) -> dict[int, int]:
    if counts_first and row.fence == 1:
        return {0: 0, 1: 1}
    checked = None if row.note is None else row.note.checked
    known = {row.fence} - {0} | ({checked} if checked is not None else set())
    return {0: 0} | {fence: place for place, fence in enumerate(sorted(known), OLDEST)}


def _is_unknown(plan: Plan, row: Step) -> bool:
    """Whether the last error of a step decides how a rollback ends; no other error decides anything."""
    if plan.of(row).phase is not Phase.MAIN or row.state is StepState.SUCCEEDED or not leaves_effect(row.error):
        return False
    definition = plan.of(row).definition
    is_undone = definition.compensate_when is CompensateWhen.ATTEMPTED and definition.undo is not None
    return not is_undone and (definition.undo is not None or definition.effect is not Effect.READ)


def _canonical_ready(ready_at: int | None) -> int | None:
    if ready_at is None or ready_at == HELD_BACK:
        return ready_at
    return AWAITS_RESOURCES + NOW if awaits_resources(ready_at) else NOW


def _canonical_step(row: Step, fences: dict[int, int], place: int | None, error: str | None) -> Step:
    due_at = row.due_at if row.due_at is None or row.due_at == RAN_OUT else LATER
    ended = row.state in STEP_TERMINAL
    return replace(
        row,
        ready_at=_canonical_ready(row.ready_at),
        due_at=due_at,
        fence=fences[row.fence],
        claimed_at=None if row.claimed_at is None else NOW,
        settled=place,
        attempts=0 if ended else row.attempts - (0 if row.note is None else row.note.spent),
        losses=0 if ended else row.losses,
        category=None,
        error=error,
        note=None if row.note is None else _canonical_note(row.note, fences),
    )


def _canonical_note(note: Note, fences: dict[int, int]) -> Note:
    record = note.record
    if record is not None:
        record = '{"message":{}}' if record.startswith('{"message"') else _AT.sub('"at":1', record)
    return replace(
        note,
        woken_by=None if note.woken_by is None else "{}",
        output=None if note.output is None else "{}",
        record=record,
        checked=None if note.checked is None else fences[note.checked],
        spent=0,
        began_at=None if note.began_at is None else NOW,
        opening=None if note.opening is None else _canonical_opening(note.opening),
        activation=None if note.activation is None else SEQ,
        violations=(),
    )


def _canonical_opening(opening: Opening) -> Opening:
    return replace(
        opening,
        activation=SEQ,
        at=NOW,
        deadline=None if opening.deadline is None else LATER,
        ballots=tuple(replace(ballot, at=NOW) for ballot in opening.ballots),
        changes=None,
    )


def _canonical_run(run: Run) -> Run:
    return replace(
        run,
        seq=SEQ,
        head=b"",
        error=None if run.error is None else "error",
        due_at=None if run.due_at is None else FAR,
        started_at=None if run.started_at is None else NOW,
        ended_at=None if run.ended_at is None else NOW,
        moved_at=NOW,
    )
