"""Everything that can happen to a run in a given state: timers, workers, people and messages.

An action is an event for `decide`, or something that the engine does not see (a worker dies, a lease expires). A probe
is an event that must change nothing: stale reports, early sweeps, unknown workers, wrong tokens, duplicates.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.decide.draft import HELD_BACK
from stepkeep.kernel.decide.limits import free_places
from stepkeep.kernel.decide.resources import awaits_resources, unlimited_grants
from stepkeep.kernel.definition import (
    Completion,
    Handler,
    OnExhausted,
    Retry,
    StepDefinition,
    SubWorkflow,
    Then,
    Undo,
    UndoChild,
)
from stepkeep.kernel.machine.events import (
    CancelRequested,
    ChangesRequested,
    ChildEnded,
    CompletionSignalled,
    EscalationRequested,
    Event,
    FlowResumed,
    GateDecided,
    GateReassigned,
    HoldChoice,
    HoldDecided,
    ManualOutcome,
    MessageArrived,
    PauseRequested,
    RunStarted,
    ScopeUse,
    SettledCall,
    SlotGranted,
    StepCheckpointed,
    StepClaimed,
    StepReported,
    TimeCame,
    TokenReissued,
    UnpauseRequested,
)
from stepkeep.kernel.machine.outcomes import (
    Added,
    Completed,
    Failed,
    NewCall,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Stopped,
    Suspended,
    Waiting,
)
from stepkeep.kernel.machine.rows import Edge, Step, is_exhausted
from stepkeep.kernel.machine.states import STEP_TERMINAL, Category, ErrorClass, OnFailure, Phase, RunState, StepState
from stepkeep.kernel.plan import ADDED, Plan, template_of, written_template
from stepkeep_lab.modelcheck.family import Case
from stepkeep_lab.modelcheck.world import DUE, FAR, LATER, NEW_TOKEN, NOW, ONCE, RAN_OUT, TOKEN, WORKER, State, holds

WORKERS = 3
"""How many may live and hold a lease at once."""
KEPT = 2
"""How many messages may lie in the inbox at once."""
OLD = "a message that came before"
WHO: dict[str, Any] = {"tenant": "t", "run_id": "r"}
CALL = NewCall(
    kind="step",
    name="call",
    digest="0",
    arguments=b"{}",
    step=written_template(
        StepDefinition(
            name="a",
            order=0,
            executor=Handler(name="x"),
            retry=Retry(max_attempts=1, max_losses=1),
            undo=Undo(executor=Handler(name="x"), retry=Retry(max_attempts=1, max_losses=1)),
        )
    ),
    queue=1,
    undo_queue=1,
)
"""A call that a flow makes."""
ADDED_STEP = replace(CALL, kind=ADDED, name="first")
BEHIND = replace(
    ADDED_STEP,
    name="second",
    step=written_template(replace(template_of(CALL.step), on_failure=OnFailure.SKIP)),
    after=(Edge(0, (StepState.SUCCEEDED,)),),
)
LISTS = ((), (ADDED_STEP,), (ADDED_STEP, BEHIND), (ADDED_STEP, replace(ADDED_STEP, name="other")))
"""Lists of steps that a handler adds: none, one, one behind the other, and both at once."""
CHILD_CALL = replace(
    CALL,
    kind="child",
    step=written_template(
        StepDefinition(
            name="a",
            order=0,
            child=SubWorkflow(workflow="x", version=1),
            undo=Undo(executor=UndoChild(), retry=Retry(max_attempts=1, max_losses=1)),
        )
    ),
)
"""A call that starts a child."""
CONTINUING_CALL = replace(
    CALL,
    kind="continue",
    step=written_template(
        StepDefinition(name="a", order=0, child=SubWorkflow(workflow="x", version=1, detached=True)),
    ),
)
"""The call by which a flow continues as new."""
PAUSABLE = (RunState.QUEUED, RunState.RUNNING, RunState.BLOCKED)
CHILD_ENDS = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.ROLLED_BACK)
STALE = (Completed(token=TOKEN), Failed(category=Category.TRANSIENT, error="no"), RulesPassed())


STUCK = {
    StepState.RETRYING: frozenset(HoldChoice),
    StepState.READY: frozenset({HoldChoice.SKIP, HoldChoice.FAIL}),
    StepState.AWAITING_EVENT: frozenset(HoldChoice) - {HoldChoice.RETRY},
}
"""What a person may decide about a step that does not hold. Written apart from the kernel's table."""


