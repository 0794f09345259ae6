"""Finds texts in a definition that look like secrets: a definition is stored, shown and exported.

It judges by names (`password`, `Authorization`) and by the known forms of keys, and never quotes what it found. `lint`
calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from stepkeep.definition.expressions.template_text import OPENING
from stepkeep.definition.findings import Finding, Path, texts_in
from stepkeep.definition.native.checks import rules_of
from stepkeep.definition.native.written import RuleBlock, StepBlock, UndoBlock

SHORTEST = 8
HINT = "Write `${{ secret.NAME }}` and give the value to the worker: it is then stored nowhere."

_NAMES = re.compile(
    r"passw(or)?d|passphrase|secret|token|api.?key|private.?key|credential|^authorization$", re.IGNORECASE
)
_FORMS = re.compile(
    r"\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{20,}|xox[abpr]-[A-Za-z0-9-]{10,}|[rs]k_live_[A-Za-z0-9]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


def literal_secrets(step: StepBlock, path: Path) -> Iterator[Finding]:
    """One finding for each text of a step and its undo that looks like a secret."""
    blocks: list[tuple[Path, StepBlock | UndoBlock | RuleBlock]] = [(path, step)]
    if step.undo is not None:
        blocks.append(((*path, "undo"), step.undo))
    blocks += [((*path, key, place), rule) for key, rules in rules_of(step).items() for place, rule in enumerate(rules)]
    for at, block in blocks:
        parts: dict[str, Any] = {"with": block.with_}
        if block.command is not None:
            parts["command"] = {"argv": block.command.argv, "env": block.command.env}
        if not isinstance(block, RuleBlock) and block.http is not None:
            parts["http"] = {"url": block.http.url, "headers": block.http.headers, "body": block.http.body}
        for where, name in _suspicious(parts):
            said = f"`{name}` of step `{step.name}` looks like a secret, and a definition is stored and shown."
            yield Finding((*at, *where), said, HINT)


def _suspicious(value: Any) -> Iterator[tuple[Path, str]]:
    for path, part in texts_in(value):
        if OPENING not in part and path:
            name = next((str(key) for key in reversed(path) if isinstance(key, str)), "")
            if _FORMS.search(part) or _has_password(part) or (_NAMES.search(name) and _is_value(part)):
                yield path, name


def _is_value(text: str) -> bool:
    """Whether a text may be a secret: one word, perhaps behind a scheme such as Bearer, and not short."""
    words = text.split(" ")
    return len(words) <= 2 and len(words[-1]) >= SHORTEST


def _has_password(text: str) -> bool:
    if "://" not in text:
        return False
    try:
        return bool(urlsplit(text).password)
    except ValueError:
        return False
