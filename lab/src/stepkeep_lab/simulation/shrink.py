"""Reduces a failing scenario: fewer runs, workers, steps and faults, as long as it fails in the same way.

Greedy and limited: it tries one reduction after the other and keeps those that still fail. The result is the seed and
the fields that differ from the seed's own values.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stepkeep_lab.simulation.run_seed import Result, run_seed
from stepkeep_lab.simulation.scenario import FAULTS, HABITS, Scenario, draw, with_changes

MOST_TRIES = 80


def kind_of(violation: str) -> str:
    """What a violation is about: the words before its first colon."""
    return violation.split(":")[0]


def shrink(scenario: Scenario, *, most: int = MOST_TRIES, player: Callable[[Scenario], Result] = run_seed) -> Result:
    """The smallest failing relative that was found within this many plays."""
    best = player(scenario)
    if best.ok:
        return best
    wanted = kind_of(best.violations[0])
    plays, smaller = 1, True
    while smaller and plays < most:
        smaller = False
        for changes in _reductions(best.scenario):
            if plays >= most:
                break
            plays += 1
            tried = player(with_changes(best.scenario, changes))
            if any(kind_of(violation) == wanted for violation in tried.violations):
                best, smaller = tried, True
    return best


def _reductions(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """What may be left out, largest first: a seed of few runs plays faster than one of many."""
    for name in ("runs", "workers", "steps"):
        number = getattr(scenario, name)
        yield from ({name: fewer} for fewer in dict.fromkeys((1, number // 2, number - 1)) if 0 < fewer < number)
    for name in (*FAULTS, *HABITS):
        if getattr(scenario, name):
            yield {name: 0.0}
    if scenario.chaos > 5:
        yield {"chaos": scenario.chaos / 2}
    for name in ("long", "alike"):
        if getattr(scenario, name):
            yield {name: False}
    if scenario.tick:
        yield {"tick": 0.0}


def replay_command(scenario: Scenario) -> str:
    """The one command that plays exactly this scenario again."""
    drawn = msgspec.to_builtins(draw(scenario.seed))
    changed = {name: value for name, value in msgspec.to_builtins(scenario).items() if drawn[name] != value}
    words = ["stepkeep", "lab", "simulate", "--seeds", "1", "--from", str(scenario.seed)]
    if changed:
        words += ["--with", msgspec.json.encode(changed).decode()]
    return shlex.join(words)
