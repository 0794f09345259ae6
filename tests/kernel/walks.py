"""Random definitions and random lives: what a run may meet, drawn from any source that looks like `random.Random`.

`definition_of` draws a plan over every feature of the canonical definition, `noise` one event that may make sense or
not (stale fences, strangers, duplicates, timers out of order, bad tokens), and `bring_home` is the fair scheduler that
answers everything that is asked for, after which every run must have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from tests.kernel.driver import LEASE, TOKEN, When, World, when

from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.decide.decision import Claimer
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Backoff,
    Budget,
    CompensateWhen,
    Completion,
    Covers,
    Dependency,
    Distinct,
    Duty,
    Effect,
    FourEyes,
    Handler,
    HookFailure,
    Incompatible,
    Level,
    OnDeadline,
    OnExceeded,
    OnExhausted,
    PolicyEffect,
    PolicyRule,
    RequiresRole,
    Retry,
    Rule,
    Standing,
    StepDefinition,
    SubWorkflow,
    Undo,
    UndoChild,
    Wait,
)
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.events import (
    Annotated,
    CancelRequested,
    ChangesRequested,
    ChildEnded,
    CompletionSignalled,
    EscalationRequested,
    Event,
    GateDecided,
    GateReassigned,
    HoldChoice,
    HoldDecided,
    ManualOutcome,
    MessageArrived,
    PauseRequested,
    RunStarted,
    ScopeUse,
    SlotGranted,
    StepClaimed,
    StepReported,
    TimeCame,
    TokenReissued,
    UnpauseRequested,
)
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Stopped,
    TimedOut,
    Waiting,
)
from stepkeep.kernel.machine.rows import Step
from stepkeep.kernel.machine.states import RUN_TERMINAL, Category, ErrorClass, OnFailure, RunState, StepState
from stepkeep.kernel.people.authority import Authority, Delegation, Membership, MembershipKind

S = StepState
HOLDING = (OnExhausted.HOLD, OnExhausted.HOLD, OnExhausted.HOLD_REQUIRED)
EVENTS = ("paid", "shipped")
PEOPLE = ("ann", "bea", "cyd")
WORKERS = (1, 2)
EDGES = ((S.SUCCEEDED,), (S.SUCCEEDED, S.SKIPPED), (S.SUCCEEDED, S.SKIPPED, S.FAILED, S.CANCELLED))


def maybe(random: Random, chance: float) -> bool:
    return random.random() < chance


# -- definitions -----------------------------------------------------------------------------------------------------
def world_of(random: Random) -> World:
    """A run of a random definition, perhaps not started yet."""
    size = random.randint(1, 6)
    names = [f"s{place}" for place in range(size)]
    conditions: dict[str, When] = {}
    steps = [_step(random, names, place, conditions) for place in range(size)]
    return World(
        *steps,
        conditions=conditions,
        start=maybe(random, 0.9),
        awaits_slot=maybe(random, 0.15),
        timeout=random.choice((None, 20 * SECOND, 200 * SECOND)),
        on_failure=random.choice(list(OnFailure)),
        dialect=random.choice(("native", "native", "ioa")),
        hook_failure=random.choice(list(HookFailure)),
        compensate_always=maybe(random, 0.2),
        duties=_duties(random, names),
        rules=(Rule(expression="true"),) if maybe(random, 0.3) else (),
        policy=_policy(random, names) if maybe(random, 0.4) else UNSET,
        budget=Budget(limits={"attempts": 3.0}, on_exceeded=random.choice(list(OnExceeded)))
        if maybe(random, 0.15)
        else UNSET,
    )


def _policy(random: Random, names: list[str]) -> tuple[PolicyRule, ...]:
    whens = (
        None,
        "step.attempt > 1",
        "step.attempt == 1 && time.hour < 25",
        "input.nothing == 1",
        "cost.attempts > 1.0",
    )
    found = []
    for place in range(random.randint(1, 3)):
        effect = random.choice(list(PolicyEffect))
        terms = Approval(deadline=random.choice((None, 10 * SECOND)), on_deadline=random.choice(list(OnDeadline)))
        found.append(
            PolicyRule(
                name=f"r{place}",
                then=effect,
                when=random.choice(whens),
                steps=(random.choice(names),),
                reason=random.choice(("", "because")),
                approval=terms if effect is PolicyEffect.HOLD and maybe(random, 0.7) else None,
            )
        )
    return tuple(found)


def _step(random: Random, names: list[str], place: int, conditions: dict[str, When]) -> StepDefinition:
    name = names[place]
    before = names[:place]
    after = [one for one in before if maybe(random, 0.4)]
    settings: dict[str, Any] = {
        "name": name,
        "order": 0,
        "depends_on": tuple(Dependency(step=one, allow=random.choice(EDGES)) for one in after),
        "on_failure": random.choice(list(OnFailure)),
    }
    if maybe(random, 0.25):
        settings["condition"] = name
        conditions[name] = _condition(random, after)
    kind = random.random()
    if kind < 0.15:
        return StepDefinition(approval=_approval(random, before), **settings)
    if kind < 0.3:
        wait = Wait(event=random.choice(EVENTS), deadline=random.choice((None, 10 * SECOND)))
        if maybe(random, 0.2):
            wait = Wait(event="sleep", deadline=3 * SECOND, sleeps=True)
        return StepDefinition(wait=wait, **settings)
    hook = None
    if maybe(random, 0.6):
        retry = _retry(random)
        aside = Random(repr(retry))
        holds = aside.choice(HOLDING) if maybe(aside, 0.3) else UNSET
        retry = replace(retry, counts_losses=False if maybe(aside, 0.7) else UNSET)
        hook = Undo(executor=Handler(name="undo"), retry=retry, on_exhausted=holds)
    if kind < 0.36:
        detached = True if maybe(random, 0.2) else UNSET
        child = SubWorkflow(workflow="other", version=1, deadline=random.choice((None, 10 * SECOND)), detached=detached)
        if detached is UNSET and maybe(random, 0.5):
            hook = Undo(executor=UndoChild())
        return StepDefinition(child=child, undo=hook, effect=Effect.UNKNOWN, **settings)
    return StepDefinition(
        executor=Handler(name=name),
        hold=_approval(random, before) if maybe(random, 0.15) else None,
        on_exhausted=random.choice(HOLDING) if maybe(random, 0.3) else UNSET,
        retry=_retry(random),
        rules=(Rule(expression="true"),) if maybe(random, 0.3) else (),
        pre=(Rule(expression="true"),) if maybe(random, 0.3) else UNSET,
        completion=Completion.MANUAL if maybe(random, 0.25) else Completion.AUTO,
        completion_deadline=random.choice((None, 10 * SECOND)),
        undo=hook,
        effect=random.choice(list(Effect)) if hook is None else Effect.WRITE,
        compensate_when=random.choice(list(CompensateWhen)),
        **settings,
    )


def _approval(random: Random, before: list[str]) -> Approval:
    """The terms of a gate; in half of all cases it is a plain one."""
    plain = Approval(deadline=random.choice((None, 10 * SECOND)), on_deadline=random.choice(list(OnDeadline)))
    if maybe(random, 0.5):
        return plain
    roles = random.choice(((), ("finance",)))
    return replace(
        plain,
        roles=roles,
        quorum=random.randint(1, 2),
        reject_on=random.choice((UNSET, 2)),
        excluded=random.choice(((), ("requester",), tuple(f"decided:{name}" for name in before))),
        escalate=random.choice((UNSET, (Level(roles=("boss",), deadline=5 * SECOND), Level(approvers=("cyd",))))),
        remind=random.choice((UNSET, 4 * SECOND)),
        standing=random.choice((UNSET, Standing.NOW)),
        covers=random.choice((UNSET, Covers.SHOWN)),
    )


def _duties(random: Random, names: list[str]) -> tuple[Duty, ...] | UnsetType:
    if maybe(random, 0.6):
        return UNSET
    return (
        random.choice(
            (
                Distinct(gates=tuple(names)),
                FourEyes(gates=tuple(names)),
                Incompatible(steps=tuple(names)),
                RequiresRole(step=names[0], role="boss"),
            )
        ),
    )


def authority(person: str) -> Authority:
    """Everyone is in finance, and some are bosses; dan may act for cyd."""
    roles = ["finance"] + ["boss"] * (person != "bea")
    held = tuple(Membership(kind=MembershipKind.ROLE, name=role, granted_at=0) for role in roles)
    lent = (Delegation(id="d1", delegator="cyd", granted_at=0, memberships=held),) if person == "dan" else ()
    return Authority(person=person, registered=True, memberships=held, delegations=lent)


CLASSES = (UNSET, (ErrorClass.RATE_LIMIT,), (ErrorClass.SERVER_ERROR, ErrorClass.TRANSPORT))
HOW_LATE = {None: ErrorClass.RATE_LIMIT, -1: ErrorClass.SERVER_ERROR, 0: ErrorClass.TRANSPORT}
"""Error classes, chosen by numbers that are drawn anyway: earlier seeds keep their meaning."""


def _retry(random: Random) -> Retry:
    attempts = random.randint(1, 4)
    return Retry(
        max_attempts=attempts,
        max_losses=random.randint(1, 3),
        backoff=random.choice(list(Backoff)),
        initial=random.choice((0, SECOND)),
        jitter=random.choice((0.0, 0.5)),
        max=random.choice((None, 5 * SECOND)),
        max_elapsed=random.choice((UNSET, UNSET, 4 * SECOND)),
        classes=CLASSES[attempts % len(CLASSES)],
    )


def _condition(random: Random, after: list[str]) -> When:
    answers: tuple[Callable[[ConditionView], bool], ...] = (
        lambda _: True,
        lambda _: False,
        _broken,
        lambda view: all(state is S.SUCCEEDED for state in view.states.values()),
        lambda view: view.input == b"null" and None not in view.outputs.values(),
    )
    return when(random.choice(answers), *after, input=maybe(random, 0.5))


def _broken(view: ConditionView) -> bool:
    raise ExpressionError(f"nothing can be said about {sorted(view.states)}")


# -- noise -----------------------------------------------------------------------------------------------------------
def noise(world: World, random: Random) -> tuple[list[Event], Claimer | None]:
    """One transaction's worth of things that happen, sensible or not, and perhaps a worker with room for more."""
    if maybe(random, 0.3):
        world.pass_time(random.choice((1, SECOND, 5 * SECOND, 11 * SECOND, LEASE + 1)))
    count = 1 if maybe(random, 0.7) else random.randint(2, 4)
    events = [_event(world, random) for _ in range(count)]
    if maybe(random, 0.1):
        events.append(random.choice(events))
    size = world.plan.size
    queues = frozenset(queue for queue in range(1, 2 * size + 2) if maybe(random, 0.8))
    chained = Claimer("w1", 1, random.choice((None, LEASE)), random.randint(1, 3), queues)
    return events, chained if maybe(random, 0.3) else None


