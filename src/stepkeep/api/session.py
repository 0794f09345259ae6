"""The session of a browser: sign in with a key, see whose session it is, sign out.

The key is sent once and kept nowhere in the browser. The cookie that replaces it cannot be read by scripts.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from starlette.requests import Request

from stepkeep.api.access import ANY_KEY, OPEN, credential_of
from stepkeep.api.browsers import cookie_of
from stepkeep.api.handwritten import Body, Routes
from stepkeep.api.problems import UNAUTHENTICATED, ApiError
from stepkeep.api.routing import JsonAnswer, service_of
from stepkeep.operations.answers import Answer
from stepkeep.operations.sessions import SessionAccess, SessionView, session_view, sign_in, sign_out

routes = Routes("Sessions")

NOBODYS_KEY = "sk_0123456789abcdef_" + "A" * 43


class SignIn(Body, frozen=True):
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
