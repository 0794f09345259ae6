"""`stepkeep lab fuzz`: random hostile input for each edge of the engine, and the cases that broke a promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepkeep.cli.arguments import LARGEST, finite
from stepkeep.cli.printer import FAILED, SUCCEEDED, answer, say, warn
from stepkeep.cli.settings import Settings
from stepkeep_lab.reports import commit

PIECE = 3_000
"""A long input is told in lines of this many characters; the printer cuts longer ones."""


def fuzz(
    settings: Settings,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="KIND", help="Only this target (repeatable).")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=LARGEST, help="How many cases of each target.")] = 1_000,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1, max=86_400, callback=finite, help="Stop each target after this many seconds."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LARGEST, help="What the cases are drawn from.")] = 0,
    first: Annotated[int, typer.Option("--from", metavar="NUMBER", min=0, max=LARGEST, help="The first case.")] = 0,
    case: Annotated[
        int | None,
        typer.Option(
            "--case", metavar="NUMBER", min=0, max=LARGEST, help="Only this case of one target, shown in full."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1_024, help="How many processes share the work.")] = 1,
    report: Annotated[
        str | None, typer.Option("--report", metavar="DIR", help="Write fuzz.json and fuzz.md there.")
    ] = None,
) -> int:
    """Feed random hostile input to each edge: definitions, expressions, handlers, API, logs, databases, terminal.

    A case depends on its seed and number alone: --case plays one again. Exit status 1 when a promise was broken.
    """
    from stepkeep.kernel.errors import InvalidInput
    from stepkeep_lab.fuzz.campaign import Campaign, replay, run_campaign
    from stepkeep_lab.fuzz.report import as_json, finding_lines, line, verdict, write

    tell = warn if settings.json else say
    if case is not None:
        if only is None or len(only) != 1:
            raise InvalidInput("--case is a case of one target: name it with --only.")
        shown, score = replay(only[0], seed, case)
        campaign = Campaign(seed=seed, first=case, count=1, seconds_each=None, scores=[score], seconds=score.seconds)
        for at in range(0, len(shown), PIECE):
            tell(f"input: {shown[at : at + PIECE]}")
        tell(line(score))
    else:
        campaign = run_campaign(
            tuple(only or ()),
            seed=seed,
            first=first,
            count=count,
            seconds=seconds,
            jobs=jobs,
            told=lambda score: tell(line(score)),
        )
    if report is not None:
        write(campaign, Path(report), commit())
    if settings.json:
        answer({"fuzz": as_json(campaign, commit())})
    else:
        for score in campaign.scores:
            for finding in score.findings:
                for said in finding_lines(finding):
                    say(said)
        say(f"seed {campaign.seed}: {verdict(campaign)} in {campaign.seconds:g} s")
    return SUCCEEDED if campaign.ok else FAILED
