"""The WorkflowV1 format: what is written becomes, with the seed's defaults, and everything wrong is said at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import strategies as st
from msgspec import UNSET
from tests.seeds.action_stage import Doc, action, built, check, compensated, document, sequence, side_effect
from tests.suites import drawn, in_proof

from stepkeep.definition.python.handlers import load_app
from stepkeep.definition.python.registry import HandlerSpec, Registry, default_registry
from stepkeep.definition.text.document import parse_document
from stepkeep.dialects import registry
from stepkeep.dialects.action.front import FRONT
from stepkeep.dialects.action.written import Action, ActionRetryPolicy, Capability, Compensation, Safety, WorkflowV1
from stepkeep.kernel.definition import (
    UNDO_RETRY,
    Backoff,
    CompensateWhen,
    Completion,
    Effect,
    Handler,
    HookFailure,
    Incompatible,
    OnDeadline,
    Retry,
    decode_definition,
    encode_definition,
)
from stepkeep.kernel.machine.states import RETRIED_BY_DEFAULT, Category, ErrorClass, OnFailure, StepState

ACTION = registry.dialect("action")

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "action.yaml"
MS = 1_000


def problems(data: Any, handlers: Registry | None = None) -> list[str]:
    """`PATH: what is wrong` for each problem, in the order of the text."""
    return [f"{problem.path}: {problem.message}" for problem in check(data, handlers).problems]


def only(data: Any, handlers: Registry | None = None) -> str:
    [problem] = problems(data, handlers)
    return problem


def first(**keys: Any) -> Doc:
    """A document whose only action has these keys."""
    return document(action("a", 1, **keys))


# -- recognition -----------------------------------------------------------------------------------------------------
def test_a_document_with_a_workflow_id_and_actions_is_recognised() -> None:
    assert registry.recognise(document(*sequence("a"))) == "action"
    for other in ({"workflow": "x", "steps": []}, {"workflowId": "x"}, {"actions": []}, [], None, "actions", 3):
        assert not FRONT.recognises(other)


def test_the_registry_loads_the_example_and_finds_it_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    load_app(str(ROOT / "examples" / "action_handlers.py"))
    report = registry.check_file(EXAMPLE, default_registry)
    assert report.problems == ()
    assert [warning.message for warning in report.warnings] == [
        "Action `notify` has a side effect that cannot be compensated: a rollback stays partial.",
        "Action `notify` cannot be taken back and no gate approves it.",
    ]
    assert report.definition is not None
    assert report.definition.dialect == "action"
    assert decode_definition(encode_definition(report.definition)) == report.definition


# -- defaults --------------------------------------------------------------------------------------------------------
def test_every_default_of_the_seed_is_spelled_out() -> None:
    definition = built(first())
    [step] = definition.steps
    assert (definition.name, definition.version, definition.dialect) == ("flow", 1, "action")
    assert definition.on_failure is OnFailure.ABORT, "§1.3 fail-fast"
    assert definition.compensate_always, "§4"
    assert definition.hook_failure is HookFailure.CONTINUE, "§4 best effort"
    assert definition.timeout is None
    assert step.retry == Retry(
        max_attempts=3,
        backoff=Backoff.EXPONENTIAL,
        initial=1000 * MS,
        factor=2.0,
        max=30_000 * MS,
        jitter=0.0,
        caps_asked=True,
        on=tuple(sorted(RETRIED_BY_DEFAULT)),
    ), "§3.1"
    assert step.timeout == 300_000 * MS, "§3.2"
    assert (step.completion, step.completion_deadline, step.hold) == (Completion.AUTO, None, None)
    assert (step.on_failure, step.effect, step.undo) == (OnFailure.ABORT, Effect.READ, None)
    assert step.executor == Handler(name="a:do")
    assert step.inputs == "${{ input }}"


def test_what_is_written_takes_the_place_of_the_defaults() -> None:
    policy = {"maxAttempts": 10, "initialBackoffMs": 5, "backoffMultiplier": 3, "maxBackoffMs": 90_000}
    keys = {"retryPolicy": policy, "timeoutMs": 7, "inputs": {"x": 1}, "completionMode": "ManualOnly"}
    [step] = built(first(**keys, completionDeadlineMs=60_000)).steps
    assert (step.retry.max_attempts, step.retry.initial, step.retry.factor, step.retry.max) == (
        10,
        5 * MS,
        3.0,
        90_000 * MS,
    )
    assert (step.timeout, step.inputs) == (7 * MS, {"x": 1})
    assert (step.completion, step.completion_deadline) == (Completion.MANUAL, 60_000 * MS)


@pytest.mark.parametrize(
    ("classes", "categories"),
    [
        ([], set()),
        (["timeout"], {Category.TIMEOUT}),
        (["rate_limit"], {Category.TRANSIENT}),
        (["5xx"], {Category.TRANSIENT, Category.EXTERNAL}),
        (["transport"], {Category.TRANSIENT, Category.EXTERNAL}),
        (["timeout", "timeout"], {Category.TIMEOUT}),
    ],
)
def test_3_1_error_classes_become_categories_and_unknown_is_always_among_them(
    classes: list[str], categories: set[Category]
) -> None:
    [step] = built(first(retryPolicy={"retryableErrors": classes})).steps
    assert set(step.retry.on) == categories | {Category.UNKNOWN, Category.AGENT}


@pytest.mark.parametrize(
    ("listed", "classes"),
    [
        ([], UNSET),
        (["timeout", "unknown"], UNSET),
        (["rate_limit"], (ErrorClass.RATE_LIMIT,)),
        (["transport", "rate_limit"], (ErrorClass.RATE_LIMIT, ErrorClass.TRANSPORT)),
        (["transport", "5xx", "rate_limit"], UNSET),
    ],
)
def test_3_1_listed_error_classes_are_kept_unless_the_categories_say_it_all(listed: list[str], classes: Any) -> None:
    [step] = built(first(retryPolicy={"retryableErrors": listed})).steps
    assert step.retry.classes == classes


def test_what_a_handlers_author_said_about_retries_does_not_change_the_seeds_defaults() -> None:
    handlers = Registry()
    generous = HandlerSpec(name="a:do", function=print, retry=Retry(max_attempts=9), timeout=1, queue="gpu")
    handlers.register(generous)
    report = check(first(), handlers)
    assert report.definition is not None
    [step] = report.definition.steps
    assert (step.retry.max_attempts, step.timeout, step.queue) == (3, 300_000 * MS, "gpu")


# -- §1 the graph ----------------------------------------------------------------------------------------------------
def test_1_1_in_a_sequence_every_ending_of_the_previous_action_lets_the_next_one_go_on() -> None:
    _, second, third = built(document(*sequence("a", "b", "c"))).steps
    assert [(edge.step, set(edge.allow)) for edge in third.depends_on] == [
        ("b", {StepState.SUCCEEDED, StepState.FAILED, StepState.CANCELLED, StepState.SKIPPED})
    ]
    assert [edge.step for edge in second.depends_on] == ["a"]


def test_1_2_an_edge_is_satisfied_by_success_alone() -> None:
    a, b, c = built(document(action("a", 1), action("b", 2), action("c", 3, "a", "b"))).steps
    assert (a.depends_on, b.depends_on) == ((), ())
    assert [(edge.step, edge.allow) for edge in c.depends_on] == [
        ("a", (StepState.SUCCEEDED,)),
        ("b", (StepState.SUCCEEDED,)),
    ]


@pytest.mark.parametrize("keys", [{"edges": []}, {}], ids=["edges", "dependsOn"])
def test_1_2_an_empty_graph_is_a_graph(keys: Doc) -> None:
    actions = [action("a", 1, **({} if keys else {"dependsOn": []})), action("b", 2)]
    assert [step.depends_on for step in built(document(*actions, **keys)).steps] == [(), ()]


def test_1_1_orders_are_contiguous_from_one_and_sorted() -> None:
    for orders in ([2], [1, 3], [2, 1], [1, 1], [0, 1]):
        actions = [action(f"s{place}", order) for place, order in enumerate(orders)]
        assert any("order" in each for each in problems(document(*actions))), orders


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (document(action("a", 1, "b"), action("b", 2, "a")), "These actions wait for each other: a → b → a."),
        (document(action("a", 1, "a")), "Action `a` depends on itself."),
        (document(action("a", 1), action("b", 2, "aa")), "There is no action `aa` to depend on."),
        (document(action("a", 1), action("b", 2, "a", "a")), "Action `b` already depends on `a`."),
        (document(action("a", 1), action("a", 2)), "Another action is already named `a`."),
        (
            document(*sequence("a", "b"), edges=[{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]),
            "These actions wait for each other: a → b → a.",
        ),
        (document(action("a", 1), edges=[{"from": "x", "to": "a"}]), "There is no action `x` to depend on."),
        (document(action("a", 1), edges=[{"from": "a", "to": "x"}]), "There is no action `x` to lead to."),
        (
            document(action("a", 1), action("b", 2, "a"), edges=[]),
            "The graph is written twice: in `edges` and in `dependsOn`.",
        ),
    ],
)
def test_what_is_no_graph_is_refused_in_this_dialects_words(data: Doc, said: str) -> None:
    report = check(data)
    assert said in [problem.message for problem in report.problems]
    assert all(problem.line > 1 for problem in report.problems), "each points into the text"


# -- tiers -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("workflow", "override", "held", "manual"),
    [
        ("Auto", None, False, False),
        ("Assisted", None, False, False),
        ("HumanApprove", None, True, False),
        ("ManualOnly", None, False, True),
        ("Auto", "HumanApprove", True, False),
        ("Assisted", "ManualOnly", False, True),
        ("HumanApprove", "HumanApprove", True, False),
    ],
)
def test_tiers_hold_for_approval_or_complete_by_hand(
    workflow: str, override: str | None, held: bool, manual: bool
) -> None:
    keys = {} if override is None else {"executionTierOverride": override}
    [step] = built(document(action("a", 1, **keys), executionTier=workflow)).steps
    assert (step.hold is not None, step.completion is Completion.MANUAL) == (held, manual)


def test_a_capability_may_ask_for_a_stricter_tier() -> None:
    safety = {"idempotent": True, "requiresApproval": True}
    [step] = built(document(*sequence("a"), capabilities={"a:do": {"safety": safety}})).steps
    assert step.hold is not None
    safety = {"idempotent": True, "requiresApproval": True, "defaultTier": "ManualOnly"}
    [step] = built(document(*sequence("a"), capabilities={"a:do": {"safety": safety}})).steps
    assert (step.hold is not None, step.completion) == (True, Completion.MANUAL), "the stricter tier drops nothing"
    safety = {"idempotent": True, "defaultTier": "ManualOnly"}
    [step] = built(document(*sequence("a"), capabilities={"a:do": {"safety": safety}})).steps
    assert step.completion is Completion.MANUAL


@pytest.mark.parametrize(
    ("workflow", "override"), [("Assisted", "Auto"), ("HumanApprove", "Assisted"), ("ManualOnly", "HumanApprove")]
)
def test_an_override_may_only_be_stricter(workflow: str, override: str) -> None:
    data = document(action("a", 1, executionTierOverride=override), executionTier=workflow)
    assert "executionTierOverride" in only(data).partition(":")[0]


def test_an_approval_that_nobody_gives_ends_when_its_deadline_passes() -> None:
    [step] = built(first(executionTierOverride="HumanApprove", approvalDeadlineMs=5)).steps
    assert step.hold is not None
    assert step.hold.deadline == 5 * MS


CHAIN = [{"user": "bea", "afterHours": 2}, {"user": "cyd", "afterHours": 6.5}]
ESCALATES = {"executionTierOverride": "HumanApprove", "approvalAssignee": "ann", "approvalEscalation": CHAIN}


def test_an_escalation_chain_becomes_levels_and_expires_four_hours_after_its_last_step() -> None:
    """ApprovalV1: `[{user, afterHours}]` from the request on, expiry 4 h after the last step."""
    [step] = built(first(**ESCALATES)).steps
    hold, hour = step.hold, 3_600_000 * MS
    assert hold is not None
    assert (hold.approvers, hold.deadline, hold.on_deadline) == (("ann",), 2 * hour, OnDeadline.ESCALATE)
    told = [(level.approvers, level.deadline) for level in hold.levels[1:]]
    assert told == [(("bea",), round(4.5 * hour)), (("cyd",), 4 * hour)]


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        (ESCALATES | {"approvalDeadlineMs": 5}, "approvalDeadlineMs"),
        ({key: ESCALATES[key] for key in ("executionTierOverride", "approvalEscalation")}, "approvalEscalation"),
        (ESCALATES | {"approvalEscalation": list(reversed(CHAIN))}, "afterHours"),
        ({"approvalAssignee": "ann"}, "approvalAssignee"),
        ({"completionDeadlineMs": 5}, "completionDeadlineMs"),
        ({"approvalDeadlineMs": 5}, "approvalDeadlineMs"),
        ({"executionTierOverride": "ManualOnly", "completionMode": "Auto"}, "completionMode"),
        ({"compensation": {}}, "compensation"),
    ],
)
def test_keys_that_mean_nothing_where_they_stand_are_refused(keys: Doc, key: str) -> None:
    assert key in only(first(**keys)).partition(":")[0]


# -- operations and capabilities -------------------------------------------------------------------------------------
def test_a_capability_alone_names_the_operation() -> None:
    bare = {"actionId": "a", "order": 1, "portFamily": "Payroll", "capability": "payslip:write"}
    [step] = built(document(bare, schemaVersion=2)).steps
    assert step.executor == Handler(name="payslip:write")


def test_schema_version_2_asks_for_a_capability() -> None:
    assert "`capability` is missing" in only(document(*sequence("a"), schemaVersion=2))


def test_operation_and_capability_must_be_the_same() -> None:
    assert "must be the same" in only(first(capability="b:do"))


def test_an_action_without_either_does_not_say_what_to_do() -> None:
    bare = {"actionId": "a", "order": 1, "portFamily": "Payroll"}
    assert "does not say what to do" in only(document(bare))


@pytest.mark.parametrize("operation", ["invoice", "a:b:c", ":b", "a:", "a b:c", "", "1:2", "ä:b"])
def test_an_operation_is_an_entity_and_a_verb(operation: str) -> None:
    assert any("operation" in each for each in problems(first(operation=operation)))


def test_4_a_compensation_comes_from_the_capability_and_the_action_fills_it() -> None:
    schema = {"type": "object", "required": ["id"]}
    capability = compensated("a")["a:do"] | {"compensationInputSchema": schema}
    given_input = {"id": '${{ steps["a"].output.id }}'}
    hook = {"compensationInput": given_input, "timeoutMs": 60_000}
    [step] = built(document(action("a", 1, compensation=hook), capabilities={"a:do": capability})).steps
    assert step.effect is Effect.WRITE
    assert step.compensate_when is CompensateWhen.SUCCEEDED
    assert step.undo is not None
    assert step.undo.executor == Handler(name="a:undo")
    assert (step.undo.inputs, step.undo.input_schema) == (given_input, schema)
    assert (step.undo.timeout, step.undo.retry) == (60_000 * MS, UNDO_RETRY)
    assert (UNDO_RETRY.max_attempts, UNDO_RETRY.initial, UNDO_RETRY.factor, UNDO_RETRY.max) == (
        2,
        1000 * MS,
        2.0,
        10_000 * MS,
    )


def test_4_without_an_input_of_its_own_a_hook_is_given_what_the_action_returned() -> None:
    [step] = built(document(*sequence("a"), capabilities=compensated("a"))).steps
    assert step.undo is not None
    assert step.undo.inputs == '${{ steps["a"].output }}'
    assert step.undo.timeout == 300_000 * MS


def test_4_a_side_effect_is_what_the_capability_says() -> None:
    steps = built(document(*sequence("a", "b"), capabilities={"a:do": side_effect()})).steps
    assert [step.effect for step in steps] == [Effect.WRITE, Effect.READ]


SAFE = {"idempotent": True, "supportsCompensation": True}


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ({"safety": SAFE, "compensationOperation": "a:undo"}, "`compensationOperation` needs"),
        (
            {"safety": SAFE | {"supportsCompensation": False}, "compensationInputSchema": {}},
            "`compensationInputSchema`",
        ),
        ({"safety": SAFE}, "there is no compensationOperation to call"),
        (
            {"safety": {"idempotent": True}} | {"compensationOperation": "a:undo", "compensationInputSchema": {}},
            "must be",
        ),
        (
            {"safety": SAFE, "compensationOperation": "a:undo", "compensationInputSchema": {}, "sideEffecting": False},
            "nothing to take back",
        ),
        (
            {"safety": SAFE, "compensationOperation": "a:undo", "compensationInputSchema": {"type": "thing"}},
            "no usable JSON Schema",
        ),
        (
            {"safety": SAFE, "compensationOperation": "a:undo", "compensationInputSchema": {"$ref": "file:///etc/x"}},
            "no usable JSON Schema",
        ),
        ({"safety": {}}, "`idempotent` is missing"),
        ({}, "`safety` is missing"),
    ],
)
def test_a_capability_that_contradicts_itself_is_refused(capability: Doc, said: str) -> None:
    assert said in only(document(*sequence("a"), capabilities={"a:do": capability}))


def test_a_capability_that_an_action_names_must_be_declared_where_any_are() -> None:
    data = document(action("a", 1, capability="a:do"), capabilities={"a:doo": {"safety": {"idempotent": True}}})
    [problem] = check(data).problems
    assert "no capability `a:do`" in problem.message
    assert problem.hint == "Did you mean `a:doo`?"


def test_a_capability_is_named_like_an_operation() -> None:
    assert "cannot be a capability" in only(document(*sequence("a"), capabilities={"a.do": side_effect()}))


# -- expressions and handlers ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "place"),
    [
        (document(action("a", 1, inputs={"x": "${{ nothing }}"})), "inputs"),
        (document(action("a", 1, inputs='${{ steps["b"].output }}'), action("b", 2)), "inputs"),
        (document(action("a", 1, inputs='${{ steps["a"].output }}')), "inputs"),
        (
            document(
                action("a", 1, compensation={"compensationInput": {"x": '${{ steps["b"].output }}'}}),
                action("b", 2),
                capabilities=compensated("a"),
            ),
            "compensationInput",
        ),
    ],
)
def test_an_expression_that_cannot_be_evaluated_is_refused_where_it_stands(data: Doc, place: str) -> None:
    assert place in only(data).partition(":")[0]


def test_a_handler_that_is_not_registered_is_a_slip_at_its_operation() -> None:
    handlers = Registry()
    handlers.register(HandlerSpec(name="a:did", function=print))
    data = document(*sequence("a"), capabilities=compensated("a"))
    found = check(data, handlers).problems
    assert [problem.message for problem in found] == [
        "There is no handler `a:do`.",
        "There is no handler `a:undo`.",
    ]
    assert "operation" in found[0].path
    assert "compensationOperation" in found[1].path
    assert found[0].hint == "Did you mean `a:did`?"


def test_inputs_that_a_handler_does_not_take_are_refused() -> None:
    handlers = Registry()
    handlers.register(HandlerSpec(name="a:do", function=lambda invoice: None))
    found = problems(first(inputs={"invoce": 1}), handlers)
    assert any("no parameter `invoce`" in each for each in found)
    assert any("needs `invoice`" in each for each in found)


# -- all at once, never a traceback ----------------------------------------------------------------------------------
def test_everything_wrong_is_said_at_once_with_line_and_column() -> None:
    text = (
        '{"schemaVersion": 3,\n "workflowId": "a b",\n "workspaceId": "w", "name": "n", "version": 1,\n'
        ' "active": false,\n "executionTier": "auto",\n'
        ' "actions": [{"actionId": "a", "order": 2, "portFamily": "Nope",\n'
        '   "operation": "x:y", "retryPolicy": {"maxAttempts": 11, "retryableErrors": ["validation"]},\n'
        '   "parameters": {}, "dependsOn": ["b"]}]}'
    )
    parsed = parse_document(text, file="flow.json", syntax="json")
    found = FRONT.examine(parsed.data, parsed).problems
    places = [(problem.line, problem.column) for problem in found]
    assert places == sorted(places)
    said = "\n".join(str(problem) for problem in found)
    for part in (
        "flow.json:1:19: `schemaVersion` must be 1 or 2, not 3.",
        "flow.json:2:16: `workflowId` cannot be `a b`.",
        "flow.json:5:19: `executionTier` must be",
        "flow.json:6:41: `order` is 2 here",
        "`maxAttempts` must be at most 10, not 11.",
        "cannot be `validation`: it is never retried",
        "There is no key `parameters` here. Write `inputs`",
        "There is no action `b` to depend on.",
    ):
        assert part in said


@pytest.mark.parametrize("data", [None, [], "x", 3, {}, {"workflowId": None, "actions": None}, {"actions": {}}])
def test_what_is_no_document_at_all_is_refused_in_words(data: Any) -> None:
    report = check(data)
    assert report.definition is None
    assert report.problems


WORDS = st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(WORDS, max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(WORDS, max_size=5), inner, max_size=3),
    max_leaves=8,
)
WHOLE = document(
    action("a", 1, compensation={"compensationInput": {}}, retryPolicy={"maxAttempts": 2}),
    action("b", 2, executionTierOverride="HumanApprove", capability="b:do"),
    edges=[{"from": "a", "to": "b"}],
    capabilities=compensated("a", "b"),
)


def _ways(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [way, *(found for key, value in inner for found in _ways(value, (*way, key)))]


@drawn(33, 200, st.sampled_from(_ways(WHOLE)[1:]), JSON)
def test_no_value_anywhere_ends_in_a_traceback(way: tuple[Any, ...], value: Any) -> None:
    data = json.loads(json.dumps(WHOLE))
    parent = data
    for part in way[:-1]:
        parent = parent[part]
    parent[way[-1]] = value
    report = check(data)
    assert (report.definition is None) == bool(report.problems)


def test_the_bounds_of_all_definitions_hold_here_too() -> None:
    many = document(*(action(f"s{number}", number) for number in range(1, 10_002)))
    assert any("at most 10000 entries" in each or "10001" in each for each in problems(many))


@pytest.mark.parametrize("count", [1_000, in_proof(10_000)])
def test_a_large_workflow_is_examined(count: int) -> None:
    data = document(*(action(f"s{number}", number) for number in range(1, count + 1)))
    parsed = parse_document(json.dumps(data), file="flow.json", syntax="json")
    report = FRONT.examine(parsed.data, parsed)
    assert report.definition is not None


@pytest.mark.parametrize("key", ["inputSchema", "outputSchema"])
def test_a_capability_may_have_a_schema_for_what_its_operation_is_given_and_returns(key: str) -> None:
    def held(schema: Doc) -> Doc:
        return document(*sequence("a"), capabilities={"a:do": {"safety": {"idempotent": True}, key: schema}})

    [step] = built(held({"type": "object"})).steps
    assert [step.input_schema, step.output_schema].count({"type": "object"}) == 1
    assert "no usable JSON Schema" in " ".join(problems(held({"type": "thing"})))


# -- advice ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (first(executionTierOverride="HumanApprove"), "may wait for its approval forever"),
        (first(completionMode="ManualOnly"), "may wait for its manual completion forever"),
        (
            document(*sequence("a"), capabilities={"a:do": side_effect()}),
            "cannot be taken back and no gate approves it",
        ),
        (document(*sequence("a"), capabilities={"a:do": side_effect()}), "cannot be compensated"),
        (document(*sequence("a"), capabilities={"a:do": {"safety": {"idempotent": False}}}), "is not idempotent"),
        (first(), "There is no `capabilities` section"),
    ],
)
def test_what_is_sound_and_may_hurt_is_advised_against(data: Doc, said: str) -> None:
    report = check(data)
    assert report.definition is not None
    assert said in " ".join(warning.message for warning in report.warnings)


def test_a_careful_document_needs_no_advice() -> None:
    assert check(document(*sequence("a"), capabilities=compensated("a"))).warnings == ()


# -- the published schema --------------------------------------------------------------------------------------------
def test_the_published_schema_is_what_the_models_say() -> None:
    assert json.loads(FRONT.schema_text()) == ACTION.schema, "run python -m stepkeep.dialects.format action"


def test_the_example_and_sound_documents_fit_the_published_schema() -> None:
    validator = jsonschema_rs.validator_for(dict(ACTION.schema), offline=True)
    example = parse_document(EXAMPLE.read_text(encoding="utf-8"), file="action.yaml").data
    for data in (example, document(*sequence("a", "b")), WHOLE):
        assert [error.message for error in validator.iter_errors(data)] == []


@pytest.mark.parametrize(
    "keys", [{"schemaVersion": 3}, {"actions": []}, {"executionTier": "Free"}, {"extra": 1}, {"active": "yes"}]
)
def test_the_published_schema_refuses_what_the_front_end_refuses(keys: Doc) -> None:
    data = document(*sequence("a")) | keys
    assert not jsonschema_rs.validator_for(dict(ACTION.schema), offline=True).is_valid(data)
    assert check(data).problems


# -- the documentation -----------------------------------------------------------------------------------------------
def test_the_page_names_every_key_every_default_every_arrow_and_every_extension() -> None:
    page = (ROOT / "docs" / "dialects" / "action.md").read_text(encoding="utf-8")
    for model in (WorkflowV1, Action, ActionRetryPolicy, Compensation, Capability, Safety):
        for field in model.model_fields.values():
            assert f"`{field.alias}`" in page, field.alias
    judged = ACTION.judged
    for default in judged.defaults:
        assert f"| {default.question} | {default.answer} | {default.cites} |" in page
    for view in judged.views:
        for arrow in view.arrows:
            assert f"| {arrow.source or '(new)'} | {arrow.target} | `{arrow.trigger}` | {arrow.cites} |" in page
    for invariant in judged.invariants:
        assert f"| {invariant.name} | {invariant.cites} |" in page


# -- separation of duties ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("constraint", "terms"),
    [
        ({"kind": "MakerChecker"}, {"excluded": ("requester",)}),
        ({"kind": "HazardousZoneNoSelfApproval"}, {"excluded": ("requester",)}),
        ({"kind": "RemoteEstopRequesterSeparation"}, {"excluded": ("requester",)}),
        ({"kind": "DistinctApprovers", "minimumApprovers": 3}, {"quorum": 3}),
        ({"kind": "SafetyClassifiedZoneDualApproval"}, {"quorum": 2}),
        ({"kind": "SpecialistApproval", "requiredRoles": ["medic"], "rationale": "doses"}, {"roles": ("medic",)}),
    ],
)
def test_a_constraint_becomes_a_term_of_every_approval(constraint: Doc, terms: dict[str, Any]) -> None:
    held = action("a", 1, executionTierOverride="HumanApprove")
    definition = built(document(held, action("b", 2), sodConstraints=[constraint]))
    hold, none = (step.hold for step in definition.steps)
    assert none is None
    assert {name: getattr(hold, name) for name in terms} == terms


def test_incompatible_duties_are_a_duty_of_the_run() -> None:
    constraint = {"kind": "IncompatibleDuties", "dutyKeys": ["a", "b"]}
    definition = built(document(*sequence("a", "b"), sodConstraints=[constraint]))
    assert definition.duties == (Incompatible(steps=("a", "b")),)


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ({"kind": "DistinctApprovers"}, "`DistinctApprovers` needs `minimumApprovers`"),
        ({"kind": "IncompatibleDuties", "dutyKeys": ["a", "c"]}, "There is no action `c`"),
        ({"kind": "IncompatibleDuties", "dutyKeys": ["a"]}, "takes two actions or more"),
        ({"kind": "MakerChecker", "requiredRoles": ["x"]}, "`requiredRoles` means nothing for `MakerChecker`"),
    ],
)
def test_a_constraint_that_says_too_little_or_too_much_is_refused(constraint: Doc, said: str) -> None:
    assert said in only(document(*sequence("a", "b"), sodConstraints=[constraint]))
