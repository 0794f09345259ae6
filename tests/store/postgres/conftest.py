"""What only PostgreSQL has: sessions that wait for each other, plans, poolers, servers that go away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

Session = Callable[[], "asyncpg.Connection[asyncpg.Record]"]


@pytest.fixture
def url(postgres_dsn: str) -> str:
    """These tests are about one database only."""
    return postgres_dsn


@asynccontextmanager
async def session(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Somebody else at work in the same database."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Come back when something that must happen soon has happened."""
    async with asyncio.timeout(10):
        while not await holds():
            await asyncio.sleep(0.005)


async def until_somebody_waits(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    async def waits() -> bool:
        return bool(
            await connection.fetchval(
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
            )
        )

    await until(waits)
