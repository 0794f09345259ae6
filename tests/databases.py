"""Both databases for tests that must hold on each: a fresh URL per test, under the ids `sqlite` and `postgres`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: object) -> Iterator[str]:
    """The URL of a database without runs; the PostgreSQL one is real and migrated."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/stepkeep.db"
    else:
        yield request.getfixturevalue("postgres_dsn")
