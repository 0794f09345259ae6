"""Worker processes of `worker_process.py`."""

from __future__ import annotations

from pathlib import Path

from tests.processes import Fleet, Program

PROGRAM = Path(__file__).with_name("worker_process.py")


class Workers(Fleet):
    """Worker processes of one database."""

    def launch(self, concurrency: int = 16) -> Program:
        # Not heard: children of a worker that is killed would keep its standard error open.
        return self.start(str(PROGRAM), self.url, str(concurrency), is_heard=False)
