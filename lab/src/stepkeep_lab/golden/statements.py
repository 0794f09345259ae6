"""Records which statements a store sends, with their parameters, while it lives seeded lives of the store check.

The lives are those of `storecheck.differential`, on clocks that stand still. So that a seed always has the same log,
reads that are made at once are made in turn, rows of a parameter are sorted, and statements that set up a connection or
notify others are not recorded.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from stepkeep.store import notifications
from stepkeep.store.statements import load_statements
from stepkeep_lab.postgres import PostgresServer
from stepkeep_lab.simulation.campaign import spread
from stepkeep_lab.storecheck.databases import Databases, SqliteDatabases, model_store, opened, postgres_databases
from stepkeep_lab.storecheck.differential import Comparison

SEEDS = 500
LENGTH = 24
"""Operations of a life."""

BATCH = 50
STORES = ("sqlite", "postgres")


UNTIMED = re.compile(r"pragma |select where current_setting|begin; .*notify ", re.DOTALL)
"""Statements that are sent when a connection opens or when a background task comes to it."""

ARRAY = re.compile(r"\{.*\}", re.DOTALL)


class Sent(NamedTuple):
    """One statement: the name of its file, or its text where it has none, and its parameters."""

    name: str
    parameters: str


class Log(msgspec.Struct, frozen=True, array_like=True):
    """The statements of one life: a number for each name, and one byte for the parameters of each few statements."""

    names: list[int]
    parameters: bytes


Take = Callable[[str, Any], None]


def logs(store: str, seeds: Sequence[int], jobs: int = 1) -> Iterator[list[list[Sent]]]:
    """The statements of each of these lives on one kind of store, in batches."""
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    yield from spread(partial(_batch, store), batches, jobs)


def _batch(store: str, seeds: Sequence[int]) -> list[list[Sent]]:
    with ExitStack() as stack:
        databases: Databases
        if store == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stepkeep-golden-"))
            databases = SqliteDatabases(Path(folder))
        else:
            server = stack.enter_context(PostgresServer(settings={"fsync": "off", "full_page_writes": "off"}))
            databases = stack.enter_context(postgres_databases(server))
        return [_life(store, databases, seed) for seed in seeds]


def _life(store: str, databases: Databases, seed: int) -> list[Sent]:
    named = {text: name for name, text in vars(load_statements(f"stepkeep.store.{store}")).items()}
    sent: list[Sent] = []

    def take(text: str, parameters: Any) -> None:
        if not UNTIMED.match(text):
            sent.append(Sent(named.get(text.strip(), " ".join(text.split())[:80]), _shown(parameters)))

    # Each commit takes its own notification along, and none waits for real time. Stores draw a name for their own.
    at_once = patch.multiple(notifications, SHORTEST=0.0, LONGEST=0.0)
    with WATCHES[store](take), at_once, patch.object(secrets, "token_hex", lambda count: "0" * 2 * count):
        asyncio.run(_live(seed, databases, sent))
    return sent


async def _in_turn(*awaited: Awaitable[Any]) -> list[Any]:
    """`asyncio.gather`, one after the other."""
    return [await one for one in awaited]


class Unread(Comparison):
    """A life in which nothing is read but what the operations read, and no journal is long."""

    async def begin(self) -> None:
        self.is_aged = False
        await super().begin()

    async def compare(self) -> None:
        pass


async def _live(seed: int, databases: Databases, sent: list[Sent]) -> None:
    async with opened(model_store()) as model:
        await model.migrate()
        async with databases.fresh() as real:
            sent.clear()  # how the database was made is in the schemas
            with patch.object(asyncio, "gather", _in_turn):
                life = Unread(seed, model, real)
                await life.begin()
                for _ in range(LENGTH):
                    await life.go_on()
            lived = len(sent)
    del sent[lived:]


@contextmanager
def _watch_sqlite(take: Take) -> Iterator[None]:
    import apsw

    def watch(connection: apsw.Connection) -> None:
        def traced(_: apsw.Cursor, text: str, bindings: Any) -> bool:
            take(text, bindings)
            return True

        connection.exec_trace = traced

    apsw.connection_hooks.append(watch)
    try:
        yield
    finally:
        apsw.connection_hooks.remove(watch)


@contextmanager
def _watch_postgres(take: Take) -> Iterator[None]:
    from asyncpg.connection import Connection

    opened = Connection.__init__

    def watched(self: Any, *given: Any, **options: Any) -> None:
        opened(self, *given, **options)
        self.add_query_logger(lambda query: take(query.query, query.args))

    with patch.object(Connection, "__init__", watched):
        yield


WATCHES: dict[str, Callable[[Take], AbstractContextManager[None]]] = {
    "sqlite": _watch_sqlite,
    "postgres": _watch_postgres,
}


def _shown(parameters: Any) -> str:
    """Parameters as text. Rows, in columns or as JSON, are sorted: many come from sets."""
    given = [_column(one) for one in parameters or ()]
    columns = [one for one in given if isinstance(one, list)]
    if columns and len({len(one) for one in columns}) == 1:
        rows = sorted(str(row) for row in zip(*columns, strict=True))
        return str([rows, *(one for one in given if not isinstance(one, list))])
    return str(given)


def _column(parameter: Any) -> Any:
    """The values of a list, of rows as JSON, or of an array as PostgreSQL reads it; another parameter as it is."""
    if isinstance(parameter, str) and parameter.startswith("[["):
        return msgspec.json.decode(parameter)
    return parameter[1:-1].split(",") if isinstance(parameter, str) and ARRAY.fullmatch(parameter) else parameter
