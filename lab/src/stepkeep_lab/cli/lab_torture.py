"""`stepkeep lab torture`: real faults on real processes and databases of its own, followed by an audit."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.arguments import LARGEST, finite
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings


def torture(
    settings: Settings,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=86_400, callback=finite, help="How long each fault goes on.")
    ] = 15.0,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Go on until every point was struck and hundreds of times were taken.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only this scenario (repeatable).")] = None,
    store: Annotated[list[str] | None, typer.Option("--store", help="Only sqlite, or only postgres.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=LARGEST, help="Repeat a campaign; drawn by lot otherwise.")
    ] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write torture.json and torture.md there.")
    ] = None,
) -> int:
    """Kill, stop, cut off and fill up: every fault on SQLite and on a PostgreSQL server of its own, then an audit.

    Touches only processes and servers that it started itself, on the loopback interface. Exit status 1 when a promise
    was broken, or a fault did not strike.
    """
    from stepkeep_lab.torture.campaign import STORES, run_campaign
    from stepkeep_lab.torture.report import as_json, line, write

    campaign = run_campaign(
        seed=secrets.randbelow(1_000_000) if seed is None else seed,
        seconds=seconds,
        thorough=thorough,
        only=tuple(only or ()),
        stores=tuple(store or STORES),
        told=lambda account: warn(line(account)) if settings.json else say(line(account)),
    )
    if report is not None:
        write(campaign, Path(report))
    if settings.json:
        answer(as_json(campaign))
    else:
        for account in campaign.accounts:
            for finding in account.findings:
                say(f"FINDING in {account.scenario} on {account.store}: {finding}")
        say(f"seed {campaign.seed}: {'no promise was broken' if campaign.ok else 'FAILED'} in {campaign.took:g} s")
    return SUCCEEDED if campaign.ok else FAILED
