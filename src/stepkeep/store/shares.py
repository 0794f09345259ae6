"""Fills the shares that the claim order gives each run with the run's claimable steps of the lowest numbers.

It reads nothing: the stores find shares and steps and call it. PostgreSQL's `find_claimable` does the same in SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from stepkeep.store.change import Loaded, RunKey


def sizes(shares: Sequence[RunKey], barred: Collection[RunKey]) -> Counter[RunKey]:
    """How many shares each run has, without runs that must not be changed."""
    return Counter([key for key in shares if key not in barred])


def fill(shares: Sequence[RunKey], lowest: Mapping[RunKey, Sequence[int]], loaded: Loaded) -> None:
    """Propose for each share its run's next step; `lowest` has the numbers of claimable steps in ascending order."""
    rest = {key: iter(numbers) for key, numbers in lowest.items()}
    for key in shares:
        if key in loaded.barred:
            loaded.passed_over += 1
        elif (no := next(rest.get(key, iter(())), None)) is not None:
            loaded.proposed.append((*key, no))
