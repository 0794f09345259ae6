"""Decodes canonical lines that are written exactly as an export writes them: in its order, no spaces, no escapes.

A typed decoder checks the fields, and the value must encode to the same bytes: then no key is repeated and no number is
written in another way. Every other line gives None, and the caller reads it field by field and lists its problems.
`line.py` and `opening.py` call it; it must accept nothing that they would refuse.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import DecodeError, Meta, Raw, Struct
from msgspec.json import Decoder, Encoder

from stepkeep.conformance.schema import LARGEST, LATEST

Text = Annotated[str, Meta(min_length=1)]
Whole = Annotated[int, Meta(ge=0, le=LARGEST)]
Counted = Annotated[int, Meta(ge=1, le=LARGEST)]
Moment = Annotated[int, Meta(ge=0, le=LATEST)]
Seconds = Annotated[float, Meta(ge=0, le=LARGEST // 1_000_000)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Severity = Literal["info", "warning", "error", "critical"]
Category = Literal[
    "transient", "external", "timeout", "agent", "unknown", "validation", "governance", "auth", "conflict", "poison"
]
Object = dict[str, Any]


class Fields(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A group of fields in the order of an export. An optional field that is null does not encode to the same bytes."""


class RunHop(Fields, kw_only=True):
    """The metadata of a canonical line about a run."""

    tenant: Text
    run_id: Text
    correlation_id: Text
    seq: Counted
    hop: Whole
    hops: Counted
    at: Moment
    cause: Whole
    event: Text
    actor: str
    detail: Object | None = None
    of: Text | None = None
    category: Category | None = None
    error: str | None = None
    hash: Digest | None = None


class StepHop(Fields, kw_only=True):
    """The metadata of a canonical line about a step."""

    tenant: Text
    run_id: Text
    correlation_id: Text
    seq: Counted
    hop: Whole
    hops: Counted
    at: Moment
    cause: Whole
    event: Text
    actor: str
    detail: Object | None = None
    step: Text
    no: Whole
    attempt: Counted | None = None
    retry_count: Whole | None = None
    fence: Counted | None = None
    duration_seconds: Seconds | None = None
    due_at: Whole | None = None
    of: Text | None = None
    category: Category | None = None
    error: str | None = None
    digest: Digest | None = None
    hash: Digest | None = None


class Definition(Fields, kw_only=True):
    """The metadata of the first line of a run's log. Only a dialect's log has `dialect`, `line` and `hash`."""

    tenant: Text
    run_id: Text
    correlation_id: Text | None = None
    format: Text
    at: Moment
    dialect: Text | None = None
    line: Whole | None = None
    live: bool = False
    written_in: Text
    digest: Digest
    definition: Raw
    hash: Digest | None = None


class DefinitionLine(Fields, kw_only=True):
    """The first line of a run's log."""

    timestamp: Text
    event_type: Literal["journal_definition"]
    severity: Literal["info"]
    entity_id: Text
    from_state: None
    to_state: None
    trigger: Literal["exported"]
    metadata: Definition


class WholeLine(Fields, kw_only=True):
    timestamp: Text
    event_type: Text
    severity: Severity
    entity_id: Text
    from_state: Text | None
    to_state: Text
    trigger: Text


class RunLine(WholeLine, kw_only=True):
    event_type: Literal["run_state_transition"]
    metadata: RunHop


class StepLine(WholeLine, kw_only=True):
    event_type: Literal["step_state_transition"]
    metadata: StepHop


_DEFINITION, _RUN, _STEP = Decoder(DefinitionLine), Decoder(RunLine), Decoder(StepLine)
_encode = Encoder().encode
_encode_sorted = Encoder(order="sorted").encode

EVENT_TYPE = slice(0, 120)
"""Where an export has the event type of a line."""


def quick_line(raw: bytes) -> RunLine | StepLine | None:
    """A canonical line about a run or a step."""
    found: RunLine | StepLine | None = _decoded(_STEP if b'"step_state_transition"' in raw[EVENT_TYPE] else _RUN, raw)
    return found


def quick_definition(raw: bytes) -> DefinitionLine | None:
    """The first line of a run's log. The definition in it is not decoded."""
    is_first = b'"journal_definition"' in raw[EVENT_TYPE]
    found: DefinitionLine | None = _decoded(_DEFINITION, raw) if is_first else None
    return found


def _decoded(decoder: Decoder[Any], raw: bytes) -> Any:
    if b"\\" in raw:
        return None
    try:
        found = decoder.decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if _encode(found) == raw else None


def text_of(value: Any) -> str:
    """The text of a part of such a line."""
    return _encode(value).decode()


def hashed_text(line: DefinitionLine) -> bytes:
    """What the hash of a dialect's line is over: its JSON with sorted keys, without its hash. It drops the hash."""
    line.metadata.hash = None
    return _encode_sorted(line)
