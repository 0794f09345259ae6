"""A campaign: all workloads and all peers, round after round, so that a slow minute of the machine affects all of
them."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stepkeep.kernel.errors import InvalidInput, StepkeepError
from stepkeep_lab.bench.ground import STORES, fresh_ground
from stepkeep_lab.bench.handlers import CALLS
from stepkeep_lab.bench.machine import machine, server_facts, versions
from stepkeep_lab.bench.measurement import Figures, Measurement
from stepkeep_lab.bench.peers import OWN, Account, Environment, Peer, Task, find_peers, prepare, run_peer
from stepkeep_lab.bench.works import BOUND, DELIVERED, FLOW, OURS, THROUGH_HTTP, WORKS, Work
from stepkeep_lab.postgres import PostgresServer, PostgresUnavailable

PEER_ROUNDS = 3
ONE_RUN = "one 3-step run, idle"


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured. Empty `only` means every work; `runs` overrides the works' own.

    `rounds` does so for works that are named; otherwise it only cuts short: what is usually measured once takes long.
    """

    quick: bool = False
    peers: bool = False
    only: tuple[str, ...] = ()
    stores: tuple[str, ...] = STORES
    rounds: int | None = None
    runs: int | None = None
    concurrency: int | None = None

    def rounds_of(self, usual: int) -> int:
        if self.quick or self.rounds is None:
            return 1 if self.quick else usual
        return self.rounds if self.only else min(self.rounds, usual)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one work on one store, as it is told while the campaign goes on."""

    subject: str
    work: str
    store: str
    number: int
    figures: Figures = {}
    why: str = ""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one campaign measured, and on what."""

    ask: Ask
    took: float
    machine: dict[str, str]
    versions: dict[str, str]
    measurements: tuple[Measurement, ...]

    @property
    def ok(self) -> bool:
        """All of ours was measured. A peer that is absent is no failure."""
        return all(each.rounds and not each.why for each in self.measurements if each.subject == OURS)


Told = Callable[[Turn], None]
Kept = Callable[[Campaign], None]


def run_campaign(
    ask: Ask,
    told: Told = lambda turn: None,
    kept: Kept = lambda campaign: None,
    peers_dir: Path | None = None,
) -> Campaign:
    """Measure all that is asked for; what cannot be measured says why, and the rest goes on.

    `told` hears of every turn; `kept` is handed what there is after each: an interruption costs no more than one.
    """
    works = chosen(ask)
    peers = find_peers() if ask.peers else []
    began = time.monotonic()
    turns: list[Turn] = []
    here, found = machine(), versions()
    with ExitStack() as stack:
        server, why = _own_server(stack) if "postgres" in ask.stores else (None, "not asked for")
        if server is not None:
            found |= asyncio.run(server_facts(server))
        crowd = _Crowd(ask, works, peers, peers_dir or default_peers_dir(), server, why)
        rounds = max(_rounds(ask, works, peers))
        so_far = _account(ask, began, here, found, turns)
        for number in range(1, rounds + 1):
            # What is measured once is measured last: it takes longest, and the main figures should not wait for it.
            due = [work for work in works if rounds - number < ask.rounds_of(work.rounds)]
            for turn in chain(crowd.turns(number), _own_turns(ask, due, number, server, why)):
                turns.append(turn)
                told(turn)
                so_far = _account(ask, began, here, found | crowd.versions, turns)
                kept(so_far)
    return so_far


def _account(ask: Ask, began: float, here: dict[str, str], found: dict[str, str], turns: Sequence[Turn]) -> Campaign:
    return Campaign(
        ask=ask,
        took=round(time.monotonic() - began, 1),
        machine=here,
        versions=found,
        measurements=gathered(sorted(turns, key=lambda turn: turn.subject not in (OURS, BOUND))),
    )


def chosen(ask: Ask) -> list[Work]:
    """The works asked for; a name that no work has is refused."""
    if unknown := [store for store in ask.stores if store not in STORES]:
        raise InvalidInput(f"there is no database {unknown[0]!r}. Choose from: {', '.join(STORES)}.")
    if unknown := [name for name in ask.only if name not in {work.name for work in WORKS}]:
        raise InvalidInput(f"there is no work {unknown[0]!r}. Choose from: {'; '.join(work.name for work in WORKS)}.")
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


