"""The native format: what is accepted, the defaults of design section 4, and what is said about everything else."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.suites import in_proof

from stepkeep.definition.native.reader import check_file, check_text, load_file, load_text
from stepkeep.definition.native.written import schema_text
from stepkeep.definition.python.handlers import Registry, Retry, step
from stepkeep.kernel.definition import (
    SECOND,
    UNDO_RETRY,
    Agent,
    Approval,
    Backoff,
    Command,
    CompensateWhen,
    Completion,
    Definition,
    Dependency,
    Effect,
    Handler,
    Http,
    InputField,
    InputType,
    OnDeadline,
    OnExhausted,
    Rule,
    Wait,
    decode_definition,
    encode_definition,
)
from stepkeep.kernel.definition import (
    Retry as KernelRetry,
)
from stepkeep.kernel.errors import DefinitionError
from stepkeep.kernel.machine.states import Category, OnFailure, StepState
from stepkeep.kernel.plan import queue_specs

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
NATIVE_EXAMPLES = [
    path for path in sorted(EXAMPLES.glob("*.yaml")) if "\nworkflow: " in path.read_text(encoding="utf-8")
]
"""Those in the native format; the dialects' own have tests of their own."""


def load(text: str, handlers: Registry | None = None) -> Definition:
    return load_text(text, "test.yaml", handlers)


def load_steps(steps: str, head: str = "") -> Definition:
    return load(f"workflow: demo\n{head}\nsteps:\n{steps}")


def problems(text: str, handlers: Registry | None = None) -> list[str]:
    return [str(problem) for problem in check_text(text, "test.yaml", handlers).problems]


class TestBadDefinitions:
    """Every kind of mistake, with the words people get to see. To renew the words: delete the file and run again."""

    @pytest.mark.parametrize("path", sorted(HERE.glob("bad/*.[yj]*")), ids=lambda path: path.stem)
    def test_each_is_refused_with_all_its_problems(self, path: Path) -> None:
        started = time.thread_time()
        report = check_text(path.read_text(), path.name)
        assert time.thread_time() - started < 2
        assert report.definition is None
        found = "".join(f"{problem}\n" for problem in report.problems)
        expected = path.with_suffix(".txt")
        if not expected.exists():
            expected.write_text(found)
            pytest.fail(f"{expected.name} was missing and has been written: read it, then run again")
        assert found == expected.read_text()

    def test_an_unreadable_file_is_one_problem(self, tmp_path: Path) -> None:
        (problem,) = check_file(tmp_path / "nowhere.yaml").problems
        assert "cannot be read" in problem.message

    def test_load_raises_them_all_together(self) -> None:
        with pytest.raises(DefinitionError) as caught:
            load_file(HERE / "bad" / "everything_at_once.yaml")
        assert len(caught.value.problems) > 3

    @pytest.mark.parametrize(
        "step",
        [
            in_proof("{ name: sNO, usess: x, depends_on: [tNO] }"),
            in_proof('{ name: sNO, uses: x, with: { a: "${{ steps.tNO.output }}", b: "${{ inptu }}" } }'),
            in_proof("{ name: same, uses: same, timeout: 5 }"),
            in_proof("{ name: sNO, uses: x, depends_on: [s1, s2, s3, sNO] }"),
            in_proof("{}"),
            "5",
        ],
    )
    def test_thousands_of_mistakes_are_a_readable_list(self, step: str) -> None:
        text = "workflow: demo\nsteps:\n" + "".join(f"  - {step.replace('NO', str(n))}\n" for n in range(9_000))
        started = time.thread_time()
        found = problems(text)
        assert time.thread_time() - started < 10
        assert len(found) == 51
        assert "There are more problems than these." in found[0]


