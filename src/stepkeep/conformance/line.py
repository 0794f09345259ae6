"""Parses one line of a log, and the first line with the definition: checks it against the schema and against itself.

The result is a value or a list of problems, never an exception. It knows no other lines. `verify.py` calls it for each
line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepkeep.conformance.encoding import compact, encoded, parse
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import (
    DIALECT_OPENING,
    HEAD,
    HEADS,
    LINE,
    OPENING,
    OPENING_LINE,
    OWNERS,
    SHAPES,
    WHOLE_OPENING,
    FieldShape,
    misfits,
    timestamp_of,
)

WHOLE_LINE = FieldShape(LINE, {})


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A line with all required fields. `about` is run, step, worker, note or head."""

    journal: str
    about: str
    owner: str
    tenant: str
    correlation_id: str | None
    seq: int
    at: int
    source: str | None
    target: str
    trigger: str
    place: int = 0
    places: int = 1
    by: int = 0
    event: str = ""
    actor: str = ""
    detail: str | None = None
    seal: bytes | None = None
    step: str | None = None
    no: int = -1
    of: str | None = None
    fence: int | None = None
    attempt: int | None = None
    took: int | None = None
    due_at: int | None = None
    category: str | None = None
    error: str | None = None
    digest: str | None = None


class LineReading(msgspec.Struct, frozen=True):
    """The result for one line: its value if it is valid, its problems, and the entity it seems to belong to."""

    line: Line | None
    problems: tuple[Problem, ...] = ()
    owner: tuple[str, str] | None = None
    opening: OpeningLine | None = None


def read_line(raw: bytes | str) -> LineReading:
    """Read one line, with or without its newline, and list everything that is wrong with it."""
    try:
        document = parse(raw)
    except (ValueError, RecursionError) as error:
        return LineReading(None, ((Code.JSON, f"this is not a JSON object: {quoted(str(error))[1:-1]}"),))
    if is_opening(document):
        first = read_opening(document)
        return LineReading(None, first.problems, owner_of(document.get("metadata")), first.opening)
    problems = list(misfits(document, WHOLE_LINE, "")) or list(_metadata_misfits(document))
    if problems:
        return LineReading(None, tuple((Code.SCHEMA, said) for said in problems), owner_of(document.get("metadata")))
    try:
        line = _value(document)
    except RecursionError:
        return LineReading(None, ((Code.JSON, "its detail is nested too deeply"),), owner_of(document["metadata"]))
    contradictions = tuple((Code.CONTRADICTION, said) for said in _contradictions(line, document))
    return LineReading(line, contradictions, (line.journal, line.owner))


def _metadata_misfits(document: dict[str, Any]) -> Iterator[str]:
    kind, metadata = document["event_type"], document["metadata"]
    if kind == HEAD:
        yield from misfits(metadata, HEADS["worker" if "worker_id" in metadata else "run"], "metadata.")
    elif kind in SHAPES:
        wrong = list(misfits(metadata, SHAPES[kind][2], "metadata."))
        yield from wrong
        if not wrong and metadata["hop"] >= metadata["hops"]:
            yield f"metadata.hop cannot be {metadata['hop']} of {metadata['hops']}"
    else:
        yield f"event_type cannot be {quoted(kind)}"


def owner_of(metadata: Any) -> tuple[str, str] | None:
    """The kind of a line's journal, and the entity it belongs to."""
    if isinstance(metadata, dict):
        for kind in OWNERS:
            if isinstance(metadata.get(f"{kind}_id"), str):
                return kind, metadata[f"{kind}_id"]
    return None


def _value(document: dict[str, Any]) -> Line:
    metadata, kind = document["metadata"], document["event_type"]
    journal, about = ("worker" if "worker_id" in metadata else "run", "head") if kind == HEAD else SHAPES[kind][:2]
    detail, seal, lasted = metadata.get("detail"), metadata.get("hash"), metadata.get("duration_seconds")
    return Line(
        journal=journal,
        about=about,
        owner=metadata[f"{journal}_id"],
        tenant=metadata["tenant"],
        correlation_id=metadata.get("correlation_id"),
        seq=metadata["seq"],
        at=metadata["at"],
        source=document["from_state"],
        target=document["to_state"],
        trigger=document["trigger"],
        place=metadata.get("hop", 0),
        places=metadata.get("hops", 1),
        by=metadata.get("cause", 0),
        event=metadata.get("event", ""),
        actor=metadata.get("actor", ""),
        detail=None if detail is None else compact(detail),
        seal=None if seal is None else bytes.fromhex(seal),
        step=metadata.get("step"),
        no=metadata.get("no", -1),
        of=metadata.get("of"),
        fence=metadata.get("fence"),
        attempt=metadata.get("attempt"),
        took=None if lasted is None else round(lasted * 1_000_000),
        due_at=metadata.get("due_at"),
        category=metadata.get("category"),
        error=metadata.get("error"),
        digest=metadata.get("digest"),
    )


