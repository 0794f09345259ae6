"""The session of a browser: sign in with a key, see whose session it is, sign out.

The key is sent once and kept nowhere in the browser. The cookie that replaces it cannot be read by scripts.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from stepkeep.api.access import credential_of
from stepkeep.api.bodies import Body
from stepkeep.api.browsers import cookie_of
from stepkeep.api.problems import UNAUTHENTICATED, ApiError
from stepkeep.api.routing import Answer, answers, problem_responses, router, service_of
from stepkeep.operations.sessions import SessionAccess, session_view, sign_in, sign_out

routes = router("Sessions")

NOBODYS_KEY = "sk_0123456789abcdef_" + "A" * 43


class SignIn(Body):
    """The key to open."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": NOBODYS_KEY}]})

    key: str = Field(max_length=200, description="A whole key, as it was shown once.")


class SessionView(BaseModel):
    """Whose session it is, and what it may do."""

    principal: str
    tenant: str
    scopes: list[str]
    csrf: str | None = Field(
        description="The value of `X-CSRF-Token`; null for a caller with a key instead of a session."
    )
    expires_at: datetime | None


class Ended(BaseModel):
    """Whether there was a session to end."""

    ended: bool


@routes.post(
    "/session",
    operation_id="sign_in",
    summary="Sign in with a key",
    status_code=201,
    response_model=None,
    responses={**answers(SessionView, status=201, says="Signed in"), **problem_responses(401, 403, 429)},
)
async def create_session(request: Request, body: SignIn) -> Answer:
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
    made, row = await sign_in(caller.engine.store, key, lifetime=browsers.lifetime_us)
    answer = Answer(session_view(caller.access, made, row), 201)
    browsers.set_cookie(request, answer, made)
    return answer


@routes.get(
    "/session",
    operation_id="get_session",
    summary="Whose session is it?",
    response_model=None,
    responses=answers(SessionView),
)
async def show_session(request: Request) -> Answer:
    """With a key instead of a session it tells about the key."""
    access = request.state.caller.access
    if isinstance(access, SessionAccess):
        return Answer(session_view(access, cookie_of(request), access.session))
    return Answer(session_view(access, None, None))


@routes.delete("/session", operation_id="sign_out", summary="Sign out", response_model=None, responses=answers(Ended))
async def end_session(request: Request) -> Answer:
    """The session ends at once in this process, within a second in others. The key stays."""
    service, access = service_of(request), request.state.caller.access
    if not isinstance(access, SessionAccess):
        return Answer({"ended": False})
    await sign_out(request.state.caller.engine.store, access)
    service.callers.forget()
    answer = Answer({"ended": True})
    service.browsers.clear_cookie(request, answer)
    return answer
