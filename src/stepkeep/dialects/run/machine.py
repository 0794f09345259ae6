"""The two machines of seed 001 as data: RunStatus and StepStatus with their transition tables, word for word.

Where table and picture differ, the table counts. Plain data only: the judge and every projection read this file, and
nothing of the engine is imported.
"""

# ruff: noqa: E501 - a machine is a table: its rows stay aligned, one line each

from __future__ import annotations

from stepkeep.dialects.dialect import Default, JudgedDialect
from stepkeep.dialects.machine import ANY, Arrow, Extension, ForbiddenPair, MachineView
from stepkeep.dialects.projection import Seen, ShownRunView
from stepkeep.dialects.run.invariants import INVARIANTS

RETRIES = "001 Retries and exponential backoff"
ORDERING_TEXT = "001 Ordering constraints from templates"
RECLAIM = "001 Reclaiming stale RUNNING steps"
RUNS_TEXT = "001 Run transitions"

DEFAULTS = (
    Default("What does the limit count?", "max_attempts, all executions, 3", RETRIES),
    Default("Backoff", "2^attempts × retry_base_delay (2s), attempts counted at the claim: 4 s, 8 s; no cap", RETRIES),
    Default("Is a timeout retried?", "yes, within attempts", RETRIES),
    Default("Are unknown errors retried?", "yes: every error but those that are never retried anywhere", RETRIES),
    Default("What counts as an attempt?", "every claim that is not handed back", "001 Step transitions: Worker claim"),
    Default("001's `reclaim_after`", "the lease's length, renewed while the worker lives; 30 s", RECLAIM),
    Default("Full rollback ends as", "FAILED; a template has no rollback", "001 RunStatus"),
    Default("When does rollback start?", "never", RUNS_TEXT),
    Default("May a sequence go on after a failure?", "no: the run is FAILED", "001 Run transitions: RUNNING → FAILED"),
    Default("Sequence or graph?", "always a sequence, by position", ORDERING_TEXT),
    Default("Is a skipped dependency satisfied?", "no: all earlier steps must have SUCCEEDED", ORDERING_TEXT),
    Default("Run shows it waits", "when a gate is open and nothing else can move", f"{RUNS_TEXT}: implementation note"),
    Default("Attempt timeout", "timeout_seconds, else default_step_timeout, 30 s", "001 worker defaults"),
    Default("Cancel", "from any state but the terminal ones; a CANCELED run answers the same again", RUNS_TEXT),
)


RUNS = "001 Run transitions"
STEPS = "001 Step transitions"
CREATION = "001 Idempotent run creation"
ORDERING = "001 Ordering constraints from templates"
END = "001 Run transitions: Terminal"

FIRST_CLAIM, ALL_DONE = ("first_claim",), ("all_succeeded",)
FAILED = ("step_failed*", "steps_failed")
"""Grounds on which the run failed because a step did."""
ENDED = ("timed_out", "undo_requested", "rules_failed")
CANCEL = ("cancelled", "stopped_cancelled")

# fmt: off
RUN_ARROWS = (
    Arrow(None,               "PENDING",          "POST /runs",                                    CREATION),
    Arrow("PENDING",          "RUNNING",          "Worker claims first runnable step",             RUNS, FIRST_CLAIM),
    Arrow("RUNNING",          "WAITING_APPROVAL", "Approval gate reached",                         RUNS),
    Arrow("WAITING_APPROVAL", "RUNNING",          "POST /runs/{id}/approve",                       RUNS, ("approved",)),
    Arrow("RUNNING",          "SUCCEEDED",        "All steps are SUCCEEDED",                       RUNS, ALL_DONE),
    Arrow("WAITING_APPROVAL", "SUCCEEDED",        "Approval completes last pending gate",          RUNS, ALL_DONE),
    Arrow("RUNNING",          "FAILED",           "Step exhausts retries / terminal failure",      RUNS, FAILED),
    Arrow("WAITING_APPROVAL", "FAILED",           "Failure on remaining execution after approval", RUNS, FAILED),
    Arrow("PENDING",          "CANCELED",         "POST /runs/{id}/cancel",                        RUNS, CANCEL),
    Arrow("RUNNING",          "CANCELED",         "POST /runs/{id}/cancel",                        RUNS, CANCEL),
    Arrow("WAITING_APPROVAL", "CANCELED",         "POST /runs/{id}/cancel",                        RUNS, CANCEL),
)

RUN_FORBIDDEN = (
    ForbiddenPair("SUCCEEDED", ANY, END),
    ForbiddenPair("FAILED",    ANY, END),
    ForbiddenPair("CANCELED",  ANY, END),
)

