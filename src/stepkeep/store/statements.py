"""Loads the SQL statements of a store, one per file, as named attributes.

Nothing is built or edited here: a statement reaches the database as it is in its file. Each store calls it at import,
so an empty file is found before anything runs.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from types import SimpleNamespace


@cache
def load_statements(package: str) -> SimpleNamespace:
    """The statements of `package`'s folder `sql`, as attributes named after their files.

    >>> load_statements("stepkeep.store.sqlite").count_runs.splitlines()[0]
    'select state, count(*)'
    """
    folder = files(package) / "sql"
    statements = {
        file.name.removesuffix(".sql"): _statement(file.read_text("utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }
    empty = sorted(name for name, statement in statements.items() if not statement)
    if empty or not statements:
        raise LookupError(f"{package} has no SQL in {', '.join(empty) or 'its folder sql'}")
    return SimpleNamespace(**statements)


def _statement(text: str) -> str:
    """A file's text below its opening comment, which need not be sent to the server."""
    lines = text.strip().splitlines()
    while lines and lines[0].startswith("--"):
        lines.pop(0)
    return "\n".join(lines).strip()
