"""The small definitions whose states are explored. Together they use every feature that a decision knows.

Limits are low (two attempts, two losses), because only the behaviour at a limit matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.definition.policy import policies_of
from stepkeep.kernel.compiler import Compiler, Condition, ConditionView
from stepkeep.kernel.decide.policy import Policy
from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Budget,
    CompensateWhen,
    Completion,
    Definition,
    Dependency,
    Distinct,
    Effect,
    Flow,
    Handler,
    HookFailure,
    Incompatible,
    Level,
    Limit,
    Loop,
    Map,
    OnDeadline,
    OnExceeded,
    OnExhausted,
    PolicyEffect,
    PolicyRule,
    Retry,
    Rule,
    StepDefinition,
    SubWorkflow,
    Switch,
    Then,
    Undo,
    UndoChild,
    Wait,
    digest_of,
    encode_definition,
)
from stepkeep.kernel.definition import Case as ChoiceCase
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.states import ErrorClass, OnFailure, StepState
from stepkeep.kernel.plan import Plan, build_plan, queue_specs
from stepkeep.simulate.world import WalkedGrowth

S = StepState
TWICE = Retry(max_attempts=2, max_losses=2)
ONCE = Retry(max_attempts=1, max_losses=1)
LOSABLE = Retry(max_attempts=1, max_losses=2)
UNCOUNTED = Retry(max_attempts=1, max_losses=2, counts_losses=False)
RULE = (Rule(expression="true"),)
ANY_END = (S.SUCCEEDED, S.SKIPPED, S.FAILED, S.CANCELLED)
SOON = 10 * SECOND


class Case(msgspec.Struct, frozen=True):
    """A definition to explore, and what its handlers may ask for: the messages that each step may wait for. With
    `pauses`, the run is paused and resumed wherever it can be. With `decides`, a person decides about stuck steps. With
    `records`, handlers record a checkpoint. With `begets`, flows start children; with `continues`, they continue as
    new."""

    name: str
    about: str
    definition: Definition
    parks: dict[str, str] = {}
    starts_idle: bool = False
    pauses: bool = False
    decides: bool = False
    records: bool = False
    begets: bool = False
    continues: bool = False

    @property
    def plan(self) -> Plan:
        return build_plan(
            self.definition,
            ModelCompiler(),
            definition_id=7,
            digest=digest_of(encode_definition(self.definition)),
            queues=range(1, len(queue_specs(self.definition)) + 1),
        )

    @property
    def events(self) -> tuple[str, ...]:
        """Every name that a run of the tree may wait for."""
        waits = {
            step.wait.event for step in self.definition.steps if step.wait is not None and step.wait.sleeps is not True
        }
        return tuple(sorted(waits | set(self.parks.values())))


class ModelCompiler(Compiler):
    """Conditions by their name, and elements as a simulated run has them."""

    def condition(self, text: str, definition: Definition) -> Condition:
        return CONDITIONS[text]

    def grower(self, step: StepDefinition, definition: Definition) -> WalkedGrowth:
        return Chosen(step) if isinstance(step.growth, Switch) else WalkedGrowth(step)

    def policies(self, definition: Definition) -> tuple[Policy, ...]:
        return policies_of(definition)


class Chosen(WalkedGrowth):
    """A choice by how the step before it ended: the first case after a success, the second after a skip."""

    def __init__(self, step: StepDefinition) -> None:
        self._before = step.depends_on[0].step
        self.reads = frozenset((self._before,))

    def chosen(self, view: ConditionView) -> int | None:
        return {StepState.SUCCEEDED: 0, StepState.SKIPPED: 1}.get(view.states[self._before])


class When(msgspec.Struct, frozen=True):
    """A condition on how one step ended: true, false, or impossible to evaluate."""

    step: str
    true: tuple[StepState, ...]
    broken: tuple[StepState, ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        return frozenset((self.step,))

    @property
    def reads_input(self) -> bool:
        return False

    def holds(self, view: ConditionView) -> bool:
        if view.states[self.step] in self.broken:
            raise ExpressionError("nothing can be said about that")
        return view.states[self.step] in self.true


CONDITIONS = {
    "a succeeded": When("a", (S.SUCCEEDED,)),
    "b is known": When("b", (S.SUCCEEDED,), broken=(S.SKIPPED, S.FAILED)),
}


def _work(name: str, *after: str | Dependency, undo: Retry | Undo | None = None, **settings: Any) -> StepDefinition:
    hook = undo if isinstance(undo, Undo) else None
    if isinstance(undo, Retry):
        hook = Undo(executor=Handler(name=f"undo {name}"), retry=undo)
    if hook is not None:
        settings.setdefault("effect", Effect.WRITE)
    settings.setdefault("retry", ONCE)
    return StepDefinition(
        name=name, order=0, executor=Handler(name=name), depends_on=_edges(after), undo=hook, **settings
    )


def _gate(name: str, *after: str | Dependency, deadline: int | None = SOON, **settings: Any) -> StepDefinition:
    approval = settings.pop("approval", Approval(deadline=deadline))
    return StepDefinition(name=name, order=0, approval=approval, depends_on=_edges(after), **settings)


def _wait(
    name: str, event: str, *after: str | Dependency, deadline: int | None = SOON, **settings: Any
) -> StepDefinition:
    return StepDefinition(
        name=name, order=0, wait=Wait(event=event, deadline=deadline), depends_on=_edges(after), **settings
    )


def _child(
    name: str,
    *after: str | Dependency,
    deadline: int | None = SOON,
    undo: Retry | UndoChild | None = None,
    **settings: Any,
) -> StepDefinition:
    hook = None
    if isinstance(undo, UndoChild):
        hook = Undo(executor=undo)
    elif undo is not None:
        hook = Undo(executor=Handler(name=f"undo {name}"), retry=undo)
    child = SubWorkflow(workflow="other", version=1, deadline=deadline, **settings.pop("child", {}))
    return StepDefinition(
        name=name, order=0, child=child, depends_on=_edges(after), undo=hook, effect=Effect.UNKNOWN, **settings
    )


def _rule(name: str, then: PolicyEffect, steps: str, when: str | None = None) -> PolicyRule:
    terms = Approval(deadline=SOON) if then is PolicyEffect.HOLD else None
    return PolicyRule(name=name, then=then, steps=(steps,), when=when, approval=terms)


def _edges(after: Iterable[str | Dependency]) -> tuple[Dependency, ...]:
    return tuple(Dependency(step=one) if isinstance(one, str) else one for one in after)


def _case(
    name: str,
    about: str,
    *steps: StepDefinition,
    parks: dict[str, str] | None = None,
    idle: bool = False,
    pauses: bool = False,
    decides: bool = False,
    records: bool = False,
    begets: bool = False,
    continues: bool = False,
    **more: Any,
) -> Case:
    ordered = tuple(replace(step, order=place) for place, step in enumerate(steps))
    definition = Definition(name=name, version=1, steps=ordered, **more)
    return Case(name, about, definition, parks or {}, idle, pauses, decides, records, begets, continues)


def cases() -> tuple[Case, ...]:
    """The family, smallest first, so that a defect is met on the shortest way."""
    tolerant: dict[str, Any] = {"on_failure": OnFailure.SKIP}
    continuing: dict[str, Any] = {"on_failure": OnFailure.CONTINUE}
    undoing: dict[str, Any] = {"on_failure": OnFailure.COMPENSATE}
    return (
        _case(
            "gates",
            "a gate, a held step, a manual completion with rules, hooks; two people",
            _work("a", undo=ONCE, hold=Approval(deadline=SOON), **tolerant),
            _gate("g", "a", **undoing),
            _work("m", "g", undo=ONCE, completion=Completion.MANUAL, completion_deadline=SOON, rules=RULE, **undoing),
            _gate("h", deadline=None, **tolerant),
            on_failure=OnFailure.COMPENSATE,
            idle=True,
        ),
        _case(
            "slots",
            "a run that waits for an execution slot, idle and paused first",
            _work("a", undo=ONCE, **undoing),
            _gate("g", deadline=None, **tolerant),
            on_failure=OnFailure.COMPENSATE,
            timeout=SOON,
            idle=True,
            pauses=True,
            slots=1,
        ),
        _case(
            "resources",
            "a limited step that needs resources and one with duties, tried again, checked, paused, and undone",
            _work(
                "a",
                undo=ONCE,
                resources={"repo": "exclusive", "cpu": 2},
                limits=(Limit(name="api", running=1), Limit(name="mail", rate=1)),
                rules=RULE,
                **undoing | {"retry": TWICE},
            ),
            _work("b", "a", **undoing),
            on_failure=OnFailure.COMPENSATE,
            duties=(Incompatible(steps=("a", "b")),),
            pauses=True,
        ),
        _case(
            "people",
            "gates with a quorum, an excluded requester, two levels and reminders",
            _gate("q", approval=Approval(quorum=2, reject_on=2, remind=SOON), **tolerant),
            _gate(
                "e",
                approval=Approval(
                    excluded=("requester",),
                    deadline=SOON,
                    on_deadline=OnDeadline.ESCALATE,
                    escalate=(Level(approvers=("bea",), deadline=SOON),),
                ),
                **undoing,
            ),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "reassigned",
            "a gate whose only approver asked for the run, and to which an operator names another",
            _gate("n", approval=Approval(approvers=("ann",), excluded=("requester",), deadline=SOON), **undoing),
            _work("a", "n", undo=ONCE, **undoing),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "deadlines",
            "gates that approve or skip at their deadline, decided by different people, and a hold that does",
            _gate("s", approval=Approval(deadline=SOON, on_deadline=OnDeadline.SKIP)),
            _gate("d", approval=Approval(deadline=SOON, on_deadline=OnDeadline.APPROVE)),
            _work("h", hold=Approval(deadline=SOON, on_deadline=OnDeadline.APPROVE), undo=ONCE, **undoing),
            on_failure=OnFailure.COMPENSATE,
            duties=(Distinct(gates=("s", "d")),),
        ),
        _case(
            "holds",
            "steps that hold when no attempt is left, one tolerated, one with a gate before it; retry, skip and fail",
            _work("a", retry=TWICE, undo=ONCE, on_exhausted=OnExhausted.HOLD, **undoing),
            _work("b", on_exhausted=OnExhausted.HOLD_REQUIRED, **tolerant),
            _work(
                "c",
                Dependency(step="a", allow=(S.SUCCEEDED, S.SKIPPED)),
                hold=Approval(deadline=SOON),
                on_exhausted=OnExhausted.HOLD,
                retry=Retry(max_attempts=2, max_losses=1, max_elapsed=SOON, classes=(ErrorClass.RATE_LIMIT,)),
                **continuing,
            ),
            _work("d", "b", Dependency(step="c", allow=ANY_END)),
            StepDefinition(name="nap", order=0, wait=Wait(event="sleep", deadline=SOON, sleeps=True)),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "held undos",
            "undos whose lost workers are no attempts; one holds when nothing is left: retry, fail and complete",
            _work(
                "a",
                undo=Undo(executor=Handler(name="undo a"), retry=UNCOUNTED, on_exhausted=OnExhausted.HOLD),
                **undoing,
            ),
            _work("b", "a", undo=UNCOUNTED, **undoing),
            _work("c", "b", **undoing),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "blocked",
            "a step whose agent reports governance: approved, rejected, cancelled and undone",
            _work("a", undo=ONCE, **undoing),
            _work("b", "a", **tolerant),
            on_failure=OnFailure.COMPENSATE,
            dialect="ioa",
        ),
        _case(
            "policies",
            "rules that deny and hold before a first attempt and before a retry, some tolerated, some undone",
            _work("a", retry=TWICE, **tolerant),
            _work("b", retry=TWICE, undo=ONCE, **undoing),
            _work("c", "b", retry=TWICE, **continuing),
            _work("d", Dependency(step="a", allow=ANY_END), **tolerant),
            _work("e", Dependency(step="c", allow=ANY_END), **continuing),
            policy=(
                _rule("retries-of-a", PolicyEffect.DENY, "a", "step.attempt > 1"),
                _rule("b", PolicyEffect.HOLD, "b", "step.attempt == 1"),
                _rule("retries-of-b", PolicyEffect.DENY, "b"),
                _rule("retries-of-c", PolicyEffect.HOLD, "c", "step.attempt > 1"),
                _rule("d-and-e", PolicyEffect.DENY, "[de]"),
            ),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "budget",
            "a budget of attempts that holds first attempts and retries, approved, rejected or past a deadline",
            _work("a", retry=TWICE, **tolerant),
            _work("b", retry=TWICE, undo=ONCE, **undoing),
            _work("c", "b", Dependency(step="a", allow=ANY_END), retry=TWICE, **continuing),
            budget=Budget(limits={"attempts": 2.0}, on_exceeded=OnExceeded.HOLD, approval=Approval(deadline=SOON)),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "stuck",
            "a person decides about stuck steps: a retry with rules and a hook, a handler that waits, a manual step",
            _work("a", retry=TWICE, rules=RULE, undo=TWICE, **undoing),
            _work("b", retry=ONCE, **tolerant),
            _work("c", "a", retry=ONCE, completion=Completion.MANUAL, **continuing),
            parks={"b": "paid"},
            decides=True,
        ),
        _case(
            "stuck kinds",
            "a person decides about a stuck retry whose failure is tolerated, and a stuck wait whose failure is not",
            _work("a", retry=TWICE, **tolerant),
            _work("b", Dependency(step="a", allow=ANY_END), retry=ONCE),
            parks={"b": "paid"},
            decides=True,
        ),
        _case(
            "checkpoints",
            "handlers that record a checkpoint: with a retry, with rules, with a hook, and in a flow",
            _work("a", retry=TWICE, rules=RULE, undo=ONCE, **undoing),
            _work("b", "a", growth=Flow(max=1), **continuing),
            records=True,
        ),
        _case("queue", "paused and resumed before anything has begun", _work("a"), pauses=True),
        _case(
            "elements",
            "a held map whose elements are undone, and a loop with a pause and a deadline",
            _work(
                "a",
                undo=ONCE,
                hold=Approval(deadline=SOON),
                growth=Map(over="", max=2, in_flight=1, tolerate=1),
                **undoing,
            ),
            _work("b", "a", growth=Loop(max=2, until="", pause=SOON, deadline=SOON), on_failure=OnFailure.SKIP),
        ),
        _case(
            "flow",
            "a flow of up to two calls with hooks, with a deadline, and a step behind it",
            _work("a", growth=Flow(max=2, deadline=SOON), **undoing),
            _work("b", Dependency(step="a", allow=ANY_END)),
        ),
        _case(
            "then",
            "a handler that adds up to two steps with hooks, with a deadline, and a step behind it",
            _work("a", growth=Then(max=2, deadline=SOON), **undoing),
            _work("b", Dependency(step="a", allow=ANY_END)),
        ),
        _case(
            "flow children",
            "a flow of up to two children, whose rollback rolls them back, and a step behind it",
            _work("a", growth=Flow(max=2), **undoing),
            _work("b", Dependency(step="a", allow=ANY_END), undo=ONCE, **undoing),
            begets=True,
        ),
        _case(
            "flow continues",
            "a flow of one call, by which it continues as new",
            _work("a", growth=Flow(max=1), retry=TWICE, **undoing),
            continues=True,
        ),
        _case(
            "choice",
            "a choice between two cases, one with a hook and one with rules, and a step behind it",
            _work("a", **tolerant),
            StepDefinition(
                name="b",
                order=0,
                depends_on=(Dependency(step="a", allow=ANY_END),),
                growth=Switch(
                    max=2,
                    cases=(
                        ChoiceCase(name="first", when="", step=_work("b", undo=ONCE, retry=TWICE)),
                        ChoiceCase(name="second", when="", step=_work("b", rules=RULE)),
                    ),
                ),
                **undoing,
            ),
            _work("c", "b", **undoing),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "children",
            "steps that wait for child runs: beside a handler, tolerated, detached, with a deadline, a hook, a timeout",
            _child("a", undo=ONCE, **undoing),
            _work("b", retry=ONCE, **undoing),
            _child("c", "a", **tolerant),
            _child("d", "a", child={"detached": True}),
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
            pauses=True,
        ),
        _case(
            "undone children",
            "children that are rolled back: before and after a hook of a handler, one of them tolerated",
            _child("a", deadline=None, undo=UndoChild(), **undoing),
            _work("b", "a", retry=ONCE, undo=ONCE, **undoing),
            _child("c", "b", undo=UndoChild(), **tolerant),
            _work("d", Dependency(step="c", allow=(S.SUCCEEDED, S.SKIPPED)), retry=ONCE, **undoing),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "mapped children",
            "a map of two children at a time that are rolled back, and a loop of children with a deadline, tolerated",
            _child("a", deadline=None, undo=UndoChild(), growth=Map(over="", max=2, in_flight=2), **undoing),
            _child("b", "a", growth=Loop(max=2, until="", pause=SOON, deadline=SOON), **tolerant),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "chosen children",
            "a choice between two children, one that is rolled back and one with a hook and a deadline",
            _work("a", **tolerant),
            StepDefinition(
                name="b",
                order=0,
                depends_on=(Dependency(step="a", allow=ANY_END),),
                growth=Switch(
                    max=2,
                    cases=(
                        ChoiceCase(name="first", when="", step=_child("b", deadline=None, undo=UndoChild())),
                        ChoiceCase(name="second", when="", step=_child("b", undo=ONCE)),
                    ),
                ),
                **undoing,
            ),
            _work("c", "b", **undoing),
            on_failure=OnFailure.COMPENSATE,
            pauses=True,
        ),
        _case(
            "pauses",
            "paused and resumed everywhere: a held root, a handler that waits, a gate, rules, a hook, a timeout",
            _work("a", retry=TWICE, undo=ONCE, hold=Approval(deadline=SOON), **undoing),
            _work("b", rules=RULE, retry=LOSABLE, **continuing),
            _gate("g", "a", **tolerant),
            parks={"b": "paid"},
            rules=RULE,
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
            pauses=True,
        ),
        _case(
            "skips",
            "conditions, tolerated failures and rejections, cascades over edges that allow them and edges that do not",
            _work("a", retry=TWICE, **tolerant),
            _work("b", Dependency(step="a", allow=(S.SUCCEEDED, S.SKIPPED)), condition="a succeeded", **continuing),
            _gate("c", Dependency(step="a", allow=ANY_END), **tolerant),
            _work("d", "b", Dependency(step="c", allow=ANY_END), **tolerant),
            _work("e", Dependency(step="b", allow=ANY_END), condition="b is known", **continuing),
            timeout=60 * SECOND,
        ),
        _case(
            "rules",
            "rules after steps and after the run, failures that let the run go on, rules that lose their lease",
            _work("a", rules=RULE, retry=LOSABLE, undo=ONCE, **continuing),
            _work("b", rules=RULE, retry=TWICE, **tolerant),
            _work("c", "a", "b", undo=ONCE, **continuing),
            rules=RULE,
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
        ),
        _case(
            "waits",
            "a handler that parks, with and without a timeout, beside a wait for the same message; a manual end",
            _work("a", retry=TWICE, **undoing, undo=ONCE),
            _wait("w", "paid", "a", **tolerant),
            _work(
                "c",
                Dependency(step="w", allow=ANY_END),
                completion=Completion.MANUAL,
                completion_deadline=SOON,
                **tolerant,
            ),
            parks={"a": "paid"},
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
        ),
        _case(
            "rules first",
            "rules before handlers whose attempts count for a rollback, beside handlers that fail or lose their lease",
            _work("a", undo=ONCE, **undoing),
            _work("b", undo=ONCE, compensate_when=CompensateWhen.ATTEMPTED, retry=TWICE, pre=RULE, **undoing),
            _work("c", "a", "b", pre=RULE, **tolerant),
            on_failure=OnFailure.COMPENSATE,
        ),
        _case(
            "undo stops",
            "hooks that fail and stop the rollback, effects that may have happened, effects that cannot be undone",
            _work("a", undo=TWICE, compensate_when=CompensateWhen.ATTEMPTED, retry=TWICE, **undoing),
            _work("b", undo=ONCE, **undoing),
            _work("c", "a", effect=Effect.IRREVERSIBLE, **undoing),
            _work("d", "b", "c", **undoing),
            on_failure=OnFailure.COMPENSATE,
            hook_failure=HookFailure.STOP,
        ),
        _case(
            "diamond",
            "five steps in a diamond with a wait in it and hooks around it: joins, lost leases, late successes undone",
            _work("a", undo=TWICE, retry=TWICE, **undoing),
            _work("b", "a", undo=ONCE, retry=TWICE, **undoing),
            _wait("c", "paid", "a", **undoing),
            _work("d", "a", undo=ONCE, retry=TWICE, **undoing),
            _work("e", "b", "c", "d", retry=TWICE, **undoing),
            parks={"d": "paid"},
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
        ),
        _case(
            "crowd",
            "three roots and a join for three workers, all with hooks, under a timeout: the most that can be in flight",
            _work("a", undo=ONCE, retry=TWICE, **undoing),
            _work("b", undo=ONCE, retry=TWICE, rules=RULE, **undoing),
            _work("c", undo=ONCE, retry=TWICE, **continuing),
            _work("d", "a", "b", Dependency(step="c", allow=ANY_END), retry=TWICE, **undoing),
            _gate("e", "d", **undoing),
            parks={"c": "paid"},
            rules=RULE,
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
        ),
        _case(
            "all at once",
            "five steps for three workers: handlers with hooks, a gate, a wait and a manual end side by side",
            _work("a", undo=ONCE, retry=TWICE, **undoing),
            _work("b", undo=ONCE, retry=TWICE, rules=RULE, **undoing),
            _work("m", undo=ONCE, retry=LOSABLE, completion=Completion.MANUAL, completion_deadline=SOON, **undoing),
            _gate("g", "a", "b", **undoing),
            _wait("w", "paid", "m", **tolerant),
            parks={"a": "paid"},
            on_failure=OnFailure.COMPENSATE,
            timeout=60 * SECOND,
        ),
    )
