"""Material for differential tests: definitions that together wait, fail, check, undo and time out, and reports of
workers.

Plain values; `lives` draws from them.
"""

from __future__ import annotations

from stepkeep.kernel.definition import (
    SECOND,
    Approval,
    Completion,
    Definition,
    Handler,
    Retry,
    Rule,
    StepDefinition,
    Undo,
    Wait,
)
from stepkeep.kernel.machine.outcomes import (
    Completed,
    Emitted,
    Failed,
    Outcome,
    Released,
    RulesFailed,
    RulesPassed,
    Waiting,
)
from stepkeep.kernel.machine.states import Category, OnFailure
from stepkeep.operations.people.people import token_hash
from stepkeep_lab.storecheck.bench import gate, task

TOKEN = "a token"  # noqa: S105 - what people would be sent
HOOK = Undo(executor=Handler(name="undo"), retry=Retry(max_attempts=2))

QUEUES = 4
"""What the definitions ask for: steps, steps of another kind, hooks, rules."""

DEFINITIONS = (
    Definition(
        name="people",
        version=1,
        steps=(
            task("a", 0, undo=HOOK, retry=Retry(max_attempts=2)),
            gate("g", 1, ["a"], approval=Approval(deadline=60 * SECOND)),
            task("m", 2, ["g"], completion=Completion.MANUAL, completion_deadline=60 * SECOND, undo=HOOK),
            gate("w", 3, ["m"], wait=Wait(event="paid", deadline=60 * SECOND)),
        ),
        on_failure=OnFailure.COMPENSATE,
        timeout=600 * SECOND,
    ),
    Definition(
        name="diamond",
        version=1,
        steps=(
            task("a", 0, undo=HOOK, on_failure=OnFailure.COMPENSATE),
            task("b", 1, ["a"], undo=HOOK, on_failure=OnFailure.COMPENSATE, rules=(Rule(expression="true"),)),
            task("c", 2, ["a"], on_failure=OnFailure.SKIP, executor=Handler(name="other")),
            StepDefinition(name="d", order=3, executor=Handler(name="noop"), hold=Approval(), depends_on=()),
            task("e", 4, ["b", "d"], on_failure=OnFailure.CONTINUE),
        ),
        rules=(Rule(expression="true"),),
        priority=1,
    ),
    Definition(
        name="letters",
        version=1,
        steps=(
            gate("first", 0, wait=Wait(event="paid", deadline=300 * SECOND)),
            gate("second", 1, ["first"], wait=Wait(event="paid", deadline=300 * SECOND)),
            task("last", 2, ["second"]),
        ),
    ),
    Definition(
        name="by-hand",
        version=1,
        steps=(
            task("m", 0, completion=Completion.MANUAL, completion_deadline=60 * SECOND, undo=HOOK),
            gate("g", 1, ["m"], approval=Approval(deadline=60 * SECOND), on_failure=OnFailure.COMPENSATE),
        ),
    ),
    Definition(name="small", version=1, steps=(task("only", executor=Handler(name="other")),)),
    Definition(name="small", version=2, steps=(task("only"),), labels={"kind": "small"}, timeout=60 * SECOND),
)

OUTCOMES: tuple[Outcome, ...] = (
    Completed(
        output=b'{"n":1}',
        token=token_hash(TOKEN),
        emit=(Emitted("told", b'{"to":"you"}'), Emitted("told", b'{"to":"all"}')),
    ),
    Completed(token=token_hash(TOKEN), cost=b"1"),
    Failed(category=Category.TRANSIENT, error="no"),
    Failed(category=Category.AUTH, error="never", delay=5 * SECOND),
    Waiting(event="paid", timeout=20 * SECOND),
    Waiting(event="paid", timeout=None, emit=(Emitted("asked", b"{}"),)),
    Released(),
    RulesPassed(),
    RulesFailed(error="broken"),
)
