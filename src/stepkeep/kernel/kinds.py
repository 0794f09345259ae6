"""Step kinds: what a step does, as one value with all that its kind needs.

A kind tells whether a worker claims the step, what the step waits for, whether it owns elements, and how it is called.
Completion by hand, a hold and rules stand beside it in `PlannedStep`, because each kind may have them. Nothing is
decided here: `progress.OPENINGS` has one row per kind, `elements.OWNERS` one per kind that owns elements. `build_plan`
makes kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from stepkeep.kernel.compiler import Compiler, Evaluated, Grower, MessageTest, SleepLength
from stepkeep.kernel.definition import (
    Approval,
    Definition,
    Executor,
    Flow,
    Growth,
    Loop,
    Map,
    StepDefinition,
    SubWorkflow,
    Switch,
    Then,
    Wait,
)
from stepkeep.kernel.errors import InvariantBroken
from stepkeep.kernel.machine.states import OnFailure


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """The root of all kinds: what is true of most of them. A kind has fields for what it has."""

    word: ClassVar[str] = "none"
    """What views and pages call it. A step that an executor runs has the word of that."""
    logged: ClassVar[str] = "none"
    """What the logs of dialects call it, on the same condition."""
    judged: ClassVar[str] = "wait"
    """What policies call it, on the same condition."""
    is_claimed: ClassVar[bool] = False
    """Whether a worker claims the step itself."""
    only_waits: ClassVar[bool] = False
    """Whether it only waits, for people, a message or time: a policy that holds steps lets it open."""
    sleeps: ClassVar[bool] = False
    """Whether its deadline is its success."""
    starts_child: ClassVar[bool] = False
    undoes_child: ClassVar[bool] = False
    is_flow: ClassVar[bool] = False
    """Whether its handler is a coroutine that is suspended while it awaits its calls."""
    pauses: ClassVar[bool] = False
    """Whether it may wait between two of its elements, while none of them is unsettled."""

    @property
    def executor(self) -> Executor | None:
        """What runs for the step, or for each of its elements."""
        return None

    @property
    def growth(self) -> Growth | None:
        """How it owns elements; None if it owns none."""
        return None

    @property
    def grower(self) -> Grower | None:
        return None

    @property
    def terms(self) -> Approval | None:
        """The terms on which people decide the step itself."""
        return None

    @property
    def wait(self) -> Wait | None:
        """What it waits for, besides people and other steps."""
        return None

    @property
    def child(self) -> SubWorkflow | None:
        """The workflow that it starts, or whose run it rolls back."""
        return None

    @property
    def evaluated(self) -> tuple[Evaluated | None, ...]:
        """What is evaluated when the step opens."""
        return (self.grower,)

    @property
    def title(self) -> str:
        """What views and pages call this step."""
        return self._named(self.word)

    @property
    def log_title(self) -> str:
        return self._named(self.logged)

    @property
    def policy_title(self) -> str:
        return self._named(self.judged)

    @property
    def awaits_child(self) -> bool:
        """Whether the step, or one of its elements, may wait for a child run."""
        return False

    @property
    def grows_by_report(self) -> bool:
        """Whether a worker runs the step itself, and its report says which steps are added."""
        return self.is_claimed and self.growth is not None

    def element(self, index: int) -> StepKind:
        """The kind of an element, by its place among those that the definition knows."""
        raise InvariantBroken("a step without elements has none")

    def tolerates(self, failed: int, count: int, element: StepDefinition) -> bool:
        """Whether one more element may fail: `failed` of `count` have."""
        return False

    def _named(self, word: str) -> str:
        executor = self.executor
        return word if executor is None else str(executor.__struct_config__.tag)


class WorkStep(StepKind, frozen=True, kw_only=True):
    """A worker runs a handler. With `adds`, the handler may return steps, which are added to the plan behind it."""

    is_claimed: ClassVar[bool] = True
    executor: Executor
    adds: Then | None = None
    grower: Grower | None = None

    @property
    def growth(self) -> Then | None:
        return self.adds

    def tolerates(self, failed: int, count: int, element: StepDefinition) -> bool:
        return element.on_failure is OnFailure.SKIP

    @property
    def title(self) -> str:
        return "then" if self.adds is not None else self._named(self.word)


class GateStep(StepKind, frozen=True, kw_only=True):
    """People decide; their decision is the output."""

    word: ClassVar[str] = "approval"
    logged: ClassVar[str] = "approval"
    judged: ClassVar[str] = "gate"
    only_waits: ClassVar[bool] = True
    terms: Approval


class WaitStep(StepKind, frozen=True, kw_only=True):
    """A message by its name, or several. `accepts` is its filter, `enough` tells when it has taken enough."""

    word: ClassVar[str] = "wait"
    logged: ClassVar[str] = "wait"
    only_waits: ClassVar[bool] = True
    wait: Wait
    accepts: MessageTest | None = None
    enough: MessageTest | None = None


class SleepStep(StepKind, frozen=True, kw_only=True):
    """Time: its end is the success of the step."""

    word: ClassVar[str] = "sleep"
    logged: ClassVar[str] = "wait"
    only_waits: ClassVar[bool] = True
    sleeps: ClassVar[bool] = True
    wait: Wait
    length: SleepLength | None = None

    @property
    def evaluated(self) -> tuple[Evaluated | None, ...]:
        return (self.length,)


class ChildStep(StepKind, frozen=True, kw_only=True):
    """A run of another workflow, which the step awaits unless it is detached."""

    word: ClassVar[str] = "workflow"
    starts_child: ClassVar[bool] = True
    child: SubWorkflow

    @property
    def awaits_child(self) -> bool:
        return self.child.detached is not True


class MapStep(StepKind, frozen=True, kw_only=True):
    """One element for each item of a list, each with the kind `body`."""

    growth: Map
    body: StepKind
    grower: Grower

    @property
    def executor(self) -> Executor | None:
        return self.body.executor

    @property
    def awaits_child(self) -> bool:
        return self.body.awaits_child

    def tolerates(self, failed: int, count: int, element: StepDefinition) -> bool:
        return failed < self.growth.tolerated(count)

    @property
    def title(self) -> str:
        return "map"

    def element(self, index: int) -> StepKind:
        return self.body


class LoopStep(StepKind, frozen=True, kw_only=True):
    """One element after the other, each with the kind `body`."""

    pauses: ClassVar[bool] = True
    growth: Loop
    body: StepKind
    grower: Grower

    @property
    def executor(self) -> Executor | None:
        return self.body.executor

    @property
    def awaits_child(self) -> bool:
        return self.body.awaits_child

    @property
    def title(self) -> str:
        return "loop"

    def element(self, index: int) -> StepKind:
        return self.body


class ChoiceStep(StepKind, frozen=True, kw_only=True):
    """One element: the first case whose condition holds."""

    word: ClassVar[str] = "switch"
    growth: Switch
    cases: tuple[StepKind, ...]
    grower: Grower

    @property
    def awaits_child(self) -> bool:
        return any(case.awaits_child for case in self.cases)

    def element(self, index: int) -> StepKind:
        return self.cases[index]


class FlowStep(StepKind, frozen=True, kw_only=True):
    """A coroutine that workers run; each of its calls is a step."""

    is_claimed: ClassVar[bool] = True
    is_flow: ClassVar[bool] = True
    executor: Executor
    growth: Flow

    @property
    def title(self) -> str:
        return "flow"

    @property
    def awaits_child(self) -> bool:
        return True


class ChildUndoStep(StepKind, frozen=True, kw_only=True):
    """The undo of a step that started a child: no worker runs it, and the child is rolled back by its own hooks."""

    word: ClassVar[str] = "rollback"
    undoes_child: ClassVar[bool] = True
    child: SubWorkflow


class UnreadStep(StepKind, frozen=True, kw_only=True):
    """A call of a flow or an added step of which only the number is known: its row says what it does."""


def kind_of(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    """The kind of a step of a definition."""
    growth = step.growth
    return plain_kind(step, definition, compiler) if not growth else OWNERS[type(growth)](step, definition, compiler)


def plain_kind(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    """The kind of a step that owns no elements, or of each element of one that does."""
    if step.child is not msgspec.UNSET:
        return ChildStep(child=step.child)
    if step.wait is not None:
        return _waiting(step.wait, definition, compiler)
    if step.approval is not None:
        return GateStep(terms=step.approval)
    return UnreadStep() if step.executor is None else WorkStep(executor=step.executor)


def _waiting(wait: Wait, definition: Definition, compiler: Compiler) -> StepKind:
    if wait.sleeps is True:
        length = None if wait.length is msgspec.UNSET else compiler.sleep_length(wait.length, definition)
        return SleepStep(wait=wait, length=length)
    return WaitStep(
        wait=wait,
        accepts=None if wait.accepts is msgspec.UNSET else compiler.message_test(wait.accepts, False),
        enough=None if wait.enough is msgspec.UNSET else compiler.message_test(wait.enough, True),
    )


def _map(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    assert isinstance(step.growth, Map)
    body, grower = plain_kind(step, definition, compiler), compiler.grower(step, definition)
    return MapStep(growth=step.growth, body=body, grower=grower)


def _loop(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    assert isinstance(step.growth, Loop)
    body, grower = plain_kind(step, definition, compiler), compiler.grower(step, definition)
    return LoopStep(growth=step.growth, body=body, grower=grower)


def _choice(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    assert isinstance(step.growth, Switch)
    cases = tuple([plain_kind(case.step, definition, compiler) for case in step.growth.cases])
    return ChoiceStep(growth=step.growth, cases=cases, grower=compiler.grower(step, definition))


def _flow(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    assert isinstance(step.growth, Flow)
    assert step.executor is not None
    return FlowStep(growth=step.growth, executor=step.executor)


def _adding(step: StepDefinition, definition: Definition, compiler: Compiler) -> StepKind:
    assert isinstance(step.growth, Then)
    assert step.executor is not None
    return WorkStep(executor=step.executor, adds=step.growth, grower=compiler.grower(step, definition))


OWNERS: Mapping[type[Any], Callable[[StepDefinition, Definition, Compiler], StepKind]] = {
    Map: _map,
    Loop: _loop,
    Switch: _choice,
    Flow: _flow,
    Then: _adding,
}
"""How the kinds that own elements are made, by what the definition says about their growth."""
