"""`stepkeep bench --cpu`: the CPU time of a run and of a step by process, with many callers and with one.

Every caller gets its result. The values are medians over rounds. It measures by `delivery`; the command prints it. With
`--against`, another commit is measured in turns with this code, each in processes of its own.
"""

from __future__ import annotations

import asyncio
import io
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import stepkeep_lab
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.bench import delivery
from stepkeep_lab.bench.chart import number
from stepkeep_lab.bench.ground import NotMeasured, fresh_ground, own_server

STEPS = 3
ROUNDS = 5
CALLERS = {500: 4_000, 1: 300}
"""How many callers, and how many runs they share."""

ROOT = Path(stepkeep_lab.__file__).parents[3]
TOLERATED = 1.1
"""How much more CPU than the other commit a run may take: less cannot be told from noise on a shared machine."""


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU time of one run in microseconds; `server` is PostgreSQL's."""

    store: str
    callers: int
    rounds: int
    client: float
    worker: float
    server: float

    @property
    def together(self) -> float:
        return self.client + self.worker + self.server


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU time of one run in microseconds, of this code and of another commit, measured in turns."""

    store: str
    callers: int
    here: float
    there: float
    commit: str

    @property
    def ratio(self) -> float:
        return self.here / self.there if self.there else 1.0

    @property
    def is_regression(self) -> bool:
        """With one idle caller, half of the time is that of chores: it is told, and decides nothing."""
        return self.callers > 1 and self.ratio > TOLERATED


def measure(
    stores: Sequence[str], rounds: int | None, runs: int | None, told: Callable[[str], None] = lambda said: None
) -> list[Cpu]:
    """The CPU time of runs, store by store, round after round in turns."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with own_server(stores) as server:
        for turn in range(1, (rounds or ROUNDS) + 1):
            for store in stores:
                for callers, usual in CALLERS.items():
                    with fresh_ground(store, server) as ground:
                        asked = {"steps": STEPS, "runs": runs or usual, "callers": callers}
                        figures = asyncio.run(delivery.awaited(ground, **asked))
                    found.setdefault((store, callers), []).append(figures)
                    told(f"{turn}. {store}, {_named(callers)}: worker {number(figures['worker_us'])} µs a run")
    return [
        Cpu(
            store=store,
            callers=callers,
            rounds=len(each),
            **{
                party: round(statistics.median(one[f"{party}_us"] for one in each), 1)
                for party in ("client", "worker", "server")
            },
        )
        for (store, callers), each in found.items()
    ]


def compare(
    stores: Sequence[str],
    rounds: int | None,
    runs: int | None,
    commit: str,
    told: Callable[[str], None] = lambda said: None,
) -> list[Compared]:
    """The CPU time of runs of this code and of another commit of this repository, round after round in turns."""
    asked = ["bench", "--cpu", "--json", "--rounds", "1", *(word for store in stores for word in ("--store", store))]
    asked += [] if runs is None else ["--runs", str(runs)]
    found: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="stepkeep-bench-") as folder:
        _unpack(commit, Path(folder))
        for turn in range(1, (rounds or ROUNDS) + 1):
            for place, tree in enumerate((ROOT, Path(folder))):
                for one in _measured_in(tree, asked):
                    found.setdefault((one.store, one.callers), ([], []))[place].append(one.together)
                told(f"{turn}. {'this code' if place == 0 else commit}")
    return [
        Compared(
            store=store,
            callers=callers,
            here=round(statistics.median(here), 1),
            there=round(statistics.median(there), 1),
            commit=commit,
        )
        for (store, callers), (here, there) in found.items()
    ]


def _unpack(commit: str, folder: Path) -> None:
    packed = subprocess.run(["git", "archive", commit, "src", "lab"], cwd=ROOT, capture_output=True, check=False)
    if packed.returncode != 0:
        said = packed.stderr.decode(errors="replace").strip()
        raise InvalidInput(f"--against {commit}: git cannot tell this commit of the checkout ({said}).")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def _measured_in(tree: Path, asked: Sequence[str]) -> list[Cpu]:
    path = os.pathsep.join((str(tree / "src"), str(tree / "lab" / "src")))
    command = [sys.executable, "-m", "stepkeep.cli.main", *asked]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NotMeasured(f"the code in {tree} could not be measured: {done.stderr.strip().splitlines()[-1:]}")
    return msgspec.convert(msgspec.json.decode(done.stdout)["cpu"], list[Cpu])


def compared_text(found: Sequence[Compared]) -> str:
    """A line for each store and number of callers, the ratio first."""
    lines = []
    for one in found:
        verdict = "MORE than is tolerated: " if one.is_regression else ""
        measured = f"{number(one.here)} µs of CPU a run, {number(one.there)} at {one.commit}"
        lines.append(f"{one.ratio:.2f} × {verdict}{one.store}, {_named(one.callers)}: {measured}")
    return "\n".join(lines)


def text(found: Sequence[Cpu]) -> str:
    """A table for each store and number of callers."""
    return "\n\n".join(_table(each) for each in found)


def _table(one: Cpu) -> str:
    parties = (one.client, one.worker, one.server, one.together)
    head = f"{one.store}, {_named(one.callers)}, {STEPS}-step runs: CPU in µs, median of {one.rounds}"
    rows = {"": ["client", "worker", "server", "together"]}
    rows |= {name: [number(value / by) for value in parties] for name, by in (("run", 1), ("step", STEPS))}
    return "\n".join([head, *(f"  {name:<6}" + "".join(f"{cell:>10}" for cell in row) for name, row in rows.items())])


def _named(callers: int) -> str:
    return "1 idle caller" if callers == 1 else f"{callers} callers"
