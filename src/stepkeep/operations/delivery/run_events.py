"""Makes the outgoing event of a run from its parts. Values only; `outgoing` and `dialect_folds` call it."""

from __future__ import annotations

from collections.abc import Mapping

from stepkeep.kernel.machine.rows import Details
from stepkeep.operations.runs.spans import LABEL, trace_of
from stepkeep.sinks.event import EventSource, OutgoingEvent


def event_of(
    details: Details,
    seq: int,
    number: int,
    name: str,
    source: EventSource,
    at: int,
    data: bytes,
    more: Mapping[str, str] = {},
    step: str | None = None,
) -> OutgoingEvent:
    return OutgoingEvent(
        tenant=details.tenant,
        run_id=details.run_id,
        seq=seq,
        number=number,
        type=name,
        source=source,
        at=at,
        data=data,
        workflow=details.workflow,
        version=details.version,
        correlation_id=details.correlation_id,
        extensions=more if (trace := trace_of(details.labels)) is None else {**more, LABEL: str(trace)},
        step=step,
    )
