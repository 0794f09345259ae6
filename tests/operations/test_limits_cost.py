"""What waits under full keys costs a claim of other steps nothing: no statement more than where nothing waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import asyncpg
import pytest
from msgspec.structs import replace

from stepkeep.kernel.definition import Definition, Limit
from tests.operations.test_limits import begin, limited, per_customer, runs_of
from tests.suites import in_proof
from tests.workbench import SECOND, Bench, on, task

FREE = 20
APART = ("pragma", "select where current_setting", "begin; set local")
"""How the statements begin that set up a connection or send notifications: when that happens is up to chance."""


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements of this process on databases that are opened meanwhile."""
    statements: list[str] = []

    def of_sqlite(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, lambda event: statements.append(str(event["sql"])))

    def of_postgres(name: str) -> Any:
        plain = getattr(asyncpg.Connection, name)

        async def call(connection: Any, statement: str, *given: Any, **options: Any) -> Any:
            statements.append(statement)
            return await plain(connection, statement, *given, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, of_sqlite])
        for name in ("fetch", "execute"):
            patch.setattr(asyncpg.Connection, name, of_postgres(name))
        yield statements


async def fill(bench: Bench, keys: int) -> None:
    """Of each of these keys, one step holds the place and one waits, and every line was looked at."""
    await begin(bench, limited(per_customer()), *[f"full-{no}" for no in range(keys) for _ in range(2)])
    while await bench.claim(FREE):
        pass
    bench.store.clock_offset += 5 * SECOND
    while await bench.store.limits.has_due():
        await bench.claim(FREE)


@pytest.mark.parametrize("keys", [40, in_proof(10_000)])
@pytest.mark.parametrize("is_limited", [False, True], ids=["plain steps", "steps with free keys"])
async def test_full_keys_cost_a_claim_of_free_steps_no_statement(
    database_url: str, monkeypatch: pytest.MonkeyPatch, keys: int, is_limited: bool
) -> None:
    """The first claim of a process: it has read nothing yet, and finds what is free at once."""
    definition = Definition(name="free", version=1, steps=(task("a"),))
    if is_limited:
        definition = replace(definition, steps=(replace(task("a"), limits=(Limit(name="own", running=FREE),)),))
    taken = []
    for count in (0, keys):
        async with on(database_url) as bench:
            await fill(bench, count)
        with watched(monkeypatch) as statements:
            async with on(database_url) as bench:
                bench.store.clock_offset += 5 * SECOND
                free = await begin(bench, definition, *["anybody"] * FREE)
                before = len(statements)
                assert runs_of(await bench.claim(FREE)) == set(free)
                taken.append(len([one for one in statements[before:] if not one.startswith(APART)]))
                for run in free:
                    await bench.cancel(run)
    assert 0 < taken[1] <= taken[0]
