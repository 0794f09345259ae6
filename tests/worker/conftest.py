"""What tests of the worker share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worker.bed import Bed, On, bed_on, on_sqlite


@pytest.fixture
def on_store(tmp_path: Path) -> On:
    """A bed on a fresh SQLite file."""
    return lambda: on_sqlite(tmp_path)


@pytest.fixture
def on_postgres(postgres_dsn: str) -> On:
    """A bed on a fresh PostgreSQL database."""
    return lambda: bed_on(postgres_dsn)


@pytest.fixture(params=["on_store", "on_postgres"])
def on_each(request: pytest.FixtureRequest) -> On:
    """A bed on each store."""
    found: On = request.getfixturevalue(request.param)
    return found


__all__ = ["Bed", "on_each", "on_postgres", "on_store"]
