"""Fixtures that every test may use. Keep it small: what one folder needs belongs in that folder."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stepkeep.store.connect import migrate
from stepkeep_lab.postgres import PostgresServer
from tests.reused_databases import ReusedDatabases

# A shell that runs the tests in the background has them ignore SIGINT, and every process they start would inherit that;
# tests of Ctrl-C need it to arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_template() -> Callable[[str], None] | None:
    """Migrates the database that all fresh ones are copied from, given its DSN."""

    def prepare(dsn: str) -> None:
        # In a thread, because a test that makes a database may have a running loop.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(migrate(dsn))).result()

    return prepare


@pytest.fixture(scope="session")
def postgres_server(postgres_template: Callable[[str], None] | None) -> Iterator[PostgresServer]:
    """A running PostgreSQL server.

    Each xdist worker has its own: it starts in half a second, and a test that restarts it disturbs no other.
    """
    with PostgresServer(template=postgres_template) as server:
        yield server


@pytest.fixture(scope="session")
def migrated_databases(postgres_server: PostgresServer) -> Iterator[ReusedDatabases]:
    with ReusedDatabases(postgres_server) as databases:
        yield databases


@pytest.fixture(scope="session")
def empty_databases(postgres_server: PostgresServer) -> Iterator[ReusedDatabases]:
    with ReusedDatabases(postgres_server, empty=True) as databases:
        yield databases


@pytest.fixture
def postgres_dsn(migrated_databases: ReusedDatabases) -> Iterator[str]:
    """The DSN of a migrated database without rows; earlier tests may have used it."""
    with migrated_databases.lend() as dsn:
        yield dsn


@pytest.fixture
def unused_postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a migrated database whose tables never had a row, for tests of plans."""
    with postgres_server.fresh_database() as dsn:
        yield dsn


@pytest.fixture
def empty_postgres_dsn(empty_databases: ReusedDatabases) -> Iterator[str]:
    """The DSN of a database without any table."""
    with empty_databases.lend() as dsn:
        yield dsn


pytest_plugins = ["tests.databases"]
