"""Output: text or one JSON object on standard output, everything else on standard error; and what exit statuses mean.

The only file that uses the streams. All text passes `safe_text` here, so that a command is safe by default: `say` and
`warn` write one line, `page` several, `console` tables and pictures, `answer` JSON. With `--json`, output of handlers
goes to standard error, so that standard output holds only the object.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from stepkeep.edges.safe_text import inert_json, inert_line

if TYPE_CHECKING:
    from rich.console import Console


UNKNOWN_WIDTH = 120


class OutputFailed(Exception):
    """Standard output cannot be written: its reader has gone (`is_closed`), or there is no room."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(problem.strerror or str(problem))
        self.is_closed = isinstance(problem, BrokenPipeError)


def console(*, stderr: bool = False) -> Console:
    """A console for text; wide enough to be readable without a terminal."""
    from stepkeep.cli.render.consoles import InertConsole

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else UNKNOWN_WIDTH
    return InertConsole(file=cast(IO[str], Guarded(stream)), width=width, highlight=False, soft_wrap=False)


def say(line: str) -> None:
    """One plain line of output; line breaks in it are escaped."""
    Guarded(sys.stdout).write(f"{inert_line(line)}\n")


def page(text: str) -> None:
    """Several plain lines of output. Only for text whose line breaks are our own."""
    for line in text.split("\n"):
        say(line)


def warn(line: str) -> None:
    """One plain line for people on standard error; line breaks in it are escaped."""
    # If standard error cannot be written either, the line is lost.
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{inert_line(line)}\n")


def overwrite(line: str, *, last: bool) -> None:
    """A line of progress that the next one replaces, on a terminal."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"\r{inert_line(line)}" + ("\n" if last else ""))
        sys.stderr.flush()


def answer(value: Any) -> None:
    """The one object of `--json`."""
    Guarded(sys.stdout).write(json_text(value) + "\n")
    flush()


def json_text(value: Any) -> str:
    """A value as indented JSON without raw control characters, in characters that standard output can encode."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A file name that is not UTF-8: lone surrogates stand for its bytes.
        encoded = msgspec.json.encode(_without_surrogates(msgspec.to_builtins(value)))
    text = inert_json(msgspec.json.format(encoded, indent=2).decode())
    if (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8":
        return text
    import json

    return json.dumps(json.loads(text), indent=2)


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list | tuple) else value


def binary_output() -> BinaryIO:
    """Standard output for bytes that are not text."""
    return cast(BinaryIO, Guarded(sys.stdout.buffer))


def flush() -> None:
    """Flush the output; raises OutputFailed if that is not possible."""
    Guarded(sys.stdout).flush()


class Guarded:
    """A stream whose write errors can be told apart from all other OSErrors."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, what: Any) -> Any:
        try:
            return self._stream.write(what)
        except OSError as problem:
            raise OutputFailed(problem) from None

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as problem:
            raise OutputFailed(problem) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def quiet_stdout(wanted: bool = True) -> Iterator[None]:
    """Send output of user code, here or in its processes, to standard error."""
    if not wanted:
        yield
        return
    flush()
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


SUCCEEDED = 0
FAILED = 1
BAD_USAGE = 2
CANCELLED = 3
UNFINISHED = 4
READER_GONE = 141
"""What a shell reports of a program whose reader has gone: 128 and the number of SIGPIPE."""

_OF_RUN = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED, "rolled_back": CANCELLED}


def status_of_run(state: str) -> int:
    """0 succeeded, 1 failed, 3 cancelled or rolled back, 4 not finished."""
    return _OF_RUN.get(state, UNFINISHED)
