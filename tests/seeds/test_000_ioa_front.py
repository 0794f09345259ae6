"""Seed 000's format: what a workflow resource becomes, what is refused with its place, and what is advised against."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st
from tests.seeds.ioa_stage import accepted, check, resource, workflow
from tests.seeds.schema_check import errors_of
from tests.suites import drawn, in_proof

from stepkeep.definition.findings import LOAD_IT
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects.ioa.front import FRONT
from stepkeep.dialects.registry import dialect, recognise
from stepkeep.kernel.definition import (
    SECOND,
    UNDO_RETRY,
    Agent,
    Approval,
    Backoff,
    Effect,
    HookFailure,
    OnDeadline,
    Retry,
    StepDefinition,
    SubWorkflow,
    UndoChild,
    decode_definition,
    encode_definition,
)
from stepkeep.kernel.machine.states import Category, OnFailure, StepState

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
MINUTE = 60 * SECOND


def problems(text: str) -> list[str]:
    return [str(problem) for problem in check(text).problems]


def warnings(spec: str) -> list[str]:
    report = check(resource(spec))
    assert report.problems == ()
    return [str(warning) for warning in report.warnings]


def step(rest: str = "") -> StepDefinition:
    """The one step of a workflow, with these keys besides its name, agent and action."""
    [only] = workflow(f"steps: [{{ name: a, agent: x, action: do{rest} }}]").steps
    return only


def retry(policy: str) -> Retry:
    return step(f", retryPolicy: {{ {policy} }}").retry


class TestWhatItBecomes:
    def test_every_default_is_explicit(self) -> None:
        definition = workflow("steps: [{ name: a, agent: x, action: Look around }]")
        assert (definition.name, definition.version, definition.dialect) == ("flow", 1, "ioa")
        assert definition.timeout is None
        assert definition.on_failure is OnFailure.ABORT
        assert definition.hook_failure is HookFailure.STOP
        assert definition.about == {"domainsInvolved": ["growth", "product"]}
        [only] = definition.steps
        assert only.executor == Agent(name="x", action="Look around")
        assert only.timeout == 5 * MINUTE
        assert only.on_failure is OnFailure.ABORT
        assert only.effect is Effect.READ
        assert only.retry == Retry(max_attempts=4, max=MINUTE, on=(Category.TRANSIENT,), caps_asked=True)

    def test_a_step_follows_its_own_policy_else_the_workflows(self) -> None:
        definition = workflow("""
            failurePolicy: compensate
            steps:
              - { name: a, agent: x, action: do }
              - { name: b, agent: x, action: do, onFailure: skip }
              - { name: c, agent: x, action: do, onFailure: abort }
        """)
        assert [one.on_failure for one in definition.steps] == ["compensate", "skip", "abort"]

    def test_a_skipped_dependency_satisfies(self) -> None:
        definition = workflow("""
            steps: [{ name: a, agent: x, action: do }, { name: b, agent: x, action: do, dependsOn: [a] }]
        """)
        first, second = definition.steps
        assert first.depends_on == ()
        assert [edge.allow for edge in second.depends_on] == [(StepState.SUCCEEDED, StepState.SKIPPED)]

    def test_a_compensation_becomes_the_undo_of_its_step(self) -> None:
        definition = workflow("""
            steps: [{ name: a, agent: x, action: do }]
            compensation: [{ step: a, action: Take it back, agent: y }]
        """)
        [only] = definition.steps
        assert only.effect is Effect.WRITE
        assert only.undo is not None
        assert only.undo.executor == Agent(name="y", action="Take it back")
        assert only.undo.retry == UNDO_RETRY

    def test_an_action_that_begins_with_gate_is_a_question_to_people(self) -> None:
        """Pattern 4: prompt and deadline are the rest of the text and the step's timeout."""
        definition = workflow('steps: [{ name: a, agent: x, action: "GATE: May we?  ", timeout: 24h }]')
        [gate] = definition.steps
        assert gate.executor is None
        assert gate.approval == Approval(prompt="May we?", deadline=24 * 60 * MINUTE, on_deadline=OnDeadline.FAIL)
        assert definition.about["gates"] == {"a": "x"}, "who asks is kept"

    def test_the_trigger_is_kept(self) -> None:
        definition = workflow("""
            trigger: { event: growth.churn_signal, condition: riskScore >= 0.7 }
            steps: [{ name: a, agent: x, action: do }]
        """)
        assert definition.trigger == {"event": "growth.churn_signal", "condition": "riskScore >= 0.7"}

    @pytest.mark.parametrize(
        ("written", "number"),
        [("3", 3), ('"3"', 3), ("v7", 7), ("1.4.2", 1_004_002), ("2.0", None), ('"2.0"', 2_000_000)],
    )
    def test_a_version_becomes_a_number(self, written: str, number: int | None) -> None:
        report = check(
            resource("steps: [{ name: a, agent: x, action: do }]").replace("flow }", f"flow, version: {written} }}")
        )
        if number is None:
            assert "`version` must be a whole number" in str(report.problems[0]), "a YAML float is no version"
        else:
            assert accepted(report).version == number

    def test_owner_labels_and_annotations_are_kept(self) -> None:
        text = resource("steps: [{ name: a, agent: x, action: do }]").replace(
            "{ name: flow }",
            "{ name: flow, owner: ops, labels: { tier: one }, annotations: { note: two }, createdAt: 2026-02-25 }",
        )
        definition = accepted(check(text))
        assert definition.labels == {"tier": "one"}
        assert definition.about["owner"] == {"name": "ops"}
        assert definition.about["annotations"] == {"note": "two"}

    def test_a_definition_survives_storage(self) -> None:
        document = parse_document((EXAMPLES / "ioa.yaml").read_text(), file="ioa.yaml")
        definition = accepted(FRONT.examine(document.data, document))
        assert decode_definition(encode_definition(definition)) == definition

    def test_json_is_the_same(self) -> None:
        text = resource("steps: [{ name: a, agent: x, action: do }]")
        data = parse_document(text).data
        document = parse_document(json.dumps(data), file="flow.json")
        assert accepted(FRONT.examine(document.data, document)) == accepted(check(text))

    def test_agents_add_what_their_authors_said_but_a_timeout_is_still_not_retried(self) -> None:
        known = Registry()
        known.register(
            HandlerSpec(name="x", function=print, kind="agent", retry=Retry(max_attempts=7), timeout=9 * SECOND)
        )
        [only] = accepted(check(resource("steps: [{ name: a, agent: x, action: do }]"), known)).steps
        assert only.timeout == 9 * SECOND
        assert only.retry.max_attempts == 7
        assert Category.TIMEOUT not in only.retry.on


