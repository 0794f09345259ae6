"""`stepkeep bench --cpu`: the CPU time of a run and of a step by process, with many callers and with one.

Every caller gets its result. The values are medians over rounds. It measures by `delivery`; the command prints it.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence

import msgspec

from stepkeep_lab.bench import delivery
from stepkeep_lab.bench.chart import number
from stepkeep_lab.bench.ground import fresh_ground, own_server

STEPS = 3
ROUNDS = 5
CALLERS = {500: 4_000, 1: 300}
"""How many callers, and how many runs they share."""


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The CPU time of one run in microseconds; `server` is PostgreSQL's."""

    store: str
    callers: int
    rounds: int
    client: float
    worker: float
    server: float


def measure(
    stores: Sequence[str], rounds: int | None, runs: int | None, told: Callable[[str], None] = lambda said: None
) -> list[Cpu]:
    """The CPU time of runs, store by store, round after round in turns."""
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    with own_server(stores) as server:
        for turn in range(1, (rounds or ROUNDS) + 1):
            for store in stores:
                for callers, usual in CALLERS.items():
                    with fresh_ground(store, server) as ground:
                        asked = {"steps": STEPS, "runs": runs or usual, "callers": callers}
                        figures = asyncio.run(delivery.awaited(ground, **asked))
                    found.setdefault((store, callers), []).append(figures)
                    told(f"{turn}. {store}, {_named(callers)}: worker {number(figures['worker_us'])} µs a run")
    return [
        Cpu(
            store=store,
            callers=callers,
            rounds=len(each),
            **{
                party: round(statistics.median(one[f"{party}_us"] for one in each), 1)
                for party in ("client", "worker", "server")
            },
        )
        for (store, callers), each in found.items()
    ]


def text(found: Sequence[Cpu]) -> str:
    """A table for each store and number of callers."""
    return "\n\n".join(_table(each) for each in found)


def _table(one: Cpu) -> str:
    parties = (one.client, one.worker, one.server, one.client + one.worker + one.server)
    head = f"{one.store}, {_named(one.callers)}, {STEPS}-step runs: CPU in µs, median of {one.rounds}"
    rows = {"": ["client", "worker", "server", "together"]}
    rows |= {name: [number(value / by) for value in parties] for name, by in (("run", 1), ("step", STEPS))}
    return "\n".join([head, *(f"  {name:<6}" + "".join(f"{cell:>10}" for cell in row) for name, row in rows.items())])


def _named(callers: int) -> str:
    return "1 idle caller" if callers == 1 else f"{callers} callers"
