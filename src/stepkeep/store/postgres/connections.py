"""Connections: URL parameters, connecting, and small pools that survive forks and server restarts.

A pool lends connections; it never begins, commits or retries anything. A connection that broke, or that a cancelled
task left in the middle of a statement, is dropped and replaced.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from stepkeep.edges.redaction import database_url, database_url_fault, secrets_of_url, without
from stepkeep.edges.safe_text import exception_text
from stepkeep.kernel.errors import (
    InvalidInput,
    LoginRefused,
    PermissionDenied,
    StoreUnavailable,
    Unreachable,
)
from stepkeep.store.postgres.failures import reason_of, translated
from stepkeep.store.postgres.namespace import Namespace, read_namespace

LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

PLANNER = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
"""Plans are made once per connection, on tables of any size, and must still be right when the tables have grown."""

DURABLE = {"synchronous_commit": "on"}

ENGINE = {**PLANNER, **DURABLE, "lock_timeout": "10s", "idle_in_transaction_session_timeout": "60s"}

SEARCH_PATH = "search_path"

SHOWN_AS_SENT = (SEARCH_PATH, "plan_cache_mode")
"""The settings that tell whether a pooler passed them all on; the server writes some of the others another way."""


FRESH = "; ".join(
    (
        "reset session authorization",
        "reset all",
        "close all",
        "unlisten *",
        "select pg_advisory_unlock_all()",
        "discard temp",
        "discard sequences",
    )
)
"""Resets what user code may have left in a session: role, settings, cursors, locks, temporary tables. Not `discard
all`, which would also drop the driver's prepared statements."""