class TestDefaults:
    """Design section 4, made explicit in the definition."""

    def test_the_smallest_workflow(self) -> None:
        assert load("workflow: demo\nsteps: [{ name: a, uses: demo.work }]") == Definition(
            name="demo", version=1, steps=load("workflow: demo\nsteps: [{ name: a, uses: demo.work }]").steps
        )

    def test_the_smallest_step(self) -> None:
        (only,) = load_steps("  - { name: a, uses: demo.work }").steps
        assert only.executor == Handler(name="demo.work")
        assert only.order == 1
        assert only.inputs == "${{ input }}"
        assert only.timeout == 300 * SECOND
        assert only.retry == KernelRetry(jitter=0.5)
        assert only.on_failure is OnFailure.ABORT
        assert only.effect is Effect.UNKNOWN
        assert only.compensate_when is CompensateWhen.SUCCEEDED
        assert only.completion is Completion.AUTO

    def test_without_depends_on_steps_are_a_sequence_that_skips_do_not_break(self) -> None:
        a, b, c = load_steps("  - { name: a, uses: x }\n  - { name: b, uses: x }\n  - { name: c, uses: x }").steps
        assert a.depends_on == ()
        assert b.depends_on == (Dependency(step="a", allow=(StepState.SUCCEEDED, StepState.SKIPPED)),)
        assert c.depends_on == (Dependency(step="b", allow=(StepState.SUCCEEDED, StepState.SKIPPED)),)

    def test_with_any_depends_on_the_others_are_roots(self) -> None:
        a, b, c = load_steps(
            "  - { name: a, uses: x }\n  - { name: b, uses: x }\n  - { name: c, uses: x, depends_on: [a] }"
        ).steps
        assert (a.depends_on, b.depends_on) == ((), ())
        assert c.depends_on == (Dependency(step="a", allow=(StepState.SUCCEEDED,)),)

    def test_an_empty_depends_on_makes_a_graph_too(self) -> None:
        _, b = load_steps("  - { name: a, uses: x, depends_on: [] }\n  - { name: b, uses: x }").steps
        assert b.depends_on == ()

    def test_allow_adds_to_success(self) -> None:
        _, b = load_steps(
            "  - { name: a, uses: x }\n  - { name: b, uses: x, depends_on: [{ step: a, allow: [skipped] }] }"
        ).steps
        assert b.depends_on == (Dependency(step="a", allow=(StepState.SUCCEEDED, StepState.SKIPPED)),)

    def test_jitter_is_switched_off_by_none(self) -> None:
        (a,) = load_steps("  - { name: a, uses: x, retry: { jitter: none } }").steps
        assert a.retry.jitter == 0.0

    def test_a_limit_of_time_replaces_the_usual_number_of_attempts(self) -> None:
        a, b = load_steps(
            "  - { name: a, uses: x, retry: { max_elapsed: 2h } }\n"
            "  - { name: b, uses: x, retry: { max_elapsed: 2h, max_attempts: 7 } }"
        ).steps
        assert (a.retry.max_elapsed, a.retry.max_attempts, b.retry.max_attempts) == (7_200 * SECOND, 10_000, 7)

    def test_only_a_step_that_is_tried_can_hold(self) -> None:
        (a,) = load_steps("  - { name: a, uses: x, on_exhausted: hold }").steps
        assert a.on_exhausted is OnExhausted.HOLD
        with pytest.raises(DefinitionError, match="`on_exhausted` means nothing for `approval`"):
            load_steps("  - { name: a, approval: ok, on_exhausted: hold }")

    def test_a_steps_policy_is_its_own_else_the_runs(self) -> None:
        a, b = load_steps(
            "  - { name: a, uses: x }\n  - { name: b, uses: x, on_failure: skip }", "on_failure: compensate"
        ).steps
        assert (a.on_failure, b.on_failure) == (OnFailure.COMPENSATE, OnFailure.SKIP)

    def test_a_declared_undo_makes_a_step_a_write(self) -> None:
        (a,) = load_steps("  - { name: a, uses: x, undo: x.undo }").steps
        assert a.effect is Effect.WRITE
        assert a.undo is not None
        assert a.undo.executor == Handler(name="x.undo")
        assert a.undo.retry == msgspec.structs.replace(UNDO_RETRY, jitter=0.5)
        assert a.undo.timeout == 300 * SECOND
        assert a.undo.inputs == '${{ steps["a"].output }}'

    def test_a_written_retry_keeps_what_it_does_not_mention(self) -> None:
        (a,) = load_steps(
            "  - { name: a, uses: x, retry: { max_attempts: 5, max: null }, undo: { uses: y, retry: { initial: 2s } } }"
        ).steps
        assert a.retry == KernelRetry(max_attempts=5, max=None, jitter=0.5)
        assert a.undo is not None
        assert a.undo.retry == msgspec.structs.replace(UNDO_RETRY, initial=2 * SECOND, jitter=0.5)


