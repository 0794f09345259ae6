"""The simulator's model store for the stores' contract suite: many stores on one database, and a look past them."""

import re
from typing import Any
from weakref import WeakValueDictionary

from stepkeep_lab.simulation.database import Database
from stepkeep_lab.simulation.store import ModelStore

_databases: WeakValueDictionary[str, Database] = WeakValueDictionary()
_kept: list[Database] = []


def database_at(url: str) -> Database:
    """The one database behind a URL, for as long as a test runs."""
    found = _databases.get(url)
    if found is None:
        found = _databases[url] = Database()
        _kept[:] = [found]
    return found


def model_store(url: str) -> ModelStore:
    return ModelStore(database_at(url), url=url)


TABLES = {"run_details": "details", "idempotency_keys": "idempotency", "business_keys": "business"}


class ModelRaw:
    """The few statements that the contract suite sends past the store."""

    def __init__(self, url: str) -> None:
        self._tables = database_at(url).tables

    async def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if statement.startswith("create table notes"):
            return []
        if statement.startswith("select text from notes"):
            texts = re.findall(r"values \('(\w+)'\)", "\n".join(self._tables.notes))
            return [(text,) for text in sorted(texts)]
        counted = re.fullmatch(r"select count\(\*\) from (\w+)", statement)
        assert counted is not None, f"the model has no SQL: {statement}"
        rows = getattr(self._tables, TABLES.get(counted[1], counted[1]))
        inner = [len(one) for one in rows.values() if isinstance(one, dict)]
        return [(sum(inner) if inner else len(rows),)]

    async def words(self, table: str, constraint: str) -> set[str]:
        raise AssertionError("the model has no SQL")
