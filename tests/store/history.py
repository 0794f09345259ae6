"""A long history in a moment: finished runs copied from real ones, so that plans meet tables as they are after years.

Each copy has an id and an end a little older than its original, a correlation id and an idempotency key of its own.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import asyncpg

OWNER = {"runs": "id"}
TABLES = ("runs", "run_details", "steps", "attempts", "journal", "messages", "outbox", "idempotency_keys", "deliveries")

COLUMNS = "incarnation, capacity, capabilities, queues, heard_at, started_at, seq, head"
GONE = (
    f"insert into workers (tenant, id, state, {COLUMNS}) select tenant, {{name}}, 'shutdown', {COLUMNS}"
    " from workers cross join {many} where no = (select min(no) from workers)"
)


class PostgresHistory:
    """Fills a PostgreSQL database."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection = connection

    async def copy(self, run_id: str, times: int) -> None:
        for table in TABLES:
            await self._connection.execute(await self._statement(table, run_id, times), timeout=600)

    async def copy_workers(self, times: int) -> None:
        """Workers that are long gone, like the first one."""
        await self._connection.execute(GONE.format(name="id || '-' || n", many=f"generate_series(1, {times}) as n"))

    async def settle(self) -> None:
        """What autovacuum does in its own time, now and never again by itself: plans depend on it."""
        await self._connection.execute("vacuum analyze", timeout=600)
        tables = await self._connection.fetch(
            "select oid::regclass from pg_class where relkind = 'r' and relnamespace = current_schema()::regnamespace"
        )
        for (table,) in tables:
            await self._connection.execute(f"alter table {table} set (autovacuum_enabled = off)")

    async def analyze(self) -> None:
        await self._connection.execute("analyze", timeout=600)

    async def _statement(self, table: str, run_id: str, times: int) -> str:
        rows = await self._connection.fetch(
            "select attname from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped", table
        )
        owner = OWNER.get(table, "run_id")
        older = f"lpad(to_hex(('x' || left(replace('{run_id}', '-', ''), 12))::bit(48)::bigint - n), 12, '0')"
        copy = f"({older} || '70008' || lpad(to_hex(n), 15, '0'))::uuid"
        instead = {
            owner: copy,
            "ended_at": "ended_at - n * 1000" if table == "runs" else "ended_at",
            "correlation_id": f"{copy}::text",
            "key": "key || '-' || n",
        }
        names = [row[0] for row in rows]
        values = [instead.get(name, name) for name in names]
        return (
            f"insert into {table} ({', '.join(names)}) select {', '.join(values)}"
            f" from {table} cross join generate_series(1, {times}) as n where {owner} = '{run_id}'"
        )


class SqliteHistory:
    """Fills an SQLite file."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("pragma synchronous = off; pragma cache_size = -400000")

    def copy(self, run_id: str, times: int) -> None:
        self._connection.execute("create temp table if not exists copies (n integer primary key)")
        self._connection.execute(
            "insert or ignore into copies with recursive t (n) as (select 1 union all select n + 1 from t where n < ?)"
            " select n from t",
            (times,),
        )
        with self._connection:
            for table in TABLES:
                self._connection.execute(self._statement(table, run_id, times))

    def copy_workers(self, times: int) -> None:
        """Workers that are long gone, like the first one; after `copy`."""
        self._connection.execute(GONE.format(name="id || '-' || n", many="copies") + f" and n <= {times}")

    def settle(self) -> None:
        self._connection.execute("pragma wal_checkpoint(truncate)")
        self._connection.close()

    def _statement(self, table: str, run_id: str, times: int) -> str:
        names = [row[1] for row in self._connection.execute(f"pragma table_info({table})") if row[1] != "place"]
        owner = OWNER.get(table, "run_id")
        moment = int(run_id.replace("-", "")[:12], 16)
        copy = f"printf('%08x-%04x-7000-8000-%012x', ({moment} - n) >> 16, ({moment} - n) & 65535, n)"
        instead = {
            owner: copy,
            "ended_at": "ended_at - n * 1000" if table == "runs" else "ended_at",
            "correlation_id": copy,
            "key": "key || '-' || n",
        }
        values = [instead.get(name, name) for name in names]
        # From the last to the first: the oldest copy has the lowest id, and tables fill in order.
        return (
            f"insert into {table} ({', '.join(names)}) select {', '.join(values)}"
            f" from copies cross join {table} where {owner} = '{run_id}' and n <= {times} order by n desc"
        )
