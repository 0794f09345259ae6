"""A campaign: all works, round after round, so that a slow minute of the machine falls on all of them alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import msgspec

from stepkeep.bench.ground import STORES, NotMeasured, fresh_ground
from stepkeep.bench.measurement import Figures, Measurement
from stepkeep.bench.works import WORKS, Work
from stepkeep.errors import InvalidInput, StepkeepError
from stepkeep.testing.postgres import PostgresServer, PostgresUnavailable

OURS = "stepkeep"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured. Empty `only` means every work; `rounds` and `runs` override the works' own."""

    quick: bool = False
    only: tuple[str, ...] = ()
    stores: tuple[str, ...] = STORES
    rounds: int | None = None
    runs: int | None = None
    concurrency: int | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one work on one store, as it is told while the campaign goes on."""

    subject: str
    work: str
    store: str
    number: int
    figures: Figures = {}
    why: str = ""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one campaign measured."""

    ask: Ask
    took: float
    measurements: tuple[Measurement, ...]


def run_campaign(ask: Ask, told: Callable[[Turn], None] = lambda turn: None) -> Campaign:
    """Measure all that is asked for; what cannot be measured says why, and the rest goes on."""
    works = chosen(ask)
    began = time.monotonic()
    turns: list[Turn] = []
    with ExitStack() as stack:
        server, why = _own_server(stack) if "postgres" in ask.stores else (None, "")
        for number, work, store in _turns(ask, works):
            if store == "postgres" and server is None:
                turn = Turn(subject=OURS, work=work.name, store=store, number=number, why=why)
            else:
                turn = _take(ask, work, store, number, server)
            turns.append(turn)
            told(turn)
    return Campaign(ask=ask, took=round(time.monotonic() - began, 1), measurements=gathered(turns))


def chosen(ask: Ask) -> list[Work]:
    """The works asked for; a name that no work has is refused."""
    if unknown := [store for store in ask.stores if store not in STORES]:
        raise InvalidInput(f"there is no database {unknown[0]!r}. Choose from: {', '.join(STORES)}.")
    if unknown := [name for name in ask.only if name not in {work.name for work in WORKS}]:
        raise InvalidInput(f"there is no work {unknown[0]!r}. Choose from: {', '.join(work.name for work in WORKS)}.")
    if ask.only:
        return [work for work in WORKS if work.name in ask.only]
    return [work for work in WORKS if not ask.quick or work.quick is not None]


def gathered(turns: Sequence[Turn]) -> tuple[Measurement, ...]:
    """Turns of the same work by the same subject on the same store become one measurement."""
    by_key: dict[tuple[str, str, str], list[Turn]] = {}
    for turn in turns:
        by_key.setdefault((turn.subject, turn.work, turn.store), []).append(turn)
    return tuple(
        Measurement(
            subject=subject,
            work=work,
            store=store,
            rounds=tuple(turn.figures for turn in each if turn.figures),
            why=next((turn.why for turn in each if turn.why), ""),
        )
        for (subject, work, store), each in by_key.items()
    )


def _turns(ask: Ask, works: Sequence[Work]) -> Iterator[tuple[int, Work, str]]:
    rounds = [1 if ask.quick else work.rounds if ask.rounds is None else ask.rounds for work in works]
    for number in range(1, max(rounds) + 1):
        for work, wanted in zip(works, rounds, strict=True):
            if number <= wanted:
                yield from ((number, work, store) for store in work.stores if store in ask.stores)


def _take(ask: Ask, work: Work, store: str, number: int, server: PostgresServer | None) -> Turn:
    size = dict(work.quick if ask.quick and work.quick is not None else work.size)
    if ask.runs is not None and "runs" in size:
        size["runs"] = ask.runs
    turn = Turn(subject=OURS, work=work.name, store=store, number=number)
    try:
        with fresh_ground(store, server, ask.concurrency) as ground:
            return msgspec.structs.replace(turn, figures=asyncio.run(work.measure(ground, **size)))
    except (NotMeasured, StepkeepError) as problem:
        return msgspec.structs.replace(turn, why=str(problem))


def _own_server(stack: ExitStack) -> tuple[PostgresServer | None, str]:
    try:
        return stack.enter_context(PostgresServer()), ""
    except PostgresUnavailable as problem:
        return None, str(problem)
