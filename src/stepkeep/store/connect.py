"""From a URL to a store: the one place that knows which databases there are.

It opens nothing (the caller does) and imports a driver only when its database is asked for.
"""

from __future__ import annotations

from stepkeep.errors import InvalidInput, StoreUnavailable
from stepkeep.store.protocol import Store
from stepkeep.store.sqlite.store import SqliteStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def connect(url: str) -> Store:
    """The store behind a URL, not yet open.

    >>> connect("sqlite:///app.db").url
    'sqlite:///app.db'
    """
    if url.startswith(_SQLITE):
        return SqliteStore(_path(url))
    if url.startswith(_POSTGRES):
        return _postgres(url)
    if "://" not in url or url.startswith("sqlite:"):
        # Somebody who means a file is told how to name one; a URL may hold a password and is not repeated.
        file = url.removeprefix("sqlite:").lstrip("/") or "app.db"
        raise InvalidInput(f"{url!r} is not the URL of a database. For a file, write sqlite:///{file}.")
    raise InvalidInput(
        f"{_scheme(url)!r} is not a database Stepkeep knows. Use sqlite:///file.db (relative), "
        "sqlite:////absolute/file.db, or postgresql://user@host/database."
    )


def _path(url: str) -> str:
    path = url.removeprefix(_SQLITE)
    if not path or path.startswith(":memory:"):
        raise InvalidInput(
            "Stepkeep keeps runs in a file, so that they outlive the process. Name one: sqlite:///app.db."
        )
    return path


def _postgres(dsn: str) -> Store:
    try:
        from stepkeep.store.postgres.store import PostgresStore
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        raise StoreUnavailable(
            "PostgreSQL needs a driver that is not installed. Install it with: pip install 'stepkeep[postgres]'"
        ) from missing
    return PostgresStore(dsn)


def _scheme(url: str) -> str:
    """What stands before the first colon; the rest may hold a password and is not repeated."""
    return url.partition(":")[0]
