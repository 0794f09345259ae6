"""Rules as they are written: expressions, commands and handlers, before and after a step, and of the run."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from stepkeep.definition.native.build import COMMANDS, HANDLER
from stepkeep.definition.native.reader import check_text, load_text
from stepkeep.definition.python.handlers import step
from stepkeep.definition.python.registry import HandlerSpec, Registry
from stepkeep.definition.python.workflow import Workflow
from stepkeep.kernel.definition import (
    SECOND,
    Command,
    Definition,
    Handler,
    Rule,
    decode_definition,
    encode_definition,
)
from stepkeep.kernel.plan import queue_specs

TEXT = """
workflow: shop
timeout: 1h
input: [sku, n]
input_schema: {type: object, properties: {n: {type: integer}}}
output: {total: "${{ steps.pay.output.total }}"}
output_schema: {required: [total]}
rules:
  - "${{ output.total > 0 }}"
  - {command: [make, check], name: tests, timeout: 10m}
  - {uses: shop.audit, with: {total: "${{ output.total }}"}}
steps:
  - name: pay
    uses: shop.pay
    timeout: 1m
    pre:
      - input.n > 0
      - {check: "input.sku != ''", name: has_sku, message: no article}
      - {command: {argv: [git, status, --porcelain], cwd: /srv}, silent: true, timeout: 30s}
      - {uses: shop.in_stock}
    post:
      - {uses: shop.is_paid}
      - {command: [grep, "${{ output.total }}"], with: {token: "${{ secret.BANK }}"}}
    rules: ["${{ output.total > 0 }}"]