SETTLED = ("rules_failed", "deadline_passed", "completion_failed", "children_failed")
RETRIED, EXHAUSTED, RUN_CANCEL = ("retry_scheduled",), ("attempts_exhausted",), ("run_cancelled",)

STEP_ARROWS = (
    Arrow(None,               "PENDING",          "Steps are created in template position order", ORDERING),
    Arrow("PENDING",          "RUNNING",          "Worker claim",                                 STEPS),
    Arrow("RUNNING",          "SUCCEEDED",        "Executor success",                             STEPS, ("executed",)),
    Arrow("RUNNING",          "PENDING",          "Retryable failure and attempts remaining",     STEPS, RETRIED),
    Arrow("RUNNING",          "FAILED",           "Attempts exhausted",                           STEPS, EXHAUSTED),
    Arrow("PENDING",          "WAITING_APPROVAL", "Tool stage completed, approval step opened",   STEPS, ("gate_opened",)),
    Arrow("WAITING_APPROVAL", "SUCCEEDED",        "Approve endpoint",                             STEPS, ("approved",)),
    Arrow("PENDING",          "CANCELED",         "Run cancel",                                   STEPS, RUN_CANCEL),
    Arrow("RUNNING",          "CANCELED",         "Run cancel",                                   STEPS, RUN_CANCEL),
    Arrow("WAITING_APPROVAL", "CANCELED",         "Run cancel",                                   STEPS, RUN_CANCEL),
    Arrow("RUNNING",          "RUNNING",          "Claim reclaim logic",                          STEPS, ("reclaimed",)),
)

STEP_FORBIDDEN = (
    ForbiddenPair("SUCCEEDED", ANY, "001 Enums, State overview: nothing leads out of SUCCEEDED"),
    ForbiddenPair("FAILED",    ANY, "001 Step transitions: Terminal step failure"),
    ForbiddenPair("CANCELED",  ANY, "001 Step transitions: Terminal"),
)
# fmt: on

RUN = MachineView(
    noun="run",
    states=("PENDING", "RUNNING", "WAITING_APPROVAL", "SUCCEEDED", "FAILED", "CANCELED"),
    terminal=frozenset({"SUCCEEDED", "FAILED", "CANCELED"}),
    arrows=RUN_ARROWS,
    forbidden=RUN_FORBIDDEN,
    shows={
        "idle": "PENDING",
        "queued": "PENDING",
        "running": "RUNNING",
        "blocked": "WAITING_APPROVAL",
        "succeeded": "SUCCEEDED",
        "failed": "FAILED",
        "rolled_back": "FAILED",
        "cancelled": "CANCELED",
    },
    extensions=(
        Extension(
            "PENDING",
            "FAILED",
            "a run with a timeout of its own, which this format has not, may fail before a worker claims anything",
        ),
        Extension("PENDING", "RUNNING", "a gate opened, or a step was settled, before any worker claimed a step"),
        Extension(
            "WAITING_APPROVAL",
            "RUNNING",
            "a message, a manual completion, a rejection or a deadline moved it, or a pause ended",
        ),
        Extension("RUNNING", "SUCCEEDED", "every step settled, and some were left out: they have not SUCCEEDED"),
        Extension("WAITING_APPROVAL", "SUCCEEDED", "the last gate was left out, or other steps were"),
        Extension("RUNNING", "FAILED", "a gate rejected or expired, the run timed out, or an undo followed a cancel"),
        Extension(
            "WAITING_APPROVAL",
            "FAILED",
            "the seed has no reject: the gate was rejected or expired",
            "Gate refused",
            ("rejected*", "deadline_passed*"),
        ),
        Extension(
            "WAITING_APPROVAL",
            "FAILED",
            "the seed holds no step: a person failed one that had no attempt left",
            "Held step failed",
            ("operator_failed*",),
        ),
        Extension(
            "WAITING_APPROVAL", "FAILED", "the run timed out while it waited, or an undo followed a cancel", when=ENDED
        ),
    ),
)

