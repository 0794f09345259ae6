"""The long checks as a list of parts: each is one command of at most 25 minutes, and its result is kept with the code.

A part that has passed on the same code is not run again, so that a proof can be made in several sittings. The code of
a part is known by a digest of the folders that it depends on: a change elsewhere leaves its result in place.
`stepkeep lab proof` calls it.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.torture.campaign import SCENARIOS

LAB = ("src", "lab", "pyproject.toml", "requirements")
"""What commands of the laboratory depend on."""
RECORDED = (*LAB, "tests/golden")
SERVED = (*LAB, "scripts/fuzz_service.py")
TESTED = (*LAB, "tests", "examples", "scripts", "deploy")
"""What tests depend on."""

REPORTS = Path("docs/reports")
FILE = REPORTS / "proof.json"
LOGS = Path("build/proof")
"""What each part printed, as long as no other run of it has begun."""

RELEASE = "1d25a00c"
"""The commit beside which the CPU of a run is measured: that of the last release. None was tagged yet: the last commit
whose figures are in docs/benchmarks.md."""

LONGEST_MINUTES = 25
PATIENCE = 3
"""How many times longer than the longest a part may take, on a machine that is busy."""

SIMULATIONS, RUNS = 5, 40_000
TRUE_RUNS = ("--from", "60000", "--seeds", "520")
"""More than 10,000 runs, each judged in canonical names and in the words of every dialect."""
STORMS = ("kill-storm", "rollback-storm", "sessions-ended", "through-a-pooler")
"""Faults of one minute each. The other scenarios of the torture end when their faults have struck."""

TESTS = {
    "acceptance agents cli definition docs evidence golden metrics schedules": 8,
    "api people remote": 12,
    "bench conformance forgeries fuzz kernel modelcheck network seeds sinks simulate testing torture tracing typing": 8,
    "operations test_postgres_harness.py test_secret_values.py": 7,
    "simulation store storecheck": 14,
    "triggers worker": 12,
    "ui": 7,
}
"""Folders and files of tests whose long forms are one part, with its minutes."""


class Part(NamedTuple):
    """One command, how many minutes it takes on two quiet cores, and the folders and files it depends on."""

    name: str
    minutes: int
    command: tuple[str, ...]
    of: tuple[str, ...] = LAB


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
    lab = (python, "-m", "stepkeep", "lab")
    pytest = (python, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "proof")
    storms = [word for name in STORMS for word in ("--only", name)]
    others = [word for name in SCENARIOS if name not in STORMS for word in ("--only", name)]
    found = [
        Part("golden", 4, (*lab, "golden", "check", "--only", "documents", "--only", "statements"), RECORDED),
        Part("golden-lives", 25, (*lab, "golden", "check", "--only", "lives", "--long"), RECORDED),
    ]
    for number in range(1, SIMULATIONS + 1):
        runs = ("--runs", str(RUNS), "--from", str(10_000_000 * number), "--jobs", "2")
        found.append(Part(f"simulation-{number}", 8, (*lab, "simulate", *runs)))
    found += [
        Part("planted", 25, (*lab, "mutants", "--jobs", "2", "--report", f"{report}/planted-simulation.json")),
        Part("stores", 22, (*lab, "stores", "--jobs", "2", "--report", report)),
        Part("modelcheck", 4, (*lab, "check", "--states", "60000", "--jobs", "2", "--report", report)),
        Part("forgeries", 4, (*lab, "forgeries", "--report", report)),
        Part("true-logs", 12, (*lab, "forgeries", "--tries", "0", *TRUE_RUNS, "--jobs", "2", "--report", report)),
        Part("packs", 2, (*lab, "packs", "--jobs", "2", "--report", report)),
        Part("fuzz", 5, (*lab, "fuzz", "--count", "20000", "--seconds", "30", "--jobs", "2", "--report", report)),
        Part("misdeeds", 5, (*lab, "misdeeds", "--runs", "100000", "--report", report)),
        Part("torture-storms", 8, (*lab, "torture", "--seconds", "60", *storms, "--report", f"{report}/storms")),
        Part("torture-faults", 16, (*lab, "torture", "--thorough", *others, "--report", f"{report}/faults")),
    ]
    found.append(Part("cpu", 6, (python, "-m", "stepkeep", "bench", "--cpu", "--against", RELEASE)))
    for store, minutes in ("sqlite", 8), ("postgres", 12):
        where = () if store == "sqlite" else ("--postgres",)
        requests = (python, "scripts/fuzz_service.py", "--examples", "90", *where, "--reports")
        found.append(Part(f"requests-{store}", minutes, (*requests, f"{LOGS}/requests-{store}"), SERVED))
    for folders, minutes in TESTS.items():
        paths = tuple(f"tests/{folder}" for folder in folders.split())
        found.append(Part(f"tests-{folders.split()[0]}", minutes, (*pytest, *paths), TESTED))
    return found


def code(part: Part) -> str:
    """A digest of all that a part depends on, as it is committed."""
    changed = _git("status", "--porcelain", "--", *part.of)
    if changed:
        raise InvalidInput(f"a proof is of a commit, and this is not committed: {changed.splitlines()[0].strip()}.")
    return hashlib.sha256(_git("ls-tree", "HEAD", "--", *part.of).encode()).hexdigest()[:16]


def results(file: Path = FILE) -> dict[str, Result]:
    """What is on record."""
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Result]) if file.exists() else {}


def run(names: Sequence[str], *, told: Callable[[str], None], file: Path = FILE, minutes: float | None = None) -> bool:
    """Run each part that has not passed on this code; says whether all of them have now.

    No part begins after `minutes`.
    """
    there, began, kept = chosen(names), time.monotonic(), results(file)
    for part in there:
        if problem(part, kept, code(part)) is None:
            told(f"{part.name}: passed before on this code")
            continue
        if minutes is not None and time.monotonic() - began > minutes * 60:
            told(f"{part.name}: not begun, for lack of time")
            continue
        told(f"{part.name}: about {part.minutes} min: {shlex.join(_shown(part.command))}")
        kept[part.name] = _play(part)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.format(msgspec.json.encode(dict(sorted(kept.items()))), indent=2) + b"\n")
        verdict = "passed" if kept[part.name].ok else f"FAILED, see {LOGS}/{part.name}.out,"
        told(f"{part.name}: {verdict} in {kept[part.name].seconds:,.0f} s")
    return all(problem(part, kept, code(part)) is None for part in there)


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts of these names; all if none is named."""
    there = parts()
    if unknown := set(names) - {part.name for part in there}:
        raise InvalidInput(f"there is no part {min(unknown)!r}. Choose from: {', '.join(part.name for part in there)}.")
    return [part for part in there if not names or part.name in names]


