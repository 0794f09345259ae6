"""The two machines of seed 000 as data: the workflow's seven states and the step's five, from its tables.

Where table and picture differ, the table counts: compensation starts from executing, and failed is terminal. Plain data
only; the judge and every projection read this file, and nothing of the engine is imported.
"""

# ruff: noqa: E501 - a machine is a table: its rows stay aligned, one line each

from __future__ import annotations

# ruff: noqa: E501 - a table: its rows stay one line each
from stepkeep.dialects.dialect import Default, JudgedDialect
from stepkeep.dialects.ioa.invariants import INVARIANTS
from stepkeep.dialects.machine import ANY, Arrow, Extension, ForbiddenPair, MachineView
from stepkeep.dialects.projection import Seen, ShownRunView

# fmt: off
DEFAULTS = (
    Default("What does the limit count?", "maxRetries counts retries: N means N + 1 executions; 3 unless written, 0 to 9", "000 §3.2"),
    Default("Backoff", "exponential from 1s, constant or linear from 5s, never more than 60s (or than what was written as initialDelay); a duration as backoff is constant", "000 §3.2"),
    Default("Is a timeout retried?", "no, straight to onFailure", "000 §3.1, §3.4"),
    Default("Are unknown errors retried?", "agent, external and unknown errors only where a retryPolicy is written; transient ones always", "000 §3.1"),
    Default("Which policy applies?", "the step's onFailure, else failurePolicy, else abort; failurePolicy: retry is refused, retries belong to retryPolicy", "000 §3.3"),
    Default("Is a skipped dependency satisfied?", "yes: a fan-in copes with missing results; a rejected gate satisfies no step after it", "000 §3.3, §5.1"),
    Default("Sequence or graph?", "always a graph: steps without dependsOn start immediately", "000 §5.1"),
    Default("What is a side effect?", "a step with a compensation entry writes, any other reads", "000 §4.2 rule 5"),
    Default("Which steps are undone?", "completed ones with a compensation entry, in reverse order of completion", "000 §4.1, §4.2"),
    Default("A hook fails", "stop there: the workflow is failed, with partial rollback", "000 §4.2 rule 4"),
    Default("Full rollback ends as", "completed", "000 §1 compensating → completed"),
    Default("Rollback with nothing to undo", "failed, without passing through compensating", "000 §4.2 rule 1"),
    Default("Run shows it waits", "blocked while any step waits for input from outside", "000 §1 executing → blocked"),
    Default("Deadline of a gate", "its step's timeout; then it has failed (category timeout), and its onFailure decides", "000 §1 blocked → failed, §3.4"),
    Default("Attempt timeout", "5m for a step without one; none for a gate without one", "000 §6 guideline 1"),
    Default("Retries of a compensation", "2 attempts, 1s apart; 5m each", "000 §4.2 rule 3"),
    Default("Cancel", "an extension: the seed has no cancelled", "design §4"),
    Default("An agent reports `governance`", "its step waits for an approval, people are told (`gate.escalated`), and no attempt is used; a rejection fails it", "000 §3.1 block + escalate"),
    Default("The workflow's timeout, while an agent runs", "abort ends the workflow at once, and the attempt is in doubt; compensate waits for the agent as long as the grace period, 30s", "000 §3.4"),
)
# fmt: on


TABLE = "000 §1 valid state transitions"
NEVER = "000 §1 invalid transitions"

TIMEOUT = "000 §3.4 workflow timeout triggers workflow failure → failurePolicy"

FAILED = ("step_failed", "rejected", "deadline_passed", "operator_failed")
UNCOMPENSATED = (*FAILED, "steps_failed")
COMPENSATED = (*(f"{failed}+compensate" for failed in FAILED), "steps_failed")
LEFT_OUT = (
    "failed_tolerated", "rules_failed_tolerated", "completion_failed_tolerated", "children_failed_tolerated",
    "denied_tolerated", "rejected_tolerated", "deadline_tolerated", "deadline_skipped", "operator_failed_tolerated",
)  # fmt: skip

