"""One-time links that sign a browser in: `stepkeep dev` prints one, so that no key is typed or stays in an address.

The code is in the fragment of the address, which browsers send to no server and servers log nowhere. It works once,
for a few minutes, in the process that made it. `dev` makes codes; the page exchanges one for a session.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta
from starlette.requests import Request

from stepkeep.api.access import OPEN
from stepkeep.api.handwritten import Body, Routes
from stepkeep.api.problems import UNAUTHENTICATED, ApiError
from stepkeep.api.routing import JsonAnswer, service_of
from stepkeep.api.session import SignIn, create_session
from stepkeep.operations.sessions import SessionView

routes = Routes("Sessions")

LINK_SECONDS: Final = 600.0
MOST_LINKS: Final = 100


class Links:
    """The codes of this process that were not used yet, each with the key that it stands for."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._keys: dict[str, tuple[str, float]] = {}

    def make(self, key: str) -> str:
        """A new code for this key. The oldest codes are forgotten when there are too many."""
        code = secrets.token_urlsafe(32)
        self._keys[code] = (key, self._monotonic() + LINK_SECONDS)
        while len(self._keys) > MOST_LINKS:
            del self._keys[next(iter(self._keys))]
        return code

    def take(self, code: str) -> str | None:
        """The key of a code, once; None for a code that is unknown, used or too old."""
        key, ends = self._keys.pop(code, ("", 0.0))
        return key if self._monotonic() < ends else None


class Code(Body, frozen=True):
    """The code of a link."""

    code: Annotated[str, Meta(max_length=200)]


@routes(
    "POST /session/link",
    OPEN,
    "sign_in_by_link",
    "Sign in with a one-time link",
    status=201,
    done="Signed in",
    answers=SessionView,
    problems=(401, 403, 429),
    example={"code": "A" * 43},
)
async def use_link(request: Request, body: Code) -> JsonAnswer:
    """Like `POST /session`, with the code of a link that `stepkeep dev` printed. A code works once."""
    service = service_of(request)
    service.browsers.check_origin(request)
    address = f"address {request.client.host if request.client else ''}"
    service.browsers.attempts.check([address])
    key = service.links.take(body.code)
    if key is None:
        service.browsers.attempts.failed([address])
        raise ApiError(UNAUTHENTICATED, "This link was used before, or is too old. Sign in with a key.")
    return await create_session(request, SignIn(key=key))