def _event(world: World, random: Random) -> Event:
    return random.choice(KINDS)(world, random)


def _row(world: World, random: Random, likely: Callable[[Step], bool]) -> Step:
    """Mostly a row that the event could mean, sometimes any other."""
    rows = list(world.rows.values())
    fitting = [row for row in rows if likely(row)]
    return random.choice(fitting if fitting and maybe(random, 0.9) else rows)


def _claimed(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.ready_at is not None)
    worker = random.choice(WORKERS)
    return StepClaimed(tenant="t", run_id="r", actor=f"w{worker}", no=row.no, worker=worker, lease=LEASE)


def _reported(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.worker is not None)
    fence = row.fence if maybe(random, 0.9) else random.randint(0, row.fence + 1)
    worker = row.worker if row.worker is not None and maybe(random, 0.9) else random.choice(WORKERS)
    return StepReported(
        tenant="t",
        run_id="r",
        actor=f"w{worker}",
        no=row.no,
        fence=fence,
        worker=worker,
        outcome=_outcome(row, random),
    )


def _transient(random: Random, said: Any) -> Failed:
    delay = random.choice((None, -1, 0, 7 * SECOND))
    return Failed(category=Category.TRANSIENT, error="no", delay=delay, error_class=HOW_LATE.get(delay), **said)


