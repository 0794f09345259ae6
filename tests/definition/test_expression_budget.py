"""All expressions of a definition share one budget: what is too much to compile is refused, with its place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.suites import in_proof

from stepkeep.definition.expressions.expressions import Scope, compile_expression
from stepkeep.definition.expressions.limits import MAX_COMPILE_COST, MAX_EXPRESSIONS, text_cost
from stepkeep.definition.native.reader import check_text
from stepkeep.definition.text.document import parse_document, read_document
from stepkeep.dialects.registry import examine
from stepkeep.kernel.errors import Problem

TOO_MANY = MAX_EXPRESSIONS + 1


def workflow(*steps: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"workflow": "w", "timeout": "1h", "steps": list(steps), **fields})


def step(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "uses": "h", "timeout": "1s", **fields}


def long_expression(number: int, length: int = 3_950) -> str:
    part = " || ".join(f"input.a{number} == {each}" for each in range(length // 15))
    return part[:length].rpartition(" ||")[0]


def the_one(problems: tuple[Problem, ...]) -> Problem:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


@pytest.mark.proof
def test_many_long_expressions_are_too_much_work() -> None:
    steps = [step(f"s{n}", **{"with": {"v": f"${{{{ {long_expression(n)} }}}}"}}) for n in range(950)]
    problem = the_one(check_text(workflow(*steps), "w.json").problems)
    assert "too much work to compile" in problem.message
    assert problem.column > 1


def test_equal_expressions_are_compiled_once_and_cost_once() -> None:
    steps = [step(f"s{n}", **{"with": {"v": f"${{{{ {long_expression(1)} }}}}"}}) for n in range(950)]
    assert check_text(workflow(*steps), "w.json").problems == ()
    scope = Scope()
    assert compile_expression("input.a == 1", scope) is compile_expression("input.a == 1", scope)


@pytest.mark.parametrize(
    "text",
    [
        in_proof(workflow(step("s", rules=["output.a == 1"] * 80_000))),
        in_proof(workflow(step("s"), rules=["run.id == 'x'"] * 80_000)),
        in_proof(workflow(step("s", **{"with": {"v": "${{ 1 }}" * 400_000}}))),
        in_proof(workflow(step("s", **{"with": {"v": ["${{ 1 }}"] * TOO_MANY}}))),
        workflow({"name": "s", "http": {"url": "http://x/", "method": "POST", "body": ["${{ 1 }}"] * TOO_MANY}}),
        in_proof(workflow(step("s"), output=["${{ 1 }}"] * TOO_MANY)),
        in_proof(workflow(step("s", undo={"uses": "h", "with": ["${{ 1 }}"] * TOO_MANY}))),
    ],
    ids=["rules of a step", "rules of the run", "one text", "a list", "a request", "the output", "an undo"],
)
def test_more_expressions_than_a_definition_may_hold_are_refused_at_the_first_of_them(text: str) -> None:
    problem = the_one(check_text(text, "w.json").problems)
    assert problem.message == f"The definition holds more than {MAX_EXPRESSIONS} expressions."
    assert problem.column > 1


def test_the_budget_is_shared_by_all_steps_and_kinds_of_expressions() -> None:
    half = MAX_EXPRESSIONS // 2
    fits = [step("a", rules=["true"] * half), step("b", **{"with": ["${{ 1 }}"] * half})]
    assert check_text(workflow(*fits), "w.json").problems == ()
    problem = the_one(check_text(workflow(*fits, step("c", **{"if": "true"})), "w.json").problems)
    assert "more than" in problem.message


def messages(data: Any, dialect: str) -> list[str]:
    document = parse_document(json.dumps(data), file="w.json", syntax="json")
    return [problem.message for problem in examine(document, as_=dialect).problems]


def test_the_dialects_have_the_same_budget() -> None:
    rules = {"post_execution": ["${{ output.exit_code == 0 }}"] * 100}
    tasks = [
        {"task_id": f"t{n}", "execution": {"command": "true"}, "validation_rules": rules}
        for n in range(MAX_EXPRESSIONS // 100 + 1)
    ]
    stream = {"workstream_id": "w", "tasks": tasks}
    said = messages(stream, "workstream")
    assert f"The definition holds more than {MAX_EXPRESSIONS} expressions." in said
    actions = read_document(Path(__file__).parents[2] / "examples" / "action.yaml").data
    actions["actions"][0]["inputs"] = {"all": ["${{ 1 }}"] * TOO_MANY}
    said = messages(actions, "action")
    assert f"The definition holds more than {MAX_EXPRESSIONS} expressions." in said


@pytest.mark.proof
def test_large_regular_expressions_count_by_what_they_compile_to() -> None:
    steps = [step(f"s{n}", **{"if": rf"input.a.matches('(\\pL\\pN){{19}}{n}')"}) for n in range(9_000)]
    problem = the_one(check_text(workflow(*steps), "w.json").problems)
    assert "too much work to compile" in problem.message


@pytest.mark.parametrize("count", [200, in_proof(10_000)])
def test_many_steps_with_two_small_expressions_each_are_accepted(count: int) -> None:
    program = (
        "import json\n"
        "from stepkeep.definition.native.reader import check_text\n"
        "steps = [{'name': f's{n}', 'uses': 'h', 'if': f'input.b{n} > 1', 'with': {'v': '${{ input.a%d + 1 }}' % n}}\n"
        f"         for n in range({count})]\n"
        "report = check_text(json.dumps({'workflow': 'w', 'steps': steps}), 'w.json')\n"
        "assert not report.problems, report.problems\n"
        # Not ru_maxrss, which begins with the memory of the process that started this one.
        "[peak] = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')]\n"
        "print(peak)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout) * 1024 < 500_000_000


def test_a_stored_definition_is_never_refused_for_its_budget() -> None:
    """Definitions that were published under other limits must still run."""
    scope = Scope()
    cost = 0
    while cost <= MAX_COMPILE_COST // 20:
        source = f"input.a + {cost}"
        compile_expression(source, scope)
        cost += text_cost(source)
    assert scope.budget is None
