"""The action dialect as plain data: seed 003's action lifecycle, RunV1's run, and the mapping from the canonical
machine.

No kernel import and no front end: the judge reads this file. Seed 003 has no run machine of its own, so its runs follow
the RunV1 of its companions; open questions are answered by the design.
"""

# ruff: noqa: E501 - a machine is a table: its rows stay aligned, one line each

from __future__ import annotations

from stepkeep.dialects.action.invariants import INVARIANTS

# ruff: noqa: E501 - a table: one question per line
from stepkeep.dialects.dialect import Default, JudgedDialect
from stepkeep.dialects.machine import ANY, Arrow, Extension, ForbiddenPair, MachineView
from stepkeep.dialects.projection import Seen, ShownRunView

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


CANCELLED = ("cancelled",)
SIGNAL = ("completion_failed", "completion_cancelled")
"""Manual completion signals; rule 4 asks for one."""

# fmt: off
STEP = MachineView(
    noun="action",
    states=("Pending", "Running", "WaitingForManualCompletion", "Succeeded", "Failed", "Cancelled"),
    # §2 lists WaitingForManualCompletion among the terminal states and then gives it exits; it is not terminal.
    terminal=frozenset({"Succeeded", "Failed", "Cancelled"}),
    arrows=(
        Arrow(None,                         "Pending",                    "planned",           "003 §2"),
        Arrow("Pending",                    "Running",                    "eligible",          "003 §2 rule 1"),
        Arrow("Running",                    "Succeeded",                  "succeeded",         "003 §2 rule 2"),
        Arrow("Running",                    "Failed",                     "failed",            "003 §2 rule 2"),
        Arrow("Running",                    "Cancelled",                  "cancelled",         "003 §2 rule 2, §1.3", CANCELLED),
        Arrow("Running",                    "WaitingForManualCompletion", "completion_opened", "003 §2 rule 3"),
        Arrow("WaitingForManualCompletion", "Succeeded",                  "succeeded",         "003 §2 rule 4, §3.3"),
        Arrow("WaitingForManualCompletion", "Failed",                     "failed",            "003 §2 rule 4, §3.3", SIGNAL),
        Arrow("WaitingForManualCompletion", "Cancelled",                  "cancelled",         "003 §2 rule 4, §3.3", SIGNAL),
    ),
    shows={
        "pending":             "Pending",
        "running":             "Running",
        "awaiting_approval":   "Running",
        "awaiting_event":      "Running",
        "awaiting_completion": "WaitingForManualCompletion",
        "awaiting_children":   "Running",
        "succeeded":           "Succeeded",
        "failed":              "Failed",
        "skipped":             "Cancelled",
        "cancelled":           "Cancelled",
        # ready, retrying and validating are stutters: an action is Pending until its first claim (or until its gate
        # opens) and Running from then on, so a retry does not go back.
    },
    forbidden=(
        ForbiddenPair("Succeeded",                  ANY,                          "003 §2 rule 2: single-shot, terminal"),
        ForbiddenPair("Failed",                     ANY,                          "003 §2 rule 2: single-shot, terminal"),
        ForbiddenPair("Cancelled",                  ANY,                          "003 §2 rule 2: single-shot, terminal"),
        ForbiddenPair("Pending",                    "Succeeded",                  "003 §2: it runs before it succeeds"),
        ForbiddenPair("Pending",                    "WaitingForManualCompletion", "003 §2 rule 3: only from Running"),
        ForbiddenPair("Running",                    "Pending",                    "003 §2: there is no way back"),
        ForbiddenPair("WaitingForManualCompletion", "Running",                    "003 §2 rule 4: only a signal ends it"),
        ForbiddenPair("WaitingForManualCompletion", "Pending",                    "003 §2: there is no way back"),
    ),
    extensions=(
        Extension(
            "Pending", "Cancelled",
            "§1.3 schedules nothing after a failure, a run may be cancelled, a predecessor Cancelled by hand: "
            "what can never run must end. A skip shows like this too; the seed has no other ending for it.",
        ),
        Extension(
            "Pending", "Failed",
            "§3.1 knows a policy deny; it falls before the action runs, as does a condition that cannot be evaluated.",
        ),
        Extension("Running", "Cancelled", "A failure that other formats tolerate ends the action without failing its run."),
        Extension(
            "WaitingForManualCompletion", "Failed",
            "The deadline passed, or rules failed after the signal; without a deadline the action could wait forever.",
        ),
        Extension(
            "WaitingForManualCompletion", "Cancelled",
            "The run was cancelled or failed, or a failure is tolerated: a run that ends leaves no action waiting.",
        ),
        Extension(None, "Succeeded", "An earlier run ran it and it Succeeded there; this run takes its result by reference.", when=("adopted",)),
        Extension(None, "Cancelled", "An earlier run left it out, and this one takes that over.", when=("adopted_skipped",)),
    ),
)