class By(StrEnum):
    """What causes an action. A wait that only an operator or the run timeout could end counts as a dead end."""

    TIME = "time"
    WORKER = "worker"
    WAIT = "a declared wait"
    START = "start"
    OPERATOR = "operator"
    TIMEOUT = "run timeout"
    FAULT = "fault"


CAUSES = frozenset({By.TIME, By.WORKER, By.WAIT, By.START})
HOMEWARDS: tuple[type, ...] = (
    RunStarted,
    SlotGranted,
    Completed,
    RulesPassed,
    Stopped,
    StepClaimed,
    GateDecided,
    HoldDecided,
    ChildEnded,
)
"""What brings a run closer to its end, quickest first; everything else only if none of these does."""


class Action(NamedTuple):
    """One thing that may happen. Without an event it is a fault that the engine does not see."""

    label: str
    by: By
    event: Event | None = None
    now: int = NOW
    claimer: Claimer | None = None
    crashes: int | None = None
    runs_out: int | None = None
    resumes: FlowResumed | None = None
    """A flow that went on from the call that the event reports on, in the same transaction."""

    @property
    def detour(self) -> int:
        """How little it does towards an end."""
        said = self.event.outcome if isinstance(self.event, StepReported) else self.event
        return HOMEWARDS.index(type(said)) if type(said) in HOMEWARDS else len(HOMEWARDS)


def past_deadline(state: State, now: int) -> bool:
    """Whether the run's timeout has passed by this time."""
    due_at = state.run.due_at
    return due_at is not None and due_at <= now and state.run.state is not RunState.STOPPING


