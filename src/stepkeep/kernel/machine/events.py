"""Events: what happened to a run, as values. They are the only input of `decide` besides the snapshot.

Each names the run, its `actor`, and its data. The caller drew everything random (ids, tokens), so that the same event
always gives the same decision.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stepkeep.kernel.definition import Amount
from stepkeep.kernel.machine.outcomes import Outcome
from stepkeep.kernel.machine.rows import Persons
from stepkeep.kernel.machine.states import Category, RunState
from stepkeep.kernel.people.authority import Caller


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    tenant: str
    run_id: str
    actor: str


class Request(Event, frozen=True, kw_only=True, gc=False):
    """An event that a person causes. `vouched_by` is the actor of the program that named the person, if it did; `key`
    is the id of the API key that was used."""

    vouched_by: str | None = None
    key: str | None = None

    @property
    def bearer(self) -> Caller:
        """The caller by whom the authority is read."""
        return Caller(self.tenant, self.actor, self.key)


class RunStarted(Request, frozen=True, kw_only=True, gc=False):
    """An idle run is started."""


class ResourceGrant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A resource that is given to a claim. For units of a pool with a size: how many other steps held, and the size."""

    name: str
    amount: Amount
    held: int = 0
    most: int | None = None


class LimitGrant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A place under one key that is given to a claim. `seq` counts the grants of the key. `revision` is that of the
    tenant's rule, 0 if the definition's counts. `freed` are the grants that ended since the one before.

    With `most`: `held` units were held before it, and `weight` are added. With `rate`: `units` are charged, and the
    bucket is empty again at `tat` (microseconds since 1970).
    """

    name: str
    key: str
    seq: int
    revision: int
    weight: int
    held: int
    freed: tuple[int, ...] = ()
    most: int | None = None
    rate: int | None = None
    period: int | None = None
    burst: int | None = None
    units: int | None = None
    tat: int | None = None


class StepClaimed(Event, frozen=True, kw_only=True, gc=False):
    """A worker asks for a ready step. The claim query proposed it; the kernel decides.

    `queues` are the queues that the worker asked for: it must not pass over a step of these with a lower number.
    `resources` are those that the step needs, and that no other step holds. `limits` are its places under its limits.
    `owner` is that of the worker's key.
    """

    no: int
    worker: int
    lease: int
    queues: frozenset[int] = frozenset()
    resources: tuple[ResourceGrant, ...] = ()
    limits: tuple[LimitGrant, ...] = ()
    owner: str | None = None


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an attempt has written to one stream: how many chunks, and the bytes and the SHA-256 of their bodies.

    `body` has those from `start` on, which are not written yet, and `after` the chunk after which the attempt goes on.
    """

    name: str
    chunks: int
    size_bytes: int
    sha256: str
    start: int = 0
    body: bytes | None = None
    after: tuple[int, int] | None = None


class StepReported(Event, frozen=True, kw_only=True, gc=False):
    """A worker reports the outcome of the attempt it holds under `fence`, and the ends of the streams that it wrote."""

    no: int
    fence: int
    worker: int
    outcome: Outcome
    streams: tuple[StreamEnd, ...] = ()


class SettledCall(msgspec.Struct, frozen=True, gc=False):
    """A call of a flow, and the fence under which its end was reported."""

    no: int
    fence: int


class FlowResumed(StepReported, frozen=True, kw_only=True, gc=False):
    """A worker claims a flow and reports what it came to, in the transaction that settles the calls it went on from.

    `fence` is that of the claim, `calls` are these calls, in the order in which the flow was given their ends, and
    `seen` is how many ends it has been given.
    """

    lease: int
    calls: tuple[SettledCall, ...]
    seen: int


class StepCheckpointed(Event, frozen=True, kw_only=True, gc=False):
    """The handler of the attempt under `fence` has a value that later attempts of its step are to be given."""

    no: int
    fence: int
    worker: int
    name: str
    value: bytes


class TimeCame(Event, frozen=True, kw_only=True, gc=False):
    """A sweep found a due timer: of a step (`no`), or of the run itself. The kernel checks it again."""

    no: int | None = None


class GateDecided(Request, frozen=True, kw_only=True, gc=False):
    """A person approves or rejects. Without `no` it means the only open gate, if there is exactly one.

    `on_behalf_of` names the delegator; without it, the only delegation that fits is used where one is needed.
    """

    approve: bool
    no: int | None = None
    comment: str = ""
    on_behalf_of: str | None = None
    evidence: tuple[str, ...] = ()


