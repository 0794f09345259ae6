"""The three machines of seed 004 as plain data: tasks, workstreams and workers, each arrow from the seed's sections.

The seed draws its transitions and then details most of them; both agree, so the drawing is the table. Transitions of
the engine beyond it are listed as extensions with their reasons. The judge reads this file; it knows nothing of the
engine.
"""

# ruff: noqa: E501 - a machine is a table: its rows stay aligned, one line each

from __future__ import annotations

from stepkeep.dialects.dialect import Default, JudgedDialect
from stepkeep.dialects.grounds import FINAL, Seen
from stepkeep.dialects.machine import ANY, Arrow, Extension, ForbiddenPair, MachineView
from stepkeep.dialects.projection import ShownRunView
from stepkeep.dialects.workstream.invariants import INVARIANTS
from stepkeep.dialects.workstream.planning import TASK_ENDED, WORKSTREAM_ENDED

TASKS, STREAMS, WORKERS = "004 Task Lifecycle", "004 Workstream Lifecycle", "004 Worker State Machine"
MONOTONIC = "004 Task invariant 2: terminal states cannot transition to non-terminal states"

CRITICAL = ("step_failed*", "rejected*", "deadline_passed*", "operator_failed*")
"""Grounds on which a task that aborts the workstream has failed."""

FINAL_STEPS = frozenset(f"stepkeep.worktree.{verb}" for verb in ("plan", "merge", "cleanup"))
"""The handlers of what a repository adds after the tasks: they are the final validation, and no tasks of the file."""

# fmt: off
STEP = MachineView(
    noun="task",
    states=("pending", "queued", "running", "validating", "completed", "failed", "retrying", "cancelled"),
    terminal=TASK_ENDED,
    arrows=(
        Arrow(None,         "pending",    "created",             f"{TASKS}, [*] → pending"),
        Arrow("pending",    "queued",     "scheduler_assigned",  f"{TASKS}, pending → queued", ("dependencies_met",)),
        Arrow("queued",     "running",    "worker_started",      f"{TASKS}, queued → running"),
        Arrow("running",    "validating", "execution_completed", f"{TASKS}, running → validating", ("completed",)),
        Arrow("running",    "retrying",   "execution_failed",    f"{TASKS}, running → retrying (retry_count < max_retries)"),
        Arrow("running",    "failed",     "execution_failed",    f"{TASKS}, running → failed (retry_count >= max_retries)", ("attempts_exhausted",)),
        Arrow("running",    "cancelled",  "user_cancelled",      f"{TASKS}, running → cancelled", ("run_cancelled", "completion_cancelled")),
        Arrow("retrying",   "queued",     "retry_delay_elapsed", f"{TASKS}, retrying → queued"),
        Arrow("validating", "completed",  "validation_passed",   f"{TASKS}, validating → completed"),
        Arrow("validating", "failed",     "validation_failed",   f"{TASKS}, validating → failed", ("rules_failed",)),
    ),
    forbidden=tuple(ForbiddenPair(state, ANY, MONOTONIC) for state in sorted(TASK_ENDED)),
    shows={
        "pending":    "pending",
        "ready":      "queued",
        "running":    "running",
        "validating": "validating",
        "retrying":   "retrying",
        "succeeded":  "completed",
        "failed":     "failed",
        "cancelled":  "cancelled",
        "skipped":    "cancelled",
    },
    extensions=(
        Extension("pending",    "cancelled", "A workstream is cancelled or fails before this task had its turn, or a task it depends on did not complete: the seed leaves such a task blocked forever, and a workstream must end."),
        Extension("queued",     "cancelled", "The seed cancels running tasks only; a cancelled or failed workstream cannot leave tasks in its queue."),
        Extension("retrying",   "cancelled", "The same for a task that waits for its next attempt."),
        Extension("validating", "cancelled", "The same for a task whose rules are being checked; also a validation that failed and is tolerated, in other formats."),
        Extension("running",    "queued",    "A worker that shuts down hands back what it cannot finish, which is no failure and counts as none; in other formats also a task that waited for a message, or for its children, or was held without an attempt left, and runs on."),
        Extension("running",    "failed",    "An error that is never retried (a program that cannot start, bad input) or a lost worker ends the task with retries left; the seed's guard counts retries only.", "not_retryable", ("not_retryable", "lost_too_often")),
        Extension("running",    "failed",    "In other formats only: a wait ran out, its children failed, or a person refused, completed or ended the task as failed.", when=("deadline_passed", "completion_failed", "children_failed", "operator_failed", "rejected")),
        Extension("running",    "cancelled", "The workstream failed or ran out of time, which is no cancel by a user; in other formats also a tolerated failure.", "workstream_ended"),
        Extension("running",    "validating", "In other formats only: a person completed the task, or its children succeeded; no worker reported its execution."),
        Extension("validating", "failed",    "The workers that checked its rules were lost too often, so no rule was found to fail."),
        Extension("queued",     "validating", "In other formats only: the elements of a held and approved map or loop succeeded; no worker runs their owner."),
        Extension("queued",     "failed",    "A person failed the task before a worker took it; in other formats also the elements of a held and approved map or loop failed."),
        Extension("pending",    "validating", "In other formats only: the child workflow of the task succeeded; no worker runs such a task."),
        Extension("pending",    "queued",    "A live policy held the task, and people approved; in other formats also a hold of the step."),
        Extension("pending",    "completed", "In other formats only: an approval was given, or a message that a step waits for arrived, without any worker."),
        Extension("pending",    "failed",    "A live policy denied the task, or held it and people refused; in other formats also a refused approval, a wait that ran out, a child workflow that failed, or a condition that could not be evaluated."),
        Extension("retrying",   "failed",    "A live policy denied another attempt, or held it and people refused it; or a person failed the task."),
        Extension("retrying",   "validating", "A person completed the task before its next attempt; no worker reported its execution."),
        Extension("retrying",   "completed", "In other formats only: policy held another attempt; a hold shows what was shown before it."),
        Extension("running",    "completed", "In other formats only: a wait shows what was shown before it, so where that was running, its message completes it."),
        Extension(None,         "completed", "An earlier workstream completed it, and this one takes its result by reference.", when=("adopted",)),
        Extension(None,         "cancelled", "In other formats only: an earlier run left it out, and this one takes that over.", when=("adopted_skipped",)),
    ),
)

