"""Targets with numbers for cases, which end their process in every way there is: the suite must notice each."""

from __future__ import annotations

import os
import time
from random import Random
from typing import Any, ClassVar

from stepkeep_lab.fuzz.target import Limits, Target, Verdict, broken

HERE = "tests.fuzz.numbers"


class Numbers(Target[int]):
    """Each case is a number below a hundred; subclasses do something with some of them."""

    name = "numbers"
    what = "A number."
    holds = "It is not special."
    limits: ClassVar[Limits] = Limits(cpu_seconds=1.0, wall_seconds=5.0, memory_mb=200, batch=100)

    def generate(self, random: Random) -> int:
        return random.randrange(100)

    def check(self, case: int) -> Verdict:
        return Verdict(outcome="even" if case % 2 == 0 else "odd")


class Special(Numbers):
    def check(self, case: int) -> Verdict:
        return broken("is below ninety", f"it is {case}\x1b[2J") if case >= 90 else super().check(case)

    def show(self, case: int) -> str:
        return f"number {case}\x1b[2J"

    def smaller(self, case: int) -> Any:
        yield from (case - 5, case - 1)


class Raising(Numbers):
    def check(self, case: int) -> Verdict:
        return super().check(case) if case < 90 else {}[case]  # type: ignore[return-value]


class Aborting(Numbers):
    def check(self, case: int) -> Verdict:
        if case >= 90:
            os.abort()
        return super().check(case)


class AbortingWhileShrinking(Special):
    def smaller(self, case: int) -> Any:
        os.abort()


class Hanging(Numbers):
    limits = Limits(cpu_seconds=1.0, wall_seconds=0.5, batch=100)

    def check(self, case: int) -> Verdict:
        if case >= 95:
            time.sleep(60)
        return super().check(case)


class Spinning(Numbers):
    limits = Limits(cpu_seconds=0.2, wall_seconds=30.0, batch=100)

    def check(self, case: int) -> Verdict:
        while case >= 95:
            case += 1
        return super().check(case)


class Slow(Numbers):
    limits = Limits(cpu_seconds=0.3, wall_seconds=30.0, batch=100)

    def check(self, case: int) -> Verdict:
        until = time.process_time() + (0.4 if case >= 95 else 0)
        while time.process_time() < until:
            pass
        return super().check(case)


class Hungry(Numbers):
    def check(self, case: int) -> Verdict:
        kept = bytearray(1 << 30) if case >= 95 else b""
        return super().check(case + len(kept) % 2)


class Unable(Numbers):
    """A defect of the suite itself."""

    def generate(self, random: Random) -> int:
        raise LookupError("nothing to draw")
