"""Numbered `.sql` files per store, and which of them a database still lacks.

`0001_initial` makes the whole schema as of migration 42; later migrations have numbers above that. A database of an
earlier version has some of the 42 migrations that led to the same schema, and gets the others from an archive. It
compares the known migrations with those recorded in a database, and refuses a database that is newer or different.
It touches no database itself. Each store's `migrate` takes its own lock, calls `outstanding`, runs the result in one
transaction and records each checksum. The engine calls `require_migrated` where opening must not migrate.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from stepkeep.kernel.errors import SchemaMismatch
from stepkeep.store.records import SchemaStatus

EARLIER = 42
"""How many migrations `0001_initial` stands for: later ones go on after this number."""

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_ARCHIVE = "earlier_migrations.zip"


class Migration(msgspec.Struct, frozen=True):
    """One file: its number, its name, the script, and the SHA-256 of the script."""

    version: int
    name: str
    script: str
    checksum: str


class Applied(msgspec.Struct, frozen=True):
    """A migration as recorded in a database."""

    version: int
    name: str
    checksum: str


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """The migrations of a new database, in order: `0001_initial`, and all after number 42 without a gap."""
    found = [(file.name, file.read_bytes()) for file in (files(package) / "migrations").iterdir()]
    migrations = _numbered(found)
    if [migration.version for migration in migrations] != [1, *range(EARLIER + 1, EARLIER + len(migrations))]:
        raise LookupError(f"the migrations of {package} are not numbered 1, {EARLIER + 1}, {EARLIER + 2} without a gap")
    return migrations


@cache
def earlier_migrations(package: str) -> tuple[Migration, ...]:
    """The 42 migrations of databases that were made before there was `0001_initial`."""
    parent, _, store = package.rpartition(".")
    with (files(parent) / _ARCHIVE).open("rb") as file, zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{store}/")]
        return _numbered((name.removeprefix(f"{store}/"), archive.read(name)) for name in names)


def migrations_for(package: str, applied: Sequence[Applied]) -> tuple[Migration, ...]:
    """The migrations of the database that has these: the earlier ones, if it began with the first of them."""
    known = load_migrations(package)
    if applied and all(old.name != known[0].name for old in applied):
        return earlier_migrations(package) + known[1:]
    return known


def _numbered(found: Iterable[tuple[str, bytes]]) -> tuple[Migration, ...]:
    def each() -> Iterator[Migration]:
        for name, script in found:
            if match := _NAME.fullmatch(name):
                yield Migration(int(match[1]), match[2], script.decode(), hashlib.sha256(script).hexdigest())

    return tuple(sorted(each(), key=lambda migration: migration.version))


def outstanding(known: Sequence[Migration], applied: Iterable[Applied], where: str) -> tuple[Migration, ...]:
    """The migrations that the database lacks. Raises SchemaMismatch if it has one that this program does not know."""
    scripts = {migration.version: migration for migration in known}
    done = set()
    for old in sorted(applied, key=lambda old: old.version):
        mine = scripts.get(old.version)
        if mine is None:
            raise SchemaMismatch(
                f"{where} has migration {old.version:04d}_{old.name}, which this version of Stepkeep does "
                "not know. A newer version has used this database: upgrade Stepkeep here."
            )
        if mine.checksum != old.checksum:
            raise SchemaMismatch(
                f"{where} was migrated with another text of {old.version:04d}_{old.name} than this version "
                "of Stepkeep has. Use the version that made it, or start with a new database."
            )
        done.add(old.version)
    return tuple(migration for migration in known if migration.version not in done)


def as_pairs(migrations: Iterable[Migration | Applied]) -> tuple[tuple[int, str], ...]:
    """Version and name of each, as `SchemaStatus` lists them."""
    return tuple((migration.version, migration.name) for migration in migrations)


def require_migrated(status: SchemaStatus, *, is_embedded: bool = False) -> None:
    """Raise SchemaMismatch with the command to run where a migration is missing. `status.url` holds no password."""
    if status.pending:
        missing = ", ".join(f"{version:04d}_{name}" for version, name in status.pending)
        found = f"lacks the migrations {missing}" if status.applied else "has no Stepkeep schema yet"
        command = shlex.join(["stepkeep", "db", "migrate", "--db", status.url])
        why = (
            "and what only looks never migrates it: an older Stepkeep could then no longer open it. Once no older one "
            "uses it"
            if is_embedded
            else "and opening a PostgreSQL database never changes its schema. As the owner of the tables"
        )
        raise SchemaMismatch(f"{status.url} {found}, {why}, run: {command}")
