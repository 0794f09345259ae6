"""Errors of the server in words of our own: what went wrong, and nothing of the rows it went wrong with."""

from __future__ import annotations

import asyncpg
import pytest

from stepkeep.kernel.errors import StepkeepError
from stepkeep.store.postgres.failures import translated

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    "statement",
    [
        "insert into notes values (1, 'CANARY'), (1, 'CANARY')",
        "insert into notes values (-1, 'CANARY')",
        "insert into notes values (null, 'CANARY')",
        "select 'CANARY'::integer",
    ],
)
async def test_an_error_of_the_server_quotes_no_row(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("create temp table notes (id integer primary key check (id > 0), text text)")
        with pytest.raises(StepkeepError) as caught, translated():
            await connection.execute(statement)
    finally:
        await connection.close()
    assert "CANARY" not in str(caught.value)
    assert len(str(caught.value)) > 20
