"""Docstrings and comments of the product name components, never persons who are not there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent.parent / "src" / "stepkeep"
PERSONS = re.compile(r"\b(whoever|whosever|somebody|anybody|everybody|nobody's|born|believed|goodbye)\b", re.IGNORECASE)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, every documented constant and every comment."""
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", ()) if isinstance(getattr(node, "body", None), list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield statement.lineno, str(statement.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_no_component_is_spoken_of_as_a_person() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {text.strip()[:80]}"
        for path in sorted(SOURCES.rglob("*.py"))
        if PERSONS.search(source := path.read_text(encoding="utf-8"))
        for line, text in prose(source)
        if PERSONS.search(text)
    ]
    assert found == []