class TestRetryPolicies:
    """Section 3.2, in both spellings."""

    def test_the_seeds_own_example(self) -> None:
        found = retry('maxRetries: 3, backoff: exponential, initialDelay: "1s", maxDelay: "60s"')
        assert (found.max_attempts, found.backoff, found.initial, found.max) == (4, Backoff.EXPONENTIAL, SECOND, MINUTE)
        assert found.on == (Category.AGENT, Category.EXTERNAL, Category.TRANSIENT, Category.UNKNOWN)

    @pytest.mark.parametrize(
        ("policy", "backoff", "initial", "longest"),
        [
            ("backoff: constant", Backoff.CONSTANT, 5, 60),
            ("backoff: linear", Backoff.LINEAR, 5, 60),
            ("backoff: exponential", Backoff.EXPONENTIAL, 1, 60),
            ('backoff: "30s"', Backoff.CONSTANT, 30, 60),
            ('backoff: "5m"', Backoff.CONSTANT, 300, 300),
            ('backoff: linear, maxDelay: "3s"', Backoff.LINEAR, 3, 3),
            ('initialDelay: "2m"', Backoff.EXPONENTIAL, 120, 120),
        ],
    )
    def test_what_is_left_open_is_filled_in(self, policy: str, backoff: Backoff, initial: int, longest: int) -> None:
        found = retry(policy)
        assert (found.backoff, found.initial, found.max) == (backoff, initial * SECOND, longest * SECOND)


