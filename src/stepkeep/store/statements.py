"""Loads the SQL statements of a store as named attributes: one per file, and those that follow from the types of rows.

A statement that both stores share stands in `store/sql/`, in the words of PostgreSQL. SQLite gets it without casts,
with its own placeholders and functions, and with moments in place of offsets from the server's clock: there, this
process is the clock. A line `-- part: NAME` stands for a condition in `store/sql/parts/`. Statements that follow from a
row type are built (`row_statements.py`); nothing else is. Each store calls it at import, so an empty file is found
before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import SimpleNamespace

from stepkeep.store import row_statements

SHARED = "stepkeep.store"
_CAST = re.compile(r"::[a-z]+(\[\])?")
_MOMENT = re.compile(r"\(select stepkeep_now\(\) \+ (\$\d+)\)|stepkeep_now\(\) \+ (\$\d+)")
WORDS = {
    "greatest(": "max(",
    "least(": "min(",
    "select json_array_elements_text(": "select value from json_each(",
    "json_array_elements(": "json_each(",
    " offset 0)": ")",
}
_PART = re.compile(r"^-- part: (\w+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\$(\d+)")


def as_sqlite_has_it(statement: str) -> str:
    """A shared statement in the words of SQLite.

    >>> as_sqlite_has_it("update jobs set ended_at = stepkeep_now() + $2::bigint where id = $1::uuid")
    'update jobs set ended_at = ?2 where id = ?1'
    """
    plain = _MOMENT.sub(lambda found: found[1] or found[2], _CAST.sub("", statement))
    for of_postgres, of_sqlite in WORDS.items():
        plain = plain.replace(of_postgres, of_sqlite)
    return _PLACEHOLDER.sub(r"?\1", plain)


FORMS: Mapping[str, Callable[[str], str]] = {
    "stepkeep.store.sqlite": as_sqlite_has_it,
    "stepkeep.store.postgres": str,
}
"""How each store has the shared statements."""

OF_ROWS: Mapping[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "stepkeep.store.sqlite": row_statements.sqlite_statements,
    "stepkeep.store.postgres": row_statements.postgres_statements,
}
"""What follows from the types of rows for one store alone."""


@cache
def load_statements(package: str) -> SimpleNamespace:
    """The statements of a store, as attributes named after their files: its own, the shared, those of row types.

    >>> load_statements("stepkeep.store.sqlite").count_runs.splitlines()[0]
    'select state, count(*)'
    """
    form, of_rows = FORMS[package], OF_ROWS[package]
    shared = {name: form(text) for name, text in (*_read(SHARED), *row_statements.shared_statements())}
    own = {**dict(_read(package)), **{name: form(text) for name, text in of_rows()}}
    parts = {name: form(text) for name, text in _read(SHARED, "sql/parts")}
    if twice := sorted(shared.keys() & own.keys()):
        raise LookupError(f"{package} has statements of its own that are shared: {', '.join(twice)}")
    statements = {name: _PART.sub(lambda line: parts[line[1]], text) for name, text in {**shared, **own}.items()}
    if empty := sorted(name for name, statement in statements.items() if not statement):
        raise LookupError(f"{package} has no SQL in {', '.join(empty)}")
    return SimpleNamespace(**statements)


def _read(package: str, folder: str = "sql") -> Iterator[tuple[str, str]]:
    for file in (files(package) / folder).iterdir():
        if file.name.endswith(".sql"):
            yield file.name.removesuffix(".sql"), _statement(file.read_text("utf-8"))


def _statement(text: str) -> str:
    """A file's text below its opening comment, which need not be sent to the server."""
    lines = text.strip().splitlines()
    while lines and lines[0].startswith("--"):
        lines.pop(0)
    return "\n".join(lines).strip()
