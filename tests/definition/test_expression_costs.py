"""What an expression may cost: told before it is evaluated, from the sizes of its data. No clock is asked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stepkeep.definition.expressions.conditions import compile_condition, compile_inputs, compile_rule
from stepkeep.definition.expressions.expressions import Scope, compile_expression, compile_template
from stepkeep.definition.expressions.limits import (
    MAX_CONDITION_COST,
    MAX_CONDITIONS_COST,
    MAX_COST,
    MIN_CONDITION_COST,
    CostBudget,
    condition_cost,
    rule_cost,
)
from stepkeep.definition.expressions.words import FUNCTIONS
from stepkeep.kernel.compiler import ConditionView
from stepkeep.kernel.definition import Definition, Handler, StepDefinition
from stepkeep.kernel.errors import ExpressionError

ENOUGH = 10**15


def cost_of(source: str, given: Any) -> int:
    budget = CostBudget(ENOUGH)
    compile_expression(source, Scope()).evaluate({"input": given}, budget)
    return ENOUGH - budget.remaining


def workflow(conditions: int = 1) -> Definition:
    steps = [
        StepDefinition(name=f"s{n}", order=n, executor=Handler(name="h"), condition="input.go")
        for n in range(max(conditions, 1))
    ]
    return Definition(name="w", version=1, steps=tuple(steps))


def view(given: Any) -> ConditionView:
    return ConditionView(run_id="r", input=msgspec.json.encode(given), outputs={}, states={})


# -- functions --------------------------------------------------------------------------------------------------------
def test_contains_costs_the_product_of_its_texts() -> None:
    def given(size: int) -> Any:
        return {"text": "a" * size, "part": "a" * (size // 2) + "b"}

    small, large = (cost_of("input.text.contains(input.part)", given(size)) for size in (20_000, 200_000))
    assert large > 50 * small


def test_two_long_texts_that_are_searched_for_each_other_are_refused() -> None:
    """One such search took 1.4 s, and thirteen of them were within the limits."""
    given = {"a": "a" * 460_000, "b": "a" * 230_000 + "b"}
    for source in ("input.a.contains(input.b)", " || ".join(["input.a.contains(input.b)"] * 13)):
        with pytest.raises(ExpressionError, match="too much work"):
            compile_expression(source, Scope()).evaluate({"input": given})


def test_ordinary_searches_are_allowed_in_conditions() -> None:
    given = {"text": "lorem ipsum " * 2_000, "part": "dolor"}
    source = "input.text.contains(input.part) || input.text.contains('sit amet')"
    assert compile_condition(source, workflow()).holds(view(given)) is False


def test_a_regular_expression_costs_its_compilation_for_each_call() -> None:
    """CEL compiles the pattern anew for each item; that of 19 pairs of Unicode classes takes 29 ms each time."""
    source = r"input.all(x, !x.matches('(\\pL\\pN){19}'))"
    with pytest.raises(ExpressionError, match="too much work"):
        compile_expression(source, Scope()).evaluate({"input": ["a"] * 10})
    assert cost_of("input[0].matches('(a?){1000}')", ["a"]) > 1_000_000
    assert cost_of("input[0].matches('^[a-z]+@[a-z.]+$')", ["someone@example.org"]) < 100_000


def test_loops_that_build_lists_cost_the_square() -> None:
    small, large = (cost_of("input.map(x, x)", [1] * size) for size in (100, 1_000))
    assert large > 50 * small
    linear, longer = (cost_of("input.all(x, x == 1)", [1] * size) for size in (100, 1_000))
    assert longer < 15 * linear


def test_what_a_loop_does_costs_as_often_as_it_is_done() -> None:
    once = cost_of("!(2 in input)", [1] * 500)
    often = cost_of("input.all(x, !(2 in input))", [1] * 500)
    assert often > 100 * once / 5


FRACTION = "2020-01-01T00:00:00."

# What each function is called on, twice as much the second time. None: its cost does not depend on its argument.
ARGUMENTS: dict[str, tuple[str, Any, Any] | None] = {
    "all": ("input.all(x, x == 1)", [1] * 400, [1] * 800),
    "bool": ("bool(input) || true", "t" * 4_000, "t" * 8_000),
    "bytes": ("size(bytes(input)) > 0", "a" * 4_000, "a" * 8_000),
    "contains": ("input.contains(input)", "a" * 4_000, "a" * 8_000),
    "double": ("double(input) > 0.0", "1" * 400, "1" * 800),
    "duration": ("duration(input) > duration('1s')", "1s" * 4_000, "1s" * 8_000),
    "dyn": None,
    "endsWith": ("input.endsWith(input)", "a" * 40_000, "a" * 80_000),
    "exists": ("input.exists(x, x == 2)", [1] * 400, [1] * 800),
    "exists_one": ("input.exists_one(x, x == 2)", [1] * 400, [1] * 800),
    "filter": ("input.filter(x, true)", [1] * 400, [1] * 800),
    "getDate": None,
    "getDayOfMonth": None,
    "getDayOfWeek": None,
    "getDayOfYear": None,
    "getFullYear": None,
    "getHours": None,
    "getMilliseconds": None,
    "getMinutes": None,
    "getMonth": None,
    "getSeconds": None,
    "has": None,
    "int": ("int(input) == 0", "0" * 40_000, "0" * 80_000),
    "map": ("input.map(x, x)", [1] * 400, [1] * 800),
    "matches": ("input.matches('a+b')", "a" * 4_000, "a" * 8_000),
    "size": ("size(input) > 0", "a" * 40_000, "a" * 80_000),
    "startsWith": ("input.startsWith(input)", "a" * 40_000, "a" * 80_000),
    "string": ("size(string(input)) > 0", "a" * 40_000, "a" * 80_000),
    "timestamp": ("timestamp(input) > timestamp(input)", FRACTION + "1" * 4_000 + "Z", FRACTION + "1" * 8_000 + "Z"),
    "type": None,
    "uint": ("uint(input) == 0u", "0" * 40_000, "0" * 80_000),
}


def test_the_list_above_names_every_function_of_the_language() -> None:
    assert set(ARGUMENTS) == set(FUNCTIONS)


@pytest.mark.parametrize(("source", "some", "more"), [known for known in ARGUMENTS.values() if known])
def test_a_function_costs_more_on_more_data(source: str, some: Any, more: Any) -> None:
    assert cost_of(source, more) > 1.3 * cost_of(source, some)


@pytest.mark.parametrize(
    ("source", "make"),
    [
        ("input.a == input.b", lambda size: {"a": [1] * size, "b": [1] * size}),
        ("input.a == input.b", lambda size: {"a": {str(n): n for n in range(size)}, "b": {}}),
        ("input.a < input.b", lambda size: {"a": "a" * size, "b": "a" * size}),
        ("2 in input.a", lambda size: {"a": [1] * size}),
        ("input.a + input.a == []", lambda size: {"a": [1] * size}),
        ("size(input.a + input.a) == 0", lambda size: {"a": "a" * size}),
        ("input.a == 1", lambda size: {"a": [[]] * size}),
    ],
)
def test_operators_cost_what_their_operands_weigh(source: str, make: Any) -> None:
    assert cost_of(source, make(20_000)) > 1.5 * cost_of(source, make(10_000))


# -- budgets ----------------------------------------------------------------------------------------------------------
def test_a_condition_may_cost_a_small_part_of_what_inputs_may_cost() -> None:
    definition, given = workflow(), {"go": True, "list": [1] * 900}
    source = "size(input.list.map(x, x)) == 900"
    with pytest.raises(ExpressionError, match="too much work for a condition") as refused:
        compile_condition(source, definition).holds(view(given))
    assert "step before" in refused.value.hint
    assert compile_inputs({"v": f"${{{{ {source} }}}}"}, definition).render(view(given)) == {"v": True}
    assert compile_rule(source, definition, "s0").holds(view(given))
    assert compile_condition("input.list.exists(x, x == 2)", definition).holds(view(given)) is False


def test_the_more_conditions_there_are_the_less_each_may_cost() -> None:
    assert condition_cost(1) == condition_cost(40) == MAX_CONDITION_COST
    assert condition_cost(1_000) * 1_000 == MAX_CONDITIONS_COST
    assert condition_cost(10_000) == MIN_CONDITION_COST
    assert rule_cost(1) == MAX_COST
    given = {"go": True, "list": [1] * 900}
    source = "input.list.exists(x, x == 2)"
    assert compile_condition(source, workflow(10)).holds(view(given)) is False
    with pytest.raises(ExpressionError, match="too much work for a condition"):
        compile_condition(source, workflow(1_000)).holds(view(given))


def test_small_conditions_are_allowed_however_many_there_are() -> None:
    given = {"go": True, "kind": "order", "sum": 3, "tags": ["a", "b", "c"], "note": "x" * 2_000}
    source = "input.go && input.kind == 'order' && input.sum > 2 && 'b' in input.tags && has(input.note)"
    assert compile_condition(source, workflow(10_000)).holds(view(given))


def test_all_expressions_of_one_value_share_a_budget() -> None:
    given = {"list": [1] * 900}
    one = "${{ input.list.map(x, x) }}"
    assert compile_template([one] * 2, Scope()).render({"input": given}) == [[1] * 900] * 2
    with pytest.raises(ExpressionError, match="too much work"):
        compile_template([one] * 20, Scope()).render({"input": given})


def test_a_thousand_small_expressions_fit_into_one_value() -> None:
    template = compile_template({f"k{n}": f"${{{{ input.n + {n} }}}}" for n in range(1_000)}, Scope())
    assert template.render({"input": {"n": 1}})["k999"] == 1_000  # type: ignore[index, call-overload]


def test_the_conditions_of_one_decision_decode_a_payload_once() -> None:
    definition = workflow(2)
    shared = view({"go": True, "list": [1, 2, 3]})
    for source in ("input.go == true", "size(input.list) == 3"):
        assert compile_condition(source, definition).holds(shared)
    assert list(shared.decoded) == ["input"]
    kept = shared.decoded["input"][1]
    assert compile_condition("input.go == true", definition).holds(shared)
    assert shared.decoded["input"][1] is kept


def test_what_a_handler_is_given_is_never_what_a_condition_keeps() -> None:
    definition = workflow()
    shared = view({"go": True, "list": [1, 2, 3]})
    assert compile_condition("size(input.list) == 3", definition).holds(shared)
    given = compile_inputs("${{ input.list }}", definition).render(shared)
    given.append(4)
    assert compile_inputs("${{ input.list }}", definition).render(shared) == [1, 2, 3]
    assert shared.decoded["input"][1]["list"] == [1, 2, 3]
