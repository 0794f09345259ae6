"""The answers of seed 002 to the questions on which the seeds differ, as the front end applies them."""

from __future__ import annotations

from stepkeep.dialects.dialect import Default

RETRY = "002 C) Retry"
LEASE = "002 Lease Recovery"

DEFAULTS = (
    Default("What does the limit count?", "maxAttempts, all executions, 10; the last failure is final", RETRY),
    Default(
        "Backoff", "baseBackoffMs × 2^(n-1), 1 s, at most maxBackoffMs, 300 s; or what the handler asks for", RETRY
    ),
    Default("What counts as an attempt?", "retries, lost leases and the death of a step; a wait does not", RETRY),
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
