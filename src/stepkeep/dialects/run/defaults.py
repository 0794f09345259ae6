"""The answers of seed 001 to the questions on which the seeds differ, as the front end applies them."""

from __future__ import annotations

from stepkeep.dialects.dialect import Default

RETRIES = "001 Retries and exponential backoff"
ORDERING = "001 Ordering constraints from templates"
RECLAIM = "001 Reclaiming stale RUNNING steps"
RUNS = "001 Run transitions"

DEFAULTS = (
    Default("What does the limit count?", "max_attempts, all executions, 3", RETRIES),
    Default("Backoff", "2^attempts × retry_base_delay (2s), attempts counted at the claim: 4 s, 8 s; no cap", RETRIES),
    Default("Is a timeout retried?", "yes, within attempts", RETRIES),
    Default("Are unknown errors retried?", "yes: every error but those that are never retried anywhere", RETRIES),
    Default("What counts as an attempt?", "every claim that is not handed back", "001 Step transitions: Worker claim"),
    Default("001's `reclaim_after`", "the lease's length, renewed while the worker lives; 30 s", RECLAIM),
    Default("Full rollback ends as", "FAILED; a template has no rollback", "001 RunStatus"),
    Default("When does rollback start?", "never", RUNS),
    Default("May a sequence go on after a failure?", "no: the run is FAILED", "001 Run transitions: RUNNING → FAILED"),
    Default("Sequence or graph?", "always a sequence, by position", ORDERING),
    Default("Is a skipped dependency satisfied?", "no: all earlier steps must have SUCCEEDED", ORDERING),
    Default("Run shows it waits", "when a gate is open and nothing else can move", f"{RUNS}: implementation note"),
    Default("Attempt timeout", "timeout_seconds, else default_step_timeout, 30 s", "001 worker defaults"),
    Default("Cancel", "from any state but the terminal ones; a CANCELED run answers the same again", RUNS),
)
