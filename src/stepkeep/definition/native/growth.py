"""Checks the `map`, the `repeat`, the `flow` and the `then` of a step: one of them, and nothing that it cannot do.

It compiles no expression: `references` does. `checks` calls it for every step with one of them.
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
    "limits": "Name them at a step of its own, and start that by ctx.child.",
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
