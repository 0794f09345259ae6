"""A definition as the engine has it: every default spelled out, times readable, and where each value comes from.

Three sources: what the file says (no remark), Stepkeep's own default, and the dialect's front end, which sets what its
specification answers differently. A value counts as written when the file has it somewhere, in whatever unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stepkeep.cli.render.outline import Path, outline
from stepkeep.definition.durations import InvalidDuration, format_duration, parse_duration
from stepkeep.definition.python.retry import NATIVE_RETRY, NATIVE_UNDO_RETRY
from stepkeep.definition.text.document import read_document
from stepkeep.kernel.definition import (
    Approval,
    Definition,
    Dependency,
    InputField,
    Rules,
    StepDefinition,
    Undo,
    Wait,
)

TIMES = frozenset({"timeout", "initial", "max", "max_elapsed", "deadline", "completion_deadline", "lease", "grace"})
WHAT_IT_IS = frozenset({"executor", "approval", "wait", "hold", "undo", "condition"})
"""Parts that a step has or has not: where they are missing there is nothing to explain."""
PLAIN = frozenset({"order", "dialect"})
"""What needs no remark."""
ANY = "*"
MILLISECOND, SECOND = 1_000, 1_000_000


def explained(definition: Definition, file: str | None) -> Iterator[str]:
    """The definition as an outline with remarks, then the answers that its dialect gave."""
    written = None if file is None else set(_leaves(read_document(file).data))
    plain = msgspec.to_builtins(definition)
    defaults = _defaults()

    def remark(path: Path, value: Any) -> str:
        known, default = _default(path, defaults)
        if value is None or (known and value == default):
            return "default"
        if written is None or definition.dialect == "native" or value in ("", (), [], {}) or path[-1] in PLAIN:
            return ""
        return "" if written & _spellings(value) else f"by the {definition.dialect} dialect"

    def shown(path: Path, value: Any) -> str:
        return remark(path, _at(plain, path))

    yield from outline(_readable(plain), shown)
    if definition.dialect != "native":
        from stepkeep.dialects.registry import judged

        yield ""
        yield f"The {definition.dialect} dialect answers differently from the native format:"
        for default in judged(definition.dialect).defaults:
            question = default.question if default.question.endswith("?") else f"{default.question}:"
            yield f"- {question} {default.answer} ({default.cites})"
    yield ""


def plain_definition(definition: Definition) -> Any:
    """The definition as JSON has it; times are microseconds there."""
    return msgspec.to_builtins(definition)


def _defaults() -> dict[str, Any]:
    """A definition in which nothing was said, to compare with."""
    parts = {
        "undo": Undo(executor=Rules(), retry=NATIVE_UNDO_RETRY),
        "approval": Approval(),
        "hold": Approval(),
        "wait": Wait(event=""),
        "depends_on": [Dependency(step="")],
        "retry": NATIVE_RETRY,
    }
    step = msgspec.to_builtins(StepDefinition(name="", order=-1)) | msgspec.to_builtins(parts)
    whole = msgspec.to_builtins(Definition(name="", version=0, steps=(), input_types={ANY: InputField()}))
    return {**whole, "steps": [step]}


def _default(path: Path, defaults: Any) -> tuple[bool, Any]:
    """The native default at a path, where there is one; items of lists are all alike."""
    if path[-1:] and path[-1] in ("name", "order", "version", "dialect", "kind", "step"):
        return False, None
    value = defaults
    for part in path:
        if isinstance(part, int) and isinstance(value, list) and value:
            value = value[0]
        elif isinstance(value, dict) and (part in value or ANY in value):
            value = value.get(part, value.get(ANY))
        else:
            return False, None
    return True, value


def _at(plain: Any, path: Path) -> Any:
    for part in path:
        plain = plain[part]
    return plain


def _readable(plain: Any, key: str = "") -> Any:
    if isinstance(plain, dict):
        told = {name: value for name, value in plain.items() if value is not None or name not in WHAT_IT_IS}
        return {name: _readable(value, name) for name, value in told.items()}
    if isinstance(plain, list | tuple):
        return [_readable(value) for value in plain]
    is_time = key in TIMES and isinstance(plain, int) and not isinstance(plain, bool)
    return format_duration(plain) if is_time else plain


def _leaves(data: Any) -> Iterator[Any]:
    """Every value that a document holds, durations also in microseconds."""
    if isinstance(data, dict):
        yield from (str(key) for key in data)
        for value in data.values():
            yield from _leaves(value)
    elif isinstance(data, list):
        for value in data:
            yield from _leaves(value)
    else:
        yield data
        if isinstance(data, str):
            try:
                yield parse_duration(data)
            except InvalidDuration:
                return


def _spellings(value: Any) -> set[Any]:
    """What a file may have in place of this value."""
    if isinstance(value, list | tuple):
        return {word for item in value for word in _spellings(item)}
    if isinstance(value, dict):
        return set(_leaves(value))
    if isinstance(value, bool) or not isinstance(value, int):
        return {value}
    return {value, value // MILLISECOND, value // SECOND, f"{value // SECOND}s"}
