"""One run in memory, for the kernel's tests: a plan, the rows of a run in dicts, and verbs to make things happen to it.

Every event is decided several times: from everything there is, from as little as the kernel can do with, again, and
without the events that were refused. All must lead to the same bytes. After each decision the whole run is audited
(`audit.py`). No store and no clock: `now` moves only when a test moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from tests.kernel import audit

from stepkeep.definition.expressions.compiler import ExpressionCompiler
from stepkeep.kernel.compiler import ConditionView, Facts
from stepkeep.kernel.composition.continuation import Continuation
from stepkeep.kernel.decide.create import create_run
from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Accepted, Claimer, Decision, Involved, Need, Reply, Snapshot
from stepkeep.kernel.decide.limits import free_places
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.decide.resources import unlimited_grants
from stepkeep.kernel.decide.waits import is_past_wait
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Definition,
    Dependency,
    Handler,
    StepDefinition,
    Undo,
    Wait,
    digest_of,
    encode_definition,
)
from stepkeep.kernel.errors import NotAllowed, Refused
from stepkeep.kernel.machine.events import (
    Annotated,
    CancelRequested,
    ChangesRequested,
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
    StepCheckpointed,
    StepClaimed,
    StepReported,
    TimeCame,
    TokenReissued,
    UnpauseRequested,
)
from stepkeep.kernel.machine.journal import RUN_ENTITY, Hop, open_entry
from stepkeep.kernel.machine.outcomes import Completed, Failed, Outcome, RulesPassed
from stepkeep.kernel.machine.rows import (
    Attempt,
    Checkpoint,
    Child,
    Consumed,
    Gate,
    GateChange,
    Message,
    Origin,
    OutboxEntry,
    Rows,
    Run,
    Step,
    Vote,
)
from stepkeep.kernel.machine.states import (
    RUN_TERMINAL,
    STEP_WAITING,
    AttemptState,
    Category,
    RunState,
    StepState,
)
from stepkeep.kernel.people.authority import Authority, Caller, OnlyVouched
from stepkeep.kernel.plan import Plan, build_plan, queue_specs
from stepkeep_lab.invariants.journal import JournalFold

S = StepState
IN_SEQUENCE = (S.SUCCEEDED, S.SKIPPED)
LEASE = 30 * SECOND
TOKEN = "sha-256 of a token"
PATIENCE = 3
"""How often the driver answers a wish for single rows before it shows the whole run, as real stores do."""


# -- writing definitions ---------------------------------------------------------------------------------------------
def work(name: str, *after: str | Dependency, undo: bool | Undo = False, **settings: Any) -> StepDefinition:
    """A step that a handler runs. With `undo=True` it has a hook."""
    hook = Undo(executor=Handler(name=f"undo {name}")) if undo is True else undo or None
    return StepDefinition(
        name=name, order=0, executor=Handler(name=name), depends_on=edges(after), undo=hook, **settings
    )


def gate(name: str, *after: str | Dependency, deadline: int | None = None, **settings: Any) -> StepDefinition:
    """A step that waits for people."""
    approval = settings.pop("approval", Approval(deadline=deadline))
    return StepDefinition(name=name, order=0, approval=approval, depends_on=edges(after), **settings)


def wait(
    name: str,
    event: str,
    *after: str | Dependency,
    deadline: int | None = None,
    takes: Mapping[str, Any] | None = None,
    **settings: Any,
) -> StepDefinition:
    """A step that waits for a message; `takes` has its filter, or how many it takes."""
    waits = Wait(event=event, deadline=deadline, **(takes or {}))
    return StepDefinition(name=name, order=0, wait=waits, depends_on=edges(after), **settings)


def edges(after: Iterable[str | Dependency]) -> tuple[Dependency, ...]:
    return tuple(Dependency(step=one) if isinstance(one, str) else one for one in after)


def allowing(step: str, *endings: StepState) -> Dependency:
    """An edge that more than success satisfies."""
    return Dependency(step=step, allow=(S.SUCCEEDED, *endings))


def sequence(*steps: StepDefinition) -> tuple[StepDefinition, ...]:
    """Steps one after the other, as front ends write a plain sequence: a skipped step satisfies the next."""
    return tuple(
        replace(step, depends_on=(Dependency(step=steps[place - 1].name, allow=IN_SEQUENCE),) if place else ())
        for place, step in enumerate(steps)
    )


class When(msgspec.Struct, frozen=True):
    """A condition as a Python function; stands in for the expression language, which the kernel does not know."""

    function: Callable[[ConditionView], bool]
    reads: frozenset[str] = frozenset()
    reads_input: bool = False

    def holds(self, view: ConditionView) -> bool:
        assert set(view.outputs) == set(view.states) == set(self.reads)
        return self.function(view)


def when(function: Callable[[ConditionView], bool], *reads: str, input: bool = False) -> When:  # noqa: A002
    return When(function, frozenset(reads), input)


class TestCompiler(ExpressionCompiler):
    """Compiles what the kernel's own language says; conditions and facts are Python functions."""

    __test__ = False

    def __init__(self, conditions: Mapping[str, When], facts: Facts | None) -> None:
        super().__init__()
        self._conditions, self._facts = conditions, facts

    def condition(self, text: str, definition: Definition) -> When:
        return self._conditions[text]

    def facts(self, facts: Mapping[str, str], definition: Definition) -> Facts:
        assert self._facts is not None
        return self._facts


