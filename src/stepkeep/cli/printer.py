"""Where words go: text or one JSON object on standard output, everything else on standard error.

The only file that knows the consoles. With `--json`, whatever handlers print is sent to standard error, so that
standard output holds the object and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

UNKNOWN_WIDTH = 120


def console(*, stderr: bool = False) -> Console:
    """A console for text; wide enough to be read where it is no terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else UNKNOWN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False)


def say(line: str) -> None:
    """One plain line of an answer."""
    sys.stdout.write(f"{line}\n")


def warn(line: str) -> None:
    """One plain line for people, which no program reads."""
    sys.stderr.write(f"{line}\n")


def answer(value: Any) -> None:
    """The one object of `--json`."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
    sys.stdout.flush()


@contextmanager
def quiet_stdout(wanted: bool = True) -> Iterator[None]:
    """Send what user code prints, here or in its processes, to standard error."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = _divert()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def _divert() -> int | None:
    with suppress(OSError, ValueError, AttributeError):
        if sys.stdout.fileno() == 1:
            kept = os.dup(1)
            os.dup2(2, 1)
            return kept
    return None
