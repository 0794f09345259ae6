"""Logs in dialects' words for the judge: kernel stories and random walks, told by the same scribe as an export."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conformance.logs import CORRELATION, STORIES, entries_of, log_of, sealed
from tests.conformance.toy.machine import JUDGED as TOY
from tests.kernel.driver import World
from tests.kernel.walks import bring_home, live, world_of

from stepkeep.conformance.encoding import compact
from stepkeep.conformance.words.dialect_line import line_hash
from stepkeep.dialects import registry
from stepkeep.dialects.dialect import JudgedDialect
from stepkeep.kernel.machine.journal import RUN_ENTITY, Entry
from stepkeep.operations.logs.dialect_lines import DialectScribe, subject_of_run
from stepkeep.operations.logs.lines import encode_line, unfold
from stepkeep_lab.forgeries.campaign import differences, findings_in
from stepkeep_lab.forgeries.material import CANONICAL
from stepkeep_lab.forgeries.seals import resealed as resealed_whole

Line = dict[str, Any]


@contextmanager
def toy_among_dialects() -> Iterator[None]:
    """The made-up dialect can be found like any other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.PACKAGES, "toy", "tests.conformance.toy")
        yield


def dialects() -> list[JudgedDialect]:
    """Every dialect, and the made-up one."""
    return [*(registry.judged(name) for name in registry.names() if name != "toy"), TOY]


def stories() -> list[World]:
    return [story() for story in STORIES.values()]


def walks(count: int, seed: int = 0) -> Iterator[World]:
    """Runs in which anything may have happened, most of them brought to their end."""
    for turn in range(count):
        random = Random(seed * 1_000_003 + turn)
        world = world_of(random)
        world.watched = False
        live(world, random, random.randint(2, 16))
        if random.random() < 0.9:
            bring_home(world)
        yield world


def told(world: World, judged: JudgedDialect, *, written_in: str = "native") -> list[Line]:
    """The run's log in a dialect's words, as lines; `written_in` pretends that its definition came from there.

    It is a log of format 1: it has no definition, and its creation names none.
    """
    lines = told_entries(entries_of(world), world, judged, written_in)
    for line in lines:
        if line["metadata"].get("event") == "run_created" and "detail" in line["metadata"]:
            detail = line["metadata"]["detail"]
            line["metadata"]["detail"] = {name: detail[name] for name in ("input", "awaits_slot") if name in detail}
    return resealed(lines)


def told_entries(
    entries: Sequence[Entry], world: World, judged: JudgedDialect, written_in: str = "native"
) -> list[Line]:
    plan = replace(world.plan, definition=replace(world.plan.definition, dialect=written_in))
    scribe = DialectScribe(judged, subject_of_run(entries[0].run_id, plan, CORRELATION))
    chain = sealed(entries)
    lines = [line for entry in chain for move in unfold(entry) for line in scribe.lines(move)]
    states = [hop.target for entry in entries for hop in entry.hops if hop.no == RUN_ENTITY]
    last = chain[-1]
    return [*lines, scribe.head(last.tenant, last.seq, last.hash, states[-1], last.at)]


def encoded(lines: Sequence[Line]) -> list[bytes]:
    return [encode_line(line) for line in lines]


def resealed(lines: Sequence[Line]) -> list[Line]:
    """The same lines numbered and chained anew, as a liar with the whole file would: only their meaning is wrong."""
    chain = b""
    for number, line in enumerate(lines, 1):
        metadata = line["metadata"]
        metadata["line"] = number
        if line["event_type"] == "journal_head":
            metadata["lines"], metadata["chain"] = number - 1, chain.hex()
        chain = line_hash(chain, line)
        metadata["hash"] = chain.hex()
    return list(lines)


def log_in(words: str, world: World, told: Sequence[Entry] = ()) -> list[Line]:
    """The log of a run with its definition, in canonical names or in a dialect's words; of other entries if given."""
    if words == CANONICAL:
        return [json.loads(line) for line in log_of(world)]
    if not told:
        return whole(world, registry.judged(words))
    judged = registry.judged(words)
    opening = DialectScribe(judged, subject_of_run("r", world.plan, CORRELATION)).opening("t", world.plan, told[0].at)
    return resealed_whole(json.loads(compact([opening, *told_entries(told, world, judged)])), canonical=False)


def found_in(words: str, lines: list[Line]) -> tuple[str, ...]:
    return findings_in(words, [compact(line) for line in resealed_whole(lines, canonical=words == CANONICAL)])


def refused(words: str, lines: list[Line], world: World) -> tuple[str, ...]:
    """What is found in a forged log of this run: in it alone, or beside the true canonical log."""
    found = found_in(words, lines)
    return (
        found if found or words == CANONICAL else differences(words, [compact(line) for line in lines], log_of(world))
    )


def whole(world: World, judged: JudgedDialect) -> list[Line]:
    """The run's log in a dialect's words, with its definition, as an export writes it."""
    entries = entries_of(world)
    scribe = DialectScribe(judged, subject_of_run("r", world.plan, CORRELATION))
    opening = scribe.opening("t", world.plan, entries[0].at)
    lines = [opening, *told_entries(entries, world, judged, world.plan.definition.dialect)]
    return resealed_whole(json.loads(compact(lines)), canonical=False)
