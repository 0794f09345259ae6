"""`stepkeep bench`: measures on databases and processes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, page, warn
from stepkeep.cli.settings import Settings


def bench(
    settings: Settings,
    quick: Annotated[bool, typer.Option("--quick", help="The main figures only, within a minute.")] = False,
    peers: Annotated[bool, typer.Option("--peers", help="Other engines beside it, from benchmarks/peers.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="WORK", help="Only this (repeatable).")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, max=LARGEST, help="How often works are measured; without --only, at most."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, max=LARGEST, help="How many runs each round starts.")
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", min=1, max=10_000, help="Places of each worker; the worker's default otherwise."),
    ] = None,
    peers_dir: Annotated[
        str | None,
        typer.Option("--peers-dir", metavar="DIR", help="Where peers are installed; among the caches otherwise."),
    ] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Only the CPU of a run and of a step: client, worker, PostgreSQL.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="COMMIT", help="With --cpu: beside another commit, in turns; 1.1 × fails."),
    ] = None,
    waterfall: Annotated[bool, typer.Option("--waterfall", help="Only the stages of one idle run.")] = False,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write bench.json, bench.md and bench.svg there.")
    ] = None,
) -> int:
    """Measure: throughput, latency, backlog, idle cost and memory, on SQLite and on a PostgreSQL server of its own.

    Figures are medians over rounds, with the CPU time that worker, client and server spent per step, and are held
    against the targets. Absolute figures hold for one machine; ratios travel. Exit status 1 when something of ours
    could not be measured; a peer that cannot be installed is reported as absent.
    """
    if against is not None:
        return _compare(settings, tuple(store or ("postgres", "sqlite")), rounds, runs, against)
    if cpu or waterfall:
        return _instruments(settings, tuple(store or ("postgres", "sqlite")), rounds, runs, cpu, waterfall)
    from stepkeep_lab.bench.campaign import Ask, run_campaign
    from stepkeep_lab.bench.ground import STORES
    from stepkeep_lab.bench.report import as_json, line, text, write

    ask = Ask(
        quick=quick,
        peers=peers,
        only=tuple(only or ()),
        stores=tuple(store or STORES),
        rounds=rounds,
        runs=runs,
        concurrency=concurrency,
    )
    campaign = run_campaign(
        ask,
        told=lambda turn: warn(line(turn)),
        kept=lambda so_far: None if report is None else write(so_far, Path(report)),
        peers_dir=Path(peers_dir) if peers_dir else None,
    )
    if settings.json:
        answer(as_json(campaign))
    else:
        page(text(campaign))
    return SUCCEEDED if campaign.ok else FAILED


def _compare(settings: Settings, stores: tuple[str, ...], rounds: int | None, runs: int | None, against: str) -> int:
    """The CPU of a run beside that of another commit. Exit status 1 where it takes more than is tolerated."""
    import msgspec

    from stepkeep_lab.bench import cpu

    found = cpu.compare(stores, rounds, runs, against, told=warn)
    if settings.json:
        answer(msgspec.to_builtins({"compared": found}))
    else:
        page(cpu.compared_text(found))
    return FAILED if any(one.is_regression for one in found) else SUCCEEDED


def _instruments(
    settings: Settings, stores: tuple[str, ...], rounds: int | None, runs: int | None, cpu: bool, waterfall: bool
) -> int:
    """CPU by process and the stages of a run, in place of a campaign."""
    import msgspec

    from stepkeep_lab.bench import cpu as cpu_by_process
    from stepkeep_lab.bench import waterfall as stages

    spent = cpu_by_process.measure(stores, rounds, runs, told=warn) if cpu else []
    drawn = stages.measure(stores, runs) if waterfall else []
    if settings.json:
        answer(msgspec.to_builtins({"cpu": spent, "waterfall": drawn}))
    else:
        page(
            "\n\n".join([*([cpu_by_process.text(spent)] if cpu else []), *([stages.text(drawn)] if waterfall else [])])
        )
    return SUCCEEDED