class TestEverythingThatCanBeWritten:
    def test_the_example_of_the_design(self) -> None:
        definition = load_file(EXAMPLES / "onboarding.yaml")
        assert (definition.name, definition.version) == ("customer-onboarding", 3)
        account, gate, workspace, welcome = definition.steps
        assert account.retry.on == (Category.TIMEOUT, Category.TRANSIENT, Category.UNKNOWN)
        assert gate.approval is not None
        assert gate.approval.prompt == "May this customer be let in?"
        assert workspace.inputs["account_id"] == '${{ steps["create-account"].output.account_id }}'
        assert welcome.on_failure is OnFailure.SKIP

    def test_every_kind_of_work(self) -> None:
        steps = load_steps("""
  - { name: a, uses: accounts.create, with: { email: x } }
  - { name: b, command: [ls, -l] }
  - { name: c, command: { argv: [env], env: { B: "2", A: "1" }, cwd: /tmp }, with: { stdin: 1 } }
  - { name: d, http: { method: POST, url: "https://example.com", headers: { X-A: b }, body: { a: 1 } } }
  - { name: e, agent: writer, action: Write a report }
  - { name: f, approval: { prompt: Go?, roles: [ops], quorum: 2, not: [requester], deadline: 1h, on_deadline: fail } }
  - { name: g, wait: { event: paid, deadline: 2d } }
  - { name: h, approval: Go on? }
  - { name: i, wait: paid }
""").steps
        a, b, c, d, e, f, g, h, i = steps
        assert (a.executor, a.inputs) == (Handler(name="accounts.create"), {"email": "x"})
        assert (b.executor, b.inputs) == (Command(argv=("ls", "-l")), None)
        assert c.executor == Command(argv=("env",), env={"A": "1", "B": "2"}, cwd="/tmp")
        assert c.inputs == {"stdin": 1}
        assert d.executor == Http(method="POST", url="https://example.com", headers={"X-A": "b"}, body={"a": 1})
        assert e.executor == Agent(name="writer", action="Write a report")
        assert f.approval == Approval(
            prompt="Go?",
            roles=("ops",),
            quorum=2,
            excluded=("requester",),
            deadline=3600 * SECOND,
            on_deadline=OnDeadline.FAIL,
        )
        assert g.wait == Wait(event="paid", deadline=2 * 86_400 * SECOND)
        assert h.approval == Approval(prompt="Go on?")
        assert i.wait == Wait(event="paid")
        assert [step.order for step in steps] == list(range(1, 10))

    def test_every_option_of_a_step(self) -> None:
        (a,) = load_steps("""
  - name: a
    uses: x
    timeout: 1m
    retry: { max_attempts: 4, max_losses: 2, backoff: linear, initial: 500ms, factor: 3, max: 1m, jitter: 0.5 }
    effect: irreversible
    undo: { command: [undo, it], timeout: 9s }
    compensate_when: attempted
    rules: [output.ok, { check: output.n > 0, message: none }]
    validate: ["${{ output.n < 9 }}"]
    completion: { mode: manual, deadline: 1d }
    transactional: true
    capabilities: [gpu, crm]
    queue: slow
    order: 7
    description: words
""").steps
        assert a.timeout == 60 * SECOND
        assert a.retry.backoff is Backoff.LINEAR
        assert (a.retry.initial, a.retry.factor, a.retry.max, a.retry.jitter) == (500_000, 3.0, 60 * SECOND, 0.5)
        assert a.effect is Effect.IRREVERSIBLE
        assert a.undo is not None
        assert (a.undo.executor, a.undo.inputs) == (Command(argv=("undo", "it")), None)
        assert a.compensate_when is CompensateWhen.ATTEMPTED
        assert a.rules == (
            Rule(expression="output.ok"),
            Rule(expression="output.n > 0", message="none"),
            Rule(expression="${{ output.n < 9 }}"),
        )
        assert (a.completion, a.completion_deadline) == (Completion.MANUAL, 86_400 * SECOND)
        assert a.transactional
        assert (a.capabilities, a.queue, a.order, a.description) == (("crm", "gpu"), "slow", 7, "words")

    def test_every_option_of_a_workflow(self) -> None:
        definition = load("""
workflow: demo
version: 2
description: words
timeout: 1h
on_failure: continue
hook_failure: stop
input: { email: { type: string }, age: { type: integer, required: false } }
output: { x: "${{ steps.a.output }}" }
rules: [{ check: steps.a.output.ok, message: not ok }]
lease: 1m
grace: 5s
priority: -3
labels: { team: a, area: b }
steps: [{ name: a, uses: x }]
""")
        assert definition.timeout == 3600 * SECOND
        assert (definition.on_failure, definition.hook_failure) == (OnFailure.CONTINUE, "stop")
        assert definition.input_fields == ("email", "age")
        assert definition.input_types == {
            "email": InputField(type=InputType.STRING),
            "age": InputField(type=InputType.INTEGER, required=False),
        }
        assert definition.output == {"x": "${{ steps.a.output }}"}
        assert definition.rules == (Rule(expression="steps.a.output.ok", message="not ok"),)
        assert (definition.lease, definition.grace, definition.priority) == (60 * SECOND, 5 * SECOND, -3)
        assert list(definition.labels) == ["area", "team"]

    def test_json_is_the_same(self) -> None:
        text = '{"workflow": "demo", "steps": [{"name": "a", "uses": "x"}]}'
        assert load_text(text, "demo.json") == load_text(text, "demo.yaml")

    def test_a_definition_survives_storage(self) -> None:
        definition = load_file(EXAMPLES / "onboarding.yaml")
        assert decode_definition(encode_definition(definition)) == definition

    @pytest.mark.parametrize("path", NATIVE_EXAMPLES, ids=lambda path: path.stem)
    def test_the_examples_have_neither_problems_nor_warnings(self, path: Path) -> None:
        report = check_file(path)
        assert report.definition is not None
        assert report.warnings == ()

    @pytest.mark.parametrize("count", [1_000, in_proof(10_000)])
    def test_many_steps_in_a_row_are_read_quickly(self, count: int) -> None:
        text = "workflow: demo\nsteps:\n" + "".join(f"  - {{ name: s{n}, uses: x }}\n" for n in range(count))
        started = time.thread_time()
        definition = load(text)
        assert time.thread_time() - started < 15
        assert definition.steps[-1].depends_on[0].step == f"s{count - 2}"


