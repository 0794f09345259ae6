"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def load(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script, ROOT / "scripts" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_states_is_what_the_tables_say() -> None:
    tables = load("state_tables")
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page(), "run python scripts/state_tables.py"


def test_the_page_of_databases_has_every_migration() -> None:
    migrations = load("migration_table")
    assert migrations.PAGE.read_text(encoding="utf-8") == migrations.page(), "run python scripts/migration_table.py"


def test_the_page_of_the_service_has_every_route() -> None:
    routes = load("http_routes")
    assert routes.PAGE.read_text(encoding="utf-8") == routes.page(), "run python scripts/http_routes.py"


def test_every_relative_link_in_the_documentation_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_the_page_on_architecture_is_what_docstrings_and_contracts_say() -> None:
    architecture = load("architecture")
    assert architecture.PAGE.read_text(encoding="utf-8") == architecture.page(), "run python scripts/architecture.py"


def test_a_page_that_calls_the_laboratory_says_that_it_needs_a_checkout() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name != "glossary.md"]
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    calling = {name: text for name, text in texts.items() if re.search(r"stepkeep (?:bench|lab)\b", text)}
    assert {"benchmarks.md", "torture.md", "cli.md"} <= calling.keys()
    assert [name for name, text in calling.items() if "checkout" not in text] == []


def test_pages_for_users_name_dialects_and_not_the_numbers_of_their_sources() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in ("conformance.md", "proof.md")]
    found = {
        page.name for page in pages if re.search(r"\bseeds? 00\d|formats of the seeds", page.read_text(), re.IGNORECASE)
    }
    assert found == set()
