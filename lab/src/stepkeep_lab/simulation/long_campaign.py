"""A campaign that may take hours: it writes down how far it is, and goes on from there when it is begun again.

Only with the same code: what half of the seeds say about one commit and half about another says nothing about either.
The folder that it is given ends up with `simulation.json` and `simulation.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from stepkeep.kernel.errors import InvalidInput
from stepkeep_lab.simulation.campaign import MUTANT_SEEDS, Campaign, Score, hunt, run_campaign
from stepkeep_lab.simulation.mutants import MUTANTS
from stepkeep_lab.simulation.report import Report, as_json, page

SAVED_EVERY = 20.0
"""How much may be lost when the machine goes away (seconds)."""

LEFT_OFF = "simulation.partial.json"


class Progress(msgspec.Struct, kw_only=True):
    """How far it is."""

    commit: str
    campaign: Campaign
    scores: list[Score] = []


def explore(
    folder: Path,
    *,
    commit: str,
    machine: dict[str, str],
    runs: int,
    first: int = 0,
    jobs: int = 1,
    with_mutants: bool = True,
    told: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Play until there were this many runs, then hunt the planted bugs; write down what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / LEFT_OFF
    progress = _left_off(saved, commit, first)
    keeper = _Keeper(saved, progress, told)
    run_campaign(runs=runs, first=first, jobs=jobs, campaign=progress.campaign, told=lambda _: keeper.note())
    if with_mutants:
        _hunt_the_rest(progress, jobs, keeper)
    report = Report(
        commit=commit, machine=machine, wanted=runs, campaign=progress.campaign, scores=tuple(progress.scores)
    )
    encoded = msgspec.json.format(msgspec.json.encode(as_json(report)), indent=2)
    (folder / "simulation.json").write_bytes(encoded + b"\n")
    (folder / "simulation.md").write_text(page(report), encoding="utf-8")
    saved.unlink(missing_ok=True)
    return report


def _hunt_the_rest(progress: Progress, jobs: int, keeper: _Keeper) -> None:
    caught = {score.name for score in progress.scores}
    left = [mutant.name for mutant in MUTANTS if mutant.name not in caught]

    def take(score: Score) -> None:
        progress.scores.append(score)
        keeper.note()

    if left:
        hunt(left, most=MUTANT_SEEDS, jobs=jobs, told=take)


def _left_off(saved: Path, commit: str, first: int) -> Progress:
    """What was left off in this folder, or a new beginning."""
    if not saved.exists():
        return Progress(commit=commit, campaign=Campaign(first=first, following=first))
    try:
        progress = msgspec.json.decode(saved.read_bytes(), type=Progress)
    except msgspec.DecodeError as problem:
        raise InvalidInput(f"{saved.name} cannot be read: {problem}. Remove it to begin again.") from None
    if (progress.commit, progress.campaign.first) != (commit, first):
        said = f"{saved.name} was left off at commit {progress.commit}, from seed {progress.campaign.first} on"
        raise InvalidInput(f"{said}; this is {commit}, from seed {first} on. Remove it to begin again.")
    return progress


class _Keeper:
    """Tells of the progress each time, and writes it down now and then."""

    def __init__(self, saved: Path, progress: Progress, told: Callable[[Progress], None]) -> None:
        self._saved, self._progress, self._told = saved, progress, told
        self._at = time.monotonic()

    def note(self) -> None:
        self._told(self._progress)
        if time.monotonic() - self._at >= SAVED_EVERY:
            self._at = time.monotonic()
            unfinished = self._saved.with_suffix(".new")
            unfinished.write_bytes(msgspec.json.encode(self._progress))
            unfinished.replace(self._saved)
