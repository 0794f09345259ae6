"""Seed 004's task files as one document: what each key becomes, what is refused and where, and what is advised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.seeds.workstream import RULE, document, examine, task, workstream
from tests.suites import drawn, in_proof

from stepkeep.dialects.registry import check_file, dialect, names, recognise
from stepkeep.dialects.workstream.front import FRONT
from stepkeep.dialects.workstream.written import split_command
from stepkeep.kernel.definition import Backoff, Command, Definition, decode_definition, encode_definition
from stepkeep.kernel.machine.states import Category, OnFailure, StepState

WORKSTREAM = dialect("workstream")

SECOND = 1_000_000
ROOT = Path(__file__).parent.parent.parent


def said(written: dict[str, Any] | str) -> list[str]:
    return [f"{problem.line}:{problem.column} {problem.message}" for problem in examine(written).problems]


def problem(*tasks: dict[str, Any], **fields: Any) -> str:
    """The one problem of a document."""
    (found,) = examine(document(*tasks, **fields)).problems
    return f"{found.message} {found.hint}".strip()


# -- what is written becomes -------------------------------------------------------------------------------------------
def test_every_default_is_explicit_in_the_definition() -> None:
    """Design section 4, the rows in which this dialect differs."""
    definition = workstream(task("build"))
    (step,) = definition.steps
    assert (definition.name, definition.version, definition.dialect) == ("ws-001", 1, "workstream")
    assert (definition.on_failure, definition.compensate_always) == (OnFailure.ABORT, False)
    assert (step.retry.max_attempts, step.retry.backoff, step.retry.factor) == (4, Backoff.EXPONENTIAL, 2.0)
    assert (step.retry.initial, step.retry.max, step.retry.jitter) == (2 * SECOND, None, 0.0)
    assert Category.TIMEOUT in step.retry.on
    assert Category.VALIDATION not in step.retry.on
    assert step.timeout == 600 * SECOND
    assert (step.on_failure, step.undo, step.order) == (OnFailure.CONTINUE, None, 0)
    assert step.executor == Command(argv=("true",))
    assert (definition.lease, definition.grace) == (30 * SECOND, 30 * SECOND)


def test_every_key_that_the_engine_acts_upon_arrives() -> None:
    definition = workstream(
        task(
            "build",
            command=["make", "all"],
            working_directory="src",
            timeout_seconds=1.5,
            max_retries=2,
            retry_delay_seconds=10,
            description="Makes it.",
            critical=True,
            worker_requirements={"capabilities": ["python", "gpu", "gpu"]},
            post=[RULE],
        ),
        task("test", "build"),
        version=7,
        description="All of it.",
        max_duration_seconds=90,
        validation_rules={"post_execution": ["${{ steps.test.output.exit_code == 0 }}"]},
    )
    build, test = definition.steps
    assert build.executor == Command(argv=("make", "all"), cwd="src")
    assert (build.timeout, build.retry.max_attempts, build.retry.initial) == (1_500_000, 3, 10 * SECOND)
    assert (build.description, build.on_failure, build.capabilities) == (
        "Makes it.",
        OnFailure.ABORT,
        ("gpu", "python"),
    )
    assert [rule.expression for rule in build.rules] == [RULE]
    assert [(edge.step, edge.allow) for edge in test.depends_on] == [("build", (StepState.SUCCEEDED,))]
    assert (definition.version, definition.description, definition.timeout) == (7, "All of it.", 90 * SECOND)
    assert len(definition.rules) == 1


@pytest.mark.parametrize("key", ["critical", "is_critical"])
def test_the_flag_has_two_names(key: str) -> None:
    assert workstream(task("a", **{key: True})).steps[0].on_failure is OnFailure.ABORT
    assert workstream(task("a", **{key: False})).steps[0].on_failure is OnFailure.CONTINUE


def test_tasks_without_dependencies_are_roots_and_not_a_sequence() -> None:
    definition = workstream(task("a"), task("b"))
    assert [step.depends_on for step in definition.steps] == [(), ()]


def test_the_definition_survives_storage() -> None:
    definition = workstream(task("a", resource_requirements={"repo": "exclusive", "cpu": 2}, schema_version=2))
    assert decode_definition(encode_definition(definition)) == definition


def test_a_document_may_be_yaml_or_json() -> None:
    yaml = """
        workstream_id: ws-001
        max_duration_seconds: 3600
        tasks:
          - task_id: a
            dependencies: []
            execution: {command: "true"}
    """
    assert examine(yaml).definition == workstream(task("a"))


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("pytest -q tests", ["pytest", "-q", "tests"]),
        ("pytest -k 'not slow'", ["pytest", "-k", "not slow"]),
        ("echo $HOME && rm *", ["echo", "$HOME", "&&", "rm", "*"]),
        ('say ${{ input.words[0] + " x" }} --to=${{ input.who }}.txt', None),
        ("a ${{ '}}' }} b", ["a", "${{ '}}' }}", "b"]),
    ],
)
def test_a_command_line_is_taken_apart_without_a_shell(text: str, argv: list[str] | None) -> None:
    expected = argv or ["say", '${{ input.words[0] + " x" }}', "--to=${{ input.who }}.txt"]
    assert split_command(text) == expected
    assert workstream(task("a", command=text)).steps[0].executor == Command(argv=tuple(expected))


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_a_cycle_is_refused_with_the_way_round() -> None:
    """Scheduling: dependency_cycle_detected."""
    assert "These tasks wait for each other: a → c → b → a." in problem(task("a", "b"), task("b", "c"), task("c", "a"))


@pytest.mark.parametrize(
    ("one", "said_of_it"),
    [
        (task("a", "a"), "Task `a` depends on itself."),
        (task("a", "bb"), "There is no task `bb` to depend on."),
        (task("a b"), "`task_id` cannot be `a b`."),
        (task("a", max_retries=10), "`max_retries` must be at most 9, not 10."),
        (task("a", max_retries=-1), "`max_retries` must be at least 0, not -1."),
        (task("a", timeout_seconds=0), "`timeout_seconds` must be from 1ms to 7d, not 0."),
        (task("a", timeout_seconds="10m"), "`timeout_seconds` must be a number, not text."),
        (task("a", timeout_seconds=True), "`timeout_seconds` must be a number, not true or false."),
        (task("a", retry_delay_seconds=-2), "`retry_delay_seconds` must be from 0s to 7d"),
        (task("a", command=""), "`command` must not be empty."),
        (task("a", command="echo 'oh"), "`command` cannot be taken apart: no closing quotation."),
        (task("a", command="${{ input.program }} x"), "The program of a `command` cannot be an expression"),
        (task("a", command=["echo", "${{ nothing.x }}"]), "nothing"),
        (task("a", command="echo ${{ steps.b.output }}"), "b"),
        (task("a", type="mypy"), "`type` must be aider, pytest, lint or custom, not `mypy`."),
        (task("a", critical="yes"), "`critical` must be true or false, not text."),
        (task("a", critical=True, is_critical=False), "`critical` and `is_critical` contradict each other."),
        (task("a", workstream_id="ws-002"), "This task belongs to another workstream, `ws-002`."),
        (task("a", blocks=["b"]), "`a` is said to block `b`, which does not depend on it."),
        (task("a", resource_requirements={"repo": "mine"}), "`repo` must be exclusive, shared or a whole number."),
        (task("a", post=["test_passing"]), "`test_passing` is no rule. Did you mean `tests_passing`?"),
        (task("a", post=["output.exit_code == 0"]), "is no rule. Give it a command under `rule_commands`"),
        (task("a", post=["${{ output.exit_code }} ok"]), "A condition is one whole expression."),
        (task("a", post=["${{ 3 }}"]), "not to true or false."),
        (task("a", post=["${{ steps.a.output.x == }}"]), "The expression ends too early."),
        (task("a", validation_rules={"pre_execution": ["git_clear"]}), "`git_clear` is no rule. Did you mean"),
        (task("a", validation_rules={"pre_execution": ["${{ output.ok }}"]}), "There is no `output` here."),
        (task("a", validation_rules={"pre_execution": None}), "`pre_execution` is empty"),
        (task("a", worker_requirements={"capabilities": ["${{ input.x }}"]}), "`capabilities` is taken as it is"),
        (task("a", retries=3), "There is no key `retries` here."),
        ({"task_id": "a"}, "`execution` is missing."),
    ],
)  # fmt: skip
def test_what_a_task_may_not_say(one: dict[str, Any], said_of_it: str) -> None:
    assert said_of_it.lower() in problem(one).lower()


def test_the_same_id_twice_is_refused() -> None:
    assert problem(task("a"), task("a")) == "Another task is already named `a`. Give each task a name of its own."


def test_a_rule_reads_only_what_has_ended_before_it() -> None:
    late = problem(task("a", post=["${{ steps.b.output.n == 1 }}"]), task("b"))
    assert late.startswith("Task `a` reads `b`, which is not sure to have ended before it.")
    assert "`dependencies`" in late


@pytest.mark.parametrize(
    ("fields", "said_of_it"),
    [
        ({"workstream_id": "-x"}, "`workstream_id` cannot be `-x`."),
        ({"max_duration_seconds": 0}, "`max_duration_seconds` must be from"),
        ({"version": 0}, "`version` must be at least 1, not 0."),
        ({"validation_rules": {"post_execution": ["all_good"]}}, "`all_good` is no rule."),
        ({"validation_rules": {"post_execution": ["${{ steps.zz.output }}"]}}, "zz"),
        ({"validation_rules": {"pre_execution": []}}, "There is no key `pre_execution` here."),
        ({"undo": 1}, "There is no key `undo` here."),
    ],
)
def test_what_a_workstream_may_not_say(fields: dict[str, Any], said_of_it: str) -> None:
    assert said_of_it in problem(task("a"), **fields)


def test_a_workstream_needs_tasks() -> None:
    assert said({"workstream_id": "w", "tasks": []}) == ["3:11 `tasks` must not be empty."]
    assert said({"workstream_id": "w"}) == ["1:1 `tasks` is missing."]
    assert examine("[1, 2]").problems[0].message.startswith("A workstream is a mapping")


def test_every_problem_is_told_at_once_where_it_stands() -> None:
    written = """workstream_id: w
