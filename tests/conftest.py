"""Fixtures that every test may use. Keep it small: what one folder needs belongs in that folder."""

import signal
from collections.abc import Callable, Iterator

import pytest

from stepkeep.testing.postgres import PostgresServer

# A shell that runs the tests in the background has them ignore SIGINT, and every process they start would inherit that;
# tests of Ctrl-C need it to arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_template() -> Callable[[str], None] | None:
    """What prepares the database that all fresh ones are copied from, given its DSN; nothing so far."""
    return None


@pytest.fixture(scope="session")
def postgres_server(postgres_template: Callable[[str], None] | None) -> Iterator[PostgresServer]:
    """A running PostgreSQL server.

    Each xdist worker has its own: it starts in half a second, and a test that restarts it disturbs no other.
    """
    with PostgresServer(template=postgres_template) as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a fresh database, copied from the template and dropped after the test."""
    with postgres_server.fresh_database() as dsn:
        yield dsn


pytest_plugins = ["tests.databases"]
