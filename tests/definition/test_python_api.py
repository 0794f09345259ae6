"""Workflows in Python end in the same definition as YAML, by the same rules, and problems point at the call."""

import inspect
from datetime import datetime, timedelta
from typing import Any

import pytest

from stepkeep.definition.native.reader import load_text
from stepkeep.definition.python.handlers import Registry, Retry, step
from stepkeep.definition.python.workflow import Workflow, workflows_in
from stepkeep.kernel.definition import SECOND, Handler
from stepkeep.kernel.errors import DefinitionError, InvalidInput
from stepkeep.kernel.machine.states import OnFailure


@pytest.fixture
def registry() -> Registry:
    return Registry()


def create_account(ctx: Any, email: str) -> dict[str, str]:
    return {"account_id": email}


def deactivate_account(ctx: Any, account_id: str) -> None: ...


async def send_welcome(ctx: Any, email: str) -> None: ...


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_the_example_of_the_design(registry: Registry) -> None:
    onboarding = Workflow("customer-onboarding", version=3, registry=registry)
    account = onboarding.step("create-account", create_account, undo=deactivate_account)
    signed = onboarding.approval("sign-off", after=account, roles=["finance"], quorum=2, deadline="24h")
    onboarding.step("send-welcome", send_welcome, after=signed, on_failure="skip")
    written = load_text(
        """
workflow: customer-onboarding
version: 3
steps:
  - { name: create-account, uses: create_account, undo: { uses: deactivate_account } }
  - { name: sign-off, approval: { roles: [finance], quorum: 2, deadline: 24h }, depends_on: [create-account] }
  - { name: send-welcome, uses: send_welcome, depends_on: [sign-off], on_failure: skip }
""",
        "same.yaml",
    )
    assert onboarding.definition() == written


def test_every_kind_of_step_is_the_same_as_in_yaml(registry: Registry) -> None:
    flow = Workflow(
        "demo",
        timeout=timedelta(hours=1),
        on_failure="continue",
        input={"email": {"type": "string"}},
        output="${{ steps.b.output }}",
        labels={"team": "a"},
        registry=registry,
    )
    flow.agent("a", "writer", "Write", inputs={"to": "${{ input.email }}"}, timeout="1m")
    flow.command("b", ["ls", "-l"], env={"A": "1"}, cwd="/tmp", if_="input.email != ''", effect="write")
    flow.http("c", "https://example.com", method="POST", body={"a": (1, 2)}, rules=["output.status == 200"])
    flow.step("s", "accounts.create", input_schema={"required": ("email",)}, output_schema={"type": "object"})
    flow.wait("d", "paid", deadline="2d", description="words")
    flow.step("e", "accounts.create", completion="manual", capabilities=["crm"], queue="slow", order=9)
    flow.step("f", "accounts.close", undo={"command": ["undo"]}, compensate_when="attempted", transactional=True)
    written = load_text(
        """
workflow: demo
timeout: 1h
on_failure: continue
input: { email: { type: string } }
output: ${{ steps.b.output }}
labels: { team: a }
steps:
  - { name: a, agent: writer, action: Write, with: { to: "${{ input.email }}" }, timeout: 1m }
  - { name: b, command: { argv: [ls, -l], env: { A: "1" }, cwd: /tmp }, if: input.email != '', effect: write }
  - { name: c, http: { url: "https://example.com", method: POST, body: { a: [1, 2] } }, rules: [output.status == 200] }
  - { name: s, uses: accounts.create, input_schema: { required: [email] }, output_schema: { type: object } }
  - { name: d, wait: { event: paid, deadline: 2d }, description: words }
  - { name: e, uses: accounts.create, completion: manual, capabilities: [crm], queue: slow, order: 9 }
  - name: f
    uses: accounts.close
    undo: { command: [undo] }
    compensate_when: attempted
    transactional: true
""",
        "same.yaml",
    )
    assert flow.definition() == written


def test_without_after_steps_follow_each_other(registry: Registry) -> None:
    flow = Workflow("demo", registry=registry)
    flow.step("a", "x")
    flow.step("b", "x")
    assert [edge.step for edge in flow.definition().steps[1].depends_on] == ["a"]