def plan_of(definition: Definition, conditions: Mapping[str, When] | None = None, facts: Facts | None = None) -> Plan:
    """Lay a definition out with one queue per place, counted from 1."""
    return build_plan(
        definition,
        TestCompiler(conditions or {}, facts),
        definition_id=7,
        digest=digest_of(encode_definition(definition)),
        queues=range(1, len(queue_specs(definition)) + 1),
        document=encode_definition(definition),
    )


# -- comparing decisions ---------------------------------------------------------------------------------------------
_encoder = msgspec.json.Encoder(enc_hook=lambda refusal: [type(refusal).__name__, str(refusal)])


def bytes_of(decision: Decision) -> bytes:
    """All of a decision, its answers included."""
    others = {kind.__name__: found for kind, found in decision.rows.items()}
    return _encoder.encode((replace(decision, rows=Rows()) if others else decision, others))


class World:
    """One run and everything that is remembered about it."""

    def __init__(
        self,
        *steps: StepDefinition,
        conditions: Mapping[str, When] | None = None,
        facts: Facts | None = None,
        start: bool = True,
        given: bytes = b"null",
        watched: bool = True,
        live: Policy | None = None,
        labels: bytes | None = None,
        people: Mapping[str, Authority] | None = None,
        continuation: Continuation | None = None,
        awaits_slot: bool = False,
        now: int = 1_000 * SECOND,
        **settings: Any,
    ) -> None:
        ordered = tuple(replace(step, order=place) for place, step in enumerate(steps))
        self.definition = Definition(name="w", version=1, steps=ordered, **settings)
        self.plan = plan_of(self.definition, conditions, facts)
        self.given = given
        self.live, self.origin = live, Origin("ann", labels)
        self.watched = watched
        self.now = now
        self.rows: dict[int, Step] = {}
        self.attempts: dict[tuple[int, int], Attempt] = {}
        self.messages: dict[str, Message] = {}
        self.outbox: list[OutboxEntry] = []
        self.children: dict[str, Child] = {}
        self.gates: dict[tuple[int, int], Gate] = {}
        self.votes: dict[tuple[int, int, str], Vote] = {}
        self.checkpoints: list[Checkpoint] = []
        self.owners: dict[int, str] = {}
        self.people: dict[str, Authority] = dict(people or {})
        self.bodies: list[bytes] = []
        self.hops: list[Hop] = []
        self.fold = JournalFold(self.plan)
        self.spent = 0
        self.touched = 0
        self.rounds = 0
        self.last: Decision
        self.run = Run(tenant="t", id="r", definition_id=7)

        def born() -> Decision:
            return create_run(
                self.plan,
                run_id="r",
                priority=0,
                business_key=None,
                given=given,
                caller=Caller("t", "ann"),
                now=self.now,
                start=start,
                labels=labels,
                policy=live,
                authorities=self.authorities(),
                continuation=continuation,
                awaits_slot=awaits_slot,
            )

        decision = born()
        assert bytes_of(decision) == bytes_of(born())
        self._apply(decision)

    # -- deciding ----------------------------------------------------------------------------------------------------
    @property
    def is_past_deadline(self) -> bool:
        """Whether the next event meets the run's timeout first, or a message that of a wait: then even a refused one
        leaves that trace."""
        due_at = self.run.due_at
        is_late = any(is_past_wait(row, self.now) for row in self.rows.values())
        is_over = due_at is not None and due_at <= self.now and self.run.state is not RunState.STOPPING
        return is_over or is_late

    def send(self, *events: Event, claimer: Claimer | None = None) -> tuple[Reply, ...]:
        """Let these events happen in one transaction; all the ways to decide on them must agree."""
        decision = self._from_little(events, claimer)
        audit.believed(self, events, decision)
        if self.watched:
            whole = self.snapshot(events)
            same = decide(whole, events, self.now, claimer)
            assert isinstance(same, Decision)
            assert bytes_of(decision) == bytes_of(same)
            assert bytes_of(decision) == bytes_of(must_decide(whole, events, self.now, claimer))
            heard = [event for event, reply in zip(events, decision.replies, strict=True) if leaves_trace(reply)]
            if len(heard) < len(events) and not self.is_past_deadline:
                alone = must_decide(whole, heard, self.now, claimer)
                accepted = tuple(reply for reply in decision.replies if leaves_trace(reply))
                assert bytes_of(replace(decision, replies=accepted)) == bytes_of(alone), "a refused event left a trace"
        self._apply(decision)
        return decision.replies

    def _from_little(self, events: Sequence[Event], claimer: Claimer | None) -> Decision:
        """Decide from the rows that the events name, and answer each wish with exactly what was wished for."""
        numbers = {event.no for event in events if getattr(event, "no", None) in self.rows}  # type: ignore[attr-defined]
        little = Snapshot(
            plan=self.plan,
            run=self.run,
            steps={no: self.rows[no] for no in numbers},
            seen=self._seen(events),
            recorded={(one.no, one.name): one.fence for one in self.checkpoints},
            policy=self.live,
        )
        before = bytes_of_rows(self) if self.watched else b""
        for asked in range(1_000):
            answer = decide(little, events, self.now, claimer)
            if isinstance(answer, Decision):
                self.rounds = asked
                assert not self.watched or bytes_of_rows(self) == before
                return answer
            fuller = self._answered(little, answer, asked)
            assert fuller != little, f"the same wish again: {answer}"
            little = fuller
        raise AssertionError("the kernel is never satisfied")

    def _answered(self, little: Snapshot, need: Need, asked: int) -> Snapshot:
        whole = little.whole or need.whole or asked >= PATIENCE
        steps = (
            dict(self.rows) if whole else {**little.steps, **{n: self.rows[n] for n in need.steps if n in self.rows}}
        )
        if need.waiting:
            steps |= {no: row for no, row in self.rows.items() if row.state in STEP_WAITING}
        outputs = {**little.outputs, **{no: self.output_of(no) for no in need.outputs}}
        return replace(
            little,
            steps=steps,
            whole=whole,
            waiting=little.waiting or need.waiting,
            inbox=self.inbox() if need.inbox else little.inbox,
            outputs=outputs,
            input=self.given if need.input else little.input,
            authorities={**little.authorities, **{one: self.authorities()[one] for one in need.people}},
            involved=self.involved() if need.duties else little.involved,
            origin=self.origin if need.input else little.origin,
            costs=self.costs() if need.costs else little.costs,
        )

    def snapshot(self, events: Sequence[Event] = ()) -> Snapshot:
        """Everything there is to know."""
        return Snapshot(
            plan=self.plan,
            run=self.run,
            steps=dict(self.rows),
            whole=True,
            waiting=True,
            inbox=self.inbox(),
            seen=self._seen(events),
            recorded={(one.no, one.name): one.fence for one in self.checkpoints},
            outputs={no: self.output_of(no) for no in {*range(self.plan.size), *self.rows}},
            input=self.given,
            authorities=self.authorities(),
            involved=self.involved(),
            policy=self.live,
            origin=self.origin,
            costs=self.costs(),
        )

    def authorities(self) -> OnlyVouched:
        """What `people` have; every other name has nothing."""
        found = {Caller("t", one.person, None if one.key is None else one.key.id): one for one in self.people.values()}
        return OnlyVouched(found)

    def who(self, name: str) -> dict[str, Any]:
        """The fields of a request of this person."""
        known = self.people.get(name)
        key = None if known is None or known.key is None else known.key.id
        return {"tenant": "t", "run_id": "r", "actor": name, "key": key}

    def involved(self) -> Involved:
        """ann asked for the run; each worker belongs to the person whom `owners` names."""
        executors: dict[int, frozenset[str]] = {}
        for (no, _), attempt in self.attempts.items():
            if owner := self.owners.get(attempt.worker):
                executors[no] = executors.get(no, frozenset()) | {owner}
        return Involved(frozenset({"ann"}), executors)

    def costs(self) -> tuple[bytes | None, ...]:
        return tuple(attempt.cost for _, attempt in sorted(self.attempts.items()))

    def _seen(self, events: Sequence[Event]) -> frozenset[str]:
        return frozenset(
            event.id for event in events if isinstance(event, MessageArrived) and event.id in self.messages
        )

    def inbox(self) -> tuple[Message, ...]:
        kept = [message for message in self.messages.values() if message.consumed_by is None]
        return tuple(sorted(kept, key=lambda message: message.number))

    def output_of(self, no: int) -> bytes | None:
        """What a step produced: its note's output, or that of the attempt that succeeded under the right fence."""
        row = self.rows.get(no)
        if row is None:
            return None
        if row.note is not None and row.note.output is not None:
            return row.note.output.encode()
        fence = row.note.checked if row.note is not None and row.note.checked is not None else row.fence
        attempt = self.attempts.get((no, fence))
        return attempt.output if attempt is not None and attempt.state is AttemptState.SUCCEEDED else None

    def _apply(self, decision: Decision) -> None:
        self.touched = len(decision.changed) + len(decision.added)
        self.spent += self.touched
        audit.before(self, decision)
        self.last = decision
        self.run = decision.run
        for row in (*decision.changed, *decision.added):
            self.rows[row.no] = row
        for attempt in decision.attempts:
            self.attempts[attempt.no, attempt.fence] = attempt
        for message in decision.rows.of(Message):
            self.messages[message.id] = message
        for taken in decision.rows.of(Consumed):
            self.messages[taken.id] = replace(self.messages[taken.id], consumed_by=taken.consumed_by)
        self.outbox += decision.rows.of(OutboxEntry)
        self.children |= {child.child_id: child for child in decision.rows.of(Child)}
        for gate in decision.rows.of(Gate):
            assert (gate.no, gate.activation) not in self.gates
            self.gates[gate.no, gate.activation] = gate
        for change in decision.rows.of(GateChange):
            kept = self.gates[change.no, change.activation]
            assert kept.closed_at is None, "a closed gate changes no more"
            self.gates[change.no, change.activation] = replace(
                kept, level=change.level, due_at=change.due_at, closed_at=change.closed_at, outcome=change.outcome
            )
        self.checkpoints += decision.rows.of(Checkpoint)
        for vote in decision.rows.of(Vote):
            assert (vote.no, vote.activation, vote.person) not in self.votes, "a person decides once"
            self.votes[vote.no, vote.activation, vote.person] = vote
        if decision.entry is not None:
            self.bodies.append(decision.entry.body)
            audit.fold(self, open_entry(decision.entry.body))
        if self.watched:
            audit.everything(self)

    # -- looking -----------------------------------------------------------------------------------------------------
    def no(self, name: str) -> int:
        found = self.plan.number(name)
        assert found is not None, name
        return found

    def row(self, name: str) -> Step:
        return self.rows[self.no(name)]

    def state(self, name: str) -> StepState:
        return self.row(name).state

    def states(self) -> dict[str, str]:
        """Every row's state by step name."""
        return {self.plan.at(no).name: str(row.state) for no, row in sorted(self.rows.items())}

    def trail(self, name: str | None = None) -> list[str]:
        """The triggers of a step (or of the run), in journal order."""
        no = RUN_ENTITY if name is None else self.no(name)
        return [hop.trigger for hop in self.hops if hop.no == no]

    def ready(self) -> list[str]:
        """The names of the steps that a worker may claim now."""
        return [self.plan.at(no).name for no, row in sorted(self.rows.items()) if row.ready_at is not None]

    def attempts_of(self, name: str) -> list[str]:
        return [str(one.state) for (no, _), one in sorted(self.attempts.items()) if no == self.no(name)]

    @property
    def over(self) -> bool:
        return self.run.state in RUN_TERMINAL

    # -- verbs -------------------------------------------------------------------------------------------------------
    def one(self, event: Event, claimer: Claimer | None = None) -> Accepted:
        """Send one event; a refusal is raised, as it is where somebody waits for the answer."""
        (reply,) = self.send(event, claimer=claimer)
        if isinstance(reply, Refused):
            raise reply
        return reply

    def start(self) -> Accepted:
        return self.one(RunStarted(tenant="t", run_id="r", actor="ann"))

    def claiming(self, name: str, *, worker: int = 1, lease: int = LEASE) -> StepClaimed:
        no = self.no(name)
        row = self.rows.get(no)
        given = () if row is None else unlimited_grants(self.plan.of(row))
        places = () if row is None else free_places(self.plan.of(row), row)
        who = {"tenant": "t", "run_id": "r", "actor": f"w{worker}"}
        return StepClaimed(**who, no=no, worker=worker, lease=lease, resources=given, limits=places)

    def claim(self, *names: str, worker: int = 1, lease: int = LEASE) -> int:
        """Claim steps one after the other; returns the fence of the last claim."""
        for name in names:
            self.one(self.claiming(name, worker=worker, lease=lease))
        return self.row(names[-1]).fence

    def reporting(
        self, name: str, outcome: Outcome, fence: int | None = None, worker: int | None = None
    ) -> StepReported:
        row = self.row(name)
        by = worker if worker is not None else row.worker or 1
        return StepReported(
            tenant="t",
            run_id="r",
            actor=f"w{by}",
            no=row.no,
            fence=row.fence if fence is None else fence,
            worker=by,
            outcome=outcome,
        )

    def report(
        self,
        name: str,
        outcome: Outcome,
        *,
        fence: int | None = None,
        worker: int | None = None,
        claimer: Claimer | None = None,
    ) -> Accepted:
        """Report on a step as its holder, unless told otherwise."""
        return self.one(self.reporting(name, outcome, fence, worker), claimer)

    def checkpoint(
        self, name: str, what: str, value: bytes, *, fence: int | None = None, worker: int | None = None
    ) -> Reply:
        """Record a checkpoint as the holder of a step, unless told otherwise; a refusal is returned."""
        row = self.row(name)
        by = worker if worker is not None else row.worker or 1
        event = StepCheckpointed(
            tenant="t",
            run_id="r",
            actor=f"w{by}",
            no=row.no,
            fence=row.fence if fence is None else fence,
            worker=by,
            name=what,
            value=value,
        )
        return self.send(event)[0]

    def finish(self, *names: str, output: bytes | None = None) -> None:
        """Claim these steps and complete them, rules and all."""
        for name in names:
            if self.row(name).worker is None:
                self.claim(name)
            if self.state(name) is S.RUNNING:
                self.report(name, Completed(output=output, token=TOKEN))
            if self.state(name) is S.VALIDATING:
                self.report(name, RulesPassed())

    def fail(self, name: str, category: Category = Category.VALIDATION, error: str = "no good") -> None:
        """Claim a step and let its attempt fail (for good, unless the category is one that is retried)."""
        if self.row(name).worker is None:
            self.claim(name)
        self.report(name, Failed(category=category, error=error))

    def pass_time(self, microseconds: int) -> None:
        """Move the clock; nothing is noticed until something looks."""
        self.now += microseconds

    def tick(self, name: str | None = None) -> Accepted:
        """A sweep proposes a step, or the run itself."""
        no = None if name is None else self.no(name)
        return self.one(TimeCame(tenant="t", run_id="r", actor="sweep", no=no))

    def later(self, microseconds: int, name: str | None = None) -> Accepted:
        """Move the clock and let a sweep look."""
        self.pass_time(microseconds)
        return self.tick(name)

    def lose(self, name: str, worker: int = 1) -> None:
        """Claim a step, and never hear of its worker again."""
        if self.row(name).worker is None:
            self.claim(name, worker=worker)
        self.later(LEASE + 1, name)

    def decide_gate(self, approve: bool, name: str | None, by: str, comment: str = "", **more: Any) -> Accepted:
        no = None if name is None else self.no(name)
        return self.one(GateDecided(approve=approve, no=no, comment=comment, **self.who(by), **more))

    def decide_hold(
        self, name: str, choice: HoldChoice, *, by: str = "bea", reason: str = "", output: bytes | None = None
    ) -> Accepted:
        return self.one(HoldDecided(no=self.no(name), choice=choice, reason=reason, output=output, **self.who(by)))

    def approve(self, name: str | None = None, *, by: str = "bea", comment: str = "", **more: Any) -> Accepted:
        return self.decide_gate(True, name, by, comment, **more)

    def reject(self, name: str | None = None, *, by: str = "bea", comment: str = "", **more: Any) -> Accepted:
        return self.decide_gate(False, name, by, comment, **more)

    def request_changes(
        self, name: str | None = None, *, by: str = "bea", comment: str = "say why", **more: Any
    ) -> Accepted:
        no = None if name is None else self.no(name)
        return self.one(ChangesRequested(no=no, comment=comment, **self.who(by), **more))

    def escalate(self, name: str | None = None, *, by: str = "bea", reason: str = "away", **more: Any) -> Accepted:
        no = None if name is None else self.no(name)
        return self.one(EscalationRequested(no=no, reason=reason, **self.who(by), **more))

    def reassign(self, name: str, *to: str, by: str = "zoe", reason: str = "all left", **more: Any) -> Accepted:
        return self.one(GateReassigned(no=self.no(name), to=to, reason=reason, **self.who(by), **more))

    def annotate(self, note: str, name: str | None = None, *, by: str = "bea") -> Accepted:
        no = None if name is None else self.no(name)
        return self.one(Annotated(tenant="t", run_id="r", actor=by, note=note, no=no))

    def complete(
        self,
        name: str,
        outcome: ManualOutcome = ManualOutcome.SUCCEEDED,
        *,
        token: str = TOKEN,
        by: str = "bea",
        output: bytes | None = None,
        **more: Any,
    ) -> Accepted:
        """Complete a step by hand."""
        return self.one(
            CompletionSignalled(
                **self.who(by),
                no=self.no(name),
                token=token,
                outcome=outcome,
                output=output,
                **more,
            )
        )

    def reissue(self, name: str, token: str, *, by: str = "bea", reason: str = "lost") -> Accepted:
        """Replace the token of a manual step."""
        return self.one(TokenReissued(tenant="t", run_id="r", actor=by, no=self.no(name), token=token, reason=reason))

    def tell(self, name: str, id: str = "m1", payload: bytes = b"{}") -> Accepted:  # noqa: A002
        """A message arrives."""
        return self.one(MessageArrived(tenant="t", run_id="r", actor="outside", id=id, name=name, payload=payload))

    def pause(self, *, by: str = "cyd", reason: str = "") -> Accepted:
        return self.one(PauseRequested(tenant="t", run_id="r", actor=by, reason=reason))

    def resume(self, *, by: str = "cyd", reason: str = "") -> Accepted:
        return self.one(UnpauseRequested(tenant="t", run_id="r", actor=by, reason=reason))

    def grant(self, held: int = 0, most: int = 3) -> Accepted:
        """Grant the run its execution slot."""
        use = (ScopeUse("workflow w", held, most),)
        return self.one(SlotGranted(tenant="t", run_id="r", actor="slots", scopes=use))

    def cancel(self, *, compensate: bool = False, by: str = "cyd", reason: str = "") -> Accepted:
        return self.one(CancelRequested(tenant="t", run_id="r", actor=by, compensate=compensate, reason=reason))


def leaves_trace(reply: Reply) -> bool:
    """Whether an event with this answer may change something: a refused one only if it violates a duty."""
    return isinstance(reply, Accepted) or (isinstance(reply, NotAllowed) and reply.step is not None)


def must_decide(snapshot: Snapshot, events: Sequence[Event], now: int, claimer: Claimer | None) -> Decision:
    answer = decide(snapshot, events, now, claimer)
    assert isinstance(answer, Decision)
    return answer


def bytes_of_rows(world: World) -> bytes:
    """The run and its steps as bytes, to show that deciding does not touch what it was shown."""
    return _encoder.encode([world.run, sorted(world.rows.items())])


def claimer(slots: int = 1, *, worker: int = 1, queues: Iterable[int] = range(1, 100)) -> Claimer:
    """A worker with room for more."""
    return Claimer(actor=f"w{worker}", worker=worker, lease=LEASE, slots=slots, queues=frozenset(queues))


ENDED_WELL = (RunState.SUCCEEDED, RunState.ROLLED_BACK)
