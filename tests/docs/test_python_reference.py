"""docs/python.md is what the package says of itself."""

from __future__ import annotations

import inspect
import os

import stepkeep as sk
from tests.docs.python_reference import MARK, PAGE, SET_UP, field_words, reference


def test_the_reference_part_of_the_page_is_what_the_docstrings_say() -> None:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    if os.environ.get("STEPKEEP_WRITE_GOLDEN"):
        PAGE.write_text(head + MARK + reference(), encoding="utf-8")
        return
    assert rest == reference(), "run STEPKEEP_WRITE_GOLDEN=1 pytest tests/docs/test_python_reference.py"


def test_the_page_shows_the_names_that_the_examples_use() -> None:
    assert f"```python\n{SET_UP}```\n" in PAGE.read_text(encoding="utf-8")


def test_every_attribute_of_a_context_and_of_a_result_has_words() -> None:
    for kind in (sk.Context, sk.FlowContext):
        for name in dir(kind):
            assert name.startswith("_") or inspect.getdoc(inspect.getattr_static(kind, name)), f"{kind.__name__}.{name}"
    fields = field_words(sk.Result)
    for name in dir(sk.Result):
        assert name.startswith("_") or name in fields or inspect.getdoc(getattr(sk.Result, name)), name
    assert set(sk.Result.__struct_fields__) == set(fields)
    assert list(inspect.signature(sk.FlowContext.step).parameters)[1] == "function"
