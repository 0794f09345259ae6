"""The expressions of a definition, compiled: what `decide` evaluates, and the compiler that makes it.

The kernel evaluates no text itself. `definition.expressions.compiler` has the compiler that programs use; simulations
have their own. `build_plan` calls a compiler once per definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stepkeep.kernel.errors import InvariantBroken

if TYPE_CHECKING:
    from stepkeep.kernel.decide.policy import Policy
    from stepkeep.kernel.definition import Definition, Limit, StepDefinition
    from stepkeep.kernel.machine.rows import Limited
    from stepkeep.kernel.machine.states import StepState


class ConditionView(msgspec.Struct, frozen=True):
    """What a condition may read, by step name; payloads are encoded JSON.

    `decoded` caches what conditions decoded; the views of one decision share it. `index` and `last` are those of an
    element: its place, and the output of the element before it.
    """

    run_id: str
    input: bytes
    outputs: Mapping[str, bytes | None]
    states: Mapping[str, StepState]
    decoded: dict[str, tuple[bytes, Any]] = {}
    index: int | None = None
    last: bytes | None = None


class Evaluated(Protocol):
    """An expression that is evaluated when its step opens. `reads` names the steps it reads."""

    @property
    def reads(self) -> frozenset[str]: ...

    @property
    def reads_input(self) -> bool: ...


class Condition(Evaluated, Protocol):
    """A compiled `if:`. `holds` raises ExpressionError if it cannot be evaluated."""

    def holds(self, view: ConditionView) -> bool: ...


class SleepLength(Evaluated, Protocol):
    """The compiled length of a `sleep:`. `microseconds` raises ExpressionError if it has none."""

    def microseconds(self, view: ConditionView) -> int: ...


class MessageTest(Protocol):
    """A compiled filter of a wait, or its `until`. `holds` raises ExpressionError if it cannot be evaluated."""

    @property
    def reads_input(self) -> bool: ...

    def holds(self, view: ConditionView, messages: Sequence[bytes]) -> bool: ...


class Facts(Evaluated, Protocol):
    """The compiled facts of a gate. `render` raises ExpressionError if one of them cannot be evaluated."""

    def render(self, view: ConditionView) -> Mapping[str, Any]: ...


class Keys(Evaluated, Protocol):
    """The compiled keys and units of a step's limits. `of` raises ExpressionError if one cannot be evaluated."""

    def of(self, view: ConditionView) -> tuple[Limited, ...]: ...


class Grower(Evaluated, Protocol):
    """The compiled expressions of a step that owns elements. Each method raises ExpressionError."""

    def items(self, view: ConditionView) -> tuple[int, bytes]:
        """The number of items of a map, and their JSON."""
        ...

    def goes_on(self, view: ConditionView) -> bool:
        """Whether another element of a loop follows."""
        ...

    def chosen(self, view: ConditionView) -> int | None:
        """The first case of a choice whose condition holds; None if none does."""
        ...

    def join(self, outputs: Sequence[bytes | None]) -> bytes:
        """The outputs of elements as one list."""
        ...

    def join_added(self, own: bytes | None, added: Sequence[tuple[str, bytes | None]]) -> bytes:
        """The output of a handler that added steps, with theirs by name."""
        ...


class Compiler:
    """Compiles the texts of a definition. This one knows no language: it refuses each text, and policies."""

    def condition(self, text: str, definition: Definition) -> Condition:
        """An `if:`."""
        raise InvariantBroken(f"nothing evaluates the condition {text} of {definition.name}")

    def sleep_length(self, text: str, definition: Definition) -> SleepLength:
        """The length of a sleep."""
        raise InvariantBroken(f"nothing evaluates the sleep {text} of {definition.name}")

    def message_test(self, text: str, several: bool) -> MessageTest:
        """An expression over one message, or with `several` over all that a wait has taken."""
        raise InvariantBroken(f"nothing evaluates the filter {text}")

    def facts(self, facts: Mapping[str, str], definition: Definition) -> Facts:
        """The facts of a gate."""
        raise InvariantBroken(f"nothing evaluates the facts {', '.join(facts)} of {definition.name}")

    def keys(self, limits: Sequence[Limit], definition: Definition) -> Keys:
        """The keys and the units of a step's limits."""
        raise InvariantBroken(f"nothing evaluates the keys of limits of {definition.name}")

    def grower(self, step: StepDefinition, definition: Definition) -> Grower:
        """The list of a map, the condition of a loop or those of a choice; of a handler that adds steps, how outputs
        are joined."""
        raise InvariantBroken(f"nothing evaluates the elements of {step.name} of {definition.name}")

    def policies(self, definition: Definition) -> tuple[Policy, ...]:
        """The policies and the budget of a definition."""
        if definition.policy is msgspec.UNSET and definition.budget is msgspec.UNSET:
            return ()
        raise InvariantBroken(f"nothing evaluates the policy of {definition.name}")
