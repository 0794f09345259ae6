"""docs/python.md is what the package says of itself."""

from __future__ import annotations

import os

from tests.docs.python_reference import MARK, PAGE, SET_UP, reference


def test_the_reference_part_of_the_page_is_what_the_docstrings_say() -> None:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    if os.environ.get("STEPKEEP_WRITE_GOLDEN"):
        PAGE.write_text(head + MARK + reference(), encoding="utf-8")
        return
    assert rest == reference(), "run STEPKEEP_WRITE_GOLDEN=1 pytest tests/docs/test_python_reference.py"


def test_the_page_shows_the_names_that_the_examples_use() -> None:
    assert f"```python\n{SET_UP}```\n" in PAGE.read_text(encoding="utf-8")
