"""Maps an exception from user code to a category, with one table that is read from top to bottom.

Network errors are transient, an HTTP status has its own category, and a StepError names one. Everything else is
`unknown`, ValueError and TypeError included: these come from a bad answer of another service as often as from bad
input, and only the author can tell (with `fail` or StepError). Unknown errors are retried by default.

Nothing here raises. Attributes and texts of an exception are user code and may raise. An exception whose attributes
cannot be read is `unknown`; one that cannot be printed is named by its type.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from stepkeep.definition.bounds import DELAY
from stepkeep.edges.safe_text import class_name, exception_message, exception_text, is_a, plain_text, type_name
from stepkeep.kernel.errors import ExpressionError, InvalidInput, StoreUnavailable
from stepkeep.kernel.machine.outcomes import Failed
from stepkeep.kernel.machine.states import Category, ErrorClass
from stepkeep.worker.answers import StepError
from stepkeep.worker.attempts.payloads import Unstorable, storable_text

SECOND = 1_000_000
MAX_RETRY_AFTER = 24 * 3600

_NETWORK = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.ETIMEDOUT,
    }
)
# Transport errors of HTTP clients are recognised by name, so that no client is imported.
_TRANSPORT = frozenset(
    {"TransportError", "ClientConnectionError", "ClientPayloadError", "ConnectTimeout", "ReadTimeout"}
)
_TRANSIENT_STATUS = frozenset({408, 425, 429})


class BindingError(Exception):
    """The inputs do not match the handler's parameters; another attempt would not change that."""


def failure_of(raised: BaseException, *, otherwise: Category = Category.UNKNOWN) -> Failed:
    """The outcome of an attempt that raised this; `otherwise` is the category of unknown errors."""
    try:
        return _failure_of(raised, otherwise)
    except BaseException:  # noqa: BLE001 - user code in the exception: what is left of it is the name of its type
        return Failed(category=otherwise, error=f"{storable_text(type_name(raised))} (it cannot be read)")


def _failure_of(raised: BaseException, otherwise: Category) -> Failed:
    if is_a(raised, StepError):
        return _as_it_says(raised)
    if is_a(raised, Unstorable) and otherwise is Category.AGENT:
        return Failed(category=otherwise, error=_message(raised))
    if is_a(raised, BindingError, Unstorable, InvalidInput):
        return Failed(category=Category.VALIDATION, error=_message(raised), final=True)
    if is_a(raised, ExpressionError):
        return Failed(category=Category.VALIDATION, error=storable_text(f"inputs: {_message(raised)}"), final=True)
    status, retry_after = _http_status(raised)
    if status is not None:
        category = category_of_status(status)
        delay = parse_retry_after(retry_after) if category is Category.TRANSIENT else None
        return Failed(category=category, error=_text(raised), delay=delay, error_class=class_of_status(status))
    if _is_network(raised):
        return Failed(category=Category.TRANSIENT, error=_text(raised), error_class=ErrorClass.TRANSPORT)
    return Failed(category=otherwise, error=_text(raised))


def _as_it_says(raised: BaseException) -> Failed:
    """The outcome that a StepError asks for. A subclass may have replaced any attribute, so each is checked again."""
    category, delay, final = (_attribute(raised, name) for name in ("category", "delay", "final"))
    wrong = []
    if type(category) is not Category:
        wrong.append("category")
        category = Category.UNKNOWN
    if delay is not None and (type(delay) is not int or not DELAY[0] <= delay <= DELAY[1]):
        wrong.append("delay")
        delay = None
    if type(final) is not bool:
        wrong.append("final")
        final = False
    error_class = _attribute(raised, "error_class")
    if error_class is not None and type(error_class) is not ErrorClass:
        wrong.append("error class")
        error_class = None
    said = _message(raised)
    if wrong:
        said = storable_text(f"{said} (the {' and '.join(wrong)} of this {type_name(raised)} cannot be used)")
    return Failed(category=category, error=said, delay=delay, final=final, error_class=error_class)


def category_of_status(status: int) -> Category:
    """The category of an HTTP status that is not a success."""
    if status in _TRANSIENT_STATUS or status >= 500:
        return Category.TRANSIENT
    if status in (401, 403):
        return Category.AUTH
    if status == 409:
        return Category.CONFLICT
    return Category.VALIDATION


def class_of_status(status: int) -> ErrorClass | None:
    """The error class of an HTTP status; None for one that no retry changes."""
    if status == 429:
        return ErrorClass.RATE_LIMIT
    if status >= 500:
        return ErrorClass.SERVER_ERROR
    # A request that did not arrive in time, or came too early: the application did not answer.
    return ErrorClass.TRANSPORT if status in _TRANSIENT_STATUS else None


def parse_retry_after(value: str | None) -> int | None:
    """The delay that a server asked for, in microseconds. Only seconds are read: a date would depend on the server's
    clock."""
    if value is None or not value.strip().isascii() or not value.strip().isdigit():
        return None
    return min(int(value.strip()[:9]), MAX_RETRY_AFTER) * SECOND


def _text(raised: BaseException) -> str:
    return storable_text(exception_text(raised))


def _message(raised: BaseException) -> str:
    """The message of an exception; with its type if it has none."""
    return storable_text(exception_message(raised) or exception_text(raised))


def _attribute(value: object, name: str) -> Any:
    """An attribute that user code may compute; None if it is missing or raises."""
    try:
        return getattr(value, name, None)
    except BaseException:  # noqa: BLE001 - a property or `__getattr__` of user code
        return None


def _is_network(raised: BaseException) -> bool:
    if is_a(raised, TimeoutError, ConnectionError, socket.gaierror, StoreUnavailable):
        return True
    if is_a(raised, OSError):
        number = _attribute(raised, "errno")
        if type(number) is int and number in _NETWORK:
            return True
    return any(class_name(kind) in _TRANSPORT for kind in type.__dict__["__mro__"].__get__(type(raised)))


def _http_status(raised: BaseException) -> tuple[int | None, str | None]:
    try:
        response = _attribute(raised, "response")
        status = _attribute(response, "status_code") or _attribute(raised, "status")
        if not is_a(status, int) or is_a(status, bool):
            return None, None
        # A plain number: a subclass such as HTTPStatus may override comparison.
        number = int.__add__(status, 0)
        if not 400 <= number <= 599:
            return None, None
        return number, _retry_after(_attribute(response, "headers") or _attribute(raised, "headers"))
    except BaseException:  # noqa: BLE001 - truth and comparison are user code as well
        return None, None


def _retry_after(headers: Any) -> str | None:
    try:
        asked = None if headers is None else headers.get("Retry-After") or headers.get("retry-after")
        return plain_text(asked)
    except BaseException:  # noqa: BLE001 - the status alone still says what to do
        return None
