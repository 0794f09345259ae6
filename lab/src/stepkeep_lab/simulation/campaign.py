"""Many seeds: what they came to together, which of them failed, what was never reached; and the hunt for planted bugs.

Seeds are independent, so that several processes may share them; the report is the same however many there were.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import msgspec

from stepkeep_lab.simulation.coverage import table_rows, unreached
from stepkeep_lab.simulation.mutants import MUTANTS
from stepkeep_lab.simulation.mutation import planted
from stepkeep_lab.simulation.run_seed import Result, run_seed
from stepkeep_lab.simulation.scenario import draw, with_changes
from stepkeep_lab.simulation.shrink import replay_command, shrink

MOST_FAILURES = 5
"""After this many failing seeds a campaign ends: more of them say nothing new."""

BATCH = 10
AHEAD = 3
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
    """What many seeds came to together: those from `first` on, up to but without `following`."""

    first: int
    following: int
    seeds: int = 0
    runs: int = 0
    steps: int = 0
    commits: int = 0
    effects: int = 0
    virtual_seconds: float = 0.0
    seconds: float = 0.0
    digest: str = "0" * 64
    written_in: dict[str, int] = {}
    ended: dict[str, int] = {}
    faults: dict[str, int] = {}
    refusals: dict[str, int] = {}
    met: dict[str, int] = {}
    rows: set[tuple[str, str | None, str]] = set()
    failures: list[Failure] = []

    def take(self, result: Result) -> None:
        """Add one more seed."""
        self.seeds += 1
        self.following = max(self.following, result.scenario.seed + 1)
        self.runs += result.runs
        self.steps += result.steps
        self.commits += result.commits
        self.effects += result.effects
        self.virtual_seconds += result.seconds
        self.digest = _sum_of(self.digest, result.digest)
        for name in COUNTS:
            _add(getattr(self, name), getattr(result, name))
        self.rows |= result.rows
        if not result.ok:
            self.failures.append(_examine(result))

    def join(self, other: Campaign) -> None:
        """Add what others played."""
        self.following = max(self.following, other.following)
        for name in ("seeds", "runs", "steps", "commits", "effects", "virtual_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.digest = _sum_of(self.digest, other.digest)
        for name in COUNTS:
            _add(getattr(self, name), getattr(other, name))
        self.rows |= other.rows
        self.failures += other.failures

    @property
    def unreached(self) -> list[str]:
        return unreached(self.rows, self.faults, self.refusals, self.met)

    def as_json(self) -> dict[str, Any]:
        return {
            "first_seed": self.first,
            "last_seed": self.following - 1,
            "seeds": self.seeds,
            "runs": self.runs,
            "steps": self.steps,
            "commits": self.commits,
            "effects": self.effects,
            "virtual_seconds": round(self.virtual_seconds),
            "seconds": round(self.seconds, 1),
            "digest": self.digest,
            **{name: _sorted(getattr(self, name)) for name in COUNTS},
            "table_rows": {"reached": len(self.rows & table_rows()), "of": len(table_rows())},
            "unreached": self.unreached,
            "failures": msgspec.to_builtins(self.failures),
        }


COUNTS = ("written_in", "ended", "faults", "refusals", "met")


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How a planted bug fared: the number of seeds from 0 on that shows it, and by what."""

    name: str
    what: str
    seeds: int | None
    violation: str = ""


def run_campaign(
    seeds: int | None = None,
    *,
    runs: int | None = None,
    first: int = 0,
    changes: Mapping[str, Any] | None = None,
    jobs: int = 1,
    campaign: Campaign | None = None,
    told: Callable[[Campaign], None] = lambda campaign: None,
) -> Campaign:
    """Play this many seeds, or as many as make this many runs, from `first` on or where `campaign` left off.

    `changes` are laid over each scenario; `told` hears of the progress now and then.
    """
    campaign = campaign or Campaign(first=first, following=first)
    spent, began = campaign.seconds, time.monotonic()
    end = None if seeds is None else campaign.first + seeds
    if _is_enough(campaign, end, runs):
        return campaign
    for part in spread(partial(_play_all, dict(changes or {})), _batches(campaign.following, end), jobs):
        campaign.join(part)
        campaign.seconds = spent + time.monotonic() - began
        told(campaign)
        if _is_enough(campaign, end, runs):
            break
    return campaign


def _is_enough(campaign: Campaign, end: int | None, runs: int | None) -> bool:
    if len(campaign.failures) >= MOST_FAILURES:
        return True
    return campaign.following == end or (runs is not None and campaign.runs >= runs)


def _batches(first: int, end: int | None) -> Iterator[range]:
    for begin in itertools.count(first, BATCH):
        if end is not None and begin >= end:
            return
        yield range(begin, begin + BATCH if end is None else min(begin + BATCH, end))


def _play_all(changes: dict[str, Any], seeds: Sequence[int]) -> Campaign:
    part = Campaign(first=seeds[0], following=seeds[0])
    with swept_at_the_end():
        for seed in seeds:
            part.take(run_seed(with_changes(draw(seed), changes)))
    return part


@contextmanager
def swept_at_the_end() -> Iterator[None]:
    """Each seed leaves a world behind that is one heap of cycles; it is cheaper to sweep once than all the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


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
    tried_first: Mapping[str, int] | None = None,
    told: Callable[[Score], None] = lambda score: None,
) -> list[Score]:
    """Plant each bug in turn and play seeds until it shows: that of `tried_first`, if any, then from 0 on."""
    scores = []
    for score in spread(partial(_catch, most, tried_first or {}), chosen(names), jobs):
        scores.append(score)
        told(score)
    return scores


def chosen(names: Sequence[str]) -> list[str]:
    """The planted bugs of these names in the order of the list; all if none is named."""
    known = [mutant.name for mutant in MUTANTS]
    unknown = set(names) - set(known)
    if unknown:
        raise ValueError(f"there is no planted bug {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [name for name in known if not names or name in names]


def _catch(most: int, tried_first: Mapping[str, int], name: str) -> Score:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    with planted(mutant), swept_at_the_end():
        for seed in (*([tried_first[name]] if name in tried_first else ()), *range(most)):
            result = run_seed(draw(seed))
            if not result.ok:
                return Score(name=name, what=mutant.what, seeds=seed + 1, violation=result.violations[0])
    return Score(name=name, what=mutant.what, seeds=None)


def spread(work: Callable[[T], R], parts: Iterable[T], jobs: int) -> Iterator[R]:
    """The results in order, made here or by this many processes, which are kept busy but not far ahead."""
    if jobs <= 1:
        yield from map(work, parts)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            under_way: deque[Future[R]] = deque()
            for part in parts:
                under_way.append(pool.submit(work, part))
                if len(under_way) > jobs * AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """The end of a campaign also ends its child processes."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _sum_of(one: str, other: str) -> str:
    """Digests added up: the same however seeds were shared out, and another one if a single history differs."""
    return f"{(int(one, 16) + int(other, 16)) % 2**256:064x}"


def _add(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        counts[str(name)] = counts.get(str(name), 0) + count


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts)}
