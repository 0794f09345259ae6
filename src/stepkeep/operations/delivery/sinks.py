"""Adds, lists and removes the sinks of a tenant. What is done to a sink stays on record, with its actor.

It checks patterns, sources and options, and reads no secret. Engines, the command line and workers (for functions with
`@on`) call it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from stepkeep.definition.arguments import items
from stepkeep.edges.safe_text import plain_text
from stepkeep.kernel.errors import Conflict, InvalidInput, NotFound
from stepkeep.kernel.people.authority import Caller
from stepkeep.operations import validate
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.instants import instant
from stepkeep.operations.pipeline.transact import Transactor
from stepkeep.sinks.event import EventSource, check_patterns, prefix_of
from stepkeep.sinks.registry import kind_of
from stepkeep.store.deliveries import HOOK, RUN_WEBHOOK, Action, Takes
from stepkeep.store.rows import SinkRow

MAX_NAME = 100
MAX_OPTIONS = 64 * 1024
MOST_SINKS = 200

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")
_BITS = {
    EventSource.EMITTED: Takes.EMITTED,
    EventSource.DIALECT: Takes.DIALECT,
    EventSource.TRANSITIONS: Takes.TRANSITIONS,
    EventSource.ENDINGS: Takes.ENDINGS,
    EventSource.WORKERS: Takes.WORKERS,
}


class SinkView(Answer, kw_only=True):
    """A sink."""

    name: str
    kind: str
    on: list[str]
    events: list[str]
    options: dict[str, Any]
    created_at: str
    created_by: str


class SinkSummary(SinkView, kw_only=True):
    """A sink with the runs that wait for it."""

    waiting: Annotated[int, says("Runs with events that are not delivered.")]
    dead: Annotated[int, says("Runs whose next event is dead.")]


class SinkList(Answer, kw_only=True):
    """Sinks by name."""

    sinks: list[SinkSummary]
    next: str | UnsetType | None = UNSET


class RemovedSink(Answer, kw_only=True):
    """A sink that was removed."""

    removed: str
    discarded_runs: int


class TestedSink(Answer, kw_only=True):
    """What became of the event that was sent."""

    sink: str
    delivered: bool
    error: str | None


async def add_sink(
    transactor: Transactor,
    name: object,
    kind: str,
    *,
    on: Iterable[object],
    options: Mapping[str, Any],
    events: Iterable[object] = (EventSource.EMITTED,),
    replace: bool = False,
    caller: Caller,
) -> SinkView:
    """Add a sink, or replace the one of this name: its cursors stay, so that a secret is rotated without a gap."""
    plain = sink_name(name)
    found = kind_of(validate.key("the kind of a sink", kind))
    read = found.read(options)
    kept = msgspec.json.encode(read, order="sorted")
    if len(kept) > MAX_OPTIONS:
        raise InvalidInput(f"the options of a sink have at most {MAX_OPTIONS} bytes as JSON, and not {len(kept)}.")
    patterns = check_patterns(items("`on`", on))
    there = {one.name: one for one in await transactor.store.deliveries.list_sinks(caller.tenant)}
    known = there.get(plain)
    if known is None and len(there) >= MOST_SINKS:
        raise InvalidInput(f"a tenant has at most {MOST_SINKS} sinks.")
    row = SinkRow(
        tenant=caller.tenant,
        name=plain,
        kind=found.name,
        takes=int(takes_of(events)),
        prefix=prefix_of(patterns),
        patterns=patterns,
        options=kept,
        created_at=await transactor.store.now(),
        created_by=caller.actor,
    )
    what = "sink_added" if known is None else "sink_replaced"
    action = _action(caller, what, plain, "")
    if not await transactor.store.deliveries.save_sink(row, action, replace=replace):
        raise Conflict(f"there is a sink {plain} already. Replace it: stepkeep sinks add {plain} --replace …")
    return _shown(row)


async def remove_sink(
    transactor: Transactor, name: object, *, discard: bool, reason: str, caller: Caller
) -> RemovedSink:
    """Remove a sink. With undelivered events it is refused unless `discard`, which needs a reason."""
    plain, said = sink_name(name), validate.words("the reason", reason)
    if discard and not said.strip():
        raise InvalidInput("discarding events that were not delivered needs a reason: --reason TEXT")
    action = _action(caller, "sink_removed", plain, said)
    left = await transactor.store.deliveries.remove_sink(action, discard=discard)
    if left is None:
        raise NotFound(f"there is no sink {plain}. `stepkeep sinks list` shows them.")
    if left and not discard:
        raise Conflict(
            f"the events of {left} runs are not delivered to {plain} yet. Wait for them (stepkeep outbox status), or "
            f"lose them: stepkeep sinks remove {plain} --discard --reason TEXT"
        )
    return RemovedSink(removed=plain, discarded_runs=left)


async def list_sinks(transactor: Transactor, *, tenant: str) -> SinkList:
    """All sinks, with how far they are behind."""
    store = transactor.store.deliveries
    lags = {one.sink: one for one in await store.count_cursors(tenant)}
    rows = []
    for sink in await store.list_sinks(tenant):
        lag = lags.get(sink.name)
        rows.append(_shown(sink).extended(SinkSummary, waiting=lag.waiting if lag else 0, dead=lag.dead if lag else 0))
    return SinkList(sinks=rows)


def sink_name(name: object) -> str:
    """The name of a sink: letters, digits and . _ : -"""
    plain = validate.key("the name of a sink", name, MAX_NAME)
    if not _NAME.fullmatch(plain) or plain == RUN_WEBHOOK or plain.startswith(HOOK):
        raise InvalidInput(
            f"the name of a sink has letters, digits and . _ : -, begins with a letter or digit, and is not "
            f"{RUN_WEBHOOK} or {HOOK}…: {plain!a}"
        )
    return plain


def takes_of(events: Iterable[object]) -> Takes:
    """What a sink takes, from the names of sources."""
    names = [plain_text(one) for one in items("`events`", events)]
    if not names or any(one is None or one not in set(EventSource) for one in names):
        raise InvalidInput(f"the events of a sink are one or several of {', '.join(EventSource)}.")
    found = Takes(0)
    for one in names:
        found |= _BITS[EventSource(str(one))]
    return found


def sources_of(takes: int) -> list[str]:
    """The names of the sources that a number has the bits of."""
    return [str(source) for source, bit in _BITS.items() if takes & bit]


def _shown(row: SinkRow) -> SinkView:
    return SinkView(
        name=row.name,
        kind=row.kind,
        on=list(row.patterns),
        events=sources_of(row.takes),
        options=msgspec.json.decode(row.options),
        created_at=instant(row.created_at),
        created_by=row.created_by,
    )


def _action(caller: Caller, what: str, sink: str, reason: str) -> Action:
    return Action(
        tenant=caller.tenant,
        at=0,
        actor=caller.actor,
        action=what,
        sink=sink,
        run_id=None,
        seq=None,
        number=None,
        reason=reason,
    )
