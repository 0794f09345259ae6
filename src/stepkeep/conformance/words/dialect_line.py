"""Parses one line of a dialect log: checks it against its schema and returns a value.

Sealed lines are Stepkeep's own exports: numbered and chained. Plain lines have only the fields of seed 004, as other
programs write them. Nothing here raises, whatever the bytes are. `replay.py` calls it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from stepkeep.conformance.encoding import compact, encoded, in_order, parse
from stepkeep.conformance.line import OpeningLine, Problem, is_opening, owner_of, read_opening
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import (
    EPOCH,
    HEAD,
    LINE,
    FieldShape,
    Predicate,
    an_object,
    any_text,
    category,
    counted,
    digest,
    misfits,
    moment,
    seconds,
    text,
    text_or_null,
    timestamp_of,
    whole,
    yes,
)

SUFFIX = "_state_transition"


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _chain(value: Any) -> bool:
    return value == "" or digest(value)


_COMMON: dict[str, Predicate] = {
    "tenant": text,
    "dialect": text,
    "written_in": text,
    "line": counted,
    "seq": counted,
    "at": moment,
    "hash": digest,
}
_MOVE: dict[str, Predicate] = {"hop": whole, "because": text, "event": text, "actor": any_text}
_MAY: dict[str, Predicate] = {
    "correlation_id": text,
    "detail": an_object,
    "extension": yes,
    "ground": text,
    "of": text,
    "category": category,
    "error": any_text,
}
_RUN: dict[str, Predicate] = {"workflow": text, "version": whole, "steps": whole, "capacity": whole, "live": yes}
_STEP: dict[str, Predicate] = {
    "kind": text,
    "order": whole,
    "depends_on": _names,
    "max_attempts": whole,
    "on_failure": text,
    "completion": text,
    "worker": any_text,
    "attempt": counted,
    "retry_count": whole,
    "fence": counted,
    "duration_seconds": seconds,
    "due_at": whole,
    "digest": digest,
}
_HEAD: dict[str, Predicate] = {
    "entries": counted,
    "lines": whole,
    "state": text_or_null,
    "canonical": text,
    "head": digest,
    "chain": _chain,
}
_PLAIN = FieldShape(
    {},
    {
        "duration_seconds": seconds,
        "retry_count": whole,
        "attempt": counted,
        "run_id": text,
        "step": text,
        "extension": yes,
    },
)


_LINE = FieldShape({**LINE, "from_state": text_or_null, "to_state": text, "metadata": an_object}, {})
_HEAD_LINE = FieldShape({**LINE, "from_state": text_or_null, "to_state": text_or_null, "metadata": an_object}, {})
_SHAPES = {
    (kind, owner): FieldShape(_COMMON | {owner: text} | required, optional)
    for owner in ("run_id", "worker_id")
    for kind, required, optional in (
        ("head", _HEAD, {"correlation_id": text}),
        ("step", _MOVE | {"step": text, "no": whole}, _MAY | _STEP),
        ("undo", _MOVE | {"step": text, "no": whole}, _MAY | _STEP),
        ("run", _MOVE, _MAY | _RUN),
        ("worker", _MOVE, _MAY | _RUN),
    )
}


class DialectLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line with all required fields. `kind` is run, step, undo, worker or head; `raw` is the parsed object."""

    kind: str
    owner: tuple[str, str]
    entity: str
    source: str | None
    target: str | None
    trigger: str
    at: int
    number: int | None
    seq: int
    seal: str | None
    raw: Mapping[str, Any]


class DialectReading(msgspec.Struct, frozen=True):
    """The result for one line: its value if it is valid, its problems, and the entity it seems to belong to."""

    line: DialectLine | None
    problems: tuple[Problem, ...] = ()
    owner: tuple[str, str] | None = None
    opening: OpeningLine | None = None


