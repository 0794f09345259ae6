"""The two machines of seed 002 as data: the instance's four states and the step's six, from its flows.

The seed has no tables but writes each state change as `FROM → TO`; each arrow cites its flow. Plain data only: the
judge and every projection read this file, and nothing of the engine is imported.
"""

from __future__ import annotations

from stepkeep.dialects.dialect import Default, JudgedDialect
from stepkeep.dialects.linear.invariants import INVARIANTS
from stepkeep.dialects.machine import ANY, Arrow, Extension, ForbiddenPair, MachineView

RETRY_TEXT = "002 C) Retry"
LEASE = "002 Lease Recovery"

DEFAULTS = (
    Default("What does the limit count?", "maxAttempts, all executions, 10; the last failure is final", RETRY_TEXT),
    Default(
        "Backoff", "baseBackoffMs × 2^(n-1), 1 s, at most maxBackoffMs, 300 s; or what the handler asks for", RETRY_TEXT
    ),
    Default("What counts as an attempt?", "retries, lost leases and the death of a step; a wait does not", RETRY_TEXT),
    Default("Does a lost lease use an attempt?", "yes; three losses end the step, where the seed would go on", LEASE),
    Default("Right fence, lease expired, no takeover yet", "refused: locked_until >= now", "002 Execution"),
    Default("When does rollback start?", "never", "002 Non-goals"),
    Default("Full rollback ends as", "FAILED; a linear workflow has no rollback", "002 Instance States"),
    Default("May a sequence go on after a failure?", "no: DEAD fails the instance", "002 D) Dead"),
    Default("Sequence or graph?", "always a sequence: stepSeq 0 to N-1", "002 Scope"),
    Default("Is a skipped dependency satisfied?", "no: only DONE activates the next step", "002 A) Completed"),
    Default("Run shows it waits", "never: the instance stays RUNNING", "002 B) Waiting"),
    Default(
        "Deadline of a wait", "the handler runs again and is told (WAITING_TIMEOUT)", "002 Claim Timed-out WAITING"
    ),
    Default(
        "Early messages", "kept in the inbox, where the seed's wake-up would miss them", "002 External Event Wake-up"
    ),
    Default("Lease", "leaseSeconds, 30, renewed while the worker lives", LEASE),
    Default("Cancel", "from any state but the terminal ones", "002 Instance States: CANCELED (reserved)"),
)


START = "002 Start Flow"
LEASES = "002 Tick Flow 1) Lease Recovery"
CLAIM = "002 Tick Flow 2) Claim READY Steps"
TIMEOUT = "002 Tick Flow 3) Claim Timed-out WAITING Steps"
COMPLETED = "002 A) Completed"
WAITING = "002 B) Waiting"
RETRY = "002 C) Retry"
DEAD = "002 D) Dead"
WAKE_UP = "002 External Event Wake-up"
END = "002 Summary of Full Lifecycle: the lifecycle ends there"

FAILED = ("step_failed*", "steps_failed", "rejected*", "deadline_passed*", "operator_failed*")
"""Grounds on which the instance failed because a step did."""

# fmt: off
RUN_ARROWS = (
    Arrow(None,      "RUNNING",   "start",     START),
    Arrow("RUNNING", "COMPLETED", "Completed", COMPLETED),
    Arrow("RUNNING", "FAILED",    "Dead",      DEAD, FAILED),
)

RUN_FORBIDDEN = (
    ForbiddenPair("COMPLETED", ANY, END),
    ForbiddenPair("FAILED",    ANY, END),
    ForbiddenPair("CANCELED",  ANY, END),
)

STEP_ARROWS = (
    Arrow(None,      "PENDING", "start",           START),
    Arrow("PENDING", "READY",   "activate",        f"{START}; {COMPLETED}"),
    Arrow("READY",   "RUNNING", "claim",           CLAIM),
    Arrow("RUNNING", "DONE",    "Completed",       COMPLETED, ("executed",)),
    Arrow("RUNNING", "WAITING", "Waiting",         WAITING, ("waited",)),
    Arrow("RUNNING", "READY",   "Retry",           RETRY, ("retry_scheduled",)),
    Arrow("RUNNING", "READY",   "LEASE_EXPIRED",   LEASES, ("lease_lost",)),
    Arrow("RUNNING", "DEAD",    "Dead",            DEAD, ("attempts_exhausted", "not_retryable")),
    Arrow("WAITING", "READY",   "event",           WAKE_UP, ("message_arrived",)),
    Arrow("WAITING", "RUNNING", "WAITING_TIMEOUT", TIMEOUT),
)

STEP_FORBIDDEN = (
    ForbiddenPair("PENDING", "RUNNING", f"{CLAIM}: only claimed steps may be executed; only READY ones are claimed"),
    ForbiddenPair("DONE",    ANY,       END),
    ForbiddenPair("DEAD",    ANY,       END),
)
# fmt: on