class TestSubWorkflows:
    """Guideline 5: split large workflows into sub-workflows."""

    @pytest.mark.parametrize("written", ["other", "{ name: other }", "{ name: other, version: 3 }"])
    def test_a_step_may_be_another_workflow(self, written: str) -> None:
        [only] = workflow(f"steps: [{{ name: a, workflow: {written}, timeout: 30d, onFailure: skip }}]").steps
        assert isinstance(only.child, SubWorkflow)
        assert (only.child.workflow, only.child.deadline) == ("other", 30 * 24 * 3600 * SECOND)
        assert only.child.version == (3 if "3" in written else 0)
        assert (only.executor, only.on_failure) == (None, OnFailure.SKIP)
        assert only.undo is not None
        assert isinstance(only.undo.executor, UndoChild)

    @pytest.mark.parametrize(
        ("step", "said"),
        [
            ("agent: x", "`agent` means nothing for a step that starts a `workflow`."),
            ("action: do", "`action` means nothing for a step that starts a `workflow`."),
            ("retryPolicy: { maxRetries: 1 }", "`retryPolicy` means nothing for a step that starts a `workflow`."),
            ("inputSchema: { type: object }", "`inputSchema` means nothing for a step that starts a `workflow`."),
        ],
    )
    def test_what_only_an_agent_has_is_refused(self, step: str, said: str) -> None:
        [only] = problems(resource(f"steps: [{{ name: a, workflow: other, {step} }}]"))
        assert said in only

    def test_a_workflow_takes_itself_back(self) -> None:
        spec = "steps: [{ name: a, workflow: other }]\ncompensation: [{ step: a, action: undo, agent: x }]"
        [only] = problems(resource(spec))
        assert "`a` is a workflow, which takes itself back by its own compensation." in only

    @pytest.mark.parametrize(("step", "missing"), [("agent: x", ["action"]), ("timeout: 1m", ["agent", "action"])])
    def test_any_other_step_has_an_agent_and_an_action(self, step: str, missing: list[str]) -> None:
        found = problems(resource(f"steps: [{{ name: a, {step} }}]"))
        assert [key for key in missing if any(f"`{key}` is missing." in one for one in found)] == missing
        assert len(found) == len(missing)


