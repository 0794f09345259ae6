"""Hooks in definitions: the same from YAML and Python, every mistake with its place, part of what a version pins."""

from __future__ import annotations

from typing import Any

import pytest

import stepkeep as sk
from stepkeep.definition.native.reader import check_text, load_text
from stepkeep.kernel.definition import Hook, decode_definition, encode_definition
from stepkeep.operations.definitions.versions import differences

HEAD = "workflow: order\nsteps:\n  - name: pay\n    command: ['true']\n"
FOUR = """
workflow: order
hooks:
  - on: run.failed
    uses: ops.page
  - name: told
    on: [run.succeeded, run.cancelled]
    message: {key: "watch-{workflow}", name: order.done}
  - on: "run.*"
    webhook: {url: https://shop.example/hooks, secrets: SHOP_HOOK}
steps:
  - name: pay
    command: ["true"]
    hooks:
      - on: [failed, step.skipped]
        command: [/usr/local/bin/page, ops]
"""


def written(hooks: str) -> str:
    return f"{HEAD}hooks:\n{hooks}"


def problems(text: str, registry: sk.Registry | None = None) -> list[tuple[str, str]]:
    return [(one.path, one.message) for one in check_text(text, "order.yaml", registry).problems]


def test_each_form_becomes_a_hook_with_a_name_of_its_own() -> None:
    found = load_text(FOUR, "order.yaml").declared_hooks
    assert found == (
        Hook(name="hook-1", on=("run.failed",), kind="handler", options={"handler": "ops.page"}),
        Hook(
            name="told",
            on=("run.cancelled", "run.succeeded"),
            kind="message",
            options={"key": "watch-{workflow}", "name": "order.done"},
        ),
        Hook(
            name="hook-2",
            on=("run.*",),
            kind="webhook",
            options={"url": "https://shop.example/hooks", "secrets": ["SHOP_HOOK"]},
        ),
        Hook(
            name="pay-1",
            on=("step.failed", "step.skipped"),
            kind="command",
            options={"argv": ["/usr/local/bin/page", "ops"]},
            step="pay",
        ),
    )


def test_hooks_are_part_of_the_stored_version_and_a_definition_without_them_keeps_its_digest() -> None:
    definition = load_text(FOUR, "order.yaml")
    assert decode_definition(encode_definition(definition)) == definition
    assert b"hooks" not in encode_definition(load_text(HEAD, "order.yaml"))
    changed = load_text(FOUR.replace("ops.page", "ops.call"), "order.yaml")
    assert [one.partition(":")[0] for one in differences(definition, changed)] == ["hooks"]


def test_python_says_the_same() -> None:
    registry = sk.Registry()

    @sk.hook("ops.page", registry=registry)
    def page(event: sk.OutgoingEvent) -> None: ...

    order = sk.Workflow(
        "order",
        hooks=[
            {"on": "run.failed", "uses": page},
            {"name": "told", "on": ["run.succeeded", "run.cancelled"]}
            | {"message": {"key": "watch-{workflow}", "name": "order.done"}},
            {"on": "run.*", "webhook": {"url": "https://shop.example/hooks", "secrets": ["SHOP_HOOK"]}},
        ],
        registry=registry,
    )
    order.command(
        "pay",
        ["true"],
        hooks=[{"on": ["failed", "step.skipped"], "command": ["/usr/local/bin/page", "ops"]}],
    )
    assert order.definition().declared_hooks == load_text(FOUR, "order.yaml").declared_hooks


def test_a_function_that_is_not_registered_is_registered_under_its_own_name() -> None:
    registry = sk.Registry()

    def call(event: sk.OutgoingEvent) -> None: ...

    call.__qualname__ = "call"
    order = sk.Workflow("order", hooks=[{"on": "run.failed", "uses": call}], registry=registry)
    order.command("pay", ["true"])
    [hook] = order.definition().declared_hooks
    assert hook.options["handler"] in registry.listeners


@pytest.mark.parametrize(
    ("hooks", "path", "message"),
    [
        ("  - on: run.failed", "hooks[0]", "A hook has one of"),
        ("  - on: run.failed\n    uses: a\n    message: b", "hooks[0]", "A hook has one of"),
        ("  - on: []\n    uses: a", "hooks[0].on", ""),
        ("  - uses: a", "hooks[0]", ""),
        ("  - on: run.fialed\n    uses: a", "hooks[0].on[0]", "A run has no state `fialed`."),
        ("  - on: worker.idle\n    uses: a", "hooks[0].on[0]", "`worker.idle` is no transition."),
        ("  - on: failed\n    uses: a", "hooks[0].on[0]", "`failed` is no transition."),
        ("  - on: run.failed\n    command: page ops", "hooks[0].command", ""),
        (
            "  - on: run.failed\n    command: ['${{ input.x }}']",
            "hooks[0].command[0]",
            "An argument of a hook",
        ),
        ("  - on: run.failed\n    command: {argv: [a], cwd: here}", "hooks[0].command.cwd", "`cwd` of a hook is an"),
        ("  - on: run.failed\n    webhook: {url: 'file:///x', secrets: A}", "hooks[0].webhook.url", "`url`:"),
        ("  - on: run.failed\n    webhook: {url: 'https://a.b', secrets: 'whsec-1'}", "hooks[0].webhook.secrets", ""),
        ("  - on: run.failed\n    message: {key: ''}", "hooks[0].message.key", ""),
        ("  - on: run.failed\n    uses: a\n    when: x", "hooks[0].when", ""),
        ("  - {name: a, on: run.failed, uses: a}\n  - {name: a, on: run.failed, uses: b}", "hooks[0]", "Two hooks"),
    ],
)
def test_mistakes_are_named_with_their_place(hooks: str, path: str, message: str) -> None:
    found = problems(written(hooks))
    assert any(place == path and message in said for place, said in found), found


def test_a_hook_of_a_step_is_for_this_step_alone() -> None:
    text = f"{HEAD}    hooks:\n      - {{on: run.failed, uses: a}}\n"
    assert problems(text) == [
        ("steps[0].hooks[0].on[0]", "A hook of a step is for states of this step, and not for `run.failed`.")
    ]


def test_a_function_that_no_worker_of_this_program_has_is_a_mistake() -> None:
    registry = sk.Registry()
    sk.hook("ops.page", registry=registry)(lambda event: None)
    [(path, said)] = problems(written("  - {on: run.failed, uses: ops.pag}"), registry)
    assert (path, said) == ("hooks[0].uses", "There is no function `ops.pag` for hooks.")
    assert problems(written("  - {on: run.failed, uses: ops.page}"), registry) == []


def test_a_definition_has_a_bounded_number_of_hooks() -> None:
    many = "\n".join(f"  - {{name: h{number}, on: run.failed, uses: a}}" for number in range(30))
    of_step = many.replace("  - ", "      - ").replace("name: h", "name: s").replace("run.", "")
    text = f"{HEAD}    hooks:\n{of_step}\nhooks:\n{many}\n"
    assert any("at most 50 hooks" in said for _, said in problems(text))


@pytest.mark.parametrize("given", [3, "x", [3], {"on": "run.failed"}])
def test_python_refuses_what_is_no_hook(given: Any) -> None:
    def define() -> None:
        flow = sk.Workflow("order", hooks=given)
        flow.command("pay", ["true"])
        flow.definition()

    with pytest.raises(sk.StepkeepError):
        define()


def test_the_decorator_needs_brackets_and_a_name() -> None:
    with pytest.raises(sk.InvalidInput, match="with brackets"):
        sk.hook(print)  # type: ignore[arg-type]
