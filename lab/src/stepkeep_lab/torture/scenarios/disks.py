"""Faults of the disk under SQLite: a process that ends at every single write and sync, and a disk that is full for a
while."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from stepkeep_lab.torture.audit import Audit, Expected
from stepkeep_lab.torture.disk import DiskPoint
from stepkeep_lab.torture.ledger import Acks, Ledger, Tally
from stepkeep_lab.torture.process import Task, opened
from stepkeep_lab.torture.stage import NotRun, Stage

KEYS = ("one", "two", "three")
ROOM = 24_000_000
AT_ONCE = 8
COUNTED = 3
"""Lives without a fault, to learn how often the job writes."""
AGAIN = 5
"""How often a point is tried that a life was too short for."""
ENUMERATING = 8
"""How many times longer than others it may take to go through all points there are."""
QUICK: dict[str, Any] = {"keys": KEYS, "until_done": True, "lease": "1s", "sweep": 0.1}


async def every_disk_call(stage: Stage) -> None:
    """kill -9 before and after each write, sync and truncation that a small job makes, from the empty file on."""
    # How often the job writes depends a little on how quick it is.
    whole = [(await _one_life(stage, f"counted-{no}", DiskPoint(0))).calls for no in range(COUNTED)]
    calls = min(whole)
    points = [DiskPoint(nth, after) for nth in range(1, calls + 1) for after in (False, True)]
    stage.rng.shuffle(points)
    stage.begin()
    left, struck = iter(points), set[DiskPoint]()

    async def lives() -> None:
        for point in left:
            if not stage.goes_on(reached=False, share=ENUMERATING):
                return
            for again in range(AGAIN):
                life = await _one_life(stage, f"{point.nth}-{'after' if point.after else 'before'}-{again}", point)
                if life.died:
                    struck.add(point)
                    break
                whole.append(life.calls)

    await asyncio.gather(*(lives() for _ in range(AT_ONCE)))
    # Beyond the shortest life that came to its end, a point is there or not as luck has it.
    there = [point for point in points if point.nth <= min(whole)]
    stage.counts["disk calls of the job"] = min(whole)
    stage.counts["crash points there are"] = len(there)
    stage.counts["crash points"] = len(struck.intersection(there))
    stage.must_have_hit("crash points", at_least=len(there) if stage.thorough else 10)


class Life(NamedTuple):
    """What became of a first life: whether it ended at its point, and how many calls it made if not."""

    died: bool
    calls: int


async def _one_life(stage: Stage, name: str, point: DiskPoint) -> Life:
    """A fresh file, a job that dies at this point, and what the next process finds and finishes."""
    folder = stage.folder / f"life-{name}"
    await asyncio.to_thread(folder.mkdir)
    url = f"sqlite:///{folder}/stepkeep.db"
    member = await stage.fleet.launch(Task(url=url, folder=str(folder), disk=point, **QUICK))
    async with asyncio.timeout(60):
        await member.ended.wait()
    title = f"crash point {point}"
    tally = Tally(folder / "tally")
    deaths = {what: count for what, count in tally.read().items() if what.startswith("killed")}
    died = sum(deaths.values())
    stage.counts.update(deaths)
    stage.must(died == bool(point.nth) or member.status == 0, f"{title} ended with status {member.status}")
    acknowledged = set(Acks(folder / "acks").read())
    # The second life asks for the same keys again, and finishes what the first began.
    again = await stage.fleet.launch(Task(url=url, folder=str(folder), **QUICK))
    async with asyncio.timeout(60):
        await again.ended.wait()
    stage.must(again.status == 0, f"{title}: the next process ended with status {again.status}")
    await _check_life(stage, folder, url, acknowledged, title)
    return Life(died=died > 0, calls=tally.read()["disk calls"])


async def _check_life(stage: Stage, folder: Path, url: str, acknowledged: set[str], title: str) -> None:
    """Everything that the first life had acknowledged is there, each key has made one run, and all is whole."""
    made = Acks(folder / "acks").read()
    chain = stage.kinds["chain"]
    expected = {
        run_id: Expected(run_id, chain.ending, chain.effects) for run_ids in made.values() for run_id in run_ids
    }
    stage.must(set(made) == set(KEYS) == {key for key in made if len(made[key]) == 1}, f"{title}: {made}")
    async with opened(url, Tally(folder / "unused")) as transactor:
        audit = Audit(transactor, Ledger(folder / "ledger").read())
        await audit.run(expected, keys=len(KEYS))
    stage.counts.update(audit.counts)
    stage.counts["acknowledged before the crash"] += len(acknowledged)
    for finding in audit.findings:
        stage.findings.append(f"{title}: {finding}")
    connection = apsw.Connection(f"{folder}/stepkeep.db")
    said = connection.execute("pragma integrity_check").get
    connection.close()
    stage.must(said == "ok", f"{title}: the file is damaged: {said}")


async def disk_full(stage: Stage) -> None:
    """A disk of a few megabytes that fills up under load, and has room again later: no restart, nothing lost."""
    with _small_disk(stage.folder / "disk") as disk:
        stage.direct = stage.url = f"sqlite:///{disk}/stepkeep.db"
        stage.needs("starts not answered")
        await stage.prepare()
        await stage.workers(2)
        ballast = disk / "ballast"
        async with stage.under_load(rate=20.0):
            stage.begin()
            while stage.goes_on():
                await asyncio.sleep(0.5)
                stage.counts["times full"] += _fill(ballast)
                await asyncio.sleep(1.0)
                ballast.unlink()
                await asyncio.sleep(1.0)
        async with stage.looking() as transactor:
            stage.must(await stage.settle(transactor), "the same workers did not finish the work once there was room")
        stage.must_have_hit("times full")
        await stage.reckon()


def _fill(ballast: Path) -> bool:
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return True


@contextmanager
def _small_disk(where: Path) -> Iterator[Path]:
    """A file system of its own in memory. Needs the right to mount."""
    where.mkdir()
    options = f"size={ROOM},uid={os.getuid()},mode=700"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", where], capture_output=True, check=False)
    if made.returncode != 0:
        raise NotRun(f"a small disk cannot be mounted here: {made.stderr.decode(errors='replace').strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "--lazy", where], capture_output=True, check=False)