class TestHandlers:
    """With the handlers at hand, what their authors said fills the gaps."""

    @pytest.fixture
    def registry(self) -> Registry:
        registry = Registry()
        step("x.undo", timeout="7s", registry=registry)(lambda account: None)

        @step("x", retry=Retry(max_attempts=7), timeout="9s", undo="x.undo", capabilities=["crm"], registry=registry)
        def work(ctx: Any, email: str, plan: str = "free") -> None: ...

        return registry

    def test_the_decorator_fills_what_the_step_leaves_open(self, registry: Registry) -> None:
        (a,) = load("workflow: demo\nsteps: [{ name: a, uses: x }]", registry).steps
        assert (a.retry.max_attempts, a.timeout, a.capabilities) == (7, 9 * SECOND, ("crm",))
        assert a.effect is Effect.WRITE
        assert a.undo is not None
        assert (a.undo.executor, a.undo.timeout) == (Handler(name="x.undo"), 7 * SECOND)

    def test_the_steps_own_words_come_first(self, registry: Registry) -> None:
        text = "workflow: demo\nsteps: [{ name: a, uses: x, timeout: 1s, retry: { initial: 3s }, undo: other }]"
        registry_with_other = registry
        step("other", registry=registry_with_other)(lambda: None)
        (a,) = load(text, registry_with_other).steps
        assert (a.timeout, a.retry.max_attempts, a.retry.initial) == (SECOND, 7, 3 * SECOND)
        assert a.undo is not None
        assert a.undo.executor == Handler(name="other")

    def test_an_undo_has_the_capabilities_and_the_queue_of_its_own_handler(self, registry: Registry) -> None:
        step("unmake", capabilities=["gpu"], queue="slow", registry=registry)(lambda: None)
        text = "workflow: demo\nsteps: [{ name: a, uses: x, queue: fast, undo: %s }]"
        main, undo, _ = queue_specs(load(text % "unmake", registry))
        assert main is not None
        assert (main.capabilities, main.group) == (("crm",), "fast")
        assert undo is not None
        assert (undo.capabilities, undo.group) == (("gpu",), "slow")
        _, undo, _ = queue_specs(load(text % "{ uses: unmake, capabilities: [tpu], queue: later }", registry))
        assert undo is not None
        assert (undo.capabilities, undo.group) == (("gpu", "tpu"), "later")
        _, undo, _ = queue_specs(load(text % "x.undo", registry))
        assert undo is not None
        assert (undo.capabilities, undo.group) == (("crm",), "fast"), "a handler that declares none has the step's"

    def test_an_unknown_handler_is_a_problem(self, registry: Registry) -> None:
        assert problems("workflow: demo\nsteps: [{ name: a, uses: x.undoo }]", registry) == [
            "test.yaml:2:26: There is no handler `x.undoo`. Did you mean `x.undo`?"
        ]

    def test_inputs_must_fit_the_function(self, registry: Registry) -> None:
        assert problems("workflow: demo\nsteps: [{ name: a, uses: x, with: { mail: x } }]", registry) == [
            "test.yaml:2:29: Handler `x` needs `email`. It takes `email`, `plan`.",
            "test.yaml:2:37: Handler `x` has no parameter `mail`. It takes `email`, `plan`.",
        ]

    def test_without_handlers_any_name_will_do(self) -> None:
        assert problems("workflow: demo\nsteps: [{ name: a, uses: anything.at.all }]") == []


