"""Turns journal entries into log lines with canonical names, without losing anything.

It has two steps, so that a projection fits in between: `unfold` splits an entry into its hops and notes, `Scribe`
writes them. Pure: it reads no store and checks nothing. `operations/logs/log.py` calls it; `conformance/` reads the
result without knowing this file. `docs/journal.md` describes the format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from stepkeep.dialects.dialect import LogLine
from stepkeep.edges.safe_text import inert_json
from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.journal import RUN_ENTITY, Cause, Entry, Hop, SealedEntry, open_entry
from stepkeep.kernel.machine.states import RunState, StepState
from stepkeep.kernel.machine.tables import StepTrigger, WorkerTrigger
from stepkeep.kernel.plan import Plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FORMAT = "stepkeep-log/2"
"""The version of the log format. Logs without a definition are of version 1 and have no such line."""

OPENING = "journal_definition"
"""The event type of the first line of a run's log."""

WORKER_TROUBLE = frozenset({WorkerTrigger.HEARTBEATS_MISSED, WorkerTrigger.GIVEN_UP, WorkerTrigger.START_FAILED})

_encode = msgspec.json.Encoder().encode
encode_line = _encode
"""A line as compact JSON without its newline; the same line always gives the same bytes."""


def written_line(line: Mapping[str, Any]) -> bytes:
    """A line as it stands in a file, which people look at on terminals. JSON's own escapes leave the values as they
    are, and the chain is made over values."""
    return inert_json(_encode(line).decode()).encode() + b"\n"


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One line's worth of an entry: a hop, or a cause without a hop (`hop` is None)."""

    entry: Entry
    hop: Hop | None
    by: int
    introduces: bool
    place: int
    places: int
    seal: bytes | None

    @property
    def cause(self) -> Cause:
        return self.entry.causes[self.by]


