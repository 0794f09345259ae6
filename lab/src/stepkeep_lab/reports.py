"""Writes the report of a lab command: one JSON object and one page, both with the commit and the command.

The commands of `stepkeep lab` with `--report` call it. It must not decide what a report says.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepkeep.kernel.errors import InvalidInput

SOURCES = ("src", "lab")
"""The folders of the repository whose changes make it other code."""


def commit() -> str:
    """Which code this is: its commit, and whether it was changed since; unknown where there is no repository."""
    try:
        head, changes = (_git(*words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", *SOURCES)))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head} with changes" if changes else head


def _git(*words: str) -> str:
    root = Path(__file__).resolve().parents[3]
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()


def write_report(folder: str | Path, name: str, content: Mapping[str, Any], page: str) -> None:
    """Write NAME.json and NAME.md into this folder."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
        (path / f"{name}.md").write_text(page, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--report: {folder} cannot be written: {error.strerror}.") from None


def opening(title: str, commit: str, command: str, seconds: float) -> list[str]:
    """The lines that every page begins with."""
    made = f"Made at commit `{commit}` with Python {platform.python_version()} in {seconds:,.0f} s by"
    return [f"# {title}", "", made, "", "```console", f"$ {command}", "```", ""]


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table whose first column is text and whose other columns are figures."""
    ruler = ["---", *["---:"] * (len(columns) - 1)]
    return ["| " + " | ".join(map(str, row)) + " |" for row in (columns, ruler, *rows)]