class ChangesRequested(Request, frozen=True, kw_only=True, gc=False):
    """A person who may decide a gate asks for changes: it opens anew, and decisions so far are void. Without `no` it
    means the only open gate, if there is exactly one."""

    comment: str
    no: int | None = None
    on_behalf_of: str | None = None


class EscalationRequested(Request, frozen=True, kw_only=True, gc=False):
    """A person who may decide a gate opens its next level before its deadline does. Without `no` it means the only open
    gate, if there is exactly one."""

    reason: str
    no: int | None = None
    on_behalf_of: str | None = None


class GateReassigned(Request, frozen=True, kw_only=True, gc=False):
    """An operator names other approvers for a gate that nobody may decide, or fails it: then `to` is empty.

    `asked` are the people whom the gate asks so far, as they were read; the kernel checks that none of them may decide.
    """

    no: int
    reason: str
    to: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


class HoldChoice(StrEnum):
    """What a person decides about a step that is stuck."""

    RETRY = "retry"
    SKIP = "skip"
    FAIL = "fail"
    COMPLETE = "complete"


class HoldDecided(Request, frozen=True, kw_only=True, gc=False):
    """A person decides about a step that holds, or that is stuck otherwise. `output` is that of a completed step."""

    no: int
    choice: HoldChoice
    reason: str = ""
    output: bytes | None = None


class CodeChanged(Event, frozen=True, kw_only=True, gc=False):
    """A worker has other code of a flow that holds, because the code that was tried does not fit. `code` is its
    digest."""

    no: int
    code: str


class ManualOutcome(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class CompletionSignalled(Request, frozen=True, kw_only=True, gc=False):
    """A person completes a step manually. `token` is the SHA-256 of the presented token; `claim` is the claimed
    identity."""

    no: int
    token: str
    outcome: ManualOutcome
    output: bytes | None = None
    notes: str = ""
    evidence: tuple[str, ...] = ()
    claim: bytes | None = None
    on_behalf_of: str | None = None


class TokenReissued(Request, frozen=True, kw_only=True, gc=False):
    """A person asks for a new completion token in place of a lost one. `token` is the SHA-256 of the new one."""

    no: int
    token: str
    reason: str


class MessageArrived(Request, frozen=True, kw_only=True, gc=False):
    """An external event for the run's inbox; the same `id` again changes nothing. `kept_at` is when it was sent, if it
    was kept for a run that did not exist yet: its sender was admitted then."""

    id: str
    name: str
    payload: bytes
    kept_at: int | None = None


class ScopeUse(msgspec.Struct, frozen=True, gc=False):
    """A limit on running runs as it stood before a slot was granted: how many held one, and how many may."""

    scope: str
    held: int
    most: int


class SlotGranted(Event, frozen=True, kw_only=True, gc=False):
    """A queued run gets an execution slot. `scopes` are the limits that count for it."""

    scopes: tuple[ScopeUse, ...] = ()


class ChildEnded(Event, frozen=True, kw_only=True, gc=False):
    """The child run of a step has ended, or was not started (`state` is None). `activation` says which child it is.

    `partial`: something remains of what the child did, or of the earlier child that it rolled back. `persons` are those
    of the child and of everything below it; None if the sender does not tell them.
    """

    no: int
    activation: int
    child: str
    state: RunState | None = None
    category: Category | None = None
    error: str | None = None
    output: bytes | None = None
    partial: bool = False
    persons: Persons | None = None


class CancelRequested(Request, frozen=True, kw_only=True, gc=False):
    """A request to end the run, with or without rollback."""

    compensate: bool = False
    reason: str = ""


class PauseRequested(Request, frozen=True, kw_only=True, gc=False):
    """A request to claim nothing more of the run. What is in flight settles. `freeze` says that it is a freeze: the
    same, under a word of its own (seed 003's `controlState`)."""

    reason: str = ""
    freeze: bool = False


class UnpauseRequested(Request, frozen=True, kw_only=True, gc=False):
    """A request to go on with a paused run."""

    reason: str = ""


class Annotated(Request, frozen=True, kw_only=True, gc=False):
    """A note for the journal of a run, about a step if `no` names one. It changes no state."""

    note: str
    no: int | None = None


DECISIONS = frozenset(
    {
        *(GateDecided, ChangesRequested, EscalationRequested, GateReassigned),
        *(HoldDecided, CompletionSignalled, TokenReissued),
    }
)
"""The requests that decide about a step: the authority of the person is read for each."""


def caller_of(event: Request) -> Caller | None:
    """The caller whose authority the decision on this event needs; None if it needs none."""
    if event.key is None and type(event) not in DECISIONS:
        return None
    if isinstance(event, MessageArrived) and event.kept_at is not None:
        return None
    return event.bearer
