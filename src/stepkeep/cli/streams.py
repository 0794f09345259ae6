"""Prepares the process for a command: closed streams, narrow encodings, hooks of the interpreter, a cheap help.

`main` calls it. Output goes through `printer`; what the interpreter itself would print (warnings, errors of threads and
of destructors) is sent there too, because its text may come from user code.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from contextlib import suppress
from types import ModuleType
from typing import Any

from stepkeep.cli.inert_log import install_last_resort, traceback_lines
from stepkeep.cli.printer import warn


def prepare_streams() -> None:
    """Make the standard streams usable whatever the parent process has left of them."""
    _open_closed_streams()
    _tolerate_narrow_encodings()
    install_last_resort()
    sys.unraisablehook = lambda found: _log_error(found.exc_value, f"ignored in {type(found.object).__name__}")
    threading.excepthook = lambda found: _log_error(
        found.exc_value, f"in thread {found.thread.name if found.thread is not None else '?'}"
    )
    warnings.showwarning = _show_warning


def discard_output() -> None:
    """Discard buffered output, so that the interpreter ends without an error."""
    with suppress(OSError, ValueError, AttributeError):
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)


def _open_closed_streams() -> None:
    """Give 0, 1 and 2 to the null device where they are closed; else the next file that is opened would be one of them.

    That file could be the database, and what is printed would go into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor != number:
            os.dup2(descriptor, number)
            os.close(descriptor)
        setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _tolerate_narrow_encodings() -> None:
    """A terminal that cannot show a character shows a question mark, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _log_error(error: BaseException | None, where: str) -> None:
    if error is None:
        return
    warn(f"an error {where}:")
    for line in traceback_lines(error):
        warn(line)


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    warn(f"{filename}:{lineno}: {category.__name__}: {message}")


UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


class _Unused:
    """Stands for a class that the help of this program never uses."""

    def __init__(self, *given: Any, **named: Any) -> None:
        raise TypeError("help is written as plain text")


def prepare_help() -> None:
    """Import typer's help with empty modules in place of those that it does not need: rich's Markdown and Traceback
    bring two parsers, and commands write plain text."""
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
