"""What a report says about streams: their ends go into the journal, and chunks that are not written yet become rows.

The report was accepted before: it comes from the holder of a valid lease, and so do the chunks. The ends are digests of
what is stored, so that a judge can compare rows with them. `execution.report` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.events import StepReported, StreamEnd
from stepkeep.kernel.machine.rows import StreamPart

MOST_STREAMS = 16
"""How many streams an attempt may write."""


class StreamRecord(TypedDict):
    """The end of a stream as the journal has it."""

    chunks: int
    bytes: int
    sha256: str


def end_streams(draft: Draft, event: StepReported) -> Mapping[str, StreamRecord]:
    """The ends of the streams of an attempt, by name, for the cause of its hops; its last chunks become rows."""
    if len(event.streams) > MOST_STREAMS:
        raise InvalidInput(f"an attempt writes at most {MOST_STREAMS} streams, and this one wrote {len(event.streams)}")
    told: dict[str, StreamRecord] = {}
    for end in sorted(event.streams, key=lambda one: one.name):
        if end.name in told or (said := misfit_of_end(end, event.fence)) is not None:
            why = "it is named twice" if end.name in told else said
            raise InvalidInput(f"the stream {end.name} of step {event.no} of run {event.run_id} is refused: {why}")
        told[end.name] = {"chunks": end.chunks, "bytes": end.size_bytes, "sha256": end.sha256}
        if end.body is not None:
            part = StreamPart(
                tenant=event.tenant,
                run_id=event.run_id,
                no=event.no,
                name=end.name,
                fence=event.fence,
                start=end.start,
                count=end.chunks - end.start,
                at=draft.now,
                body=end.body,
                after=end.after,
            )
            draft.rows.add(part)
    return told


def misfit_of_end(end: StreamEnd, fence: int) -> str | None:
    """Why an attempt cannot have ended a stream so; None if it can."""
    if not 0 <= end.start <= end.chunks or end.chunks < 1:
        return f"it has {end.chunks} chunks, and the last of them begin at {end.start}"
    if (end.body is None) != (end.start == end.chunks):
        return "chunks that are counted are missing"
    if end.after is not None and (end.start or not 0 < end.after[0] < fence or end.after[1] < 0):
        return f"attempt {fence} goes on after {end.after}, which is no place of an earlier attempt"
    return None
