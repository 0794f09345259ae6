"""Which category an exception from user code belongs to: one table, read from top to bottom.

Network trouble is transient, an HTTP status says its own, a StepError says what it is. Everything else stays
`unknown`, ValueError and TypeError too: they as often stem from a bad answer of a flaky neighbour as from a mistake in
the input, and only the author can tell (`fail` and StepError do). Unknown errors are retried by default.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

from stepkeep.errors import ExpressionError, InvalidInput, StoreUnavailable
from stepkeep.kernel.outcomes import Failed
from stepkeep.kernel.states import Category
from stepkeep.worker.answers import StepError
from stepkeep.worker.payloads import Unstorable, storable_text

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
# HTTP clients have transport errors of their own. They are known by name, so that none of them is imported.
_TRANSPORT = frozenset(
    {"TransportError", "ClientConnectionError", "ClientPayloadError", "ConnectTimeout", "ReadTimeout"}
)
_TRANSIENT_STATUS = frozenset({408, 425, 429})


class BindingError(Exception):
    """The inputs do not fit the handler's parameters; another attempt would fit no better."""


def failure_of(raised: BaseException, *, otherwise: Category = Category.UNKNOWN) -> Failed:
    """What an exception means for the attempt that raised it; `otherwise` is the category of the unknown."""
    if isinstance(raised, StepError):
        return Failed(
            category=raised.category,
            error=storable_text(str(raised)),
            delay=raised.delay,
            final=raised.final,
        )
    if isinstance(raised, BindingError | Unstorable | InvalidInput):
        return Failed(category=Category.VALIDATION, error=storable_text(str(raised)), final=True)
    if isinstance(raised, ExpressionError):
        return Failed(category=Category.VALIDATION, error=storable_text(f"inputs: {raised}"), final=True)
    status, retry_after = _http_status(raised)
    if status is not None:
        category = category_of_status(status)
        delay = parse_retry_after(retry_after) if category is Category.TRANSIENT else None
        return Failed(category=category, error=_text(raised), delay=delay)
    if _is_network(raised):
        return Failed(category=Category.TRANSIENT, error=_text(raised))
    return Failed(category=otherwise, error=_text(raised))


def category_of_status(status: int) -> Category:
    """The category of an HTTP status that is no success (design, section 4)."""
    if status in _TRANSIENT_STATUS or status >= 500:
        return Category.TRANSIENT
    if status in (401, 403):
        return Category.AUTH
    if status == 409:
        return Category.CONFLICT
    return Category.VALIDATION


def parse_retry_after(value: str | None) -> int | None:
    """The pause a server asked for, in microseconds. Only seconds: a date would bring its clock into ours."""
    if value is None or not value.strip().isascii() or not value.strip().isdigit():
        return None
    return min(int(value.strip()[:9]), MAX_RETRY_AFTER) * SECOND


def _text(raised: BaseException) -> str:
    return storable_text(f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__)


def _is_network(raised: BaseException) -> bool:
    if isinstance(raised, TimeoutError | ConnectionError | socket.gaierror | StoreUnavailable):
        return True
    if isinstance(raised, OSError) and raised.errno in _NETWORK:
        return True
    return any(kind.__name__ in _TRANSPORT for kind in type(raised).__mro__)


def _http_status(raised: BaseException) -> tuple[int | None, str | None]:
    response: Any = getattr(raised, "response", None)
    status = getattr(response, "status_code", None) or getattr(raised, "status", None)
    if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
        return None, None
    headers = getattr(response, "headers", None) or getattr(raised, "headers", None) or {}
    asked = headers.get("Retry-After") or headers.get("retry-after")
    return status, asked if isinstance(asked, str) else None
