"""`stepkeep lab check`: visits every state of a family of small runs and reports violated properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepkeep.cli.arguments import LARGEST
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say
from stepkeep.cli.settings import Settings
from stepkeep_lab.reports import commit, opening, table, write_report

if TYPE_CHECKING:
    from stepkeep_lab.modelcheck.campaign import Campaign
    from stepkeep_lab.modelcheck.explore import Explored


def check(
    settings: Settings,
    states: Annotated[
        int, typer.Option("--states", min=1, max=LARGEST, help="At most this many states of each definition.")
    ] = 4000,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes explore side by side.")] = 1,
    case: Annotated[list[str] | None, typer.Option("--case", help="Only this definition (repeatable).")] = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write modelcheck.json and modelcheck.md there.")
    ] = None,
) -> int:
    """Model-check the kernel: every state, every event, no violation, no dead end, an end reachable from everywhere.

    Exit status 1 when anything was found.
    """
    from stepkeep_lab.modelcheck.campaign import check as explore

    campaign = explore(states, jobs=jobs, chosen=tuple(case or ()))
    if report is not None:
        told = {"commit": commit(), "command": f"stepkeep lab check --states {states}", **campaign.as_json()}
        write_report(report, "modelcheck", told, _page(campaign, told))
    if settings.json:
        answer(campaign.as_json())
    else:
        _show(campaign)
    return FAILED if campaign.findings else SUCCEEDED


def _show(campaign: Campaign) -> None:
    for one in campaign.cases:
        figures = f"{one.states:>9,} states {one.transitions:>10,} transitions  depth {one.depth:>3}"
        say(f"{one.case:<12}{figures}  {one.seconds:>7.1f} s  {_extent(one)}")
    for finding in campaign.findings:
        say(f"VIOLATION in {finding.case}: {finding.name}: {finding.what}")
        say("  " + " → ".join(finding.path))
    said = "no violation" if not campaign.findings else f"{len(campaign.findings)} violated"
    say(f"{campaign.states:,} states: {said}")


def _page(campaign: Campaign, told: Mapping[str, Any]) -> str:
    columns = ("definition", "states", "transitions", "depth", "left and driven to an end")
    figures = [
        (one.case, *(f"{each:,}" for each in (one.states, one.transitions, one.depth, one.edge)))
        for one in campaign.cases
    ]
    lines = opening("Model check", told["commit"], told["command"], told["seconds"]) + table(columns, figures)
    found = [f"- {one.case}: {one.name}: {one.what}" for one in campaign.findings]
    return "\n".join([*lines, "", *(found or [f"{campaign.states:,} states: no violation."]), ""])


def _extent(one: Explored) -> str:
    if one.complete or one.finding is not None:
        return "complete" if one.complete else "stopped"
    return f"cut off; each of {one.edge:,} states at the edge has a way to an end"
