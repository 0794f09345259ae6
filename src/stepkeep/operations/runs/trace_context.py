"""The trace that a run belongs to: a W3C `traceparent`, kept as the label `traceparent` of the run.

A label, because it must outlive processes, is searchable, and needs no column; it is no part of the fingerprint of a
start. Nothing here imports OpenTelemetry: `current` asks it only if the host program has loaded it.
"""

from __future__ import annotations

import hashlib
import re
import sys
from contextvars import ContextVar
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

LABEL = "traceparent"

INCOMING: ContextVar[str | None] = ContextVar("stepkeep_incoming_trace", default=None)
"""The trace that came with a request."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class Trace(NamedTuple):
    """The parts of a `traceparent`.

    >>> parse_trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").flags
    1
    """

    trace_id: int
    span_id: int
    flags: int = 1

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def parse_trace(text: object) -> Trace | None:
    """The parts of a header or label; None if it is not valid, as W3C Trace Context asks for."""
    found = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= 200 else None
    if found is None or found[1] == "ff" or (found[1] == "00" and len(found[0]) != 55):
        return None
    trace = Trace(int(found[2], 16), int(found[3], 16), int(found[4], 16))
    return trace if trace.trace_id and trace.span_id else None


def trace_of(labels: bytes | None) -> Trace | None:
    """The trace of a run, from its labels (JSON)."""
    if labels is None or b'"traceparent"' not in labels:
        return None
    return parse_trace(msgspec.json.decode(labels).get(LABEL))


def root_of(run_id: str) -> Trace:
    """The trace of a run that nothing else began: its id names the trace, so that no process must be asked for it."""
    return Trace(UUID(run_id).int, run_span_id(run_id))


def run_span_id(run_id: str) -> int:
    """The id of a run's span, the same in every process."""
    return _span_id(run_id)


def step_span_id(run_id: str, no: int) -> int:
    """The id of a step's span, the same in every process."""
    return _span_id(f"{run_id}:{no}")


def _span_id(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) or 1


def current() -> str | None:
    """The trace that the caller is in: its active span, or what came with the request."""
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return str(Trace(context.trace_id, context.span_id, int(context.trace_flags)))
    return INCOMING.get()