def _chosen(random: Random) -> dict[str, Any]:
    """Which messages a handler waits for: mostly any, now and then two, or an empty one."""
    drawn = random.random()
    return {"count": 2} if drawn < 0.15 else {"accepts": "size(message) == 0"} if drawn < 0.25 else {}


def _outcome(row: Step, random: Random) -> Outcome:
    said = {"cost": b"1", "emit": (Emitted("told", b"{}"),)} if maybe(random, 0.2) else {}
    if row.state is S.VALIDATING and maybe(random, 0.9):
        return random.choice((RulesPassed(**said), RulesFailed(error="broken rule", **said), Released(**said)))
    return random.choice(
        (
            Completed(output=b'{"n":1}', token=TOKEN, **said),
            Completed(token=TOKEN, **said),
            Waiting(event=random.choice(EVENTS), timeout=None, **_chosen(random), **said),
            Waiting(event=random.choice(EVENTS), timeout=3 * SECOND, takes_timeouts=maybe(random, 0.5), **said),
            Failed(category=random.choice(list(Category)), error="no", final=maybe(random, 0.1), **said),
            _transient(random, said),
            Failed(category=Category.UNKNOWN, error="a rule before it", unrun=True, **said),
            TimedOut(**said),
            Released(**said),
            Stopped(**said),
            RulesPassed(**said),
            RulesFailed(error="broken rule", **said),
        )
    )


