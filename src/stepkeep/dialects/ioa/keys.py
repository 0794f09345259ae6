"""Unknown keys: refused at the top level and where they resemble a known key, a warning elsewhere.

The resource's schema closes only its top level, so a custom key below it is allowed. A near miss is refused: `dependOn`
would silently turn a chain into parallel steps. The front end calls it.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from stepkeep.definition.findings import MAX_PROBLEMS, Finding, Path
from stepkeep.dialects.ioa.written import Block, WorkflowResource

CLOSE = 0.8


def check_keys(data: Any) -> tuple[list[Finding], list[Finding]]:
    """Problems and warnings about unknown keys anywhere in the data."""
    problems: list[Finding] = []
    warnings: list[Finding] = []
    for path, key, known in _unknown(data, WorkflowResource, ()):
        meant = _meant(key, known)
        said, hint = f"There is no key `{key}` here.", f"Did you mean `{meant}`?" if meant else ""
        if meant or not path:
            problems.append(Finding((*path, key), said, hint or f"Known keys: {', '.join(known)}.", key=True))
        else:
            warnings.append(Finding((*path, key), f"{said[:-1]}; it has no effect.", key=True, ignored=True))
        if len(problems) > MAX_PROBLEMS or len(warnings) > MAX_PROBLEMS:
            break
    return problems, warnings


def _unknown(data: Any, block: type[Block], path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    if not isinstance(data, dict):
        return
    fields = {field.alias or name: field for name, field in block.model_fields.items()}
    for key, value in data.items():
        if key not in fields:
            yield path, str(key), list(fields)
            continue
        inner = _inner(fields[key].annotation)
        if inner is None:
            continue
        if isinstance(value, list):
            for place, item in enumerate(value):
                yield from _unknown(item, inner, (*path, key, place))
        else:
            yield from _unknown(value, inner, (*path, key))


def _inner(annotation: Any) -> type[Block] | None:
    if isinstance(annotation, type) and issubclass(annotation, Block):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part))), None)


def _meant(key: str, known: list[str]) -> str | None:
    folded = {_folded(name): name for name in known}
    close = get_close_matches(_folded(key[:128]), folded, n=1, cutoff=CLOSE)
    return folded[close[0]] if close else None


def _folded(key: str) -> str:
    return key.casefold().replace("_", "").replace("-", "")
