"""Messages of the checks in the words of the Python front end: `inputs=` instead of `with`, `after=` for `depends_on`.

The checks speak the words of YAML, which is the format they check. This is a table; it decides nothing. `python` calls
it for every problem of a workflow that was written in Python.
"""

from __future__ import annotations

import re
from typing import Any

from stepkeep.definition.findings import Path
from stepkeep.definition.text.document import nearest

WORDS = {
    "with": "inputs=",
    "depends_on": "after=",
    "if": "if_=",
    "not": "not_=",
    "uses": "step()",
    "http.body": "body=",
}
"""The words of YAML that Python writes differently, as they stand in backquotes."""

PHRASES = {
    "`retry: {max_attempts: …}`": "`retry=Retry(max_attempts=…)`",
    "true or false": "True or False",
    ", send what its decorator says (`handlers`)": "",
    "`sleep: 2h`, or `sleep: {until: 2026-11-03T10:15Z}`": '`sleep("2h")`, or `sleep(until="2026-11-03T10:15Z")`',
    "`completion: {mode: manual, deadline: 24h}`": '`completion={"mode": "manual", "deadline": "24h"}`',
    "Steps are named as in `name:`.": "Steps have the names of their calls.",
}


def _option_of(found: re.Match[str]) -> str:
    value = found[2] if found[2].isdigit() else f'"{found[2]}"'
    return f"`{WORDS.get(found[1], found[1]).removesuffix('=')}={value}`"


FORMS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (
        re.compile(r"(?:Depend on|Say) `\{step: ([^`]+), allow: \[skipped\]\}`"),
        r'Write `after=STEP.allow("skipped")` for `\1`',
    ),
    (re.compile(r"`workflow: \{name: [^`,]+, deadline: 1h\}`"), '`deadline="1h"`'),
    (re.compile(r"`\$\{\{ has\(steps\[[^`]+ : null \}\}`"), "`STEP.output.or_(None)`"),
    (re.compile(r"`(\w+): (\w+)`"), _option_of),
)
"""Forms of YAML, and what Python writes for them."""

OPTIONS = (
    "after",
    "capabilities",
    "compensate_when",
    "completion",
    "description",
    "effect",
    "hold",
    "if_",
    "input_schema",
    "inputs",
    "limits",
    "on_exhausted",
    "on_failure",
    "order",
    "output_schema",
    "post",
    "pre",
    "queue",
    "resources",
    "retry",
    "rules",
    "timeout",
    "transactional",
    "undo",
)

OTHER_WORDS = {
    "with": "inputs",
    "with_": "inputs",
    "input": "inputs",
    "args": "inputs",
    "kwargs": "inputs",
    "if": "if_",
    "when": "if_",
    "condition": "if_",
    "depends_on": "after",
    "needs": "after",
    "requires": "after",
    "compensate": "undo",
    "compensation": "undo",
    "retries": "retry",
    "retry_policy": "retry",
}
"""What other engines, and YAML, call an option."""

_UNKNOWN_KEY = re.compile(r"There is no key `(.+?)=?` here\.")
_QUOTED = re.compile(r"`([^`]+)`")


def in_python(path: Path, message: str, hint: str) -> tuple[str, str]:
    """A message and its hint for a workflow that was written in Python.

    >>> in_python(("steps", 0, "when"), "There is no key `when` here.", "Write `if`.")
    ('There is no option `when=` here.', 'Write `if_=`.')
    >>> in_python((), "Step `b` reads `a`.", "Add `a` to its `depends_on`, or read an earlier step.")
    ('Step `b` reads `a`.', 'Add `a` to its `after=`, or read an earlier step.')
    """
    unknown = _UNKNOWN_KEY.fullmatch(message)
    if unknown is not None and len(path) == 3 and path[0] == "steps":
        return f"There is no option `{unknown[1]}=` here.", _option(unknown[1])
    return _said(message), _said(hint)


def _option(name: str) -> str:
    meant = OTHER_WORDS.get(name)
    if meant is not None:
        return f"Write `{meant}=`."
    found = nearest(name, OPTIONS)
    return f"Did you mean `{found}=`?" if found else f"Options: {', '.join(OPTIONS)}."


def _said(text: str) -> str:
    for written, ours in PHRASES.items():
        text = text.replace(written, ours)
    for form, ours in FORMS:
        text = form.sub(ours, text)
    return _QUOTED.sub(lambda found: f"`{WORDS.get(found[1], found[1])}`", text)
