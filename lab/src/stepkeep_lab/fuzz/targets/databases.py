"""Databases: a SQLite file with damaged pages or damaged rows, read by every command.

Judges that each command ends with a documented status and in words, in bounded time. The file is made anew for each
process, with fixed ids and a fixed clock, so that a case does the same damage each time.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec

from stepkeep.store.sqlite.clock import Clock
from stepkeep.testing import Workbench
from stepkeep_lab.fuzz.chance import hostile_text, shorter
from stepkeep_lab.fuzz.material import fixed_ids, play_stories
from stepkeep_lab.fuzz.program import Said, run_command
from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

STATUSES = frozenset(range(5))
EPOCH = 1_767_258_000_000_000
COMMANDS = (
    "runs",
    "runs --json",
    "runs --as ioa",
    "runs --state failed",
    "show {run}",
    "show {run} --json",
    "show {run} --as workstream",
    "certify {run}",
    "log export {run}",
    "log export --all",
    "log export --all --as linear",
    "workers",
    "db status",
    "db migrate",
    "cancel {run}",
    "cancel {run} --compensate",
    "approvals",
    "approve {run}",
    "reject {run}",
    "send {run} payment",
    "complete {run} by-hand --token t",
    "rerun {run} --no-wait",
    "start order",
    "prune --dry-run --keep 0",
    "prune --keep 1 --no-archive",
    "prune --keep 0 --archive archive",
)
PAGE = 4096
ROW_DAMAGE: tuple[Any, ...] = (
    None,
    0,
    -1,
    2**62,
    2**31,
    1.5,
    "",
    "x",
    "nonsense",
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"{}",
    b'{"a":' * 2_000,
    b"[" * 100_000,
    b'{"event":5}',
    '{"tenant":1}',
)


class Damage(msgspec.Struct, frozen=True):
    """One thing done to the file: `at` and `to` choose places as shares of what there is."""

    what: str
    at: float
    to: float
    share: float
    value: Any


class Damaged(msgspec.Struct, frozen=True):
    """What is done to the file, which run the commands name, and the commands."""

    damage: tuple[Damage, ...]
    run: int
    commands: tuple[str, ...]


class Databases(Target[Damaged]):
    name = "databases"
    what = "SQLite files with bits flipped, pages swapped, tails cut, and rows with damaged JSON, numbers and texts."
    holds = "Every command ends with a documented status and in words, without a traceback, in bounded time."
    limits = Limits(cpu_seconds=15.0, wall_seconds=60.0, memory_mb=1_500, batch=60)

    def __init__(self, run: Callable[[Sequence[str]], Said] = run_command) -> None:
        self._run = run
        self._folder = Path()
        self._runs: list[str] = []

    def open(self, folder: Path) -> None:
        self._folder = folder
        ticks = itertools.count(EPOCH, 1_000)
        file = folder / "whole.db"
        clock = patch.object(Clock, "now", lambda clock: next(ticks) + clock.offset)
        with fixed_ids(), clock, Workbench(f"sqlite:///{file}") as bench:
            self._runs = play_stories(bench)
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")

    def generate(self, random: Random) -> Damaged:
        kinds = ("flip", "flip", "cut", "swap", "zero", "garbage", "row", "row", "row", "row", "row", "delete")
        damage = tuple(
            Damage(random.choice(kinds), random.random(), random.random(), random.random(), _value(random))
            for _ in range(random.choice((1, 1, 2, 3)))
        )
        return Damaged(damage, random.randrange(7), tuple(random.sample(COMMANDS, 5)))

    def check(self, case: Damaged) -> Verdict:
        file = self._folder / "damaged.db"
        for old in self._folder.glob("damaged.db*"):
            old.unlink()
        shutil.copyfile(self._folder / "whole.db", file)
        done = [one for one in case.damage if damaged(file, one)]
        texts = {"run": self._runs[case.run % len(self._runs)]}
        worst = 0
        for command in case.commands:
            arguments = [*(word.format(**texts) for word in command.split()), "--db", f"sqlite:///{file}"]
            said = self._run(arguments)
            worst = max(worst, said.status)
            if said.status not in STATUSES:
                return broken("ends with a documented status", f"{command}: status {said.status}")
            if not said.is_in_words:
                return broken("ends in words", f"{command}: {said.err[-500:].decode(errors='replace')}")
        if not done:
            return Verdict(outcome="damage refused by the schema")
        return Verdict(outcome="refused" if worst else "answered")

    def show(self, case: Damaged) -> str:
        damage = "; ".join(
            f"{one.what} at {one.at:.4f} to {one.to:.4f} share {one.share:.4f} ({_brief(one.value)})"
            for one in case.damage
        )
        return f"{damage}, then of run {case.run}: {'; '.join(case.commands)}"

    def smaller(self, case: Damaged) -> Iterator[Damaged]:
        for commands in shorter(case.commands):
            yield msgspec.structs.replace(case, commands=tuple(commands))
        if len(case.damage) > 1:
            for damage in shorter(case.damage):
                yield msgspec.structs.replace(case, damage=tuple(damage))


def _value(random: Random) -> Any:
    return hostile_text(random) if random.random() < 0.15 else random.choice(ROW_DAMAGE)


def _brief(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 60 else f"{shown[:60]}… {len(value)} in all"


def damaged(file: Path, damage: Damage) -> bool:
    """Do it; False where the schema refuses."""
    if damage.what in ("row", "delete"):
        return _damaged_row(file, damage)
    content = bytearray(file.read_bytes())
    if not content:
        return False
    at, to = int(damage.at * len(content)), int(damage.to * len(content))
    match damage.what:
        case "flip":
            for place in range(at, min(at + (1 if damage.share < 0.5 else 64), len(content))):
                content[place] ^= 1 << int(damage.to * 8)
        case "cut":
            del content[at:]
        case "swap":
            one, other = at // PAGE * PAGE, to // PAGE * PAGE
            kept = content[one : one + PAGE]
            content[one : one + PAGE] = content[other : other + PAGE]
            content[other : other + PAGE] = kept
        case "zero":
            content[at : at + PAGE] = bytes(len(content[at : at + PAGE]))
        case "garbage":
            content[at : at + 100] = bytes(
                (at * 7 + number * 31) % 256 for number in range(len(content[at : at + 100]))
            )
    file.write_bytes(content)
    return True


def _damaged_row(file: Path, damage: Damage) -> bool:
    """Damage one value of one row, or delete the row, with triggers and checks out of the way."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        try:
            connection.execute("pragma foreign_keys = off")
            connection.execute("pragma ignore_check_constraints = on")
            for (trigger,) in connection.execute("select name from sqlite_master where type = 'trigger'").fetchall():
                connection.execute(f"drop trigger {_quoted(trigger)}")
            named = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name"
            tables = [name for (name,) in connection.execute(named)]
            table = _quoted(tables[int(damage.at * len(tables))])
            count = connection.execute(f"select count(*) from {table}").fetchone()[0]
            if count == 0:
                return False
            columns = [row[1] for row in connection.execute(f"pragma table_info({table})")]
            keys = [row[1] for row in connection.execute(f"pragma table_info({table})") if row[5]] or ["rowid"]
            chosen = ", ".join(map(_quoted, keys))
            place = int(damage.share * count)
            key = connection.execute(
                f"select {chosen} from {table} order by {chosen} limit 1 offset {place}"
            ).fetchone()
            where = " and ".join(f"{_quoted(name)} is ?" for name in keys)
            if damage.what == "delete":
                connection.execute(f"delete from {table} where {where}", key)
            else:
                column = _quoted(columns[int(damage.to * len(columns))])
                connection.execute(f"update {table} set {column} = ? where {where}", (damage.value, *key))
        except (sqlite3.Error, UnicodeError, OverflowError):
            return False
        return True


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
