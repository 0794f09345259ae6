"""What only PostgreSQL has: sessions that wait for each other, plans, poolers, servers that go away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from tests.workbench import PATIENCE_SECONDS


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


async def until_somebody_waits(connection: "asyncpg.Connection[asyncpg.Record]", sessions: int = 1) -> None:
    """Come back when so many other sessions of this database wait for a lock."""
    waiting = (
        "select count(*) from pg_stat_activity"
        " where wait_event_type = 'Lock' and datname = current_database() and pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await connection.fetchval(waiting) < sessions:  # noqa: ASYNC110 - the server has no event to wait for
            await asyncio.sleep(0.005)
