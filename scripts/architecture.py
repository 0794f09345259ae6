"""Writes docs/internals/architecture.md: packages, their folders and their jobs, from docstrings and import contracts.

Run `python scripts/architecture.py`. A test compares the page with what this script makes.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "internals" / "architecture.md"
PRODUCT, LABORATORY = ROOT / "src" / "stepkeep", ROOT / "lab" / "src" / "stepkeep_lab"

BEGINNING = """\
# Architecture

This page is made by `python scripts/architecture.py` from the docstrings of packages and the import contracts in
`pyproject.toml`. [One step](one-step.md) follows a step through the folders; [decisions](decisions.md) has the reasons;
`python scripts/package_lines.py` counts lines.

Two distributions are built here: the product `stepkeep` (`src/stepkeep/`), and the laboratory `stepkeep_lab`
(`lab/src/stepkeep_lab/`), which tests and measures the product and is never part of its wheel.
`src/stepkeep/ui/` has the web pages: ES modules and CSS without a build, over the HTTP API alone.
"""
LAYERS = "\nA package imports only packages below its line. Packages on one line do not import each other.\n"


def layers(of: str) -> list[list[str]]:
    """The packages of a distribution, line by line, the uppermost first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [found] = [one["layers"] for one in contracts if one["type"] == "layers" and one["containers"] == [of]]
    return [[name.strip() for name in line.split("|")] for line in found]


def contracts() -> Iterator[str]:
    read = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for one in read["tool"]["importlinter"]["contracts"]:
        yield f"- {one['name']}."


def job(module: Path) -> str:
    """The first paragraph of a docstring, as one line."""
    words = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split()).removesuffix(".")


def rows(folder: Path, names: list[list[str]]) -> Iterator[str]:
    """A row for each package and for each of its folders that is a package itself."""
    for name in (name for line in names for name in line if (folder / name).is_dir()):
        yield f"| **`{name}/`** | {job(folder / name / '__init__.py')} |"
        for inner in sorted((folder / name).glob("*/__init__.py")):
            yield f"| `{name}/{inner.parent.name}/` | {job(inner).split('. ')[0]} |"


def page() -> str:
    parts = [BEGINNING]
    for title, folder in ("The product", PRODUCT), ("The laboratory", LABORATORY):
        names = [[name for name in line if name != "__main__"] for line in layers(folder.name)]
        drawn = "\n".join(" | ".join(line) for line in names if line)
        table = "\n".join(rows(folder, names))
        parts.append(f"\n## {title}\n\n```\n{drawn}\n```\n{LAYERS}\n| folder | job |\n|---|---|\n{table}\n")
    parts.append(
        "\n## Boundaries\n\n`lint-imports`, which `make test` runs, holds these contracts:\n\n"
        + "\n".join(contracts())
        + "\n"
    )
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
