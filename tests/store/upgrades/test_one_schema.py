"""One initial migration: it makes the schema that the 42 earlier ones led to, and databases of both lines go on."""

from __future__ import annotations

import apsw
import asyncpg
import pytest
from tests.store.test_upgrade import at_version, package_of
from tests.store.upgrades.stored import DATABASES

from stepkeep.store.migrations import EARLIER, earlier_migrations, load_migrations
from stepkeep.store.statements import load_statements
from stepkeep_lab.golden.documents import POSTGRES_SCHEMA

FILES = DATABASES.parent / "migrations"
STORES = ("sqlite", "postgres")

MORE = {
    "columns in order": """
        select format('%s %s %s %s %s', c.relname, a.attnum, a.attname, a.attcollation::regcollation, a.attidentity)
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'stepkeep'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0
        order by c.relname, a.attnum""",
    "comments": """
        select format('%s.%s %s', c.relname, d.objsubid, d.description)
        from pg_description d join pg_class c on c.oid = d.objoid and d.classoid = 'pg_class'::regclass
        where c.relnamespace = 'stepkeep'::regnamespace order by c.relname, d.objsubid""",
    "rights": """
        select format('%s %s %s %s', oid::regprocedure, proacl, proconfig, prosecdef) from pg_proc
        where pronamespace = 'stepkeep'::regnamespace order by oid::regprocedure::text""",
    "views": """
        select format('%s %s', viewname, definition) from pg_views where schemaname = 'stepkeep' order by viewname""",
    "row-level security": """
        select format('%s %s %s', relname, relrowsecurity, relforcerowsecurity) from pg_class
        where relnamespace = 'stepkeep'::regnamespace and relkind in ('r', 'p') order by relname""",
    "policies": """
        select format('%s %s %s %s', tablename, policyname, roles, qual) from pg_policies
        where schemaname = 'stepkeep' order by tablename, policyname""",
}

CONFINED = """
    create role one_schema_test; select stepkeep.stepkeep_confine('stepkeep', 'one_schema_test')
"""


async def dump(url: str, scripts: list[str]) -> list[str]:
    """What these scripts make of an empty database, object by object. At PostgreSQL a role is confined, too."""
    if url.startswith("sqlite"):
        file = apsw.Connection(":memory:")
        for script in scripts:
            file.execute(script)
        query = "select sql from sqlite_schema where sql is not null order by type, name"
        return [row[0] for row in file.execute(query)]
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("create schema stepkeep; set local search_path = stepkeep, pg_catalog")
        for script in (*scripts, CONFINED):
            await connection.execute(script)
        queries = (POSTGRES_SCHEMA | MORE).items()
        return [f"{title}: {row[0]}" for title, query in queries for row in await connection.fetch(query)]
    finally:
        await transaction.rollback()
        await connection.close()


async def test_both_ways_end_in_the_same_schema(empty_url: str) -> None:
    package = package_of(empty_url)
    before = load_statements(package).create_migrations
    step_by_step = await dump(empty_url, [before, *(one.script for one in earlier_migrations(package))])
    at_once = await dump(empty_url, [before, load_migrations(package)[0].script])
    assert len(at_once) > 100
    assert at_once == step_by_step


@pytest.mark.parametrize("store", STORES)
def test_the_archive_of_the_product_has_the_files_of_the_earlier_migrations(store: str) -> None:
    kept = {file.name: file.read_text() for file in (FILES / store).iterdir()}
    packed = earlier_migrations(f"stepkeep.store.{store}")
    assert {f"{one.version:04d}_{one.name}.sql": one.script for one in packed} == kept
    assert len(kept) == EARLIER


@pytest.mark.parametrize("version", [1, 4, 38, EARLIER - 1, EARLIER])
async def test_a_database_of_an_earlier_version_goes_on_from_its_number(empty_url: str, version: int) -> None:
    package = package_of(empty_url)
    line = [(one.version, one.name) for one in (*earlier_migrations(package), *load_migrations(package)[1:])]
    async with at_version(empty_url, version) as store:
        assert (await store.status()).applied == tuple(line[:version])
        assert (await store.status()).pending == tuple(line[version:])
