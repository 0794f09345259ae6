"""Answers of this dialect where the seeds differ, or where seed 003 is open. Data for the documentation."""

# ruff: noqa: E501 - a table: one question per line

from __future__ import annotations

from stepkeep.dialects.dialect import Default

# fmt: off
DEFAULTS = (
    Default("What does the limit count?", "maxAttempts counts all executions, the first included; 3 unless written, 1 to 10", "003 §3.1"),
    Default("Backoff", "exponential: initialBackoffMs 1000 × backoffMultiplier 2.0, at most maxBackoffMs 30000", "003 §3.1"),
    Default("Is a timeout retried?", "yes, within attempts; the attempt's result is timeout", "003 §3.2"),
    Default("Are unknown errors retried?", "yes, until maxAttempts is exhausted, whatever retryableErrors says", "003 §3.1"),
    Default("Validation failure, governance denial, auth, business conflict", "never retried; retryableErrors may not name them", "003 §3.1"),
    Default("Attempt timeout", "timeoutMs, 300000 unless written", "003 §3.2"),
    Default("Policy denial", "failed", "003 §3.1"),
    Default("A hook fails", "go on with the others; the run ends Failed with a partial rollback", "003 §4"),
    Default("Full rollback ends as", "Failed, with the compensation summary attached", "003 §4"),
    Default("Which policy applies?", "fail-fast: abort, for every action", "003 §1.3"),
    Default("When does rollback start?", "whenever a run fails after a side-effecting action succeeded", "003 §4"),
    Default("Which steps are undone?", "succeeded ones whose capability has a compensationOperation, in reverse order of completion", "003 §4"),
    Default("What is a side effect?", "what the capability's metadata says: sideEffecting, or a compensationOperation", "003 §4; design §4"),
    Default("Side effect without a hook", "recorded as not compensable; the rest is compensated, the rollback is partial", "003 §4"),
    Default("Retries of a hook", "2 attempts that the hook answered, 1000 ms × 2.0, at most 10000 ms; a lost worker is no attempt, and thirty losses end it", "003 §4"),
    Default("Idempotency key of a hook", "runId:actionId:compensate", "003 §4"),
    Default("May a sequence go on after a failure?", "eligible after any terminal state, but fail-fast rules first: only a Cancelled signal is passed over", "003 §1.1, §1.3"),
    Default("Sequence or graph?", "no edges and no dependsOn anywhere: a sequence by order; otherwise a graph, joins are all-of", "003 §1.1, §1.2"),
    Default("Is a skipped dependency satisfied?", "no: only Succeeded satisfies an edge", "003 §1.2"),
    Default("Order within a run", "order, then actionId", "003 §1.2"),
    Default("Run shows it waits", "WaitingForApproval when nothing else can move and an approval is open; a manual completion leaves it Running with controlState waiting", "RunV1; design §4"),
    Default("Manual completion is terminal?", "no: it has exits", "003 §2; design §4"),
    Default("How long may a manual completion wait?", "completionDeadlineMs; forever unless written", "design §3"),
    Default("Actor of a signal", "the authenticated one; actorUserId and completedAtIso are kept as claims", "design §4"),
    Default("What does a tier do?", "HumanApprove holds the action for approval, ManualOnly completes it by hand; the strictest of workflow, override and capability counts", "WorkflowV1; design §3"),
)
# fmt: on
