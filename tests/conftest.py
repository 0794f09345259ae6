"""Fixtures that every test may use. Keep it small: what one folder needs belongs in that folder."""

import asyncio
import gc
import inspect
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from copy import copy
from pathlib import Path

import pytest

from stepkeep.definition.python.registry import Registry, default_registry
from stepkeep_lab.postgres import PostgresServer
from tests.databases import migrate_now, migrated_file
from tests.holding import Hold
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


LONGEST_SECONDS = 600
ROOT = Path(__file__).parents[1]
LASTING = tuple(str(folder) for folder in (sys.prefix, sys.base_prefix, ROOT / "src", ROOT / "lab"))
"""Where modules that stay imported are, beside those of the tests. Others are applications of tests, and examples."""


@pytest.fixture(autouse=True)
def own_registry() -> Iterator[None]:
    """Give the default registry back as it was, and forget the applications that the test imported.

    So a test may give any name to any function, and the next one that imports an application registers it again.
    """
    tables = {name: copy(table) for name, table in vars(default_registry).items() if name != "version"}
    known = set(sys.modules)
    yield
    vars(default_registry).update(tables)
    default_registry.version += 1
    for name in sys.modules.keys() - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and not file.startswith(LASTING) and not name.startswith("tests."):
            del sys.modules[name]


@pytest.fixture
def empty_registry(own_registry: None) -> None:
    """No function is registered by default, not even those of the tests' modules."""
    for name, table in vars(Registry()).items():
        if name != "version":
            setattr(default_registry, name, table)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test on the loop of its fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    work = _in_time(pyfuncitem, pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    if (runner := pyfuncitem.funcargs.get("runner")) is None:
        asyncio.run(work)
    else:
        runner.run(work)
    return True


async def _in_time(item: pytest.Item, work: Awaitable[None]) -> None:
    """A wait that never ends fails its test. The long forms have the whole time of a part of `make proof`."""
    async with asyncio.timeout(None if item.get_closest_marker("proof") else LONGEST_SECONDS):
        await work


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The loop of a test whose fixtures need it too."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def hold(runner: asyncio.Runner) -> Iterator[Hold]:
    """Enters async context managers on the loop of the test, and leaves them after it."""
    stack = AsyncExitStack()
    yield lambda manager: runner.run(stack.enter_async_context(manager))
    runner.run(stack.aclose())


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