def problem(part: Part, kept: dict[str, Result], now: str) -> str | None:
    """What keeps this part from being proved of the code `now`, in words; None if it is proved."""
    result = kept.get(part.name)
    if result is None:
        return "was never run"
    if not result.ok:
        return f"failed at {result.commit}: {result.last_line}"
    return None if result.code == now else f"is of other code, at {result.commit}"


def _play(part: Part) -> Result:
    began, now, commit = time.monotonic(), code(part), _git("rev-parse", "--short", "HEAD")
    LOGS.mkdir(parents=True, exist_ok=True)
    out, err = LOGS / f"{part.name}.out", LOGS / f"{part.name}.err"
    try:
        with out.open("w") as stdout, err.open("w") as stderr:
            timeout = LONGEST_MINUTES * 60 * PATIENCE
            played = subprocess.run(part.command, stdout=stdout, stderr=stderr, check=False, timeout=timeout)
        ok, said = played.returncode == 0, out.read_text().strip() or err.read_text().strip()
    except subprocess.TimeoutExpired:
        ok, said = False, f"it did not end within {LONGEST_MINUTES * PATIENCE} minutes"
    if code(part) != now:
        ok, said = False, "the code was changed while it ran"
    lines = said.splitlines() or [""]
    return Result(
        code=now,
        commit=commit,
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
