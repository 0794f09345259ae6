"""Finds a dialect by its name or by the content of a document, and loads definitions in any dialect.

Front ends are imported on first use; `judged` imports a dialect's machines alone. The engine and the command line load
every definition through this module. The native format is the one that no dialect claims.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepkeep.dialects.dialect import Dialect, JudgedDialect
from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import DefinitionError, InvalidInput

if TYPE_CHECKING:
    from stepkeep.definition.native.reader import CheckReport
    from stepkeep.definition.python.registry import Registry
    from stepkeep.definition.text.document import Document
    from stepkeep.kernel.definition import Definition

NATIVE = "native"

PACKAGES = {
    "ioa": "stepkeep.dialects.ioa",
    "run": "stepkeep.dialects.run",
    "linear": "stepkeep.dialects.linear",
    "action": "stepkeep.dialects.action",
    "workstream": "stepkeep.dialects.workstream",
}
"""The package of each dialect, in the order of the seeds. It has `machine.JUDGED`, `front.FRONT`, `words.WORDS` and
`schema.json`; importing the package itself loads nothing."""


def names() -> tuple[str, ...]:
    """The names of all dialects, without the native format."""
    return tuple(name for name, package in PACKAGES.items() if _is_there(package))


def _is_there(package: str) -> bool:
    return find_spec(package) is not None and find_spec(f"{package}.machine") is not None


def dialect(name: str) -> Dialect:
    """A dialect with its front end and its shapes; InvalidInput if there is none of this name."""
    return _assembled(_package(name))


@cache
def _assembled(package: str) -> Dialect:
    schema = json.loads(files(package).joinpath("schema.json").read_text(encoding="utf-8"))
    judged = import_module(f"{package}.machine").JUDGED
    front, words = import_module(f"{package}.front").FRONT, import_module(f"{package}.words").WORDS
    return Dialect(judged=judged, front=front, words=words, schema=schema)


def judged(name: str) -> JudgedDialect:
    """A dialect's machines and invariants; its front end is not imported."""
    found = import_module(f"{_package(name)}.machine").JUDGED
    assert isinstance(found, JudgedDialect)
    return found


def recognise(data: Any) -> str:
    """The dialect that a document is written in; the native one when no other claims it.

    >>> recognise({"workflow": "hello", "steps": []})
    'native'
    """
    if isinstance(data, dict) and "workflow" in data and "steps" in data:
        return NATIVE
    claimed = [name for name in names() if dialect(name).front.recognises(data)]
    if len(claimed) > 1:
        raise InvalidInput(f"This could be {' or '.join(claimed)}. Say which one it is with --as.")
    return claimed[0] if claimed else NATIVE


def check_file(path: str | Path, handlers: Registry | None = None, as_: str | None = None) -> CheckReport:
    """Every problem and warning of a file in any dialect. Never raises for its content."""
    from stepkeep.definition.native.reader import CheckReport
    from stepkeep.definition.text.document import read_document

    _known(as_)
    try:
        document = read_document(path)
    except DefinitionError as error:
        return CheckReport(definition=None, problems=error.problems)
    return examine(document, handlers, as_)


def load_file(path: str | Path, handlers: Registry | None = None, as_: str | None = None) -> Definition:
    """The definition in a file in any dialect, or DefinitionError with every problem in it."""
    from stepkeep.definition.native.reader import accepted

    return accepted(check_file(path, handlers, as_))


def examine(
    document: Document, handlers: Registry | None = None, as_: str | None = None, *, all_known: bool = True
) -> CheckReport:
    """Check a parsed document, in the named dialect or in the recognised one.

    `all_known` means that `handlers` is complete; the dialects take no other.
    """
    from stepkeep.definition.native import reader as native

    try:
        name = as_ or recognise(document.data)
    except InvalidInput as ambiguous:
        return native.CheckReport(definition=None, problems=(document.problem((), str(ambiguous)),))
    if name == NATIVE:
        return native.examine(document.data, document, handlers, all_known=all_known)
    report = dialect(name).front.examine(document.data, document, handlers if all_known else None)
    assert isinstance(report, native.CheckReport)
    return report


def _known(name: object) -> None:
    if name is not None and not (isinstance(name, str) and name == NATIVE):
        _package(name)


def _package(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"a dialect is named by a text, not by a value of type {type_name(name)}. {_choose()}")
    if name in names():
        return PACKAGES[name]
    from stepkeep.definition.text.document import nearest

    known = (NATIVE, *names())
    meant = nearest(name, known)
    hint = f" Did you mean {meant}?" if meant else ""
    if name == NATIVE:
        raise InvalidInput(f"native is the canonical format itself and has no words of its own. {_choose()}")
    raise InvalidInput(f"there is no dialect {name!r}.{hint} {_choose()}")


def _choose() -> str:
    return f"Choose from {', '.join(names())}."
