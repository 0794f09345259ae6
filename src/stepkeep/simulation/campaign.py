"""Many seeds: what they came to together, which of them failed, what was never reached; and the hunt for planted bugs.

Seeds are independent, so that several processes may share them; the report is the same however many there were.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

from stepkeep.simulation.coverage import table_rows, unreached
from stepkeep.simulation.mutants import MUTANTS
from stepkeep.simulation.mutation import planted
from stepkeep.simulation.play import Result, play
from stepkeep.simulation.scenario import draw, with_changes
from stepkeep.simulation.shrink import replay_command, shrink

MOST_FAILURES = 5
"""After so many failing seeds a campaign ends: more of them say nothing new."""

BATCH = 10
MUTANT_SEEDS = 1000

T = TypeVar("T")
R = TypeVar("R")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that failed, and the smallest relative of it that was found."""

    seed: int
    violations: tuple[str, ...]
    command: str
    shrunk: tuple[str, ...]
    shrunk_command: str


class Campaign(msgspec.Struct, kw_only=True):
    """What many seeds came to together."""

    first: int
    seeds: int = 0
    runs: int = 0
    commits: int = 0
    effects: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    ended: Counter[str] = msgspec.field(default_factory=Counter)
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    refusals: Counter[str] = msgspec.field(default_factory=Counter)
    met: Counter[str] = msgspec.field(default_factory=Counter)
    rows: set[tuple[str, str | None, str]] = msgspec.field(default_factory=set)
    failures: list[Failure] = msgspec.field(default_factory=list)

    def take(self, result: Result) -> None:
        self.seeds += 1
        self.runs += result.runs
        self.commits += result.commits
        self.effects += result.effects
        self.virtual_seconds += result.seconds
        self.ended.update(result.ended)
        self.faults.update(result.faults)
        self.refusals.update(result.refusals)
        self.met.update(result.met)
        self.rows |= result.rows

    @property
    def unreached(self) -> list[str]:
        return unreached(self.rows, self.faults, self.refusals, self.met)

    def as_json(self) -> dict[str, Any]:
        return {
            "first_seed": self.first,
            "seeds": self.seeds,
            "runs": self.runs,
            "commits": self.commits,
            "effects": self.effects,
            "virtual_seconds": round(self.virtual_seconds),
            "seconds": round(self.seconds, 1),
            "ended": _sorted(self.ended),
            "faults": _sorted(self.faults),
            "refusals": _sorted(self.refusals),
            "met": _sorted(self.met),
            "table_rows": {"reached": len(self.rows & table_rows()), "of": len(table_rows())},
            "unreached": self.unreached,
            "failures": msgspec.to_builtins(self.failures),
        }


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How a planted bug fared: the number of seeds after which it was caught, and by what."""

    name: str
    what: str
    seeds: int | None
    violation: str = ""


def run_campaign(
    seeds: int,
    *,
    first: int = 0,
    changes: Mapping[str, Any] | None = None,
    jobs: int = 1,
    told: Callable[[Campaign], None] = lambda campaign: None,
) -> Campaign:
    """Play so many seeds. `changes` are laid over each scenario; `told` hears of the progress now and then."""
    campaign, began = Campaign(first=first), time.monotonic()
    batches = [range(one, min(one + BATCH, first + seeds)) for one in range(first, first + seeds, BATCH)]
    for results in _spread(partial(_play_all, dict(changes or {})), batches, jobs):
        for result in results:
            campaign.take(result)
            if not result.ok:
                campaign.failures.append(_examine(result))
        campaign.seconds = time.monotonic() - began
        told(campaign)
        if len(campaign.failures) >= MOST_FAILURES:
            break
    return campaign


def _play_all(changes: dict[str, Any], seeds: Sequence[int]) -> list[Result]:
    return [play(with_changes(draw(seed), changes)) for seed in seeds]


def _examine(result: Result) -> Failure:
    smallest = shrink(result.scenario)
    return Failure(
        seed=result.scenario.seed,
        violations=result.violations,
        command=replay_command(result.scenario),
        shrunk=smallest.violations,
        shrunk_command=replay_command(smallest.scenario),
    )


def hunt(
    names: Sequence[str] = (),
    *,
    most: int = MUTANT_SEEDS,
    jobs: int = 1,
    told: Callable[[Score], None] = lambda score: None,
) -> list[Score]:
    """Plant each bug in turn and play seeds until it shows."""
    known = [mutant.name for mutant in MUTANTS]
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"there is no planted bug {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    scores = []
    for score in _spread(partial(_catch, most), [name for name in known if not names or name in names], jobs):
        scores.append(score)
        told(score)
    return scores


def _catch(most: int, name: str) -> Score:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with planted(mutant):
        for seed in range(most):
            result = play(draw(seed))
            if not result.ok:
                return Score(name=name, what=mutant.what, seeds=seed + 1, violation=result.violations[0])
    return Score(name=name, what=mutant.what, seeds=None)


def _spread(work: Callable[[T], R], parts: Sequence[T], jobs: int) -> Iterator[R]:
    """The results in order, made here or by so many processes."""
    if jobs <= 1:
        yield from map(work, parts)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield from pool.map(work, parts)
        finally:
            pool.shutdown(cancel_futures=True)


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {str(name): counts[name] for name in sorted(counts)}
