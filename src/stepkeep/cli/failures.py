"""Turns errors into text and an exit status: what happened, to which thing, what to do next. Never a traceback.

Pure: from an exception to a value. `main` prints it, as text on standard error or as JSON on standard output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import typer
from msgspec.structs import asdict

from stepkeep.cli.printer import BAD_USAGE, FAILED
from stepkeep.cli.settings import SHARED_OPTIONS
from stepkeep.edges.safe_text import exception_message, exception_text, type_name
from stepkeep.kernel.errors import (
    Broken,
    Conflict,
    Contended,
    DefinitionChanged,
    DefinitionError,
    ExpressionError,
    InvalidInput,
    KeyReused,
    NotAllowed,
    PermissionDenied,
    Refused,
    SchemaMismatch,
    StepkeepError,
    StoreError,
    StoreUnavailable,
    Unreadable,
)


class Failure(NamedTuple):
    """An error as a command reports it."""

    status: int
    code: str
    message: str
    more: dict[str, Any]

    def as_json(self) -> Mapping[str, object]:
        return {"error": {"code": self.code, "message": self.message, **self.more}}


def failure_of(error: BaseException) -> Failure:
    """The text for an error, and the exit status."""
    if isinstance(error, DefinitionError):
        return Failure(BAD_USAGE, "definition", _said(error), {"problems": [asdict(p) for p in error.problems]})
    if isinstance(error, ExpressionError):
        return Failure(BAD_USAGE, "expression", _said(error), {})
    if isinstance(error, Refused):
        status = BAD_USAGE if isinstance(error, InvalidInput) else FAILED
        more: dict[str, Any] = {}
        if isinstance(error, Conflict) and error.winner is not None:
            more = {"winner": dict(error.winner)}
        elif isinstance(error, KeyReused) and error.earlier:
            more = {"earlier": dict(error.earlier)}
        elif isinstance(error, NotAllowed):
            more = {"rule": error.rule, "person": error.person}
        return Failure(status, error.code, _said(error), more)
    if isinstance(error, StepkeepError):
        return Failure(FAILED, _code(error), _said(error), {})
    if isinstance(error, typer.TyperException):
        return Failure(BAD_USAGE, "usage", _usage(error), {})
    return Failure(FAILED, "unexpected", exception_text(error), {})


def _said(error: BaseException) -> str:
    return exception_message(error) or type_name(error)


def _code(error: StepkeepError) -> str:
    for kind, code in (
        (StoreUnavailable, "store_unavailable"),
        (SchemaMismatch, "schema_mismatch"),
        (DefinitionChanged, "definition_changed"),
        (PermissionDenied, "permission_denied"),
        (Contended, "contended"),
        (StoreError, "store"),
        (Unreadable, "unreadable"),
        (Broken, "broken"),
    ):
        if isinstance(error, kind):
            return code
    return "error"


def _usage(error: typer.TyperException) -> str:
    formatted = getattr(error, "format_message", None)
    said = str(formatted() if formatted is not None else error) or "Say which command"
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if option in SHARED_OPTIONS and context is not None:
        return f"{option} goes behind the command: {context.command_path} COMMAND {option} …"
    said = said if said.endswith((".", "?")) else f"{said}."
    return f"{said} See {context.command_path} --help." if context is not None else said
