"""Processes under a test's control: programs of Stepkeep and scripts of tests, what they say, and how they end.

`Fleet` starts them and ends whatever is left with the test. What a process does can be seen in the lines of its
standard error, and in marks: lines that handlers add to files of a folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.workbench import PATIENCE_SECONDS

WORKER = Path(__file__).parent / "acceptance" / "worker_process.py"
OURS = "STEPKEEP_"
"""Variables of the environment with this prefix come from the test alone."""


class Program(subprocess.Popen[str]):
    """One process of Python. If it is heard, the lines of its standard error are kept."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        prefix: Sequence[str] = (),
        *,
        is_heard: bool = True,
        **more: Any,
    ) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        pipe = subprocess.PIPE if is_heard else None
        command = [*prefix, sys.executable, *arguments]
        super().__init__(command, env={**inherited, **env}, stdout=pipe, stderr=pipe, text=True, **more)
        self.lines: list[str] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.stderr or ():
            self._hear(line.rstrip())
        self._hear("(the end)")

    def _hear(self, line: str) -> None:
        with self._heard:
            self.lines.append(line)
            self._heard.notify_all()

    def says(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until a line has this text."""
        with self._heard:
            found = self._heard.wait_for(lambda: any(text in line for line in self.lines), seconds)
        assert found, f"waited in vain for {text!r}: {self.lines}"

    def address(self) -> str:
        """Where a service listens, once it accepts connections."""
        assert self.stdout is not None
        text = ""
        while not text.endswith("\n}\n"):
            line = self.stdout.readline()
            assert line, self.lines
            text += line
        return str(json.loads(text)["service"]["address"])

    def end(self) -> None:
        """kill -9, if it is still there."""
        if self.poll() is None:
            self.send_signal(signal.SIGCONT)
            self.kill()
        self.wait()
        self._reader.join(10)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


class Fleet:
    """Processes around one database. A context manager: all of them end with it."""

    def __init__(self, url: str, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.url, self.folder = url, folder
        self.marks = folder / "marks"
        self.marks.mkdir(exist_ok=True)
        self._env = {"STEPKEEP_MARKS": str(self.marks), **(env or {})}
        self.programs: list[Program] = []

    def start(self, *arguments: str, **more: Any) -> Program:
        """A process of Python: a script, or `-m stepkeep` and its arguments."""
        program = Program(arguments, self._env, **more)
        self.programs.append(program)
        return program

    def launch(self, concurrency: int = 16) -> Program:
        """A worker with the handlers of `worker_process.py`."""
        # Not heard: children of a worker that is killed would keep its standard error open.
        return self.start(str(WORKER), self.url, str(concurrency), is_heard=False)

    def serve(self, *options: str, **more: Any) -> tuple[Program, str]:
        """A service, and its address."""
        program = self.start("-m", "stepkeep", "serve", "--json", *options, **more)
        return program, program.address()

    def marked(self, name: str) -> int:
        """How often something left this mark."""
        path = self.marks / name
        return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0

    def allow(self, name: str) -> None:
        """Leave a mark for a handler that waits for it."""
        (self.marks / name).touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.end()
