"""Errors as answers: RFC 9457 problems, one stable `type` per class of error.

A problem never holds a traceback, a query or an address of the database; those go to the log of the service. The codes
are those of the command line's `--json`. `routing` and `app` call it; a new error class needs a row in `PROBLEMS`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from starlette.responses import Response

from stepkeep.edges.safe_text import exception_message, exception_text, inert
from stepkeep.kernel import errors
from stepkeep.operations.answers import Answer, says
from stepkeep.operations.people.audit import REQUEST
from stepkeep.worker.attempts.secrets import MissingSecret

log = logging.getLogger("stepkeep.api")

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:stepkeep:problem:"
MOST_ERRORS = 100
"""How many single errors of one body are listed."""

KEY_RULES = frozenset(
    {
        *("key_invalid", "key_unknown", "key_revoked", "key_expired"),
        *("session_invalid", "session_ended", "session_expired"),
    }
)
"""Refusals of `NotAllowed` that say that the key or the session does not authenticate. `disabled` means so too, for the
own key."""


class ProblemKind(NamedTuple):
    """One class of problems: its status, code and title. `says` replaces a detail that must not be shown."""

    status: int
    code: str
    title: str
    says: str | None = None
    retry_after: int | None = None

    @property
    def type(self) -> str:
        return f"{TYPE}{self.code}"


AWAY = "The database cannot do this now. Nothing was acknowledged; try again later."
PERHAPS = (
    "The connection to the database broke under way, so that it may have been stored. Send the same request again, "
    "with the same Idempotency-Key where it had one: it is recognised."
)
NOTHING = "There is nothing under this address that this key may see."
DEFECT = "This is a defect of the service or damage in its database. Its log has the details under the request id."

UNSIGNED = "The service lacks the secret of this hook. Nothing was acknowledged; send it again later."

# fmt: off
PROBLEMS: tuple[tuple[type[BaseException], ProblemKind], ...] = (
    (errors.DefinitionError,   ProblemKind(422, "definition",        "The definition is not valid")),
    (errors.ExpressionError,   ProblemKind(422, "expression",        "An expression is not valid")),
    (errors.InvalidInput,      ProblemKind(400, "invalid_input",     "The request is not valid")),
    (errors.NoSuchName,        ProblemKind(404, "not_found",         "Not found")),
    (errors.NotFound,          ProblemKind(404, "not_found",         "Not found", NOTHING)),
    (errors.WrongToken,        ProblemKind(409, "wrong_token",       "The completion token does not fit")),
    (errors.TokenUsed,         ProblemKind(409, "token_used",        "The completion token was used before")),
    (errors.TokenExpired,      ProblemKind(409, "token_expired",     "The completion token came too late")),
    (errors.Conflict,          ProblemKind(409, "conflict",          "The state does not allow it")),
    (errors.NotAllowed,        ProblemKind(403, "not_allowed",       "Not allowed")),
    (errors.KeyReused,         ProblemKind(422, "key_reused",        "The idempotency key was used with another body")),
    (errors.QuotaExceeded,     ProblemKind(429, "quota_exceeded",    "A quota is used up")),
    (errors.Fenced,            ProblemKind(409, "fenced",            "The lease is gone")),
    (errors.Quarantined,       ProblemKind(409, "quarantined",       "The run is quarantined")),
    (errors.Refused,           ProblemKind(409, "refused",           "Refused")),
    (errors.ConnectionLost,    ProblemKind(503, "store_unavailable", "The database is not available", PERHAPS, 1)),
    (errors.StoreUnavailable,  ProblemKind(503, "store_unavailable", "The database is not available", AWAY, 1)),
    (errors.Contended,         ProblemKind(503, "contended",         "The database is busy", AWAY, 1)),
    (errors.PermissionDenied,  ProblemKind(503, "permission_denied",
                                           "The service lacks a right at its database", AWAY, 30)),
    (errors.SchemaMismatch,    ProblemKind(503, "schema_mismatch",   "The database is not migrated", AWAY, 30)),
    (errors.DefinitionChanged, ProblemKind(500, "definition_changed", "A stored definition was changed", DEFECT)),
    (errors.StoreError,        ProblemKind(503, "store",             "The database cannot do it", AWAY, 30)),
    (errors.Unreadable,        ProblemKind(500, "unreadable",        "A stored row cannot be read", DEFECT)),
    (MissingSecret,            ProblemKind(503, "secret_missing",    "The service lacks a secret", UNSIGNED, 60)),
    (errors.StepkeepError,     ProblemKind(500, "broken",            "A defect", DEFECT)),
)
# fmt: on
"""Every class of error, the more special ones first."""

UNAUTHENTICATED = ProblemKind(401, "unauthenticated", "No valid API key")
NOT_FOUND = ProblemKind(404, "not_found", "Not found", NOTHING)
FORGED = ProblemKind(403, "forged", "The request may come from another site")
METHOD = ProblemKind(405, "method_not_allowed", "The address does not take this method")
TIMEOUT = ProblemKind(408, "request_timeout", "The body did not arrive in time")
IN_FLIGHT = ProblemKind(409, "in_flight", "A request with this idempotency key is under way", retry_after=1)
TOO_LARGE = ProblemKind(413, "too_large", "The body is too large")
MEDIA = ProblemKind(415, "unsupported_media_type", "The body has a form that this address does not read")
TOO_MANY = ProblemKind(429, "too_many_requests", "Too many requests")
HEADERS = ProblemKind(431, "headers_too_large", "The headers are too large")
OVERLOADED = ProblemKind(503, "overloaded", "The service has too much to do", retry_after=1)
STOPPING = ProblemKind(503, "stopping", "The service is stopping", AWAY, 1)
UNEXPECTED = ProblemKind(500, "unexpected", "An unexpected error", DEFECT)
SIGNATURE = ProblemKind(401, "signature", "The delivery is not signed as this hook asks for")
UNMAPPED = ProblemKind(422, "unmapped", "The delivery cannot be mapped")

OWN = tuple(one for one in vars().values() if isinstance(one, ProblemKind))
"""Problems that only the service has."""


class Problem(Answer, kw_only=True):
    """An RFC 9457 problem. `type` and `code` are stable; `detail` says what to do and may change."""

    type: Annotated[str, says("A stable name of the class of problem.")]
    title: str
    status: int
    detail: str
    request_id: Annotated[str | None, says("The id of the request, under which the log has more.")] = None
    code: Annotated[str, says("The last part of `type`; the command line uses the same codes.")]
    errors: Annotated[list[dict[str, Any]] | None, says("What is wrong with which part of the request.")] = None
    problems: Annotated[list[dict[str, Any]] | None, says("What is wrong in a definition, with positions.")] = None
    winner: Annotated[dict[str, Any] | None, says("The decision that came first.")] = None
    earlier: Annotated[
        dict[str, Any] | None, says("What the idempotency key was used for (`run_id`), and what `differs`.")
    ] = None
    quota: Annotated[str | None, says("The quota that is used up.")] = None
    rule: Annotated[str | None, says("The rule that forbids it.")] = None
    person: Annotated[str | None, says("The person that the rule was applied to.")] = None


EXAMPLE = {
    "type": f"{TYPE}invalid_input",
    "title": "The request is not valid",
    "status": 400,
    "detail": "limit: Input should be less than or equal to 200",
    "code": "invalid_input",
}


class ApiError(Exception):
    """A problem that the service itself finds in a request."""

    def __init__(
        self, kind: ProblemKind, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.headers, self.more = kind, detail, headers, more


def problem(
    kind: ProblemKind, detail: str, more: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer that tells a problem."""
    body: dict[str, Any] = {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "detail": kind.says or inert(detail),
        "code": kind.code,
        **(more or {}),
    }
    if (asked := REQUEST.get()) is not None:
        body["request_id"] = asked.request_id
    answer = Response(msgspec.json.encode(body), kind.status, dict(headers or {}), MEDIA_TYPE)
    if kind.retry_after is not None:
        answer.headers["Retry-After"] = str(kind.retry_after)
    if kind.status == 401:
        answer.headers["WWW-Authenticate"] = "Bearer" if kind is UNAUTHENTICATED else "Webhook-Signature"
    return answer