def _timer(world: World, random: Random) -> Event:
    due = [row.no for row in world.rows.values() if row.due_at is not None]
    no = random.choice([None, *due, *world.rows])
    return TimeCame(tenant="t", run_id="r", actor="sweep", no=no)


def _gate(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_APPROVAL)
    no = None if maybe(random, 0.4) else row.no
    person = random.choice((*PEOPLE, "dan"))
    world.people[person] = authority(person)
    return GateDecided(
        tenant="t",
        run_id="r",
        actor=person,
        approve=maybe(random, 0.6),
        no=no,
        on_behalf_of="cyd" if maybe(random, 0.2) else None,
    )


def _changes(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_APPROVAL)
    person = random.choice((*PEOPLE, "dan"))
    world.people[person] = authority(person)
    said = random.choice(("say why", "the amount is missing"))
    return ChangesRequested(
        tenant="t", run_id="r", actor=person, comment=said, no=None if maybe(random, 0.4) else row.no
    )


def _escalated(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_APPROVAL)
    person = random.choice((*PEOPLE, "dan"))
    world.people[person] = authority(person)
    return EscalationRequested(tenant="t", run_id="r", actor=person, reason="away", no=row.no)


def _reassigned(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_APPROVAL)
    people = (*PEOPLE, "dan", "zoe")
    world.people |= {person: authority(person) for person in people}
    actor, other = random.sample(people, 2)
    to = (other,) if maybe(random, 0.6) else ()
    return GateReassigned(tenant="t", run_id="r", actor=actor, reason="away", no=row.no, to=to, asked=PEOPLE)


def _annotated(world: World, random: Random) -> Event:
    no = None if maybe(random, 0.5) else random.choice(list(world.rows))
    return Annotated(tenant="t", run_id="r", actor=random.choice(PEOPLE), note="looked at", no=no)


def _hold(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.note is not None and row.note.exhausted)
    choice = HoldChoice.RETRY if maybe(random, 0.7) else random.choice(list(HoldChoice))
    actor = random.choice(PEOPLE)
    return HoldDecided(tenant="t", run_id="r", actor=actor, no=row.no, choice=choice, reason="try")


