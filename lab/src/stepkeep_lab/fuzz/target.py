"""The interface of a target: generate a case from chance, check it, show it, make it smaller.

A case depends on the seed and its number alone, so that one number replays it. A target never reports through an
exception: what `check` raises counts as a finding of its own. `play` calls targets, one case at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import ClassVar, Generic, TypeVar

import msgspec

C = TypeVar("C")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one case may use. The process that plays it is ended beyond them."""

    cpu_seconds: float = 5.0
    wall_seconds: float = 60.0
    memory_mb: int = 500
    """Address space beyond what the process has before its first case."""

    batch: int = 200
    """How many cases one process plays."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one case came to."""

    outcome: str
    """How it ended, for the counts: `accepted`, `refused` …"""

    promise: str = ""
    """What did not hold, in the same few words each time; empty where everything held."""

    detail: str = ""
    """What was seen instead."""


def broken(promise: str, detail: str = "", *, outcome: str = "violated") -> Verdict:
    """The verdict on a case that broke a promise."""
    return Verdict(outcome=outcome, promise=promise, detail=detail)


class Target(Generic[C]):
    """One edge of the engine. Subclasses say what they feed it and what must hold."""

    name: ClassVar[str]
    what: ClassVar[str]
    """What is fed to it, in one sentence."""

    holds: ClassVar[str]
    """What must hold, in one sentence."""

    limits: ClassVar[Limits] = Limits()

    def open(self, folder: Path) -> None:
        """Make what all cases share, in a folder that is removed afterwards."""

    def close(self) -> None:
        """Release what `open` made."""

    def generate(self, random: Random) -> C:
        """One case. Must depend on nothing but `random`."""
        raise NotImplementedError

    def check(self, case: C) -> Verdict:
        """Feed the case to the engine and judge the answer."""
        raise NotImplementedError

    def show(self, case: C) -> str:
        """The case for people, enough to repeat it by hand."""
        return repr(case)

    def smaller(self, case: C) -> Iterator[C]:
        """Cases with a part of this one left out, the smallest first. None by default."""
        return iter(())


def case_random(seed: int, name: str, number: int) -> Random:
    """The source of chance of one case; no other case and no other target shares it."""
    return Random(f"{seed}:{name}:{number}")  # noqa: S311 - chance that must come out the same again
