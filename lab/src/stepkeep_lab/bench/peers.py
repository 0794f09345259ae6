"""Peers: other engines with the same workloads, each from one file and in its own environment.

The file names its requirements at its top (inline script metadata) and the databases it can use. It receives one JSON
argument and answers with JSON lines. A peer that cannot be installed or does not run is reported with the reason; no
figure is ever filled in.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import stepkeep
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.bench.ground import NotMeasured
from stepkeep_lab.bench.measurement import Figures, percentile

INSTALL_SECONDS = 900.0
ROUND_SECONDS = 240.0
OWN = "own"
"""The database of a peer that brings one."""

METADATA = re.compile(r"^# /// script$\n(?P<lines>(?:^#(?: .*)?$\n)+)^# ///$", re.MULTILINE)
ADDRESS = re.compile(r"\w+://\S+|(?<![\w.])/[\w./+-]+")


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer's file says about itself. `runs` is how many runs of this many steps take a few seconds. `delivers`:
    each of its callers waits for its own result; otherwise the peer's client only sees that all runs have ended.
    `serves`: its clients reach it through HTTP. `replays`: its runs are functions, as flows are, and it delivers."""

    file: Path
    title: str
    package: str
    dependencies: tuple[str, ...]
    stores: tuple[str, ...]
    runs: dict[int, int]
    npm: tuple[str, ...] = ()
    probes: int = 40
    delivers: bool = False
    serves: bool = False
    replays: bool = False
    note: str = ""

    @property
    def fingerprint(self) -> str:
        """Changes when the environment must be made anew."""
        return hashlib.sha256(repr((self.dependencies, self.npm, sys.version_info[:2])).encode()).hexdigest()


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where a peer is installed, and in which version."""

    python: Path
    npm: Path
    version: str


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer is told."""

    store: str
    url: str
    folder: str
    npm: str
    works: tuple[tuple[int, int], ...]
    probes: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what a peer says: a work done, latencies, or versions of what it brought along. `cpu_seconds` are
    those of its client and of all that it started, where it knows them."""

    steps: int = 0
    runs: int = 0
    seconds: float = 0.0
    cpu_seconds: float | None = None
    latencies_ms: tuple[float, ...] = ()
    versions: dict[str, str] = {}


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one round of a peer gave, by number of steps; `latency` is that of a 3-step run, one at a time."""

    works: dict[int, Figures]
    latency: Figures
    versions: dict[str, str]


# -- finding and installing --------------------------------------------------------------------------------------------
def find_peers(folder: Path | None = None) -> list[Peer]:
    """Every peer there is a file for; they come with a checkout, not with the package."""
    places = [folder] if folder else [Path("benchmarks/peers"), _checkout() / "benchmarks/peers"]
    for place in places:
        if found := sorted(place.glob("*_peer.py")):
            return [read_peer(file) for file in found]
    raise InvalidInput("there are no peers here. Run this in a checkout of Stepkeep: they are in benchmarks/peers.")


def read_peer(file: Path) -> Peer:
    """What the file says at its top."""
    found = METADATA.search(file.read_text(encoding="utf-8"))
    if found is None:
        raise InvalidInput(f"{file.name} does not begin with the metadata of a script")
    said = tomllib.loads("".join(line[2:] or "\n" for line in found["lines"].splitlines(keepends=True)))
    told = said.get("tool", {}).get("stepkeep-bench", {})
    try:
        return msgspec.convert({"file": file, "dependencies": said["dependencies"], **told}, Peer, strict=False)
    except (KeyError, msgspec.ValidationError) as problem:
        raise InvalidInput(f"the metadata of {file.name} is not whole: {problem}") from None


def prepare(peer: Peer, cache: Path) -> Environment:
    """Install a peer, or find it installed; NotMeasured when it cannot be had."""
    home = cache / peer.file.stem
    python, stamp = home / "bin" / "python", home / "installed"
    if not stamp.exists() or stamp.read_text(encoding="ascii") != peer.fingerprint:
        try:
            venv.create(home, clear=True, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as problem:
            raise NotMeasured(f"no environment can be made: {scrubbed(str(problem))}") from None
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
        _install((*pip, *peer.dependencies), home)
        if peer.npm:
            (home / "npm").mkdir()
            _install(("npm", "install", "--silent", "--no-fund", "--no-audit", *peer.npm), home / "npm")
        stamp.write_text(peer.fingerprint, encoding="ascii")
    ask = f"import importlib.metadata as found; print(found.version({peer.package!r}))"
    version = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False).stdout.strip()
    return Environment(python=python, npm=home / "npm", version=version or "unknown")


def _install(command: Sequence[str | Path], where: Path) -> None:
    try:
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotMeasured(f"it cannot be installed: {scrubbed(str(problem))}") from None
    if done.returncode != 0:
        raise NotMeasured(f"it cannot be installed: {last_words(done.stderr or done.stdout)}")


# -- running -----------------------------------------------------------------------------------------------------------
def run_peer(peer: Peer, environment: Environment, task: Task) -> Account:
    """One round of a peer; NotMeasured when it does not come to its end."""
    command = [str(environment.python), str(peer.file.resolve()), msgspec.json.encode(task).decode()]
    folder = Path(task.folder)
    # Into files: a process that the peer started and forgot would keep a pipe open forever.
    with (folder / "said").open("wb") as said, (folder / "complaints").open("wb") as complaints:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=complaints,
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
            start_new_session=True,
        )
    try:
        status = process.wait(ROUND_SECONDS)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"it did not come to its end within {ROUND_SECONDS:g} s") from None
    finally:
        _end_session(process)
    if status != 0:
        reason = last_words((folder / "complaints").read_text(encoding="utf-8", errors="replace"))
        raise NotMeasured(f"it ended with status {status}: {reason}")
    return account_of([line for line in (folder / "said").read_bytes().splitlines() if line.startswith(b"{")])


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End the peer and whatever it started: all of it is in the session that was made for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def account_of(lines: Sequence[bytes]) -> Account:
    """What the lines of one round amount to."""
    works: dict[int, Figures] = {}
    latency: Figures = {}
    versions: dict[str, str] = {}
    for line in lines:
        answer = msgspec.json.decode(line, type=Answer)
        versions |= answer.versions
        if answer.latencies_ms:
            taken = answer.latencies_ms
            latency = {"p50_ms": percentile(taken, 0.5), "p99_ms": percentile(taken, 0.99)}
        if answer.runs:
            runs = answer.runs / answer.seconds
            works[answer.steps] = {"steps_per_second": runs * answer.steps, "runs_per_second": runs}
            if answer.cpu_seconds is not None:
                works[answer.steps]["all_us"] = answer.cpu_seconds / answer.runs * 1_000_000
    return Account(works=works, latency=latency, versions=versions)


def last_words(said: str) -> str:
    """The last line that says something, without addresses of this machine or of package hosts."""
    lines: list[Any] = [line.strip() for line in said.splitlines() if line.strip()]
    return scrubbed(lines[-1]) if lines else "it said nothing"


def scrubbed(said: str) -> str:
    return ADDRESS.sub("…", said)


def _checkout() -> Path:
    return Path(stepkeep.__file__).parents[2]
