"""Every test of the contract runs against every store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.databases import migrated_file
from tests.holding import Hold
from tests.simulation.model import ModelRaw, model_store
from tests.store.raw import PostgresRaw, Raw, SqliteRaw

from stepkeep.store.connect import connect
from stepkeep.store.protocol import Store


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the contract runs against the simulator's model store, which has neither SQL nor a file."""
    items[:] = [item for item in items if not is_on_the_model(item) or "test_contract" in item.path.name]


def is_on_the_model(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    return parameters is not None and parameters.params.get("url") == "model"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "model"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a migrated database without runs is; the model store needs no tables."""
    if request.param == "model":
        return f"model:{tmp_path}"
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return migrated_file(tmp_path / "stepkeep.db")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a database without any table is, or will be."""
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_postgres_dsn"))
    return f"sqlite:///{tmp_path}/stepkeep.db"


@pytest.fixture
def raw(url: str) -> Raw:
    """The database by its own driver, past the store."""
    if url.startswith("model:"):
        return ModelRaw(url)
    return SqliteRaw(url) if url.startswith("sqlite") else PostgresRaw(url)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = model_store(url) if url.startswith("model:") else connect(url)
    await store.open()
    try:
        await store.migrate()
        yield store
    finally:
        await store.close()


@pytest.fixture
def store(hold: Hold, url: str) -> Store:
    return hold(opened(url))


@pytest.fixture
def other(hold: Hold, store: Store, url: str) -> Store:
    """A second store on the same database, as another process would have it."""
    return hold(opened(url))
