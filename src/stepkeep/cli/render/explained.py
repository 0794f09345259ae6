"""Explanations: a definition as the engine has it, in outline or with every default, and the machines of a dialect.

Three sources: what the file says (no remark), Stepkeep's own default, and the dialect's front end, which sets what its
specification answers differently. A value counts as written when the file has it somewhere, in whatever unit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import RenderableType

from stepkeep.cli.render.consoles import Text
from stepkeep.cli.render.tables import plain_table
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

if TYPE_CHECKING:
    from stepkeep.dialects.dialect import JudgedDialect
    from stepkeep.dialects.machine import MachineView


Path = tuple[str | int, ...]
Remark = Callable[[Path, Any], str]

_PLAIN = re.compile(r"[A-Za-z0-9_./$<>{}()+*→-][A-Za-z0-9_./$<>{}()+*→ ,:;@-]*")
_TAKEN = frozenset({"true", "false", "null", "yes", "no", "on", "off", "~"})
GAP = "  "


def outline(value: Any, remark: Remark | None = None) -> list[str]:
    """The lines of a value; `remark` may add a few words behind the value at a path."""
    return list(_lines(value, (), "", remark or (lambda path, leaf: "")))


def _lines(value: Any, path: Path, indent: str, remark: Remark) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{indent}{key}:", item, (*path, str(key)), indent + GAP, remark)
    elif isinstance(value, list | tuple) and value:
        for place, item in enumerate(value):
            yield from _item(item, (*path, place), indent, remark)
    else:
        yield _noted(f"{indent}{scalar(value)}", path, value, remark)


def _entry(head: str, item: Any, path: Path, indent: str, remark: Remark) -> Iterator[str]:
    if _short(item):
        yield _noted(f"{head} {scalar(item)}", path, item, remark)
    else:
        yield head
        yield from _lines(item, path, indent, remark)


def _item(item: Any, path: Path, indent: str, remark: Remark) -> Iterator[str]:
    if _short(item):
        yield _noted(f"{indent}- {scalar(item)}", path, item, remark)
        return
    first, *rest = _lines(item, path, indent + GAP, remark)
    yield f"{indent}- {first.removeprefix(indent + GAP)}"
    yield from rest


def _short(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(not isinstance(item, Mapping | list | tuple) for item in value) and len(str(value)) < 80
    return not isinstance(value, Mapping) or not value


def scalar(value: Any) -> str:
    """A value on one line, with quotes where it could be taken for something else."""
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(scalar, value))}]"
    if isinstance(value, str):
        safe = _PLAIN.fullmatch(value) and value.lower() not in _TAKEN and not _numeric(value) and ": " not in value
        return str(value) if safe and value == value.strip() else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _noted(line: str, path: Path, value: Any, remark: Remark) -> str:
    said = remark(path, value)
    return f"{line}  # {said}" if said else line


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


def _defaults() -> Mapping[str, Any]:
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


NEW = "(new)"


def pages_of(judged: JudgedDialect) -> Iterator[RenderableType]:
    """Everything about a dialect, part by part."""
    yield Text.assemble((f"{judged.name} ", "bold"), f"{judged.title} ", (f"(seed {judged.seed})", "dim"))
    for view in judged.views:
        yield from _machine(view)
    if judged.invariants:
        yield Text("\nINVARIANTS", "bold")
        yield plain_table([{"invariant": one.name, "from": one.cites} for one in judged.invariants])
    if judged.defaults:
        yield Text("\nWHERE IT DIFFERS FROM THE NATIVE FORMAT", "bold")
        yield plain_table([one._asdict() for one in judged.defaults])


def _machine(view: MachineView) -> Iterator[RenderableType]:
    yield Text(f"\n{view.noun.upper()}", "bold")
    states = [f"{state} (ends)" if state in view.terminal else state for state in (*view.states, *view.extra)]
    yield Text(", ".join(states))
    yield Text("\narrows of the specification", "dim")
    arrows = [
        {"from": arrow.source or NEW, "to": arrow.target, "trigger": arrow.trigger, "cites": arrow.cites}
        for arrow in view.arrows
    ]
    yield plain_table(arrows)
    if view.extensions:
        yield Text("\nextensions: what the engine does and the specification has no arrow for", "dim")
        yield plain_table(
            [{"from": one.source or NEW, "to": one.target, "because": one.reason} for one in view.extensions]
        )
    for state, reason in view.extra.items():
        yield Text(f"{state} is no state of the specification: {reason}", "dim")
    if view.forbidden:
        yield Text("\nruled out", "dim")
        yield plain_table([{"from": one.source, "to": one.target, "cites": one.cites} for one in view.forbidden])


def mermaid_of(judged: JudgedDialect) -> Iterator[str]:
    """One state diagram per machine; what the specification lacks is marked as an extension."""
    for view in judged.views:
        yield "```mermaid"
        yield "---"
        yield f"title: {judged.name} {view.noun}"
        yield "---"
        yield "stateDiagram-v2"
        for arrow in view.arrows:
            yield f"    {_node(arrow.source)} --> {_node(arrow.target)}: {_label(arrow.trigger)}"
        for extension in view.extensions:
            yield f"    {_node(extension.source)} --> {_node(extension.target)}: extension"
        for state in (*view.states, *view.extra):
            if state in view.terminal:
                yield f"    {_node(state)} --> [*]"
        yield "```"


def _node(state: str | None) -> str:
    return "[*]" if state is None else state.replace(" ", "_").replace("-", "_")


def _label(trigger: str) -> str:
    """A label in which nothing means something to Mermaid."""
    return trigger.replace(":", " -").replace(";", ",").replace("\n", " ")
