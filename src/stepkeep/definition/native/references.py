"""Checks the expressions of a definition: each compiles, and reads only what surely exists when it is evaluated.

A step may read its direct and indirect dependencies; its undo and its rules may also read the step itself; the run's
own rules and output may read all. It evaluates nothing. The native front end calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from stepkeep.definition.expressions.compiler import message_scope
from stepkeep.definition.expressions.conditions import Scopes, compile_truth, scopes_of
from stepkeep.definition.expressions.expressions import InvalidExpression, Scope, compile_template
from stepkeep.definition.expressions.limits import ExpressionBudget
from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import MAX_PROBLEMS, Finding, Path, texts_in
from stepkeep.definition.native.checks import gates_of, rules_of
from stepkeep.definition.native.graph import Ancestry
from stepkeep.definition.native.written import RuleBlock, StepBlock, UndoBlock

MayRead = Callable[[str], bool]


def check_expressions(
    data: Mapping[str, Any], steps: Mapping[Path, StepBlock], ancestry: Ancestry | None, names: set[str]
) -> Iterator[Finding]:
    """Every problem of the expressions of a workflow. Without ancestry (of an invalid graph), order is not checked.

    All expressions share one budget; the check ends when it is spent.
    """
    budget = ExpressionBudget()
    scopes = scopes_of(names, _declared(data.get("input")), budget)
    found = 0
    for path, step in steps.items():
        for finding in _in_step(step, path, scopes, ancestry):
            yield finding
            found += 1
        # Limit the findings: each one compares a name with all known names.
        if found > MAX_PROBLEMS or budget.is_spent:
            return
    yield from _final_rules(data.get("rules"), scopes, output="output" in data)
    if budget.is_spent:
        return
    yield from _template(data.get("output"), ("output",), scopes.template, "The output", lambda _: True)


def _declared(written: Any) -> list[str] | None:
    if not isinstance(written, list | dict):
        return None
    return [name for name in written if isinstance(name, str)]


def _in_step(step: StepBlock, path: Path, scopes: Scopes, ancestry: Ancestry | None) -> Iterator[Finding]:
    who = f"Step `{step.name}`"

    def earlier(name: str) -> bool:
        return ancestry is None or ancestry.precedes(name, step.name)

    def earlier_or_own(name: str) -> bool:
        return name == step.name or earlier(name)

    if step.if_ is not None:
        yield from _truth(step.if_, (*path, "if"), scopes.condition, who, earlier)
    if step.sleep is not None and isinstance(step.sleep.for_, str):
        yield from _template(step.sleep.for_, (*path, "sleep", "for"), scopes.condition, who, earlier)
    if step.wait is not None:
        for key, text in (("if", step.wait.if_), ("until", step.wait.until)):
            if text is not None:
                scope = message_scope(key == "until", scopes.condition.budget)
                yield from _truth(text, (*path, "wait", key), scope, who, earlier)
    for key, gate in gates_of(step):
        yield from _template(gate.facts, (*path, key, "facts"), scopes.condition, who, earlier)
    for place, limit in enumerate(step.limits):
        for key, text in (("per", limit.per), ("units", limit.units)):
            if isinstance(text, str):
                yield from _template(text, (*path, "limits", place, key), scopes.condition, who, earlier)
    inputs = scopes.inputs
    if step.map is not None:
        inputs = scopes.item_inputs
        yield from _template(step.map.over, (*path, "map", "over"), scopes.template, who, earlier)
    if step.repeat is not None:
        inputs = scopes.loop_inputs
        for key, text in (("until", step.repeat.until), ("while", step.repeat.while_)):
            if text is not None:
                yield from _truth(text, (*path, "repeat", key), scopes.loop_condition, who, earlier)
    for place, case in enumerate(step.switch or ()):
        if case.switch is None:
            # To its own expressions, a case is the step.
            yield from _in_step(case.model_copy(update={"name": step.name}), (*path, "switch", place), scopes, ancestry)
    yield from _work(step, path, inputs, who, earlier)
    for key, rules in rules_of(step).items():
        is_first = key == "pre"
        for number, rule in enumerate(rules):
            at, may_read = (*path, key, number), earlier if is_first else earlier_or_own
            if rule.check is not None:
                yield from _truth(
                    rule.check, (*at, "check"), scopes.condition if is_first else scopes.rule, who, may_read
                )
            yield from _work(rule, at, scopes.inputs if is_first else scopes.rule_inputs, who, may_read)
    if step.undo is not None:
        yield from _work(step.undo, (*path, "undo"), inputs, f"The undo of `{step.name}`", earlier_or_own)


def _work(
    block: StepBlock | UndoBlock | RuleBlock, path: Path, scope: Scope, who: str, may_read: MayRead
) -> Iterator[Finding]:
    yield from _template(block.with_, (*path, "with"), scope, who, may_read)
    if block.command is not None:
        at = (*path, "command")
        texts = {"argv": block.command.argv[1:], "env": block.command.env, "cwd": block.command.cwd}
        for finding in _template(texts, at, scope, who, may_read):
            yield finding._replace(path=_argument(finding.path, len(at)))
    if not isinstance(block, RuleBlock) and block.http is not None:
        texts = {"url": block.http.url, "headers": block.http.headers, "body": block.http.body}
        yield from _template(texts, (*path, "http"), scope, who, may_read)


def _argument(path: Path, depth: int) -> Path:
    """Count the program again, which was left out."""
    match path[depth:]:
        case ("argv", int(number), *rest):
            return (*path[:depth], "argv", number + 1, *rest)
    return path


def _final_rules(written: Any, scopes: Scopes, *, output: bool) -> Iterator[Finding]:
    """The rules of the run, as far as they are valid on their own."""
    for number, given in enumerate(written if isinstance(written, list) else ()):
        try:
            rule = RuleBlock.model_validate({"check": given} if isinstance(given, str) else given)
        except ValidationError:
            continue
        at: Path = ("rules", number)
        if rule.check is not None:
            scope = scopes.rule if output else scopes.condition
            yield from _truth(rule.check, (*at, "check"), scope, "A rule", lambda _: True)
        yield from _work(rule, at, scopes.rule_inputs if output else scopes.inputs, "A rule", lambda _: True)


def _truth(text: str, path: Path, scope: Scope, who: str, may_read: MayRead) -> Iterator[Finding]:
    if _is_spent(scope):
        return
    try:
        expression = compile_truth(text, scope)
    except InvalidExpression as error:
        yield from (finding._replace(path=path) for finding in error.findings)
        return
    for name in sorted(expression.references):
        if not may_read(name):
            yield _too_early(name, path, who)


def _template(value: Any, path: Path, scope: Scope, who: str, may_read: MayRead) -> Iterator[Finding]:
    if _is_spent(scope):
        return
    try:
        template = compile_template(value, scope)
    except InvalidExpression as error:
        yield from (finding._replace(path=(*path, *finding.path)) for finding in error.findings)
        return
    for name in sorted(template.references):
        if not may_read(name):
            yield _too_early(name, (*path, *_place_of(name, value, scope)), who)


def _is_spent(scope: Scope) -> bool:
    return scope.budget is not None and scope.budget.is_spent


def _too_early(name: str, path: Path, who: str) -> Finding:
    if who == f"Step `{name}`":
        return Finding(path, f"{who} reads its own result before there is one.", "Read an earlier step.")
    said = f"{who} reads `{name}`, which is not sure to have ended before it."
    return Finding(path, said, f"Add `{name}` to its `depends_on`, or read an earlier step.")


def _place_of(name: str, value: Any, scope: Scope) -> Path:
    """The path in a value at which a step is read."""
    return next((path for path, text in texts_in(value) if OPENING in text and _reads(text, name, scope)), ())


def _reads(text: str, name: str, scope: Scope) -> bool:
    try:
        return name in compile_template(text, scope).references
    except InvalidExpression:  # it was compiled before, and only the budget can refuse it now
        return False
