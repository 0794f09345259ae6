"""Writes the table of migrations in docs/databases.md from the first sentence of each file. Run it after adding one."""

from __future__ import annotations

import re
from pathlib import Path

from stepkeep.store.migrations import load_migrations

PAGE = Path(__file__).parents[1] / "docs" / "databases.md"
BEGIN, END = "<!-- migrations: written by scripts/migration_table.py -->\n", "<!-- end of migrations -->\n"
STORES = {"SQLite": "stepkeep.store.sqlite", "PostgreSQL": "stepkeep.store.postgres"}
NOTHING = "Nothing to "


def opening(script: str) -> str:
    """The first sentence of the comment on top of a migration."""
    lines = re.match(r"(?:--.*\n)+", script)
    assert lines is not None
    text = " ".join(line.removeprefix("--").strip() for line in lines[0].splitlines())
    return re.split(r"(?<=\.)\s+", text.strip(), maxsplit=1)[0].removesuffix(".")


def table() -> str:
    """Every migration with what it brings, and for which store if only one has something to change."""
    rows = ["| migration | what it brings |", "|---|---|"]
    said = {
        store: [(f"{one.version:04d}_{one.name}", opening(one.script)) for one in load_migrations(package)]
        for store, package in STORES.items()
    }
    for (name, sqlite), (_, postgres) in zip(*said.values(), strict=True):
        if sqlite.startswith(NOTHING):
            text = f"PostgreSQL: {postgres}"
        else:
            text = f"SQLite: {sqlite}" if postgres.startswith(NOTHING) else postgres
        rows.append(f"| `{name}` | {text} |")
    return "\n".join([*rows, ""])


def page() -> str:
    """The page with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