# fmt: off
WORKFLOW_ARROWS = (
    Arrow(None,           "idle",         "Initial state after creation",       "000 §1 state definitions"),
    Arrow("idle",         "queued",       "Trigger event or manual start",      TABLE),
    Arrow("queued",       "executing",    "Execution resources available",      TABLE),
    Arrow("executing",    "blocked",      "Step requires external input",       TABLE),
    Arrow("executing",    "completed",    "All steps finished",                 TABLE),
    Arrow("executing",    "failed",       "Step failed + policy != compensate", TABLE, UNCOMPENSATED),
    Arrow("executing",    "failed",       "Workflow timeout",                   TIMEOUT, ("timed_out",)),
    Arrow("executing",    "compensating", "Step failed + policy == compensate", TABLE, COMPENSATED),
    Arrow("executing",    "compensating", "Workflow timeout",                   TIMEOUT, ("timed_out",)),
    Arrow("blocked",      "executing",    "External input received",            TABLE, ("approved", "input")),
    Arrow("blocked",      "failed",       "Timeout on blocked step",            TABLE, ("deadline_passed*", "timed_out")),
    Arrow("compensating", "completed",    "All compensations successful",       TABLE),
    Arrow("compensating", "failed",       "Compensation itself failed",         TABLE),
)

NEVER_IN_A_WORKFLOW = (
    ForbiddenPair("idle",         "executing", f"{NEVER}: must go through queued"),
    ForbiddenPair("completed",    ANY,         f"{NEVER}: terminal"),
    ForbiddenPair("failed",       "executing", f"{NEVER}: must restart as new workflow"),
    ForbiddenPair("compensating", "executing", f"{NEVER}: cannot resume after compensation starts"),
)

STEP_ARROWS = (
    Arrow(None,      "pending",   "Dependencies not yet met", "000 §2 step states"),
    Arrow("pending", "running",   "Currently executing",      "000 §2 step states"),
    Arrow("running", "completed", "Finished successfully",    "000 §2 step states"),
    Arrow("running", "skipped",   "onFailure: skip",          "000 §2 step states", LEFT_OUT),
    Arrow("running", "failed",    "Execution failed",         "000 §2 step states"),
)
# fmt: on

RUN = MachineView(
    noun="workflow",
    states=("idle", "queued", "executing", "blocked", "completed", "failed", "compensating"),
    terminal=frozenset({"completed", "failed", "cancelled"}),
    arrows=WORKFLOW_ARROWS,
    forbidden=NEVER_IN_A_WORKFLOW,
    shows={
        "idle": "idle",
        "queued": "queued",
        "running": "executing",
        "blocked": "blocked",
        "validating": "executing",
        "compensating": "compensating",
        "succeeded": "completed",
        "rolled_back": "completed",
        "failed": "failed",
        "cancelled": "cancelled",
    },
    extra={"cancelled": "people call workflows off, and the seed has no word for that"},
    extensions=(
        Extension("idle", "cancelled", "cancelled before it was started"),
        Extension("queued", "cancelled", "cancelled before anything was done"),
        Extension("executing", "cancelled", "cancelled at work"),
        Extension("blocked", "cancelled", "cancelled while it waited for people"),
        Extension(
            "queued", "failed", "the workflow's timeout counts from its start, and no worker came in time (§3.4)"
        ),
        Extension(
            "queued",
            "compensating",
            "it retries an earlier workflow and stops before its first step: it undoes that one's",
        ),
        Extension("executing", "failed", "the policy says compensate and nothing is to be undone, or a rule failed"),
        Extension("executing", "compensating", "cancelled with compensation, or a rule of the workflow failed"),
        Extension(
            "blocked",
            "executing",
            "a sleep is over, a deadline passed that is tolerated or that its agent handles, or a pause ended in which "
            "the input came",
        ),
        Extension("blocked", "failed", "a step beside the gate failed; the table knows only the gate's own timeout"),
        Extension(
            "blocked",
            "compensating",
            "a gate's timeout, the workflow's, or a step beside the gate asks for compensation (§3.4), and the table "
            "knows no way from blocked but executing and failed",
        ),
    ),
)

