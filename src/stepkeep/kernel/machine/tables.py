"""The four state machines as tables: each (state, trigger) has at most one row; anything without a row is refused.

Guards elsewhere in the kernel choose the trigger; only these tables choose the state. They also feed the schema's
checks, the diagrams in the documentation and the exhaustive tests. `from` is None for creation. Each row cites its
source: a seed and its section (000 to 004), or the design where no seed has the arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from stepkeep.kernel.errors import IllegalTransition
from stepkeep.kernel.machine.states import STEP_TERMINAL, AttemptState, RunState, StepState, WorkerState

S = TypeVar("S", bound=StrEnum)
T = TypeVar("T", bound=StrEnum)


class RunTrigger(StrEnum):
    CREATED = "created"
    STARTED = "started"
    PROGRESSED = "progressed"
    WAITING = "waiting"
    RESUMED = "resumed"
    STEPS_SETTLED = "steps_settled"
    RULES_PASSED = "rules_passed"
    STEP_FAILED = "step_failed"
    STEPS_FAILED = "steps_failed"
    RULES_FAILED = "rules_failed"
    TIMED_OUT = "timed_out"
    UNDO_REQUESTED = "undo_requested"
    STOPPED_FAILED = "stopped_failed"
    STOPPED_CANCELLED = "stopped_cancelled"
    UNDO_STARTED = "undo_started"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"
    CANCELLED = "cancelled"
    PAUSED = "paused"
    UNPAUSED = "unpaused"
    UNPAUSED_QUEUED = "unpaused_queued"


class StepTrigger(StrEnum):
    PLANNED = "planned"
    DEPENDENCIES_MET = "dependencies_met"
    GATE_OPENED = "gate_opened"
    HELD = "held"
    WAIT_OPENED = "wait_opened"
    CONDITION_FALSE = "condition_false"
    CONDITION_BROKEN = "condition_broken"
    DEPENDENCY_UNMET = "dependency_unmet"
    DENIED = "denied"
    DENIED_TOLERATED = "denied_tolerated"
    CLAIMED = "claimed"
    RELEASED = "released"
    COMPLETED = "completed"
    RULES_PASSED = "rules_passed"
    RULES_FAILED = "rules_failed"
    RULES_FAILED_TOLERATED = "rules_failed_tolerated"
    WAITED = "waited"
    COMPLETION_REQUESTED = "completion_requested"
    RETRY_SCHEDULED = "retry_scheduled"
    LEASE_LOST = "lease_lost"
    RETRY_DUE = "retry_due"
    FAILED = "failed"
    FAILED_TOLERATED = "failed_tolerated"
    MESSAGE_ARRIVED = "message_arrived"
    WAIT_SATISFIED = "wait_satisfied"
    SLEPT = "slept"
    DEADLINE_HANDED_OVER = "deadline_handed_over"
    DEADLINE_PASSED = "deadline_passed"
    DEADLINE_TOLERATED = "deadline_tolerated"
    APPROVED = "approved"
    HOLD_APPROVED = "hold_approved"
    REJECTED = "rejected"
    REJECTED_TOLERATED = "rejected_tolerated"
    DEADLINE_APPROVED = "deadline_approved"
    HOLD_DEADLINE_APPROVED = "hold_deadline_approved"
    DEADLINE_SKIPPED = "deadline_skipped"
    DECISION_RECORDED = "decision_recorded"
    CHANGES_REQUESTED = "changes_requested"
    REASSIGNED = "reassigned"
    ESCALATED = "escalated"
    REMINDED = "reminded"
    HELD_EXHAUSTED = "held_exhausted"
    OPERATOR_RETRIED = "operator_retried"
    HELD_UNFIT = "held_unfit"
    CODE_CHANGED = "code_changed"
    OPERATOR_SKIPPED = "operator_skipped"
    OPERATOR_COMPLETED = "operator_completed"
    OPERATOR_FAILED = "operator_failed"
    OPERATOR_FAILED_TOLERATED = "operator_failed_tolerated"
    COMPLETION_SUCCEEDED = "completion_succeeded"
    COMPLETION_FAILED = "completion_failed"
    COMPLETION_FAILED_TOLERATED = "completion_failed_tolerated"
    COMPLETION_CANCELLED = "completion_cancelled"
    CHILDREN_STARTED = "children_started"
    CHILDREN_SUCCEEDED = "children_succeeded"
    CHILDREN_SETTLED = "children_settled"
    CHILDREN_FAILED = "children_failed"
    CHILDREN_FAILED_TOLERATED = "children_failed_tolerated"
    TOKEN_REISSUED = "token_reissued"  # noqa: S105 - a word, not a token
    ADOPTED = "adopted"
    ADOPTED_SKIPPED = "adopted_skipped"
    CANCELLED = "cancelled"


class WorkerTrigger(StrEnum):
    STARTED = "started"
    REGISTERED = "registered"
    START_FAILED = "start_failed"
    TASK_ASSIGNED = "task_assigned"
    TASKS_FINISHED = "tasks_finished"
    HEARTBEATS_MISSED = "heartbeats_missed"
    HEARD_AGAIN = "heard_again"
    GIVEN_UP = "given_up"
    DRAIN_REQUESTED = "drain_requested"
    DRAINED = "drained"


class AttemptTrigger(StrEnum):
    OPENED = "opened"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"
    WAITED = "waited"
    RELEASED = "released"


class Row(NamedTuple, Generic[S, T]):
    """One arrow: source state, trigger, target state, and the source that requires it."""

    source: S | None
    trigger: T
    target: S
    cites: str


class Machine(Generic[S, T]):
    """A table with its lookup: `target(state, trigger)`, or `IllegalTransition`."""

    def __init__(self, name: str, states: type[S], triggers: type[T], rows: Iterable[Row[S, T]]) -> None:
        self.name, self.states, self.triggers, self.rows = name, states, triggers, tuple(rows)
        self.targets: Mapping[tuple[S | None, T], S] = {(row.source, row.trigger): row.target for row in self.rows}
        if len(self.targets) != len(self.rows):
            raise IllegalTransition(f"the {name} table has two rows for one (state, trigger) pair")

    def target(self, state: S | None, trigger: T) -> S:
        try:
            return self.targets[state, trigger]
        except KeyError:
            raise IllegalTransition(f"a {self.name} cannot be {trigger} while it is {state}") from None

    def allows(self, state: S | None, trigger: T) -> bool:
        return (state, trigger) in self.targets


R, S_, W, A = RunState, StepState, WorkerState, AttemptState
RT, ST, WT, AT = RunTrigger, StepTrigger, WorkerTrigger, AttemptTrigger

# fmt: off
RUN: Machine[RunState, RunTrigger] = Machine("run", RunState, RunTrigger, [
    Row(None,           RT.CREATED,           R.IDLE,         "000 §1 idle: initial state after creation"),
    Row(R.IDLE,         RT.STARTED,           R.QUEUED,       "000 §1 idle → queued; never idle → executing"),
    Row(R.QUEUED,       RT.PROGRESSED,        R.RUNNING,      "000 §1 queued → executing; 001 PENDING → RUNNING"),
    Row(R.RUNNING,      RT.WAITING,           R.BLOCKED,      "000 §1 executing → blocked; 001 RUNNING → WAITING_APPROVAL"),
    Row(R.BLOCKED,      RT.RESUMED,           R.RUNNING,      "000 §1 blocked → executing; 001 WAITING_APPROVAL → RUNNING"),
    Row(R.RUNNING,      RT.STEPS_SETTLED,     R.VALIDATING,   "004 workstream executing → validating"),
    Row(R.VALIDATING,   RT.RULES_PASSED,      R.SUCCEEDED,    "004 validating → completed; 002 RUNNING → COMPLETED"),
    Row(R.RUNNING,      RT.STEP_FAILED,       R.STOPPING,     "000 §3.3 abort, compensate; 003 §1.3 fail-fast"),
    Row(R.RUNNING,      RT.STEPS_FAILED,      R.STOPPING,     "design §3: all settled and some failed under continue"),
    Row(R.VALIDATING,   RT.RULES_FAILED,      R.STOPPING,     "004 workstream validating → failed"),
    Row(R.QUEUED,       RT.TIMED_OUT,         R.STOPPING,     "000 §3.4 workflow timeout triggers failurePolicy"),
    Row(R.RUNNING,      RT.TIMED_OUT,         R.STOPPING,     "000 §3.4 workflow timeout triggers failurePolicy"),
    Row(R.BLOCKED,      RT.TIMED_OUT,         R.STOPPING,     "000 §3.4 blocked counts against the timeout"),
    Row(R.VALIDATING,   RT.TIMED_OUT,         R.STOPPING,     "000 §3.4 workflow timeout triggers failurePolicy"),
    Row(R.QUEUED,       RT.UNDO_REQUESTED,    R.STOPPING,     "design §3: cancel with compensation"),
    Row(R.RUNNING,      RT.UNDO_REQUESTED,    R.STOPPING,     "design §3: cancel with compensation"),
    Row(R.BLOCKED,      RT.UNDO_REQUESTED,    R.STOPPING,     "design §3: cancel with compensation"),
    Row(R.VALIDATING,   RT.UNDO_REQUESTED,    R.STOPPING,     "design §3: cancel with compensation"),
    Row(R.STOPPING,     RT.STOPPED_FAILED,    R.FAILED,       "000 §1 executing → failed; 001 RUNNING → FAILED"),
    Row(R.STOPPING,     RT.STOPPED_CANCELLED, R.CANCELLED,    "design §3: a cancel was the cause"),
    Row(R.STOPPING,     RT.UNDO_STARTED,      R.COMPENSATING, "000 §1 executing → compensating; 003 §4"),
    Row(R.COMPENSATING, RT.UNDONE,            R.ROLLED_BACK,  "000 §1 compensating → completed (rollback)"),
    Row(R.COMPENSATING, RT.UNDO_FAILED,       R.FAILED,       "000 §1 compensating → failed (partial); 003 §4"),
    Row(R.IDLE,         RT.CANCELLED,         R.CANCELLED,    "004 workstream planned → cancelled"),
    Row(R.QUEUED,       RT.CANCELLED,         R.CANCELLED,    "001 PENDING → CANCELED"),
    Row(R.RUNNING,      RT.CANCELLED,         R.CANCELLED,    "001 RUNNING → CANCELED"),
    Row(R.BLOCKED,      RT.CANCELLED,         R.CANCELLED,    "001 WAITING_APPROVAL → CANCELED"),
    Row(R.VALIDATING,   RT.CANCELLED,         R.CANCELLED,    "design §3: from any non-terminal state"),
    Row(R.QUEUED,       RT.PAUSED,            R.PAUSED,       "design part 2 §6: nothing is claimed"),
    Row(R.RUNNING,      RT.PAUSED,            R.PAUSED,       "003 RunV1 Running → Paused"),
    Row(R.BLOCKED,      RT.PAUSED,            R.PAUSED,       "design part 2 §6: what waits goes on waiting"),
    Row(R.PAUSED,       RT.UNPAUSED,          R.RUNNING,      "003 RunV1 Paused → Running"),
    Row(R.PAUSED,       RT.UNPAUSED_QUEUED,   R.QUEUED,       "design part 2 §6: nothing had begun before the pause"),
    Row(R.PAUSED,       RT.STEP_FAILED,       R.STOPPING,     "design part 2 §6: what is in flight settles, and may fail"),
    Row(R.PAUSED,       RT.TIMED_OUT,         R.STOPPING,     "design part 2 §6: the timeout goes on during a pause"),
    Row(R.PAUSED,       RT.UNDO_REQUESTED,    R.STOPPING,     "design §3: cancel with compensation"),
    Row(R.PAUSED,       RT.CANCELLED,         R.CANCELLED,    "003 RunV1 Paused → Cancelled"),
])

STEP: Machine[StepState, StepTrigger] = Machine("step", StepState, StepTrigger, [
    Row(None,                   ST.PLANNED,                     S_.PENDING,             "002 start flow: all steps are inserted at start"),
    Row(None,                   ST.ADOPTED,                     S_.SUCCEEDED,           "design part 2 §6: an earlier run finished it; taken by reference"),
    Row(None,                   ST.ADOPTED_SKIPPED,             S_.SKIPPED,             "design part 2 §6: an earlier run skipped it; taken by reference"),
    Row(S_.PENDING,             ST.DEPENDENCIES_MET,            S_.READY,               "002 PENDING → READY; 004 pending → queued"),
    Row(S_.PENDING,             ST.GATE_OPENED,                 S_.AWAITING_APPROVAL,   "001 PENDING → WAITING_APPROVAL"),
    Row(S_.PENDING,             ST.HELD,                        S_.AWAITING_APPROVAL,   "000 §3.1 governance: block and escalate"),
    Row(S_.PENDING,             ST.WAIT_OPENED,                 S_.AWAITING_EVENT,      "design §3: a wait step opens; 002 WAITING"),
    Row(S_.PENDING,             ST.CONDITION_FALSE,             S_.SKIPPED,             "design §3: condition false"),
    Row(S_.PENDING,             ST.CONDITION_BROKEN,            S_.FAILED,              "000 §3.1 validation: abort the step, log the error"),
    Row(S_.PENDING,             ST.DEPENDENCY_UNMET,            S_.SKIPPED,             "000 §2 skipped due to upstream failure"),
    Row(S_.PENDING,             ST.DENIED,                      S_.FAILED,              "000 §3.1 governance; 003 §3.1 policy deny"),
    Row(S_.PENDING,             ST.DENIED_TOLERATED,            S_.SKIPPED,             "000 §3.3 skip; 003 §3.1 policy deny, tolerated"),
    Row(S_.READY,               ST.CLAIMED,                     S_.RUNNING,             "002 claim READY → RUNNING; 001 worker claim"),
    Row(S_.RUNNING,             ST.RELEASED,                    S_.READY,               "design §3: released by a draining worker"),
    Row(S_.RUNNING,             ST.COMPLETED,                   S_.VALIDATING,          "004 running → validating"),
    Row(S_.VALIDATING,          ST.RULES_PASSED,                S_.SUCCEEDED,           "004 validating → completed"),
    Row(S_.VALIDATING,          ST.RULES_FAILED,                S_.FAILED,              "004 validating → failed"),
    Row(S_.VALIDATING,          ST.RULES_FAILED_TOLERATED,      S_.SKIPPED,             "design §3: failed and tolerated"),
    Row(S_.VALIDATING,          ST.LEASE_LOST,                  S_.VALIDATING,          "design §3: the lease is lost, the rules alone run again"),
    Row(S_.VALIDATING,          ST.RELEASED,                    S_.VALIDATING,          "design §3: released by a draining worker"),
    Row(S_.VALIDATING,          ST.CLAIMED,                     S_.VALIDATING,          "design §3: the rules alone run again"),
    Row(S_.VALIDATING,          ST.FAILED,                      S_.FAILED,              "design §4: max_losses ran out, category poison"),
    Row(S_.VALIDATING,          ST.FAILED_TOLERATED,            S_.SKIPPED,             "design §4: max_losses ran out, tolerated"),
    Row(S_.RUNNING,             ST.WAITED,                      S_.AWAITING_EVENT,      "002 B: RUNNING → WAITING"),
    Row(S_.RUNNING,             ST.COMPLETION_REQUESTED,        S_.AWAITING_COMPLETION, "003 §2 Running → WaitingForManualCompletion"),
    Row(S_.RUNNING,             ST.RETRY_SCHEDULED,             S_.RETRYING,            "004 running → retrying; 002 C"),
    Row(S_.RUNNING,             ST.LEASE_LOST,                  S_.RETRYING,            "002 lease recovery; 001 reclaim"),
    Row(S_.RETRYING,            ST.RETRY_DUE,                   S_.READY,               "004 retrying → queued"),
    Row(S_.RETRYING,            ST.HELD,                        S_.AWAITING_APPROVAL,   "000 §3.1 governance: block and escalate, before a retry"),
    Row(S_.RETRYING,            ST.DENIED,                      S_.FAILED,              "000 §3.1 governance; 003 §3.1 policy deny, before a retry"),
    Row(S_.RETRYING,            ST.DENIED_TOLERATED,            S_.SKIPPED,             "000 §3.3 skip; a denial before a retry, tolerated"),
    Row(S_.RUNNING,             ST.FAILED,                      S_.FAILED,              "001 RUNNING → FAILED; 002 D"),
    Row(S_.RUNNING,             ST.FAILED_TOLERATED,            S_.SKIPPED,             "000 §3.3 skip"),
    Row(S_.AWAITING_EVENT,      ST.MESSAGE_ARRIVED,             S_.READY,               "002 wake-up WAITING → READY"),
    Row(S_.AWAITING_EVENT,      ST.DEADLINE_HANDED_OVER,        S_.READY,               "002 claim of timed-out WAITING steps"),
    Row(S_.AWAITING_EVENT,      ST.WAIT_SATISFIED,              S_.SUCCEEDED,           "design §3: a wait step's event arrived"),
    Row(S_.AWAITING_EVENT,      ST.SLEPT,                       S_.SUCCEEDED,           "design §3: a timer made something move; a sleep is over"),
    Row(S_.AWAITING_EVENT,      ST.DEADLINE_PASSED,             S_.FAILED,              "design §4: deadline of a wait"),
    Row(S_.AWAITING_EVENT,      ST.DEADLINE_TOLERATED,          S_.SKIPPED,             "design §4: deadline of a wait, tolerated"),
    Row(S_.AWAITING_APPROVAL,   ST.APPROVED,                    S_.SUCCEEDED,           "001 WAITING_APPROVAL → SUCCEEDED"),
    Row(S_.AWAITING_APPROVAL,   ST.HOLD_APPROVED,               S_.READY,               "design §3: policy-held step approved"),
    Row(S_.AWAITING_APPROVAL,   ST.REJECTED,                    S_.FAILED,              "design §4: rejection fails the gate"),
    Row(S_.AWAITING_APPROVAL,   ST.REJECTED_TOLERATED,          S_.SKIPPED,             "design §4: rejection, tolerated"),
    Row(S_.AWAITING_APPROVAL,   ST.DEADLINE_PASSED,             S_.FAILED,              "000 §1 timeout on blocked step"),
    Row(S_.AWAITING_APPROVAL,   ST.DEADLINE_TOLERATED,          S_.SKIPPED,             "design §4: deadline of a gate, tolerated"),
    Row(S_.AWAITING_APPROVAL,   ST.DEADLINE_APPROVED,           S_.SUCCEEDED,           "design part 2 §2: the gate declares approval at its deadline"),
    Row(S_.AWAITING_APPROVAL,   ST.HOLD_DEADLINE_APPROVED,      S_.READY,               "design part 2 §2: the same, of a held step"),
    Row(S_.AWAITING_APPROVAL,   ST.DEADLINE_SKIPPED,            S_.SKIPPED,             "design part 2 §2: the gate declares a skip at its deadline"),
    Row(S_.AWAITING_APPROVAL,   ST.DECISION_RECORDED,           S_.AWAITING_APPROVAL,   "design part 2 §2: counted, the quorum is not reached"),
    Row(S_.AWAITING_APPROVAL,   ST.CHANGES_REQUESTED,           S_.AWAITING_APPROVAL,   "003 ApprovalV1 Pending → RequestChanges → Pending"),
    Row(S_.AWAITING_APPROVAL,   ST.ESCALATED,                   S_.AWAITING_APPROVAL,   "design §3: stays, with new approvers and deadline"),
    Row(S_.AWAITING_APPROVAL,   ST.REASSIGNED,                  S_.AWAITING_APPROVAL,   "design part 3 §3: an operator names other approvers"),
    Row(S_.AWAITING_APPROVAL,   ST.REMINDED,                    S_.AWAITING_APPROVAL,   "design part 2 §2: stays, the approvers are told again"),
    Row(S_.RUNNING,             ST.HELD,                        S_.AWAITING_APPROVAL,   "000 §3.1 governance: block and escalate, as its agent reports"),
    Row(S_.RUNNING,             ST.HELD_EXHAUSTED,              S_.AWAITING_APPROVAL,   "design part 2 §2: no attempt is left and the step says hold"),
    Row(S_.AWAITING_APPROVAL,   ST.OPERATOR_RETRIED,            S_.READY,               "design part 2 §2: a person retries a held step"),
    Row(S_.RUNNING,             ST.HELD_UNFIT,                  S_.AWAITING_APPROVAL,   "design part 3 §6: the code of a flow does not fit what is recorded"),
    Row(S_.AWAITING_APPROVAL,   ST.CODE_CHANGED,                S_.READY,               "design part 3 §6: other code of a flow that holds is there"),
    Row(S_.AWAITING_APPROVAL,   ST.OPERATOR_SKIPPED,            S_.SKIPPED,             "design part 2 §2: a person skips a held step"),
    Row(S_.AWAITING_APPROVAL,   ST.OPERATOR_FAILED,             S_.FAILED,              "design part 2 §2: a person fails a held step"),
    Row(S_.AWAITING_APPROVAL,   ST.OPERATOR_FAILED_TOLERATED,   S_.SKIPPED,             "design part 2 §2: the same, tolerated"),
    Row(S_.AWAITING_APPROVAL,   ST.OPERATOR_COMPLETED,          S_.VALIDATING,          "design part 2 §6: a person completes a held step"),
    Row(S_.RETRYING,            ST.OPERATOR_SKIPPED,            S_.SKIPPED,             "design part 2 §6: a person skips a step that waits for its next attempt"),
    Row(S_.RETRYING,            ST.OPERATOR_FAILED,             S_.FAILED,              "design part 2 §6: a person fails it"),
    Row(S_.RETRYING,            ST.OPERATOR_FAILED_TOLERATED,   S_.SKIPPED,             "design part 2 §6: the same, tolerated"),
    Row(S_.RETRYING,            ST.OPERATOR_COMPLETED,          S_.VALIDATING,          "design part 2 §6: a person completes it"),
    Row(S_.READY,               ST.OPERATOR_SKIPPED,            S_.SKIPPED,             "design part 2 §6: a person skips a step that no worker takes"),
    Row(S_.READY,               ST.OPERATOR_FAILED,             S_.FAILED,              "design part 2 §6: a person fails it"),
    Row(S_.READY,               ST.OPERATOR_FAILED_TOLERATED,   S_.SKIPPED,             "design part 2 §6: the same, tolerated"),
    Row(S_.AWAITING_EVENT,      ST.OPERATOR_SKIPPED,            S_.SKIPPED,             "design part 2 §6: a person skips a step that waits for a message"),
    Row(S_.AWAITING_EVENT,      ST.OPERATOR_FAILED,             S_.FAILED,              "design part 2 §6: a person fails it"),
    Row(S_.AWAITING_EVENT,      ST.OPERATOR_FAILED_TOLERATED,   S_.SKIPPED,             "design part 2 §6: the same, tolerated"),
    Row(S_.AWAITING_EVENT,      ST.OPERATOR_COMPLETED,          S_.VALIDATING,          "design part 2 §6: a person completes it"),
    Row(S_.AWAITING_COMPLETION, ST.COMPLETION_SUCCEEDED,        S_.VALIDATING,          "003 §3.3 manual signal Succeeded"),
    Row(S_.AWAITING_COMPLETION, ST.COMPLETION_FAILED,           S_.FAILED,              "003 §3.3 manual signal Failed"),
    Row(S_.AWAITING_COMPLETION, ST.COMPLETION_FAILED_TOLERATED, S_.SKIPPED,             "design §3: manual signal Failed, tolerated"),
    Row(S_.AWAITING_COMPLETION, ST.COMPLETION_CANCELLED,        S_.CANCELLED,           "003 §3.3 manual signal Cancelled"),
    Row(S_.AWAITING_COMPLETION, ST.TOKEN_REISSUED,              S_.AWAITING_COMPLETION, "design §3: a lost token is replaced, with actor and reason"),
    Row(S_.AWAITING_COMPLETION, ST.DEADLINE_PASSED,             S_.FAILED,              "design §3: deadline of a manual completion"),
    Row(S_.AWAITING_COMPLETION, ST.DEADLINE_TOLERATED,          S_.SKIPPED,             "design §3: the same, tolerated"),
    Row(S_.PENDING,             ST.CHILDREN_STARTED,            S_.AWAITING_CHILDREN,   "design part 2 §6: a child was started; no worker runs the step"),
    Row(S_.RUNNING,             ST.CHILDREN_STARTED,            S_.AWAITING_CHILDREN,   "design part 2 §6: the step waits for its children and gives its slot back"),
    Row(S_.READY,               ST.CHILDREN_STARTED,            S_.AWAITING_CHILDREN,   "design part 2 §6: a held step was approved and adds its segment"),
    Row(S_.AWAITING_CHILDREN,   ST.CHILDREN_SUCCEEDED,          S_.VALIDATING,          "design part 2 §6: all children settled acceptably"),
    Row(S_.AWAITING_CHILDREN,   ST.CHILDREN_SETTLED,            S_.READY,               "design part 2 §6: what a flow awaits has settled"),
    Row(S_.AWAITING_CHILDREN,   ST.CHILDREN_FAILED,             S_.FAILED,              "design part 2 §6: children failed"),
    Row(S_.AWAITING_CHILDREN,   ST.CHILDREN_FAILED_TOLERATED,   S_.SKIPPED,             "design part 2 §6: children failed, tolerated"),
    Row(S_.AWAITING_CHILDREN,   ST.DEADLINE_PASSED,             S_.FAILED,              "design part 2 §6: deadline of a step with children"),
    Row(S_.AWAITING_CHILDREN,   ST.DEADLINE_TOLERATED,          S_.SKIPPED,             "design part 2 §6: the same, tolerated"),
    *(Row(state, ST.CANCELLED, S_.CANCELLED, "001 PENDING / RUNNING / WAITING_APPROVAL → CANCELED")
      for state in StepState if state not in STEP_TERMINAL),
])

WORKER: Machine[WorkerState, WorkerTrigger] = Machine("worker", WorkerState, WorkerTrigger, [
    Row(None,             WT.STARTED,           W.INITIALIZING, "004 worker: starting up"),
    Row(W.INITIALIZING,   WT.REGISTERED,        W.IDLE,         "004 initializing → idle"),
    Row(W.INITIALIZING,   WT.START_FAILED,      W.SHUTDOWN,     "design §3: could not start"),
    Row(W.IDLE,           WT.TASK_ASSIGNED,     W.BUSY,         "004 idle → busy"),
    Row(W.BUSY,           WT.TASKS_FINISHED,    W.IDLE,         "004 busy → idle"),
    Row(W.IDLE,           WT.HEARTBEATS_MISSED, W.UNRESPONSIVE, "design §3: missed 3 heartbeats"),
    Row(W.BUSY,           WT.HEARTBEATS_MISSED, W.UNRESPONSIVE, "004 busy → unresponsive"),
    Row(W.UNRESPONSIVE,   WT.HEARD_AGAIN,       W.IDLE,         "004 unresponsive → idle, as a new incarnation"),
    Row(W.UNRESPONSIVE,   WT.GIVEN_UP,          W.SHUTDOWN,     "004 unresponsive → shutdown"),
    Row(W.IDLE,           WT.DRAIN_REQUESTED,   W.DRAINING,     "004 shutdown_requested"),
    Row(W.BUSY,           WT.DRAIN_REQUESTED,   W.DRAINING,     "004 shutdown_requested (after_task_complete)"),
    Row(W.DRAINING,       WT.HEARTBEATS_MISSED, W.UNRESPONSIVE, "design §3: died while draining"),
    Row(W.DRAINING,       WT.DRAINED,           W.SHUTDOWN,     "004 busy → shutdown, idle → shutdown"),
])

ATTEMPT: Machine[AttemptState, AttemptTrigger] = Machine("attempt", AttemptState, AttemptTrigger, [
    Row(None,   AT.OPENED,    A.OPEN,      "design §3: opened by the claim"),
    Row(A.OPEN, AT.SUCCEEDED, A.SUCCEEDED, "001 executor success"),
    Row(A.OPEN, AT.FAILED,    A.FAILED,    "002 Retry, Dead"),
    Row(A.OPEN, AT.TIMED_OUT, A.TIMED_OUT, "003 §3.2 attempt result is timeout"),
    Row(A.OPEN, AT.LOST,      A.LOST,      "002 LEASE_EXPIRED"),
    Row(A.OPEN, AT.CANCELLED, A.CANCELLED, "001 run cancel"),
    Row(A.OPEN, AT.WAITED,    A.WAITED,    "002 Waiting"),
    Row(A.OPEN, AT.RELEASED,  A.RELEASED,  "design §3: nothing counted"),
])
# fmt: on

MACHINES = (RUN, STEP, WORKER, ATTEMPT)
