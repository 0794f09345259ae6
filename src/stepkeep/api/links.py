"""One-time links that sign a browser in: `stepkeep dev` prints one, so that no key is typed or stays in an address.

The code is in the fragment of the address, which browsers send to no server and servers log nowhere. It works once,
for a few minutes, in the process that made it. `dev` makes codes; the page exchanges one for a session.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from pydantic import ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.bodies import Body
from stepkeep.api.problems import UNAUTHENTICATED, ApiError
from stepkeep.api.routing import Answer, answers, problem_responses, router, service_of
from stepkeep.api.session import SessionView, SignIn, create_session

routes = router("Sessions")

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


class Code(Body):
    """The code of a link."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"code": "A" * 43}]})

    code: str = Field(max_length=200)


@routes.post(
    "/session/link",
    operation_id="sign_in_by_link",
    summary="Sign in with a one-time link",
    status_code=201,
    response_model=None,
    responses={**answers(SessionView, status=201, says="Signed in"), **problem_responses(401, 403, 429)},
)
async def use_link(request: Request, body: Code) -> Answer:
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
