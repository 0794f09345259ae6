"""The long checks as a list of parts: each is one command of at most 25 minutes, and its result is kept with the code.

A part that has passed on the same code is not run again, so that a proof can be made in several sittings. The code is
known by the digests of its folders: commits that differ in documents alone share their results. `stepkeep lab proof`
calls it.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepkeep.kernel.errors import InvalidInput

CODE = ("src", "lab", "tests", "examples", "scripts", "pyproject.toml", "requirements")
REPORTS = Path("docs/reports")
FILE = REPORTS / "proof.json"
LONGEST_MINUTES = 25
PATIENCE = 3
"""How many times longer than its own figure a part may take, on a machine that is busy."""

SIMULATIONS, SEEDS = 5, 1_800
"""200,000 runs and more: a seed has 24 on average."""

TESTS = {
    "acceptance cli definition docs evidence golden metrics schedules": 15,
    "api people remote": 25,
    "bench conformance forgeries fuzz kernel modelcheck network seeds sinks simulate testing tracing": 20,
    "operations": 15,
    "simulation": 20,
    "store storecheck": 25,
    "torture": 15,
    "triggers worker": 25,
    "ui": 25,
}
"""Folders of tests whose long forms are one part, with its minutes."""


class Part(NamedTuple):
    """One command, and how many minutes it takes on two quiet cores."""

    name: str
    minutes: int
    command: tuple[str, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How a part ended, on which code and commit."""

    code: str
    commit: str
    ok: bool
    seconds: float
    command: str
    first_line: str
    last_line: str


def parts() -> list[Part]:
    """Every part, in the order in which they run."""
    python, report = sys.executable, str(REPORTS)
    lab = (python, "-m", "stepkeep.cli", "lab")
    pytest = (python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "proof")
    found = [Part("golden", 25, (*lab, "golden", "check", "--long"))]
    for number in range(1, SIMULATIONS + 1):
        seeds = ("--seeds", str(SEEDS), "--from", str(10_000_000 * number), "--jobs", "2")
        found.append(Part(f"simulation-{number}", 12, (*lab, "simulate", *seeds)))
    found += [
        Part("planted", 25, (*lab, "mutants", "--jobs", "2", "--report", f"{report}/planted-simulation.json")),
        Part("stores", 25, (*lab, "stores", "--jobs", "2", "--report", report)),
        Part("modelcheck", 25, (*lab, "check", "--jobs", "2")),
        Part("forgeries", 20, (*lab, "forgeries", "--report", report)),
        Part("packs", 20, (*lab, "packs", "--jobs", "2", "--report", report)),
        Part("fuzz", 15, (*lab, "fuzz", "--jobs", "2", "--report", report)),
        Part("torture", 25, (*lab, "torture", "--seconds", "60", "--report", report)),
    ]
    for folders, minutes in TESTS.items():
        paths = tuple(f"tests/{folder}" for folder in folders.split())
        found.append(Part(f"tests-{folders.split()[0]}", minutes, (*pytest, *paths)))
    return found


def code() -> str:
    """A digest of all that a proof is about, as it is committed."""
    changed = _git("status", "--porcelain", "--", *CODE)
    if changed:
        raise InvalidInput(f"a proof is of a commit, and this is not committed: {changed.splitlines()[0].strip()}.")
    return hashlib.sha256(_git("rev-parse", *(f"HEAD:{folder}" for folder in CODE)).encode()).hexdigest()[:16]


def results(file: Path = FILE) -> dict[str, Result]:
    """What is on record."""
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Result]) if file.exists() else {}


def run(names: Sequence[str], *, told: Callable[[str], None], file: Path = FILE, minutes: float | None = None) -> bool:
    """Run each part that has not passed on this code; says whether all of them have now.

    No part begins after `minutes`.
    """
    there, began, now, kept = chosen(names), time.monotonic(), code(), results(file)
    for part in there:
        if is_proved(kept.get(part.name), now):
            told(f"{part.name}: passed before on this code")
            continue
        if minutes is not None and time.monotonic() - began > minutes * 60:
            told(f"{part.name}: not begun, for lack of time")
            continue
        told(f"{part.name}: about {part.minutes} min: {shlex.join(_shown(part.command))}")
        kept[part.name] = _play(part, now)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(dict(sorted(kept.items()))), indent=2) + b"\n")
        told(f"{part.name}: {'passed' if kept[part.name].ok else 'FAILED'} in {kept[part.name].seconds:,.0f} s")
    return not list(unproved(there, kept, now))


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts of these names; all if none is named."""
    there = parts()
    if unknown := set(names) - {part.name for part in there}:
        raise InvalidInput(f"there is no part {min(unknown)!r}. Choose from: {', '.join(part.name for part in there)}.")
    return [part for part in there if not names or part.name in names]


def is_proved(result: Result | None, now: str) -> bool:
    return result is not None and result.ok and result.code == now


def unproved(there: Sequence[Part], kept: dict[str, Result], now: str) -> Iterator[str]:
    """What keeps these parts from being a proof of this code, in words."""
    for part in there:
        result = kept.get(part.name)
        if result is None:
            yield f"{part.name} was never run"
        elif not result.ok:
            yield f"{part.name} failed at {result.commit}: {result.last_line}"
        elif result.code != now:
            yield f"{part.name} is of other code, at {result.commit}"


def _play(part: Part, now: str) -> Result:
    began = time.monotonic()
    try:
        played = subprocess.run(
            part.command, capture_output=True, text=True, check=False, timeout=part.minutes * 60 * PATIENCE
        )
        ok, said = played.returncode == 0, played.stdout.strip() or played.stderr.strip()
    except subprocess.TimeoutExpired:
        ok, said = False, f"it did not end within {part.minutes * PATIENCE} minutes"
    lines = said.splitlines() or [""]
    return Result(
        code=now,
        commit=_git("rev-parse", "--short", "HEAD"),
        ok=ok,
        seconds=round(time.monotonic() - began, 1),
        command=shlex.join(_shown(part.command)),
        first_line=lines[0][:200],
        last_line=lines[-1][:200],
    )


def _shown(command: Sequence[str]) -> list[str]:
    """The command without the path of the interpreter."""
    return ["python", *command[1:]]


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()