class TestProblems:
    def test_all_at_once_each_with_its_place(self) -> None:
        bad = Path(__file__).parent / "bad"
        found = problems((bad / "ioa.yaml").read_text(encoding="utf-8"))
        assert "\n".join(found) + "\n" == (bad / "ioa.txt").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ("steps: [{ name: a, agent: x, action: do, dependsOn: [a] }]", "Step `a` depends on itself."),
            ("steps: [{ name: a, agent: x, action: do, dependsOn: [b] }]", "There is no step `b` to depend on."),
            (
                "steps: [{ name: a, agent: x, action: b, dependsOn: [b] }, { name: b, agent: x, action: a, dependsOn: [a] }]",  # noqa: E501
                "These steps wait for each other: a → b → a.",
            ),
            ("steps: []", "`steps` must not be empty."),
        ],
        ids=["itself", "unknown", "cycle without a root", "no step at all"],
    )
    def test_the_graph_follows_section_5_2(self, spec: str, said: str) -> None:
        assert said in problems(resource(spec))[0]

    @pytest.mark.parametrize(
        ("entry", "said"),
        [
            ("{ step: creat-account, action: undo, agent: x }", "Did you mean `create-account`?"),
            ("{ step: sign, action: undo, agent: x }", "`sign` is a gate; there is nothing to take back."),
            ('{ step: create-account, action: "GATE: ok?", agent: x }', "A compensation cannot wait for approval"),
            (
                "{ step: create-account, action: u, agent: x }, { step: create-account, action: v, agent: x }",
                "Step `create-account` already has a compensation.",
            ),
        ],
    )
    def test_a_compensation_names_one_step_that_does_something(self, entry: str, said: str) -> None:
        spec = f"""
            steps:
              - {{ name: create-account, agent: x, action: do }}
              - {{ name: sign, agent: x, action: "GATE: ok?" }}
            compensation: [{entry}]
        """
        [only] = problems(resource(spec))
        assert said in only

    @pytest.mark.parametrize(
        ("policy", "said"),
        [
            ('backoff: "5s", initialDelay: "1s"', "The delay is given twice"),
            ('initialDelay: "10s", maxDelay: "1s"', "`maxDelay` is less than the first delay, 10s."),
            ('backoff: "8d"', "a duration of at most 7d, not `8d`"),
            ("maxRetries: -1", "`maxRetries` must be at least 0, not -1."),
        ],
    )
    def test_a_retry_policy_that_contradicts_itself(self, policy: str, said: str) -> None:
        [only] = problems(resource(f"steps: [{{ name: a, agent: x, action: do, retryPolicy: {{ {policy} }} }}]"))
        assert said in only

    def test_only_a_gate_or_a_workflow_may_take_longer_than_a_week(self) -> None:
        [only] = problems(resource("steps: [{ name: a, agent: x, action: do, timeout: 8d }]"))
        assert "must be at most 7d; only a gate or a workflow may wait longer" in only
        assert workflow('steps: [{ name: a, agent: x, action: "GATE: ok?", timeout: 365d }]')

    def test_an_agent_that_nobody_registered(self) -> None:
        known = Registry()
        known.register(HandlerSpec(name="data-pipeline", function=print, kind="agent"))
        spec = """
            steps:
              - { name: a, agent: data-pipelin, action: do }
              - { name: b, agent: nobody, action: "GATE: ok?" }
            compensation: [{ step: a, action: undo, agent: zzz }]
        """
        assert [str(one) for one in check(resource(spec), known).problems] == [
            "flow.yaml:8:25: There is no agent `data-pipelin`. Did you mean `data-pipeline`?",
            "flow.yaml:10:50: There is no agent `zzz`. " + LOAD_IT,
        ]

    @pytest.mark.parametrize("missing", ["description", "domainsInvolved", "steps"])
    def test_what_a_spec_must_have(self, missing: str) -> None:
        text = resource("steps: [{ name: a, agent: x, action: do }]")
        lines = [line for line in text.splitlines() if not line.strip().startswith(f"{missing}:")]
        assert f"`{missing}` is missing." in problems("\n".join(lines))[0]

    @pytest.mark.parametrize("text", ["[]", "3", "kind: Workflow\nspec: 3", "spec: { steps: 3 }", "metadata: []"])
    def test_anything_else_is_refused_with_words(self, text: str) -> None:
        assert problems(text)

    def test_thousands_of_mistakes_are_a_readable_list_and_quickly(self) -> None:
        steps = "\n".join(f"  - {{ name: s{n}, agnt: x, action: do, dependsOn: [t{n}] }}" for n in range(5_000))
        started = time.thread_time()
        found = problems(resource("steps:\n" + steps))
        assert len(found) == 51
        assert time.thread_time() - started < 10

    @pytest.mark.parametrize("count", [1_000, in_proof(10_000)])
    def test_many_steps_are_read_quickly(self, count: int) -> None:
        steps = "\n".join(
            f"  - {{ name: s{n}, agent: x, action: do{f', dependsOn: [s{n - 1}]' if n else ''} }}" for n in range(count)
        )
        started = time.thread_time()
        assert len(workflow("steps:\n" + steps).steps) == count
        assert time.thread_time() - started < 20


