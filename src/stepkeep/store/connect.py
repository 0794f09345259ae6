"""Creates the store for a URL: the only module that knows which databases there are.

It opens nothing (the caller does) and imports a driver only when its database is used.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from stepkeep.edges.safe_text import type_name
from stepkeep.kernel.errors import InvalidInput, StoreUnavailable
from stepkeep.store.protocol import Store
from stepkeep.store.records import SchemaStatus
from stepkeep.store.sqlite.store import SqliteStore

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def connect(url: str | os.PathLike[str]) -> Store:
    """The store behind a URL, or behind the path of an SQLite file; not yet open.

    >>> connect("sqlite:///app.db").url
    'sqlite:///app.db'
    """
    if isinstance(url, os.PathLike):
        url = f"{_SQLITE}{os.fsdecode(url)}"
    if not isinstance(url, str):
        raise InvalidInput(f"a database is named by a URL such as sqlite:///app.db, not by a {type_name(url)}.")
    if url.startswith(_SQLITE):
        return SqliteStore(_path(url))
    if url.startswith(_POSTGRES):
        return _postgres(url)
    scheme, colon, _ = url.partition("://")
    name = url.removeprefix("sqlite:").lstrip("/")
    if (not colon or scheme == "sqlite") and _is_file_name(name):
        # A file name gets advice on how to write it. Anything else may hold a password and is not repeated.
        raise InvalidInput(f"{url!r} is not the URL of a database. For a file, write sqlite:///{name or 'app.db'}.")
    known = "Use sqlite:///file.db (relative), sqlite:////absolute/file.db, or postgresql://user@host/database."
    if colon and re.fullmatch("[a-z][a-z0-9+.-]{0,31}", scheme):
        raise InvalidInput(f"{scheme!r} is not a database Stepkeep knows. {known}")
    raise InvalidInput(f"this is not the URL of a database. {known}")


async def migrate(url: str | os.PathLike[str]) -> SchemaStatus:
    """Bring the schema of a database up to date, with connections that are closed again."""
    store = connect(url)
    await store.open()
    try:
        return await store.migrate()
    finally:
        await store.close()


def _is_file_name(text: str) -> bool:
    """Whether a text is certainly a file name, and not a URL without its beginning."""
    return text.isprintable() and len(text) <= 255 and not set(text) & set("@:?#")


def _path(url: str) -> str:
    path = url.removeprefix(_SQLITE)
    if not path or path.startswith(":memory:"):
        raise InvalidInput(
            "Stepkeep keeps runs in a file, so that they outlive the process. Name one: sqlite:///app.db."
        )
    if "?" in path:
        raise InvalidInput(
            "the URL of an SQLite database has no parameters: leave the ? and what follows it away. Stepkeep sets what "
            "it needs itself. A file with a ? in its name cannot be used."
        )
    if "\x00" in path or path.endswith("/") or Path(path).name in ("", ".."):
        raise InvalidInput("the URL of an SQLite database names a file, and this one names a folder or nothing.")
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