RUN = MachineView(
    noun="run",
    states=("Pending", "Running", "WaitingForApproval", "Paused", "Succeeded", "Failed", "Cancelled"),
    terminal=frozenset({"Succeeded", "Failed", "Cancelled"}),
    arrows=(
        Arrow(None,                 "Pending",            "created",            "RunV1: createdAtIso"),
        Arrow("Pending",            "Running",            "started",            "RunV1 transitions"),
        Arrow("Pending",            "Cancelled",          "cancelled",          "RunV1 transitions"),
        Arrow("Running",            "Succeeded",          "succeeded",          "RunV1 transitions"),
        Arrow("Running",            "Failed",             "failed",             "RunV1 transitions; 003 §4"),
        Arrow("Running",            "Cancelled",          "cancelled",          "RunV1 transitions"),
        Arrow("Running",            "WaitingForApproval", "approval_requested", "RunV1 transitions"),
        Arrow("Running",            "Paused",             "paused",             "RunV1 transitions"),
        Arrow("WaitingForApproval", "Running",            "resumed",            "RunV1 transitions"),
        Arrow("WaitingForApproval", "Cancelled",          "cancelled",          "RunV1 transitions"),
        Arrow("Paused",             "Running",            "resumed",            "RunV1 transitions", ("unpaused",)),
        Arrow("Paused",             "Cancelled",          "cancelled",          "RunV1 transitions"),
    ),
    shows={
        "idle":         "Pending",
        "queued":       "Pending",
        "running":      "Running",
        "blocked":      "WaitingForApproval",  # only while an approval is open: see ActionRun
        "paused":       "Paused",  # only from Running: see ActionRun
        "validating":   "Running",
        "stopping":     "Running",
        "compensating": "Running",
        "succeeded":    "Succeeded",
        "failed":       "Failed",
        "rolled_back":  "Failed",
        "cancelled":    "Cancelled",
    },
    forbidden=(
        ForbiddenPair("Succeeded",          ANY,                  "RunV1: terminal"),
        ForbiddenPair("Failed",             ANY,                  "RunV1: terminal"),
        ForbiddenPair("Cancelled",          ANY,                  "RunV1: terminal"),
        ForbiddenPair("WaitingForApproval", "Failed",             "RunV1: a decision resumes the run before it can fail"),
        ForbiddenPair("WaitingForApproval", "Succeeded",          "RunV1: a decision resumes the run before it can end"),
        ForbiddenPair("Pending",            "WaitingForApproval", "RunV1: a run is Running before it waits"),
    ),
    # A run that stops or rolls back is Running until it has ended, so a rejected approval goes WaitingForApproval →
    # Running → Failed, which RunV1 allows.
    extensions=(
        Extension("Paused", "Running", "An action in flight failed, the time ran out, or a cancel asks for compensation: a paused run stops.", "stopped"),
    ),
)

HOOK = MachineView(
    noun="compensation",
    states=("Pending", "Running", "Succeeded", "Failed"),
    terminal=frozenset({"Succeeded", "Failed", "Cancelled"}),
    arrows=(
        Arrow(None,      "Pending",   "triggered", "003 §4: compensation is triggered when a run fails"),
        Arrow("Pending", "Running",   "invoked",   "003 §4 compensation hook contract"),
        Arrow("Running", "Succeeded", "succeeded", "003 §4 execution rules"),
        Arrow("Running", "Failed",    "failed",    "003 §4 execution rules"),
    ),
    shows={
        "pending":   "Pending",
        "running":   "Running",
        "awaiting_children": "Running",
        "succeeded": "Succeeded",
        "failed":    "Failed",
        "cancelled": "Cancelled",
        # ready and retrying are stutters, as for an action.
    },
    extra={"Cancelled": "in other formats a hook that fails may end the rollback before this one ran"},
    extensions=(
        Extension("Pending", "Cancelled", "In other formats a hook that fails may end the rollback; here all hooks are tried."),
    ),
)
# fmt: on


class ActionRun(ShownRunView):
    """A run waits for approval only while an approval is open: RunV1 has no status for other waits, so it stays.
    Only a Running run is shown as Paused: RunV1 pauses no other.

    A run of which no action Succeeded has not Succeeded: if all were Cancelled (by manual signals), so is the run.
    """

    def __init__(self, view: MachineView) -> None:
        super().__init__(view)
        self._gates: set[str] = set()
        self._succeeded = self._left_out = False

    def feed(self, seen: Seen) -> str | None:
        if seen.kind == "run" and seen.target == "succeeded" and self._left_out and not self._succeeded:
            self.state = seen.target
            return "Cancelled"
        if seen.kind == "step":
            self._succeeded = self._succeeded or (seen.phase == "main" and seen.target == "succeeded")
            self._left_out = self._left_out or (seen.phase == "main" and seen.target in ("skipped", "cancelled"))
            (self._gates.add if seen.target == "awaiting_approval" else self._gates.discard)(seen.name)
            return self.shown
        if seen.kind == "run" and (
            (seen.target == "blocked" and not self._gates) or (seen.target == "paused" and self.shown != "Running")
        ):
            self.state = seen.target
            return self.shown
        return super().feed(seen)


JUDGED = JudgedDialect(
    name="action",
    seed="003",
    title="Workflow action execution",
    run=RUN,
    step=STEP,
    undo=HOOK,
    run_view=ActionRun,
    invariants=INVARIANTS,
    defaults=DEFAULTS,
)
