"""SQL of transactional steps, written once: the same text and values on SQLite and PostgreSQL, from threads and loops.

Placeholders are `$1`, `$2`, as in PostgreSQL; for SQLite they are translated outside quotes and comments. It commits
nothing: the transaction belongs to `transactional`. `Context` calls it; `ctx.connection` is the driver's own object.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec

from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import InvalidInput
from stepkeep.worker.bridge import Bridge, runs_a_loop

T = TypeVar("T")
Row = dict[str, Any]

_TOKEN: Final = re.compile(
    r"""
      '(?:''|[^'])*' | "(?:""|[^"])*" | `[^`]*` | \[[^\]]*\]
    | --[^\n]* | /\*.*?(?:\*/|\Z)
    | \$(?P<number>[0-9]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_POSTGRES_ONLY: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$.*?\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$", re.DOTALL)


def for_sqlite(sql: str) -> str:
    """The statement with SQLite's numbered placeholders.

    >>> for_sqlite("insert into ledger values ($1, '$1', $2) -- $3")
    "insert into ledger values (?1, '$1', ?2) -- $3"
    """
    return _TOKEN.sub(lambda found: found[0] if found["number"] is None else f"?{found['number']}", sql)


def placeholders(sql: str, *, brackets_quote: bool = True) -> int:
    """The highest placeholder of a statement; 0 if it has none.

    >>> placeholders("update stock set n = n - $2 where sku = $1 and note <> '$9'")
    2
    """
    # `[…]` quotes a name on SQLite and selects from an array on PostgreSQL.
    found = _TOKEN.finditer(sql) if brackets_quote else _TOKEN.finditer(sql.replace("[", " ").replace("]", " "))
    return max((int(one["number"]) for one in found if one["number"] is not None), default=0)


class Statements:
    """Runs statements on the connection of one attempt."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._is_sqlite = not isinstance(connection, Bridge)
        self._lock = threading.Lock()

    def execute(self, sql: str, args: tuple[Any, ...]) -> Any:
        """The number of rows that a statement changed."""
        values = self._checked(sql, args)
        if self._is_sqlite:
            return self._here(lambda: self._sqlite_execute(sql, values))
        return _answer(self._connection.execute(sql, *values), _changed)

    def fetch(self, sql: str, args: tuple[Any, ...]) -> Any:
        """All rows of a query, as dicts."""
        values = self._checked(sql, args)
        if self._is_sqlite:
            return self._here(lambda: self._sqlite_fetch(sql, values))
        return _answer(self._connection.fetch(sql, *values), lambda rows: [dict(row) for row in rows])

    def fetch_one(self, sql: str, args: tuple[Any, ...]) -> Any:
        """The first row of a query, or None."""
        values = self._checked(sql, args)
        if self._is_sqlite:
            return self._here(lambda: next(iter(self._sqlite_fetch(sql, values)), None))
        return _answer(self._connection.fetchrow(sql, *values), lambda row: None if row is None else dict(row))

    def _checked(self, sql: str, args: tuple[Any, ...]) -> list[Any]:
        if not isinstance(sql, str):
            raise InvalidInput(f"a statement is a text, not a value of type {type_name(sql)}.")
        wanted = placeholders(sql if self._is_sqlite else _POSTGRES_ONLY.sub("", sql), brackets_quote=self._is_sqlite)
        if wanted != len(args):
            raise InvalidInput(
                f"the statement has placeholders up to ${wanted}, and {len(args)} values were given. "
                "Write $1, $2, … in the text, and one value for each behind it."
            )
        return [(_sqlite_value if self._is_sqlite else _postgres_value)(value) for value in args]

    def _here(self, work: Callable[[], T]) -> T | Awaitable[T]:
        """Do the work in this thread, or beside the loop that runs in it."""

        def alone() -> T:
            with self._lock:
                return work()

        return asyncio.to_thread(alone) if runs_a_loop() else alone()

    def _sqlite_execute(self, sql: str, values: list[Any]) -> int:
        connection = self._connection
        before = connection.total_changes()
        for _ in connection.execute(for_sqlite(sql), values):
            pass
        return int(connection.changes()) if connection.total_changes() != before else 0

    def _sqlite_fetch(self, sql: str, values: list[Any]) -> list[Row]:
        cursor = self._connection.cursor()
        found: list[Row] = []
        for row in cursor.execute(for_sqlite(sql), values):
            names = [column[0] for column in cursor.get_description()]
            found.append(dict(zip(names, row, strict=True)))
        return found


def _answer(given: Any, shape: Callable[[Any], T]) -> T | Awaitable[T]:
    if not inspect.isawaitable(given):
        return shape(given)

    async def later() -> T:
        return shape(await given)

    return later()


def _changed(status: str) -> int:
    """The number in `INSERT 0 1` or `UPDATE 3`; 0 for statements that change no rows."""
    last = status.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


def _postgres_value(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return _json(value) if isinstance(value, Mapping) else value


def _sqlite_value(value: Any) -> Any:
    """A value that SQLite stores: dates and decimals as text, dicts and lists as JSON."""
    match value:
        case enum.Enum():
            return value.value
        case None | str() | bytes() | int() | float():
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case Mapping() | list() | tuple():
            return _json(value)
    raise InvalidInput(f"SQLite stores no value of type {type_name(value)}: pass text, a number, bytes or a date.")


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError) as problem:
        raise InvalidInput(f"a value has no JSON form: {problem}") from None
