"""The action dialect as plain data: seed 003's action lifecycle, RunV1's run, and the mapping from the canonical
machine.

No kernel import and no front end: the judge reads this file. Seed 003 has no run machine of its own, so its runs follow
the RunV1 of its companions; open questions are answered by the design.
"""

# ruff: noqa: E501 - a machine is a table: its rows stay aligned, one line each

from __future__ import annotations

from stepkeep.dialects.action.defaults import DEFAULTS
from stepkeep.dialects.action.invariants import INVARIANTS
from stepkeep.dialects.dialect import Judged
from stepkeep.dialects.machine import ANY, Arrow, Extension, Forbidden, MachineView
from stepkeep.dialects.projection import RunView, Seen

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
        Forbidden("Succeeded",                  ANY,                          "003 §2 rule 2: single-shot, terminal"),
        Forbidden("Failed",                     ANY,                          "003 §2 rule 2: single-shot, terminal"),
        Forbidden("Cancelled",                  ANY,                          "003 §2 rule 2: single-shot, terminal"),
        Forbidden("Pending",                    "Succeeded",                  "003 §2: it runs before it succeeds"),
        Forbidden("Pending",                    "WaitingForManualCompletion", "003 §2 rule 3: only from Running"),
        Forbidden("Running",                    "Pending",                    "003 §2: there is no way back"),
        Forbidden("WaitingForManualCompletion", "Running",                    "003 §2 rule 4: only a signal ends it"),
        Forbidden("WaitingForManualCompletion", "Pending",                    "003 §2: there is no way back"),
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
        Forbidden("Succeeded",          ANY,                  "RunV1: terminal"),
        Forbidden("Failed",             ANY,                  "RunV1: terminal"),
        Forbidden("Cancelled",          ANY,                  "RunV1: terminal"),
        Forbidden("WaitingForApproval", "Failed",             "RunV1: a decision resumes the run before it can fail"),
        Forbidden("WaitingForApproval", "Succeeded",          "RunV1: a decision resumes the run before it can end"),
        Forbidden("Pending",            "WaitingForApproval", "RunV1: a run is Running before it waits"),
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


class ActionRun(RunView):
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


JUDGED = Judged(
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
