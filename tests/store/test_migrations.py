"""Migrating: once, by whoever comes first, and never over what another version has made."""

import asyncio

import pytest
from tests.store.raw import Raw
from tests.store.values import TENANT, load, new_run, save, want

from stepkeep.kernel.errors import SchemaMismatch
from stepkeep.store.connect import connect
from stepkeep.store.migrations import EARLIER, Applied, Migration, earlier_migrations, load_migrations, outstanding
from stepkeep.store.protocol import Store
from stepkeep.store.records import RunFilter


@pytest.fixture
def url(empty_url: str) -> str:
    """These tests are about what a database has before it is migrated."""
    return empty_url


FIRST = Migration(1, "core", "create table a", "sum-1")
SECOND = Migration(2, "more", "create table b", "sum-2")


def test_what_is_missing_is_outstanding_in_order() -> None:
    assert outstanding([FIRST, SECOND], [], "here") == (FIRST, SECOND)
    assert outstanding([FIRST, SECOND], [Applied(1, "core", "sum-1")], "here") == (SECOND,)
    assert outstanding([FIRST, SECOND], [Applied(2, "more", "sum-2"), Applied(1, "core", "sum-1")], "here") == ()


def test_a_newer_schema_is_refused_by_name() -> None:
    applied = [Applied(1, "core", "sum-1"), Applied(3, "later", "sum-3")]
    with pytest.raises(SchemaMismatch, match=r"here has migration 0003_later.*upgrade"):
        outstanding([FIRST, SECOND], applied, "here")


def test_another_text_under_the_same_number_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="another text of 0001_core"):
        outstanding([FIRST], [Applied(1, "core", "sum-x")], "here")


@pytest.mark.parametrize("package", ["stepkeep.store.sqlite", "stepkeep.store.postgres"])
def test_the_migrations_of_a_store_are_numbered_without_a_gap(package: str) -> None:
    earlier, migrations = earlier_migrations(package), load_migrations(package)
    assert [migration.version for migration in earlier] == list(range(1, EARLIER + 1))
    assert [migration.version for migration in migrations[1:]] == list(range(EARLIER + 1, EARLIER + len(migrations)))
    assert (earlier[0].name, migrations[0].name, migrations[0].version) == ("core", "initial", 1)
    assert all(len(migration.checksum) == 64 for migration in earlier + migrations)


PUBLISHED = {
    "stepkeep.store.sqlite": {
        1: "7e94ff30deee1002c8def4d96c33eb87f005d0d05d5a3b74b64d4cce6c44a125",
        2: "2054923fd9dfc1cca6bb23d39ecdc8bf5bd1e04970c587e50ebf7bead9c963a1",
        3: "bb8107f445477fb9c6177ddcc3827f16c2699529082ff98c15fdc37c9cd408dd",
        4: "e905e06331fdebe3150d4df26974c02a2e7be6ab98143abab2a58d4b88e9ce03",
    },
    "stepkeep.store.postgres": {
        1: "cd3b4fce982e5cd940d78397e3d77c1f02b0cf05a739a6a7fd6078a96e60fbe2",
        2: "5b718e5d05b5584ae6c4f40a64e7380e0fc79c6eef0b60aa05f2fdaa547bc608",
        3: "c9a191eae70f994a4d9a8aa49e963ded95939c045aa3d9d4a0e3f64e1d520e21",
        4: "e463dc2b2129ea5cebe1660fb6348dadd4f81f4adaf4d01e5cead1bc42acb87e",
    },
}
"""Databases remember these checksums and are refused when a text has changed: a published file stays as it is."""


@pytest.mark.parametrize("package", PUBLISHED)
def test_a_published_migration_never_changes(package: str) -> None:
    checksums = {migration.version: migration.checksum for migration in earlier_migrations(package)}
    assert {version: checksums[version] for version in PUBLISHED[package]} == PUBLISHED[package]


def test_both_stores_number_and_name_their_migrations_alike() -> None:
    named = [
        [(one.version, one.name) for one in earlier_migrations(package) + load_migrations(package)]
        for package in PUBLISHED
    ]
    assert named[0] == named[1]


async def test_a_new_database_lacks_everything_until_it_is_migrated(url: str) -> None:
    store = connect(url)
    await store.open()
    try:
        before = await store.status()
        assert before.applied == ()
        assert before.pending[0] == (1, "initial")
        with pytest.raises(SchemaMismatch, match="stepkeep db migrate"):
            await store.list_runs(RunFilter(tenant=TENANT))
        with pytest.raises(SchemaMismatch, match="stepkeep db migrate"):
            await load(store, want(1))
        after = await store.migrate()
        assert after.applied == before.pending
        assert after.pending == ()
        assert after.size_bytes > 0
        assert await store.status() == after
    finally:
        await store.close()


async def test_migrating_again_changes_nothing(store: Store) -> None:
    await save(store, new_run(1))
    before = await store.status()
    assert (await store.migrate()).applied == before.applied
    assert await store.read_run(TENANT, new_run(1).run.id) is not None


async def test_many_may_migrate_at_once(url: str, raw: Raw) -> None:
    stores = [connect(url) for _ in range(6)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        statuses = await asyncio.gather(*(store.migrate() for store in stores for _ in range(2)))
    finally:
        await asyncio.gather(*(store.close() for store in stores))
    assert {status.pending for status in statuses} == {()}
    [(count,)] = await raw.execute("select count(*) from migrations")
    assert count == len(statuses[0].applied)


BY_OTHERS = {
    "a newer version": "insert into migrations (version, name, checksum, applied_at) values (99, 'later', 'x', 1)",
    "another text": "update migrations set checksum = 'x' where version = 1",
}


@pytest.mark.parametrize("kind", BY_OTHERS)
async def test_a_database_made_by_another_version_is_refused(store: Store, url: str, raw: Raw, kind: str) -> None:
    await raw.execute(BY_OTHERS[kind])
    with pytest.raises(SchemaMismatch):
        await store.migrate()
    with pytest.raises(SchemaMismatch):
        await connect(url).open()