def _stuck(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state in (S.RETRYING, S.READY, S.AWAITING_EVENT))
    choice = random.choice(list(HoldChoice))
    output = b"2" if choice is HoldChoice.COMPLETE else None
    actor = random.choice(PEOPLE)
    return HoldDecided(tenant="t", run_id="r", actor=actor, no=row.no, choice=choice, reason="stuck", output=output)


def _completion(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_COMPLETION)
    return CompletionSignalled(
        tenant="t",
        run_id="r",
        actor=random.choice(PEOPLE),
        no=row.no,
        token=TOKEN if maybe(random, 0.9) else "another",
        outcome=random.choice(list(ManualOutcome)),
        output=random.choice((None, b'{"by":"hand"}')),
    )


def _reissued(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_COMPLETION)
    return TokenReissued(tenant="t", run_id="r", actor="ann", no=row.no, token="another", reason="lost")


def _message(world: World, random: Random) -> Event:
    return MessageArrived(
        tenant="t",
        run_id="r",
        actor="outside",
        id=f"m{random.randint(1, 12)}",
        name=random.choice(EVENTS),
        payload=b'{"m":1}',
    )


def _cancelled(world: World, random: Random) -> Event:
    if maybe(random, 0.93):
        return _reported(world, random)
    return CancelRequested(tenant="t", run_id="r", actor=random.choice(PEOPLE), compensate=maybe(random, 0.5))


def _paused(world: World, random: Random) -> Event:
    asked = {"tenant": "t", "run_id": "r", "actor": random.choice(PEOPLE)}
    if world.run.state is RunState.PAUSED and maybe(random, 0.7):
        return UnpauseRequested(**asked)
    return (
        PauseRequested(**asked, reason=random.choice(("", "closed"))) if maybe(random, 0.5) else _claimed(world, random)
    )


def _started(world: World, random: Random) -> Event:
    if world.run.state is not RunState.IDLE and maybe(random, 0.9):
        return _claimed(world, random)
    return RunStarted(tenant="t", run_id="r", actor="ann")


CHILD_ENDS = (RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.ROLLED_BACK, None)


def _child(world: World, random: Random) -> Event:
    row = _row(world, random, lambda row: row.state is S.AWAITING_CHILDREN)
    activation = (0 if row.note is None else row.note.activation) or 0
    state = random.choice(CHILD_ENDS)
    return ChildEnded(
        tenant="t",
        run_id="r",
        actor="child:c",
        no=row.no,
        activation=activation if maybe(random, 0.9) else activation + 1,
        child="c",
        state=state,
        category=random.choice((None, Category.VALIDATION)),
        error=random.choice((None, "no")),
        output=b"7" if state is RunState.SUCCEEDED and maybe(random, 0.8) else None,
        partial=(world.plan.is_undo(row.no) or state in (RunState.FAILED, RunState.CANCELLED)) and maybe(random, 0.2),
    )


def _granted(world: World, random: Random) -> Event:
    waits = world.run.state is RunState.QUEUED and not world.run.moving
    if not waits and maybe(random, 0.9):
        return _claimed(world, random)
    use = (ScopeUse("workflow w", random.randint(0, 2), 3),) if maybe(random, 0.8) else ()
    return SlotGranted(tenant="t", run_id="r", actor="slots", scopes=use)


KINDS: tuple[Callable[[World, Random], Event], ...] = (
    *(_claimed,) * 4,
    *(_reported,) * 5,
    *(_timer,) * 2,
    _gate,
    _changes,
    _escalated,
    _annotated,
    _hold,
    _stuck,
    _completion,
    _reissued,
    _message,
    _cancelled,
    _started,
    _paused,
    _child,
    _granted,
    _reassigned,
)


def live(world: World, random: Random, events: int) -> None:
    """A noisy life of at most this many transactions; a run that has ended is disturbed a few times more."""
    after = 3
    for _ in range(events):
        if world.run.state in RUN_TERMINAL:
            after -= 1
            if after < 0:
                return
        happened, chained = noise(world, random)
        world.send(*happened, claimer=chained)


