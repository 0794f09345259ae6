"""The live schema of each database: every integer column is in the table of bounds, and has room for its bounds."""

import pytest
from tests.store.raw import Raw

from stepkeep.kernel.machine.bounds import BIGINT, INT, LAST_MOMENT, LAST_SEQ
from stepkeep.store.bounds import INTEGERS
from stepkeep.store.protocol import Store

LIVE = {
    "sqlite": """
        select tables.name, columns.name, 64 from sqlite_schema as tables, pragma_table_info(tables.name) as columns
        where tables.type = 'table' and tables.name not like 'sqlite_%' and lower(columns.type) = 'integer'
            and (tables.name, columns.name) <> ('journal', 'place')""",  # the database's own number of an entry
    "postgres": """
        select table_name::text, column_name::text, numeric_precision::integer from information_schema.columns
        where table_schema = 'stepkeep' and data_type in ('smallint', 'integer', 'bigint')
            and table_name !~ '^journal_(default|[0-9]+)$|_view$'
            and (table_name, column_name) <> ('journal', 'xact')""",  # the server's own number of a transaction
}
ROOM = {64: BIGINT, 32: INT, 16: 2**15 - 1}


async def live_columns(url: str, raw: Raw) -> dict[tuple[str, str], int]:
    """How far each integer column of the database reaches."""
    found = await raw.execute(LIVE["sqlite" if url.startswith("sqlite") else "postgres"])
    return {(table, column): ROOM[bits] for table, column, bits in found}


async def test_every_integer_column_of_the_live_schema_has_bounds(store: Store, url: str, raw: Raw) -> None:
    listed = {(table, column) for table, columns in INTEGERS.items() for column in columns}
    assert set(await live_columns(url, raw)) == listed


async def test_every_integer_column_has_room_for_its_bounds(store: Store, url: str, raw: Raw) -> None:
    for (table, column), room in (await live_columns(url, raw)).items():
        bounds = INTEGERS[table][column]
        assert -room - 1 <= bounds.low <= bounds.reaches <= bounds.high <= room, (table, column)


@pytest.mark.parametrize(
    "column", [("messages", "number"), ("steps", "settled"), ("journal", "seq"), ("runs", "seq"), ("outbox", "seq")]
)
async def test_what_grows_with_the_journal_has_64_bits(
    store: Store, url: str, raw: Raw, column: tuple[str, str]
) -> None:
    assert (await live_columns(url, raw))[column] == BIGINT >= LAST_SEQ > LAST_MOMENT >> 20
