"""The page of dialects names tests that exist, and the page of conformance what the judge really says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepkeep.conformance.report import Code
from stepkeep.conformance.words.dialect_line import SUFFIX
from stepkeep.dialects import registry
from tests.conformance.logs import success
from tests.conformance.tellings import dialects, told

ROOT = Path(__file__).parent.parent.parent
INDEX = (ROOT / "docs" / "dialects" / "index.md").read_text(encoding="utf-8")
CONFORMANCE = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
JOURNAL = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[str]:
    table = INDEX.partition("| question | native default |")[2]
    return [line for line in table.splitlines()[2:] if line.startswith("| ")]


def test_every_row_of_the_reconciliation_is_shown_by_tests_that_exist() -> None:
    assert len(rows()) == 53
    missing = []
    for row in rows():
        question, named = row.split("|")[1].strip(), NAMED.findall(row)
        assert named, question
        missing += [
            f"{question} {file}::{name}"
            for file, name in named
            if not (ROOT / file).exists() or f"def {name}(" not in (ROOT / file).read_text(encoding="utf-8")
        ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(registry.PACKAGES))
def test_every_extension_is_on_the_page_of_its_dialect(name: str) -> None:
    page = (ROOT / "docs" / "dialects" / f"{name}.md").read_text(encoding="utf-8")
    listed = [
        f"| {view.noun} | {one.source or '(new)'} | {one.target} | {one.trigger or '(canonical)'} | {one.reason} |"
        for view in registry.judged(name).views
        for one in view.extensions
    ]
    assert [row for row in listed if row not in page] == []


def test_every_dialect_is_on_the_page() -> None:
    assert [name for name in registry.PACKAGES if f"[`{name}`]({name}.md)" not in INDEX] == []


@pytest.mark.parametrize("judged", dialects(), ids=lambda judged: judged.name)
def test_every_field_of_a_dialects_log_is_described(judged: object) -> None:
    said = CONFORMANCE + JOURNAL
    for line in told(success(), judged):  # type: ignore[arg-type]
        assert line["event_type"].endswith((SUFFIX, "journal_definition", "journal_head"))
        assert [name for name in line["metadata"] if f"`{name}`" not in said and f".{name}`" not in said] == []


def test_every_code_is_described() -> None:
    assert [code for code in Code if f"| `{code}` |" not in CONFORMANCE + JOURNAL] == []