# -- the way home ----------------------------------------------------------------------------------------------------
def bring_home(world: World) -> None:
    """A fair scheduler: whatever waits is served, in order, until the run has ended."""
    for turn in range(40 * (2 * world.plan.size + 2)):
        if world.run.state in RUN_TERMINAL:
            return
        world.send(_service(world, turn))
    raise AssertionError(f"the run never ends: {world.run.state} {world.states()}")


def _service(world: World, turn: int) -> Event:
    if world.run.state is RunState.IDLE:
        return RunStarted(tenant="t", run_id="r", actor="ann")
    if world.run.state is RunState.PAUSED:
        return UnpauseRequested(tenant="t", run_id="r", actor="ann")
    if world.run.state is RunState.QUEUED and not world.run.moving:
        return SlotGranted(tenant="t", run_id="r", actor="slots")
    for row in sorted(world.rows.values(), key=lambda row: row.no):
        served = _serve(world, row, turn)
        if served is not None:
            return served
    raise AssertionError(f"nothing can be done for {world.run.state} {world.states()}")


def _serve(world: World, row: Step, turn: int) -> Event | None:
    who: dict[str, Any] = {"tenant": "t", "run_id": "r", "actor": "home"}
    if row.ready_at is not None:
        return StepClaimed(no=row.no, worker=1, lease=LEASE, **{**who, "actor": "w1"})
    if row.worker is not None:
        if row.due_at is not None and row.due_at < world.now:
            return TimeCame(no=row.no, **who)
        checks = row.state is S.VALIDATING or row.no == 2 * world.plan.size
        outcome = RulesPassed() if checks else Completed(output=b"1", token=TOKEN)
        by = {**who, "actor": f"w{row.worker}"}
        return StepReported(no=row.no, fence=row.fence, worker=row.worker, outcome=outcome, **by)
    if row.state is S.AWAITING_CHILDREN:
        assert row.note is not None
        activation = row.note.activation or 0
        ended = RunState.ROLLED_BACK if world.plan.is_undo(row.no) else RunState.SUCCEEDED
        return ChildEnded(no=row.no, activation=activation, child="c", state=ended, output=b"1", **who)
    if row.state is S.RETRYING:
        world.now = max(world.now, row.due_at or 0)
        return TimeCame(no=row.no, **who)
    if row.state is S.AWAITING_APPROVAL and row.note is not None and row.note.exhausted:
        # A duty of the run may require a role of the person who decides; this one has every role.
        who["actor"] = f"home{turn}"
        world.people[who["actor"]] = authority(who["actor"])
        return HoldDecided(no=row.no, choice=HoldChoice.RETRY, **who)
    if row.state is S.AWAITING_APPROVAL:
        # Each time another person, who has every role: they reach any quorum. No fitting one means the deadline.
        person = "cyd" if turn % 4 == 3 else f"home{turn}"
        if turn % 40 == 39 and row.due_at is not None:
            world.now = max(world.now, row.due_at)
            return TimeCame(no=row.no, **who)
        world.people[person] = authority(person)
        return GateDecided(no=row.no, approve=True, **{**who, "actor": person})
    if row.state is S.AWAITING_COMPLETION:
        assert row.note is not None
        if row.due_at is not None and row.due_at <= world.now:
            return TimeCame(no=row.no, **who)
        who["actor"] = f"home{turn}"
        world.people[who["actor"]] = authority(who["actor"])
        return CompletionSignalled(no=row.no, token=row.note.token or "", outcome=ManualOutcome.SUCCEEDED, **who)
    if row.state is S.AWAITING_EVENT and world.plan.at(row.no).kind.sleeps:
        world.now = max(world.now, row.due_at or 0)
        return TimeCame(no=row.no, **who)
    if row.state is S.AWAITING_EVENT:
        assert row.note is not None
        assert row.note.event is not None
        return MessageArrived(id=f"home{turn}", name=row.note.event, payload=b"{}", **who)
    return None
