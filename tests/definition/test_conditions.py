"""Conditions, rules and templates of a stored definition, evaluated on what a run has come to."""

import time
from typing import Any

import msgspec
import pytest
from tests.suites import in_proof

from stepkeep.definition.expressions.compiler import ExpressionCompiler
from stepkeep.definition.expressions.conditions import compile_condition, compile_inputs, compile_rule, render_output
from stepkeep.definition.native.reader import load_text
from stepkeep.kernel.compiler import Condition, ConditionView
from stepkeep.kernel.definition import SECOND, Definition
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.states import StepState
from stepkeep.kernel.plan import build_plan, queue_specs

DEFINITION = load_text(
    """
workflow: demo
version: 4
output: { total: "${{ steps.b.output.n + input.more }}" }
steps:
  - { name: a, uses: x }
  - { name: b, uses: x }
  - { name: my-step, uses: x }
""",
    "demo.yaml",
)


def view(
    given: Any = None, *, outputs: dict[str, Any] | None = None, states: dict[str, str] | None = None
) -> ConditionView:
    return ConditionView(
        run_id="r1",
        input=msgspec.json.encode(given),
        outputs={name: msgspec.json.encode(value) for name, value in (outputs or {}).items()},
        states={name: StepState(state) for name, state in (states or {}).items()},
    )


class TestConditions:
    def test_a_condition_says_what_it_reads(self) -> None:
        condition: Condition = compile_condition("${{ steps.my_step.output.ok && input.go }}", DEFINITION)
        assert condition.reads == {"my-step"}
        assert condition.reads_input
        assert condition.holds(view({"go": True}, outputs={"my-step": {"ok": True}}))
        assert not condition.holds(view({"go": False}, outputs={"my-step": {"ok": True}}))

    def test_the_braces_may_be_left_out(self) -> None:
        assert compile_condition("input.n > 1", DEFINITION).holds(view({"n": 2}))

    def test_states_can_be_asked_for(self) -> None:
        condition = compile_condition('steps.a.state == "skipped"', DEFINITION)
        assert not condition.reads_input
        assert condition.holds(view(states={"a": "skipped"}))

    def test_the_run_can_be_asked_for(self) -> None:
        condition = compile_condition('run.id == "r1" && run.workflow == "demo" && run.version == 4', DEFINITION)
        assert condition.holds(view())

    def test_a_step_without_output_can_be_asked_about(self) -> None:
        condition = compile_condition("has(steps.a.output)", DEFINITION)
        assert not condition.holds(view(states={"a": "skipped"}))
        assert condition.holds(view(outputs={"a": None}))

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("input.missing", "`input.missing` cannot be evaluated"),
            ("input.n", "comes to 5, not to true or false"),
            ("steps.a.output.ok", "has no output here"),
        ],
    )
    def test_what_cannot_be_said_is_an_error(self, text: str, said: str) -> None:
        with pytest.raises(ExpressionError, match=said):
            compile_condition(text, DEFINITION).holds(view({"n": 5}))

    @pytest.mark.parametrize("text", ["input.n >", "steps.nowhere.output", "output.x", "${{ 1 }} > 2", "size(input)"])
    def test_what_cannot_be_compiled_is_an_error(self, text: str) -> None:
        with pytest.raises(ExpressionError):
            compile_condition(text, DEFINITION)


class TestRules:
    def test_output_is_what_the_step_returned(self) -> None:
        rule = compile_rule("${{ output.n > input.least }}", DEFINITION, "b")
        assert rule.reads == {"b"}
        assert rule.holds(view({"least": 1}, outputs={"b": {"n": 2}}))
        assert not rule.holds(view({"least": 3}, outputs={"b": {"n": 2}}))

    def test_a_rule_that_does_not_ask_for_the_output_does_not_read_it(self) -> None:
        assert compile_rule("input.ok", DEFINITION, "b").reads == frozenset()

    def test_in_the_final_check_output_is_that_of_the_run(self) -> None:
        rule = compile_rule("output.total == 5", DEFINITION, "check:run")
        assert rule.reads == {"b"}
        assert rule.reads_input
        assert rule.holds(view({"more": 3}, outputs={"b": {"n": 2}}))


class TestTemplates:
    def test_inputs_are_rendered_with_their_types(self) -> None:
        template = compile_inputs(
            {"n": "${{ steps.a.output.n }}", "text": "n is ${{ steps.a.output.n }}", "all": "${{ input }}", "k": 1},
            DEFINITION,
        )
        assert template.reads == {"a"}
        assert template.reads_input
        assert template.render(view({"x": 1}, outputs={"a": {"n": 7}})) == {
            "n": 7,
            "text": "n is 7",
            "all": {"x": 1},
            "k": 1,
        }

    def test_the_default_undo_gets_what_its_step_returned(self) -> None:
        (step,) = load_text("workflow: d\nsteps: [{ name: a-b, uses: x, undo: y }]", "d.yaml").steps
        assert step.undo is not None
        definition = Definition(name="d", version=1, steps=(step,))
        template = compile_inputs(step.undo.inputs, definition)
        assert template.render(view(outputs={"a-b": {"id": 2**60}})) == {"id": 2**60}

    def test_the_default_undo_of_an_attempt_may_have_nothing_to_get(self) -> None:
        text = "workflow: d\nsteps: [{ name: a-b, uses: x, undo: y, compensate_when: attempted }]"
        definition = load_text(text, "d.yaml")
        undo = definition.steps[0].undo
        assert undo is not None
        template = compile_inputs(undo.inputs, definition)
        assert template.render(view()) is None
        assert template.render(view(outputs={"a-b": {"id": 1}})) == {"id": 1}

    def test_the_output_of_a_run(self) -> None:
        outputs: dict[str, bytes | None] = {"a": None, "b": b'{"n": 2}'}
        states = {"a": StepState.SKIPPED, "b": StepState.SUCCEEDED}
        assert render_output(DEFINITION, "r1", b'{"more": 1}', outputs, states) == {"total": 3}


@pytest.mark.parametrize("count", [1_500, in_proof(5_000)])
def test_a_plan_with_thousands_of_conditions_is_built_quickly(count: int) -> None:
    text = "workflow: demo\nsteps:\n  - { name: s0, uses: x }\n" + "".join(
        f'  - {{ name: s{n}, uses: x, if: "steps.s{n - 1}.output.ok", with: {{ n: "${{{{ steps.s0.output }}}}" }} }}\n'
        for n in range(1, count)
    )
    started = time.thread_time()
    definition = load_text(text, "long.yaml")
    plan = build_plan(
        definition,
        ExpressionCompiler(),
        definition_id=1,
        digest="",
        queues=[1] * len(queue_specs(definition)),
    )
    assert plan.steps[-1].timeout == 300 * SECOND
    assert time.thread_time() - started < 20
