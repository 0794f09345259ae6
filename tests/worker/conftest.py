"""What tests of the worker share."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.worker.bed import Bed, Body, On, bed_on, on_sqlite


@pytest.fixture
def on_store(tmp_path: Path) -> On:
    """Runs a test's body on a fresh SQLite file."""
    return lambda body: on_sqlite(tmp_path, body)


@pytest.fixture
def on_postgres(postgres_dsn: str) -> On:
    """Runs a test's body on a fresh PostgreSQL database."""

    def run(body: Body) -> None:
        async def whole() -> None:
            async with bed_on(postgres_dsn) as bed:
                await body(bed)

        asyncio.run(whole())

    return run


@pytest.fixture(params=["on_store", "on_postgres"])
def on_each(request: pytest.FixtureRequest) -> On:
    """Runs a test's body on each store."""
    found: On = request.getfixturevalue(request.param)
    return found


__all__ = ["Bed", "on_each", "on_postgres", "on_store"]
