"""Parses the first line of a run's log, which holds the definition that the run was created from.

It checks that line alone: its fields, and that the definition has the digest it is said to have. It must not judge
hops. `line.py` and `dialect_line.py` call it for each line of that event type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stepkeep.conformance.encoding import compact
from stepkeep.conformance.report import Code, quoted
from stepkeep.conformance.schema import (
    DIALECT_OPENING,
    OPENING,
    OPENING_LINE,
    WHOLE_OPENING,
    misfits,
    timestamp_of,
)

Problem = tuple[Code, str]


class Opening(msgspec.Struct, frozen=True, kw_only=True):
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

    opening: Opening | None
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
    opening = Opening(
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
    problems = [(Code.CONTRADICTION, said) for said in _contradictions(document, opening, dialect)]
    if found != opening.digest:
        problems.append((Code.DEFINITION, f"the definition has the digest {found}, not the one that the line names"))
    return OpeningReading(opening, tuple(problems))


def _document(definition: Mapping[str, Any], digest: str) -> bytes:
    """The bytes of the definition. The C encoder is tried first: it differs only in how it writes some fractions."""
    quick = _encode(definition)
    return quick if hashlib.sha256(quick).hexdigest() == digest else compact(definition).encode()


_encode = msgspec.json.Encoder().encode


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
