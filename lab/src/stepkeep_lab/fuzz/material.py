"""Runs to tamper with: a few stories in every format, played on a workbench with fixed ids.

In memory the clock stands still, so that the same code gives the same logs, byte for byte. Targets for logs and
databases call it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from stepkeep.dialects import registry
from stepkeep.operations.logs.lines import encode_line
from stepkeep.operations.logs.log import export_run
from stepkeep.operations.people import people
from stepkeep.operations.pipeline import start, workers
from stepkeep.testing import Workbench
from stepkeep.testing.bench_run import BenchRun
from stepkeep_lab.fuzz.documents import IOA, LINEAR, RUN

ORDER = """
workflow: order
timeout: 2d
on_failure: compensate
steps:
  - {name: reserve, uses: stock.reserve, undo: stock.release, retry: {max_attempts: 3}}
  - {name: sign-off, approval: {prompt: May it?, deadline: 24h}}
  - {name: paid, wait: {event: payment, deadline: 24h}}
  - {name: by-hand, uses: desk.pack, completion: {mode: manual, deadline: 24h}}
  - {name: ship, uses: courier.book, on_failure: compensate, rules: ["${{ output.ok }}"]}
output: {tracking: "${{ steps.ship.output.id }}"}
"""

CANONICAL = "canonical"


def play_stories(bench: Workbench) -> list[str]:
    """Play every story once; returns the ids of the runs."""
    bench.replace("stock.reserve", fails_times=1, returns={"id": 7, "items": [1, None, "x"]})
    bench.replace("stock.release", returns=None)
    bench.replace("desk.pack", returns={"packed": True})
    bench.replace("courier.book", returns={"ok": True, "id": "t-1"})
    runs = [_order(bench, ending) for ending in (_shipped, _rejected, _cancelled, _waiting)]
    bench.replace_others(returns={"done": True})
    for name, text in (("ioa", IOA), ("linear", LINEAR), ("run", RUN)):
        run = bench.run(bench.load(text, as_=name), {"note": name})
        if run.waits:
            run.approve()
        runs.append(run)
    return [run.id for run in runs]


def _order(bench: Workbench, ending: Callable[[Workbench, BenchRun], None]) -> BenchRun:
    run = bench.run(bench.load(ORDER), {"customer": "c-1", "note": None}, correlation_id="order-1")
    ending(bench, run)
    return run


def _shipped(bench: Workbench, run: BenchRun) -> None:
    run.approve("sign-off", comment="fine")
    run.send("payment", {"amount": 12})
    run.complete("by-hand", output={"packed": True})


def _rejected(bench: Workbench, run: BenchRun) -> None:
    run.reject("sign-off", comment="no")


def _cancelled(bench: Workbench, run: BenchRun) -> None:
    run.approve("sign-off")
    run.cancel(compensate=True, reason="changed")


def _waiting(bench: Workbench, run: BenchRun) -> None:
    run.approve("sign-off")


def exported_logs() -> dict[str, list[list[bytes]]]:
    """The lines of each run's log, in canonical names and in the words of each dialect."""
    with fixed_ids(), Workbench() as bench:
        runs = play_stories(bench)
        words = (CANONICAL, *registry.names())
        return {word: [_lines(bench, run, word) for run in runs] for word in words}


def _lines(bench: Workbench, run: str, word: str) -> list[bytes]:
    engine, dialect = bench.engine, None if word == CANONICAL else word

    async def read() -> list[bytes]:
        lines = export_run(engine.transactor, run, tenant=engine.tenant, dialect=dialect)
        return [encode_line(line) async for line in lines]

    return bench.call(read())


@contextmanager
def fixed_ids() -> Iterator[None]:
    """Ids that come out the same each time, in the place of random ones."""
    made = 0

    def next_id() -> str:
        nonlocal made
        made += 1
        return f"00000000-0000-7000-8000-{made:012x}"

    with ExitStack() as stack:
        for module in (start, people):
            stack.enter_context(patch.object(module, "uuid7", next_id))
        stack.enter_context(patch.object(workers, "new_id", lambda app: f"{app}:{next_id()}"))
        yield
