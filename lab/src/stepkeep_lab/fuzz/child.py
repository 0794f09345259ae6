"""The process that plays a batch of cases: it takes a task on standard input and tells each case on a pipe.

It says which case comes next before it plays it, so that the parent can name the case that ended it. Limits on memory
and CPU are set here, after everything was imported. `campaign` starts it: `python -m stepkeep_lab.fuzz.child FD`.
"""

from __future__ import annotations

import faulthandler
import math
import os
import pkgutil
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from stepkeep_lab.fuzz.play import Played, made_smaller, play
from stepkeep_lab.fuzz.target import Limits, Target

MB = 1 << 20
MADE_SMALLER = 1
"""This many cases of a batch that break the same promise are made smaller."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A batch to play: numbers from `first` on, until `seconds` have passed."""

    target: str
    """Where the target is: `module:Class`."""

    seed: int
    first: int
    count: int
    seconds: float
    path: list[str]
    """Where modules are found."""


class Next(msgspec.Struct, frozen=True, tag=True):
    """This case comes next."""

    number: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """This case was played."""

    played: Played


class Found(msgspec.Struct, frozen=True, tag=True):
    """This case broke a promise, and is made smaller now, which may end this process."""

    played: Played


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The target itself failed, outside of `check`: a defect of the suite."""

    text: str


class Over(msgspec.Struct, frozen=True, tag=True):
    """The batch is over; so much memory was used at most, beyond what there was before the first case."""

    peak_mb: int


Told = Next | Done | Found | Failed | Over


def make(where: str) -> Target[Any]:
    """The target at `module:Class`."""
    made = pkgutil.resolve_name(where)()
    assert isinstance(made, Target)
    return made


def main(pipe: int) -> None:
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    sys.path[:] = task.path
    target, until = make(task.target), time.monotonic() + task.seconds

    def tell(what: Told) -> None:
        os.write(pipe, msgspec.json.encode(what) + b"\n")

    with tempfile.TemporaryDirectory(prefix="stepkeep-fuzz-") as folder:
        os.chdir(folder)
        target.open(Path(folder))
        known: Counter[str] = Counter()
        before = _peak_mb()
        _bound_memory(target.limits)
        try:
            for number in range(task.first, task.first + task.count):
                if time.monotonic() > until:
                    break
                tell(Next(number))
                _bound_cpu(target.limits)
                # Ends this process and says where it hung; also when nobody is left to end it from outside.
                faulthandler.dump_traceback_later(target.limits.wall_seconds, exit=True)
                try:
                    played = play(target, task.seed, number)
                    if played.finding is not None:
                        tell(Found(played))
                        known[played.finding.promise] += 1
                        if known[played.finding.promise] <= MADE_SMALLER:
                            played = made_smaller(target, played)
                except BaseException:
                    tell(Failed(traceback.format_exc()[-3_000:]))
                    raise
                tell(Done(played))
        finally:
            faulthandler.cancel_dump_traceback_later()
            _lift_limits()
            target.close()
            os.chdir("/")
    tell(Over(_peak_mb() - before))


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _bound_memory(limits: Limits) -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limits.memory_mb * MB, resource.RLIM_INFINITY))


def _bound_cpu(limits: Limits) -> None:
    """End this process by a signal when the next case needs more CPU than it may; play judges the exact figure."""
    used = time.process_time()
    # Twice the limit: a case that is a little too slow is a finding with its figure, and can be made smaller.
    soft = math.ceil(used + 2 * limits.cpu_seconds + 1)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _lift_limits() -> None:
    for what in (resource.RLIMIT_AS, resource.RLIMIT_CPU):
        resource.setrlimit(what, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main(int(sys.argv[1]))
    sys.stdout.flush()
    # Threads that a case left behind must not keep the process.
    os._exit(0)