class UsersConnection(asyncpg.Connection):
    """A connection that is lent to user code. It records changes that a reset of the session does not undo."""

    is_altered = False

    async def set_type_codec(self, *args: Any, **kwargs: Any) -> None:
        self.is_altered = True
        await super().set_type_codec(*args, **kwargs)

    async def set_builtin_type_codec(self, *args: Any, **kwargs: Any) -> None:
        self.is_altered = True
        await super().set_builtin_type_codec(*args, **kwargs)

    async def add_listener(self, *args: Any, **kwargs: Any) -> None:
        self.is_altered = True
        await super().add_listener(*args, **kwargs)

    def add_log_listener(self, *args: Any, **kwargs: Any) -> None:
        self.is_altered = True
        super().add_log_listener(*args, **kwargs)

    def add_termination_listener(self, *args: Any, **kwargs: Any) -> None:
        self.is_altered = True
        super().add_termination_listener(*args, **kwargs)

    def add_query_logger(self, *args: Any, **kwargs: Any) -> None:
        self.is_altered = True
        super().add_query_logger(*args, **kwargs)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a URL specifies besides the server; each is a parameter of the URL."""

    dsn: str
    shown: str
    role: str = ""
    namespace: Namespace | None = None
    secrets: tuple[str, ...] = ()
    pool_size: int = 8
    statement_cache_size: int = 200
    connect_timeout: int = 10
    command_timeout: int = 60


OWN = {
    "pool_size": (1, 1_000),
    "statement_cache_size": (0, 100_000),
    "connect_timeout": (1, 86_400),
    "command_timeout": (1, 86_400),
}
"""Our own parameters, each with its smallest and largest value."""


def read_options(url: str) -> Options:
    """Remove our parameters from a URL; the driver would send unknown ones to the server."""
    if (fault := database_url_fault(url)) is not None:
        raise InvalidInput(
            f"the URL of the PostgreSQL database cannot be read: {fault}. Write postgresql://user:password@host:5432/"
            "name, with %23 for #, %2F for /, %3F for ? and %40 for @ in user, password and parameters."
        )
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    mine = {name: _number(name, value) for name, value in query if name in OWN}
    named = [read_namespace(value) for name, value in query if name == "schema"]
    theirs = [(name, value) for name, value in query if name not in OWN and name != "schema"]
    dsn = urlunsplit(parts._replace(query=urlencode(theirs)))
    role = unquote(parts.username or "") or dict(theirs).get("user", "")
    namespace = named[-1] if named else None
    return Options(
        dsn=dsn, shown=database_url(url), role=role, namespace=namespace, secrets=secrets_of_url(url), **mine
    )


def denied_to(role: str, denied: PermissionDenied) -> PermissionDenied:
    """The same refusal with the role it concerns, and where to find the rights that it needs."""
    named = f"the role {role}" if role else "the role of this database URL"
    return PermissionDenied(
        f"{named} lacks a right at the database: {str(denied).rstrip('.')}. `stepkeep db grants {role or 'ROLE'} --as "
        "worker` (or client, api) prints the statements that grant what is needed; the owner of the tables runs them."
    )


def _number(name: str, value: str) -> int:
    least, most = OWN[name]
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(most)) and least <= int(value) <= most):
        raise InvalidInput(f"{name} in the database URL must be a whole number from {least} to {most}")
    return int(value)


class Pool:
    """A few connections of one kind, opened on demand by the process and event loop that use them.

    `settings` are sent when a connection starts. If a pooler in transaction mode refuses or drops them, `local` becomes
    true, and `opening` sets them again in every transaction. Connections `for_users` are reset before another run gets
    them.
    """

    def __init__(self, options: Options, size: int, settings: Mapping[str, str], *, for_users: bool = False) -> None:
        self._options, self._size, self._settings, self._for_users = options, size, settings, for_users
        self.local = False
        self._owner: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._idle: list[Connection] = []
        self._strange: list[Connection] = []
        self._room = asyncio.Semaphore(size)
        self._closed = False

    @property
    def opening(self) -> str:
        """The statement that begins a transaction on a connection of this pool."""
        return self._with_settings("begin isolation level read committed")

    @property
    def snapshot(self) -> str:
        """The statement that begins a transaction whose statements all read the same snapshot."""
        return self._with_settings("begin isolation level repeatable read read only")

    def _with_settings(self, begin: str) -> str:
        if not self.local:
            return begin
        return f"{begin}; select " + ", ".join(
            f"set_config('{name}', '{value}', true)" for name, value in self._settings.items()
        )

    async def search_in(self, namespace: Namespace) -> None:
        """Find tables in this schema from now on, on new connections."""
        await self.close()
        self._settings = {**self._settings, SEARCH_PATH: namespace.search_path}

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        self._settle_in()
        self._closed = False
        room = self._room
        async with room:
            connection = await self._take()
            try:
                yield connection
            except PermissionDenied as denied:
                role = getattr(connection.get_settings(), "session_authorization", self._options.role)
                await self._abandon(connection)
                raise denied_to(role, denied) from denied.__cause__
            except BaseException:
                await self._abandon(connection)
                raise
            await self._give_back(connection)

    async def dial(self) -> Connection:
        """A connection outside the pool; the caller closes it."""
        with translated():
            return await self._dial({})

    async def close(self) -> None:
        self._settle_in()
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._part(connection)

    async def _give_back(self, connection: Connection) -> None:
        """Keep it for the next caller, unless the pool was closed meanwhile."""
        if self._closed or (self._for_users and not await self._is_fresh_again(connection)):
            await self._part(connection)
        elif not connection.is_closed():
            self._idle.append(connection)

    async def _is_fresh_again(self, connection: Connection) -> bool:
        if connection.is_closed() or getattr(connection, "is_altered", True):
            return False
        try:
            await connection.execute(FRESH, timeout=5)
        except LOST:
            return False
        except BaseException:  # cancelled meanwhile
            connection.terminate()
            raise
        return True

    def _settle_in(self) -> None:
        """Forget connections of another process or of a closed loop: their sockets are not ours."""
        here = (os.getpid(), asyncio.get_running_loop())
        if self._owner != here:
            if self._owner is not None and self._owner[0] != here[0]:
                # Kept, because dropping them here would make the driver close the parent's connections too.
                self._strange += self._idle
            self._owner, self._idle, self._room = here, [], asyncio.Semaphore(self._size)

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        try:
            with translated():
                return await self._connect()
        except PermissionDenied as denied:
            raise denied_to(self._options.role, denied) from denied.__cause__
        except LoginRefused:
            raise
        except StoreUnavailable as problem:
            # Nothing was sent yet, so nothing can have happened.
            raise Unreachable(f"cannot connect to {self._options.shown}: {reason_of(problem)}") from problem.__cause__

    async def _connect(self) -> Connection:
        if not self._settings or self.local:
            return await self._dial({})
        try:
            connection = await self._dial(self._settings)
        except asyncpg.ProtocolViolationError:
            self.local = True
            return await self._dial({})
        shown = {name: self._settings[name] for name in SHOWN_AS_SENT if name in self._settings}
        kept = " and ".join(f"current_setting('{name}') = '{value}'" for name, value in shown.items())
        try:
            # A statement without parameters is one message, which a pooler sends to one server.
            self.local = await connection.execute(f"select where {kept}") != "SELECT 1"
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _dial(self, settings: Mapping[str, str]) -> Connection:
        options = self._options
        try:
            connection: Any = await asyncpg.connect(
                options.dsn,
                timeout=options.connect_timeout,
                command_timeout=options.command_timeout,
                statement_cache_size=options.statement_cache_size,
                max_cached_statement_lifetime=0,
                server_settings={"application_name": "stepkeep", **settings},
                connection_class=UsersConnection if self._for_users else asyncpg.Connection,
            )
        except (asyncpg.ClientConfigurationError, ValueError) as problem:
            # The driver's text may quote any part of the URL.
            said = without(exception_text(problem), options.secrets)
            raise InvalidInput(f"the driver refuses the database URL {options.shown}: {said}") from None
        return connection  # type: ignore[no-any-return]

    async def _abandon(self, connection: Connection) -> None:
        """Return a connection after a failure, or drop it, because its state is unknown."""
        if connection.is_closed():
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            connection.terminate()
            return
        try:
            await connection.execute("rollback", timeout=5)
        except LOST:
            connection.terminate()
        except BaseException:  # cancelled meanwhile
            connection.terminate()
            raise
        else:
            await self._give_back(connection)

    async def _part(self, connection: Connection) -> None:
        try:
            await connection.close(timeout=5)
        except LOST:
            connection.terminate()


async def fetch(connection: Connection, statement: str, *arguments: Any) -> list[Any]:
    """Run a query; returns rows as sequences of columns."""
    with translated():
        return await connection.fetch(statement, *arguments)


async def execute(connection: Connection, statement: str, *arguments: Any) -> str:
    """Run a statement for its effect; returns the server's tag, such as `UPDATE 3`."""
    with translated():
        return await connection.execute(statement, *arguments)


async def commit(connection: Connection) -> None:
    """Commit and verify it: a transaction that an earlier error broke answers COMMIT with ROLLBACK."""
    if await execute(connection, "commit") != "COMMIT":
        raise StoreUnavailable("PostgreSQL rolled the transaction back because a statement in it had failed")