class TestAdvice:
    """Section 6, and keys that change nothing."""

    GOOD = "timeout: 1h\nsteps: [{ name: a, agent: x, action: do, timeout: 1m }]"

    def test_a_good_workflow_needs_none(self) -> None:
        assert warnings(self.GOOD) == []

    def test_set_timeouts_for_everything(self) -> None:
        """Guideline 1."""
        found = warnings("""
            steps:
              - { name: a, agent: x, action: do }
              - { name: b, agent: x, action: "GATE: ok?", dependsOn: [a] }
        """)
        assert [line.split(": ", 1)[1] for line in found] == [
            'The workflow has no `timeout`: a run that is stuck stays so forever. Add one, for example `timeout: "30m"`.',  # noqa: E501
            "Step `a` has no `timeout` of its own; each attempt may take 5m. Add the time it should need at most.",
            'The gate `b` has no `timeout`: it may wait forever. Add one, for example `timeout: "24h"`.',
        ]

    def test_a_timeout_that_never_comes(self) -> None:
        """Section 3.4: the workflow's overrides any step's."""
        [only] = warnings("timeout: 1m\nsteps: [{ name: a, agent: x, action: do, timeout: 1m }]")
        assert "never comes: the workflow as a whole has 1m" in only

    def test_use_skip_for_non_critical_steps(self) -> None:
        """Guideline 2."""
        notify = "{ name: notify, agent: x, action: Notify the team, dependsOn: [a], timeout: 1m%s }"
        spec = "timeout: 1h\nsteps: [{ name: a, agent: x, action: do, timeout: 1m }, %s]"
        [only] = warnings(spec % (notify % ""))
        assert "When the notification `notify` fails, the whole workflow does." in only
        assert warnings(spec % (notify % ", onFailure: skip")) == []

    def test_a_failure_path_that_leads_nowhere_or_is_never_taken(self) -> None:
        """Guidelines 3 and 4."""
        [only] = warnings(f"failurePolicy: compensate\n{self.GOOD}")
        assert "`compensate` has nothing to take back" in only
        [only] = warnings(f"{self.GOOD}\ncompensation: [{{ step: a, action: undo, agent: x }}]")
        assert "`compensation` never runs" in only

    def test_guideline_2_holds_for_everything_that_only_tells_people(self) -> None:
        spec = "timeout: 1h\nsteps: [{ name: a, agent: x, action: Email the customer, timeout: 1m%s }]"
        [only] = warnings(spec % "")
        assert "`a` fails, the whole workflow does" in only
        assert warnings(spec % ", onFailure: skip") == []

    def test_guideline_3_a_compensation_of_a_step_that_only_reads(self) -> None:
        spec = """
            timeout: 1h
            failurePolicy: compensate
            steps: [{ name: a, agent: x, action: %s, timeout: 1m }]
            compensation: [{ step: a, agent: x, action: undo }]
        """
        [only] = warnings(spec % "Analyse the churn risk")
        assert "seems to read only" in only
        assert warnings(spec % "Create the account") == []

    def test_guideline_7_an_irreversible_action_needs_a_gate_before_it(self) -> None:
        spec = """
            timeout: 30h
            steps:
              - { name: sign, agent: x, action: "GATE: May it go?", timeout: 24h }
              - { name: wipe, agent: x, action: Permanently delete the records, timeout: 1m%s }
        """
        [only] = warnings(spec % "")
        assert "`wipe` seems irreversible and no gate" in only
        assert warnings(spec % ", dependsOn: [sign]") == []

    def test_keep_workflows_under_ten_steps(self) -> None:
        """Guideline 5; and the fan-out pattern: few side by side."""
        chain = ", ".join(
            f"{{ name: s{n}, agent: x, action: do, timeout: 1m, dependsOn: [{f's{n - 1}' if n else ''}] }}"
            for n in range(10)
        )
        [only] = warnings(f"timeout: 1h\nsteps: [{chain}]")
        assert "10 steps are hard to follow" in only
        beside = ", ".join(f"{{ name: s{n}, agent: x, action: do, timeout: 1m }}" for n in range(6))
        [only] = warnings(f"timeout: 1h\nsteps: [{beside}]")
        assert "6 steps start at once" in only

    def test_gates_must_be_gates(self) -> None:
        """Guideline 7."""
        spec = "timeout: 48h\nsteps: [{ name: a, agent: x, action: '%s', timeout: 24h%s }]"
        [only] = warnings(spec % ("gate: ok?", ""))
        assert "only `GATE:` in capitals makes one" in only
        [only] = warnings(spec % ("GATE:", ""))
        assert "does not say what is to be approved" in only
        [only] = warnings(spec % ("GATE: ok?", ", retryPolicy: { maxRetries: 2 }"))
        assert "`retryPolicy` has no effect on a gate" in only

    def test_a_status_is_accepted_and_ignored(self) -> None:
        text = resource(self.GOOD) + "status: { state: executing, completedSteps: [a] }\n"
        report = check(text)
        assert accepted(report) == workflow(self.GOOD)
        assert ["`status` is written by the program that runs" in str(one) for one in report.warnings] == [True]

    def test_a_key_of_ones_own_below_the_top_has_no_effect(self) -> None:
        report = check(resource(self.GOOD.replace("timeout: 1m", "timeout: 1m, sla: gold")))
        assert accepted(report) == workflow(self.GOOD)
        assert "There is no key `sla` here; it has no effect." in str(report.warnings[0])


