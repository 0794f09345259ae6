"""`stepkeep worker` and a database that is not there yet: it waits for a server, and for nothing that will not come."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pytest

import stepkeep as sk
from stepkeep.kernel.errors import LoginRefused, Unreachable
from stepkeep.store.connect import connect
from stepkeep_lab.postgres import PostgresServer, StopMode
from tests.cli.conftest import HANDLERS, Cli, finish
from tests.suites import in_proof
from tests.workbench import wait_until

pytestmark = pytest.mark.postgres
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def late_server(postgres_template: Callable[[str], None]) -> Iterator[PostgresServer]:
    """A server of this test's own, which it may stop."""
    with PostgresServer(template=postgres_template) as server:
        yield server


def heard(child: subprocess.Popen[str], words: str) -> str:
    """Read what a process says until these words come; it says them, or the test hangs up on its end of file."""
    assert child.stderr is not None
    said = ""
    while words not in said:
        line = child.stderr.readline()
        assert line, f"it ended without saying {words!r}:\n{said}"
        said += line
    return said


def refused_port() -> int:
    """A port of the loopback interface on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_a_worker_that_starts_before_its_server_waits_and_then_works(
    process: Start, cli: Cli, late_server: PostgresServer
) -> None:
    with late_server.fresh_database() as dsn:
        late_server._halt(StopMode.FAST)
        worker = process("worker", "--app", HANDLERS, "--db", dsn)
        heard(worker, "the database does not answer; trying again until it does")
        late_server.start()
        heard(worker, "the database answers again")
        heard(worker, "serves with")
        run = cli("start", "flow.yaml", "--db", dsn, "--json").json["run"]["id"]
        wait_until(lambda: cli("show", run, "--db", dsn, "--json").json["run"]["state"] == "succeeded")
        worker.send_signal(signal.SIGTERM)
        assert finish(worker).status == 0


def test_a_server_that_says_it_is_starting_up_is_waited_for(process: Start) -> None:
    """What a server answers while it recovers, spoken by a socket of this test."""
    fatal = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
    message = b"E" + (len(fatal) + 4).to_bytes(4) + fatal
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        worker = process("worker", "--db", f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable")
        for _ in range(3):
            line, _ = server.accept()
            with line:
                line.recv(4096)
                line.sendall(message)
        assert "the database system is starting up" in heard(worker, "trying again until it does")
        worker.send_signal(signal.SIGTERM)
        # One of its tries may be on the line already.
        server.settimeout(0.2)
        said = finish(worker)
    assert said.status == 0
    assert "stopped before it served" in said.err


@pytest.mark.parametrize(
    ("where", "which"),
    [
        ("refused", signal.SIGTERM),
        in_proof("refused", signal.SIGINT),
        in_proof("unknown host", signal.SIGTERM),
        ("unknown host", signal.SIGINT),
    ],
)
def test_a_worker_that_waits_ends_when_it_is_told_to(process: Start, where: str, which: signal.Signals) -> None:
    host = f"127.0.0.1:{refused_port()}" if where == "refused" else "no-such-host.invalid"
    worker = process("worker", "--db", f"postgresql://u:CANARY@{host}/d")
    said = heard(worker, "the database does not answer")
    worker.send_signal(which)
    ended = finish(worker)
    assert ended.status == 0
    assert "stopped before it served" in ended.err
    assert "CANARY" not in said + ended.err


@pytest.mark.proof
def test_a_worker_does_not_wait_for_a_database_or_a_login_that_is_not_there(
    process: Start, postgres_server: PostgresServer
) -> None:
    for wrong in (
        postgres_server.dsn("no_such_database"),
        postgres_server.dsn().replace("postgres@", "no_such_role@"),
    ):
        said = finish(process("worker", "--db", wrong))
        assert said.status == 1
        assert "refuses the connection" in said.err
        assert "trying again" not in said.err


def test_other_commands_do_not_wait(cli: Cli) -> None:
    said = cli("runs", "--db", f"postgresql://u@127.0.0.1:{refused_port()}/d")
    assert said.status == 1
    assert "trying again" not in said.err


@pytest.mark.proof
async def test_a_program_may_ask_its_engine_to_wait(late_server: PostgresServer) -> None:
    async def go() -> int:
        with late_server.fresh_database() as dsn:
            late_server._halt(StopMode.FAST)
            with pytest.raises(Unreachable):
                await connect(dsn).open()
            engine = sk.AsyncEngine(dsn, wait_for_database=True)
            opening = asyncio.create_task(engine.__aenter__())
            await asyncio.wait({opening}, timeout=0.3)
            assert not opening.done()
            await asyncio.to_thread(late_server.start)
            await asyncio.wait_for(opening, 60)
            try:
                return len((await engine.runs())["runs"])
            finally:
                await engine.__aexit__(None, None, None)

    assert await go() == 0


@pytest.mark.proof
async def test_a_wrong_password_is_not_waited_for(late_server: PostgresServer) -> None:
    parts = urlsplit(late_server.dsn())
    where = {name: values[0] for name, values in parse_qs(parts.query).items()}
    wrong = urlunsplit(parts._replace(netloc="kept:wrong@", query=urlencode(where, safe="/")))
    async with (
        sk.AsyncEngine(late_server.dsn(), auto_migrate=True) as engine,
        engine.store.transaction() as transaction,
    ):
        await transaction.connection.execute("create role kept login password 'right'")
    hba = late_server.data_dir / "pg_hba.conf"
    hba.write_text("local all kept scram-sha-256\n" + hba.read_text())
    await asyncio.to_thread(late_server.restart)
    with pytest.raises(LoginRefused):
        async with asyncio.timeout(60), sk.AsyncEngine(wrong, wait_for_database=True):
            pytest.fail("it opened")
