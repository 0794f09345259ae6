"""Translates pydantic's errors into findings: what is wrong, and what to write instead.

It decides nothing: a model refused a value, and this words it. The native front end and the dialects' front ends call
it, with their own models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stepkeep.definition import bounds
from stepkeep.definition.findings import (
    KEYS_ARE_LIMITS,
    MAX_PROBLEMS,
    NOT_EVALUATED,
    Finding,
    Path,
    as_written,
    did_you_mean,
    kind_of,
    shown,
)
from stepkeep.definition.native.written import Block, WorkflowBlock

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}

_HAS_SHORT_FORM = {
    "approval",
    "completion",
    "depends_on",
    "hold",
    "post",
    "pre",
    "rules",
    "sleep",
    "undo",
    "validate",
    "wait",
    "workflow",
}

_RULES = {
    f"^{bounds.NAME.pattern}$": bounds.NAME_RULE,
    f"^{bounds.FIELD_NAME.pattern}$": bounds.FIELD_NAME_RULE,
    f"^{bounds.HANDLER_NAME.pattern}$": bounds.HANDLER_NAME_RULE,
}

_OTHER_WORDS = {
    "after": "Write `depends_on`.",
    "compensate": "Write `undo` on the step.",
    "compensation": "Write `undo` on the step that it takes back.",
    "condition": "Write `if`.",
    "env": "Write it inside `command`: {argv: […], env: {…}}.",
    "inputs": "Write `with`.",
    "needs": "Write `depends_on`.",
    "retries": "Write `retry: {max_attempts: …}`.",
    "retryPolicy": "Write `retry`.",
    "run": "Write `command`, as a list of a program and its arguments.",
    "when": "Write `if`.",
}


def complaints(error: ValidationError, data: Any, root: type[BaseModel] = WorkflowBlock) -> list[Finding]:
    """Everything that the model refused in this data, in the order of the model; `root` is that model."""
    found: list[Finding] = []
    for detail in error.errors(include_url=False)[: 2 * MAX_PROBLEMS]:
        found.extend(_complaint(detail, data, root))
    return found


def _complaint(detail: ErrorDetails, data: Any, root: type[BaseModel]) -> Iterator[Finding]:
    local: Path = detail["loc"]
    is_key = bool(local) and local[-1] == "[key]"
    local = local[:-1] if is_key else local
    if detail["type"] != "missing":
        local = as_written(local, data)
    path, name = local, _named(local)
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "expression":
        hint = KEYS_ARE_LIMITS if "resources" in path else NOT_EVALUATED
        yield Finding(path, f"{name} is taken as it is written.", hint, key=is_key)
    elif is_key:
        rule = _RULES.get(str(context.get("pattern")), "a short text")
        name = f"`{local[-1]}`" if local[-1] else "An empty text"
        yield Finding(path, f"{name} cannot be used as a name here.", f"Use {rule}.", key=True)
    elif kind == "extra_forbidden":
        yield _unknown_key(path, str(local[-1]), _block_at(local[:-1], root), native=root is WorkflowBlock)
    elif kind == "missing":
        yield Finding(path[:-1], f"`{local[-1]}` is missing.", _missing_hint(local))
    elif kind == "empty":
        yield Finding(path, f"{name} is empty.", "Give it a value, or remove the key.", key=True)
    elif kind in _WANTED:
        wanted = _WANTED[kind]
        if kind == "model_type" and _HAS_SHORT_FORM.intersection(local[-2:]):
            wanted = "text or a mapping"
        quote = kind == "string_type" and isinstance(value, bool | int | float)
        yield Finding(path, f"{name} must be {wanted}, not {kind_of(value)}.", "Put it in quotes." if quote else "")
    elif kind == "literal_error":
        words = _literals(context)
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        yield Finding(path, f"{name} must be {_listed(words)}, not {shown(value)}.", hint)
    elif kind == "string_pattern_mismatch":
        rule = _RULES.get(str(context.get("pattern")), "another form")
        yield Finding(path, f"{name} cannot be {shown(value)}.", f"Use {rule}.")
    elif kind == "command_text":
        hint = 'Write a list: [program, "first argument"]; no shell reads it.'
        yield Finding(path, "`command` must be a list of a program and its arguments, not one text.", hint)
    elif kind == "value_error":
        yield Finding(path, f"{name}: {context.get('error', detail['msg'])}")
    else:
        yield Finding(path, f"{name} {_bounds(kind, context) or detail['msg']}{_not_value(kind, value)}.")


def _unknown_key(path: Path, key: str, block: type[BaseModel] | None, *, native: bool) -> Finding:
    known = _keys(block) if block else []
    hint = (_OTHER_WORDS.get(key, "") if native else "") or did_you_mean(key, known)
    if block is WorkflowBlock and key == "name":
        hint = "Write `workflow`."
    if not hint and known:
        hint = f"Known keys: {', '.join(known)}."
    return Finding(path, f"There is no key `{key}` here.", hint, key=True)


def _missing_hint(local: Sequence[str | int]) -> str:
    if local[-1] == "steps":
        return "A workflow needs at least one step."
    if local[-1] == "workflow":
        return "Give the workflow a name: `workflow: my-workflow`."
    if local[-1] == "argv":
        return "Name a program and its arguments: argv: [program, argument]."
    return f"Add `{local[-1]}: …`."


def _bounds(kind: str, context: dict[str, Any]) -> str:
    match kind:
        case "greater_than_equal":
            return f"must be at least {context['ge']:g}"
        case "less_than_equal":
            return f"must be at most {context['le']:g}"
        case "too_short":
            return "must not be empty"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters"
        case _:
            return ""


def _not_value(kind: str, value: Any) -> str:
    return f", not {shown(value)}" if kind in {"greater_than_equal", "less_than_equal", "out_of_bounds"} else ""


def _named(local: Sequence[str | int]) -> str:
    """The last key of the path, which is the name of the value."""
    keys = [part for part in local if isinstance(part, str)]
    if not keys:
        return "The workflow"
    if keys == ["steps"] and len(local) == 2:
        return f"Step {int(local[1]) + 1}"
    return f"`{keys[-1]}`" if local[-1] == keys[-1] else f"An entry of `{keys[-1]}`"


def _literals(context: dict[str, Any]) -> list[str]:
    return [part for part in str(context.get("expected", "")).split("'") if part.strip(", ") not in {"", "or"}]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _keys(block: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in block.model_fields.items()]


def _block_at(local: Sequence[str | int], root: type[BaseModel]) -> type[BaseModel] | None:
    """The model that describes the mapping at this path."""
    block: type[BaseModel] | None = root
    for part in local:
        if block is None or isinstance(part, int):
            continue
        field = next((f for name, f in block.model_fields.items() if (f.alias or name) == part), None)
        # A name that is not a field is a user's key, inside a mapping of blocks.
        block = _inner(field.annotation) if field else block
    return block


def _inner(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, Block):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part))), None)
