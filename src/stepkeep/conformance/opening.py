"""Parses the first line of a run's log, which holds the definition that the run was created from.

It checks that line alone: its fields, and that the definition has the digest it is said to have. It must not judge
hops. `line.py` and `dialect_line.py` call it for each line of that event type.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from stepkeep.conformance.encoding import compact, in_order, parse
from stepkeep.conformance.quick import hashed_text, quick_definition
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import (
    DIALECT_OPENING,
    FORMATS,
    OPENING,
    OPENING_LINE,
    WHOLE_OPENING,
    misfits,
    timestamp_of,
)

Problem = tuple[Code, str]


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a run's log. `definition` is the parsed document, `document` its bytes.

    `written` is the whole line; `hashed` is the text that its hash `seal` is over, where it is known already. `live`:
    lines are added while the run goes on.
    """

    owner: str
    tenant: str
    correlation_id: str | None
    at: int
    written_in: str
    digest: str
    definition: Mapping[str, Any]
    document: bytes
    written: bytes | str
    seal: str = ""
    hashed: bytes = b""
    journal: str = "run"
    live: bool = False


class OpeningReading(msgspec.Struct, frozen=True):
    """The result for one such line: its value if it is valid, and its problems."""

    opening: Opening | None
    problems: tuple[Problem, ...] = ()


def read_quickly(raw: bytes, dialect: str | None = None) -> Opening | None:
    """Such a line if it is written as an export writes it and has no problem; None for every other line."""
    found = quick_definition(raw)
    if found is None:
        return None
    told = found.metadata
    document = bytes(told.definition)
    definition = _known(document)
    if definition is None or hashlib.sha256(document).hexdigest() != told.digest:
        return None
    own = (None, None, True) if dialect is None else (dialect, 0, False)
    said = found.entity_id, found.timestamp, told.written_in, told.dialect, told.line, told.hash is None
    implied = told.run_id, timestamp_of(told.at), definition.get("dialect"), *own
    if said != implied or told.format not in FORMATS:
        return None
    if dialect is None and (told.correlation_id is None or told.live):
        return None
    opening = Opening(
        owner=told.run_id,
        tenant=told.tenant,
        correlation_id=told.correlation_id,
        at=told.at,
        written_in=told.written_in,
        digest=told.digest,
        definition=definition,
        document=document,
        written=raw,
        seal=told.hash or "",
        live=told.live,
    )
    if dialect is None:
        return opening
    told.definition = Raw(_in_order(document))
    return replace(opening, hashed=hashed_text(found))


@lru_cache(maxsize=64)
def _known(document: bytes) -> dict[str, Any] | None:
    """A definition that is written without spaces and without a repeated key. Most logs have few of them."""
    try:
        found = parse(document)
        return found if compact(found).encode() == document else None
    except (ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _in_order(document: bytes) -> bytes:
    return compact(in_order(_known(document))).encode()


def is_opening(document: Mapping[str, Any]) -> bool:
    return document.get("event_type") == OPENING


def read_opening(written: bytes | str, document: dict[str, Any], dialect: str | None = None) -> OpeningReading:
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
    opening = Opening(
        owner=metadata["run_id"],
        tenant=metadata["tenant"],
        correlation_id=metadata.get("correlation_id"),
        at=metadata["at"],
        written_in=metadata["written_in"],
        digest=metadata["digest"],
        definition=metadata["definition"],
        document=document_bytes,
        written=written,
        seal=metadata.get("hash", ""),
        live="live" in metadata,
    )
    found = hashlib.sha256(document_bytes).hexdigest()
    problems = [(Code.CONTRADICTION, said) for said in _contradictions(document, opening, dialect)]
    if found != opening.digest:
        problems.append((Code.DEFINITION, f"the definition has the digest {found}, not the one that the line names"))
    return OpeningReading(opening, tuple(problems))


def _document(definition: Mapping[str, Any], digest: str) -> bytes:
    """The bytes of the definition. The C encoder is tried first: it differs only in how it writes some fractions."""
    quick = _encode(definition).encode()
    return quick if hashlib.sha256(quick).hexdigest() == digest else compact(definition).encode()


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _contradictions(said: Mapping[str, Any], opening: Opening, dialect: str | None) -> Iterator[str]:
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
