"""Plays many cases of each target in child processes and adds up what came of them.

A child that dies or hangs costs one case, which is a finding with the number of that case; the next child goes on
behind it. Everything is bounded: cases, time, findings kept, children lost. `stepkeep lab fuzz` and the tests call it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO

import msgspec

from stepkeep.edges.safe_text import inert_line
from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.fuzz.child import Done, Failed, Found, Next, Over, Task, Told, make
from stepkeep_lab.fuzz.play import Finding, Played, shown
from stepkeep_lab.fuzz.target import case_random
from stepkeep_lab.fuzz.targets import TARGETS

HANGING_SECONDS = 10.0
"""How much longer than its limit a case may take until its process, which should have ended itself, is ended."""

OPENING_SECONDS = 120.0
"""How long a child may take before its first case, and after its last."""

MOST_KEPT = 5
"""How many findings of one target that break the same promise are kept; all are counted."""

MOST_LOST = 10
"""After this many children that died or hung, a target is given up."""

MOST_FINDINGS = 500

_PATH = re.compile(r'File "[^"]*/([^"/]+)"')
_decode = msgspec.json.Decoder(Told).decode


class Score(msgspec.Struct, kw_only=True):
    """What all cases of one target came to."""

    target: str
    what: str = ""
    holds: str = ""
    cases: int = 0
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    broken: Counter[str] = msgspec.field(default_factory=Counter)
    """How many cases broke each promise."""

    findings: list[Finding] = msgspec.field(default_factory=list)
    children_lost: int = 0
    slowest_cpu_seconds: float = 0.0
    slowest_case: int | None = None
    peak_mb: int = 0
    seconds: float = 0.0
    given_up: bool = False

    @property
    def ok(self) -> bool:
        return self.cases > 0 and not self.broken and not self.given_up


class Campaign(msgspec.Struct, kw_only=True):
    """A whole campaign, and what repeats it."""

    seed: int
    first: int
    count: int
    seconds_each: float | None
    scores: list[Score] = msgspec.field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return bool(self.scores) and all(score.ok for score in self.scores)

    @property
    def cases(self) -> int:
        return sum(score.cases for score in self.scores)


def choose(names: Sequence[str]) -> list[str]:
    """The targets meant, all without a name; a name that no target has is refused with those that there are."""
    if unknown := sorted(set(names) - set(TARGETS)):
        raise InvalidInput(f"there is no {', '.join(unknown)} here; there are: {', '.join(TARGETS)}")
    return [name for name in TARGETS if not names or name in names]


def run_campaign(
    names: Sequence[str] = (),
    *,
    seed: int = 0,
    first: int = 0,
    count: int = 1_000,
    seconds: float | None = None,
    jobs: int = 1,
    told: Callable[[Score], None] = lambda score: None,
) -> Campaign:
    """Play `count` cases of each target, or as many as `seconds` allow for each; `told` hears of each target."""
    began = time.monotonic()
    campaign = Campaign(seed=seed, first=first, count=count, seconds_each=seconds)
    for name in choose(names):
        score = play_target(TARGETS[name], seed=seed, first=first, count=count, seconds=seconds, jobs=jobs)
        campaign.scores.append(score)
        told(score)
    campaign.seconds = round(time.monotonic() - began, 1)
    return campaign


def play_target(
    where: str, *, seed: int, first: int = 0, count: int, seconds: float | None = None, jobs: int = 1
) -> Score:
    """Play the cases of the target at `module:Class`."""
    target, began = make(where), time.monotonic()
    until = began + (seconds if seconds is not None else 365 * 86_400)
    score = Score(target=target.name, what=target.what, holds=target.holds)
    batch = max(1, min(target.limits.batch, -(-count // jobs)))
    with ThreadPoolExecutor(jobs) as pool:
        running: list[Future[list[_Event]]] = []
        for start in range(first, first + count, batch):
            while len(running) >= jobs:
                _add(score, running.pop(0).result())
            if time.monotonic() > until or score.given_up:
                break
            size = min(batch, first + count - start)
            running.append(pool.submit(_batch, where, seed, start, size, until))
        for future in running:
            _add(score, future.result())
    score.seconds = round(time.monotonic() - began, 1)
    return score


def replay(name: str, seed: int, number: int) -> tuple[str, Score]:
    """Play one case alone: how the case looks, and what it came to."""
    [chosen] = choose([name])
    target = make(TARGETS[chosen])
    case = target.generate(case_random(seed, target.name, number))
    return shown(target, case, limit=100_000), play_target(TARGETS[chosen], seed=seed, first=number, count=1)


# -- one batch ---------------------------------------------------------------------------------------------------------
class _Lost(msgspec.Struct, frozen=True):
    """A child that did not survive a case."""

    played: Played


_Event = Done | Over | _Lost


def _add(score: Score, events: Sequence[_Event]) -> None:
    for event in events:
        match event:
            case Over(peak_mb):
                score.peak_mb = max(score.peak_mb, peak_mb)
            case Done(played):
                _count(score, played)
            case _Lost(played):
                score.children_lost += 1
                _count(score, played)
    score.given_up = score.children_lost >= MOST_LOST or score.broken.total() >= MOST_FINDINGS


def _count(score: Score, played: Played) -> None:
    score.cases += 1
    score.outcomes[played.outcome] += 1
    if score.slowest_case is None or played.cpu_seconds > score.slowest_cpu_seconds:
        score.slowest_cpu_seconds, score.slowest_case = played.cpu_seconds, played.number
    if (finding := played.finding) is None:
        return
    score.broken[finding.promise] += 1
    if score.broken[finding.promise] <= MOST_KEPT:
        score.findings.append(finding)


def _batch(where: str, seed: int, first: int, count: int, until: float) -> list[_Event]:
    events: list[_Event] = []
    end, lost = first + count, 0
    while first < end and time.monotonic() < until and lost < MOST_LOST:
        task = Task(
            target=where, seed=seed, first=first, count=end - first, seconds=until - time.monotonic(), path=sys.path
        )
        for event in _child(task):
            events.append(event)
            if isinstance(event, _Lost):
                lost += 1
                first = event.played.number + 1
                break
        else:
            break
    return events


def _child(task: Task) -> Iterator[_Event]:
    """What one child tells, until it is over or lost."""
    target = make(task.target)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as pipe, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "stepkeep_lab.fuzz.child", str(writing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            assert child.stdin is not None
            with suppress(BrokenPipeError):
                child.stdin.write(msgspec.json.encode(task))
                child.stdin.close()
            number: int | None = None
            found: Played | None = None
            for told in _heard(pipe, target.limits.wall_seconds + HANGING_SECONDS):
                match told:
                    case Next(number):
                        pass
                    case Found(found):
                        pass
                    case Done():
                        number = found = None
                        yield told
                    case Failed(text):
                        raise RuntimeError(
                            f"case {number} of {target.name} with seed {task.seed} failed by itself:\n{text}"
                        )
                    case Over():
                        yield told
                        return
                    case None:
                        break
            ended = _ended(child)
            if number is None:
                raise RuntimeError(f"the process of {target.name} {ended} between two cases: {_tail(errors)}")
            said = _tail(errors)
            yield _Lost(found or _lost(task, number, "hung" if "Timeout (" in said else ended, said))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _heard(pipe: BinaryIO, wall_seconds: float) -> Iterator[Told | None]:
    """What the child says, line by line; None when it says nothing for too long or has ended."""
    rest, patience = b"", OPENING_SECONDS
    while True:
        ready, _, _ = select.select([pipe], [], [], patience)
        read = pipe.read(1 << 16) if ready else b""
        if not read:
            yield None
            return
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            told = _decode(line)
            patience = wall_seconds if isinstance(told, Next | Found) else OPENING_SECONDS
            yield told


def _ended(child: subprocess.Popen[bytes]) -> str:
    try:
        status = child.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return "hung"
    if status < 0:
        return f"ended with {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _tail(errors: BinaryIO) -> str:
    """What the child said at its end: the first lines of the last traceback name the place."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 20_000))
    said = _PATH.sub(r'File "\1"', errors.read().decode(errors="replace").strip())
    for mark in ("Timeout (", "Fatal Python error"):
        if mark in said:
            return inert_line(said[said.rindex(mark) :], 900)
    return inert_line(said[-900:])


def _lost(task: Task, number: int, ended: str, said: str) -> Played:
    target = make(task.target)
    case = target.generate(case_random(task.seed, target.name, number))
    finding = Finding(
        target=target.name,
        seed=task.seed,
        number=number,
        promise=f"the process survives ({ended})",
        detail=said or "it said nothing",
        case=shown(target, case),
    )
    return Played(number=number, outcome="process lost", cpu_seconds=0.0, finding=finding)
