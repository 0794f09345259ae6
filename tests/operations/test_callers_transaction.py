"""A run that starts in the caller's own transaction exists if the caller commits, and leaves nothing if not."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import stepkeep as sk
from stepkeep.kernel.errors import InvalidInput
from tests.operations.codecs import KeyringCodec


def greeting() -> tuple[sk.Workflow, sk.Registry]:
    registry = sk.Registry()

    @sk.step("greet", registry=registry)
    def greet(name: str = "you") -> str:
        return f"hello {name}"

    flow = sk.Workflow("greets", registry=registry)
    flow.step("only", greet)
    return flow, registry


class Held:
    """A connection of the program: its transaction, a write of its own, and how many of those are there."""

    def __init__(self, connection: Any, write: Callable[[], Any], end: Callable[[bool], Any]) -> None:
        self.connection, self.write, self.end = connection, write, end


@contextmanager
def by_apsw(url: str) -> Iterator[Held]:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(10_000)
    connection.execute("create table if not exists orders (id text)")
    connection.execute("begin immediate")
    yield Held(
        connection,
        lambda: connection.execute("insert into orders values ('o-1')"),
        lambda keep: connection.execute("commit" if keep else "rollback"),
    )
    connection.close()


@contextmanager
def by_psycopg(url: str) -> Iterator[Held]:
    with psycopg.connect(url) as connection:
        connection.execute("create table if not exists orders (id text)")
        connection.commit()
        yield Held(
            connection,
            lambda: connection.execute("insert into orders values ('o-1')"),
            lambda keep: connection.commit() if keep else connection.rollback(),
        )


@contextmanager
def by_sqlalchemy(url: str) -> Iterator[Held]:
    made = sqlalchemy.create_engine(f"postgresql+psycopg{url.removeprefix('postgresql')}")
    with made.begin() as connection:
        connection.exec_driver_sql("create table if not exists orders (id text)")
    with Session(made) as session:
        yield Held(
            session,
            lambda: session.execute(sqlalchemy.text("insert into orders values ('o-1')")),
            lambda keep: session.commit() if keep else session.rollback(),
        )
    made.dispose()


WAYS = [
    pytest.param("sqlite", by_apsw, id="apsw"),
    pytest.param("postgres", by_psycopg, id="psycopg", marks=pytest.mark.postgres),
    pytest.param("postgres", by_sqlalchemy, id="sqlalchemy on psycopg", marks=pytest.mark.postgres),
]


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    def url(kind: str) -> str:
        return f"sqlite:///{tmp_path}/x.db" if kind == "sqlite" else request.getfixturevalue("postgres_dsn")

    return url


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_a_run_of_a_paused_workflow_starts_paused(kind: str, way: Any, url_of: Callable[[str], str]) -> None:
    url = url_of(kind)
    flow, registry = greeting()
    with sk.open(url, registry=registry) as engine:
        engine.publish(flow)
        engine.pauses.pause_workflow(flow.name, by="bea")
        with way(url) as held:
            started = engine.start(flow, {"name": "Ada"}, connection=held.connection)
            held.end(True)
        assert engine.show(started.run_id)["run"]["state"] == "paused"


@pytest.mark.parametrize(("kind", "way"), WAYS)
@pytest.mark.parametrize("write_first", [True, False])
def test_the_run_and_the_writes_of_the_program_are_one(
    kind: str, way: Any, write_first: bool, url_of: Callable[[str], str]
) -> None:
    url = url_of(kind)
    flow, registry = greeting()
    with sk.open(url, registry=registry) as engine:
        engine.publish(flow)
        for keep in (False, True):
            with way(url) as held:
                if write_first:
                    held.write()
                started = engine.start(flow, {"name": "Ada"}, idempotency_key="k", connection=held.connection, by="bea")
                again = engine.start(flow, {"name": "Ada"}, idempotency_key="k", connection=held.connection)
                assert (started.created, again.created, again.run_id) == (True, False, started.run_id)
                if not write_first:
                    held.write()
                held.end(keep)
        [run] = engine.runs()["runs"]
        assert (run["id"], run["created_by"]) == (started.run_id, "bea")
        assert engine.work_on(started.run_id).output == "hello Ada"
        assert engine.certify(started.run_id).ok


@pytest.mark.postgres
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("through", ["asyncpg", "psycopg", "sqlalchemy"])
async def test_an_async_program_starts_a_run_in_its_transaction(postgres_dsn: str, keep: bool, through: str) -> None:
    flow, registry = greeting()

    async def program() -> list[str]:
        async with sk.AsyncEngine(postgres_dsn, registry=registry) as engine:
            await engine.publish(flow)
            async with await engine.start_worker():
                run_id = await STARTS[through](engine, flow, postgres_dsn, keep)
                if not keep:
                    return [run["id"] for run in (await engine.runs())["runs"]]
                return [str((await engine.wait(run_id, seconds=60)).output)]

    assert await program() == (["hello you"] if keep else [])


async def start_by_asyncpg(engine: sk.AsyncEngine, flow: sk.Workflow, dsn: str, keep: bool) -> str:
    connection = await asyncpg.connect(dsn)
    transaction = connection.transaction()
    await transaction.start()
    started = await engine.start(flow, connection=connection)
    await (transaction.commit() if keep else transaction.rollback())
    await connection.close()
    return started.run_id


async def start_by_psycopg(engine: sk.AsyncEngine, flow: sk.Workflow, dsn: str, keep: bool) -> str:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        started = await engine.start(flow, connection=connection)
        await (connection.commit() if keep else connection.rollback())
        return started.run_id


async def start_by_sqlalchemy(engine: sk.AsyncEngine, flow: sk.Workflow, dsn: str, keep: bool) -> str:
    made = create_async_engine(f"postgresql+asyncpg{dsn.removeprefix('postgresql')}")
    async with AsyncSession(made) as session:
        started = await engine.start(flow, connection=session)
        await (session.commit() if keep else session.rollback())
    await made.dispose()
    return started.run_id


STARTS = {"asyncpg": start_by_asyncpg, "psycopg": start_by_psycopg, "sqlalchemy": start_by_sqlalchemy}


@pytest.mark.parametrize("sealed", [False, True])
def test_what_a_start_reads_is_read_in_the_thread_of_the_engine(tmp_path: Path, sealed: bool) -> None:
    """What was read some seconds ago about keys and withdrawals is read again, and the caller's thread has no loop."""
    url = f"sqlite:///{tmp_path}/x.db"
    flow, registry = greeting()
    codec = KeyringCodec({"k1": b"0" * 32}) if sealed else None
    with sk.open(url, registry=registry, payload_codec=codec) as engine:
        engine.publish(flow)
        for _ in range(2):
            engine._core.access._forget()
            engine._core._starter.withdrawals.forget("default")
            with by_apsw(url) as held:
                started = engine.start(flow, {"name": "Ada"}, connection=held.connection)
                held.end(True)
        assert engine.work_on(started.run_id).output == "hello Ada"
        engine.versions.withdraw(flow.name, 1, reason="twice")
        with by_apsw(url) as held, pytest.raises(sk.Conflict, match="withdrawn"):
            engine.start(flow, connection=held.connection)


