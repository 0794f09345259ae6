"""Logs unexpected exceptions of user code with their traceback; the run keeps only one line without a location.

Only for exceptions that no outcome explains: a refused connection, an HTTP status, `fail` and `retry_in` need no
traceback. The pools call this on the handler's side, where the traceback exists. It raises nothing. The traceback is
formatted here, with a limit, because a log handler that formats an exception runs the exception's own code.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from stepkeep.edges.safe_text import exception_text, inert, inert_line, is_a, type_name
from stepkeep.kernel.errors import ExpressionError
from stepkeep.kernel.machine.outcomes import Failed, Outcome
from stepkeep.kernel.machine.states import Category
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.classify import BindingError
from stepkeep.worker.attempts.payloads import Unstorable

log = logging.getLogger("stepkeep.handler")

_EXPLAINED = (StepError, BindingError, Unstorable, ExpressionError)
_OURS = f"{Path(__file__).parent.parent}/"

MAX_FRAMES = 30
MAX_LINKS = 10
"""How many exceptions of a chain (`raise … from …`) or a group are written out."""
MAX_TEXT = 1_000
MAX_TRACEBACK = 20_000


def is_explained(problem: BaseException) -> bool:
    """Whether the message of an exception says all that its traceback would."""
    return is_a(problem, *_EXPLAINED)


def log_unexpected(
    problem: BaseException, outcome: Outcome, whose: str, otherwise: Category = Category.UNKNOWN
) -> None:
    """Log an exception that became this outcome, unless the outcome explains it. `whose` names the step or handler."""
    if is_explained(problem) or not isinstance(outcome, Failed) or outcome.category is not otherwise:
        return
    # A log handler is user code as well; its exception must not become the attempt's.
    with suppress(BaseException):
        if not log.isEnabledFor(logging.WARNING):
            return
        said = (whose, inert_line(type_name(problem)))
        record = log.makeRecord(log.name, logging.WARNING, __file__, 0, "%s raised %s", said, None, "log_unexpected")
        # Already text: a formatter appends it unchanged and never touches the exception.
        record.exc_text = traceback_text(problem)
        log.handle(record)


def traceback_text(problem: BaseException) -> str:
    """The traceback of any exception from the first line of user code on, with its causes, limited and safe to
    print."""
    try:
        text = "\n".join(_written(problem, 0, [MAX_LINKS]))
    except BaseException:  # noqa: BLE001 - reading source lines may run a loader of user code
        text = exception_text(problem)
    return inert(text, MAX_TRACEBACK)


def _written(problem: BaseException, depth: int, left: list[int]) -> Iterator[str]:
    """One exception, after its causes. Attributes are read like the interpreter does, ignoring overrides."""
    left[0] -= 1
    if left[0] < 0:
        return
    cause, context = _read(problem, "__cause__"), _read(problem, "__context__")
    if is_a(cause, BaseException):
        yield from _written(cause, depth, left)
        yield f"{_margin(depth)}This was the direct cause of:"
    elif is_a(context, BaseException) and not _read(problem, "__suppress_context__"):
        yield from _written(context, depth, left)
        yield f"{_margin(depth)}While this was handled, another exception was raised:"
    trace = user_traceback(_read(problem, "__traceback__"))
    if trace is not None:
        yield f"{_margin(depth)}Traceback (most recent call last):"
        for entry in traceback.StackSummary.extract(traceback.walk_tb(trace), limit=-MAX_FRAMES).format():
            yield f"{_margin(depth)}{entry.rstrip()}"
    yield f"{_margin(depth)}{inert(exception_text(problem), MAX_TEXT)}"
    if is_a(problem, BaseExceptionGroup):
        for inner in BaseExceptionGroup.exceptions.__get__(problem):
            yield from _written(inner, depth + 1, left)


def _margin(depth: int) -> str:
    return "  | " * depth


def _read(problem: BaseException, name: str) -> Any:
    return BaseException.__dict__[name].__get__(problem)


def user_traceback(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first line of user code on; all of it if there is none."""
    theirs = trace
    while theirs is not None and theirs.tb_frame.f_code.co_filename.startswith(_OURS):
        theirs = theirs.tb_next
    return theirs or trace
