"""What remote workers send, as values: a worker in Python encodes them, and the service decodes them.

`operations.remote.work_messages` has what they are told. It calls nothing. `transactor`, `membership` and the service
use it; docs/remote-workers.md has every field with an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stepkeep.definition.bounds import MAX_ADDED, MAX_CALL_BYTES, MAX_WIDTH
from stepkeep.definition.python.calls import WORDS
from stepkeep.kernel.decide.streams import MOST_STREAMS
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.events import StreamEnd
from stepkeep.operations.answers import says
from stepkeep.operations.remote.remote_work import (
    LARGEST,
    LONGEST_WAIT_SECONDS,
    MAX_NUMBER,
    MOST_AT_ONCE,
    ClaimName,
    ClaimTerms,
    Large,
    PartGiven,
)
from stepkeep.operations.remote.work_outcomes import KINDS
from stepkeep.operations.streams.writing import MOST_CHUNK_BYTES, place_of, stream_name
from stepkeep.worker.attempts.payloads import Unstorable, encode

Text = Annotated[str, Meta(max_length=20_000)]
Word = Annotated[str, Meta(max_length=50)]
Anything = dict[str, Any]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a worker sends. Unknown fields are refused."""


class Registration(Body, frozen=True):
    """A new worker."""

    app: Annotated[str, Meta(max_length=100, description="What its id begins with.")]
    instance: Annotated[
        str,
        Meta(
            max_length=32,
            pattern="^[0-9a-f]{8,32}$",
            description="Random, once per process: the same again is the same.",
        ),
    ]
    host: Annotated[str, Meta(min_length=1, max_length=100)] = "remote"
    pid: Large = 0
    capacity: Annotated[int, Meta(ge=1, le=1_000_000, description="How many steps it runs at once.")] = 1
    capabilities: Annotated[
        tuple[str, ...],
        Meta(max_length=100, description="What it can do; the owner needs the role `capability:NAME` for each."),
    ] = ()


class Heartbeat(Body, frozen=True):
    """A sign of life, at least every ten seconds."""

    busy: Annotated[bool | None, says("Whether it runs steps.")] = None
    report: Annotated[Anything | None, says("What it serves, for `explain` and `status`.")] = None


class Claiming(ClaimTerms, frozen=True):
    """How many steps of which queues a worker takes."""

    give: Annotated[
        Literal["inputs", "rows"], says("With `rows`: the stored row, for workers that render inputs by themselves.")
    ] = "inputs"


class ClaimRequest(Claiming, frozen=True):
    """A claim."""

    request_id: Annotated[
        Annotated[str, Meta(max_length=100)] | None,
        says("The same id again gets the same steps, and claims no others."),
    ] = None
    wait_seconds: Annotated[
        float, Meta(ge=0, le=LONGEST_WAIT_SECONDS, description="How long to wait if there is nothing to claim.")
    ] = 0
    after: Annotated[Large | None, says("Steps that became ready earlier are left.")] = None
    run_id: Annotated[Annotated[str, Meta(max_length=36)] | None, says("Only steps of this run.")] = None


class EmittedEvent(Body, frozen=True):
    """An event for the outbox."""

    name: Annotated[str, Meta(max_length=255)]
    payload: Any = None


class CallBody(Body, frozen=True, kw_only=True):
    """A call that a flow makes for the first time."""

    kind: Annotated[Literal[tuple(WORDS)], says("The method of the context.")]  # type: ignore[valid-type]
    name: Annotated[
        str, Meta(min_length=1, max_length=255, description="What was called: a handler, an event, a workflow.")
    ]
    digest: Annotated[
        str,
        Meta(
            pattern="^[0-9a-f]{32}$",
            description="The first 32 digits of the SHA-256 of the arguments, with sorted keys.",
        ),
    ]
    arguments: Annotated[Any, says("JSON of at most 256 KiB.")] = None
    step: Annotated[Anything, says("The step, written as in a definition, without its name and its inputs.")]

    def __post_init__(self) -> None:
        try:
            encode(self.arguments, what="arguments", limit=MAX_CALL_BYTES)
        except Unstorable as problem:
            raise ValueError(str(problem)) from None


class OutcomeBody(Body, frozen=True):
    """How an attempt ended. Which fields there are depends on `kind`."""

    kind: Literal[tuple(KINDS)]  # type: ignore[valid-type]
    output: Any = UNSET
    steps: Annotated[
        Annotated[list[Anything], Meta(max_length=MAX_ADDED)] | UnsetType | None,
        says("Of `then`: the steps to add, written as in a definition."),
    ] = UNSET
    calls: Annotated[
        Annotated[list[CallBody], Meta(max_length=MAX_WIDTH)] | UnsetType | None,
        says("Of `suspended`: the calls that the flow has not made before."),
    ] = UNSET
    seen: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_WIDTH)] | UnsetType,
        says("Of `suspended`: how many ends of calls it was given."),
    ] = UNSET
    code: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType | None, says("Of `suspended`: which code ran.")
    ] = UNSET
    cancels: Annotated[
        Annotated[list[Annotated[int, Meta(ge=0, le=MAX_WIDTH)]], Meta(max_length=MAX_WIDTH)] | UnsetType | None,
        says("Of `suspended`: the places of calls, from 0, that the flow awaits no longer."),
    ] = UNSET
    token_sha256: Annotated[str, Meta(max_length=64)] | UnsetType | None = UNSET
    error: Text | UnsetType | None = UNSET
    category: Word | UnsetType | None = UNSET
    delay_us: Large | UnsetType | None = UNSET
    final: bool | UnsetType = UNSET
    unrun: bool | UnsetType = UNSET
    error_class: Word | UnsetType | None = UNSET
    event: Annotated[str, Meta(max_length=255)] | UnsetType | None = UNSET
    timeout_us: Large | UnsetType | None = UNSET
    takes_timeouts: bool | UnsetType = UNSET
    where: Text | UnsetType | None = UNSET
    count: Annotated[int, Meta(ge=1, le=LARGEST)] | UnsetType | None = UNSET
    until: Text | UnsetType | None = UNSET
    reason: Text | UnsetType | None = UNSET
    unfit: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType | None,
        says("Of a flow that is `released` or has `failed` by itself: its code. It holds until other code is there."),
    ] = UNSET
    blames: Annotated[
        Annotated[list[Annotated[int, Meta(ge=0, le=LARGEST)]], Meta(max_length=1000)] | UnsetType | None,
        says("Of a flow that has `failed`: the numbers of the calls for whose failure it failed."),
    ] = UNSET
    cost: Any = UNSET
    emit: Annotated[list[EmittedEvent], Meta(max_length=1000)] | UnsetType = UNSET

    def given(self) -> Mapping[str, Any]:
        """The fields that the client sent."""
        found: Mapping[str, Any] = msgspec.to_builtins(self)
        return found