def test_a_refused_start_leaves_the_transaction_of_the_program_usable(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    flow, registry = greeting()
    with sk.open(url, registry=registry) as engine:
        engine.publish(flow)
        with by_apsw(url) as held:
            refused_starts(engine, flow, held)
        assert len(engine.runs()["runs"]) == 2


def refused_starts(engine: sk.Engine, flow: sk.Workflow, held: Held) -> None:
    held.write()
    engine.start(flow, business_key="one", connection=held.connection)
    with pytest.raises(sk.Conflict, match="only one may be"):
        engine.start(flow, business_key="one", connection=held.connection)
    engine.start(flow, {"name": "a"}, idempotency_key="k", connection=held.connection)
    with pytest.raises(sk.KeyReused):
        engine.start(flow, {"name": "b"}, idempotency_key="k", connection=held.connection)
    held.end(True)


def test_a_connection_that_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    flow, registry = greeting()
    with sk.open(url, registry=registry) as engine:
        with by_apsw(url) as held, pytest.raises(InvalidInput, match=r"engine.publish\(workflow\) before"):
            engine.start(flow, connection=held.connection)
        engine.publish(flow)
        other, idle, memory = (
            apsw.Connection(str(name)) for name in (tmp_path / "o.db", tmp_path / "x.db", ":memory:")
        )
        foreign = sqlite3.connect(":memory:")
        for connection, said in (
            (other, "and the engine works on"),
            (memory, "a database in memory"),
            (idle, "has no transaction"),
            (foreign, "two copies in one process ignore each other's locks"),
            (object(), "takes an open connection of apsw"),
            ("text", "not a value of type str"),
        ):
            with pytest.raises(InvalidInput, match=said):
                engine.start(flow, connection=connection)
        for opened in (other, idle, memory, foreign):
            opened.close()
        assert engine.runs()["runs"] == []


@pytest.mark.postgres
async def test_a_connection_of_another_database_or_loop_is_refused(postgres_dsn: str, tmp_path: Path) -> None:
    flow, registry = greeting()

    connection = await asyncpg.connect(postgres_dsn)
    with sk.open(postgres_dsn, registry=registry) as engine:
        engine.publish(flow)
        with pytest.raises(InvalidInput, match="belongs to an event loop"):
            engine.start(flow, connection=connection)
    async with sk.AsyncEngine(postgres_dsn, registry=registry) as there:
        with pytest.raises(InvalidInput, match="has no transaction"):
            await there.start(flow, connection=connection)
        with pytest.raises(InvalidInput, match="takes an open connection of asyncpg or psycopg"):
            await there.start(flow, connection=object())
    await connection.close()


def test_no_driver_is_imported_that_the_program_does_not_use(tmp_path: Path) -> None:
    code = f"""
import sys, apsw
import stepkeep as sk

@sk.step
def greet(): ...

flow = sk.Workflow("greets")
flow.step("only", greet)
with sk.open("sqlite:///{tmp_path}/x.db") as engine:
    engine.publish(flow)
    connection = apsw.Connection("{tmp_path}/x.db")
    with connection:
        connection.execute("create table orders (id)")
        engine.start(flow, connection=connection)
print([name for name in ("asyncpg", "psycopg", "sqlalchemy", "sqlite3") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (ran.stdout, ran.stderr) == ("[]\n", "")
