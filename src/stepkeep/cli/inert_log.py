"""Log lines of the command line: each record is one line, escaped, followed by its traceback, escaped and indented.

A record's message, arguments and exception may come from user code, which can break every part of them: nothing here
raises, and no text of a record can look like another record. `worker` installs the handler on the root logger; every
other command uses it for what the logging module would print by itself.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator

from stepkeep.safe_text import exception_text, inert_line, type_name

INDENT = "    "
LONGEST_TRACEBACK = 200
"""Lines of a traceback that are shown: half of them from its beginning, half from its end."""


class InertFormatter(logging.Formatter):
    """Formats any record without raising."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = _message(record)
        if self.usesTime():
            record.asctime = self.formatTime(record, self.datefmt)
        lines = [inert_line(self.formatMessage(record))]
        if record.exc_info and record.exc_info[1] is not None:
            lines += traceback_lines(record.exc_info[1])
        if record.stack_info:
            lines += (f"{INDENT}{inert_line(line)}" for line in str(record.stack_info).split("\n"))
        return "\n".join(lines)


def install_log(level: int) -> None:
    """Log to standard error from this level on, unless the program that embeds the command line logs already."""
    handler = logging.StreamHandler()
    handler.setFormatter(InertFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def install_last_resort() -> None:
    """Escape what the logging module prints where no handler is installed: warnings and errors."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(InertFormatter("%(message)s"))


def traceback_lines(error: BaseException) -> Iterator[str]:
    """An exception's traceback, line by line, escaped; where it cannot be formatted, its type and message."""
    try:
        lines = "".join(traceback.format_exception(error)).rstrip().split("\n")
    except BaseException:  # noqa: BLE001 - user code: `__str__`, `__cause__` and `__notes__` may do anything
        lines = [exception_text(error)]
    if len(lines) > LONGEST_TRACEBACK:
        half = LONGEST_TRACEBACK // 2
        lines = [*lines[:half], f"… ({len(lines) - 2 * half:,} more lines)", *lines[-half:]]
    # Indented, because the message of an exception may have lines that look like ours.
    yield from (f"{INDENT}{inert_line(line)}" for line in lines)


def _message(record: logging.LogRecord) -> str:
    try:
        # A plain str: `__str__` may return a subclass with methods of its own.
        return str.__add__("", record.getMessage())
    except BaseException as problem:  # noqa: BLE001 - arguments of a record are user code
        wording = record.msg if type(record.msg) is str else ""
        return f"(a message that cannot be formatted: {type_name(problem)}) {wording}"
