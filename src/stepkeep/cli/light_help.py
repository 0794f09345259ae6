"""Keeps `--help` cheap: typer's help imports rich's Markdown and Traceback, and with them two parsers, for nothing.

Commands write plain text, and tracebacks are printed by `failures`. `main` calls `prepare` before help is shown.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


class _Unused:
    """Stands for a class that the help of this program never uses."""

    def __init__(self, *given: Any, **named: Any) -> None:
        raise TypeError("help is written as plain text")


def prepare() -> None:
    """Import typer's help with empty modules in place of those that it does not need."""
    absent = [name for name in UNUSED if name not in sys.modules]
    for name in absent:
        module = ModuleType(name)
        setattr(module, UNUSED[name], _Unused)
        sys.modules[name] = module
    try:
        import typer.rich_utils  # noqa: F401 - imported here, so that typer finds it
    finally:
        for name in absent:
            del sys.modules[name]
