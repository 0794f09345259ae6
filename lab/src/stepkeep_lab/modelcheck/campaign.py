"""Runs all cases, with a limit on the states of each, and collects the figures to publish."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep.kernel.machine.tables import RUN, STEP
from stepkeep_lab.modelcheck.explore import Explored, Explorer, Finding
from stepkeep_lab.modelcheck.family import Case, cases

QUICK = 2_000
"""States per case in a test run."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole exploration saw."""

    cases: tuple[Explored, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(one.finding for one in self.cases if one.finding is not None)

    @property
    def states(self) -> int:
        return sum(one.states for one in self.cases)

    def untaken(self) -> tuple[str, ...]:
        """Arrows of the production tables that no state ever took; what was never taken was never checked."""
        taken = {arrow for one in self.cases for arrow in one.arrows}
        rows = [("run", str(row.source), str(row.trigger)) for row in RUN.rows if row.source is not None]
        rows += [("step", str(row.source), str(row.trigger)) for row in STEP.rows if row.source is not None]
        return tuple(
            f"{machine} {source} {trigger}"
            for machine, source, trigger in rows
            if (machine, source, trigger) not in taken
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": not self.findings,
            "states": self.states,
            "transitions": sum(one.transitions for one in self.cases),
            "probes": sum(one.probes for one in self.cases),
            "depth": max((one.depth for one in self.cases), default=0),
            "seconds": round(sum(one.seconds for one in self.cases), 1),
            "arrows_never_taken": list(self.untaken()),
            "cases": [
                {
                    "case": one.case,
                    "about": one.about,
                    "states": one.states,
                    "transitions": one.transitions,
                    "probes": one.probes,
                    "depth": one.depth,
                    "complete": one.complete,
                    "edge": one.edge,
                    "beyond": one.beyond,
                    "seconds": one.seconds,
                    "endings": one.endings,
                }
                for one in self.cases
            ],
            "findings": [msgspec.to_builtins(finding) for finding in self.findings],
        }


def check(limit: int = QUICK, *, jobs: int = 1, chosen: Sequence[str] = ()) -> Campaign:
    """Explore up to `limit` states of each case, in `jobs` processes."""
    family = [case for case in cases() if not chosen or case.name in chosen]
    if unknown := sorted(set(chosen) - {case.name for case in family}):
        names = ", ".join(case.name for case in cases())
        raise InvalidInput(f"there is no case {', '.join(unknown)}. There are: {names}")
    if jobs <= 1:
        return Campaign(cases=tuple(_explore(case.name, limit) for case in family))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        explored = pool.map(_explore, [case.name for case in family], [limit] * len(family))
        return Campaign(cases=tuple(explored))


def _explore(name: str, limit: int) -> Explored:
    [case] = [case for case in cases() if case.name == name]
    return explore(case, limit)


def explore(case: Case, limit: int) -> Explored:
    return Explorer(case, limit).explore()
