"""Writes the table of routes in docs/http.md from the OpenAPI document. Run it after a change of a route."""

from __future__ import annotations

from pathlib import Path

from stepkeep.api.access import OPEN, ROUTES, scopes_of
from stepkeep.api.app import create_app
from stepkeep.engine import AsyncEngine

PAGE = Path(__file__).parents[1] / "docs" / "http.md"
BEGIN, END = "<!-- routes: written by scripts/http_routes.py -->\n", "<!-- end of routes -->\n"


def table() -> str:
    """Every route with what it does and the scopes that it needs, in the order of the document."""
    document = create_app(AsyncEngine("sqlite:///unused.db")).openapi()
    rows = ["| route | | scopes |", "|---|---|---|"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            row = ROUTES[f"{method.upper()} {path}"]
            needs = "none: no key" if row == OPEN else ", ".join(scopes_of(row)) or "any key"
            rows.append(f"| `{method.upper()} {path}` | {operation['summary']} | {needs} |")
    return "\n".join([*rows, ""])


def page() -> str:
    """The page with the table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
