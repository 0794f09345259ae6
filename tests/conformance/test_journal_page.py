"""The page about the journal says what the judge does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from stepkeep.conformance.report import Code
from stepkeep.conformance.schema import HEADS, LINE, SHAPES
from stepkeep.conformance.verify import verify_lines
from stepkeep.operations.logs.log import canonical_machines

PAGE = (Path(__file__).parents[2] / "docs" / "journal.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def first_cells(heading: str) -> set[str]:
    """The words in code in the first column of the table under this heading."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return {word for row in table.splitlines()[1:] for word in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_log_on_the_page_verifies() -> None:
    report = verify_lines(block("jsonl").splitlines(), canonical_machines())
    assert report.ok
    assert report.lines > 10


def test_the_line_that_is_explained_is_one_of_the_log() -> None:
    assert json.loads(block("json")) in [json.loads(line) for line in block("jsonl").splitlines()]


def test_every_code_and_every_field_is_on_the_page() -> None:
    assert first_cells("code") == set(Code)
    assert first_cells("field") == set(LINE)
    shapes = [shape for _, _, shape in SHAPES.values()] + list(HEADS.values())
    assert first_cells("metadata") == {field for shape in shapes for field in (*shape.required, *shape.optional)}
