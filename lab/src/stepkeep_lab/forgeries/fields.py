"""Forgeries that change one field of one line, for every field that a kind of line can have.

Each is offered to every log; a log whose lines lack the field has nothing to change. `kinds.py` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Line = dict[str, Any]
Forge = Callable[[list[Line], Random], list[Line] | None]

TOP = ("timestamp", "event_type", "severity", "entity_id", "from_state", "to_state", "trigger")
COMMON = ("tenant", "run_id", "correlation_id", "at", "written_in", "dialect")
MOVE = ("seq", "hop", "cause", "because", "ground", "event", "actor", "detail", "of", "category", "error", "extension")
METADATA = {
    "definition": (*COMMON, "format", "digest", "definition"),
    "run": (*COMMON, *MOVE, "workflow", "version", "steps"),
    "step": (
        *COMMON, *MOVE, "step", "no", "attempt", "retry_count", "fence", "duration_seconds", "due_at", "digest",
        "worker", "kind", "order", "depends_on", "max_attempts", "on_failure", "completion",
    ),
    "head": (*COMMON, "seq", "entries", "lines", "state", "canonical", "head", "chain"),
}  # fmt: skip
"""The fields of metadata, by the kind of line."""


def kind_of(line: Line) -> str:
    event = line["event_type"]
    if event in ("journal_definition", "journal_head"):
        return "definition" if event == "journal_definition" else "head"
    return "step" if "step" in line["metadata"] else "run"


def field_forgeries() -> Iterator[tuple[str, str, Forge]]:
    for kind, names in METADATA.items():
        for name in TOP:
            yield f"{kind}.{name}", f"{name} of one {kind} line", _changing(kind, name, top=True)
        for name in names:
            yield f"{kind}.metadata.{name}", f"metadata.{name} of one {kind} line", _changing(kind, name, top=False)
            if kind != "definition":
                yield f"{kind}.without.{name}", f"no metadata.{name} on one {kind} line", _dropping(kind, name)


def _changing(kind: str, name: str, *, top: bool) -> Forge:
    def forge(lines: list[Line], random: Random) -> list[Line] | None:
        holders = [line if top else line["metadata"] for line in lines if kind_of(line) == kind]
        chosen = [one for one in holders if name in one]
        if not chosen:
            return None
        one = random.choice(chosen)
        others = [other[name] for other in chosen if other[name] != one[name]]
        before = one[name]
        one[name] = random.choice(others) if others and random.random() < 0.6 else _another(before, random)
        return None if one[name] == before else lines

    return forge


def _dropping(kind: str, name: str) -> Forge:
    def forge(lines: list[Line], random: Random) -> list[Line] | None:
        chosen = [line["metadata"] for line in lines if kind_of(line) == kind and name in line["metadata"]]
        if not chosen:
            return None
        random.choice(chosen).pop(name)
        return lines

    return forge


def _another(value: Any, random: Random) -> Any:
    """A value of the same type that differs a little."""
    if isinstance(value, bool) or value is None:
        return "other"
    if isinstance(value, int):
        return max(value + random.choice((1, 1, -1, 97)), 0)
    if isinstance(value, float):
        return round(value + random.choice((0.000001, 1.0, 40.0)), 6)
    if isinstance(value, str):
        return value + "x" if not value or random.random() < 0.5 else value[:-1] + ("0" if value[-1] != "0" else "1")
    if isinstance(value, list):
        return [*value, "invented"]
    return {**value, "invented": 1}
