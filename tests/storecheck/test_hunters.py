"""The hunters themselves: lives repeat, differences are told in words, and a rival's scene can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepkeep.kernel.machine.rows import Run
from stepkeep.kernel.machine.states import RunState
from stepkeep_lab.postgres import PostgresServer
from stepkeep_lab.storecheck.adoption_mutants import ADOPTION_MUTANTS
from stepkeep_lab.storecheck.composition_mutants import COMPOSITION_MUTANTS
from stepkeep_lab.storecheck.databases import PostgresDatabases, SqliteDatabases, postgres_databases
from stepkeep_lab.storecheck.differential import compare, is_aged
from stepkeep_lab.storecheck.lock_scenarios import SCENES, Play, stage
from stepkeep_lab.storecheck.mutants import MUTANTS
from stepkeep_lab.storecheck.planting import SqlMutant, planted
from stepkeep_lab.storecheck.reading import difference


def test_the_same_seed_lives_the_same_life(tmp_path: Path) -> None:
    databases = SqliteDatabases(tmp_path)
    assert compare(3, databases) == compare(3, databases)
    [mutant] = [one for one in MUTANTS if one.name == "sqlite-due-missed"]
    with planted(mutant):
        first = compare(0, databases)
        assert first.difference is not None
        assert compare(0, databases) == first


AGED_SEED = next(seed for seed in range(100) if is_aged(seed))
NARROW = SqlMutant(
    name="postgres-narrow-message-numbers",
    store="postgres",
    file="insert_messages",
    what="the number of a message has 32 bits",
    old="$5::text::bigint[]",
    new="$5::text::int[]",
)


@pytest.mark.proof
def test_an_aged_life_is_the_same_on_sqlite(tmp_path: Path) -> None:
    assert compare(AGED_SEED, SqliteDatabases(tmp_path)).difference is None


@pytest.mark.proof
@pytest.mark.postgres
def test_an_aged_life_is_the_same_on_postgresql_and_finds_numbers_that_are_too_narrow(
    postgres_server: PostgresServer,
) -> None:
    with postgres_databases(postgres_server) as databases:
        assert compare(AGED_SEED, databases).difference is None
        with planted(NARROW):
            found = compare(AGED_SEED, databases).difference
    assert found is not None
    assert "PostgreSQL cannot store this value" in found


@pytest.fixture(scope="module")
def databases(postgres_server: PostgresServer) -> Iterator[PostgresDatabases]:
    with postgres_databases(postgres_server) as made:
        yield made


@pytest.mark.postgres
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_store_stands_up_to_its_rival(scene: Play, databases: PostgresDatabases) -> None:
    assert stage(scene, databases) is None


ON_SQLITE, ON_POSTGRES = ([one for one in ADOPTION_MUTANTS if one.store == store] for store in ("sqlite", "postgres"))


@pytest.mark.parametrize("mutant", ON_SQLITE, ids=lambda mutant: mutant.name)
def test_the_shortest_life_continues_runs_and_finds_a_bug_of_adoptions(mutant: SqlMutant, tmp_path: Path) -> None:
    with planted(mutant):
        assert "at last" in (compare(0, SqliteDatabases(tmp_path), length=0).difference or "")


@pytest.mark.postgres
@pytest.mark.parametrize("mutant", ON_POSTGRES, ids=lambda mutant: mutant.name)
def test_the_shortest_life_finds_a_bug_of_adoptions_on_postgresql(
    mutant: SqlMutant, databases: PostgresDatabases
) -> None:
    with planted(mutant):
        assert "at last" in (compare(0, databases, length=0).difference or "")


def composition(store: str) -> list[Any]:
    """The planted bugs of children, resources, slots and jobs; a few of them run with `make test`. A missing lock is
    found by a rival alone."""
    found = [one for one in COMPOSITION_MUTANTS if one.store == store and one.file != "lock_quota"]
    return [pytest.param(mutant, id=mutant.name) for mutant in found[::9]]


FEW = 4
"""In so many lives, one has runs that can be deleted: nothing of them is left to deliver."""


@pytest.mark.parametrize("mutant", composition("sqlite"))
def test_the_shortest_lives_find_a_bug_of_composition(mutant: SqlMutant, tmp_path: Path) -> None:
    with planted(mutant):
        assert any(compare(seed, SqliteDatabases(tmp_path), length=0).difference for seed in range(FEW))


@pytest.mark.postgres
def test_a_life_on_postgresql_leaves_nothing_to_the_next_one(databases: PostgresDatabases) -> None:
    assert [compare(seed, databases, length=0).difference for seed in (0, 1)] == [None, None]


@pytest.mark.postgres
@pytest.mark.parametrize("mutant", composition("postgres"))
def test_the_shortest_lives_find_a_bug_of_composition_on_postgresql(
    mutant: SqlMutant, databases: PostgresDatabases
) -> None:
    with planted(mutant):
        assert any(compare(seed, databases, length=0).difference for seed in range(FEW))


RUN = Run(tenant="t", id="r", definition_id=0, state=RunState.RUNNING)


@pytest.mark.parametrize(
    ("model", "store", "told"),
    [
        ([1], [1], None),
        ([1, 2], [1, 3], "[1] is 2 on the model and 3 on the store"),
        ([1], [1, 2], "the answer is [1] on the model and [1, 2] on the store"),
        ({"a": {"b": 1}}, {"a": {}}, "a b is 1 on the model and nothing on the store"),
        ({}, {"a": 1}, "a is nothing on the model and 1 on the store"),
        ([RUN], [replace(RUN, seq=4)], "[0] seq is 0 on the model and 4 on the store"),
    ],
)
def test_a_difference_is_told_by_its_place(model: object, store: object, told: str | None) -> None:
    assert difference(model, store) == told