STEP = MachineView(
    noun="step",
    states=("pending", "running", "completed", "failed", "skipped"),
    terminal=frozenset({"completed", "failed", "skipped", "cancelled"}),
    arrows=STEP_ARROWS,
    shows={
        "pending": "pending",
        "ready": "pending",
        "running": "running",
        "validating": "running",
        "retrying": "running",
        "awaiting_approval": "running",
        "awaiting_event": "running",
        "awaiting_completion": "running",
        "awaiting_children": "running",
        "succeeded": "completed",
        "failed": "failed",
        "skipped": "skipped",
        "cancelled": "cancelled",
    },
    extra={"cancelled": "the workflow stopped or was cancelled before the step came to an end of its own"},
    extensions=(
        Extension(
            "pending",
            "skipped",
            "a person skipped it, or what it waits for was rejected or skipped; the picture skips from running only",
        ),
        Extension(
            "pending",
            "failed",
            "a policy denied it, a person failed it, or its condition could not be evaluated, before it began",
        ),
        Extension("pending", "cancelled", "the workflow stopped or was cancelled before it began"),
        Extension("running", "cancelled", "the workflow stopped or was cancelled while it ran or waited"),
        Extension("running", "skipped", "a person skipped it, whatever its policy says", when=("operator_skipped",)),
        Extension(
            None,
            "completed",
            "an earlier run finished it, and this one takes its result by reference",
            when=("adopted",),
        ),
        Extension(
            None, "skipped", "an earlier run left it out, and this one takes that over", when=("adopted_skipped",)
        ),
    ),
    # A retry does not go back: from its first claim, or its gate's opening, a step shows running until it ends.
    sticky={"running": frozenset({"pending"})},
)

UNDO = "000 §4.1 compensation order"

UNDO_STEP = MachineView(
    noun="compensation",
    states=("pending", "running", "completed", "failed"),
    terminal=frozenset({"completed", "failed", "cancelled"}),
    arrows=(
        Arrow(None, "pending", "Compensation triggered", UNDO),
        Arrow("pending", "running", "Undo", UNDO),
        Arrow("running", "completed", "Compensation successful", TABLE),
        Arrow("running", "failed", "Compensation failure", "000 §4.2 rule 4"),
    ),
    shows={
        "pending": "pending",
        "ready": "pending",
        "running": "running",
        "awaiting_children": "running",
        "succeeded": "completed",
        "failed": "failed",
        "cancelled": "cancelled",
    },
    extra={"cancelled": "a compensation that never runs must end, too"},
    extensions=(
        Extension("pending", "cancelled", "an earlier compensation failed, and none runs after that (§4.2 rule 4)"),
    ),
    sticky={"running": frozenset({"pending"})},
)

WAITING = frozenset({"awaiting_approval", "awaiting_event", "awaiting_completion"})


class WorkflowView(ShownRunView):
    """Blocked means that some step waits for outside input, whatever else is runnable (§1 executing → blocked).

    A wait that ends by its deadline, or with the run, keeps the workflow blocked until the run itself changes: that is
    §1's blocked → failed. Once the run is stopping, the shown state stays; so it does while the run is paused.
    """

    def __init__(self, view: MachineView) -> None:
        super().__init__(view)
        self.waiting: set[str] = set()

    def feed(self, seen: Seen) -> str | None:
        if seen.kind == "run":
            self.state = seen.target
        elif seen.kind == "step" and seen.phase == "main":
            (self.waiting.add if seen.target in WAITING else self.waiting.discard)(seen.name)
        if self.state not in ("running", "blocked"):
            return super().feed(seen)
        if self.shown not in ("executing", "blocked"):
            return "executing"
        if seen.trigger in ("deadline_passed", "cancelled"):
            return self.shown
        return "blocked" if self.waiting else "executing"


JUDGED = JudgedDialect(
    name="ioa",
    seed="000",
    title="IOA workflow state machine",
    run=RUN,
    step=STEP,
    undo=UNDO_STEP,
    run_view=WorkflowView,
    invariants=INVARIANTS,
    defaults=DEFAULTS,
)
