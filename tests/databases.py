"""Migrated databases for tests: SQLite files copied from one, and what migrates the template on PostgreSQL."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stepkeep.store.connect import migrate


def migrated_file(path: Path) -> str:
    """The URL of a new SQLite file with all tables. Copying one is twice as fast as migrating one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_migrated_bytes())
    return f"sqlite:///{path}"


@functools.cache
def _migrated_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "template.db"
        migrate_now(f"sqlite:///{file}")
        return file.read_bytes()


def migrate_now(url: str) -> None:
    """Migrate a database, from code that may or may not be inside an event loop."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(migrate(url))).result()
