"""Ways to get round separation of duties, generated from the tables of `ways`: none works, on both stores and over
HTTP. Each case ends with a person who has no such duty, and who gets through."""

from __future__ import annotations

import asyncio

import pytest

from tests.people.ways.cases import DIMENSIONS, cases, few, play_of
from tests.people.ways.play import Case
from tests.people.world import opened

SIDE_BY_SIDE = 16
"""How many cases are played at a time in one tenant."""

SECONDS = 120

PARTS = 3

PROOF_PARTS = 10
"""Each person of the engine has connections, and a server has a hundred."""


async def play_all(url: str, face: str, chosen: list[tuple[int, Case]]) -> list[str]:
    """Play cases in one tenant. Returns what went wrong, a line for each case."""
    found, places = [], asyncio.Semaphore(SIDE_BY_SIDE)
    async with opened(url, face) as world:

        async def play(number: int, case: Case) -> None:
            try:
                async with places, asyncio.timeout(SECONDS):
                    await play_of(world, case, number).play()
            except Exception as problem:  # noqa: BLE001 - each case is told about
                found.append(f"{case}: {type(problem).__name__} {problem}")

        await asyncio.gather(*(play(*one) for one in chosen))
        assert len(world.unpublished) * 4 < len(chosen), f"most were not published: {world.unpublished}"
    return found


def play(url: str, face: str, chosen: list[Case]) -> None:
    found = asyncio.run(play_all(url, face, list(enumerate(chosen))))
    assert not found, f"{len(found)} of {len(chosen)} cases:\n" + "\n".join(sorted(found))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_way_round_a_duty_works(database_url: str, part: int) -> None:
    """Few cases, with every value of every table. The engine of the service decides; `test_planted` plays without."""
    play(database_url, "http", few("http", part, PARTS))


@pytest.mark.proof
@pytest.mark.parametrize("part", range(PROOF_PARTS))
@pytest.mark.parametrize("face", ["engine", "http"])
def test_no_way_of_all_that_are_generated_works(database_url: str, face: str, part: int) -> None:
    play(database_url, face, cases(face)[part::PROOF_PARTS])


@pytest.mark.parametrize("face", ["engine", "http"])
def test_each_value_of_each_table_occurs_in_many_cases(face: str) -> None:
    made = cases(face)
    assert len(made) >= 300
    for place, values in enumerate(DIMENSIONS):
        for value in values:
            many = sum(case[place] == value for case in made)
            assert many >= 10 or (value == "session" and face == "engine"), (value, many)