class Actions:
    """All actions and probes of one case."""

    def __init__(self, case: Case, plan: Plan) -> None:
        self.plan = plan
        self.events = case.events
        self.pauses, self.decides, self.records = case.pauses, case.decides, case.records
        self.call = CHILD_CALL if case.begets else CONTINUING_CALL if case.continues else CALL
        self.parks = {plan.numbers[name]: event for name, event in case.parks.items()}
        self._chained = Claimer(
            actor="w", worker=WORKER, lease=30, slots=1, queues=frozenset(range(1, 2 * plan.size + 2))
        )

    def of(self, state: State) -> Iterator[Action]:
        """Every action that is possible here."""
        if state.run.state is RunState.IDLE:
            yield Action("start", By.START, RunStarted(**WHO, actor="ann"))
        for row in state.rows.values():
            yield from self._of_row(state, row)
        for no in state.alive:
            yield from self._reports(state, state.rows[no])
            yield Action(f"crash of the holder of {self.plan.at(no).name}", By.FAULT, crashes=no)
        for name in self.events:
            awaited = any(_awaits(row, name) for row in state.rows.values())
            if awaited or len(state.inbox) < KEPT:
                yield Action(f"message {name}", By.WAIT if awaited else By.OPERATOR, self._message("new", name))
        if state.run.due_at is not None:
            by = By.TIME if state.run.state is RunState.STOPPING else By.TIMEOUT
            yield Action("run due", by, TimeCame(**WHO, actor="sweep"), now=FAR)
        for compensate in (False, True):
            label = "cancel and undo" if compensate else "cancel"
            yield Action(label, By.OPERATOR, CancelRequested(**WHO, actor="cyd", compensate=compensate))

        if state.run.state is RunState.QUEUED and not state.run.moving:
            use = (ScopeUse("workflow w", 0, 1),)
            yield Action("grant of a slot", By.WAIT, SlotGranted(**WHO, actor="slots", scopes=use))
        if self.pauses and state.run.state in PAUSABLE:
            yield Action("pause", By.OPERATOR, PauseRequested(**WHO, actor="cyd"))
        if state.run.state is RunState.PAUSED:
            yield Action("resume", By.WAIT, UnpauseRequested(**WHO, actor="cyd"))
            if past_deadline(state, FAR):
                yield Action(
                    "resume after the run's deadline", By.TIMEOUT, UnpauseRequested(**WHO, actor="cyd"), now=FAR
                )

    def _is_required(self, row: Step) -> bool:
        """Whether nobody may skip this step: its definition says so, or it is an undo."""
        is_held = self.plan.of(row).definition.on_exhausted is OnExhausted.HOLD_REQUIRED
        return is_held or self.plan.is_undo(row.no)

    def _of_row(self, state: State, row: Step) -> Iterator[Action]:
        no, name = row.no, self.plan.of(row).name
        if row.ready_at is not None and row.ready_at != HELD_BACK and len(state.alive) < WORKERS:
            yield Action(f"claim {name}", By.WORKER, self._claim(row))
            if past_deadline(state, FAR):
                yield Action(f"claim {name} after the run's deadline", By.TIMEOUT, self._claim(row), now=FAR)
        if row.worker is not None:
            if row.due_at == RAN_OUT:
                yield Action(f"sweep {name}", By.TIME, TimeCame(**WHO, actor="sweep", no=no))
            else:
                yield Action(f"lease of {name} runs out", By.TIME, runs_out=no)
        elif row.due_at is not None:
            yield Action(f"{name} due", By.TIME, TimeCame(**WHO, actor="sweep", no=no), now=DUE)
        if is_exhausted(row):
            required = self._is_required(row)
            for choice in HoldChoice:
                if required and choice is HoldChoice.SKIP:
                    continue
                yield Action(f"{choice} {name} by hand", By.WAIT, self._hold(no, choice))
        elif self.decides and is_stuck(row):
            for choice in sorted(STUCK[row.state] if no < self.plan.size else STUCK[row.state] & {HoldChoice.RETRY}):
                yield Action(f"{choice} {name}, which is stuck", By.OPERATOR, self._hold(no, choice, reason="stuck"))
        elif row.state is StepState.AWAITING_APPROVAL:
            yield Action(f"approve {name}", By.WAIT, self._gate("ann", True, no))
            yield Action(f"approve {name} as another", By.WAIT, self._gate("bea", True, no))
            plain = self.plan.at(no).gate
            if plain is not None:
                for who in ("cyd",) if plain.quorum > 1 or plain.excluded else ():
                    yield Action(f"approve {name} as a third", By.WAIT, self._gate(who, True, no))
            yield Action(f"approve whatever is open ({name})", By.OPERATOR, self._gate("ann", True, None))
            yield Action(f"reject {name}", By.WAIT, self._gate("bea", False, no))
            yield Action(f"send {name} back", By.OPERATOR, ChangesRequested(**WHO, actor="cyd", comment="more", no=no))
            if plain is not None and plain.escalate is not UNSET:
                up = EscalationRequested(**WHO, actor="cyd", reason="away", no=no)
                yield Action(f"hand {name} up", By.OPERATOR, up)
            for to in (("dan",), ()):
                other = GateReassigned(**WHO, actor="cyd", reason="all left", no=no, to=to, asked=("ann", "bea"))
                yield Action(f"reassign {name} to {to}", By.OPERATOR, other)
        if row.state is StepState.AWAITING_COMPLETION and row.note is not None:
            for outcome in ManualOutcome:
                event = self._complete(no, row.note.token or "", outcome)
                yield Action(f"complete {name} as {outcome}", By.WAIT, event)
            if row.note.token == TOKEN:
                yield Action(f"a new token for {name}", By.OPERATOR, self._reissue(no))

        if row.state is StepState.AWAITING_CHILDREN and row.note is not None and row.note.activation is not None:
            for ended in (*CHILD_ENDS, None):
                yield Action(f"the child of {name} ends {ended}", By.WAIT, self._ended(no, row.note.activation, ended))
            what = "rollback" if self.plan.of(row).phase is Phase.UNDO else "child"
            partial = replace(self._ended(no, row.note.activation, RunState.CANCELLED), partial=True)
            yield Action(f"the {what} of {name} leaves something", By.WAIT, partial)
            if what == "child":
                failed = replace(self._ended(no, row.note.activation, RunState.FAILED), partial=True)
                yield Action(f"the child of {name} fails and leaves something", By.WAIT, failed)

    def _reports(self, state: State, row: Step) -> Iterator[Action]:
        name = self.plan.of(row).name
        if self.records and row.state is StepState.RUNNING and row.no not in dict(state.recorded):
            yield Action(f"checkpoint of {name}", By.OPERATOR, self.checkpoint(row.no, row.fence))
        for outcome in self._outcomes(state, row):
            said = type(outcome).__name__
            event = self.report(row.no, row.fence, outcome)
            yield Action(f"{said} {name}", By.WORKER, event)
            if isinstance(outcome, Completed | RulesPassed):
                yield Action(f"{said} {name}, then claim", By.WORKER, event, claimer=self._chained)
            if isinstance(outcome, Completed) and self.plan.is_element(row.no):
                for resumed in self._resumptions(state, row):
                    told = type(resumed.outcome).__name__
                    yield Action(f"{said} {name}, and its flow: {told}", By.OPERATOR, event, resumes=resumed)

    def _resumptions(self, state: State, row: Step) -> Iterator[FlowResumed]:
        """A flow goes on with the end of this call; its worker may have missed the end of another one."""
        owner = self.plan.of(row).owner
        if owner is None or not self.plan.steps[owner].kind.is_flow:
            return
        calls = [other for no, other in state.rows.items() if self.plan.is_element(no)]
        settled = 1 + sum(other.state in STEP_TERMINAL for other in calls)
        outcomes: tuple[Outcome, ...] = (Suspended(seen=settled), Suspended(calls=(self.call,), seen=settled))
        for outcome in (*outcomes, Completed(), Failed(category=Category.AUTH, error="no")):
            for seen in {settled, max(settled - 1, 1)}:
                yield FlowResumed(
                    **WHO,
                    actor="w",
                    no=owner,
                    fence=state.rows[owner].fence + 1,
                    worker=WORKER,
                    outcome=replace(outcome, seen=seen) if isinstance(outcome, Suspended) else outcome,
                    lease=30,
                    calls=(SettledCall(row.no, row.fence),),
                    seen=seen,
                )

    def _outcomes(self, state: State, row: Step) -> Iterator[Outcome]:
        planned = self.plan.of(row)
        yield Released()
        if row.state is StepState.VALIDATING or planned.phase is Phase.CHECK:
            yield RulesPassed()
            yield RulesFailed(error="broken")
            return
        if planned.has_pre:
            yield Failed(category=Category.VALIDATION, error="broken", unrun=True)
        by_hand = planned.definition.completion is Completion.MANUAL
        yield Completed(token=TOKEN if by_hand else None)
        yield Failed(category=Category.TRANSIENT, error="no")
        yield Failed(category=Category.AUTH, error="no")
        if self.plan.definition.dialect == "ioa":
            yield Failed(category=Category.GOVERNANCE, error="no")
        if planned.retry.classes is not UNSET:
            for error_class in ErrorClass:
                yield Failed(category=Category.TRANSIENT, error="no", error_class=error_class)
        if state.run.state is RunState.STOPPING:
            yield Stopped()
        if planned.kind.is_flow:
            yield from self._suspensions(state, row)
        if isinstance(planned.kind.growth, Then):
            yield from (Added(calls=calls) for calls in LISTS)
        elif planned.call is not None and planned.call.kind == ADDED and planned.index == 0:
            yield Added(calls=(replace(ADDED_STEP, name="more"),))
        event = self.parks.get(row.no)
        if event is not None:
            yield Waiting(event=event, timeout=None)
            yield Waiting(event=event, timeout=5)
            yield Waiting(event=event, timeout=5, takes_timeouts=False)

    def _suspensions(self, state: State, row: Step) -> Iterator[Outcome]:
        """A flow awaits what is open, or makes a call; its worker may have looked before the last call settled."""
        calls = [other for no, other in state.rows.items() if self.plan.is_element(no)]
        settled = sum(other.state in STEP_TERMINAL for other in calls)
        for seen in {settled, max(settled - 1, 0)}:
            yield Suspended(seen=seen)
            yield Suspended(calls=(self.call,), seen=seen)
            if calls:
                yield Suspended(seen=seen, cancels=(0,))

    # -- what must change nothing ------------------------------------------------------------------------------------
    def probes(self, state: State) -> Iterator[tuple[str, Event, frozenset[str]]]:
        """Events that must leave no trace here, and the message ids that the store knows when they come."""
        none: frozenset[str] = frozenset()
        for row in state.rows.values():
            if row.fence:
                yield from ((label, event, none) for label, event in self._zombies(state, row))
            if row.state is StepState.RUNNING and holds(row, row.fence) and row.no < self.plan.size:
                made = 0 if row.note is None or row.note.grown is None else row.note.grown.count
                beyond = Suspended(calls=(self.call,), seen=made + 1)
                yield "calls after ends that did not come", self.report(row.no, row.fence, beyond), none
            if row.due_at == LATER:
                yield "an early sweep", TimeCame(**WHO, actor="sweep", no=row.no), none
            if row.ready_at is None or row.ready_at == HELD_BACK:
                yield "a claim of what is not ready", self._claim(row), none
            if awaits_resources(row.ready_at) and self._claim(row).resources:
                yield "a claim without resources", replace(self._claim(row), resources=()), none
            if self._claim(row).limits and awaits_resources(row.ready_at):
                yield "a claim without a place", replace(self._claim(row), limits=()), none
            if row.state is StepState.AWAITING_COMPLETION:
                yield "a wrong token", self._complete(row.no, "another", ManualOutcome.SUCCEEDED), none
                if row.note is not None and row.note.token == NEW_TOKEN:
                    yield "a token that was replaced", self._complete(row.no, TOKEN, ManualOutcome.SUCCEEDED), none
            elif row.note is not None and row.note.token is not None:
                yield "a completion come too late", self._complete(row.no, TOKEN, ManualOutcome.FAILED), none
                yield "a new token for what is not open", self._reissue(row.no), none
            if row.note is not None and row.note.activation is not None:
                stale = row.note.activation - (row.state is StepState.AWAITING_CHILDREN)
                yield "news of a child that nothing waits for", self._ended(row.no, stale, RunState.SUCCEEDED), none
            if row.state is not StepState.AWAITING_APPROVAL and row.no < self.plan.size:
                yield "a gate that is not open", self._gate("cyd", True, row.no), none
            if is_exhausted(row):
                yield "an approval of a step that is no gate", self._gate("cyd", True, row.no), none
                if self._is_required(row):
                    yield "a skip of a step that is required", self._hold(row.no, HoldChoice.SKIP, "cyd"), none
            elif row.no < self.plan.size:
                choice = HoldChoice.COMPLETE if row.state is StepState.RETRYING else HoldChoice.RETRY
                event = self._hold(row.no, choice, "cyd")
                yield "a decision about a step that does not hold, without a reason", event, none
            if row.no < self.plan.size and not is_exhausted(row) and not is_stuck(row):
                event = self._hold(row.no, HoldChoice.SKIP, "cyd", "stuck")
                yield "a decision about a step that is not stuck", event, none
        if state.run.due_at is not None:
            yield "an early sweep of the run", TimeCame(**WHO, actor="sweep"), none
        if self.events:
            yield "a message again", self._message(OLD, self.events[0]), frozenset({OLD})
        if state.run.state is RunState.QUEUED and state.run.moving:
            yield "a second slot", SlotGranted(**WHO, actor="slots"), none
        if state.run.state is RunState.PAUSED:
            yield "a slot for a paused run", SlotGranted(**WHO, actor="slots"), none
            yield "a pause again", PauseRequested(**WHO, actor="cyd"), none
        elif state.run.state not in PAUSABLE:
            yield "a pause of what cannot be paused", PauseRequested(**WHO, actor="cyd"), none
        if state.run.state is not RunState.PAUSED:
            yield "a resumption of what is not paused", UnpauseRequested(**WHO, actor="cyd"), none
        if state.ended:
            yield "a cancel after the end", CancelRequested(**WHO, actor="cyd", compensate=True), none
            yield "a start after the end", RunStarted(**WHO, actor="cyd"), none
            yield "a timer after the end", TimeCame(**WHO, actor="sweep"), none
            yield "a message after the end", self._message("new", "any"), none

    def _zombies(self, state: State, row: Step) -> Iterator[tuple[str, Event]]:
        """The workers that held this step and do not now: those before the last holder, and the last one itself."""
        no, fence = row.no, row.fence
        for stale in (fence - 1, fence):
            if not holds(row, stale):
                for outcome in STALE:
                    yield "a stale report", self.report(no, stale, outcome)
                yield "a stale checkpoint", self.checkpoint(no, stale)
        if holds(row, fence):
            yield "a stranger's report", self.report(no, fence, STALE[0], worker=WORKER + 1)
            yield "a report under a fence not given out", self.report(no, fence + 1, STALE[0])
            yield "a stranger's checkpoint", self.checkpoint(no, fence, worker=WORKER + 1)
            if row.state is StepState.VALIDATING or no in dict(state.recorded):
                yield "a checkpoint again, or after the handler", self.checkpoint(no, fence)
            if row.state is StepState.VALIDATING:
                yield "a report whose answer was lost, again", self.report(no, fence, STALE[0])

    # -- events ------------------------------------------------------------------------------------------------------
    def report(self, no: int, fence: int, outcome: Outcome, worker: int = WORKER) -> StepReported:
        return StepReported(**WHO, actor="w", no=no, fence=fence, worker=worker, outcome=outcome)

    def checkpoint(self, no: int, fence: int, worker: int = WORKER) -> StepCheckpointed:
        return StepCheckpointed(**WHO, actor="w", no=no, fence=fence, worker=worker, name=ONCE, value=b"{}")

    def _claim(self, row: Step) -> StepClaimed:
        no, planned = row.no, self.plan.of(row)
        grants, places = unlimited_grants(planned), free_places(planned, row)
        return StepClaimed(**WHO, actor="w", no=no, worker=WORKER, lease=30, resources=grants, limits=places)

    def _gate(self, who: str, approve: bool, no: int | None) -> GateDecided:
        return GateDecided(**WHO, actor=who, approve=approve, no=no)

    def _hold(self, no: int, choice: HoldChoice, who: str = "ann", reason: str = "") -> HoldDecided:
        return HoldDecided(**WHO, actor=who, no=no, choice=choice, reason=reason)

    def _ended(self, no: int, activation: int, state: RunState | None) -> ChildEnded:
        return ChildEnded(**WHO, actor="child", no=no, activation=activation, child="c", state=state, output=b"1")

    def _complete(self, no: int, token: str, outcome: ManualOutcome) -> CompletionSignalled:
        return CompletionSignalled(**WHO, actor="ann", no=no, token=token, outcome=outcome)

    def _reissue(self, no: int) -> TokenReissued:
        return TokenReissued(**WHO, actor="ann", no=no, token=NEW_TOKEN, reason="lost")

    def _message(self, id: str, name: str) -> MessageArrived:  # noqa: A002
        return MessageArrived(**WHO, actor="outside", id=id, name=name, payload=b"{}")


def is_stuck(row: Step) -> bool:
    """Whether a person may decide about this step although it does not hold."""
    return row.state in STUCK and row.worker is None


def _awaits(row: Step, name: str) -> bool:
    """Whether this step waits for such a message now; what it once waited for stays in its note."""
    return row.state is StepState.AWAITING_EVENT and row.note is not None and row.note.event == name