class TestRecognition:
    @pytest.mark.parametrize("name", ["ioa", "ioa_content_review", "ioa_deployment"])
    def test_the_examples_are_recognised_and_fit_the_published_schema(self, name: str) -> None:
        data = parse_document((EXAMPLES / f"{name}.yaml").read_text()).data
        assert FRONT.recognises(data)
        assert errors_of(data, dict(dialect("ioa").schema)) == []

    @pytest.mark.parametrize(
        "data",
        [None, [], 3, {}, {"workflow": "w", "steps": []}, {"kind": "Workflow"}, {"apiVersion": 3, "kind": "Pod"}],
    )
    def test_what_is_not_ours(self, data: object) -> None:
        assert not FRONT.recognises(data)

    def test_a_resource_of_another_version_is_ours_to_refuse(self) -> None:
        assert FRONT.recognises({"apiVersion": "ioa.dev/v0.1", "kind": "Workflow"})

    def test_the_registry_finds_it_by_content(self) -> None:
        assert recognise(parse_document(resource("steps: []")).data) == "ioa"

    def test_the_published_schema_is_fresh(self) -> None:
        """To renew it: python -m stepkeep.dialects.format ioa > src/stepkeep/dialects/ioa/schema.json"""
        assert dialect("ioa").schema == json.loads(FRONT.schema_text())

    @pytest.mark.parametrize(
        "change",
        [("kind: Workflow", "kind: Agent"), ("agent: x", "agent: 3"), ("description:", "descr:")],
    )
    def test_the_schema_refuses_what_the_front_end_refuses_by_shape(self, change: tuple[str, str]) -> None:
        text = resource("steps: [{ name: a, agent: x, action: do, timeout: 1m }]")
        data = parse_document(text).data
        assert errors_of(data, dict(dialect("ioa").schema)) == []
        broken = parse_document(text.replace(*change)).data
        assert errors_of(broken, dict(dialect("ioa").schema)) != []
        assert problems(text.replace(*change)) != []


WORDS = st.sampled_from(
    [
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "steps",
        "name",
        "agent",
        "action",
        "dependsOn",
        "timeout",
        "retryPolicy",
        "maxRetries",
        "backoff",
        "initialDelay",
        "onFailure",
        "compensation",
        "step",
        "trigger",
        "status",
        "domainsInvolved",
        "failurePolicy",
        "owner",
        "labels",
        "version",
        "ioa.dev/v0.2",
        "Workflow",
        "a",
        "b",
        "5m",
        "GATE:",
        "skip",
        "compensate",
        "exponential",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS | st.text("aB1-_{}$ \u00e9\u2603", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=20,
)


@drawn(
    50,
    300,
    spec=VALUES,
    metadata=VALUES,
    steps=st.lists(st.dictionaries(WORDS, VALUES, max_size=7) | VALUES, max_size=4),
)
def test_nothing_that_can_be_written_ends_in_a_traceback(spec: object, metadata: object, steps: list[object]) -> None:
    inner = {**spec, "steps": steps} if isinstance(spec, dict) else spec
    data = {"apiVersion": "ioa.dev/v0.2", "kind": "Workflow", "metadata": metadata, "spec": inner}
    document = parse_document(json.dumps(data), file="any.json")
    report = FRONT.examine(document.data, document)
    assert (report.definition is None) == bool(report.problems)


def test_3_1_a_step_may_have_schemas_for_its_inputs_and_its_output() -> None:
    made = step(", inputSchema: { type: object }, outputSchema: { required: [score] }")
    assert (made.input_schema, made.output_schema) == ({"type": "object"}, {"required": ["score"]})
    wrong = resource("steps: [{ name: a, agent: x, action: do, outputSchema: { type: thing } }]")
    assert "no usable JSON Schema" in " ".join(problems(wrong))
    gate = resource('steps: [{ name: a, agent: x, action: "GATE: go?", inputSchema: {} }]')
    assert "means nothing for a gate" in " ".join(problems(gate))
