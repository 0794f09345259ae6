"""Bugs planted in the stores' SQL are caught: a few here, all by `stepkeep lab stores`."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import apsw
import asyncpg
import pytest
from tests.databases import migrated_file

from stepkeep.kernel.errors import InvalidInput
from stepkeep.store.migrations import load_migrations
from stepkeep.store.statements import load_statements
from stepkeep_lab.postgres import PostgresServer
from stepkeep_lab.simulation.mutation import Misfit
from stepkeep_lab.storecheck.databases import SqliteDatabases, postgres_databases
from stepkeep_lab.storecheck.hunt import LIVES, RIVALS, STORES, choose, hunt
from stepkeep_lab.storecheck.mutants import MUTANTS
from stepkeep_lab.storecheck.planting import SqlMutant, planted

QUICK = (
    "sqlite-counter-not-written",
    "postgres-no-lock",
)
"""Caught by a scene and within one life."""

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.postgres
def test_planted_bugs_are_caught_on_real_databases_and_the_stores_without_them_pass() -> None:
    found = hunt(QUICK, most=1)
    assert found.missed == []
    assert found.unsound == []
    assert set(found.clean) == set(STORES)
    assert {score.catch.hunter for score in found.scores} == {RIVALS, LIVES}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_fits_its_file_and_is_taken_out_again(mutant: SqlMutant) -> None:
    before = texts(mutant.store)
    with planted(mutant):
        changed = [name for name, text in texts(mutant.store).items() if before[name] != text]
        assert changed == [mutant.file]
    assert texts(mutant.store) == before


def texts(store: str) -> dict[str, str]:
    package = f"stepkeep.store.{store}"
    migrations = {f"{one.version:04d}_{one.name}": one.script for one in load_migrations(package)}
    return {**vars(load_statements(package)), **migrations}


async def test_sqlite_takes_every_statement_with_a_bug_in_it(tmp_path: Path) -> None:
    """A bug that is no SQL would be caught by anybody."""

    async def migrate() -> str:
        async with SqliteDatabases(tmp_path).fresh() as store:
            return store.url.removeprefix("sqlite:///")

    def explain(statement: str) -> None:
        connection.execute(f"explain {statement}", (None,) * parameters(statement))

    connection = apsw.Connection(migrated_file(tmp_path / "whole.db").removeprefix("sqlite:///"))
    for mutant in MUTANTS:
        if mutant.store == "sqlite":
            with planted(mutant):
                if "/sql/" in mutant.path:
                    explain(texts("sqlite")[mutant.file])
                else:
                    await migrate()
    connection.close()


def parameters(statement: str) -> int:
    """How many values a statement takes: the highest number it names, or as many as there are question marks."""
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    return max(numbers) if numbers else statement.count("?")


async def prepare(dsn: str, statements: list[str]) -> None:
    connection = await asyncpg.connect(dsn)
    for statement in statements:
        await connection.prepare(statement)
    await connection.close()


@pytest.mark.postgres
def test_postgresql_takes_every_statement_with_a_bug_in_it(postgres_server: PostgresServer) -> None:
    mutants = [one for one in MUTANTS if one.store == "postgres"]
    statements = []
    for mutant in mutants:
        with planted(mutant):
            if "/sql/" in mutant.path:
                statements.append(texts("postgres")[mutant.file])
            else:
                with postgres_databases(postgres_server):
                    pass
    with postgres_databases(postgres_server) as databases:
        asyncio.run(prepare(databases.dsn, statements))


def test_there_are_many_bugs_for_both_stores_and_each_has_its_name() -> None:
    assert len(BY_NAME) == len(MUTANTS)
    for store in STORES:
        assert len([mutant for mutant in MUTANTS if mutant.store == store]) >= 20


@pytest.mark.parametrize(
    "wrong", [{"old": "no such text"}, {"old": "and"}, {"file": "no_such_file"}, {"file": "0001_core"}], ids=str
)
def test_a_bug_that_no_longer_fits_says_so(wrong: dict[str, str]) -> None:
    mutant = BY_NAME["sqlite-expired-renewed"]._replace(**wrong)
    with pytest.raises(Misfit, match="sqlite-expired-renewed"), planted(mutant):
        pass


def test_what_is_caught_does_not_count_where_the_store_fails_anyway() -> None:
    with planted(BY_NAME["sqlite-counter-not-written"]):
        found = hunt(["sqlite-outbox-lost"], most=1)
    assert found.unsound == ["sqlite"]
    assert found.scores == []
    assert not found.ok


def test_a_bug_or_a_store_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no nonsense here; there are: postgres-no-lock"):
        choose(["nonsense"], STORES)
    with pytest.raises(InvalidInput, match="there is no oracle here; there are: sqlite, postgres"):
        choose([], ["oracle"])
