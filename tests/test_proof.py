"""The list of long checks: every folder of tests is in it, and a result counts for its own code alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.proof import LONGEST_MINUTES, TESTS, Part, Result, chosen, parts, unproved

FOLDER = Path(__file__).parent
PART = Part("stores", 5, ("python", "--version"))


def result(*, ok: bool = True, code: str = "now") -> Result:
    return Result(
        code=code, commit="abc", ok=ok, seconds=1.0, command="python --version", first_line="", last_line="3 missed"
    )


def test_every_folder_with_long_tests_is_in_one_part() -> None:
    named = [folder for folders in TESTS for folder in folders.split()]
    marked = {
        path.relative_to(FOLDER).parts[0]
        for path in FOLDER.glob("*/**/test_*.py")
        if "proof" in path.read_text(encoding="utf-8")
    }
    assert len(named) == len(set(named))
    assert marked <= set(named)


def test_no_part_takes_more_than_its_time() -> None:
    assert max(part.minutes for part in parts()) <= LONGEST_MINUTES


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ({}, ["stores was never run"]),
        ({"stores": result(ok=False)}, ["stores failed at abc: 3 missed"]),
        ({"stores": result(code="before")}, ["stores is of other code, at abc"]),
        ({"stores": result()}, []),
    ],
)
def test_a_part_counts_if_it_passed_on_this_code(kept: dict[str, Result], said: list[str]) -> None:
    assert list(unproved([PART], kept, "now")) == said


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"no part 'nothing'. Choose from: golden, simulation-1"):
        chosen(["nothing"])