naem: x
tasks:
  - task_id: a
    dependencies: [bb]
    execution: {command: "true"}
    validation_rules:
      post_execution:
        - git_clear
        - ${{ output.x == }}
  - task_id: b
    execution: {command: "true", timeout_seconds: soon}
"""
    assert [line.split(" ")[0] for line in said(written)] == ["2:1", "5:20", "9:11", "10:27", "12:51"]


@pytest.mark.parametrize("count", [300, in_proof(10_000)])
def test_many_tasks_in_a_row_are_as_good_as_three(count: int) -> None:
    tasks = [task(f"t{number}", *([f"t{number - 1}"] if number else [])) for number in range(count)]
    assert len(workstream(*tasks).steps) == count


@pytest.mark.proof
def test_more_than_ten_thousand_tasks_are_refused() -> None:
    many = document(*(task(f"t{number}") for number in range(10_001)))
    assert any("10001 tasks are more than the 10000" in line for line in said(many))


# -- advice ------------------------------------------------------------------------------------------------------------
def test_what_is_carried_but_not_enforced_is_said() -> None:
    report = examine(
        {
            "workstream_id": "w",
            "tasks": [
                task(
                    "a",
                    worker_requirements={"min_version": "2.1"},
                    resource_requirements={"git_repo_write": "exclusive"},
                    context_requirements={"max_context_tokens": 8000, "required_files": ["a.py"]},
                    status="running",
                    state={"retry_count": 2},
                    workstream_id="w",
                )
            ],
        }
    )
    assert report.problems == ()
    assert [warning.message.split(" ")[0] for warning in report.warnings if "`" in warning.message] == [
        "The", "`context_requirements`", "`status`", "`state`",
    ]  # fmt: skip
    assert report.definition is not None
    assert report.definition.about["tasks"]["a"]["min_version"] == "2.1"
    assert examine(document(task("a", status="pending"))).warnings == ()


# -- the door ----------------------------------------------------------------------------------------------------------
def test_the_dialect_is_found_by_name_and_by_content() -> None:
    assert "workstream" in names()
    assert dialect("workstream") is WORKSTREAM
    assert recognise(document(task("a"))) == "workstream"
    assert recognise({"workflow": "x", "steps": []}) == "native"
    assert not WORKSTREAM.front.recognises([1])


def test_the_example_is_correct_and_fits_the_published_schema() -> None:
    from stepkeep.definition.expressions.json_schema import Shape
    from stepkeep.definition.text.document import read_document

    path = ROOT / "examples" / "workstream.yaml"
    report = check_file(path)
    assert report.problems == ()
    assert all("brings no rules of its own yet" in str(one) for one in report.warnings)
    assert isinstance(report.definition, Definition)
    shape = Shape(dict(WORKSTREAM.schema))
    assert shape.complaints(read_document(path).data) == []
    assert shape.complaints(document(task("a", command=["x", "y"], critical=True))) == []
    for wrong in (document(), document(task("a", max_retries=99_999)), document(task("a", typo=1)), {"tasks": []}):
        assert shape.complaints(wrong)


def test_the_published_schema_is_fresh() -> None:
    """To renew it: python -m stepkeep.dialects.format workstream > src/stepkeep/dialects/workstream/schema.json"""
    published = ROOT / "src" / "stepkeep" / "dialects" / "workstream" / "schema.json"
    assert published.read_text(encoding="utf-8") == FRONT.schema_text()
    assert WORKSTREAM.schema == json.loads(FRONT.schema_text())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = [
    "task_id",
    "execution",
    "dependencies",
    "validation_rules",
    "critical",
    "blocks",
    "resource_requirements",
    "state",
]


@drawn(
    50,
    300,
    top=st.dictionaries(st.sampled_from(["name", "version", "tasks", "validation_rules", "schema_version"]), JSON),
    odd=st.dictionaries(st.sampled_from(KEYS), JSON),
    execution=st.dictionaries(
        st.sampled_from(["command", "timeout_seconds", "max_retries", "working_directory"]), JSON
    ),
)
def test_nothing_that_is_written_ends_in_a_traceback(
    top: dict[str, Any], odd: dict[str, Any], execution: dict[str, Any]
) -> None:
    class Anywhere:
        def problem(self, path: Any, message: str, hint: str = "", *, key: bool = False, inside: int = 0) -> Any:
            from stepkeep.kernel.errors import Problem

            return Problem(file="w", line=1, column=1, path=str(path), message=message, hint=hint)

    one = {**task("a"), **odd}
    two = {**task("b"), "execution": execution}
    report = WORKSTREAM.front.examine({"workstream_id": "w", "tasks": [one, two, 5], **top}, Anywhere())
    assert report.definition is not None or report.problems
