"""A database that an earlier version made and filled is brought up to date with everything that is in it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import apsw
import asyncpg
import pytest
from tests.store.raw import Raw, RefusedBySchema
from tests.store.values import (
    TENANT,
    a_checkpoint,
    a_message,
    a_run,
    details,
    key,
    load,
    new_run,
    ready,
    run_id,
    save,
    want,
    writes,
)

import stepkeep as sk
from stepkeep.cli.main import main
from stepkeep.kernel.definition import QueueSpec
from stepkeep.kernel.errors import Contended, InvalidInput
from stepkeep.kernel.machine.rows import rows_of
from stepkeep.store.change import IdempotencyKey, More, Write
from stepkeep.store.connect import connect
from stepkeep.store.migrations import earlier_migrations
from stepkeep.store.protocol import Store
from stepkeep.store.statements import load_statements

FIRST_ENTRY_PAST_32_BITS = 2048
LATE = FIRST_ENTRY_PAST_32_BITS << 20
OLD_MESSAGES = tuple(a_message(1, f"m-{place}", (place + 1 << 20) + place) for place in range(50))


SINKS = "create table sinks (tenant text, name text, takes integer, prefix text);"
CURSORS = (
    "create table deliveries (tenant text, run_id {run_id}, sink text, takes integer, last bigint, sent bigint,"
    " sent_number integer, ready_at bigint, dead_at bigint)"
)
TRIGGERS = (
    "create table triggers (tenant text, name text, topic text, kind text, removed_at bigint);"
    " create table firings (tenant text, trigger_name text, moment text, due_at bigint, state text, watched integer,"
    " made_at bigint, depth integer, source text, primary key (tenant, trigger_name, moment))"
)
STAND_INS: dict[str, dict[int, tuple[str, str]]] = {
    "stepkeep.store.sqlite": {
        13: (
            "alter table run_details add column asked_before blob",
            "alter table run_details drop column asked_before",
        ),
        17: (
            "alter table run_details add column policy_revision integer",
            "alter table run_details drop column policy_revision",
        ),
        18: (
            SINKS + CURSORS.format(run_id="text"),
            "drop table sinks; drop table deliveries",
        ),
    },
    "stepkeep.store.postgres": {
        3: ("create table quarantine (tenant text, run_id uuid, released_at bigint)", "drop table quarantine"),
        13: (
            "alter table run_details add column asked_before bytea",
            "alter table run_details drop column asked_before",
        ),
        16: (TRIGGERS, "drop table triggers; drop table firings"),
        17: (
            "alter table run_details add column policy_revision integer",
            "alter table run_details drop column policy_revision",
        ),
        18: (
            SINKS + CURSORS.format(run_id="uuid"),
            "drop table sinks; drop table deliveries",
        ),
    },
}
"""What later migrations make and statements of today's program name: it is taken away before the upgrade."""


def package_of(url: str) -> str:
    return "stepkeep.store.sqlite" if url.startswith("sqlite") else "stepkeep.store.postgres"


def stand_ins(url: str, version: int) -> list[tuple[str, str]]:
    return [both for number, both in STAND_INS[package_of(url)].items() if number > version]


def without_stand_ins(url: str, version: int) -> None:
    async def go() -> None:
        connection = await asyncpg.connect(url)
        for _, drop in stand_ins(url, version):
            await connection.execute(drop)
        await connection.close()

    if url.startswith("sqlite"):
        file = apsw.Connection(url.removeprefix("sqlite:///"))
        for _, drop in stand_ins(url, version):
            file.execute(drop)
        file.close()
    else:
        asyncio.run(go())


@pytest.fixture
def url(empty_url: str) -> str:
    """These tests are about what a database has before it is migrated."""
    return empty_url


@asynccontextmanager
async def at_version(url: str, version: int) -> AsyncIterator[Store]:
    """A store on a database that has the migrations up to this one, as an earlier program left it: at PostgreSQL in the
    schema `public`."""
    store = connect(url)
    await store.open()
    try:
        await _apply(store, url, version)
        await store.close()
        await store.open()
        yield store
    finally:
        await store.close()


async def _apply(store: Store, url: str, version: int) -> None:
    package = package_of(url)
    async with store.transaction() as transaction:
        execute = transaction.connection.execute
        scripts = [load_statements(package).create_migrations]
        for one in earlier_migrations(package)[:version]:
            noted = f"({one.version}, '{one.name}', '{one.checksum}', 1)"
            scripts += [one.script, f"insert into migrations (version, name, checksum, applied_at) values {noted}"]
        scripts += [create for create, _ in stand_ins(url, version)]
        for script in scripts:
            done = execute(script)
            if package.endswith("postgres"):
                await done


def by_command(url: str, version: int = 1) -> None:
    without_stand_ins(url, version)
    assert main(["db", "migrate", "--db", url]) == 0


def by_opening(url: str, version: int = 1) -> None:
    without_stand_ins(url, version)
    with sk.open(url, auto_migrate=True):
        """Opening migrates."""


@pytest.mark.parametrize("upgrade", [by_command, by_opening])
async def test_messages_outlive_the_upgrade_of_their_numbers(
    url: str, raw: Raw, upgrade: Callable[[str], None]
) -> None:
    async with at_version(url, 1) as store:
        assert [version for version, _ in (await store.status()).applied] == [1]
        await save(store, new_run(1, (ready(1),), run=a_run(1, open=1, moving=1), messages=OLD_MESSAGES))
        document = b'{"a":1}'
        published = await store.publish(TENANT, "old", 1, "native", "digest", document, [QueueSpec(kind="x")], "ann")

    await asyncio.to_thread(upgrade, url)

    store = connect(url)
    await store.open()
    try:
        assert (await store.status()).pending == ()
        assert await store.read_messages(TENANT, run_id(1)) == list(OLD_MESSAGES)
        assert await store.read_definition(TENANT, "old", 1) == published
        late = a_message(1, "late", LATE)
        await store.change([want(1)], writes(Write(rows=rows_of([late]))))
        assert (await store.read_messages(TENANT, run_id(1)))[-1] == late
        for statement in ("update definitions set name = 'other'", "delete from definitions"):
            with pytest.raises(RefusedBySchema, match="never changes"):
                await raw.execute(statement)
    finally:
        await store.close()


