"""The decisions of one transaction: many events over many runs, decided run by run on the loaded rows.

It does no I/O. The store calls `decide` with the rows it loaded, possibly several times. The result is a request for
more rows or everything to write. `transact` creates a batch and drops it after a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.kernel.composition.child_runs import is_child
from stepkeep.kernel.decide.decide import decide
from stepkeep.kernel.decide.decision import Accepted, Claimer, Decision, Need, Snapshot
from stepkeep.kernel.decide.limits import limits_of
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.errors import InvalidInput, NotFound, Quarantined, Unreadable
from stepkeep.kernel.machine.events import (
    Annotated,
    CancelRequested,
    ChangesRequested,
    ChildEnded,
    CodeChanged,
    CompletionSignalled,
    EscalationRequested,
    Event,
    GateDecided,
    GateReassigned,
    HoldDecided,
    MessageArrived,
    PauseRequested,
    Request,
    StepCheckpointed,
    StepClaimed,
    StepReported,
    TimeCame,
    TokenReissued,
    UnpauseRequested,
    caller_of,
)
from stepkeep.kernel.machine.fitting import misfit_of_event
from stepkeep.kernel.machine.rows import Notice, Run, Step, rows_of
from stepkeep.kernel.machine.states import RUN_TERMINAL, RunState
from stepkeep.kernel.people.authority import Caller
from stepkeep.kernel.plan import Plan
from stepkeep.operations.pipeline.plans import PlanCache
from stepkeep.store.change import Basis, Loaded, More, RunChange, RunKey, Want, Write
from stepkeep.store.reading import misfit, unreadable
from stepkeep.store.rows import Payload, ReleasedKey

NAMES_A_STEP = (
    StepReported,
    StepCheckpointed,
    StepClaimed,
    TimeCame,
    GateDecided,
    ChangesRequested,
    EscalationRequested,
    GateReassigned,
    Annotated,
    HoldDecided,
    CodeChanged,
    CompletionSignalled,
    TokenReissued,
    ChildEnded,
)

NOTHING: Mapping[int, bytes | None] = {}

Answer = Accepted | Exception
"""The result of one event: accepted, refused (expected), or the exception it alone caused in the kernel."""

Expect = Callable[[Sequence[Any]], Mapping[RunKey, set[int]]]
"""The steps that the decisions on these events will read too, as far as this is known beforehand."""

PATIENCE = 3
"""How often a run may request single steps before all of it is loaded."""


class DecisionBatch:
    """The events of one transaction, grouped by run, and the decisions reached so far."""

    def __init__(
        self,
        plans: PlanCache,
        events: Sequence[Event] = (),
        claimer: Claimer | None = None,
        *,
        expect: Expect | None = None,
        payloads: Mapping[int, Sequence[Payload]] | None = None,
        judges: bool = True,
    ) -> None:
        """Without `judges` the live policies are not asked: a claim opens no step."""
        self.basis = Basis.LOCKED
        self._plans = plans
        self._claimer, self._judges = claimer, judges
        self._expect, self._payloads = expect, payloads or {}
        self._given = tuple(events)
        self._misfits = {place: said for place, event in enumerate(events) if (said := misfit_of_event(event))}
        self._forget(None)

    def _forget(self, loaded: Loaded | None) -> None:
        """Start again: after a rollback the store asks for decisions on newly loaded rows."""
        self._loaded = loaded
        self._chained = self._claimer
        self._pins: set[tuple[str, int]] = set()
        self._climbs: list[More] = []
        self._asked: dict[RunKey, int] = {}
        self._sought: set[int] = set()
        self._events: dict[RunKey, list[tuple[int, Event]]] = {}
        self.decisions: dict[RunKey, Decision] = {}
        self.replies: list[Answer | None] = []
        self.add(self._given)

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            place = len(self.replies)
            said = self._misfits.get(place)
            if said is None:
                self._events.setdefault((event.tenant, event.run_id), []).append((place, event))
                self.replies.append(None)
            else:
                # It could not be read again if it were written; refusing it here keeps the other events unaffected.
                self.replies.append(InvalidInput(f"{type(event).__name__} on run {event.run_id!a:.80}: {said}"))

    def wants(self) -> list[Want]:
        """What to load before the first decision: the steps that events name, and those expected to follow."""
        wants = []
        expected = {} if self._expect is None else self._expect(self._given)
        for key, placed in self._events.items():
            numbers = set(expected.get(key, ()))
            messages, checkpoints = [], []
            whole = waiting = False
            people: list[Caller] = []
            for _, event in placed:
                if isinstance(event, Request) and (caller := caller_of(event)) is not None:
                    people.append(caller)
                if isinstance(event, NAMES_A_STEP):
                    if event.no is not None:
                        numbers.add(event.no)
                    if isinstance(event, StepCheckpointed):
                        checkpoints.append((event.no, event.name))
                    elif isinstance(event, GateDecided | ChangesRequested | EscalationRequested):
                        waiting = True
                elif isinstance(event, MessageArrived):
                    messages.append(event.id)
                    waiting = True
                elif isinstance(event, CancelRequested | PauseRequested | UnpauseRequested):
                    whole = True
            wants.append(
                Want(
                    tenant=key[0],
                    run_id=key[1],
                    steps=tuple(sorted(numbers)),
                    whole=whole,
                    waiting=waiting,
                    messages=tuple(messages),
                    checkpoints=tuple(checkpoints),
                    people=tuple(people),
                )
            )
        return wants

    def decide(self, loaded: Loaded) -> More | Write:
        """Decide on every run that has enough rows; request what the others need."""
        if loaded is not self._loaded:
            self._forget(loaded)
        unknown, stale = self._unknown(loaded), self._stale(loaded)
        if unknown or stale:
            return More(definitions=unknown, policies=stale)
        if self._judges and (windows := self._plans.live.unread_spend(self._tenants, loaded)):
            return More(spend=windows)
        wants = []
        self._pins, self._climbs = set(), []
        for key, events in self._events.items():
            if key in self.decisions:
                continue
            need = self._decide(loaded, key, events)
            if need is not None:
                wants.append(self._want_more(key, need))
        if not wants:
            return self._write()
        return More(
            wants=tuple(wants),
            revisions=tuple(sorted(self._pins)),
            above=tuple(sorted({key for more in self._climbs for key in more.above})),
            costs=tuple(sorted({key for more in self._climbs for key in more.costs})),
            definitions=tuple(sorted({one for more in self._climbs for one in more.definitions})),
        )

    def _unknown(self, loaded: Loaded) -> tuple[int, ...]:
        """The definitions of these runs that are not loaded yet; each is requested once."""
        self._plans.learn(loaded.definitions.values())
        needed = {run.definition_id for run in loaded.runs.values()} - self._sought
        unknown = {one for one in needed if not self._plans.knows(one)}
        self._sought |= unknown
        return tuple(sorted(unknown))

    def _stale(self, loaded: Loaded) -> tuple[str, ...]:
        """The tenants whose live policy must be read before these decisions."""
        return self._plans.live.stale(self._tenants, loaded) if self._judges else ()

    @property
    def _tenants(self) -> list[str]:
        return [tenant for tenant, _ in self._events]

    def _policy(self, loaded: Loaded, key: RunKey) -> Policy | Need | None:
        """The live policy that judges a run: the revision that it is pinned to, or the newest."""
        live = self._plans.live
        if not self._judges or not live.has_pins(key[0]):
            return live.get(key[0])
        origin = loaded.origins.get(key)
        if origin is None:
            return Need(input=True)
        if origin.policy_revision is None:
            return live.get(key[0])
        pin = key[0], origin.policy_revision
        if not live.knows(pin):
            self._pins.add(pin)
            return Need()
        return live.pinned(pin)

    def _decide(self, loaded: Loaded, key: RunKey, events: Sequence[tuple[int, Event]]) -> Need | None:
        if loaded.barred and (reason := loaded.barred.get(key)) is not None:
            self._refuse(events, reason)
            return None
        run = loaded.runs.get(key)
        if run is None:
            self._refuse(events, NotFound(f"there is no run {key[1]}"))
            return None
        plan = self._plans.get(run.definition_id)
        if plan is None:
            self._refuse(events, self._plans.refusal(key[1], run.definition_id))
            return None
        policy = self._policy(loaded, key)
        if isinstance(policy, Need):
            return policy
        snapshot = Snapshot(
            plan=plan,
            run=run,
            steps=loaded.steps.get(key, {}),
            whole=key in loaded.whole,
            waiting=key in loaded.waiting,
            inbox=loaded.inbox.get(key),
            seen=_seen(loaded, key) if loaded.seen else frozenset(),
            recorded=loaded.recorded.get(key, {}),
            outputs=loaded.outputs.get(key, NOTHING),
            input=loaded.inputs.get(key),
            authorities=loaded.authorities,
            involved=loaded.involved.get(key),
            policy=policy,
            spend=self._plans.live.spend_of(policy, key[0], plan.definition.name),
            origin=loaded.origins.get(key),
            costs=loaded.costs.get(key),
            above=None if isinstance(above := self._plans.bounds.of(self._plans, loaded, key), More) else above,
        )
        claimer = self._chained if self._chained and self._chained.slots > 0 else None
        try:
            answer = decide(snapshot, [event for _, event in events], loaded.now, claimer)
        except Exception:  # noqa: BLE001 - a defect stays with the event that met it; its caller hears of it
            if (damage := _damage(snapshot)) is not None:
                loaded.barred[key] = damage
                self._refuse(events, damage)
                return None
            sound = self._sound(snapshot, events, loaded.now, claimer)
            if isinstance(sound, Need):
                return sound
            events = sound
            answer = decide(snapshot, [event for _, event in events], loaded.now, claimer)
        if isinstance(answer, Need):
            if answer.above and isinstance(above, More):
                self._climbs.append(above)
            return answer
        if claimer is not None and answer.claimed:
            self._chained = claimer.having(answer.claimed)
        self.decisions[key] = answer
        for (place, _), reply in zip(events, answer.replies, strict=True):
            self.replies[place] = reply
        return None

    def _refuse(self, events: Sequence[tuple[int, Event]], problem: Exception) -> None:
        for place, _ in events:
            self.replies[place] = problem

    @property
    def barred(self) -> Mapping[RunKey, Unreadable | Quarantined]:
        """The runs that this transaction left unchanged, with the reasons."""
        return {} if self._loaded is None else self._loaded.barred

    @property
    def passed_over(self) -> int:
        """How many claimable steps were not proposed because they belong to such runs."""
        return 0 if self._loaded is None else self._loaded.passed_over

    def _sound(
        self, snapshot: Snapshot, events: Sequence[tuple[int, Event]], now: int, claimer: Claimer | None
    ) -> list[tuple[int, Event]] | Need:
        """Of events that cannot be decided together, those that can; the others are answered with their exceptions."""
        sound: list[tuple[int, Event]] = []
        for place, event in events:
            try:
                answer = decide(snapshot, [*(before for _, before in sound), event], now, claimer)
            except Exception as problem:  # noqa: BLE001 - see above
                self.replies[place] = problem
                continue
            if isinstance(answer, Need):
                return answer
            sound.append((place, event))
        return sound

    def _want_more(self, key: RunKey, need: Need) -> Want:
        asked = self._asked[key] = self._asked.get(key, 0) + 1
        return Want(
            tenant=key[0],
            run_id=key[1],
            steps=tuple(sorted(need.steps)),
            whole=need.whole or asked > PATIENCE,
            waiting=need.waiting,
            inbox=need.inbox,
            outputs=tuple(sorted(need.outputs)),
            input=need.input,
            people=tuple(need.people),
            duties=need.duties,
            costs=need.costs,
        )

    def _write(self) -> Write:
        made = [decision for decision in self.decisions.values() if decision.entry is not None]
        write = Write(only_hot=all(decision.only_hot for decision in made))
        for decision in made:
            gather(write, decision)
            if (plan := self.plan_of(decision.run)).has_limits and self._loaded is not None:
                write.limits.at = self._loaded.now
                write.limits.ended += ended_places(plan, decision, self._loaded)
        # Those of refused events are not written: nothing refers to them.
        for place, kept in self._payloads.items():
            if type(self.replies[place]) is Accepted:
                write.rows.take(rows_of(kept))
        return write

    def is_certain(self) -> bool:
        """Whether every event was accepted and advances its run's journal, so that the write detects changed rows.

        A lease that is kept may have been renewed since; only the database knows its end.
        """
        for decision in self.decisions.values():
            leased = [step for step in (*decision.changed, *decision.added) if step.worker is not None]
            if decision.entry is None or len(leased) != len(decision.claimed):
                return False
        return all(type(reply) is Accepted for reply in self.replies)

    def plan_of(self, run: Run) -> Plan:
        """The plan of a run that was decided on."""
        plan = self._plans.get(run.definition_id)
        assert plan is not None
        return plan

    def claimed(self) -> list[tuple[Run, Plan, Step]]:
        """Every step that was claimed in this transaction, with its run and plan."""
        decisions = self.decisions.values()
        return [(each.run, self.plan_of(each.run), step) for each in decisions for step in each.claimed]


def _damage(snapshot: Snapshot) -> Unreadable | None:
    """The row that made a decision fail, if one of its fields has a wrong type."""
    run = snapshot.run
    for table, row in (("runs", run), *(("steps", step) for step in snapshot.steps.values())):
        if (said := misfit(row)) is not None:
            named = msgspec.structs.astuple(row)
            return unreadable(table, (run.tenant, run.id), named, said)
    return None


def _seen(loaded: Loaded, key: RunKey) -> frozenset[str]:
    return frozenset(message for *owner, message in loaded.seen if tuple(owner) == key)


def notices_of(run: Run) -> list[Notice]:
    """The notice of the end of a child, for the transaction that ends it."""
    if run.state not in RUN_TERMINAL or not is_child(run.id):
        return []
    return [
        Notice(
            tenant=run.tenant,
            child_id=run.id,
            outcome=run.state,
            ended_at=run.moved_at if run.ended_at is None else run.ended_at,
            category=run.category,
            error=run.error if run.state is not RunState.SUCCEEDED else None,
        )
    ]


def ended_places(plan: Plan, decision: Decision, loaded: Loaded) -> Iterator[tuple[str, str, int, int]]:
    """The claims of limited steps that this decision ends: their places are given back."""
    before = loaded.steps.get((decision.run.tenant, decision.run.id), {})
    for step in decision.changed:
        held = before.get(step.no)
        ends = step.worker is None and step.fence and (held is None or held.worker is not None)
        if ends and limits_of(plan.of(step)):
            yield step.tenant, step.run_id, step.no, step.fence


def gather(write: Write, decision: Decision) -> None:
    """Add the rows of one decision to the write."""
    run = decision.run
    write.runs.append(RunChange(was=decision.was, run=run))
    write.steps += decision.changed
    write.new_steps += decision.added
    write.attempts += decision.attempts
    if decision.entry is not None:
        write.entries.append(decision.entry)
    if decision.rows:
        write.rows.take(decision.rows)
    if run.state in RUN_TERMINAL:
        write.rows.take(rows_of(notices_of(run)))
        if run.business_key is not None:
            write.rows.add(ReleasedKey(run.tenant, run.business_key))