"""


def shop() -> Definition:
    return load_text(TEXT, "shop.yaml")


def test_every_kind_of_rule_is_kept_as_it_is_written() -> None:
    definition = shop()
    [pay] = definition.steps
    whole = "${{ input }}"
    assert pay.pre == (
        Rule(expression="input.n > 0"),
        Rule(expression="input.sku != ''", name="has_sku", message="no article"),
        Rule(program=Command(argv=("git", "status", "--porcelain"), cwd="/srv"), silent=True, timeout=30 * SECOND),
        Rule(program=Handler(name="shop.in_stock"), inputs=whole),
    )
    assert pay.rules == (
        Rule(expression="${{ output.total > 0 }}"),
        Rule(program=Handler(name="shop.is_paid"), inputs='${{ steps["pay"].output }}'),
        Rule(program=Command(argv=("grep", "${{ output.total }}")), inputs={"token": "${{ secret.BANK }}"}),
    )
    assert definition.rules[1:] == (
        Rule(program=Command(argv=("make", "check")), name="tests", timeout=600 * SECOND),
        Rule(program=Handler(name="shop.audit"), inputs={"total": "${{ output.total }}"}),
        Rule(name="output_schema", schema={"required": ["total"]}),
    )
    assert definition.input_schema == {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert decode_definition(encode_definition(definition)) == definition


def test_queues_ask_for_what_the_rules_need() -> None:
    first, *_, final = queue_specs(shop())
    assert first is not None
    assert final is not None
    assert first.capabilities == (f"{HANDLER}shop.in_stock", f"{HANDLER}shop.is_paid", COMMANDS, "secret:BANK")
    assert (final.kind, final.capabilities) == ("rules", (f"{HANDLER}shop.audit", COMMANDS))


def test_an_undo_does_not_need_what_the_rules_of_its_step_need() -> None:
    text = "workflow: w\nsteps: [{name: a, uses: x, undo: y, capabilities: [gpu], pre: [{uses: z}]}]"
    main, undo, _ = queue_specs(load_text(text, "w.yaml"))
    assert main is not None
    assert undo is not None
    assert (main.capabilities, undo.capabilities) == (("gpu", "handler:z"), ("gpu",))


def test_a_definition_without_such_rules_keeps_its_digest() -> None:
    definition = load_text("workflow: w\nsteps: [{name: a, uses: x, rules: ['true']}]", "w.yaml")
    encoded = encode_definition(definition)
    for word in (b'"pre"', b'"program"', b'"silent"', b'"schema"', b"check_capabilities", b"input_schema"):
        assert word not in encoded
    assert definition.steps[0].pre is UNSET


def test_python_writes_the_same_rules_and_takes_functions() -> None:
    registry = Registry()

    @step("shop.in_stock", registry=registry)
    def in_stock(sku: str, n: int) -> bool:
        return bool(sku) and n > 0

    @step("shop.is_paid", registry=registry)
    async def is_paid(total: int) -> bool:
        return total > 0

    flow = Workflow(
        "shop",
        timeout="1h",
        input=["sku", "n"],
        input_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
        output={"total": '${{ steps["pay"].output.total }}'},
        output_schema={"required": ["total"]},
        rules=[
            "${{ output.total > 0 }}",
            {"command": ["make", "check"], "name": "tests", "timeout": "10m"},
            {"uses": "shop.audit", "with": {"total": "${{ output.total }}"}},
        ],
        registry=registry,
    )
    flow.step(
        "pay",
        "shop.pay",
        timeout="1m",
        pre=[
            "input.n > 0",
            {"check": "input.sku != ''", "name": "has_sku", "message": "no article"},
            {"command": {"argv": ["git", "status", "--porcelain"], "cwd": "/srv"}, "silent": True, "timeout": "30s"},
            in_stock,
        ],
        post=[
            {"uses": is_paid},
            {"command": ["grep", "${{ output.total }}"], "with": {"token": "${{ secret.BANK }}"}},
        ],
        rules=["${{ output.total > 0 }}"],
    )
    ours, yaml = flow.definition(), shop()
    assert ours.steps == yaml.steps
    assert ours.rules == yaml.rules
    assert ours.input_schema == yaml.input_schema


STEP = "workflow: w\nsteps:\n  - {name: a, uses: x, %s}\n"
WRONG = {
    "pre: [{}]": ("steps[0].pre[0]", "A rule needs one of `check`, `command`, `uses`."),
    "pre: [{message: no}]": ("steps[0].pre[0]", "A rule needs one of `check`, `command`, `uses`."),
    "pre: [{check: 'true', uses: y}]": (
        "steps[0].pre[0].uses",
        "A rule has both `check` and `uses`; it can be only one of them.",
    ),
    "post: [{check: 'true', timeout: 1s}]": (
        "steps[0].post[0].timeout",
        "`timeout` means nothing for a rule with `check`.",
    ),
    "post: [{check: 'true', with: {}}]": ("steps[0].post[0].with", "`with` means nothing for a rule with `check`."),
    "post: [{uses: y, silent: true}]": ("steps[0].post[0].silent", "`silent` means nothing for a rule with `uses`."),
    "post: [{command: make check}]": ("steps[0].post[0].command", "`command`"),
    "post: [{command: ['${{ input.x }}']}]": (
        "steps[0].post[0].command[0]",
        "The program of a `command` cannot be an expression: data must never choose what is run.",
    ),
    "pre: [output.ok]": ("steps[0].pre[0]", "There is no `output` here."),
    "pre: ['steps.a.output.ok']": ("steps[0].pre[0]", "Step `a` reads its own result before there is one."),
    "pre: [{uses: y, with: {v: '${{ output }}'}}]": ("steps[0].pre[0].with.v", "There is no `output` here."),
    "pre: [{uses: y, with: {v: '${{ steps.b.output }}'}}]": ("steps[0].pre[0].with.v", "There is no step `b`."),
    "pre: [{uses: y, nam: z}]": ("steps[0].pre[0].nam", "There is no key `nam` here."),
    "timeout: 5s, pre: [{command: ['true'], timeout: 1m}]": (
        "steps[0].pre[0].timeout",
        "This rule may take longer (1m) than its step.",
    ),
}


@pytest.mark.parametrize("written", WRONG)
def test_a_rule_that_cannot_be_is_refused_at_its_place(written: str) -> None:
    where, said = WRONG[written]
    problems = check_text(STEP % written, "w.yaml").problems
    assert [(one.path, one.message) for one in problems if one.message.startswith(said)][:1] != [], problems
    assert any(one.path == where for one in problems), problems


@pytest.mark.parametrize("kind", ["approval: yes?", "wait: paid", "sleep: 1h"])
@pytest.mark.parametrize("key", ["pre", "post"])
def test_a_gate_or_a_wait_has_no_rules(kind: str, key: str) -> None:
    text = f"workflow: w\nsteps: [{{name: a, {kind}, {key}: ['true']}}]"
    [problem] = check_text(text, "w.yaml").problems
    assert problem.message.startswith(f"`{key}` means nothing for `")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("input_schema", "{type: nonsense}", "This is no usable JSON Schema"),
        ("output_schema", "{$ref: 'https://example.com/x'}", "This is no usable JSON Schema"),
        ("output_schema", "", "`output_schema` is empty"),
    ],
)
def test_a_schema_of_the_run_that_cannot_be_used_is_refused(key: str, value: str, said: str) -> None:
    problems = check_text(f"workflow: w\n{key}: {value}\nsteps: [{{name: a, uses: x}}]", "w.yaml").problems
    assert problems[0].path.startswith(key)
    assert problems[0].message.startswith(said)


def _registry(**fields: Any) -> Registry:
    registry = Registry()
    registry.register(HandlerSpec(name="x", function=lambda: None))
    registry.register(HandlerSpec(name="y", function=lambda n: n, **fields))
    return registry


def test_handlers_of_rules_are_known_take_their_inputs_and_run_in_threads_or_on_the_loop() -> None:
    text = "workflow: w\nrules: [{uses: q, with: {}}]\nsteps: [{name: a, uses: x, pre: [{uses: y, with: {m: 1}}]}]"
    said = [one.message for one in check_text(text, "w.yaml", _registry()).problems]
    assert said == ["There is no handler `q`.", "Handler `y` needs `n`.", "Handler `y` has no parameter `m`."]
    text = "workflow: w\nsteps: [{name: a, uses: x, post: [{uses: y}]}]"
    [problem] = check_text(text, "w.yaml", _registry(transactional=True)).problems
    assert problem.path == "steps[0].post[0].uses"
    assert problem.message.startswith("Handler `y` cannot be a rule")


def test_a_literal_secret_in_a_rule_is_warned_about() -> None:
    text = "workflow: w\nsteps: [{name: a, uses: x, pre: [{command: [c], with: {password: hunter2222}}]}]"
    warnings = check_text(text, "w.yaml").warnings
    assert any("looks like a secret" in one.message for one in warnings)