def _contradictions(line: Line, document: dict[str, Any]) -> Iterator[str]:
    """Check fields that are determined by other fields of the same line."""
    metadata = document["metadata"]
    entity = line.owner if line.step is None else f"{line.owner}/{line.step}"
    retries = None if line.attempt is None else line.attempt - (line.target != "retrying")
    lasted = None if line.took is None else line.took / 1_000_000
    said = [document["timestamp"], document["severity"], document["entity_id"]]
    said += [metadata.get("retry_count"), metadata.get("duration_seconds")]
    follows = [timestamp_of(line.at), severity_of(line), entity, retries, lasted]
    if line.about in ("note", "head"):
        said += [line.source, line.trigger]
        follows += [line.target, "exported" if line.about == "head" else line.event]
    if line.about == "head":
        said += [line.target, metadata["entries"]]
        follows += [metadata["state"], line.seq]
    for name, found, expected in zip(IMPLIED, said, follows, strict=False) if said != follows else ():
        if found != expected:
            yield f"{name} is {quoted(found)} where the rest of the line says {quoted(expected)}"


IMPLIED = (
    "timestamp", "severity", "entity_id", "metadata.retry_count", "metadata.duration_seconds", "from_state", "trigger",
    "to_state", "metadata.entries",
)  # fmt: skip
"""The fields that follow from others: those of every line, of notes and closing lines, and of closing lines."""


def severity_of(line: Line) -> str:
    if line.about == "run" and line.target == "failed":
        return "critical"
    if line.about == "worker" and line.trigger in ("heartbeats_missed", "given_up", "start_failed"):
        return "error"
    if line.about != "step":
        return "info"
    if line.target == "failed":
        return "error"
    tolerated = line.target == "skipped" and line.category is not None
    return "warning" if tolerated or line.target == "retrying" or line.trigger == "lease_lost" else "info"


# -- opening -------------------------------------------------------------------------------------------------------
Problem = tuple[Code, str]


class OpeningLine(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a run's log. `definition` is the parsed document, `document` its bytes.

    `raw` is the whole line, parsed, and `seal` its hash. `live`: lines are added while the run goes on.
    """

    owner: str
    tenant: str
    correlation_id: str | None
    at: int
    written_in: str
    digest: str
    definition: Mapping[str, Any]
    document: bytes
    raw: Mapping[str, Any]
    seal: str = ""
    journal: str = "run"
    live: bool = False


class OpeningReading(msgspec.Struct, frozen=True):
    """The result for one such line: its value if it is valid, and its problems."""

    opening: OpeningLine | None
    problems: tuple[Problem, ...] = ()


def is_opening(document: Mapping[str, Any]) -> bool:
    return document.get("event_type") == OPENING


def read_opening(document: dict[str, Any], dialect: str | None = None) -> OpeningReading:
    """Read such a line of a canonical log, or of a log in this dialect. `document` is the parsed line."""
    wrong = list(misfits(document, WHOLE_OPENING, ""))
    if not wrong:
        wrong = list(misfits(document["metadata"], OPENING_LINE if dialect is None else DIALECT_OPENING, "metadata."))
    if wrong:
        return OpeningReading(None, tuple((Code.SCHEMA, said) for said in wrong))
    metadata = document["metadata"]
    try:
        document_bytes = _document(metadata["definition"], metadata["digest"])
    except RecursionError:
        return OpeningReading(None, ((Code.JSON, "its definition is nested too deeply"),))
    opening = OpeningLine(
        owner=metadata["run_id"],
        tenant=metadata["tenant"],
        correlation_id=metadata.get("correlation_id"),
        at=metadata["at"],
        written_in=metadata["written_in"],
        digest=metadata["digest"],
        definition=metadata["definition"],
        document=document_bytes,
        raw=document,
        seal=metadata.get("hash", ""),
        live="live" in metadata,
    )
    found = hashlib.sha256(document_bytes).hexdigest()
    problems = [(Code.CONTRADICTION, said) for said in _opening_contradictions(document, opening, dialect)]
    if found != opening.digest:
        problems.append((Code.DEFINITION, f"the definition has the digest {found}, not the one that the line names"))
    return OpeningReading(opening, tuple(problems))


def _document(definition: Mapping[str, Any], digest: str) -> bytes:
    """The bytes of the definition. The C encoder is tried first: it differs only in how it writes some fractions."""
    quick = encoded(definition)
    return quick if hashlib.sha256(quick).hexdigest() == digest else compact(definition).encode()


def _opening_contradictions(said: Mapping[str, Any], opening: OpeningLine, dialect: str | None) -> Iterator[str]:
    """Check fields that are determined by other fields of the same line."""
    metadata = said["metadata"]
    implied = {
        "timestamp": (said["timestamp"], timestamp_of(opening.at)),
        "severity": (said["severity"], "info"),
        "entity_id": (said["entity_id"], opening.owner),
        "trigger": (said["trigger"], "exported"),
        "metadata.written_in": (opening.written_in, opening.definition.get("dialect")),
        "metadata.dialect": (metadata.get("dialect"), dialect),
    }
    for name, (found, follows) in implied.items():
        if found != follows:
            yield f"{name} is {quoted(found)} where {quoted(follows)} follows from the rest"
