"""The events that dialects name, made while the journals of runs grow: each entry is read and folded once.

A fold keeps what later entries need: the state of the projection and of the dialect's teller, and the events that are
not delivered yet. It is a cache: without it, or where its cursor was set back, the journal is folded from its start.
The relay keeps `Folds`; `outgoing` asks it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.dialects.dialect import CaseTeller, DomainEvent, LogLine, Silent
from stepkeep.dialects.registry import dialect as dialect_named
from stepkeep.dialects.registry import names as dialect_names
from stepkeep.kernel.machine.journal import SealedEntry
from stepkeep.kernel.plan import Plan
from stepkeep.operations.delivery.declared_hooks import Selection
from stepkeep.operations.delivery.run_events import event_of
from stepkeep.operations.logs.log import RunLog, lines_of
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.operations.runs.projected import canonical_of
from stepkeep.operations.runs.views import read_snapshot
from stepkeep.sinks.event import EventSource, OutgoingEvent, matches
from stepkeep.store.deliveries import WHOLE, Takes
from stepkeep.store.records import RunRecord
from stepkeep.store.rows import Delivery

FIRST_OF_DIALECT = 100_000
"""The number of the first event of a dialect in its journal entry."""
OF_RANK = 1000
"""How many numbers each rank of events has in one entry."""
JOURNAL_PAGE = 200
MOST_FOLDS = 500
"""How many cursors a relay remembers. One that was forgotten costs one reading of its journal."""

Place = tuple[int, int]

_encode = msgspec.json.Encoder().encode


class Made(msgspec.Struct, frozen=True):
    """An event of a dialect with its place; one that is `late` has one place for all that it makes."""

    place: Place
    at: int
    event: DomainEvent


class Fold:
    """The journal of one run up to `seq`, folded, and the events after `floor`."""

    def __init__(self, record: RunRecord, plan: Plan, floor: Place) -> None:
        name, details = plan.definition.dialect, record.details
        self.seq, self.floor = 0, floor
        self.made: deque[Made] = deque()
        self._teller: CaseTeller = Silent()
        self._is_silent = name not in dialect_names()
        if self._is_silent:
            return
        self._canonical, self._shown = RunLog(record, plan), RunLog(record, plan, name)
        self._canonical.opening()
        self._shown.opening()
        about = {"id": details.run_id, "workflow": details.workflow, "version": details.version}
        about |= {"correlation_id": details.correlation_id, "created_by": details.created_by}
        definition = msgspec.to_builtins(plan.definition)
        self._teller = dialect_named(name).words.teller({"run": about, "definition": definition})

    def feed(self, entry: SealedEntry) -> None:
        """Go on with the next journal entry."""
        self.seq = entry.seq
        if self._is_silent:
            return
        told = self._teller.entry(self._canonical.lines(entry), self._shown.lines(entry))
        counted: dict[int, int] = {}
        for event in sorted(told, key=lambda one: one.rank):
            number = counted[event.rank] = counted.get(event.rank, -1) + 1
            place = (event.seq, FIRST_OF_DIALECT + OF_RANK * event.rank + number)
            if place > self.floor or (event.late is not None and event.seq >= self.floor[0]):
                self.made.append(Made(place, entry.at, event))

    def forget(self, after: Place) -> None:
        """Forget the events up to this place, which are delivered."""
        self.floor = max(self.floor, after)
        while self.made and self._is_over(self.made[0]):
            self.made.popleft()

    def _is_over(self, one: Made) -> bool:
        if one.event.late is not None and one.place[0] == self.floor[0]:
            return self.floor[1] == WHOLE  # it may make several events, of which some are delivered
        return one.place <= self.floor


class Folds:
    """The folds of a relay, by cursor; the one that was not used for longest is forgotten."""

    def __init__(self, most: int = MOST_FOLDS) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[str, str, str], Fold] = OrderedDict()

    async def events(
        self, transactor: Transactor, cursor: Delivery, record: RunRecord, plan: Plan, which: Selection, limit: int
    ) -> tuple[list[OutgoingEvent], Place]:
        """The next events of a cursor, and up to where it may go with them."""
        key, after = (cursor.tenant, cursor.run_id, cursor.sink), (cursor.sent, cursor.sent_number)
        fold = self._kept.pop(key, None)
        if fold is None or fold.floor > after:
            fold = Fold(record, plan, after)
        fold.forget(after)
        while len(fold.made) <= limit and fold.seq < record.run.seq:
            entries = await transactor.store.read_journal(cursor.tenant, cursor.run_id, fold.seq, JOURNAL_PAGE)
            for entry in entries:
                fold.feed(entry)
            if not entries:
                break
        upto = (max(cursor.last, fold.seq), WHOLE)
        if len(fold.made) > limit:
            # Whole entries only; the first one may be longer than the page.
            upto = (max(fold.made[0].place[0], fold.made[limit].place[0] - 1), WHOLE)
        taken = [one for one in fold.made if one.place[0] <= upto[0]]
        self._keep(key, fold)
        found = [event async for event in _made(transactor, record, plan, which, taken)]
        return [event for event in found if after < (event.seq, event.number) <= upto], upto

    def _keep(self, key: tuple[str, str, str], fold: Fold) -> None:
        self._kept[key] = fold
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


async def _made(
    transactor: Transactor, record: RunRecord, plan: Plan, which: Selection, made: list[Made]
) -> AsyncIterator[OutgoingEvent]:
    """The events to send. The whole run is read if a wanted one is late, once."""
    whole: tuple[Mapping[str, Any], Sequence[LogLine]] | None = None
    for one in made:
        data = [one.event.data]
        if one.event.late is not None:
            if not matches(which.patterns, one.event.type):
                continue
            whole = whole or await _whole(transactor, record, plan)
            data = one.event.late(*whole)
        for event in _outgoing(record, one, data):
            yield event


def _outgoing(record: RunRecord, one: Made, data: list[Mapping[str, Any]]) -> Iterator[OutgoingEvent]:
    seq, first = one.place
    for number, said in enumerate(data, start=first):
        about = (one.event.type, EventSource.DIALECT, one.at, _encode(said), one.event.extensions)
        yield event_of(record.details, seq, number, *about)


async def _whole(transactor: Transactor, record: RunRecord, plan: Plan) -> tuple[Mapping[str, Any], Sequence[LogLine]]:
    run, name = record.run, plan.definition.dialect
    whole = await read_snapshot(transactor, run.id, tenant=run.tenant, with_messages=True)
    return await canonical_of(transactor, whole, plan), lines_of(whole, plan, name)[1:-1]


async def dialect_events(transactor: Transactor, record: RunRecord, plan: Plan) -> list[OutgoingEvent]:
    """All events that the dialect of a run names, so far."""
    run = record.run
    start = Delivery(
        tenant=run.tenant, run_id=run.id, sink="", takes=int(Takes.DIALECT), last=run.seq, sent=0, sent_number=WHOLE
    )
    found, _ = await Folds().events(transactor, start, record, plan, Selection(), limit=1_000_000)
    return found