def test_the_published_schema_is_fresh() -> None:
    """To renew it: python -m stepkeep.definition.native.written > docs/reference/native.schema.json"""
    published = HERE.parent.parent / "docs" / "reference" / "native.schema.json"
    assert published.read_text() == schema_text()


@pytest.mark.parametrize(
    "step",
    [
        {"name": "a", "uses": "h", "x" * 100_000: 1},
        {"name": "x" * 100_000, "uses": "h"},
        {"name": "a", "uses": "h", "with": {"x" * 100_000 + "${{ 1 }}": 1}},
        {"name": "a", "uses": "h", "with": {"x" * 100_000: "${{ nope }}"}},
        {"name": "a", "uses": "h", "with": {"v": "${{ " + "x" * 4_000 + " }}"}},
        {"name": "a", "uses": "h", "depends_on": ["x" * 100_000]},
    ],
)
def test_no_message_exceeds_two_thousand_characters_whatever_it_quotes(step: dict[str, Any]) -> None:
    report = check_text(msgspec.json.encode({"workflow": "w", "steps": [step]}).decode(), "w.json")
    assert report.problems
    for problem in report.problems:
        assert len(problem.message) + len(problem.hint) <= 2_000
        assert len(problem.path) <= 2_000
        assert len(str(problem)) <= 2_000


# -- schemas of a step -----------------------------------------------------------------------------------------------
def test_schemas_of_a_step_are_kept_and_a_definition_without_them_has_its_old_digest() -> None:
    step = "workflow: w\nsteps:\n  - { name: a, uses: x%s }\n"
    [plain] = load_text(step % "", "flow.yaml").steps
    assert b"schema" not in msgspec.json.encode(plain)
    [held] = load_text(step % ", input_schema: { type: object }, output_schema: {}", "flow.yaml").steps
    assert (held.input_schema, held.output_schema) == ({"type": "object"}, {})
    definition = load_text(step % ", output_schema: { type: integer }", "flow.yaml")
    assert decode_definition(encode_definition(definition)) == definition


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("uses: x\n    input_schema: { type: nothing }", "flow.yaml:5:27: This is no usable JSON Schema"),
        (
            'uses: x\n    output_schema: { $ref: "file:///a" }',
            "flow.yaml:5:20: This is no usable JSON Schema",
        ),
        ("uses: x\n    output_schema: true", "flow.yaml:5:20: `output_schema` must be a mapping"),
        ("uses: x\n    output_schema:", "`output_schema` is empty"),
        ("wait: paid\n    output_schema: {}", "flow.yaml:5:5: `output_schema` means nothing for `wait`"),
        ("command: [ls]\n    input_schema: {}", "flow.yaml:5:5: `input_schema` has nothing to check"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_problem_with_its_position(step: str, said: str) -> None:
    report = check_text(f"workflow: w\nsteps:\n  - name: a\n    {step}\n", "flow.yaml")
    assert [said in str(problem) for problem in report.problems] == [True], report.problems
