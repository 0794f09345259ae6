"""Worker processes under a test's control, and patience with a deadline."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).with_name("worker_process.py")
PATIENCE = 60.0


class Fleet:
    """Worker processes of one database; all are ended with the test."""

    def __init__(self, url: str, marks: Path) -> None:
        self.url, self.marks = url, marks
        self.processes: list[subprocess.Popen[bytes]] = []

    def launch(self, concurrency: int = 16) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), self.url, str(concurrency)],
            env={**os.environ, "STEPKEEP_MARKS": str(self.marks)},
        )
        self.processes.append(process)
        return process

    def marked(self, name: str) -> int:
        """How often something left this mark."""
        path = self.marks / name
        return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0

    def allow(self, name: str) -> None:
        (self.marks / name).touch()


@contextmanager
def fleet(url: str, folder: Path) -> Iterator[Fleet]:
    marks = folder / "marks"
    marks.mkdir()
    launched = Fleet(url, marks)
    try:
        yield launched
    finally:
        for process in launched.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


async def eventually(is_true: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for something another process does; a test that waits in vain says for what."""
    deadline = time.monotonic() + PATIENCE
    while not await is_true():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain for {what}"
        await asyncio.sleep(0.05)
