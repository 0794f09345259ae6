"""Checks the `map`, the `repeat`, the `flow` and the `then` of a step: one of them, and nothing that it cannot do.

It compiles no expression: `references` does. `checks` calls it for every step with one of them.

Checks the `switch` of a step: its cases, in order, each with one kind of work and a condition but for the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.written import StepBlock

_NOT_FOR_ELEMENTS = {
    "completion": "Its token would not say which element it completes. Complete one step after it by hand.",
    "on_exhausted": "An element that fails is told to its owner; use `tolerate`.",
    "pre": "Filter the list, or check the item in the handler.",
    "transactional": "Its elements are not claimed one by one.",
}
"""Keys of a step with a handler that an element does not have, with the reason."""


NOT_FOR_FLOWS = {
    "map": "Write a loop in the function.",
    "repeat": "Write a loop in the function.",
    "undo": "Each call of the function has an undo of its own.",
    "completion": "Write `await ctx.wait_for(...)` in the function.",
    "resources": "A flow gives them back whenever it waits for a call. Put them at a step of its own.",
    "limits": "Give them to its calls: ctx.options(limits=[…]).",
    "transactional": "Make the call of a transactional step in the function.",
}
"""Keys of a step with a handler that a flow does not have, with what to write instead."""


def check_flow(step: StepBlock, written: Collection[str], path: Path) -> Iterator[Finding]:
    """Every problem of a flow that is visible without the other steps and without its function."""
    if step.uses is None:
        said = f"Step `{step.name}` has `flow`, and no function that makes the calls."
        yield Finding((*path, "flow"), said, "Name an `async def` function with `uses`.", key=True)
    for other, hint in NOT_FOR_FLOWS.items():
        if other in written:
            yield Finding((*path, other), f"`{other}` means nothing for a `flow`.", hint, key=True)


_NOT_FOR_THEN = {
    "map": "Let the handler add one step for each item.",
    "repeat": "Let an added step add the next ones.",
    "flow": "A flow makes calls instead.",
    "undo": "Each added step has an undo of its own.",
    "completion": "Let the handler add an `approval` or a `wait`.",
    "on_exhausted": "Let the handler add an `approval`.",
    "transactional": "Let the handler add a transactional step.",
    "pre": "Check it in a step before it.",
    "post": "Check what it brought in a step after it.",
    "rules": "Check what it brought in a step after it.",
    "validate": "Check what it brought in a step after it.",
}
"""Keys of a step with a handler that one which adds steps does not have, with what to do instead."""


def check_then(step: StepBlock, written: Collection[str], path: Path) -> Iterator[Finding]:
    """Every problem of a step that adds steps which is visible without the other steps and without its handler."""
    if step.uses is None and step.agent is None:
        said = f"Step `{step.name}` has `then`, and no handler that could return steps."
        yield Finding((*path, "then"), said, "Name a handler with `uses` or `agent`.", key=True)
    for other, hint in _NOT_FOR_THEN.items():
        if other in written:
            yield Finding((*path, other), f"`{other}` means nothing for a step with `then`.", hint, key=True)


def check_growth(step: StepBlock, kinds: Sequence[str], written: Collection[str], path: Path) -> Iterator[Finding]:
    """Every problem of how a step owns elements that is visible without the other steps."""
    key = "map" if step.map is not None else "repeat"
    if step.map is not None and step.repeat is not None:
        said = f"Step `{step.name}` has both `map` and `repeat`; it can have only one of them."
        yield Finding((*path, "repeat"), said, "Make two steps of it.", key=True)
    for other, hint in _NOT_FOR_ELEMENTS.items():
        if other in written:
            yield Finding((*path, other), f"`{other}` means nothing for the elements of a `{key}`.", hint, key=True)
    if step.workflow is not None and step.workflow.detached:
        said = f"The elements of a `{key}` wait for their children: `detached` would start all of them at once."
        hint = "Remove `detached`, or start the detached run inside the workflow of the element."
        yield Finding((*path, "workflow", "detached"), said, hint, key=True)
    if step.map is not None and OPENING not in step.map.over:
        said = "`over` is an expression that comes to a list."
        yield Finding((*path, "map", "over"), said, "Write it in `${{ }}`, such as ${{ input.files }}.")
    if step.repeat is not None and (step.repeat.until is None) == (step.repeat.while_ is None):
        said = "A `repeat` has either `until` or `while`, which says when it ends."
        yield Finding((*path, "repeat"), said, "Write `until: ${{ last.done }}`.", key=True)


_NOT_FOR_CASES = {
    "approval": "Put an `approval` step before or behind it, with the same condition in its `if`.",
    "hold": "Put an `approval` step before it.",
    "wait": "Put a `wait` step before or behind it, with the same condition in its `if`.",
    "sleep": "Put a `sleep` step before or behind it, with the same condition in its `if`.",
    "map": "Put a step with `map` behind it, with the same condition in its `if`.",
    "repeat": "Put a step with `repeat` behind it, with the same condition in its `if`.",
    "flow": "Make the flow a workflow of its own, and name it with `workflow`.",
    "then": "Put a step with `then` behind it, with the same condition in its `if`.",
    "switch": "Add its cases to this `switch`.",
    "depends_on": "Write it at the step: all its cases begin after the same steps.",
    "on_failure": "Write it at the step: the failure of a case is that of the step.",
    "on_exhausted": "A case that fails is told to its step.",
    "order": "The order of the list is the order of the cases.",
    "pre": "Put what must hold into the `if` of the case.",
    "completion": "Complete a step behind it by hand.",
    "transactional": "A case is not claimed by itself.",
    "hooks": "Write them at the step.",
}
"""Keys of a step that a case does not have, with what to write instead."""


def check_cases(step: StepBlock, path: Path) -> Iterator[Finding]:
    """Every problem of the cases of a step that is visible without their expressions."""
    seen: set[str] = set()
    cases = step.switch or []
    for place, case in enumerate(cases):
        at = (*path, "switch", place)
        if case.name in seen:
            said = f"Another case of step `{step.name}` is already named `{case.name}`."
            yield Finding((*at, "name"), said, "Give each case a name of its own.")
        seen.add(case.name)
        if case.if_ is None and place < len(cases) - 1:
            said = f"The cases behind `{case.name}` are never taken: it has no `if`, so it is always taken."
            yield Finding(
                (*at, "name"), said, "Give it an `if`, or move it to the end: the last case may be the default."
            )
        for key in _written(case):
            if key in _NOT_FOR_CASES:
                yield Finding((*at, key), f"`{key}` means nothing for a case.", _NOT_FOR_CASES[key], key=True)
        if case.workflow is not None and case.workflow.detached:
            said = f"Case `{case.name}` waits for its child: the output of the step is that of its case."
            hint = "Remove `detached`, or start the detached run inside the workflow of the case."
            yield Finding((*at, "workflow", "detached"), said, hint, key=True)


def _written(case: StepBlock) -> Collection[str]:
    return [case.__class__.model_fields[name].alias or name for name in case.model_fields_set]


def case_advice(step: StepBlock, path: Path) -> Iterator[Finding]:
    """What is surely unwanted in a choice: no default, or a case that is never taken."""
    cases = step.switch or []
    if cases and cases[-1].if_ is not None:
        said = f"Step `{step.name}` has no default: where no condition holds, it fails."
        yield Finding((*path, "switch"), said, "Add a last case without `if`.", key=True)
    always: str | None = None
    seen: dict[str, str] = {}
    for place, case in enumerate(cases):
        at, text = (*path, "switch", place), None if case.if_ is None else _bare(case.if_)
        if always is not None:
            said = f"Case `{case.name}` is never taken: the condition of `{always}` before it always holds."
            yield Finding((*at, "name"), said, "Remove one of the two.")
        elif text in seen:
            said = f"Case `{case.name}` is never taken: `{seen[text]}` before it has the same condition."
            yield Finding((*at, "if"), said, "Remove one of the two.", key=True)
        elif text == "false":
            yield Finding((*at, "if"), f"Case `{case.name}` is never taken.", "Remove it.", key=True)
        if text == "true" and always is None:
            always = case.name
        if text is not None:
            seen.setdefault(text, case.name)


def _bare(text: str) -> str:
    """A condition without its braces.

    >>> _bare("${{ true }}")
    'true'
    """
    text = text.strip()
    return text.removeprefix(OPENING).removesuffix("}}").strip() if text.startswith(OPENING) else text
