"""Expressions written as Python objects compile to the text that YAML would hold, and dependencies follow from them."""

from __future__ import annotations

from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.expressions.conditions import scopes_of
from stepkeep.definition.expressions.expressions import compile_template
from stepkeep.definition.expressions.limits import ExpressionBudget
from stepkeep.definition.python.workflow import StepRef
from stepkeep.kernel.errors import DefinitionError, InvalidInput

flow = sk.Workflow("words")
INPUT = flow.input
LABEL = StepRef("make label")

TEXTS = [
    (INPUT.amount > 1000, "input.amount > 1000"),
    (INPUT["unit price"], 'input["unit price"]'),
    (INPUT["in"], 'input["in"]'),
    (INPUT.items[0].sku, "input.items[0].sku"),
    (INPUT.items[INPUT.chosen], "input.items[input.chosen]"),
    (LABEL.output.code, 'steps["make label"].output.code'),
    (LABEL.state == "skipped", 'steps["make label"].state == "skipped"'),
    ((INPUT.a == 1) & (INPUT.b == 2) | ~(INPUT.c < 3), "input.a == 1 && input.b == 2 || !(input.c < 3)"),
    ((INPUT.a | INPUT.b) & True, "(input.a || input.b) && true"),
    (True & INPUT.a, "true && input.a"),
    (INPUT.a - (INPUT.b - 1), "input.a - (input.b - 1)"),
    (INPUT.a - INPUT.b - 1, "input.a - input.b - 1"),
    (2 * (INPUT.a + 1) % 7, "2 * (input.a + 1) % 7"),
    (-INPUT.a + -3, "-input.a + -3"),
    (1.5 / INPUT.a, "1.5 / input.a"),
    ((INPUT.a < INPUT.b) == INPUT.c, "(input.a < input.b) == input.c"),
    (INPUT.name == 'a "quoted" \n näme', 'input.name == "a \\"quoted\\" \\n näme"'),
    (INPUT.tags == ["x", None, {"k": INPUT.v}], 'input.tags == ["x", null, {"k": input.v}]'),
    (~INPUT.name.contains("}}"), '!input.name.contains("}}")'),
    ((INPUT.a + "x").startswith("y"), '(input.a + "x").startsWith("y")'),
    (INPUT.country.in_(["CH", "DE"]) & INPUT.vat.exists(), 'input.country in ["CH", "DE"] && has(input.vat)'),
    (INPUT["a b"].exists(), '"a b" in input'),
    (INPUT["size"].size() >= 2, "input.size.size() >= 2"),
]