def read_dialect_line(raw: bytes | str, dialect: str, nouns: Mapping[str, str], *, sealed: bool) -> DialectReading:
    """Parse one line. `nouns` maps each noun of the dialect to run, step or worker."""
    try:
        document = parse(raw)
    except (ValueError, RecursionError) as error:
        return DialectReading(None, ((Code.JSON, f"this is not a JSON object: {quoted(str(error))[1:-1]}"),))
    metadata = document.get("metadata")
    if sealed and is_opening(document):
        first = read_opening(document, dialect)
        return DialectReading(None, first.problems, owner_of(metadata), first.opening)
    owner = owner_of(metadata) or (None if sealed else ("run", ""))
    problems = list(_misfits(document, dialect, nouns, sealed=sealed))
    if problems or owner is None:
        said = problems or ["metadata.run_id is missing"]
        return DialectReading(None, tuple((Code.SCHEMA, one) for one in said), owner)
    assert isinstance(metadata, dict)
    event = document["event_type"]
    line = DialectLine(
        kind="head" if event == HEAD else nouns[event.removesuffix(SUFFIX)],
        owner=owner,
        entity=document["entity_id"],
        source=document["from_state"],
        target=document["to_state"],
        trigger=document["trigger"],
        at=metadata["at"] if sealed else _micros(document["timestamp"]) or 0,
        number=metadata["line"] if sealed else None,
        seq=metadata["seq"] if sealed else 0,
        seal=metadata["hash"] if sealed else None,
        raw=document,
    )
    contradictions = _contradictions(line) if sealed else ()
    return DialectReading(line, tuple((Code.CONTRADICTION, said) for said in contradictions), owner)


def line_hash(before: bytes, document: Mapping[str, Any]) -> bytes:
    """The hash of a line whose predecessor has the hash `before`: over its JSON with sorted keys, without its hash."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "hash"}
    return hashlib.sha256(before + compact(in_order({**document, "metadata": metadata})).encode()).digest()


def has_hash(before: bytes, line: DialectLine | OpeningLine) -> bool:
    """Whether a line has the hash that it says. The C encoder is tried first; it writes some fractions otherwise."""
    metadata = {name: value for name, value in line.raw["metadata"].items() if name != "hash"}
    quick = hashlib.sha256(before + encoded({**line.raw, "metadata": metadata}, in_order=True)).hexdigest()
    try:
        return quick == line.seal or line_hash(before, line.raw).hex() == line.seal
    except RecursionError:
        return False


# -- what is wrong with one line -------------------------------------------------------------------------------------
def _misfits(document: dict[str, Any], dialect: str, nouns: Mapping[str, str], *, sealed: bool) -> Iterator[str]:
    is_head = document.get("event_type") == HEAD
    wrong = list(misfits(document, _HEAD_LINE if is_head else _LINE, ""))
    yield from wrong
    if wrong:
        return
    kind = nouns.get(document["event_type"].removesuffix(SUFFIX)) if document["event_type"].endswith(SUFFIX) else None
    if kind is None and not (is_head and sealed):
        yield f"event_type cannot be {quoted(document['event_type'])} in the {dialect} dialect"
        return
    metadata = document["metadata"]
    if not sealed:
        known = {name: value for name, value in metadata.items() if name in _PLAIN.optional}
        yield from misfits(known, _PLAIN, "metadata.")
        if _micros(document["timestamp"]) is None:
            yield f"timestamp cannot be {quoted(document['timestamp'])}: it is no time in UTC"
        return
    yield from misfits(metadata, _shape("head" if is_head or kind is None else kind, metadata), "metadata.")
    if metadata.get("dialect") != dialect:
        yield f"metadata.dialect is {quoted(metadata.get('dialect'))}, not {quoted(dialect)}"


def _shape(kind: str, metadata: Mapping[str, Any]) -> FieldShape:
    return _SHAPES[kind, "worker_id" if "worker_id" in metadata else "run_id"]


def _contradictions(line: DialectLine) -> Iterator[str]:
    """Check fields that are determined by other fields of the same line."""
    metadata = line.raw["metadata"]
    entity = f"{line.owner[1]}/{metadata['step']}" if line.kind in ("step", "undo") else line.owner[1]
    implied: dict[str, tuple[Any, Any]] = {
        "timestamp": (line.raw["timestamp"], timestamp_of(line.at)),
        "entity_id": (line.entity, entity),
    }
    if line.kind == "head":
        implied |= {
            "from_state": (line.source, line.target),
            "trigger": (line.trigger, "exported"),
            "to_state": (line.target, metadata["state"]),
            "metadata.entries": (metadata["entries"], line.seq),
            "metadata.lines": (metadata["lines"], metadata["line"] - 1),
        }
    for name, (said, follows) in implied.items():
        if said != follows:
            yield f"{name} is {quoted(said)} where the rest of the line says {quoted(follows)}"


def _micros(stamp: str) -> int | None:
    try:
        moment_of = datetime.fromisoformat(stamp)
        return None if moment_of.utcoffset() is None else (moment_of - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None
