"""Databases for faults: a PostgreSQL server of our own, an SQLite file in our own folder, and a pooler in between.

Nothing here touches a server that it did not start itself: before each fault the process, its lock file and the data
folder of the server are verified.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from stepkeep_lab.postgres import PostgresServer, PostgresUnavailable, StopMode


class NotOurs(Exception):
    """The server is not the one that this harness started: it is left alone."""


async def prove_ours(server: PostgresServer, dsn: str) -> None:
    """Raise NotOurs unless this server is our own child and the address leads to it."""
    if server.is_external:
        raise NotOurs("the server belongs to someone else; unset STEPKEEP_TEST_POSTGRES_DSN to torture one of our own")
    pid = server.pid
    if pid is None:
        raise NotOurs("the server does not run")
    noted = (server.data_dir / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0]
    if noted != str(pid):
        raise NotOurs(f"the data folder belongs to process {noted}, not to our child {pid}")
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        where = await connection.fetchval("show data_directory")
    finally:
        await connection.close()
    if not _same(where, server.data_dir):
        raise NotOurs("the address leads to another server than the one that was started here")


def _same(one: str, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


async def crash(server: PostgresServer, dsn: str, mode: StopMode = StopMode.IMMEDIATE) -> None:
    """Stop our server as if the power had failed, and start it again."""
    await prove_ours(server, dsn)
    await asyncio.to_thread(server.restart, mode)


async def kill_session(server: PostgresServer, dsn: str) -> None:
    """kill -9 of one of our server's sessions, upon which it ends all others and recovers as from a crash."""
    await prove_ours(server, dsn)
    import asyncpg

    ended = asyncio.Event()
    witness, connection = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    witness.add_termination_listener(lambda _: ended.set())
    try:
        # Held while its process is killed, so that the number cannot have come to belong to someone else.
        victim = await connection.fetchval("select pg_backend_pid()")
        if _parent(victim) != server.pid:
            raise NotOurs(f"process {victim} is no child of our server")
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(60):
            await ended.wait()
    finally:
        connection.terminate()
        witness.terminate()


async def answering(dsn: str) -> None:
    """Wait until a server that recovers takes connections again."""
    import asyncpg

    async with asyncio.timeout(60):
        while True:
            try:
                connection = await asyncpg.connect(dsn)
            except (asyncpg.PostgresError, OSError):
                await asyncio.sleep(0.05)
            else:
                await connection.close()
                return


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])


def socket_of(dsn: str) -> tuple[str, str]:
    """The folder and the path of the private socket behind an address of our own server."""
    query = parse_qs(urlsplit(dsn).query)
    folder, port = query["host"][0], query["port"][0]
    return folder, f"{folder}/.s.PGSQL.{port}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pooler_program() -> str | None:
    """Where PgBouncer is, if it is installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


@asynccontextmanager
async def pooler(dsn: str) -> AsyncIterator[str]:
    """PgBouncer in transaction mode in front of our server; yields the address to use."""
    program = pooler_program()
    assert program is not None, "ask pooler_program first"
    name, port = urlsplit(dsn).path.lstrip("/"), free_port()
    where, _ = socket_of(dsn)
    # Beside the server's socket, as the server's user: the socket is open to that one alone.
    owner = os.stat(where)
    home = Path(where).parent / f"pooler-{port}"
    home.mkdir(mode=0o755)
    (home / "users").write_text('"postgres" ""\n')
    settings = home / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n{name} = host={where} port=5432 user=postgres\n[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
        f"auth_file = {home / 'users'}\npool_mode = transaction\nmax_client_conn = 300\ndefault_pool_size = 12\n"
        f"ignore_startup_parameters = extra_float_digits\n"
    )
    with (home / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            program, str(settings), stdout=log, stderr=log, **_as_owner(owner)
        )
    try:
        await _until_open(port)
        yield f"postgresql://postgres@127.0.0.1:{port}/{name}?statement_cache_size=0&sslmode=disable"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _as_owner(owner: os.stat_result) -> dict[str, Any]:
    return {"user": owner.st_uid, "group": owner.st_gid} if os.getuid() == 0 else {}


async def _until_open(port: int) -> None:
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise PostgresUnavailable("PgBouncer did not open its port within ten seconds")


def versions(server: PostgresServer | None) -> dict[str, str]:
    """What was tortured, and on what."""
    import apsw

    found = {
        "stepkeep": version("stepkeep"),
        "python": sys.version.split()[0],
        "sqlite": apsw.sqlite_lib_version(),
        "platform": sys.platform,
    }
    if server is not None and not server.is_external:
        found["postgresql"] = (server.data_dir / "PG_VERSION").read_text(encoding="ascii").strip()
    if (program := pooler_program()) is not None:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        found["pgbouncer"] = next(iter(re.findall(r"[\d.]+", said)), "unknown")
    return found