async def test_reruns_of_an_earlier_version_learn_who_asked_for_the_runs_that_they_repeat(url: str) -> None:
    async with at_version(url, 12) as store:
        again = details(2, created_by="bea", rerun_of=run_id(1))
        third = details(3, created_by="c\u00e9d", rerun_of=run_id(2))
        lost = details(4, created_by="dan", rerun_of=run_id(9))
        await save(store, new_run(1), *(new_run(no, details=one) for no, one in enumerate((again, third, lost), 2)))

    await asyncio.to_thread(by_opening, url, 12)

    store = connect(url)
    await store.open()
    try:
        loaded = await load(store, *(want(number, duties=True) for number in range(1, 5)))
        assert {which: involved.requesters for which, involved in loaded.involved.items()} == {
            key(1): {"user:ann"},
            key(2): {"user:ann", "bea"},
            key(3): {"user:ann", "bea", "c\u00e9d"},
            key(4): {"dan"},
        }
    finally:
        await store.close()


async def test_keys_learn_their_lines_and_idempotency_keys_on_record_stay_those_of_any_caller(url: str) -> None:
    """K1 was replaced by k2, which was revoked, and that by k3; each in its time."""
    keys = {"k1": (None, None), "k2": ("k1", 7), "k3": ("k2", None), "x": (None, None)}
    rows = ", ".join(
        f"('acme', '{name}', 'ann', '{'1' * 64}', '[]', 1, 'root', {'null' if old is None else repr(old)}, "
        f"{ended or 'null'}, {'null' if ended is None else repr('root')})"
        for name, (old, ended) in keys.items()
    )
    columns = "tenant, id, owner, secret_hash, scopes, created_at, created_by, replaces, revoked_at, revoked_by"
    promise = f"'{TENANT}', 'start', 'k', 'f', '{run_id(1)}'"
    async with at_version(url, 39) as store, store.transaction() as transaction:
        for statement in (
            f"insert into api_keys ({columns}) values {rows}",
            f"insert into idempotency_keys (tenant, operation, key, fingerprint, run_id) values ({promise})",
        ):
            done = transaction.connection.execute(statement)
            if not url.startswith("sqlite"):
                await done

    await asyncio.to_thread(by_opening, url, 39)

    store = connect(url)
    await store.open()
    try:
        lines = {one.id: one.line for one in await store.people.list_keys("acme")}
        assert lines == {"k1": "k1", "k2": "k2", "k3": "k1", "x": "x"}, "a revoked key stays as it is"
        old = IdempotencyKey(tenant=TENANT, operation="start", key="k", fingerprint="f", run_id=run_id(1))
        assert (await load(store, more=More(idempotency=(old.scoped_key,)))).idempotency == {old.scoped_key: old}
    finally:
        await store.close()


async def test_checkpoints_move_from_the_notes_of_their_steps_to_rows(url: str, raw: Raw) -> None:
    known = [
        {"name": "charge \u00e9", "value": '{"id" : 7, "s": "\\ud83e"}', "fence": 2, "at": 1_700_000_000_000_001},
        {"name": "ship", "value": "null", "fence": 3, "at": 1_700_000_000_000_002},
    ]
    async with at_version(url, 42) as store:
        await save(store, new_run(1, (ready(1), ready(1, 1))), new_run(2, (ready(2),)))
        note = json.dumps({"spent": 1, "checkpoints": known}).replace("'", "''")
        await raw.execute(f"update steps set note = '{note}' where no = 1")
        await raw.execute("""update steps set note = '{"output":"{\\"checkpoints\\":[1]}"}' where no = 0""")

    await asyncio.to_thread(by_opening, url, 42)

    store = connect(url)
    await store.open()
    try:
        assert await store.newest_checkpoints(*key(1)) == [
            a_checkpoint(1, no=1, seq=place, **{**one, "value": one["value"].encode()})
            for place, one in enumerate(known, 1)
        ]
        assert await store.newest_checkpoints(*key(2)) == []
        assert [step.note and step.note.spent for step in await store.read_steps(*key(1))] == [0, 1]
    finally:
        await store.close()


@pytest.mark.postgres
async def test_the_numbers_of_the_first_schema_were_too_small(empty_postgres_dsn: str) -> None:
    """What the upgrade is for: without it this message is refused."""
    async with at_version(empty_postgres_dsn, 1) as store:
        await save(store, new_run(1))
        with pytest.raises(InvalidInput):
            await store.change([want(1)], writes(Write(rows=rows_of([a_message(1, "late", LATE)]))))


@pytest.mark.postgres
async def test_an_open_store_goes_on_after_others_have_migrated(empty_postgres_dsn: str) -> None:
    """A statement that a connection keeps was planned for the old column: the transaction is run again, not lost."""
    async with at_version(empty_postgres_dsn, 1) as store:
        await save(store, new_run(1, messages=OLD_MESSAGES))
        before = await load(store, want(1, inbox=True))
        await asyncio.to_thread(by_opening, empty_postgres_dsn)
        with contextlib.suppress(Contended):
            await load(store, want(1, inbox=True))
        after = await load(store, want(1, inbox=True))
        assert after.inbox == before.inbox
        assert await store.read_messages(TENANT, run_id(1)) == list(OLD_MESSAGES)