RUN = MachineView(
    noun="workstream",
    states=("planned", "ready", "executing", "validating", "completed", "failed", "cancelled"),
    terminal=WORKSTREAM_ENDED,
    arrows=(
        Arrow(None,         "planned",    "created",              f"{STREAMS}, [*] → planned"),
        Arrow("planned",    "ready",      "all_tasks_created",    f"{STREAMS}, planned → ready"),
        Arrow("ready",      "executing",  "first_task_started",   f"{STREAMS}, ready → executing", ("first_claim",)),
        Arrow("executing",  "validating", "all_tasks_completed",  f"{STREAMS}, executing → validating", ("all_succeeded",)),
        Arrow("executing",  "failed",     "critical_task_failed", f"{STREAMS}, executing → failed", CRITICAL),
        Arrow("validating", "completed",  "validation_passed",    f"{STREAMS}, validating → completed"),
        Arrow("validating", "failed",     "validation_failed",    f"{STREAMS}, validating → failed", ("rules_failed", "step_failed")),
        Arrow("planned",    "cancelled",  "user_cancelled",       f"{STREAMS}, planned → cancelled"),
        Arrow("ready",      "cancelled",  "user_cancelled",       f"{STREAMS}, ready → cancelled"),
        Arrow("executing",  "cancelled",  "user_cancelled",       f"{STREAMS}, executing → cancelled"),
    ),
    forbidden=tuple(ForbiddenPair(state, ANY, f"{STREAMS}, States: terminal") for state in sorted(WORKSTREAM_ENDED)),
    shows={
        "idle":        "planned",
        "queued":      "ready",
        "running":     "executing",
        "blocked":     "executing",
        "validating":  "validating",
        "succeeded":   "completed",
        "failed":      "failed",
        "rolled_back": "failed",
        "cancelled":   "cancelled",
    },
    # A conflict holds the merge, and the workstream stays in its final validation.
    sticky={"validating": frozenset({"executing"})},
    # ready → executing has the guard that a task transitioned to `running`.
    follows=frozenset({"first_claim"}),
    extensions=(
        Extension("ready",      "executing", "A live policy held or denied a task before a worker started one; in other formats also a gate that opened, or a step that was settled."),
        Extension("executing",  "validating", "In other formats only: every task has ended, and some were left out."),
        Extension("executing",  "failed",    "Tasks failed and none of them is critical: what could run has run, and the workstream has failed.", "task_failed", ("steps_failed",)),
        Extension("executing",  "failed",    "max_duration_seconds ran out; no task had to fail for that. In other formats also an undo after a cancel.", "time_limit_exceeded", ("timed_out", "undo_requested", "rules_failed")),
        Extension("validating", "failed",    "max_duration_seconds ran out while the final validation ran. In other formats also an undo after a cancel."),
        Extension("ready",      "failed",    "max_duration_seconds ran out before a worker took the first task."),
        Extension("validating", "cancelled", "A cancel may come while the final validation runs; the seed names every earlier state and must have meant this one."),
    ),
)

