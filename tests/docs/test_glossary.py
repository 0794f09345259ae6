"""The glossary has one row per term, and names folders and files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
SOURCES = ROOT / "src" / "stepkeep"


def rows() -> list[list[str]]:
    tables, _, _ = PAGE.partition("## Words with several meanings")
    lines = [line for line in tables.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "term"]


def terms() -> list[str]:
    return [term for row in rows() for term in row[0].split(", ")]


def test_no_term_has_two_rows() -> None:
    assert len(terms()) > 90
    assert sorted(terms()) == sorted(set(terms()))


def test_every_path_of_the_glossary_exists() -> None:
    paths = [path for row in rows() if len(row) == 4 for path in re.findall(r"`([\w/]+(?:/|\.py))`", row[2])]
    assert len(paths) > 60
    assert [path for path in paths if not (SOURCES / path).exists()] == []


def test_no_word_with_several_meanings_is_a_term() -> None:
    _, _, table = PAGE.partition("## Words with several meanings")
    words = [word for line in re.findall(r"^\| ([\w ,]+) \|", table, re.MULTILINE) for word in line.split(", ")]
    assert "place" in words
    assert set(words) & set(terms()) == {"lane"}


NAMELESS = {"told", "tell", "hear", "place", "places", "asked", "asking", "stir", "borne", "bears", "parcel", "haste"}
"""Words that say too little to name a module, a function or a class."""


def test_no_module_function_or_class_has_a_name_that_says_nothing() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        named = [one for one in nodes if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        names = [path.stem, *(one.name for one in named)]
        found += [f"{path.relative_to(SOURCES)}: {name}" for name in names if name.strip("_").lower() in NAMELESS]
    assert found == []


UNSAID = {"tell", "tells", "hear", "hears", "parcel", "haste", "stir", "borne"}
"""Of these words, those that name no parameter and no variable either."""


def test_no_parameter_or_variable_is_named_by_a_word_that_says_nothing() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_variable = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and not node.id.isupper()
            name = node.arg if isinstance(node, ast.arg) else node.id if is_variable else ""
            if name.strip("_") in UNSAID:
                found.append(f"{path.relative_to(SOURCES)}:{node.lineno}: {name}")
    assert found == []