def test_after_takes_references_names_and_endings(registry: Registry) -> None:
    flow = Workflow("demo", registry=registry)
    a = flow.step("a", "x", after=[])
    b = flow.step("b", "x", after=[])
    flow.step("c", "x", after=[a, "b"])
    flow.step("d", "x", after=b.allow("skipped"))
    *_, c, d = flow.definition().steps
    assert [edge.step for edge in c.depends_on] == ["a", "b"]
    assert d.depends_on[0].allow == ("succeeded", "skipped")


def test_what_the_decorator_says_is_the_default(registry: Registry) -> None:
    @step("accounts.create", retry=Retry(max_attempts=7), timeout="9s", registry=registry)
    def create(email: str) -> None: ...

    flow = Workflow("demo", registry=registry)
    flow.step("a", create)
    flow.step("b", create, retry=Retry(max_attempts=2), timeout="1s")
    a, b = flow.definition().steps
    assert a.executor == Handler(name="accounts.create")
    assert (a.retry.max_attempts, a.timeout) == (7, 9 * SECOND)
    assert (b.retry.max_attempts, b.timeout) == (2, SECOND)


def test_an_output_can_be_handed_on(registry: Registry) -> None:
    flow = Workflow("demo", registry=registry)
    made = flow.step("make", "x")
    flow.step("use", "y", inputs={"thing": made.output})
    assert flow.definition().steps[1].inputs == {"thing": '${{ steps["make"].output }}'}


def test_a_run_policy_reaches_the_steps(registry: Registry) -> None:
    flow = Workflow("demo", on_failure="compensate", registry=registry)
    flow.step("a", "x")
    assert flow.definition().steps[0].on_failure is OnFailure.COMPENSATE


class TestProblems:
    def test_each_points_at_its_call(self, registry: Registry) -> None:
        flow = Workflow("not a name", registry=registry)
        first = here() - 1
        flow.step("a", "x", after=["nowhere"])
        flow.step("a", "x", timeout="soon")
        with pytest.raises(DefinitionError) as caught:
            flow.definition()
        said = [(problem.line, problem.message) for problem in caught.value.problems]
        assert said[0][0] == first
        assert said[1] == (first + 2, "There is no step `nowhere` to depend on.")
        assert [line for line, _ in said[2:]] == [first + 3, first + 3]
        assert all(problem.file.endswith("test_python_api.py") for problem in caught.value.problems)

    def test_a_workflow_without_steps_is_refused(self, registry: Registry) -> None:
        with pytest.raises(DefinitionError, match="`steps` must not be empty"):
            Workflow("demo", registry=registry).definition()

    def test_inputs_that_the_function_does_not_take_are_refused(self, registry: Registry) -> None:
        flow = Workflow("demo", registry=registry)
        flow.step("a", create_account, inputs={"mail": "x"})
        with pytest.raises(DefinitionError, match="Handler `create_account` has no parameter `mail`"):
            flow.definition()

    def test_a_value_that_cannot_be_stored_is_refused_at_once(self, registry: Registry) -> None:
        flow = Workflow("demo", registry=registry)
        with pytest.raises(InvalidInput, match="a datetime cannot stand in a workflow"):
            flow.step("a", "x", inputs={"at": datetime(2026, 1, 1)})  # noqa: DTZ001

    def test_a_lambda_needs_a_name(self, registry: Registry) -> None:
        with pytest.raises(InvalidInput, match="no name of its own"):
            Workflow("demo", registry=registry).step("a", lambda: None)


def test_workflows_are_found_in_a_module(registry: Registry) -> None:
    module = type(inspect)("flows")
    module.one = Workflow("one", registry=registry)
    module.two = module.other_name = Workflow("two", registry=registry)
    assert [flow.name for flow in workflows_in(module)] == ["one", "two"]


def test_a_function_of_another_registry_is_refused_when_the_step_is_written(registry: Registry) -> None:
    """Its runs would wait forever: no worker of the workflow's registry has the handler."""

    @step("elsewhere.known", registry=registry)
    def known() -> None: ...

    with pytest.raises(InvalidInput, match=r"handler elsewhere\.known of another registry"):
        Workflow("lost", registry=Registry()).step("a", known)
    Workflow("found", registry=registry).step("a", known)
