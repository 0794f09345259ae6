"""Runs the command line in this process with its streams captured.

This layer may not import the command line, so that it is found by name, as an installed program is. Targets whose edge
is the command line call it.
"""

from __future__ import annotations

import io
import logging
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

MAIN = "stepkeep.cli.main:main"


class Said(NamedTuple):
    """What a command answered."""

    status: int
    out: bytes
    err: bytes

    @property
    def is_in_words(self) -> bool:
        """Whether it ended as a command should: without a traceback, and not by surprise."""
        lines = self.err.split(b"\n")
        return not any(line.startswith((b"Traceback (", b"This should not have happened")) for line in lines)


def run_command(arguments: Sequence[str], given: bytes = b"") -> Said:
    """Run one command and take what it said. What it raises is passed on, but for the end of the program."""
    main = pkgutil.resolve_name(MAIN)
    with _captured(given) as (out, err):
        try:
            status = main(list(arguments))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
    return Said(status, out.getvalue(), err.getvalue())


@contextmanager
def _captured(given: bytes) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    kept = sys.stdin, sys.stdout, sys.stderr
    width = os.environ.get("COLUMNS")
    out, err = io.BytesIO(), io.BytesIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", errors="surrogateescape", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
    os.environ["COLUMNS"] = "200"
    # A command may set up logging on its streams, which end with it.
    handlers, level = list(logging.root.handlers), logging.root.level
    logging.root.handlers.clear()
    try:
        yield out, err
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.detach()
        sys.stdin, sys.stdout, sys.stderr = kept
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        if width is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = width