def kind_of(error: BaseException) -> ProblemKind:
    """The class of problem that an error is."""
    if isinstance(error, errors.NotAllowed) and error.rule in KEY_RULES:
        return UNAUTHENTICATED
    return next((kind for of, kind in PROBLEMS if isinstance(error, of)), UNEXPECTED)


def problem_of(error: BaseException) -> Response:
    """The answer for any error. What must not be shown is logged instead."""
    if isinstance(error, ApiError):
        return problem(error.kind, error.detail, error.more, error.headers)
    kind = kind_of(error)
    if kind.status >= 500:
        # An outage is expected: its caller is told to come back, and nobody has to act on each request.
        level = logging.WARNING if isinstance(error, errors.StoreUnavailable) else logging.ERROR
        log.log(level, "%s: %s", kind.code, exception_text(error), exc_info=error if kind.status == 500 else None)
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, errors.QuotaExceeded) else None
    return problem(kind, exception_message(error) or kind.title, _more(error), headers)


def _more(error: BaseException) -> Mapping[str, object]:
    if isinstance(error, errors.DefinitionError):
        return {"problems": [msgspec.structs.asdict(one) for one in error.problems[:MOST_ERRORS]]}
    if isinstance(error, errors.QuotaExceeded):
        return {"quota": error.quota}
    if isinstance(error, errors.Conflict) and error.winner is not None:
        return {"winner": dict(error.winner)}
    if isinstance(error, errors.KeyReused) and error.earlier:
        return {"earlier": dict(error.earlier)}
    if isinstance(error, errors.NotAllowed) and error.rule not in KEY_RULES:
        return {"rule": error.rule, "person": error.person}
    return {}
