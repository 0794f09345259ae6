"""The binding to CEL: no result costs a reference to None, and no refusal of the library escapes untranslated."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import stepkeep
from stepkeep.definition.expressions.conditions import compile_truth
from stepkeep.definition.expressions.expressions import InvalidExpression, Scope, compile_expression, compile_template
from stepkeep.definition.native.reader import check_text
from stepkeep.kernel.errors import ExpressionError

ROUNDS = 400
"""With one reference lost for each null of each round, the loss stands out from what Python itself keeps."""

NULLS = [None] * 20

RESULTS: list[tuple[str, Any]] = [
    ("null", None),
    ("input", NULLS),
    ("[null, null]", None),
    ("[[null], [[null]]]", None),
    ("input + []", NULLS),
    ("input + []", [[None], [[None, 1]], {"a": None}]),
    ("dyn(input)", {"a": None, "b": {"c": [None, True, False, 5]}}),
    ('{"a": null, "b": [null], "c": {"d": null}}', None),
    ("{1: null}.size()", None),
    ("input.all(item, item == null)", NULLS),
    ("input.map(item, item)", NULLS),
    ("input.filter(item, item == null)", NULLS),
    ("[1, 2, 3].map(item, null)", None),
    ("true ? dyn(null) : 1", None),
    ("has(input.note) ? input.note : null", {}),
    ("has(input.note) ? input.note : null", {"note": None}),
    ("input == null", None),
    ("input[0] == null && input == input", NULLS),
    ("[true, false, 5, 5.0, 'x']", None),
    ("dyn(input)", [True, False, 5, 5.0, "x", None]),
]

ERRORS: list[tuple[str, Any]] = [
    ("input.missing", {"a": None}),
    ("[null, 1 / 0]", None),
    ("[null, input.a]", {}),
    ("{1: null}", None),
    ("[null, type(1)]", None),
    ("[null, b'x']", None),
    ("[null, timestamp('2020-01-01T00:00:00Z')]", None),
    ("{dyn(1.5): null}", None),
]

counted = pytest.mark.skipif(sys.version_info >= (3, 12), reason="None is immortal from Python 3.12 on")


def references() -> dict[object, int]:
    # What earlier tests left behind would go at any moment in between, with all references that it holds.
    gc.collect()
    return {value: sys.getrefcount(value) for value in (None, True, False, 5)}


def lost(before: dict[object, int]) -> int:
    """The greatest loss of references. Nothing here may lose one a round; other parts of Python keep a few."""
    return max(before[value] - count for value, count in references().items())


@counted
@pytest.mark.parametrize(("source", "given"), RESULTS)
def test_no_result_costs_a_reference(source: str, given: Any) -> None:
    expression = compile_expression(source, Scope())
    expected = expression.evaluate({"input": given})
    before = references()
    for _ in range(ROUNDS):
        assert expression.evaluate({"input": given}) == expected
    assert lost(before) < ROUNDS // 10


@counted
@pytest.mark.parametrize(("source", "given"), ERRORS)
def test_no_error_costs_a_reference(source: str, given: Any) -> None:
    expression = compile_expression(source, Scope())
    before = references()
    for _ in range(ROUNDS):
        with pytest.raises(ExpressionError):
            expression.evaluate({"input": given})
    assert lost(before) < ROUNDS // 10


@counted
def test_no_condition_and_no_template_costs_a_reference() -> None:
    condition = compile_truth("input.note == null || null in input.list", Scope())
    template = compile_template({"a": "${{ input.list + [null] }}", "b": "x${{ dyn(null) }}"}, Scope())
    given = {"input": {"note": 1, "list": [1, None]}}
    before = references()
    for _ in range(ROUNDS):
        assert condition.evaluate(given) is True
        assert template.render(given) == {"a": [1, None, None], "b": "xnull"}
    assert lost(before) < ROUNDS // 10


def test_a_result_of_very_many_nulls_leaves_the_process_alive() -> None:
    program = (
        "from stepkeep.definition.expressions.expressions import Scope, compile_expression\n"
        "given = {'input': {'l': [None] * 100_000}}\n"
        "found = compile_expression('input.l + []', Scope()).evaluate(given)\n"
        "assert found == given['input']['l']\n"
        "del found\n"
        "note = compile_expression('has(input.note) ? input.note : null', Scope())\n"
        "assert not any(note.evaluate(given) for _ in range(20_000))\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


@pytest.mark.parametrize(
    ("source", "column"),
    [
        ("{1.5: 2}", 2),
        ("{null: 1}", 2),
        ("{[1]: 2}", 2),
        ("{b'a': 1}", 2),
        ("{{}: 1}", 2),
        ("{double(1): 2}", 1),
        ("{type(1): 2}", 1),
        ("[{'a': {null: 1}}]", 9),
        ("size({1.5: 2}) == 1", 7),
        ("[1].map(x, {1.5: x})", 13),
    ],
)
def test_a_map_with_keys_that_cel_has_no_type_for_is_refused_with_its_place(source: str, column: int) -> None:
    with pytest.raises(InvalidExpression) as refused:
        compile_expression(source, Scope())
    assert [finding.inside + 1 for finding in refused.value.findings] == [column]
    assert "keys of a map" in refused.value.message


def test_such_a_map_is_a_problem_of_the_definition() -> None:
    text = 'workflow: w\nsteps:\n  - name: a\n    uses: h\n    with: {v: "${{ {1.5: 2} }}"}\n'
    report = check_text(text, "w.yaml")
    assert [(problem.line, problem.column) for problem in report.problems] == [(5, 21)]


def test_a_map_key_that_is_known_at_run_time_alone_is_an_expression_error() -> None:
    with pytest.raises(ExpressionError, match="cannot be the key of a map"):
        compile_expression("{input: 1}", Scope()).evaluate({"input": 1.5})


def test_one_module_alone_imports_the_binding() -> None:
    root = Path(stepkeep.__file__).parent
    importers = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "cel_expr_python" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cel_expr_python"))
        or (isinstance(node, ast.Import) and any(name.name.startswith("cel_expr_python") for name in node.names))
    ]
    assert importers == ["definition/expressions/cel_binding.py"]


def test_the_binding_is_pinned_to_the_version_that_these_tests_ran_with() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert f'"cel-expr-python=={version("cel-expr-python")}"' in pyproject
