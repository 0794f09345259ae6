"""Expressions of maps, loops and choices: the list of a map, conditions, and the inputs of elements.

An element of a map reads `item` and `index`; an element of a loop reads `last`, the output of the element before it
(null for the first), and `index`. The kernel evaluates lists and conditions while a transaction holds locks, within the
limits of a condition; workers render inputs. `conditions.py` has the expressions of all other steps.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stepkeep.definition.expressions.conditions import ConditionContext, compile_truth, context_of, known_of, plain_view
from stepkeep.definition.expressions.expressions import Expression, Template, compile_template
from stepkeep.definition.expressions.limits import CostBudget, condition_cost
from stepkeep.definition.findings import evaluated
from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.definition import Definition, Loop, Map, StepDefinition, Switch
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.payloads import MADE_HERE, read_reference

MAX_JOINED_BYTES = 8 * 1024 * 1024
"""How many bytes the joined results of a map may have."""

KEPT_LISTS = 16
"""How many lists a process keeps, so that not every element evaluates the whole list again."""

WHOLE_ITEM = "${{ item }}"
"""The inputs of an element of a map without `with`."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class CompiledGrowth:
    """The list of a map, the condition of a loop or those of a choice, implementing the kernel's `Grower` protocol."""

    def __init__(
        self,
        step: StepDefinition,
        definition: Definition,
        opened: Callable[[bytes], bytes] | None,
        sealed: Callable[[bytes], bytes] | None,
    ) -> None:
        known = known_of(definition)
        self._definition, self._opened, self._sealed = definition, opened, sealed
        self._max_cost = condition_cost(known.conditions)
        growth = step.growth
        self._over: Template | None = None
        self._test: Expression | None = None
        self._cases: list[Expression | None] = []
        self._is_until = isinstance(growth, Loop) and growth.until is not None
        self.reads: frozenset[str] = frozenset()
        self.reads_input: bool = False
        if isinstance(growth, Map):
            self._over = compile_template(growth.over, known.scopes.template)
            self.reads = self._over.references
            self.reads_input = self._over.uses_input
        elif isinstance(growth, Loop):
            self._test = compile_truth(growth.until or growth.as_long_as or "false", known.scopes.loop_condition)
            self.reads, self.reads_input = self._test.references, self._test.uses_input
        elif isinstance(growth, Switch):
            scope = known.scopes.condition
            self._cases = [None if one.when is None else compile_truth(one.when, scope) for one in growth.cases]
            tests = [test for test in self._cases if test is not None]
            self.reads = frozenset[str]().union(*(test.references for test in tests))
            self.reads_input = any(test.uses_input for test in tests)

    def items(self, view: ConditionView) -> tuple[int, bytes]:
        """The number of items, and their JSON; raises ExpressionError if there is no list."""
        assert self._over is not None
        items = self._over.render(self._context(view), self._budget())
        if not isinstance(items, list):
            raise ExpressionError(f"`over` comes to {evaluated(items)}, not to a list.")
        return len(items), _encode(items)

    def goes_on(self, view: ConditionView) -> bool:
        """Whether another element follows; raises ExpressionError if that is neither true nor false."""
        assert self._test is not None
        context = self._context(view)
        context["index"], context["last"] = view.index, self._opened_last(view.last)
        return self._holds(self._test, context) is not self._is_until

    def chosen(self, view: ConditionView) -> int | None:
        """The first case whose condition holds; raises ExpressionError if one before it is neither true nor false."""
        context = self._context(view)
        holds = (place for place, test in enumerate(self._cases) if test is None or self._holds(test, context))
        return next(holds, None)

    def _holds(self, test: Expression, context: Mapping[str, Any]) -> bool:
        found = test.evaluate(context, self._budget())
        if not isinstance(found, bool):
            raise ExpressionError(f"`{test.source}` comes to {evaluated(found)}, not to true or false.")
        return found

    def join(self, outputs: Sequence[bytes | None]) -> bytes:
        """The outputs as one list, in order; an element without one has null. Raises ExpressionError."""
        if any(output is not None and read_reference(output) is not None for output in outputs):
            said = "an element returned a large value, which is kept outside its row."
            raise ExpressionError(said, hint="Return less from each element, or store the value and return its name.")
        sealed = any(output is not None and output.startswith(MADE_HERE) for output in outputs)
        plain = [b"null" if output is None else self._plain(output) for output in outputs]
        size = sum(map(len, plain))
        if size > MAX_JOINED_BYTES:
            said = f"they have {size} bytes in sum; at most {MAX_JOINED_BYTES} fit."
            raise ExpressionError(said, hint="Return less from each element.")
        joined = b"[%s]" % b",".join(plain)
        return joined if not sealed or self._sealed is None else self._sealed(joined)

    def join_added(self, own: bytes | None, added: Sequence[tuple[str, bytes | None]]) -> bytes:
        """The output of a handler that added steps as `output`, and theirs by name as `steps`; null for one without.

        Raises ExpressionError.
        """
        values = [own, *(output for _, output in added)]
        if any(value is not None and read_reference(value) is not None for value in values):
            said = "the handler or an added step returned a large value, which is kept outside its row."
            raise ExpressionError(said, hint="Return less from each, or store the value and return its name.")
        sealed = any(value is not None and value.startswith(MADE_HERE) for value in values)
        plain = [msgspec.Raw(b"null" if value is None else self._plain(value)) for value in values]
        names = [name for name, _ in added]
        joined = _encode({"output": plain[0], "steps": dict(zip(names, plain[1:], strict=True))})
        if len(joined) > MAX_JOINED_BYTES:
            said = f"they have {len(joined)} bytes in sum; at most {MAX_JOINED_BYTES} fit."
            raise ExpressionError(said, hint="Return less from each step.")
        return joined if not sealed or self._sealed is None else self._sealed(joined)

    def _plain(self, payload: bytes) -> bytes:
        return payload if self._opened is None or not payload.startswith(MADE_HERE) else self._opened(payload)

    def _opened_last(self, last: bytes | None) -> Any:
        if last is None:
            return None
        if read_reference(last) is not None:
            raise ExpressionError("`last` is kept outside its row: no condition reads it.")
        return _decode(self._plain(last))

    def _context(self, view: ConditionView) -> ConditionContext:
        view = plain_view(view, self.reads, self._opened, reads_input=self.reads_input)
        return context_of(view, self._definition, self.reads, reads_input=self.reads_input)

    def _budget(self) -> CostBudget:
        return CostBudget(self._max_cost, is_condition=True)