STEP = MachineView(
    noun="step",
    states=("PENDING", "RUNNING", "WAITING_APPROVAL", "SUCCEEDED", "FAILED", "CANCELED"),
    terminal=frozenset({"SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"}),
    arrows=STEP_ARROWS,
    forbidden=STEP_FORBIDDEN,
    shows={
        "pending": "PENDING",
        "ready": "PENDING",
        "running": "RUNNING",
        "retrying": "PENDING",
        "awaiting_approval": "WAITING_APPROVAL",
        "succeeded": "SUCCEEDED",
        "failed": "FAILED",
        "skipped": "SKIPPED",
        "cancelled": "CANCELED",
    },
    extra={"SKIPPED": "a step that was left out, or whose failure was tolerated, has not SUCCEEDED and fails no run"},
    extensions=(
        Extension("PENDING", "SKIPPED", "its condition was false, or a step it needs was left out"),
        Extension("RUNNING", "SKIPPED", "it failed for good under `on_failure: skip`, or a person skipped it"),
        Extension(
            "WAITING_APPROVAL", "SKIPPED", "a gate refused under `on_failure: skip`, or a person skipped a held step"
        ),
        Extension(
            "WAITING_APPROVAL", "FAILED", "the seed has no reject: a gate is refused, or a person fails a held step"
        ),
        Extension("WAITING_APPROVAL", "SUCCEEDED", "its deadline passed, and says that this approves the gate"),
        Extension("WAITING_APPROVAL", "PENDING", "a held step was approved or is retried, and is now a worker's"),
        Extension(
            "RUNNING",
            "WAITING_APPROVAL",
            "no attempt is left, or policy holds the next one, or its agent reports governance: a person decides",
        ),
        Extension(
            "PENDING",
            "FAILED",
            "denied by policy (also before a retry), condition broken, a wait past its deadline, or a child failed",
        ),
        Extension(
            "PENDING",
            "SUCCEEDED",
            "a message arrived, a sleep is over, or a child succeeded; no worker runs such a step",
        ),
        Extension("PENDING", "WAITING_APPROVAL", "policy holds the step for approval; it is no approval step"),
        Extension(
            "RUNNING",
            "SUCCEEDED",
            "a person completed it, its children succeeded, or the message of a `wait:` step arrived",
        ),
        Extension(
            "RUNNING", "PENDING", "the worker handed it back, or its wait is over (also for children); nothing failed"
        ),
        Extension(
            "RUNNING",
            "FAILED",
            "an error that is never retried ends the step with attempts left",
            "Terminal failure",
            ("not_retryable", "lost_too_often"),
        ),
        Extension(
            "RUNNING",
            "FAILED",
            "its rules or its children failed, a deadline passed, or a person completed it as failed",
            when=SETTLED,
        ),
        Extension(
            "RUNNING",
            "FAILED",
            "its worker was lost, and policy denied another attempt, or a person failed the step",
            when=("denied", "operator_failed"),
        ),
        Extension("RUNNING", "RUNNING", "its handler is done and another worker takes over its rules alone"),
        Extension(
            None,
            "SUCCEEDED",
            "an earlier run finished it, and this one takes its result by reference",
            when=("adopted",),
        ),
        Extension(
            None, "SKIPPED", "an earlier run left it out, and this one takes that over", when=("adopted_skipped",)
        ),
        *(
            Extension(
                state,
                "CANCELED",
                "no cancel: the run failed or timed out, or a person left the step out",
                "Run stopped",
            )
            for state in ("PENDING", "RUNNING", "WAITING_APPROVAL")
        ),
    ),
    # The seed leaves a stale step RUNNING until a worker reclaims it, and that claim is an arrow of its own. A lost
    # lease is not a reported failure, so it does not show as the retry's RUNNING → PENDING.
    quiet=frozenset({"lease_lost", "retry_due"}),
    repeats=frozenset({"claimed"}),
)

MOVING = frozenset({"ready", "running", "validating", "retrying"})
WAITING = "WAITING_APPROVAL"


class GateView(ShownRunView):
    """WAITING_APPROVAL means that a gate is open and no step is runnable.

    Our run resumes before the gate itself has settled, which the seed does not distinguish: the shown state stays until
    something else changes. The approval of the last gate therefore shows as WAITING_APPROVAL → SUCCEEDED, as in the
    seed's table. A run that is blocked only on messages or manual completions shows RUNNING. A pause shows nothing.
    """

    def __init__(self, view: MachineView) -> None:
        super().__init__(view)
        self._gates: set[str] = set()

    def feed(self, seen: Seen) -> str | None:
        if seen.kind == "step":
            return self._after_step(seen)
        before, after = self.state, super().feed(seen)
        if seen.kind != "run":
            return after
        if seen.target == "blocked":
            return WAITING if self._gates else "RUNNING"
        if (before, seen.target) == ("paused", "running") and self.shown == WAITING and self._gates:
            return self.shown
        return self.shown if (before, seen.target) == ("blocked", "running") else after

    def _after_step(self, seen: Seen) -> str | None:
        if seen.target == "awaiting_approval":
            self._gates.add(seen.name)
        else:
            self._gates.discard(seen.name)
        resumes = self.state in {"running", "validating"} and self.shown == WAITING and seen.target in MOVING
        return "RUNNING" if resumes else self.shown


JUDGED = JudgedDialect(
    name="run",
    seed="001",
    title="Run service: templates, claims, retries, reclaims, approvals",
    run=RUN,
    step=STEP,
    run_view=GateView,
    invariants=INVARIANTS,
    defaults=DEFAULTS,
)
