"""Plays drawn lives of the simulator and reduces each to a digest over its journals, rows and answers.

A life also has a trace, one byte for each journal entry, table and kind of answer: with it a difference has a place.
`record` calls `play` to record and to check.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from stepkeep.kernel.decide.decide import HANDLERS
from stepkeep.kernel.decide.decision import Reply
from stepkeep.kernel.decide.draft import Draft
from stepkeep.kernel.machine.events import Event
from stepkeep.operations.answers import Answer
from stepkeep.operations.continuation.migrating import Migrated
from stepkeep.store.records import Evidence
from stepkeep_lab.simulation.campaign import spread, swept_at_the_end
from stepkeep_lab.simulation.coverage import table_rows
from stepkeep_lab.simulation.run_seed import Result, run_seed
from stepkeep_lab.simulation.scenario import Scenario, draw, with_changes, with_sinks
from stepkeep_lab.simulation.stage import Stage

Changes = Mapping[str, Any]

SMALL: Changes = {"runs": 2, "workers": 2, "chaos": 8.0, "long": False, "remote": 0}
PROFILES: dict[str, Changes] = {"small": SMALL, "sinks": SMALL, "whole": {}}
"""What is laid over the scenario of each seed. Small lives are many; whole ones reach what needs a crowd."""

SHORT = {"small": 4400, "sinks": 300, "whole": 430}
LONG = {"small": 27_400, "sinks": 1600, "whole": 1000}
"""How many lives there are of each profile; the short form is the beginning of the long one."""

BATCH = 20
SHOWN = 600
DIGEST_BYTES = 4

UNMEASURED = ("journal", "reports")
"""Tables that the digest has in another form, or not: reports of workers tell how busy the process was."""


class Life(msgspec.Struct, frozen=True, array_like=True):
    """One life: its digest, one byte for each journal entry by run, and one for each table and kind of answer."""

    digest: bytes
    journals: list[bytes] = []
    tables: bytes = b""


class Played(msgspec.Struct, kw_only=True):
    """Some lives of one profile, and what they reached."""

    lives: list[Life] = []
    rows: set[tuple[str, str | None, str]] = set()
    events: set[str] = set()
    violations: list[str] = []


def scenario_of(profile: str, seed: int) -> Scenario:
    """The scenario of a seed under a profile."""
    drawn = with_sinks(seed) if profile == "sinks" else draw(seed)
    return with_changes(drawn, dict(PROFILES[profile]))


def play(profile: str, seeds: Sequence[int], jobs: int = 1) -> Iterator[Played]:
    """Play these seeds; yields them in batches, in order."""
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    yield from spread(partial(_play, profile), batches, jobs)


def _play(profile: str, seeds: Sequence[int]) -> Played:
    played = Played()
    with swept_at_the_end(), _counted(played.events):
        for seed in seeds:
            observed, result = observe(profile, seed)
            played.lives.append(observed.life)
            played.rows |= result.rows
            played.violations += [f"{profile} {seed}: {violation}" for violation in result.violations]
    return played


def observe(profile: str, seed: int) -> tuple[Observation, Result]:
    """Play one life. The environment is empty: secrets in it would be hidden in what the life leaves behind."""
    observed = Observation()
    with patch.dict(os.environ, clear=True):
        return observed, run_seed(scenario_of(profile, seed), observe=observed)


@contextmanager
def _counted(events: set[str]) -> Iterator[None]:
    """Note the kind of each event that the kernel decides about without a refusal."""

    def noting(kind: type[Event], decide: Callable[[Draft, Any], Reply]) -> Callable[[Draft, Any], Reply]:
        def noted(draft: Draft, event: Any) -> Reply:
            reply = decide(draft, event)
            events.add(kind.__name__)
            return reply

        return noted

    with patch.dict(HANDLERS, {kind: noting(kind, decide) for kind, decide in HANDLERS.items()}):
        yield


class Observation:
    """Reads what a life left behind: `entries` by run, `tables` by name."""

    def __init__(self) -> None:
        self.entries: dict[str, list[bytes]] = {}
        self.tables: dict[str, bytes] = {}
        self._heads: list[bytes] = []

    def __call__(self, stage: Stage) -> None:
        tables, ledger = stage.database.tables, stage.ledger
        for (tenant, run), journal in tables.journal.items():
            entries = [journal[seq] for seq in sorted(journal)]
            self.entries[f"{tenant} {run}"] = [entry.body for entry in entries]
            self._heads += [entry.hash for entry in entries[-1:]]
        self.tables = {
            name: _plain_bytes(rows) for name, rows in sorted(vars(tables).items()) if name not in UNMEASURED
        }
        answers = {"acks": ledger.acks, "refusals": ledger.refusals, "met": +ledger.met, "effects": ledger.effects}
        self.tables |= {f"answers: {name}": _plain_bytes(said) for name, said in answers.items()}
        self.tables["faults"] = _plain_bytes(stage.log.lines)

    @property
    def life(self) -> Life:
        seal = hashlib.sha256()
        for value in (
            *(body for bodies in self.entries.values() for body in bodies),
            *self._heads,
            *self.tables.values(),
        ):
            seal.update(len(value).to_bytes(4) + value)
        journals = [bytes(map(short, bodies)) for bodies in self.entries.values()]
        return Life(seal.digest()[:DIGEST_BYTES], journals, bytes(map(short, self.tables.values())))


def short(value: bytes) -> int:
    """One byte in place of a value: enough to find the place of a difference, which the digest has shown."""
    return hashlib.sha256(value).digest()[0]


def differences(before: Life, now: Observation) -> str:
    """Where a life first differs from the recorded one."""
    for (run, bodies), recorded in zip(now.entries.items(), before.journals, strict=False):
        for seq, body in enumerate(bodies, 1):
            if seq > len(recorded) or short(body) != recorded[seq - 1]:
                return f"the journal of run {run} at entry {seq}, which is now {body.decode()}"
        if len(recorded) > len(bodies):
            return f"the journal of run {run}: it ends with entry {len(bodies)}, and had {len(recorded)}"
    if len(now.entries) != len(before.journals):
        return f"the number of runs: {len(now.entries)}, recorded were {len(before.journals)}"
    if len(now.tables) != len(before.tables):
        return f"the number of tables: {len(now.tables)}, recorded were {len(before.tables)}"
    for (name, rows), recorded_byte in zip(now.tables.items(), before.tables, strict=True):
        if short(rows) != recorded_byte:
            return f"{name}: now {rows.decode()[:SHOWN]}"
    return "no single place: play the recorded commit beside this one"


def _plain_bytes(thing: Any) -> bytes:
    """Rows as bytes that are the same in each process: dictionaries and sets are sorted."""
    return msgspec.json.encode(_plain(thing))


def _plain(thing: Any) -> Any:
    if isinstance(thing, Evidence):
        return _plain(msgspec.structs.astuple(thing)[:-1]), _without_frames(thing.body)
    if isinstance(thing, Answer) and not isinstance(thing, Migrated):  # recorded when answers were dictionaries
        return _plain(thing.as_json())
    if isinstance(thing, msgspec.Struct):
        return {name: _plain(getattr(thing, name)) for name in thing.__struct_fields__}
    if isinstance(thing, Mapping):
        return dict(sorted((str(_plain(key)), _plain(value)) for key, value in thing.items()))
    if isinstance(thing, set | frozenset):
        return sorted(str(_plain(one)) for one in thing)
    if isinstance(thing, list | tuple):
        return [_plain(one) for one in thing]
    if isinstance(thing, bytes):
        return thing.hex()
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    if hasattr(thing, "__dict__"):
        return {name: _plain(value) for name, value in sorted(vars(thing).items()) if not callable(value)}
    return str(thing)


def _without_frames(body: bytes) -> Any:
    """Evidence with the last line of its traceback: the others name files and lines of this checkout."""
    said = msgspec.json.decode(body)
    return said | {"traceback": said["traceback"].splitlines()[-1]} if "traceback" in said else said


def unreached(rows: set[tuple[str, str | None, str]], events: set[str]) -> list[str]:
    """Rows of the state tables, and events, that no life reached."""
    missing = [f"{machine}: {source or 'new'} by {trigger}" for machine, source, trigger in table_rows() - rows]
    return sorted([*missing, *(f"event: {kind.__name__}" for kind in HANDLERS if kind.__name__ not in events)])
