"""Checks and converts what callers pass to an engine: payloads, keys, durations, moments, states.

Each function returns the value that an operation takes, or raises InvalidInput with what to pass instead. It calls no
operation. The engine calls it, and the test workbench for payloads.
"""

from __future__ import annotations

import getpass
import os
from datetime import datetime
from typing import Any

from stepkeep.definition import arguments
from stepkeep.definition.durations import InvalidDuration, parse_duration
from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.states import RunState
from stepkeep.operations import validate
from stepkeep.operations.typed import LargePart
from stepkeep.worker.attempts.payloads import Unstorable, encode

LARGEST_PAYLOAD_BYTES = 512 * 1024 * 1024
"""What `max_payload_bytes` may be at most: a database sends a value as a whole."""


def encode_payload(value: Any) -> bytes:
    """The JSON of a caller's value; refused if it cannot be stored."""
    if type(value) is LargePart:
        if value.problem:
            raise InvalidInput(value.problem)
        return value.json
    try:
        return encode(value, what="what was passed", limit=LARGEST_PAYLOAD_BYTES)
    except Unstorable as problem:
        raise InvalidInput(str(problem)) from problem


def current_user() -> str:
    """The operating system's name of the user of this process; a container may have no entry for it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid:{os.getuid()}"


def optional_key(what: str, value: object) -> str | None:
    """A key, if one is given."""
    return None if value is None else validate.key(what, value)


def encode_labels(labels: object) -> bytes | None:
    """The JSON of labels; None if there are none."""
    checked = validate.labels(labels)
    return encode_payload(checked) if checked else None


def duration(what: str, text: str) -> int:
    """A duration as definitions write it, in microseconds."""
    try:
        return parse_duration(text)
    except InvalidDuration as problem:
        raise InvalidInput(f"{what}: {problem}") from None


def moment(what: str, given: object) -> int | None:
    """A time with a zone in microseconds since 1970."""
    if given is None:
        return None
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidInput(f"{what} is a datetime with a time zone, not {arguments.shown(given)}.")
    return int(given.timestamp() * 1_000_000)


def run_states(given: object) -> tuple[RunState, ...]:
    """One state or several, by name; an unknown name is refused, because it would silently find nothing."""
    named = [given] if isinstance(given, str) else arguments.items("runs: state", given)
    for one in named:
        if not isinstance(one, str) or one not in list(RunState):
            known = ", ".join(RunState)
            raise InvalidInput(f"runs: {arguments.shown(one)} is no state of a run. Choose from {known}.")
    return tuple(RunState(one) for one in named)


def looks_like_a_file(text: str) -> bool:
    """Whether a text is the path of a definition file, not the name of a workflow."""
    return text.endswith((".yaml", ".yml", ".json"))