class StreamBody(Body, frozen=True):
    """Chunks of a stream of the run, from a place on."""

    name: Annotated[str, Meta(max_length=100, description="The name of the stream.")]
    chunks: Annotated[list[Any], Meta(max_length=10_000, description="Texts, or any JSON of at most 64 KiB each.")]
    start: Annotated[int, Meta(ge=0, le=MAX_NUMBER, description="The place of the first: 0 at first, then on.")] = 0
    after: Annotated[
        Annotated[str, Meta(max_length=20)] | None,
        says(
            "Where the attempt goes on: `FENCE.PLACE` of an earlier one, or `last`. Else it replaces what they wrote."
        ),
    ] = None

    def part(self, fence: int) -> PartGiven:
        """The chunks as they are written."""
        try:
            chunks = [encode(one, what="a chunk", limit=MOST_CHUNK_BYTES) for one in self.chunks]
        except Unstorable as problem:
            raise InvalidInput(f"{problem}.") from None
        body = b"[%s]" % b",".join(chunks) if chunks else None
        after = None if self.start else place_of(self.after, fence)
        return PartGiven(stream_name(self.name), self.start, len(chunks), body, after)


class OneReport(ClaimName, frozen=True):
    """The outcome of one attempt."""

    outcome: OutcomeBody
    streams: Annotated[
        list[StreamBody],
        Meta(
            max_length=MOST_STREAMS, description="Every stream that it wrote, with the chunks that are not written yet."
        ),
    ] = msgspec.field(default_factory=list)

    def ends(self) -> tuple[StreamEnd, ...]:
        """The ends of its streams, without what the service adds."""
        parts = [one.part(self.fence) for one in self.streams]
        return tuple([one.end() for one in parts])


class ReportRequest(Body, frozen=True):
    """Outcomes, and a claim of the steps that they make ready."""

    reports: Annotated[list[OneReport], Meta(min_length=1, max_length=MOST_AT_ONCE)]
    request_id: Annotated[
        Annotated[str, Meta(max_length=100)] | None, says("The same id again gets the same reply.")
    ] = None
    claim: Claiming | None = None


LARGEST_RESULT = 3 * 1024 * 1024
"""A request has at most 4 MiB."""


class CheckpointRequest(ClaimName, frozen=True):
    """What a handler records while it runs."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    value: Annotated[Any, says("JSON of at most 3 MiB.")] = None

    def encoded(self) -> bytes:
        """The value as it is stored."""
        try:
            return encode(self.value, what="the value of the checkpoint", limit=LARGEST_RESULT)
        except Unstorable as problem:
            raise InvalidInput(f"{problem}.") from None


class StreamsRequest(ClaimName, frozen=True):
    """What an attempt appends to streams of its run."""

    streams: Annotated[list[StreamBody], Meta(min_length=1, max_length=MOST_STREAMS)]


class CheckpointsRequest(ClaimName, frozen=True):
    """What earlier attempts of a step have recorded, which the worker holds."""

    seq: Annotated[Large, says("`following.seq` of the page before.")] = 0
    name: Annotated[str, Meta(max_length=100, description="`following.name` of the page before.")] = ""


class CallsRequest(ClaimName, frozen=True):
    """The calls of a flow that the worker holds: from which place on, and as of which answer."""

    start: Annotated[int, Meta(ge=0, le=MAX_WIDTH, description="The place of the first call.")] = 0
    until: Annotated[Large | None, says("That of the first page, for all others.")] = None


class OneLease(ClaimName, frozen=True):
    """A lease, and how long it shall last from now."""

    lease_us: Annotated[int, Meta(ge=1, le=LARGEST)]


class RenewRequest(Body, frozen=True):
    """Leases to renew."""

    leases: Annotated[list[OneLease], Meta(min_length=1, max_length=10_000)]


class OneRun(Body, frozen=True):
    """What of a run is read."""

    run_id: Annotated[str, Meta(max_length=36)]
    details: bool = False
    outputs: Annotated[tuple[int, ...], Meta(max_length=10_000, description="Numbers of steps.")] = ()
    states: bool = False


class InputsRequest(Body, frozen=True):
    """Runs of which the worker holds a step."""

    runs: Annotated[list[OneRun], Meta(min_length=1, max_length=1000)]


class OneEvidence(ClaimName, frozen=True):
    """Why an attempt failed."""

    evidence: Annotated[Anything, says("`traceback`, `inputs`, `log`: what the worker wants to keep.")]


class EvidenceRequest(Body, frozen=True):
    """Evidence of attempts that the worker has ended."""

    evidence: Annotated[list[OneEvidence], Meta(min_length=1, max_length=1000)]
