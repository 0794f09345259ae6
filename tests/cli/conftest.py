"""Calling the command line: in this process for what is quick, as a real process where signals and streams matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepkeep.cli.main import main
from stepkeep.definition.python.handlers import load_app

HANDLERS = str(Path(__file__).with_name("handlers.py"))

FLOW = """
workflow: flow
timeout: 1h
steps:
  - {name: first, uses: cli.work, timeout: 5s}
  - {name: second, uses: cli.work, timeout: 5s}
"""
GATED = """
workflow: gated
timeout: 1h
steps:
  - {name: draft, uses: cli.work, timeout: 5s}
  - {name: sign-off, approval: {deadline: 1h}}
  - {name: publish, uses: cli.work, timeout: 5s}
"""
FAILING = """
workflow: failing
timeout: 1h
steps:
  - {name: refuse, uses: cli.refuse, timeout: 5s}
"""
UNDONE = """
workflow: undone
timeout: 1h
on_failure: compensate
steps:
  - {name: make, uses: cli.work, timeout: 5s, undo: cli.undo}
  - {name: refuse, uses: cli.refuse, timeout: 5s}
"""
MANUAL = """
workflow: manual
timeout: 1h
steps:
  - {name: by-hand, uses: cli.work, timeout: 5s, completion: {mode: manual, deadline: 1h}}
"""
WAITING = """
workflow: waiting
timeout: 1h
steps:
  - {name: payment, wait: {event: paid, deadline: 1h}}
"""
SLOW = """
workflow: slow
timeout: 1h
steps:
  - {name: before, uses: cli.note, timeout: 1m}
  - {name: middle, uses: cli.note, timeout: 1m}
  - {name: after, uses: cli.note, timeout: 1m}
"""


class Said(NamedTuple):
    """What a command answered."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON object and nothing else."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


Cli = Callable[..., Said]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to be in, with a definition of each kind and no database yet."""
    monkeypatch.chdir(tmp_path)
    for name in ("DB", "SERVER", "PROFILE", "KEY", "KEY_FILE", "TRACEBACK"):
        monkeypatch.delenv(f"STEPKEEP_{name}", raising=False)
    monkeypatch.setenv("STEPKEEP_CONFIG", str(tmp_path / "profiles.toml"))
    monkeypatch.setenv("COLUMNS", "200")
    for name, text in (
        ("flow", FLOW),
        ("gated", GATED),
        ("failing", FAILING),
        ("undone", UNDONE),
        ("manual", MANUAL),
        ("waiting", WAITING),
        ("slow", SLOW),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


@pytest.fixture
def cli(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in this process, which knows the handlers whichever test comes first."""
    load_app(HANDLERS)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Said(status, out, err)

    return run


@pytest.fixture
def process(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command as a process of its own; whatever is left of it ends with the test."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "stepkeep", *arguments]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        child = subprocess.Popen(command, stdout=pipe, stderr=pipe, stdin=null, text=True, env=environment)
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.communicate()


def finish(child: subprocess.Popen[str]) -> Said:
    """Wait for a process and take what it said."""
    out, err = child.communicate(timeout=60)
    assert "Traceback" not in err, err
    return Said(child.returncode, out, err)
