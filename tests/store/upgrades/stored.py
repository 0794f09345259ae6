"""Databases that earlier programs left, each with live runs, and how a test gets a copy of one."""

from __future__ import annotations

import lzma
from pathlib import Path

import asyncpg

DATABASES = Path(__file__).parent / "databases"
COMMITS = ("04d22b6", "d767b03a", "72fb15b1")
"""Programs at the migrations 1, 38 and 42."""


def file_of(commit: str) -> Path:
    return DATABASES / f"{commit}.db.xz"


def dump_of(commit: str) -> Path:
    return DATABASES / f"{commit}.sql.xz"


def copy_file(commit: str, path: Path) -> None:
    path.write_bytes(lzma.decompress(file_of(commit).read_bytes()))


async def restore(commit: str, url: str) -> None:
    """Make the empty database at this URL a copy of the one that the program at this commit left."""
    if url.startswith("sqlite"):
        copy_file(commit, Path(url.removeprefix("sqlite:///")))
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(lzma.decompress(dump_of(commit).read_bytes()).decode())
    finally:
        await connection.close()
