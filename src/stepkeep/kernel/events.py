"""What happened to a run, as values: the only things `decide` can be asked about.

Each names the run, who or what is behind it (`actor`), and what it carries. Everything random (ids, tokens) was
drawn by the caller, so that the same event always leads to the same decision.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from stepkeep.kernel.outcomes import Outcome


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    tenant: str
    run_id: str
    actor: str


class RunStarted(Event, frozen=True, kw_only=True, gc=False):
    """An idle run is told to go."""


class StepClaimed(Event, frozen=True, kw_only=True, gc=False):
    """A worker wants to run a ready step. The claim query proposed it; the kernel decides."""

    no: int
    worker: int
    lease: int


class StepReported(Event, frozen=True, kw_only=True, gc=False):
    """A worker reports on the attempt it holds under `fence`."""

    no: int
    fence: int
    worker: int
    outcome: Outcome


class TimeCame(Event, frozen=True, kw_only=True, gc=False):
    """A sweep found something due: a step (`no`), or the run itself. The kernel checks again whether it is."""

    no: int | None = None


class GateDecided(Event, frozen=True, kw_only=True, gc=False):
    """A person approves or rejects. Without `no` it means the one open gate, if there is exactly one."""

    approve: bool
    no: int | None = None
    comment: str = ""


class ManualOutcome(StrEnum):
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class CompletionSignalled(Event, frozen=True, kw_only=True, gc=False):
    """A person completes a step by hand. `token` is the SHA-256 of the token presented; `claim` what they claim."""

    no: int
    token: str
    outcome: ManualOutcome
    output: bytes | None = None
    notes: str = ""
    evidence: tuple[str, ...] = ()
    claim: bytes | None = None


class MessageArrived(Event, frozen=True, kw_only=True, gc=False):
    """An external event for the run's inbox; the same `id` again changes nothing."""

    id: str
    name: str
    payload: bytes


class CancelRequested(Event, frozen=True, kw_only=True, gc=False):
    """Somebody wants the run to end, with or without undoing what was done."""

    compensate: bool = False
    reason: str = ""