WORKER = MachineView(
    noun="worker",
    states=("initializing", "idle", "busy", "unresponsive", "shutdown"),
    terminal=frozenset({"shutdown"}),
    arrows=(
        Arrow(None,           "initializing", "created",                f"{WORKERS}, [*] → initializing"),
        Arrow("initializing", "idle",         "registration_complete",  f"{WORKERS}, initializing → idle"),
        Arrow("idle",         "busy",         "task_assigned",          f"{WORKERS}, idle → busy"),
        Arrow("busy",         "idle",         "task_completed",         f"{WORKERS}, busy → idle"),
        Arrow("busy",         "unresponsive", "health_check_timeout",   f"{WORKERS}, busy → unresponsive"),
        Arrow("unresponsive", "idle",         "health_check_recovered", f"{WORKERS}, unresponsive → idle"),
        Arrow("unresponsive", "shutdown",     "max_timeout_exceeded",   f"{WORKERS}, unresponsive → shutdown"),
        Arrow("idle",         "shutdown",     "shutdown_requested",     f"{WORKERS}, idle → shutdown"),
        Arrow("busy",         "shutdown",     "shutdown_requested",     f"{WORKERS}, busy → shutdown (after_task_complete)"),
    ),
    forbidden=(ForbiddenPair("shutdown", ANY, f"{WORKERS}, States: shutdown is terminal"),),
    # A draining worker stops claiming and finishes its tasks. The seed has no state for it: a busy one stays shown as
    # busy, and one without tasks was never busy.
    shows={
        "initializing": "initializing",
        "idle":         "idle",
        "busy":         "busy",
        "unresponsive": "unresponsive",
        "shutdown":     "shutdown",
    },
    extensions=(
        Extension("idle",         "unresponsive", "A worker that holds nothing can fall silent, too; it is not given new tasks."),
        Extension("initializing", "shutdown",     "A worker that cannot start has nothing to recover from."),
    ),
)

DEFAULTS = (
    Default("What does the limit count?", "max_retries counts retries, 3 unless written: stored as max_retries + 1 attempts", "004 Task Lifecycle, running → retrying"),
    Default("Backoff", "2^retry_count seconds, where retry_count was incremented first: 2 s, 4 s, 8 s …, no cap; retry_delay_seconds replaces the first 2 s", "004 Task Lifecycle, running → retrying"),
    Default("Is a timeout retried?", "yes: a task that ran out of timeout_seconds failed like any other", "004 Task Lifecycle, running → retrying"),
    Default("Validation failure", "never retried: validating has no arrow to retrying", "004 Task Lifecycle, validating → failed"),
    Default("Attempt timeout", "600 s", "004 Task Lifecycle, queued → running: start task timeout timer"),
    Default("Which policy applies?", "a critical task aborts the workstream, any other continues; a task is not critical unless it says so", "004 Workstream Lifecycle, executing → failed"),
    Default("Failures that do not stop the run", "non-critical = continue: everything that can still run does, then the workstream has failed", "004 State Derivation from Tasks"),
    Default("Is a skipped dependency satisfied?", "no: only a completed task satisfies; what depends on any other ends cancelled", "004 Task invariant 6"),
    Default("Sequence or graph?", "a graph: a task without dependencies is a root", "004 Task Lifecycle, pending → queued"),
    Default("Order within a run", "ready tasks by task_id", "004 See Also: Scheduling"),
    Default("When does rollback start?", "never: completed tasks stay as they are", "004 See Also: Recovery"),
    Default("Who may run a task?", "a worker with all of worker_requirements.capabilities", "004 Task Lifecycle, queued → running"),
    Default("Cancel", "from any state that is not terminal; for tasks that are not running this is an extension", "004 Task Lifecycle, States"),
    Default("Run timeout", "max_duration_seconds, none unless written; it ends failed", "004 Workstream Lifecycle, ready → executing: start workstream timer"),
)
# fmt: on


class WorkstreamView(ShownRunView):
    """A workstream enters `validating` when the first step of its repository after the tasks opens: the merge plan, the
    merge and the clean-up belong to the final validation. One that adopted all its tasks begins with the claim of such a
    step; there is one arrow for a hop, so that it enters `validating` with the next one."""

    def feed(self, seen: Seen) -> str | None:
        shown = super().feed(seen)
        begins = seen.phase == FINAL and seen.target not in ("pending", "running", "skipped", "cancelled")
        return "validating" if begins and shown == "executing" else shown


JUDGED = JudgedDialect(
    name="workstream",
    seed="004",
    title="Workstreams of tasks: workers, validation, criticality and the transition log",
    run=RUN,
    step=STEP,
    worker=WORKER,
    run_view=WorkstreamView,
    final=FINAL_STEPS,
    invariants=INVARIANTS,
    defaults=DEFAULTS,
)
