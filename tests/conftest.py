"""Fixtures that every test may use. Keep it small: what one folder needs belongs in that folder."""

import functools
import gc
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepkeep.definition.registry import default_registry
from stepkeep_lab.postgres import PostgresServer
from tests.databases import migrate_now, migrated_file
from tests.reused_databases import ReusedDatabases
from tests.suites import halve

CONTRACT = Path(__file__).with_name("store")
"""The tests of the stores themselves, which run on each store."""

# A shell that runs the tests in the background has them ignore SIGINT, and every process they start would inherit that;
# tests of Ctrl-C need it to arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)


MEMORY = Path("/dev/shm")
ROOM_BYTES = 4_000_000_000


def has_room_in_memory() -> bool:
    """Whether files can be kept in memory, and programs among them started."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(MEMORY).free >= ROOM_BYTES


# SQLite waits for the disk with each commit. No test takes the machine down, so no test is the weaker for it in memory.
IN_MEMORY = has_room_in_memory()
if IN_MEMORY:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


# Collecting makes many objects that stay. Each full collection of garbage in a test would look at all of them.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    halve([item for item in items if CONTRACT not in item.path.parents])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """With `-n auto`, one process more than there are cores: many tests wait for other processes and for timers."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 1


FULL_RUN = 5_000
"""A run of this many tests is taken for the whole suite."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files that took longest, so that `make test` stays short: their long forms belong in `make proof`."""
    seconds: Counter[str] = Counter()
    reports = [report for kind in ("", "passed", "failed") for report in terminalreporter.getreports(kind)]
    for report in reports:
        seconds[report.nodeid.partition("::")[0]] += report.duration
    if sum(report.when == "call" for report in reports) > FULL_RUN:
        terminalreporter.section("ten slowest files")
        for file, total in seconds.most_common(10):
            terminalreporter.write_line(f"{total:.2f}s {file}")


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@functools.lru_cache(maxsize=1)
def modules_of_tests(count: int) -> frozenset[str]:
    """The modules of tests that are imported; looked up anew when `count`, the number of all modules, has changed."""
    return frozenset(name for name in sys.modules if name.startswith("tests."))


@pytest.fixture(autouse=True)
def registered_before() -> Iterator[None]:
    """Forget the functions of the tests that a test registered: the next one may give their names to others.

    What came with an application or a module that the test imported stays, because it is imported once.
    """
    handlers = default_registry._handlers
    modules, known = modules_of_tests(len(sys.modules)), set(handlers)
    yield
    for name in handlers.keys() - known:
        if handlers[name].function.__module__ in modules:
            del handlers[name]


UNSYNCED = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}


@pytest.fixture(scope="session")
def postgres_template() -> Callable[[str], None] | None:
    """Migrates the database that all fresh ones are copied from, given its DSN."""
    return migrate_now


@pytest.fixture(scope="session")
def postgres_server(postgres_template: Callable[[str], None] | None) -> Iterator[PostgresServer]:
    """A running PostgreSQL server.

    Each xdist worker has its own: it starts in half a second, and a test that restarts it disturbs no other. It does
    not wait for the disk: a crash of the server loses nothing by that, and no test takes the machine down. Its files
    are in memory where there is room.
    """
    folder = MEMORY if IN_MEMORY else None
    with PostgresServer(template=postgres_template, directory=folder, settings=UNSYNCED) as server:
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


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """For tests that must hold on both: the URL of a migrated database without runs, SQLite or PostgreSQL."""
    if request.param == "sqlite":
        yield migrated_file(tmp_path / "stepkeep.db")
    else:
        yield request.getfixturevalue("postgres_dsn")