def unfold(sealed: SealedEntry) -> list[Move]:
    """The lines of an entry in order; the first of each cause introduces it, the last carries the entry's hash."""
    try:
        entry = open_entry(sealed.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as damage:
        raise InvariantBroken(f"entry {sealed.seq} in the journal of {sealed.run_id} is unreadable: {damage}") from None
    if _encode(entry) != sealed.body:
        raise InvariantBroken(f"entry {sealed.seq} in the journal of {sealed.run_id} says more than an entry can say")
    ordered = list(_in_order(entry))
    if any(not 0 <= by < len(entry.causes) for by, _ in ordered):
        raise InvariantBroken(f"entry {sealed.seq} in the journal of {sealed.run_id} has a hop without a cause")
    before = [-1, *(by for by, _ in ordered)]
    return [
        Move(
            entry=entry,
            hop=hop,
            by=by,
            introduces=by != before[place],
            place=place,
            places=len(ordered),
            seal=sealed.hash if place == len(ordered) - 1 else None,
        )
        for place, (by, hop) in enumerate(ordered)
    ]


def _in_order(entry: Entry) -> Iterator[tuple[int, Hop | None]]:
    """The hops, with causes that have no hop inserted where they happened."""
    moved = {hop.by for hop in entry.hops}
    quiet = deque(by for by in range(len(entry.causes)) if by not in moved)
    for hop in entry.hops:
        while quiet and quiet[0] < hop.by:
            yield quiet.popleft(), None
        yield hop.by, hop
    for by in quiet:
        yield by, None


class PlanNames(Mapping[int, str]):
    """The names of the steps of a plan by number. Elements have names, and are not listed."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __getitem__(self, no: int) -> str:
        name = self._plan.name_of(no)
        if name is None:
            raise KeyError(no)
        return name

    def __iter__(self) -> Iterator[int]:
        return iter(self._plan.numbers.values())

    def __len__(self) -> int:
        return len(self._plan.numbers)


class Scribe:
    """Writes the lines of one journal. It keeps the state of the run (or worker), which a note must name."""

    def __init__(self, kind: str, owner: str, names: Mapping[int, str], correlation_id: str | None = None) -> None:
        self._kind, self._owner, self._names = kind, owner, names
        self._correlated = {} if correlation_id is None else {"correlation_id": correlation_id}
        self._state: str | None = None

    def lines(self, move: Move) -> list[LogLine]:
        """Every hop is one line here; a dialect may show none or two."""
        return [self.line(move)]

    def line(self, move: Move) -> LogLine:
        entry, hop = move.entry, move.hop
        metadata = self._circumstances(move)
        kind, entity = f"{self._kind}_state_transition", entry.run_id
        if hop is None:
            kind, severity = f"{self._kind}_note", "info"
            source, target, trigger = self._state, self._state, move.cause.event
        else:
            severity, source, target, trigger = severity_of(self._kind, hop), hop.source, hop.target, hop.trigger
            if hop.no == RUN_ENTITY:
                self._state = hop.target
            else:
                name = self._name(hop.no)
                kind, entity, severity = "step_state_transition", f"{entry.run_id}/{name}", severity_of("step", hop)
                metadata |= {"step": name, "no": hop.no}
            metadata |= self._particulars(hop)
        if move.seal is not None:
            metadata["hash"] = move.seal.hex()
        return _line(entry.at, kind, severity, entity, source, target, trigger, metadata)

    def _circumstances(self, move: Move) -> dict[str, object]:
        """Common fields of notes and hops: journal, sequence, time and cause."""
        entry, cause = move.entry, move.cause
        said = {
            "tenant": entry.tenant,
            f"{self._kind}_id": entry.run_id,
            **self._correlated,
            "seq": entry.seq,
            "hop": move.place,
            "hops": move.places,
            "at": entry.at,
            "cause": move.by,
            "event": cause.event,
            "actor": cause.actor,
        }
        if move.introduces and cause.detail is not None:
            said["detail"] = cause.detail
        return said

    def opening(self, tenant: str, plan: Plan, at: int) -> LogLine:
        """The first line: the definition that the run was created from."""
        return opening_line(tenant, self._owner, self._correlated, plan, at)

    def head(self, tenant: str, seq: int, head: bytes, state: str, at: int) -> LogLine:
        """The closing line: what the run's (or worker's) own row says about its journal."""
        metadata = {
            "tenant": tenant,
            f"{self._kind}_id": self._owner,
            **self._correlated,
            "seq": seq,
            "entries": seq,
            "at": at,
            "state": state,
            "hash": head.hex(),
        }
        return _line(at, "journal_head", "info", self._owner, state, state, "exported", metadata)

    def _name(self, no: int) -> str:
        return self._names.get(no, f"#{no}")

    def _particulars(self, hop: Hop) -> dict[str, object]:
        said = {
            "attempt": hop.attempt,
            "retry_count": None if hop.attempt is None else hop.attempt - (hop.target != StepState.RETRYING),
            "fence": hop.fence,
            "duration_seconds": None if hop.took is None else hop.took / 1_000_000,
            "due_at": hop.due_at,
            "of": None if hop.of is None else self._name(hop.of),
            "category": hop.category,
            "error": hop.error,
            "digest": hop.digest,
        }
        return {name: value for name, value in said.items() if value is not None}


def opening_line(tenant: str, run_id: str, correlated: Mapping[str, str], plan: Plan, at: int, **more: Any) -> LogLine:
    """The line that holds a run's definition as it is stored, and the digest over those bytes."""
    metadata = {
        "tenant": tenant,
        "run_id": run_id,
        **correlated,
        "format": FORMAT,
        "at": at,
        **more,
        "written_in": plan.definition.dialect,
        "digest": plan.digest,
        "definition": msgspec.json.decode(plan.document),
    }
    return _line(at, OPENING, "info", run_id, None, None, "exported", metadata)


def severity_of(kind: str, hop: Hop) -> str:
    """The severity of a hop (seed 004, transition details)."""
    if kind == "run":
        return "critical" if hop.target == RunState.FAILED else "info"
    if kind == "worker":
        return "error" if hop.trigger in WORKER_TROUBLE else "info"
    if hop.target == StepState.FAILED:
        return "error"
    tolerated = hop.target == StepState.SKIPPED and hop.category is not None
    lost = hop.trigger == StepTrigger.LEASE_LOST
    return "warning" if tolerated or lost or hop.target == StepState.RETRYING else "info"


@lru_cache(maxsize=256)
def timestamp(micros: int) -> str:
    """A time of the database clock as UTC text, truncated to milliseconds."""
    try:
        moment = EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise InvariantBroken(f"{micros} is no time that a clock could have shown") from None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(
    at: int,
    event_type: str,
    severity: str,
    entity_id: str,
    from_state: str | None,
    to_state: str | None,
    trigger: str,
    metadata: dict[str, Any],
) -> LogLine:
    return {
        "timestamp": timestamp(at),
        "event_type": event_type,
        "severity": severity,
        "entity_id": entity_id,
        "from_state": from_state,
        "to_state": to_state,
        "trigger": trigger,
        "metadata": metadata,
    }