def default_peers_dir() -> Path:
    """Where peers are installed: among the user's caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepkeep" / "peers"


def _rounds(ask: Ask, works: Sequence[Work], peers: Sequence[Peer]) -> list[int]:
    return [ask.rounds_of(work.rounds) for work in works] + [ask.rounds_of(PEER_ROUNDS)] * bool(peers)


def _own_server(stack: ExitStack) -> tuple[PostgresServer | None, str]:
    try:
        return stack.enter_context(PostgresServer()), ""
    except PostgresUnavailable as problem:
        return None, str(problem)


# -- ours --------------------------------------------------------------------------------------------------------------
def _own_turns(ask: Ask, works: Sequence[Work], number: int, server: PostgresServer | None, why: str) -> Iterator[Turn]:
    for work in works:
        for store in (store for store in work.stores if store in ask.stores):
            turn = Turn(subject=work.subject, work=work.name, store=store, number=number)
            if store == "postgres" and server is None:
                yield replace(turn, why=why)
            else:
                yield _take(ask, work, turn, server)


def _take(ask: Ask, work: Work, turn: Turn, server: PostgresServer | None) -> Turn:
    size = dict(work.quick if ask.quick and work.quick is not None else work.size)
    if ask.runs is not None and "runs" in size:
        size["runs"] = ask.runs
    try:
        with fresh_ground(turn.store, server, ask.concurrency) as ground:
            return replace(turn, figures=asyncio.run(work.measure(ground, **size)))
    except StepkeepError as problem:
        return replace(turn, why=str(problem))


# -- theirs ------------------------------------------------------------------------------------------------------------
class _Crowd:
    """The peers of one campaign: installed when first needed, absent from then on where that failed."""

    def __init__(
        self,
        ask: Ask,
        works: Sequence[Work],
        peers: Sequence[Peer],
        cache: Path,
        server: PostgresServer | None,
        why: str,
    ) -> None:
        self._ask, self._peers, self._cache = ask, peers, cache
        self._server, self._why = server, why
        self._asked = {work.name for work in works}
        self._there: dict[str, Environment | str] = {}
        self.versions: dict[str, str] = {}

    def turns(self, number: int) -> Iterator[Turn]:
        if number > self._ask.rounds_of(PEER_ROUNDS):
            return
        for peer in self._peers:
            for store in peer.stores:
                if store == OWN or store in self._ask.stores:
                    yield from self._turn(peer, store, number)

    def _turn(self, peer: Peer, store: str, number: int) -> Iterator[Turn]:
        names = {f"{steps}-step runs": steps for steps in peer.runs}
        names |= ({DELIVERED: 3} if peer.delivers else {}) | ({THROUGH_HTTP: 3} if peer.serves else {})
        names |= {FLOW: CALLS} if peer.replays and CALLS in peer.runs else {}
        asked = {name: steps for name, steps in names.items() if name in self._asked}
        if not asked and ONE_RUN not in self._asked:
            return
        account = self._run(peer, store, tuple(dict.fromkeys(asked.values())))
        if isinstance(account, Account):
            self.versions |= account.versions
        for name, steps in asked.items():
            yield _told(peer, name, store, number, account, steps)
        if ONE_RUN in self._asked:
            yield _told(peer, ONE_RUN, store, number, account, None)

    def _run(self, peer: Peer, store: str, steps: Sequence[int]) -> Account | str:
        there = self._prepared(peer)
        if isinstance(there, str):
            return there
        if store == "postgres" and self._server is None:
            return self._why
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stepkeep-peer-"))
            url = ""
            if store == "postgres" and self._server is not None:
                url = stack.enter_context(self._server.fresh_database())
            works = tuple((each, max(1, peer.runs[each] // (4 if self._ask.quick else 1))) for each in steps)
            probes = peer.probes if ONE_RUN in self._asked else 0
            task = Task(store=store, url=url, folder=folder, npm=str(there.npm), works=works, probes=probes)
            try:
                return run_peer(peer, there, task)
            except StepkeepError as problem:
                return str(problem)

    def _prepared(self, peer: Peer) -> Environment | str:
        if peer.title not in self._there:
            try:
                self._there[peer.title] = made = prepare(peer, self._cache)
                self.versions[peer.package] = made.version
            except StepkeepError as problem:
                self._there[peer.title] = f"absent: {problem}"
        return self._there[peer.title]


def _told(peer: Peer, work: str, store: str, number: int, account: Account | str, steps: int | None) -> Turn:
    """What a peer's account says about its runs of this many steps, or (None) about one run alone."""
    turn = Turn(subject=peer.title, work=work, store=store, number=number)
    if isinstance(account, str):
        return replace(turn, why=account)
    found = account.latency if steps is None else account.works.get(steps, {})
    return replace(turn, figures=found) if found else replace(turn, why="it said nothing about this")
