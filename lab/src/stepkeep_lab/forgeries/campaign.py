"""Forges true logs in every kind, lets the judge read them, and counts what it finds.

Each forgery is tried twice: with the chain as it was, and with the chain recomputed. True logs must give no finding.
The command `stepkeep lab forgeries` and the tests call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import Any

import msgspec

from stepkeep.conformance.certificate import differences_from
from stepkeep.conformance.encoding import compact
from stepkeep.conformance.verify import verify_lines
from stepkeep.conformance.words.replay import replay_lines
from stepkeep.dialects import registry
from stepkeep.operations.logs.log import canonical_machines
from stepkeep_lab.forgeries.kinds import Kind, all_kinds
from stepkeep_lab.forgeries.material import CANONICAL, GROWN, TrueLog, grown_logs, true_logs
from stepkeep_lab.forgeries.seals import resealed
from stepkeep_lab.forgeries.undetectable import class_of

MOST_MISSED = 3
"""How many missed forgeries of each kind are kept."""


class Tally(msgspec.Struct, kw_only=True):
    """How one kind of forgery fared. `beside` counts those that only the canonical log beside a dialect's shows,
    `undetectable` those not found, by their class.

    `missed` has the lines of a few forged logs that could have been found and were not.
    """

    name: str
    words: str
    what: str
    tried: int = 0
    found: int = 0
    beside: int = 0
    undetectable: dict[str, int] = {}
    unchained: int = 0
    unchained_found: int = 0
    missed: list[tuple[str, list[str]]] = []

    @property
    def ok(self) -> bool:
        return self.found + self.beside + self.hidden == self.tried and self.unchained_found == self.unchained

    @property
    def hidden(self) -> int:
        return sum(self.undetectable.values())

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        del plain["missed"]
        return plain


class Corpus(msgspec.Struct, kw_only=True):
    """The result: true logs with a finding, and the tally of each kind."""

    logs: int
    runs: int = 0
    endings: dict[str, int]
    accused: list[str]
    kinds: list[Tally]

    @property
    def ok(self) -> bool:
        return not self.accused and all(kind.ok for kind in self.kinds)

    @property
    def share(self) -> float:
        tried = sum(kind.tried for kind in self.kinds)
        return sum(kind.found for kind in self.kinds) / tried if tried else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "logs": self.logs,
            "runs": self.runs,
            "endings": self.endings,
            "accused": self.accused,
            "tried": sum(kind.tried for kind in self.kinds),
            "found": sum(kind.found for kind in self.kinds),
            "beside": sum(kind.beside for kind in self.kinds),
            "undetectable": sum(kind.hidden for kind in self.kinds),
            "kinds": [kind.as_json() for kind in self.kinds],
        }


def findings_in(words: str, lines: Iterable[bytes | str]) -> tuple[str, ...]:
    """What the judge finds in a log."""
    if words == CANONICAL:
        report = verify_lines(lines, canonical_machines())
    else:
        report = replay_lines(lines, registry.judged(words))
    return tuple(str(finding) for finding in report.findings)


def differences(words: str, lines: Sequence[bytes | str], journal: Sequence[bytes]) -> tuple[str, ...]:
    """What tells a dialect's log from its canonical log."""
    found = differences_from(registry.judged(words), lines, journal)
    return tuple(str(finding) for finding in found)


def forge_all(
    logs: Sequence[TrueLog],
    *,
    tries: int = 4,
    seed: int = 0,
    nth: int = 1,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Corpus:
    """Try every kind, or every `nth`, on `tries` logs that it can be applied to."""
    accused = [
        f"seed {log.seed}, {log.words} log of {log.run} ({log.ending}): {found[0]}"
        for log in logs
        if (found := findings_in(log.words, log.lines))
    ]
    kinds = all_kinds()[::nth] if tries else []
    tallies = []
    for place, kind in enumerate(kinds):
        random = Random(f"{seed}:{kind.words}:{kind.name}")  # noqa: S311 - the same corpus each time
        offered = [log for log in logs if (log.words, log.about) == (kind.words, kind.about)]
        tallies.append(_tally(kind, offered, tries, random))
        told(place + 1, len(kinds))
    endings: dict[str, int] = {}
    for log in logs:
        endings[log.ending] = endings.get(log.ending, 0) + 1
    used = [tally for tally in tallies if tally.unchained]
    runs = len({(log.seed, log.run) for log in logs})
    return Corpus(logs=len(logs), runs=runs, endings=dict(sorted(endings.items())), accused=accused, kinds=used)


def _tally(kind: Kind, logs: Sequence[TrueLog], tries: int, random: Random) -> Tally:
    tally = Tally(name=kind.name, words=kind.words, what=kind.what)
    for log in random.sample(logs, len(logs)):
        if max(tally.tried, tally.unchained) >= tries:
            break
        forged = kind.forge(log.parsed(), random)
        if forged is None:
            continue
        true = log.parsed()
        if forged == true:
            continue
        hidden = class_of(kind.name, true, forged) if kind.words == CANONICAL else None
        plain = [compact(line) for line in forged]
        tally.unchained += 1
        tally.unchained_found += bool(findings_in(kind.words, plain))
        try:
            rechained = resealed(forged, canonical=kind.words == CANONICAL)
        except (LookupError, TypeError, ValueError):
            chained = plain  # an entry that cannot be encoded has no hash: a field that it needs is missing
        else:
            if rechained == true:
                continue  # the field is part of the chain: recomputing it restores the truth
            chained = [compact(line) for line in rechained]
        tally.tried += 1
        if findings_in(kind.words, chained):
            tally.found += 1
        elif log.journal and differences(kind.words, chained, log.journal):
            tally.beside += 1
        elif hidden is not None:
            tally.undetectable[hidden] = tally.undetectable.get(hidden, 0) + 1
        elif len(tally.missed) < MOST_MISSED:
            tally.missed.append((f"seed {log.seed}, run {log.run} ({log.ending})", chained))
    return tally


def judge_seeds(seeds: int, *, first: int = 0, jobs: int = 1) -> Corpus:
    """The true logs of this many seeds alone, each run in canonical names and in the words of every dialect."""
    corpus = Corpus(logs=0, endings={}, accused=[], kinds=[])
    with ExitStack() as stack:
        pool = stack.enter_context(ProcessPoolExecutor(jobs)) if jobs > 1 else None
        for part in (pool.map if pool else map)(_judge_seed, range(first, first + seeds)):
            corpus.runs += part.runs
            corpus.logs += part.logs
            corpus.accused += part.accused
            for ending, count in part.endings.items():
                corpus.endings[ending] = corpus.endings.get(ending, 0) + count
    return corpus


def _judge_seed(seed: int) -> Corpus:
    return forge_all(list(true_logs([seed], in_all_words=True)), tries=0)


def forge_seeds(
    seeds: int, *, first: int = 0, tries: int = 4, told: Callable[[int, int], None] = lambda d, o: None
) -> Corpus:
    """The corpus over the runs of this many seeds of the simulator, and over as many with added steps and flows."""
    chosen = range(first, first + seeds)
    grown = [log for about in GROWN for log in grown_logs(chosen, about)]
    return forge_all([*true_logs(chosen), *grown], tries=tries, seed=first, told=told)