def compile_growth(
    step: StepDefinition,
    definition: Definition,
    *,
    opened: Callable[[bytes], bytes] | None = None,
    sealed: Callable[[bytes], bytes] | None = None,
) -> CompiledGrowth:
    """Compile how a step owns elements. `opened` opens the payloads that it reads, `sealed` seals joined results."""
    return CompiledGrowth(step, definition, opened, sealed)


class ElementTemplate:
    """The inputs of an element, or the texts of its executor. `reads_last` tells that they read the element before."""

    def __init__(self, value: Any, definition: Definition, step: StepDefinition) -> None:
        scopes, growth = known_of(definition).scopes, step.growth
        scope = scopes.item_inputs if isinstance(growth, Map) else scopes.loop_inputs
        self._template, self._definition = compile_template(value, scope), definition
        roots = frozenset[str]().union(*(one.roots for one in self._template.expressions))
        self._items = Items(growth, definition) if isinstance(growth, Map) and "item" in roots else None
        self.reads_last = "last" in roots
        self.reads: frozenset[str] = self._template.references | (self._items.reads if self._items else frozenset())
        self.reads_input: bool = self._template.uses_input or (self._items is not None and self._items.reads_input)
        self.secrets: frozenset[str] = self._template.secrets

    def render(self, view: ConditionView, secrets: Mapping[str, str] | None = None) -> Any:
        """The value for this element; raises ExpressionError if an expression has none."""
        template = self._template
        context = context_of(view, self._definition, template.references, reads_input=template.uses_input)
        context["index"], context["last"] = view.index, None if view.last is None else _decode(view.last)
        if self._items is not None:
            context["item"] = self._items.item(view)
        return template.render(context if secrets is None else {**context, "secret": secrets})


class Items:
    """The list of a map, as its elements read it."""

    def __init__(self, growth: Map, definition: Definition) -> None:
        self._definition, self._text = definition, growth.over
        self._over = compile_template(growth.over, known_of(definition).scopes.template)
        self.reads: frozenset[str] = self._over.references
        self.reads_input: bool = self._over.uses_input

    def item(self, view: ConditionView) -> Any:
        """The item of this element, decoded for it alone."""
        assert view.index is not None
        items = self._kept(view)
        if view.index >= len(items):
            raise ExpressionError(f"the list has {len(items)} items, and there is none at place {view.index}.")
        return _decode(items[view.index])

    def _kept(self, view: ConditionView) -> list[bytes]:
        # By content, not by run: ids of runs are unique within a tenant only.
        outputs = tuple(view.outputs.get(name) for name in sorted(self.reads))
        given = view.input if self.reads_input else None
        key = (self._definition.name, self._definition.version, self._text, outputs, given, view.run_id)
        known = _lists.get(key)
        if known is None:
            context = context_of(view, self._definition, self.reads, reads_input=self.reads_input)
            found = self._over.render(context)
            if not isinstance(found, list):
                raise ExpressionError(f"`over` comes to {evaluated(found)}, not to a list.")
            known = [_encode(item) for item in found]
            _lists.put(key, known)
        return known


class _Lists:
    """The lists that elements of this process read last. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Any, list[bytes]] = OrderedDict()

    def get(self, key: Any) -> list[bytes] | None:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: Any, items: list[bytes]) -> None:
        with self._lock:
            self._kept[key] = items
            while len(self._kept) > KEPT_LISTS:
                self._kept.popitem(last=False)


_lists = _Lists()
