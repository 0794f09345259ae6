"""Comparisons of versions and of runs as text. Pure, from a view to lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from stepkeep.edges.redaction import hide_secrets

INDENT = "    "
LONGEST = 100
SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def version_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two versions, and what it means for runs."""
    old, new = view["from"], view["to"]
    yield f"{old['workflow']}: version {old['version']} → {new['version']}"
    if view["same"]:
        yield "nothing differs but the number of the version"
        return
    for one in view["workflow"]:
        yield from (f"~ {line}" for line in _places(one))
    for step in view["steps"]:
        yield f"{SIGNS[step['change']]} step {step['name']}"
        for one in step["differences"]:
            yield from (f"{INDENT}{line}" for line in _places(one))
    yield ""
    yield from view["consequences"]
    if "live" in view:
        yield from _live(view["live"])


def _live(live: Mapping[str, Any]) -> Iterator[str]:
    least = "" if live["is_complete"] else "at least "
    said = f"{live['could_continue']} could continue, {live['must_stay']} must stay"
    yield f"live runs of the old version: {least}{live['examined']}; {said}"
    for one in live["reasons"]:
        yield f"{INDENT}{one['runs']} × {one['reason']}"
    for one in live["examples"]:
        yield f"{INDENT}{one['run_id']}: {one['reasons'][0]}"


def run_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two runs."""
    yield f"{view['first']} → {view['second']}"
    if view["same"]:
        yield "nothing differs but ids and times"
    for one in view["run"]:
        yield f"~ {_pair(one, 'first', 'second')}"
    for step in view["steps"]:
        if step["only_in"] is not None:
            yield f"{'-' if step['only_in'] == 'first' else '+'} step {step['name']}"
            continue
        yield f"~ step {step['name']}"
        for one in step["differences"]:
            yield f"{INDENT}{_pair(one, 'first', 'second')}"


def attempt_lines(view: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two attempts of a step."""
    first, second = view["attempts"]
    yield f"step {view['step']} of {view['run_id']}: attempt {first} → attempt {second}"
    if view["same"]:
        yield "nothing differs but times"
    for one in view["differences"]:
        yield f"~ {_pair(one, 'first', 'second')}"
    code = {True: "the same code ran both", False: "other code ran", None: "which code ran is not known"}
    yield code[view["same_code"]]


def _places(one: Mapping[str, Any]) -> Iterator[str]:
    return (f"{place['place']}: {place['old']} → {place['new']}" for place in one["places"])


def _pair(one: Mapping[str, Any], before: str, after: str) -> str:
    return f"{one['field']}: {_shown(one.get(before))} → {_shown(one.get(after))}"


def _shown(value: Any) -> str:
    said = json.dumps(hide_secrets(value), ensure_ascii=False)
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
