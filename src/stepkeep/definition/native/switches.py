"""Checks the `switch` of a step: its cases, in order, each with one kind of work and a condition but for the last.

It compiles no expression: `references` does. `checks` calls it for every step with a `switch`, `lint` for advice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path
from stepkeep.definition.native.written import StepBlock

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
