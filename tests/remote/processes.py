"""Processes of `stepkeep serve` and `stepkeep worker --server` under a test's control."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

import stepkeep as sk

HANDLERS = Path(__file__).with_name("handlers.py")

QUICK = sk.Workflow("quick", lease="4s")
QUICK.step("one", "fleet.quick")
QUICK.step("two", "fleet.quick", after="one")
QUICK.step("three", "fleet.quick", after="two")

GATED = sk.Workflow("gated", lease="4s")
GATED.step("wait", "fleet.gated")
GATED.step("then", "fleet.quick", after="wait")


class Program:
    """One process, whose lines on standard error are kept."""

    def __init__(self, arguments: list[str], env: dict[str, str], prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "stepkeep", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**{name: value for name, value in os.environ.items() if not name.startswith("STEPKEEP_")}, **env},
        )
        self.lines: list[str] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._heard:
                self.lines.append(line.rstrip())
                self._heard.notify_all()
        with self._heard:
            self.lines.append("(the end)")
            self._heard.notify_all()

    def says(self, text: str, seconds: float = 60.0) -> None:
        """Wait until a line has this text."""
        with self._heard:
            found = self._heard.wait_for(lambda: any(text in line for line in self.lines), seconds)
        assert found, f"waited in vain for {text!r}: {self.lines}"

    def address(self) -> str:
        """Where a service listens."""
        assert self.process.stdout is not None
        text = ""
        while not text.endswith("\n}\n"):
            line = self.process.stdout.readline()
            assert line, self.lines
            text += line
        return str(json.loads(text)["service"]["address"])

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Site:
    """A service over one database, and workers of it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.programs: list[Program] = []
        with sk.open(url, tenant="acme", actor="root") as engine:
            for workflow in (QUICK, GATED):
                engine.publish(workflow)
            engine.users.create("worker", kind="service")
            engine.users.create("ann")
            key = engine.keys.create("worker", scopes=["work"])["secret"]
            self.key = engine.keys.create("ann", scopes=["read", "start", "operate"])["secret"]
        self.key_file = folder / "worker.key"
        self.key_file.write_text(key, encoding="utf-8")
        self.key_file.chmod(0o600)

    def serve(self, port: int = 0) -> tuple[Program, str]:
        program = self._start(["serve", "--db", self.url, "--port", str(port), "--json"])
        return program, program.address()

    def worker(self, address: str, *more: str) -> Program:
        options = ["--server", address, "--key-file", str(self.key_file), "--app", str(HANDLERS), *more]
        program = self._start(["worker", *options, "--concurrency", "4", "--threads", "4"])
        program.says("serves with")
        return program

    def client(self, address: str) -> httpx2.Client:
        return httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {self.key}"}, timeout=60)

    def _start(self, arguments: list[str]) -> Program:
        program = Program(arguments, {"STEPKEEP_MARKS": str(self.marks)})
        self.programs.append(program)
        return program


@contextmanager
def site(url: str, folder: Path) -> Iterator[Site]:
    made = Site(url, folder)
    try:
        yield made
    finally:
        for program in made.programs:
            program.kill()


def started(client: httpx2.Client, workflow: str, key: str | None = None) -> str:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = client.post("/runs", json={"workflow": workflow}, headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["run_id"])


def outcome(client: httpx2.Client, run_id: str) -> dict[str, object]:
    """How a run ended; it must end within 60 s."""
    for _ in range(3):
        found: dict[str, object] = client.get(f"/runs/{run_id}/result", params={"wait": 20}).json()
        if found.get("finished"):
            return found
    raise AssertionError(f"run {run_id} does not end: {client.get(f'/runs/{run_id}').text}")
