"""What only a PostgreSQL server can tell: how far its log of changes has come, and what it was asked."""

from __future__ import annotations

from typing import Any

from stepkeep.bench.ground import Ground


async def wal_position(ground: Ground) -> int | None:
    """Bytes of write-ahead log that the server has written so far; None where there is no server."""
    if ground.server is None:
        return None
    return int(await ask(ground.url, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


async def ask(url: str, question: str) -> Any:
    """One value, on a connection of its own."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()
