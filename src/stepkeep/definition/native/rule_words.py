"""What rules that are programs, and versions of flows, ask of a worker, as words among the capabilities of a queue.

A worker has the word of a handler if the handler is registered, that of commands if it may run them, and that of a
version if it has this version of the flow. The front ends write the words; the worker, `explain` and the command line
read them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from stepkeep.definition.secrets import CAPABILITY, secret_capability, secrets_read
from stepkeep.kernel.definition import Handler, Rule
from stepkeep.kernel.plan import FLOW

HANDLER: Final = "handler:"
COMMANDS: Final = "runs:commands"
VERSION: Final = "version:"
"""A worker declares its version by the capability `version:2.5`; a step that needs at least 2.1 needs `version:2.1`."""


def has_word(capabilities: Collection[str], word: str) -> bool:
    """Whether a worker with these capabilities has this one. A version is had by every later one.

    >>> has_word({"gpu", "version:2.10"}, "version:2.9"), has_word({"version:2.10"}, "gpu")
    (True, False)
    """
    if not word.startswith(VERSION):
        return word in capabilities
    wanted = _parts(word)
    return any(_parts(one) >= wanted for one in capabilities if one.startswith(VERSION))


def _parts(word: str) -> tuple[tuple[int, int, str], ...]:
    """The parts of a version, so that 2.10 is later than 2.9, and 2.0 later than 2.0-beta."""
    said = word.removeprefix(VERSION).lstrip("v").split("+")[0]
    number, _, before = said.partition("-")
    parts = [(1, int(one), "") if one.isdecimal() else (0, 0, one) for one in number.split(".")]
    while len(parts) > 1 and parts[-1] == (1, 0, ""):
        parts.pop()
    return (*parts, (0, 0, before)) if before else (*parts, (0, 1, ""))


def rule_capabilities(rules: Iterable[Rule]) -> set[str]:
    """The words of these rules, with those of the secrets that they read."""
    words: set[str] = set()
    for rule in rules:
        program = rule.program
        if program is msgspec.UNSET:
            continue
        texts = [None if rule.inputs is msgspec.UNSET else rule.inputs]
        if isinstance(program, Handler):
            words.add(f"{HANDLER}{program.name}")
        else:
            words.add(COMMANDS)
            texts += [list(program.argv), program.env, program.cwd]
        words.update(secret_capability(name) for name in secrets_read(texts))
    return words


def handlers_among(capabilities: Iterable[str]) -> tuple[str, ...]:
    """The handlers of rules among the capabilities of a queue."""
    return tuple(word.removeprefix(HANDLER) for word in capabilities if word.startswith(HANDLER))


def flow_version(capabilities: Iterable[str]) -> int | None:
    """The version of a flow among the capabilities of its queue; None if any will do.

    >>> flow_version(["gpu", "flow-version:2"])
    2
    """
    return next((int(word.removeprefix(FLOW)) for word in capabilities if word.startswith(FLOW)), None)


def given_words(capabilities: Iterable[str]) -> list[str]:
    """The capabilities that a worker is given; the others follow from its handlers, policies and secrets."""
    return [word for word in capabilities if word != COMMANDS and not word.startswith((HANDLER, CAPABILITY, FLOW))]


def in_words(capabilities: Iterable[str]) -> str:
    """What a queue asks of a worker besides its executor, for people."""
    own = {HANDLER: "the rule's handler ", CAPABILITY: "secret ", FLOW: "its version "}
    told = []
    for word in capabilities:
        prefix = next((known for known in own if word.startswith(known)), "")
        told.append("commands" if word == COMMANDS else own.get(prefix, "") + word.removeprefix(prefix))
    return ", ".join(told)
