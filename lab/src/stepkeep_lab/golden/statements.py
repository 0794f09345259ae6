"""Records which statements a store sends, with their parameters, while it lives seeded lives of the store check.

The lives are those of `storecheck.differential`, on clocks that stand still, so that the log of a seed is always the
same.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

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
        sent.append(Sent(named.get(text.strip(), " ".join(text.split())[:80]), _shown(parameters)))

    with WATCHES[store](take):
        asyncio.run(_live(seed, databases))
    return sent


class Unread(Comparison):
    """A life in which nothing is read but what the operations read, and no journal is long."""

    async def begin(self) -> None:
        self.is_aged = False
        await super().begin()

    async def compare(self) -> None:
        pass


async def _live(seed: int, databases: Databases) -> None:
    async with opened(model_store()) as model:
        await model.migrate()
        async with databases.fresh() as real:
            life = Unread(seed, model, real)
            await life.begin()
            for _ in range(LENGTH):
                await life.go_on()


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
    if isinstance(parameters, dict):
        return "{" + ", ".join(f"{name}: {_shown(value)}" for name, value in sorted(parameters.items())) + "}"
    if isinstance(parameters, list | tuple):
        return "[" + ", ".join(map(_shown, parameters)) + "]"
    return repr(parameters)
