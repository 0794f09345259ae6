"""Plain data as an outline that reads like YAML. Pure; for people, not for parsers (those have `--json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

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
