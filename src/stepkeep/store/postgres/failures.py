"""Translates driver errors: run it again, come back later, migrate first, or a defect.

It only translates and retries nothing. All code in this folder that talks to the server runs inside `translated`.
Unknown errors pass through unchanged.
"""

from __future__ import annotations

import socket
import ssl
from types import TracebackType

import asyncpg

from stepkeep.kernel.errors import (
    ConnectionLost,
    Contended,
    InvalidInput,
    InvariantBroken,
    LoginRefused,
    PermissionDenied,
    SchemaMismatch,
    StoreError,
    StoreUnavailable,
)

MET = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    asyncpg.UniqueViolationError,
    asyncpg.InvalidCachedStatementError,
)
"""The transaction may be run again. The last one occurs when a migration has changed a column of a prepared
statement."""

CUT_OFF = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
    ConnectionError,
)
"""The connection broke. The driver reports an internal error when the server ended an idle connection."""

UNREACHABLE = (
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    OSError,
    TimeoutError,
)

REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    ssl.SSLCertVerificationError,
)
"""The server answers, and will answer the same again."""

OTHER_SCHEMA = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError)

UNSTORABLE = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, UnicodeError)


def reason_of(problem: StoreUnavailable) -> str:
    """Why no connection was made, without the number of an operating system's error."""
    cause = problem.__cause__
    for kind, said in (
        (ConnectionRefusedError, "connection refused"),
        (FileNotFoundError, "there is no such socket"),
        (socket.gaierror, "the name of the host is not known"),
        (TimeoutError, "no answer in time"),
    ):
        if isinstance(cause, kind):
            return said
    return str(problem)


def translate(error: BaseException) -> Exception | None:
    """The error to raise instead, or None to keep the original."""
    if isinstance(error, MET):
        return Contended(f"two transactions conflicted in PostgreSQL ({_said(error)}); run the whole again")
    if isinstance(error, asyncpg.IntegrityConstraintViolationError):
        return InvariantBroken(f"the schema refused rows that contradict each other: {_said(error)}")
    if isinstance(error, asyncpg.InFailedSQLTransactionError):
        return StoreError("nothing was written: a statement of this transaction had failed before, unnoticed")
    if isinstance(error, OTHER_SCHEMA):
        return SchemaMismatch(
            f"the schema is not the one expected here ({_said(error)}); run `stepkeep db migrate`, or "
            "grant this role USAGE on the schema"
        )
    if isinstance(error, UNSTORABLE):
        return InvalidInput(f"PostgreSQL cannot store this value: {_said(error).partition(': ')[0]}")
    if isinstance(error, asyncpg.InsufficientPrivilegeError) and "stepkeep.tenant" in _said(error):
        return StoreError("a statement ran without a tenant, as a role that sees one tenant at a time; it was refused")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return PermissionDenied(_said(error))
    if isinstance(error, REFUSED):
        return LoginRefused(f"PostgreSQL refuses the connection ({_said(error)}); nothing was acknowledged")
    if isinstance(error, CUT_OFF):
        return ConnectionLost(f"the connection to PostgreSQL broke ({_said(error)}); nothing was acknowledged")
    if isinstance(error, UNREACHABLE):
        return StoreUnavailable(f"PostgreSQL cannot do it now ({_said(error)}); nothing was acknowledged")
    return None


class translated:  # noqa: N801 - reads as a word: `async with` a connection, `with translated()`
    """A block in which driver errors become ours."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (meant := translate(error)) is not None:
            raise meant from error


def _said(error: BaseException) -> str:
    """The server's message without its details, which quote whole rows and would end in logs and in the journal."""
    said = error.args[0] if isinstance(error, asyncpg.PostgresError) and error.args else error
    return str(said).strip().rstrip(".") or type(error).__name__