@pytest.mark.parametrize(("expression", "text"), TEXTS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_object_is_the_text_that_yaml_would_hold_and_cel_reads_it(expression: Any, text: str) -> None:
    assert str(expression) == f"${{{{ {text} }}}}"
    scope = scopes_of({"make label"}, None, ExpressionBudget()).condition
    compile_template(str(expression), scope)


VALUES = [
    (2 * (INPUT.a + 1) % 7, 1),
    (INPUT.a - (INPUT.b - 1), 0),
    ((INPUT.a < INPUT.b) == (INPUT.name == "x"), False),
    (~(INPUT.a == 3) | (INPUT.b == 4) & INPUT.name.startswith("A"), True),
    (INPUT.name.in_(["Ada", "Bo"]) & INPUT.name.matches("^A"), True),
    (INPUT.missing.exists() | INPUT["no such"].exists(), False),
    (INPUT.name + "!", "Ada!"),
    (-INPUT.a, -3),
]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_operators_bind_as_they_do_in_python(number: int, tmp_path: object) -> None:
    expression, wanted = VALUES[number]
    registry = sk.Registry()

    @sk.step("same", registry=registry)
    def same(value: Any) -> Any:
        return value

    made = sk.Workflow("values", registry=registry)
    made.step("only", same, inputs={"value": expression})
    with sk.open(f"sqlite:///{tmp_path}/x.db", registry=registry) as engine:
        assert engine.run(made, {"a": 3, "b": 4, "name": "Ada"}, check=True).output == wanted


def after(made: sk.Workflow) -> dict[str, list[str]]:
    return {step.name: [edge.step for edge in step.depends_on] for step in made.definition().steps}


def made_of(*names: str) -> tuple[sk.Workflow, list[StepRef]]:
    made = sk.Workflow("graph", registry=sk.Registry())
    return made, [made.step(name, "some.handler") for name in names]


def test_a_step_of_a_graph_comes_after_the_steps_that_it_reads() -> None:
    made, [first, second, third] = made_of("first", "second", "third")
    made.step("named", "some.handler", after=first, inputs={"x": second.output.x, "y": f"about {third.output}"})
    made.step("read", "some.handler", inputs={"x": [first.output["x"], '${{ steps["second"].output }}']})
    made.step("asked", "some.handler", if_=third.output.ok & (made.input.amount > 3))
    made.step("ruled", "some.handler", after=first, rules=[StepRef("ruled").output.n > first.output.n])
    made.step("free", "some.handler")
    assert after(made) == {
        "first": [],
        "second": [],
        "third": [],
        "named": ["first", "second", "third"],
        "read": ["first", "second"],
        "asked": ["third"],
        "ruled": ["first"],
        "free": [],
    }


def test_a_dependency_that_allows_a_skip_keeps_doing_so() -> None:
    made, [first] = made_of("first")
    made.step("next", "some.handler", after=first.allow("skipped"), if_=first.state == "succeeded")
    [edge] = made.definition().steps[1].depends_on
    assert [str(state) for state in edge.allow] == ["succeeded", "skipped"]


def test_a_sequence_stays_a_sequence() -> None:
    made, [first, _] = made_of("first", "second")
    made.step("third", "some.handler", inputs={"x": first.output})
    assert after(made) == {"first": [], "second": ["first"], "third": ["second"]}


def test_reading_a_step_in_a_circle_is_named() -> None:
    made, [first] = made_of("first")
    later = StepRef("later")
    made.step("second", "some.handler", after=first, inputs={"x": later.output})
    made.step("later", "some.handler", after="second")
    with pytest.raises(DefinitionError, match=r"second → later → second|later → second → later"):
        made.definition()


def test_what_python_would_decide_at_once_is_refused_in_words() -> None:
    for wrong in (
        lambda: bool(INPUT.a),
        lambda: INPUT.a and INPUT.b,
        lambda: not INPUT.a,
        lambda: 1 < INPUT.a < 3,
        lambda: list(INPUT.a),
        lambda: "x" in INPUT.a,
        lambda: int(INPUT.a),
        lambda: INPUT[1.5],
        lambda: INPUT.a == object(),
        lambda: INPUT.a == float("nan"),
        lambda: INPUT.a + 2**64,
    ):
        with pytest.raises(InvalidInput) as refused:
            wrong()
        assert len(str(refused.value)) > 20
    with pytest.raises(InvalidInput, match="& for and"):
        bool(INPUT.a)
    assert not hasattr(INPUT, "_repr_html_")
    with pytest.raises(TypeError, match="unhashable"):
        hash(INPUT)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"with_": {"x": 1}}, "There is no option `with_=` here. Write `inputs=`."),
        ({"when": "true"}, "There is no option `when=` here. Write `if_=`."),
        ({"depends_on": ["b"]}, "There is no option `depends_on=` here. Write `after=`."),
        ({"time_out": "1s"}, "There is no option `time_out=` here. Did you mean `timeout=`?"),
        ({"zzzzzzz": 1}, "Options: after, capabilities"),
        ({"inputs": {"x": '${{ steps["b"].output }}'}}, "Add `b` to its `after=`"),
    ],
)
def test_hints_speak_python_to_python(options: dict[str, Any], said: str) -> None:
    made = sk.Workflow("odd", registry=sk.Registry())
    made.step("a", "some.handler", **options)
    made.step("b", "some.handler")
    with pytest.raises(DefinitionError) as refused:
        made.definition()
    assert said in str(refused.value)
    assert "`with`" not in str(refused.value)


def test_a_step_among_inputs_is_told_how_to_be_read() -> None:
    made, [first] = made_of("first")
    with pytest.raises(InvalidInput, match=r"the step first .* \.output"):
        made.step("second", "some.handler", inputs={"x": first})
    with pytest.raises(InvalidInput, match=r"retry=stepkeep.Retry\(max_attempts=5\)"):
        made.step("third", "some.handler", retry=5)


def test_a_declared_output_may_be_made_of_steps(database_url: str) -> None:
    registry = sk.Registry()

    @sk.step("count", registry=registry)
    def count(text: str) -> int:
        return len(text.split())

    made = sk.Workflow("count-words", registry=registry)
    counted = made.step("count", count)
    made.returns({"words": counted.output, "many": counted.output > 2})
    with sk.open(database_url, registry=registry) as engine:
        assert engine.run(made, {"text": "one two three"}).output == {"words": 3, "many": True}
