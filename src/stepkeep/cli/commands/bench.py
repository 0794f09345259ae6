"""`stepkeep bench`: what it costs, on databases and processes of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from stepkeep.cli.printer import answer, say, warn
from stepkeep.cli.settings import Settings
from stepkeep.cli.status import FAILED, SUCCEEDED


def bench(
    settings: Settings,
    quick: Annotated[bool, typer.Option("--quick", help="The main figures only, within a minute.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="WORK", help="Only this (repeatable).")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="How often each work is measured.")] = None,
    runs: Annotated[int | None, typer.Option("--runs", min=1, help="How many runs each round starts.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, help="Places of each worker; the worker's default otherwise.")
    ] = None,
) -> int:
    """Measure: throughput, latency, backlog, idle cost and memory, on SQLite and on a PostgreSQL server of its own.

    Every figure is a median over rounds, with the CPU time that worker, client and server spent per step. Absolute
    figures hold for one machine; ratios travel. Exit status 1 when something could not be measured.
    """
    from stepkeep.bench.campaign import Ask, run_campaign
    from stepkeep.bench.ground import STORES
    from stepkeep.bench.report import as_json, line, table

    ask = Ask(
        quick=quick,
        only=tuple(only or ()),
        stores=tuple(store or STORES),
        rounds=rounds,
        runs=runs,
        concurrency=concurrency,
    )
    campaign = run_campaign(ask, told=lambda turn: warn(line(turn)))
    if settings.json:
        answer(as_json(campaign))
    else:
        say(table(campaign))
    return FAILED if any(each.why for each in campaign.measurements) else SUCCEEDED
