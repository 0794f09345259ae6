"""The states of the four machines and the closed vocabularies around them.

Names only: the tables define the transitions, the rows hold the data. They are stored as text, so the database, the
journal and every screen show the same words.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"
    PAUSED = "paused"
    VALIDATING = "validating"
    STOPPING = "stopping"
    COMPENSATING = "compensating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


class StepState(StrEnum):
    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    VALIDATING = "validating"
    RETRYING = "retrying"
    AWAITING_APPROVAL = "awaiting_approval"
    AWAITING_EVENT = "awaiting_event"
    AWAITING_COMPLETION = "awaiting_completion"
    AWAITING_CHILDREN = "awaiting_children"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class WorkerState(StrEnum):
    INITIALIZING = "initializing"
    IDLE = "idle"
    BUSY = "busy"
    UNRESPONSIVE = "unresponsive"
    DRAINING = "draining"
    SHUTDOWN = "shutdown"


class AttemptState(StrEnum):
    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"
    WAITED = "waited"
    RELEASED = "released"


class Phase(StrEnum):
    """The phase of a step: the plan itself, its rollback, or the final run-level rules."""

    MAIN = "main"
    UNDO = "undo"
    CHECK = "check"


class Category(StrEnum):
    """Why something failed. A closed list, because it decides about retries."""

    TRANSIENT = "transient"
    EXTERNAL = "external"
    TIMEOUT = "timeout"
    AGENT = "agent"
    UNKNOWN = "unknown"
    VALIDATION = "validation"
    GOVERNANCE = "governance"
    AUTH = "auth"
    CONFLICT = "conflict"
    POISON = "poison"


class ErrorClass(StrEnum):
    """How another system failed, where that is known (seed 003, 3.1). It stands beside the category."""

    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "5xx"
    TRANSPORT = "transport"


class OnFailure(StrEnum):
    """What a run does when one of its steps has failed for good."""

    ABORT = "abort"
    SKIP = "skip"
    CONTINUE = "continue"
    COMPENSATE = "compensate"


class Rollback(StrEnum):
    """How complete the rollback of a run is."""

    NONE = "none"
    COMPLETE = "complete"
    PARTIAL = "partial"


class StopCause(StrEnum):
    """Why a run is stopping; decides between `failed` and `cancelled` at the end."""

    FAILURE = "failure"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


RUN_TERMINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.ROLLED_BACK})
STEP_TERMINAL = frozenset({StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED})
WORKER_TERMINAL = frozenset({WorkerState.SHUTDOWN})
ATTEMPT_TERMINAL = frozenset(AttemptState) - {AttemptState.OPEN}

STEP_WAITING = frozenset(
    {
        StepState.AWAITING_APPROVAL,
        StepState.AWAITING_EVENT,
        StepState.AWAITING_COMPLETION,
        StepState.AWAITING_CHILDREN,
    }
)
"""States that only a person, a message, children or a deadline ends."""

STEP_MOVING = frozenset({StepState.READY, StepState.RUNNING, StepState.VALIDATING, StepState.RETRYING})
"""States that the engine itself ends. A run without such a step is blocked."""

NEVER_RETRIED = frozenset({Category.VALIDATION, Category.GOVERNANCE, Category.AUTH, Category.CONFLICT, Category.POISON})
RETRIED_BY_DEFAULT = frozenset(Category) - NEVER_RETRIED
