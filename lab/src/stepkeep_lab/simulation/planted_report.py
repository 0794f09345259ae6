"""Hunts the planted bugs in pieces, and keeps in one file when each was caught last and on which commit.

A hunt of all bugs takes longer than many sittings have. Bugs that the file does not have come first, then those of
other commits; the seed that showed a bug last is played first. It never removes a score without a newer one, unless the
bug has left the list. `stepkeep lab mutants --report` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.simulation.campaign import MUTANT_SEEDS, Score, chosen, hunt
from stepkeep_lab.simulation.mutants import MUTANTS


class Hunted(Score, frozen=True, kw_only=True):
    """A score, and the commit of the code in which the bug was planted."""

    commit: str


class Scores(msgspec.Struct, kw_only=True):
    """The newest score of each bug that was hunted, in the order of the list."""

    caught: int = 0
    of: int = 0
    scores: list[Hunted] = []


class Planted(msgspec.Struct, kw_only=True):
    """The file."""

    mutants: Scores = msgspec.field(default_factory=Scores)


def hunt_on(
    file: Path,
    *,
    commit: str,
    names: Sequence[str] = (),
    most: int = MUTANT_SEEDS,
    jobs: int = 1,
    told: Callable[[Score], None] = lambda score: None,
) -> Scores:
    """Hunt what was not caught on this commit, and write the file after each bug."""
    kept = _read(file)
    found = {score.name: score for score in kept.mutants.scores}

    def take(score: Score) -> None:
        found[score.name] = Hunted(**asdict(score), commit=commit)
        _write(file, kept, found)
        told(score)

    wanted = chosen(names)
    new = [name for name in wanted if name not in found]
    old = [name for name in wanted if name in found and not _is_done(found[name], commit)]
    shown = {name: score.seeds - 1 for name, score in found.items() if score.seeds is not None}
    for part in (new, old):
        if part:
            hunt(part, most=most, jobs=jobs, tried_first=shown, told=take)
    _write(file, kept, found)
    return kept.mutants


def _is_done(score: Hunted, commit: str) -> bool:
    return score.commit == commit and score.seeds is not None


def _read(file: Path) -> Planted:
    if not file.exists():
        return Planted()
    try:
        return msgspec.json.decode(file.read_bytes(), type=Planted)
    except msgspec.DecodeError as problem:
        raise InvalidInput(f"{file.name} is no report of planted bugs: {problem}. Name another file.") from None


def _write(file: Path, kept: Planted, found: dict[str, Hunted]) -> None:
    scores = [found[mutant.name] for mutant in MUTANTS if mutant.name in found]
    caught = sum(score.seeds is not None for score in scores)
    kept.mutants = Scores(caught=caught, of=len(MUTANTS), scores=scores)
    unfinished = file.with_suffix(".new")
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    unfinished.replace(file)