RUN = MachineView(
    noun="instance",
    states=("RUNNING", "COMPLETED", "FAILED", "CANCELED"),
    terminal=frozenset({"COMPLETED", "FAILED", "CANCELED"}),
    arrows=RUN_ARROWS,
    forbidden=RUN_FORBIDDEN,
    # An idle run shows nothing: the seed's instance is created when it is started.
    shows={
        "queued": "RUNNING",
        "running": "RUNNING",
        "blocked": "RUNNING",
        "validating": "RUNNING",
        "succeeded": "COMPLETED",
        "failed": "FAILED",
        "rolled_back": "FAILED",
        "cancelled": "CANCELED",
    },
    extensions=(
        Extension("RUNNING", "CANCELED", "the seed reserves CANCELED and leaves open how an instance gets there"),
        Extension(None, "CANCELED", "cancelled before it was started, so its end is the first that is seen of it"),
        Extension("RUNNING", "FAILED", "no step is DEAD: the run timed out, a rule of it failed, or a cancel undid it"),
    ),
)

STEP = MachineView(
    noun="step",
    states=("PENDING", "READY", "RUNNING", "WAITING", "DONE", "DEAD"),
    terminal=frozenset({"DONE", "DEAD", "SKIPPED", "CANCELED"}),
    arrows=STEP_ARROWS,
    forbidden=STEP_FORBIDDEN,
    shows={
        "pending": "PENDING",
        "ready": "READY",
        "running": "RUNNING",
        "retrying": "READY",
        "awaiting_event": "WAITING",
        "awaiting_approval": "WAITING",
        "awaiting_completion": "WAITING",
        "succeeded": "DONE",
        "failed": "DEAD",
        "skipped": "SKIPPED",
        "cancelled": "CANCELED",
    },
    extra={
        "SKIPPED": "a step that was left out, or whose failure was tolerated, is neither DONE nor DEAD",
        "CANCELED": "the seed reserves the word for instances; their steps must end too, not stay RUNNING forever",
    },
    extensions=(
        Extension("PENDING", "CANCELED", "the instance was cancelled, or a step before it is DEAD"),
        Extension("READY", "CANCELED", "the instance was cancelled before a worker claimed it"),
        Extension("RUNNING", "CANCELED", "the instance was cancelled; the worker's late write is refused"),
        Extension("WAITING", "CANCELED", "the instance was cancelled while the step waited"),
        Extension("PENDING", "WAITING", "a gate or a `wait:` step opens; no worker runs it first"),
        Extension(
            "PENDING",
            "SKIPPED",
            "its condition was false, a step it needs was left out, or its child failed and is tolerated",
        ),
        Extension(
            "PENDING", "DEAD", "denied by policy, its condition cannot be evaluated, or its child workflow failed"
        ),
        Extension("PENDING", "DONE", "its child workflow succeeded; no worker runs such a step"),
        Extension(
            "READY", "DONE", "a person completed it, or the elements of a held and approved map or loop succeeded"
        ),
        Extension("READY", "DEAD", "policy denied another attempt, or a person failed it"),
        Extension("READY", "SKIPPED", "policy denied another attempt under `on_failure: skip`, or a person skipped it"),
        Extension("READY", "WAITING", "policy holds the next attempt until people approve it"),
        Extension("WAITING", "DONE", "a gate was approved, a message came, a sleep is over, a person completed it"),
        Extension(
            "WAITING",
            "DEAD",
            "a gate was rejected, a person failed a held step, or a deadline passed that no handler takes",
        ),
        Extension("WAITING", "SKIPPED", "the same under `on_failure: skip`, or a person skipped a held step"),
        Extension("RUNNING", "SKIPPED", "it failed for good under `on_failure: skip`"),
        Extension(
            "RUNNING",
            "READY",
            "a worker hands the step back, or its children have settled: no Retry, nothing is counted",
        ),
        Extension(
            "RUNNING",
            "WAITING",
            "a person completes the step, or decides what follows an attempt; it waits for no event",
        ),
        Extension("RUNNING", "DONE", "a person completed the step and its rules held, or its children succeeded"),
        Extension(
            "RUNNING",
            "DEAD",
            "its leases were lost too often, its rules or its children failed; no handler returned Dead",
        ),
        Extension("WAITING", "READY", "a held step was approved, or a person retries it; no event came"),
        Extension(
            None, "DONE", "an earlier run finished it, and this one takes its result by reference", when=("adopted",)
        ),
        Extension(
            None, "SKIPPED", "an earlier run left it out, and this one takes that over", when=("adopted_skipped",)
        ),
    ),
    # A timed-out WAITING step is claimed directly; the seed does not show that our row is READY for a moment.
    quiet=frozenset({"deadline_handed_over"}),
)

JUDGED = JudgedDialect(
    name="linear",
    seed="002",
    title="Persisted linear workflow: leases, waits, inbox and outbox",
    run=RUN,
    step=STEP,
    invariants=INVARIANTS,
    defaults=DEFAULTS,
)
