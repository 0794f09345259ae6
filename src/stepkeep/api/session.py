"""The session of a browser: sign in with a key, see whose session it is, sign out.

The key is sent once and kept nowhere in the browser. The cookie that replaces it cannot be read by scripts. With a
one-time link, which `stepkeep dev` prints, no key is typed: the code is in the fragment of the address, which browsers
send to no server, and works once, for a few minutes, in the process that made it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Annotated, Final

from msgspec import Meta
from starlette.requests import Request

from stepkeep.api.access import ANY_KEY, OPEN, credential_of
from stepkeep.api.browsers import cookie_of
from stepkeep.api.handwritten import RequestBody, Routes
from stepkeep.api.problems import UNAUTHENTICATED, ApiError
from stepkeep.api.routing import JsonAnswer, service_of
from stepkeep.operations.answers import Answer
from stepkeep.operations.people.keys import SessionAccess, SessionView, session_view, sign_in, sign_out

routes = Routes("Sessions")

NOBODYS_KEY = "sk_0123456789abcdef_" + "A" * 43


class SignIn(RequestBody, frozen=True):
    """The key to open."""

    key: Annotated[str, Meta(max_length=200, description="A whole key, as it was shown once.")]


class Ended(Answer, kw_only=True):
    """Whether there was a session to end."""

    ended: bool


@routes(
    "POST /session",
    OPEN,
    "sign_in",
    "Sign in with a key",
    status=201,
    done="Signed in",
    answers=SessionView,
    problems=(401, 403, 429),
    example={"key": NOBODYS_KEY},
)
async def create_session(request: Request, body: SignIn) -> JsonAnswer:
    """Sets the cookie `stepkeep_session`. The session ends with its key, after 12 hours, or by `DELETE /session`."""
    service = service_of(request)
    browsers = service.browsers
    browsers.check_origin(request)
    address = f"address {request.client.host if request.client else ''}"
    browsers.attempts.check([address])
    try:
        credential = credential_of(f"Bearer {body.key.strip()}")
    except ApiError:
        browsers.attempts.failed([address])
        raise
    names = [address, f"key {credential.id}"]
    browsers.attempts.check(names)
    try:
        caller = await service.callers.authenticate(f"Bearer {body.key.strip()}")
    except ApiError as problem:
        if problem.kind is UNAUTHENTICATED:
            browsers.attempts.failed(names)
        await service.callers.note_refusal(None, f"Bearer {body.key.strip()}", "sign_in", "", problem)
        raise
    key = caller.access.key
    assert key is not None, "it was authenticated"
    made, row = await sign_in(caller.store, key, lifetime=browsers.lifetime_us)
    answer = JsonAnswer(session_view(caller.access, made, row), 201)
    browsers.set_cookie(request, answer, made)
    return answer


@routes("GET /session", ANY_KEY, "get_session", "Whose session is it?")
async def show_session(request: Request) -> SessionView:
    """With a key instead of a session it tells about the key."""
    access = request.state.caller.access
    if isinstance(access, SessionAccess):
        return session_view(access, cookie_of(request), access.session)
    return session_view(access, None, None)


@routes("DELETE /session", ANY_KEY, "sign_out", "Sign out", answers=Ended)
async def end_session(request: Request) -> JsonAnswer:
    """The session ends at once in this process, within a second in others. The key stays."""
    service, access = service_of(request), request.state.caller.access
    if not isinstance(access, SessionAccess):
        return JsonAnswer(Ended(ended=False))
    await sign_out(request.state.caller.store, access)
    service.callers.forget()
    answer = JsonAnswer(Ended(ended=True))
    service.browsers.clear_cookie(request, answer)
    return answer


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


class LinkCode(RequestBody, frozen=True):
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
async def use_link(request: Request, body: LinkCode) -> JsonAnswer:
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
