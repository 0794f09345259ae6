"""Plays one case in this process: generate, check, judge time and exceptions, shrink what fails.

Does not survive what ends the process; `campaign` plays through child processes for that reason. The child and the
tests call it.
"""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from stepkeep.edges.safe_text import exception_text, inert_line
from stepkeep_lab.fuzz.target import Target, Verdict, broken, case_random

MOST_SHOWN = 2_000
MOST_DETAIL = 1_000
MOST_SHRINKING_CHECKS = 300
SHRINKING_SECONDS = 5.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A case that broke a promise."""

    target: str
    seed: int
    number: int
    promise: str
    detail: str
    case: str
    smallest: str = ""
    """The case after shrinking; empty where nothing could be left out."""

    @property
    def command(self) -> str:
        """The command that plays this case alone."""
        return f"stepkeep lab fuzz --only {self.target} --seed {self.seed} --case {self.number}"


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What playing one case came to."""

    number: int
    outcome: str
    cpu_seconds: float
    finding: Finding | None = None


def play(target: Target[Any], seed: int, number: int) -> Played:
    """Play one case. Whatever `check` raises is a finding."""
    case = target.generate(case_random(seed, target.name, number))
    began = time.process_time()
    verdict = judge(target, case)
    cpu_seconds = time.process_time() - began
    finding = None
    if verdict.promise:
        finding = Finding(
            target=target.name,
            seed=seed,
            number=number,
            promise=inert_line(verdict.promise, MOST_DETAIL),
            detail=inert_line(verdict.detail, MOST_DETAIL),
            case=shown(target, case),
        )
    return Played(number=number, outcome=verdict.outcome, cpu_seconds=round(cpu_seconds, 4), finding=finding)


def made_smaller(target: Target[Any], played: Played) -> Played:
    """The same result, with the smallest case that breaks the same promise beside it."""
    found = played.finding
    if found is None:
        return played
    case = target.generate(case_random(found.seed, target.name, found.number))
    smallest = shrink(target, case, found.promise)
    return replace(played, finding=replace(found, smallest="" if smallest is case else shown(target, smallest)))


def judge(target: Target[Any], case: Any) -> Verdict:
    """The verdict on a case, its use of time included."""
    began = time.process_time()
    try:
        verdict = target.check(case)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the engine let it through, and that is what is looked for
        name = type(error).__name__
        return broken(f"raises {name}", f"{exception_text(error)} at {_place(error)}", outcome="raised")
    used = time.process_time() - began
    if not verdict.promise and used > target.limits.cpu_seconds:
        return broken(f"ends within {target.limits.cpu_seconds:g} s of CPU", f"it took {used:.1f} s", outcome="slow")
    return verdict


def shrink(target: Target[Any], case: Any, promise: str) -> Any:
    """The smallest case found that still breaks the same promise, within a bound on checks and time."""
    until, checks, smallest = time.monotonic() + SHRINKING_SECONDS, 0, case
    went_on = True
    while went_on:
        went_on = False
        for candidate in target.smaller(smallest):
            checks += 1
            if checks > MOST_SHRINKING_CHECKS or time.monotonic() > until:
                return smallest
            if inert_line(judge(target, candidate).promise, MOST_DETAIL) == promise:
                smallest, went_on = candidate, True
                break
    return smallest


def shown(target: Target[Any], case: Any, limit: int = MOST_SHOWN) -> str:
    """The case for people: bounded and without control characters."""
    return inert_line(target.show(case), limit)


def _place(error: BaseException) -> str:
    """The innermost two frames: enough to find the line, and no path of this machine."""
    frames = traceback.extract_tb(error.__traceback__)[-2:]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames)) or "nowhere"
